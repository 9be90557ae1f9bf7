"""Series: the slots of one schedule, one after another, for ever or until its end. Pure.

A slot is a whole second of UTC. The same schedule has the same slots on every server and after every restart:
nothing is drawn by chance, nothing depends on when one asks. What a cron expression means is found in walk.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from windlass.queue.cron.exclusions import MANY_DAYS, DaysOff, days_off
from windlass.queue.cron.fields import expand, stable
from windlass.queue.cron.trigger import At, Cron, Every, Trigger
from windlass.queue.cron.walk import HORIZON, CronWalk, cached_after, long_walk, walk

SECOND = timedelta(seconds=1)
FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 29, tzinfo=UTC)
"""Slots end here, so that their local time is in the calendar too, whatever the zone."""

Mark = Literal["moved out of a gap", "first of a repeated hour", "second of a repeated hour"]


class Shown(msgspec.Struct, frozen=True):
    """A slot as people see it."""

    slot_at: datetime
    local: str
    """In the schedule's zone, with the offset."""
    mark: Mark | None = None
    """What a change of the offset did to it."""


class Series:
    """The slots of a schedule; made by `series`."""

    def __init__(self, trigger: _Slots, *, start_at: datetime | None, end_at: datetime | None, offset_s: float) -> None:
        self._slots = trigger
        self._before_start = max(start_at or FIRST, FIRST) - SECOND
        self._end_at = min(end_at or LAST, LAST)
        self.offset_s = offset_s
        """A slot is due so much later than it is named: the jitter, always the same for this schedule."""

    def after(self, instant: datetime) -> datetime | None:
        """Return the first slot later than `instant`; None: never again."""
        return self._next(instant, cached=True)

    def between(self, since: datetime, until: datetime, *, limit: int) -> list[datetime]:
        """Return the slots later than `since` up to `until`, the first `limit` of them."""
        return [slot for slot, _ in zip(self._walk(since, until), range(limit), strict=False)]

    def count_between(self, since: datetime, until: datetime, *, most: int) -> int:
        """Return how many slots are later than `since`, up to `until`; counting ends at `most`."""
        return sum(1 for _ in zip(self._walk(since, until), range(most), strict=False))

    def last_before(self, instant: datetime, *, floor: datetime) -> datetime | None:
        """Return the newest slot up to `instant` that is later than `floor`.

        By halving, not by walking: some seventy looks find it, however many slots lie between. None looks further.
        """
        newest = self._next(floor, until=instant)
        if newest is None or newest > instant:
            return None
        empty_from = _whole(instant)  # no slot is later than this, up to `instant`
        span = SECOND
        while empty_from - span > newest:
            slot = self._next(empty_from - span, until=instant)
            if slot is not None and slot <= instant:
                newest = slot
                break
            empty_from -= span
            span *= 2
        while empty_from > newest:
            middle = newest + (empty_from - newest) // SECOND // 2 * SECOND
            slot = self._next(middle, until=instant)
            if slot is not None and slot <= instant:
                newest = slot
            else:
                empty_from = middle
        return newest

    def show(self, slot: datetime) -> Shown:
        """Return a slot as people see it."""
        local = slot.astimezone(self._slots.zone)
        return Shown(slot, local.isoformat(), self._mark(slot))

    def _mark(self, slot: datetime) -> Mark | None:
        local = slot.astimezone(self._slots.zone)
        if local.fold:
            return "second of a repeated hour"
        if local.utcoffset() != local.replace(fold=1).utcoffset():
            return "first of a repeated hour"
        if isinstance(self._slots, _CronSlots) and not self._slots.walk.names(slot):
            return "moved out of a gap"
        return None

    def _walk(self, since: datetime, until: datetime) -> Iterator[datetime]:
        slot = self._next(since, until=until)
        while slot is not None and slot <= until:
            yield slot
            slot = self._next(slot, until=until)

    def _next(self, instant: datetime, *, cached: bool = False, until: datetime | None = None) -> datetime | None:
        instant = max(_whole(instant), self._before_start)
        slot = self._slots.after(instant, cached=cached, until=until)
        return slot if slot is not None and slot <= self._end_at else None


