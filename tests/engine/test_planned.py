"""A schedule as it is asked for, and as it is stored and shown."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import Raw

from windlass.config import Settings
from windlass.config.settings import Retention
from windlass.engine import planned
from windlass.errors import InvalidInput, InvalidSchedule
from windlass.queue.cron import At, Cron, Every
from windlass.queue.defaults import Defaults
from windlass.queue.schedule import NewSchedule
from windlass.queue.schedules import Schedule
from windlass.wire.schedules import SchedulePatch, ScheduleRequest, TriggerRequest

ID = UUID("0197a000-0000-7000-8000-00000000000c")
NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
SETTINGS = Settings()


def made(**fields: Any) -> NewSchedule:
    """Return the schedule that is stored for a request."""
    asked = msgspec.json.decode(
        msgspec.json.encode({"name": "nightly", "task": "report", **fields}), type=ScheduleRequest
    )
    return planned.new_schedule(asked, SETTINGS, schedule_id=ID, tenant="a")


def patched(was: NewSchedule, **fields: Any) -> NewSchedule:
    """Return what a patch makes of a schedule."""
    return planned.patched(was, msgspec.convert(fields, SchedulePatch), SETTINGS)


def stored(definition: NewSchedule, **fields: Any) -> Schedule:
    """Return a schedule as it is found again."""
    known: dict[str, Any] = {
        "definition": definition,
        "version": 1,
        "base_at": NOW,
        "created_at": NOW,
        "changed_at": NOW,
        "next_at": NOW + timedelta(hours=1),
        "last_at": None,
        "waiting_count": 0,
        "missing_at": None,
        "pause": None,
    }
    return Schedule(**known | fields)


def refused(**fields: Any) -> InvalidInput:
    """Return why a schedule is not accepted."""
    with pytest.raises(InvalidInput) as caught:
        planned.check_fires(made(**fields), now=NOW)
    return caught.value


def test_what_is_left_out_comes_from_the_settings() -> None:
    """A name and a task are enough: then it is run by hand only."""
    schedule = made()

    assert (None, "UTC", "default", 3, 3600) == (
        schedule.trigger,
        schedule.zone,
        schedule.queue,
        schedule.max_attempts,
        schedule.timeout_s,
    )
    assert ("latest", "skip", 60, 1000) == (
        schedule.policy.catch_up,
        schedule.policy.overlap,
        schedule.policy.misfire_grace_s,
        schedule.policy.catch_up_max,
    )


def test_each_trigger_is_told_by_its_field() -> None:
    """Cron with its zone, an interval in any way of writing spans, one time in any zone."""
    berlin = made(cron="30 2 * * *", timezone="Europe/Berlin")
    hourly = [made(every=span).trigger for span in (5400, "1h30m", "90m")]
    once = made(at="2026-05-01T12:00:00+02:00")

    assert Cron("30 2 * * *", "Europe/Berlin") == berlin.trigger
    assert [Every(5400)] * 3 == hourly
    assert At(datetime(2026, 5, 1, 10, tzinfo=UTC)) == once.trigger


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": "*/0 * * * *"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "0 25 * * *"}, "cron"),
        ({"cron": "0 0 * *"}, "cron"),
        ({"cron": "0 0 * * *", "timezone": "Mars/Olympus"}, "timezone"),
        ({"cron": "0 0 * * *", "timezone": "europe/berlin"}, "timezone"),
        ({"every": 60, "timezone": "Europe/Berlin"}, "timezone"),
        ({"timezone": "Europe/Berlin"}, "timezone"),
        ({"cron": ",".join(["1"] * 61) + " * * * *"}, "cron"),
        ({"every": 0.5}, "every"),
        ({"every": "1500ms"}, "every"),
        ({"every": "400d"}, "every"),
        ({"cron": "0 0 * * *", "every": 60}, "every"),
        ({"cron": "0 0 * * *", "at": "2027-01-01T00:00:00Z"}, "at"),
        ({"cron": "0 0 * * *", "start": "2027-01-02T00:00:00Z", "end": "2027-01-01T00:00:00Z"}, "end"),
        ({"cron": "0 0 * * *", "end": "2026-01-01T00:00:00Z"}, "end"),
        ({"cron": "0 0 * * SAT", "exclude": ["SAT"]}, "cron"),
        ({"every": 60, "exclude": ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]}, "every"),
        ({"at": "2026-12-25T00:00:00Z", "exclude": ["--12-25"]}, "at"),
        ({"cron": "0 0 * * *", "exclude": ["2026-02-30"]}, "exclude"),
        ({"cron": "0 0 * * *", "jitter": "25h"}, "jitter"),
    ],
)
def test_what_cannot_be_a_schedule_names_its_field(fields: dict[str, Any], field: str) -> None:
    """The issue's bad inputs, and those beside them: InvalidSchedule, with the field that its maker wrote."""
    problem = refused(**fields)

    assert (InvalidSchedule, field) == (type(problem), problem.field)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"at": "9999-06-01T00:00:00Z"}, "at"),
        ({"cron": "0 0 * * *", "end": "9999-12-31T00:00:00Z"}, "end"),
        ({"cron": "0 0 * * *", "start": "1969-12-31T00:00:00Z"}, "start"),
        ({"max_attempts": 3, "max_retries": 5}, "max_retries"),
        ({"name": "batch"}, "name"),
        ({"name": "0197a000-0000-7000-8000-00000000000c"}, "name"),
        ({"name": "0197A00000007000800000000000000C"}, "name"),
    ],
)
def test_a_value_out_of_its_range_names_its_field(fields: dict[str, Any], field: str) -> None:
    """Instants beyond what every part can compute with, and names that could be taken for something else."""
    assert field == refused(**fields).field


