"""The words: states are derived from where a row lies, and stored numbers keep their meaning."""

from __future__ import annotations

from itertools import product

import pytest

from windlass.job import (
    FINAL_STATES,
    STATE_OF_OUTCOME,
    Flag,
    Outcome,
    Place,
    Reason,
    SessionState,
    State,
    queue_state,
    timer_state,
)

Q = Flag.NONE


@pytest.mark.parametrize(
    ("state", "place", "flags", "started", "pending"),
    [
        (State.QUEUED, Place.READY, Q, False, 0),
        (State.ASSIGNED, Place.LEASED, Q, False, 0),
        (State.RUNNING, Place.LEASED, Q, True, 0),
        (State.CANCELLING, Place.LEASED, Flag.CANCEL, False, 0),
        (State.CANCELLING, Place.LEASED, Flag.CANCEL | Flag.PAUSED, True, 0),
        (State.BLOCKED, Place.BLOCKED, Q, False, 2),
        (State.BLOCKED, Place.BLOCKED, Q, False, 0),
        (State.BLOCKED, Place.HELD, Flag.PAUSED, False, 1),
        (State.QUEUED, Place.HELD, Flag.PAUSED, False, 0),
        (State.RUNNING, Place.LEASED, Flag.PAUSED, True, 0),
    ],
)
def test_the_state_of_a_row_in_queue(state: State, place: Place, flags: Flag, started: bool, pending: int) -> None:
    """The table of states of the design: by place, cancel flag, told start and open parents; pause is no state."""
    assert state is queue_state(place, flags=flags, started=started, pending=pending)


def test_every_row_of_queue_has_a_live_state() -> None:
    """No combination of columns is without a state, and none is a final one."""
    for place, bits, started, pending in product(Place, range(32), (False, True), (0, 1)):
        state = queue_state(place, flags=Flag(bits), started=started, pending=pending)

        assert state not in FINAL_STATES


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (State.SCHEDULED, Reason.SCHEDULED),
        (State.SCHEDULED, Reason.RETRY),
        (State.SLEEPING, Reason.SLEEP),
        (State.SCHEDULED, Reason.SNOOZE),
    ],
)
def test_the_state_of_a_row_in_timer(state: State, reason: Reason) -> None:
    """Sleeping is a durable delay inside a job; everything else that waits for its time is scheduled."""
    assert state is timer_state(reason)


def test_stored_numbers_never_change() -> None:
    """What stands in databases already: a new word gets a new number."""
    assert {"READY": 0, "LEASED": 1, "BLOCKED": 2, "HELD": 3} == {p.name: p.value for p in Place}
    assert {"ALIVE": 0, "DEAD": 1, "CLOSED": 2} == {s.name: s.value for s in SessionState}
    assert {"SCHEDULED": 0, "RETRY": 1, "SLEEP": 2, "SNOOZE": 3} == {r.name: r.value for r in Reason}
    assert [1, 2, 4, 8, 16] == [f.value for f in Flag]
    assert "succeeded failed timed_out lost cancelled released snoozed expired".split() == [o.word for o in Outcome]
    assert list(range(8)) == [o.value for o in Outcome]


def test_a_job_in_done_has_a_final_state() -> None:
    """Three outcomes end a job in `done`; the fourth final state is `dead`, a table of its own."""
    assert FINAL_STATES == {*STATE_OF_OUTCOME.values(), State.DEAD}
