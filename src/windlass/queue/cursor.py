"""Where a schedule stands in its series, and how people's acts move it. Pure.

`next_at` is when its next slot is due, `last_at` the last slot that was decided, which only rises. Firing moves them
slot by slot (slots.py); creating, editing, pausing and resuming move them here. Slots that an act passes over are told
in one row: those of a pause, and those that were due when an edit came before they fired.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from windlass.errors import InvalidSchedule
from windlass.queue.cron import MANY_DAYS, At, Cron, Series, series
from windlass.queue.newjob import EARLIEST
from windlass.queue.schedule import NO_ID, Decision, NewSchedule
from windlass.queue.schedulerows import Schedule, series_of

MOST_COUNTED = 1000
"""Of slots passed over together so many are counted; a row with this number may stand for more."""
JUST_BEFORE = timedelta(microseconds=1)
EVER = EARLIEST - JUST_BEFORE


class Passed(msgspec.Struct, frozen=True):
    """Slots passed over together: the last of them, the first, how many, and why."""

    slot_at: datetime
    first_at: datetime
    slot_count: int
    decision: Decision
    reason: str


class Cursor(msgspec.Struct, frozen=True):
    """Where a schedule stands after an act."""

    next_at: datetime | None
    last_at: datetime | None
    passed: Passed | None = None


def base_of(schedule: NewSchedule, now: datetime) -> datetime:
    """Return what its interval counts from: its start, else now, in whole seconds."""
    return (schedule.start_at or now).replace(microsecond=0)


def begun(schedule: NewSchedule, *, base_at: datetime, now: datetime) -> Cursor:
    """Return where a new schedule stands: before its first slot after now; one time that is past is due at once.

    InvalidSchedule if it has no such slot.
    """
    next_at = _first_at(schedule, base_at, now)
    if next_at is None:
        raise_if_never(schedule, now=now)
    return Cursor(None if schedule.paused else next_at, None)


def raise_if_never(schedule: NewSchedule, *, now: datetime) -> None:
    """Raise InvalidSchedule for a definition that leaves no slot; one that is run by hand only needs none."""
    trigger = schedule.trigger
    if trigger is None:
        return
    if schedule.end_at is not None and schedule.end_at <= now:
        raise InvalidSchedule(
            "end", f"{schedule.end_at.isoformat()} has passed: it would never fire. Give a later one."
        )
    field = "cron" if isinstance(trigger, Cron) else "at" if isinstance(trigger, At) else "every"
    raise InvalidSchedule(field, "it never fires: start, end and the days left out leave no slot. Change one of them.")


def _first_at(schedule: NewSchedule, base_at: datetime, now: datetime) -> datetime | None:
    trigger = schedule.trigger
    own = schedule.jitter_s or len(schedule.exclude) > MANY_DAYS
    if isinstance(trigger, Cron) and "H" not in trigger.expression.upper() and not own:
        # Nothing in it depends on the schedule's own id: a million that share an expression are one question.
        return _first_alike(trigger, (schedule.start_at, schedule.end_at, schedule.exclude), now.replace(microsecond=0))
    return _next_at(schedule, base_at, now, None)


@lru_cache(4096)
def _first_alike(
    trigger: Cron, bounds: tuple[datetime | None, datetime | None, tuple[str, ...]], now: datetime
) -> datetime | None:
    start_at, end_at, exclude = bounds
    slots = series(trigger, schedule_id=NO_ID, base_at=now, start_at=start_at, end_at=end_at, exclude=exclude)
    return slots.after(now)


def edited(was: Schedule, becomes: NewSchedule, *, base_at: datetime, now: datetime) -> Cursor:
    """Return where a schedule stands after an edit.

    If its times are the same nothing moves: a slot that is due this second fires. If they are not, the new series goes
    on after now, and slots of the old one that were due and had not fired do not fire any more. A slot that has come
    and whose jitter is not yet over is not due: if the new series has it too, it still fires.
    """
    if was.definition.paused:
        stands = resumed(was, now=now)
    elif becomes.paused:
        stands = paused(was, now=now)
    elif same_times(was.definition, becomes):
        return Cursor(was.next_at, was.last_at)
    else:
        stands = _overtaken(was, now, Decision.MISSED, "The schedule was changed before it fired.")
    if not same_times(was.definition, becomes):
        _raise_if_never_again(was, becomes, base_at=base_at, now=now)
    if becomes.paused:
        return msgspec.structs.replace(stands, next_at=None)
    if was.definition.paused and same_times(was.definition, becomes):
        return stands
    old, new = _known_series(was), series_of(becomes, base_at)
    next_at = stands.next_at if was.definition.paused else was.next_at
    since = now
    if old is not None and new is not None and next_at is not None:
        since = slot_of(old, next_at) - JUST_BEFORE
        if was.definition.trigger != becomes.trigger:
            # Other slots: of these none may be due already that was not before.
            since = max(since, now - timedelta(seconds=min(old.offset_s, new.offset_s)))
    return msgspec.structs.replace(stands, next_at=_next_at(becomes, base_at, min(since, now), stands.last_at))


def _raise_if_never_again(was: Schedule, becomes: NewSchedule, *, base_at: datetime, now: datetime) -> None:
    """Raise InvalidSchedule for other times that leave no slot; what was decided is not decided again."""
    if _next_at(becomes, base_at, now, None) is None:
        raise_if_never(becomes, now=now)
    at = becomes.trigger.at if isinstance(becomes.trigger, At) and becomes.trigger != was.definition.trigger else None
    if at is not None and was.last_at is not None and at <= was.last_at:
        raise InvalidSchedule(
            "at",
            f"{at.isoformat()} is not later than {was.last_at.isoformat()}, its last slot: it would never fire. "
            "Give a later one, run it now, or make another schedule.",
        )


def paused(was: Schedule, *, now: datetime) -> Cursor:
    """Return where a schedule stands when it is paused: slots that were due and had not fired are passed over."""
    return _overtaken(was, now, Decision.PAUSED, "It was paused before it fired.")


def resumed(was: Schedule, *, now: datetime) -> Cursor:
    """Return where a paused schedule goes on: what became due in the meantime is passed over."""
    slots = _known_series(was)
    if slots is None:
        return Cursor(None, was.last_at)
    offset = timedelta(seconds=slots.offset_s)
    # An edit in the meantime has told what passed until then.
    since = max(was.pause.paused_at if was.pause else was.changed_at, was.changed_at) - offset
    stands = _past(was, slots, since, now, Decision.PAUSED, "The schedule was paused.")
    since = EVER if isinstance(was.definition.trigger, At) else now - offset
    return msgspec.structs.replace(stands, next_at=_due_after(slots, _latest(since, stands.last_at)))


def same_times(one: NewSchedule, other: NewSchedule) -> bool:
    """Say whether two definitions have the same slots, due at the same times."""
    return _times(one) == _times(other)


def slot_of(slots: Series, due_at: datetime) -> datetime:
    """Return the slot that is due then."""
    return due_at - timedelta(seconds=slots.offset_s)


def _times(schedule: NewSchedule) -> tuple[object, ...]:
    return schedule.trigger, schedule.start_at, schedule.end_at, schedule.exclude, schedule.jitter_s


def _known_series(was: Schedule) -> Series | None:
    """Return its slots; None if it has none, or none that can be computed, as those of a zone that is gone."""
    try:
        return was.series()
    except OSError:  # passes: too many open files
        raise
    except Exception:
        return None


def _next_at(schedule: NewSchedule, base_at: datetime, since: datetime, last_at: datetime | None) -> datetime | None:
    slots = series_of(schedule, base_at)
    if slots is None:
        return None
    # One time is never too late to be due: it is decided once, whenever that is.
    since = EVER if isinstance(schedule.trigger, At) else since
    return _due_after(slots, _latest(since, last_at))


def _due_after(slots: Series, since: datetime) -> datetime | None:
    slot_at = slots.after(since)
    return None if slot_at is None else slot_at + timedelta(seconds=slots.offset_s)


def _overtaken(was: Schedule, now: datetime, decision: Decision, reason: str) -> Cursor:
    slots = _known_series(was)
    if slots is None or was.next_at is None:
        return Cursor(None, was.last_at)
    return _past(was, slots, slot_of(slots, was.next_at) - JUST_BEFORE, now, decision, reason)


def _past(was: Schedule, slots: Series, since: datetime, now: datetime, decision: Decision, reason: str) -> Cursor:
    """Pass over the slots later than `since` that are due now."""
    since = _latest(since, was.last_at)
    until = now - timedelta(seconds=slots.offset_s)
    first_at = slots.after(since)
    if first_at is None or first_at > until:
        return Cursor(None, was.last_at)
    slot_at = slots.last_before(until, floor=since) or first_at
    count = slots.count_between(since, until, most=MOST_COUNTED)
    return Cursor(None, slot_at, Passed(slot_at, first_at, count, decision, reason))


def _latest(instant: datetime, other: datetime | None) -> datetime:
    return instant if other is None else max(instant, other)