@pytest.mark.parametrize(
    ("days", "within", "good"),
    [(30, "28d", True), (30, "673h", False), (1, "12h", True), (1, "13h", False), (0, "300d", True)],
)
def test_a_run_is_expected_while_it_is_surely_known(days: int, within: str, good: bool) -> None:
    """T14: one that is past retention when it is looked for would be told to be missing; 0 days keep it for ever."""
    settings = msgspec.structs.replace(SETTINGS, retention=Retention(days=days))
    asked = ScheduleRequest(name="nightly", task="report", cron="0 0 * * *", expect_within=within)
    patch = SchedulePatch(expect_within=within)
    problem = rf"expect_within: .* history is kept for {days} days \(retention.days\)"

    with nullcontext() if good else pytest.raises(InvalidSchedule, match=problem):
        planned.new_schedule(asked, settings, schedule_id=ID, tenant="a")
    with nullcontext() if good else pytest.raises(InvalidSchedule, match=problem):
        planned.patched(made(cron="0 0 * * *"), patch, settings)


def test_one_time_in_the_past_is_due_at_once() -> None:
    """S3: a time in the past means now; it is not called one that never fires."""
    planned.check_fires(made(at="2020-01-01T00:00:00Z"), now=NOW)


def test_a_patch_changes_what_it_names() -> None:
    """All else stays as it was, also the zone of a cron that is changed, and null is the default."""
    was = made(
        cron="0 2 * * *", timezone="Europe/Berlin", tags=["x"], overlap="allow", max_attempts=7, payload={"a": 1}
    )

    later = patched(was, cron="0 3 * * *")
    plain = patched(was, timezone=None, tags=[], overlap=None, max_attempts=None)

    assert msgspec.structs.replace(was, trigger=Cron("0 3 * * *", "Europe/Berlin")) == later
    assert (Cron("0 2 * * *"), (), "skip", 3) == (
        plain.trigger,
        plain.tags,
        plain.policy.overlap,
        plain.max_attempts,
    )
    assert was.payload == plain.payload


