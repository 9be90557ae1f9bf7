"""The walk along the wall clock: which instants an expression means in a zone. Pure.

cronsim walks wall-clock times as if there were no zones; what they mean is decided here, by requirement T9
(docs/decisions/0013-cronsim-walks-the-wall-clock.md). Fixed times are mapped one by one: to their first occurrence, or
to the first instant after the gap they fall into. Everything else follows real time: between two changes of the offset
the wall clock is real time plus the offset, so the walk starts anew at each change.

A wall-clock time is written as a datetime in UTC that is not meant as such: cronsim then leaves zones alone.
"""

from __future__ import annotations

import calendar
import copy
import functools
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from windlass.queue.cron.exclusions import DaysOff, days_off

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
PROBE = timedelta(hours=12)
"""Between two looks at an offset; no zone has changed its offset twice in so short a time since 1970."""
NEAR = timedelta(days=2)
"""More than any change of an offset: so far from a change the wall clock shows nothing twice, and skips nothing."""
HORIZON = timedelta(days=366 * 50)
"""Who does not fire for so long never fires; cronsim gives up after 50 years too."""
YEAR_2000 = datetime(2000, 1, 1, tzinfo=UTC)
LAST_YEAR = 9900
"""From here on the horizon is the end of the calendar."""
LAST_SECOND = time(23, 59, 59)


class _Wall(CronSim):
    """Walks wall-clock times; days that are left out do not match."""

    left_out: _LeftOut | None = None

    def __init__(self, expression: str, start: datetime) -> None:
        super().__init__(expression, start)
        self.named_days = sorted(self.days) if self.day_and and min(self.days) > 0 else None
        """The only days of a month that can match; None: any may."""

    def advance_day(self) -> bool:
        """Go to the next day of this month that matches, else to the next month; say whether it was another day."""
        if self.named_days is None:
            return bool(super().advance_day())
        day = self.dt.date()
        if self.match_day(day):
            return False
        length = calendar.monthrange(day.year, day.month)[1]
        for named in self.named_days:
            if day.day < named <= length and self.match_day(found := day.replace(day=named)):
                break
        else:
            found = day.replace(day=length) + DAY
        self.dt = datetime.combine(found, time(), tzinfo=UTC)
        return True

    def match_day(self, d: date) -> bool:
        """Say whether an expression matches this day."""
        return super().match_day(d) and (self.left_out is None or not self.left_out.certainly(d))


class _LeftOut:
    """Days that a walk need not visit."""

    def __init__(self, days: DaysOff, zone: ZoneInfo | None) -> None:
        self._days = days
        self._zone = zone
        """Of fixed times; others are never moved."""

    def certainly(self, day: date) -> bool:
        """Say whether no slot can come of this day; fixed times of its last hours may be moved into the next one."""
        if day not in self._days:
            return False
        return self._zone is None or not _in_gap(datetime.combine(day, LAST_SECOND, tzinfo=UTC), self._zone)


