"""The words: stored numbers keep their meaning. How states follow from rows: tests/queue/test_history.py."""

from __future__ import annotations

from windlass.job import FINAL_STATES, STATE_OF_OUTCOME, Flag, Outcome, Place, Reason, State


def test_stored_numbers_never_change() -> None:
    """What stands in databases already: a new word gets a new number."""
    assert {"READY": 0, "LEASED": 1, "BLOCKED": 2, "HELD": 3} == {p.name: p.value for p in Place}
    assert {"SCHEDULED": 0, "RETRY": 1, "SLEEP": 2, "SNOOZE": 3} == {r.name: r.value for r in Reason}
    assert [1, 2, 4, 8, 16, 32, 64, 256] == [f.value for f in Flag]
    words = "SUCCEEDED FAILED TIMED_OUT LOST CANCELLED RELEASED SNOOZED EXPIRED"
    assert words.split() == [o.name for o in Outcome]
    assert list(range(8)) == [o.value for o in Outcome]


def test_a_job_in_done_has_a_final_state() -> None:
    """Three outcomes end a job in `done`; the fourth final state is `dead`, a table of its own."""
    assert FINAL_STATES == {*STATE_OF_OUTCOME.values(), State.DEAD}