def test_a_patch_with_one_trigger_takes_the_others_away() -> None:
    """Cron, every and at are exclusive; null of the one it has leaves a schedule that is run by hand."""
    was = made(cron="0 2 * * *", timezone="Europe/Berlin")

    assert Every(60) == patched(was, every=60).trigger
    assert Every(60) == patched(was, cron=None, every=60).trigger
    assert patched(was, cron=None).trigger is None
    assert was.trigger == patched(was, every=None, at=None).trigger
    with pytest.raises(InvalidSchedule, match="beside cron"):
        patched(was, cron="0 3 * * *", every=60)
    with pytest.raises(InvalidSchedule, match="for cron"):
        patched(made(every=60), timezone="Europe/Berlin")


def test_a_patch_counts_retries_from_nought() -> None:
    """S5: max_retries 0 is one attempt, and null of either is the default."""
    was = made(max_attempts=7)

    assert [1, 5, 3, 7] == [
        patched(was, **fields).max_attempts
        for fields in ({"max_retries": 0}, {"max_attempts": 5}, {"max_retries": None}, {})
    ]


def test_a_patch_may_take_spans_and_limits_away() -> None:
    """Null: no time limit, no dead-man's switch, no jitter, the usual grace."""
    was = made(
        cron="0 2 * * *",
        expect_within="1h",
        misfire_grace=5,
        jitter=30,
        timeout_seconds=60,
        start="2026-01-01T00:00:00Z",
    )

    bare = patched(was, expect_within=None, misfire_grace=None, jitter=None, timeout_seconds=None, start=None)

    assert (3600, 5, 30, 60) == (was.policy.expect_within_s, was.policy.misfire_grace_s, was.jitter_s, was.timeout_s)
    assert (None, 60, 0, None, None) == (
        bare.policy.expect_within_s,
        bare.policy.misfire_grace_s,
        bare.jitter_s,
        bare.timeout_s,
        bare.start_at,
    )


def test_what_is_shown_can_be_read_by_people() -> None:
    """The trigger in words, spans in seconds, and how it stands; secrets are hidden by who shows it."""
    definition = made(cron="30 2 * * *", timezone="Europe/Berlin", payload={"token": "x"}, expect_within="1h")

    shown = planned.shown(stored(definition), given=Defaults(), hide=lambda text: Raw(b'"hidden"'))

    assert ("30 2 * * *", "Europe/Berlin", "active", 3600) == (
        shown.cron,
        shown.timezone,
        shown.status,
        shown.expect_within_seconds,
    )
    assert "02:30" in shown.words
    assert (b'"hidden"', 2, True) == (bytes(shown.payload), shown.max_retries, shown.enabled)


def test_how_a_schedule_stands_is_one_word() -> None:
    """Paused before all else; without a trigger by hand; without a next slot ended."""
    cron = made(cron="30 2 * * *")
    words = [
        planned.status_of(stored(cron)),
        planned.status_of(stored(cron, next_at=None)),
        planned.status_of(stored(msgspec.structs.replace(cron, paused=True), next_at=None)),
        planned.status_of(stored(made(), next_at=None)),
    ]

    assert ["active", "ended", "paused", "manual"] == words


def test_slots_to_come_carry_the_marks_of_dst() -> None:
    """T12: half past two does not exist on the spring day in Berlin, and runs at three."""
    slots = planned.slots_after(made(cron="30 2 * * *", timezone="Europe/Berlin"), NOW, base_at=NOW, count=2)

    assert ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"] == [slot.local for slot in slots]
    assert ["moved out of a gap", None] == [slot.mark for slot in slots]


def test_jitter_makes_slots_due_later_and_leaves_them_where_they_are() -> None:
    """T10: the same part of it each time."""
    slots = planned.slots_after(made(cron="0 * * * *", jitter=600), NOW, base_at=NOW, count=3)

    late = {slot.due_at - slot.slot_at for slot in slots}
    assert 1 == len(late)
    assert timedelta(0) < late.pop() < timedelta(seconds=600)


def test_a_trigger_alone_can_be_looked_at() -> None:
    """Nothing but its times is asked for."""
    looked_at = planned.previewed(TriggerRequest(every="1h"), schedule_id=ID)

    slots = planned.slots_after(looked_at, NOW, base_at=NOW, count=2)

    assert [NOW + timedelta(hours=1), NOW + timedelta(hours=2)] == [slot.slot_at for slot in slots]