class CronWalk:
    """One plain expression in one zone, less the days left out."""

    def __init__(self, expression: str, zone: str, exclude: tuple[str, ...] = ()) -> None:
        parts = expression.split()
        self.fixed = len(parts) == 5 and not parts[0].startswith("*") and not parts[1].startswith("*")
        self.zone = ZoneInfo(zone)
        self._zone_name = zone
        self._days = days_off(exclude)
        self._wall = _Wall(expression, YEAR_2000)
        if self._days is not None:
            self._wall.left_out = _LeftOut(self._days, self.zone if self.fixed else None)
        self._found: tuple[datetime, datetime] | None = None
        """An instant that was asked for, and the first slot later than it."""

    def after(self, instant: datetime) -> datetime | None:
        """Return the first slot later than `instant`, which is in UTC and whole seconds; None: never again."""
        if self._days is not None and self._days.all:
            return None
        if (found := self._found) is not None and found[0] <= instant < found[1]:
            return found[1]
        try:
            slot = self._after(instant)
            while slot is not None and self._days is not None and slot.astimezone(self.zone).date() in self._days:
                slot = self._after(slot) if slot - instant < HORIZON else None
        except OverflowError:  # the end of the calendar, year 9999
            return None
        if slot is not None:
            self._found = (instant, slot)
        return slot

    def names(self, slot: datetime) -> bool:
        """Say whether the expression itself names the wall-clock time of a slot."""
        wall = self._read(slot)
        return wall == self._next_wall(wall - SECOND)

    def _after(self, instant: datetime) -> datetime | None:
        return self._fixed_after(instant) if self.fixed else self._real_after(instant)

    def _fixed_after(self, instant: datetime) -> datetime | None:
        wall = self._next_wall(self._read(instant))
        while wall is not None:
            slot = _first_instant(wall, self.zone)
            if slot > instant:
                return slot
            wall = self._next_wall(wall)  # `instant` is in a repeated hour that the wall clock showed before
        return None

    def _real_after(self, instant: datetime) -> datetime | None:
        seen = self._read(instant)
        offset = seen - instant
        wall = self._next_wall(seen)
        last = seen + HORIZON if seen.year < LAST_YEAR else None
        while wall is not None and (last is None or wall < last):
            until = min(wall - offset, instant + NEAR)
            turn = _next_turn(self._zone_name, instant, until=until)
            if turn is None and until == wall - offset:
                return until
            if turn is None:
                # Nothing seen comes again, and until `wall` nothing matches: the changes on the way do not matter.
                instant = max(until, wall - NEAR)
                seen = self._read(instant)
                offset = seen - instant
                continue
            instant = turn
            first = self._read(turn)
            offset = first - turn
            if wall < first or first <= seen:  # skipped with a gap, or some of what was seen comes again
                seen = first - SECOND
                wall = self._next_wall(seen)
        return None

    def _read(self, instant: datetime) -> datetime:
        """Return what the wall clock shows."""
        return instant.astimezone(self.zone).replace(tzinfo=UTC, fold=0)

    def _next_wall(self, wall: datetime) -> datetime | None:
        walker = copy.copy(self._wall)
        walker.dt = wall
        return next(walker, None)


def ever(expression: str) -> bool:
    """Say whether a plain expression ever matches."""
    return _ever(expression)


@functools.lru_cache(maxsize=4096)
def _ever(expression: str) -> bool:
    try:
        return next(_Wall(expression, YEAR_2000), None) is not None
    except CronSimError:
        return False


@functools.lru_cache(maxsize=4096)
def walk(expression: str, zone: str, exclude: tuple[str, ...] = ()) -> CronWalk:
    """Return the walk of a plain expression, the same one for all schedules that share it."""
    return CronWalk(expression, zone, exclude)


@functools.lru_cache(maxsize=65_536)
def cached_after(walk: CronWalk, instant: datetime) -> datetime | None:
    """Return the walk's first slot later than `instant`, from memory where another schedule has asked for it."""
    return walk.after(instant)


def _in_gap(wall: datetime, zone: ZoneInfo) -> bool:
    local = wall.replace(tzinfo=zone)
    before, after = local.utcoffset(), local.replace(fold=1).utcoffset()
    return before is not None and after is not None and before < after


def _first_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return when the wall clock first shows this, or the first instant after the gap that hides it."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if not _in_gap(wall, zone):
        return instant
    return _turn_between(zone, wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant)


def _next_turn(zone: str, instant: datetime, *, until: datetime) -> datetime | None:
    """Return the first change of the zone's offset that is later than `instant`, up to `until`."""
    for year in range(instant.year, until.year + 1):
        for turn in _turns(zone, year):
            if turn > instant:
                return turn if turn <= until else None
    return None


@functools.lru_cache(maxsize=16_384)
def _turns(zone_name: str, year: int) -> tuple[datetime, ...]:
    """Return when the zone's offset changes in a year of UTC."""
    if zone_name == "UTC":
        return ()
    zone = ZoneInfo(zone_name)
    at = datetime(year, 1, 1, tzinfo=UTC) - SECOND if year > 1 else datetime(1, 1, 3, tzinfo=UTC)
    end = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC) if year < 9999 else datetime(9999, 12, 29, tzinfo=UTC)
    offset = at.astimezone(zone).utcoffset()
    turns = []
    while at < end:
        later = min(at + PROBE, end)
        later_offset = later.astimezone(zone).utcoffset()
        if later_offset != offset:
            turns.append(_turn_between(zone, at, later))
        at, offset = later, later_offset
    return tuple(turns)


def _turn_between(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Return the first instant with the offset of `after`, which `before` has not."""
    offset = before.astimezone(zone).utcoffset()
    while after - before > SECOND:
        middle = before + (after - before) // SECOND // 2 * SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after