def series(
    trigger: Trigger,
    *,
    schedule_id: UUID,
    base_at: datetime,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
    exclude: Sequence[str] = (),
    jitter_s: float = 0,
) -> Series:
    """Return the slots of a schedule, whose intervals count from `start_at`, else from `base_at`."""
    start_at = None if start_at is None else _whole(start_at)
    end_at = None if end_at is None else _whole(end_at)
    exclude = tuple(exclude)
    slots: _Slots
    match trigger:
        case Cron(expression, zone):
            walk_of = walk if len(exclude) <= MANY_DAYS else long_walk
            slots = _CronSlots(walk_of(expand(expression, schedule_id), zone, exclude))
        case Every(every_s):
            slots = _EverySlots(start_at or _whole(base_at), every_s=every_s, days=days_off(exclude))
        case At(at):
            slots = _OneSlot(_whole(at), days=days_off(exclude))
    offset_s = 0.0
    if jitter_s:
        offset_s = (
            jitter_s * (stable(schedule_id, "jitter") >> 11) / 2**53
        )  # 53 bits: a float never rounds up to all of it
    return Series(slots, start_at=start_at, end_at=end_at, offset_s=offset_s)


def preview(slots: Series, after: datetime, *, count: int, enough: Callable[[], bool] | None = None) -> list[Shown]:
    """Return the next `count` slots as people see them; fewer, and at least one, once `enough` says so."""
    shown: list[Shown] = []
    while len(shown) < count and (found := slots.between(after, LAST, limit=1)):
        [after] = found
        shown.append(slots.show(after))
        if enough is not None and enough():
            break
    return shown


class _CronSlots:
    """Slots by an expression."""

    def __init__(self, walk: CronWalk) -> None:
        self.walk = walk
        self.zone = walk.zone

    def after(self, instant: datetime, *, cached: bool, until: datetime | None = None) -> datetime | None:
        """Return the first slot later than `instant`; perhaps none if it is later than `until`."""
        return cached_after(self.walk, instant) if cached and not self.walk.long else self.walk.after(instant, until)


class _EverySlots:
    """Slots by elapsed time, before and after the base alike."""

    zone = ZoneInfo("UTC")

    def __init__(self, base_at: datetime, *, every_s: int, days: DaysOff | None) -> None:
        self._base_at = base_at
        self._every = timedelta(seconds=every_s)
        self._days = days

    def after(self, instant: datetime, *, cached: bool, until: datetime | None = None) -> datetime | None:
        """Return the first slot later than `instant`; perhaps none if it is later than `until`."""
        until = min(until or LAST, instant + HORIZON if instant < LAST - HORIZON else LAST)
        slot = None if self._days is not None and self._days.all else self._step(instant)
        while slot is not None and self._days is not None and slot.date() in self._days:
            day = self._days.next_open(slot.date(), until=until.date())
            slot = None if day is None else self._step(datetime.combine(day, time(), tzinfo=UTC) - SECOND)
        return slot

    def _step(self, instant: datetime) -> datetime | None:
        count = (instant - self._base_at) // self._every + 1
        try:
            return self._base_at + count * self._every
        except OverflowError:  # the end of the calendar, year 9999
            return None


class _OneSlot:
    """One slot."""

    zone = ZoneInfo("UTC")

    def __init__(self, at: datetime, *, days: DaysOff | None) -> None:
        self._at = None if days is not None and at.date() in days else at

    def after(self, instant: datetime, *, cached: bool, until: datetime | None = None) -> datetime | None:
        """Return the slot, if it is later than `instant`."""
        return self._at if self._at is not None and self._at > instant else None


_Slots = _CronSlots | _EverySlots | _OneSlot


def _whole(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(microsecond=0)
