"""The walk along the wall clock: which instants an expression means in a zone. Pure.

cronsim reads wall-clock times as if there were no zones; what they mean is decided here, by requirement T9
(docs/decisions/0013-cronsim-walks-the-wall-clock.md). Fixed times are mapped one by one: to their first occurrence, or
to the first instant after the gap they fall into. Everything else follows real time: between two changes of the offset
the wall clock is real time plus the offset, so the walk starts anew at each change.

A wall-clock time is written as a datetime in UTC that is not meant as such: cronsim then leaves zones alone.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from windlass.queue.cron.exclusions import MANY_DAYS, DaysOff, days_off, first_day, month_of

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
PROBE = timedelta(hours=12)
"""Between two looks at an offset; no zone has changed its offset twice in so short a time since 1970."""
NEAR = timedelta(days=2)
"""More than any change of an offset: so far from a change the wall clock shows nothing twice, and skips nothing."""
HORIZON = timedelta(days=366 * 50)
"""Who does not fire for so long never fires."""
REMEMBERED = 512
"""Walks, and slots of walks, that are remembered: few expressions are due at one time, and a walk has up to 9 KB."""
YEARS = 50
"""Until the end of the year so many years later a match is looked for."""
YEAR_2000 = datetime(2000, 1, 1, tzinfo=UTC)
LAST_YEAR = 9900
"""From here on the horizon is the end of the calendar."""
LAST_SECOND = time(23, 59, 59)


class _Wall:
    """The wall-clock times of an expression, less the days left out.

    cronsim reads the expression and says which days match. A search costs a look at each month on the way, which is one
    number, and then a look into each of three tables: it is short however far the next match is.
    """

    def __init__(self, expression: str, days: DaysOff | None = None, zone: str | None = None) -> None:
        """`zone` is that of fixed times, which changes of its offset move; others are never moved."""
        self._sim = CronSim(expression, YEAR_2000)
        self._days = days
        self._zone = zone
        self._hours, self._minutes, self._seconds = (
            tuple(sorted(found)) for found in (self._sim.hours, self._sim.minutes, self._sim.seconds)
        )
        # Walks are remembered by the hundred, and these sets are the most of one: most expressions share the rest.
        del self._sim.hours, self._sim.minutes, self._sim.seconds
        for field in ("days", "months", "weekdays"):
            setattr(self._sim, field, _shared(frozenset(getattr(self._sim, field))))
        self._first = time(self._hours[0], self._minutes[0], self._seconds[0])
        self._matching: dict[tuple[int, int], int] = {}
        """The days that match in a month with this first weekday and length."""

    def after(self, wall: datetime, until: date = date.max) -> datetime | None:
        """Return the first match later than a wall-clock time; None: none up to `until`, or none for fifty years."""
        wall += SECOND
        day = wall.date()
        until = min(until, date(min(wall.year + YEARS, date.max.year), 12, 31))
        if self.of_month(day.year, day.month) >> day.day & 1 and (found := self._time_from(wall)) is not None:
            return datetime.combine(day, found, tzinfo=UTC)
        following = first_day(day + DAY, until, self.of_month)
        return None if following is None else datetime.combine(following, self._first, tzinfo=UTC)

    def of_month(self, year: int, month: int) -> int:
        """Return the days of a month that match and may have a slot."""
        if month not in self._sim.months:
            return 0
        shape = month_of(year, month)[:2]
        if (matching := self._matching.get(shape)) is None:
            days = range(1, shape[1] + 1)
            matching = sum(1 << day for day in days if self._sim.match_day(date(year, month, day)))
            self._matching[shape] = matching
        if self._days is None or not (left_out := matching & self._days.of_month(year, month)):
            return matching
        # Fixed times of the last hours of a day left out may be moved into the next day.
        return matching & ~left_out | (left_out & _cut_days(self._zone, year)[month] if self._zone else 0)

    def _time_from(self, wall: datetime) -> time | None:
        """Return the first time of day that matches, from that of `wall` on."""
        hour, minute, second = wall.hour, wall.minute, wall.second
        if hour <= self._hours[-1] and hour == _from(self._hours, hour):
            if second <= self._seconds[-1] and minute <= self._minutes[-1] and minute == _from(self._minutes, minute):
                return time(hour, minute, _from(self._seconds, second))
            if minute < self._minutes[-1]:
                return time(hour, _from(self._minutes, minute + 1), self._seconds[0])
        if hour < self._hours[-1]:
            return time(_from(self._hours, hour + 1), self._minutes[0], self._seconds[0])
        return None


@functools.lru_cache(maxsize=64)
def _shared(values: frozenset[Any]) -> frozenset[Any]:
    """Return the same set for all equal ones."""
    return values


def _from(values: tuple[int, ...], least: int) -> int:
    """Return the first of the sorted values that is not less; there is one."""
    return values[bisect_left(values, least)]


class CronWalk:
    """One plain expression in one zone, less the days left out."""

    def __init__(self, expression: str, zone: str, exclude: tuple[str, ...] = ()) -> None:
        parts = expression.split()
        self.fixed = len(parts) == 5 and not parts[0].startswith("*") and not parts[1].startswith("*")
        self.zone = ZoneInfo(zone)
        self._zone_name = zone
        self._days = days_off(exclude)
        self.long = len(exclude) > MANY_DAYS
        self._wall = _Wall(expression, self._days, zone if self.fixed else None)
        self._found: tuple[datetime, datetime] | None = None
        """An instant that was asked for, and the first slot later than it."""

    def after(self, instant: datetime, until: datetime | None = None) -> datetime | None:
        """Return the first slot later than `instant`, which is in UTC and whole seconds; None: never again.

        With `until`, None also if there is no slot up to then: the search ends there.
        """
        last = date.max if until is None or until.year >= LAST_YEAR else (until + NEAR).date()
        if self._days is not None and self._days.all:
            return None
        if (found := self._found) is not None and found[0] <= instant < found[1]:
            return found[1]
        try:
            slot = self._after(instant, last)
            while slot is not None and (until is None or slot <= until) and self._leaves_out(slot):
                slot = self._after(slot, last) if slot - instant < HORIZON else None
        except OverflowError:  # the end of the calendar, year 9999
            return None
        if slot is not None and until is not None and slot > until:
            return None
        if slot is not None:
            self._found = (instant, slot)
        return slot

    def _leaves_out(self, slot: datetime) -> bool:
        return self._days is not None and slot.astimezone(self.zone).date() in self._days

    def names(self, slot: datetime) -> bool:
        """Say whether the expression itself names the wall-clock time of a slot."""
        wall = self._read(slot)
        return wall == self._next_wall(wall - SECOND)

    def _after(self, instant: datetime, until: date) -> datetime | None:
        return self._fixed_after(instant, until) if self.fixed else self._real_after(instant, until)

    def _fixed_after(self, instant: datetime, until: date) -> datetime | None:
        wall = self._next_wall(self._read(instant), until)
        while wall is not None:
            slot = _first_instant(wall, self.zone)
            if slot > instant:
                return slot
            wall = self._next_wall(wall, until)  # `instant` is in a repeated hour that the wall clock showed before
        return None

    def _real_after(self, instant: datetime, until: date) -> datetime | None:
        seen = self._read(instant)
        offset = seen - instant
        # Where no match is looked for any more; until there a repeated hour may still come.
        end = None if until == date.max else datetime.combine(until, LAST_SECOND, tzinfo=UTC)
        wall = self._next_wall(seen, until) or end
        last = seen + HORIZON if seen.year < LAST_YEAR else None
        while wall is not None and (last is None or wall < last):
            far = min(wall - offset, instant + NEAR)
            turn = _next_turn(self._zone_name, instant, until=far)
            if turn is None and far == wall - offset:
                return far
            if turn is None:
                # Nothing seen comes again, and until `wall` nothing matches: the changes on the way do not matter.
                instant = max(far, wall - NEAR)
                seen = self._read(instant)
                offset = seen - instant
                continue
            instant = turn
            first = self._read(turn)
            offset = first - turn
            if wall < first or first <= seen:  # skipped with a gap, or some of what was seen comes again
                seen = first - SECOND
                wall = self._next_wall(seen, until) or end
        return None

    def _read(self, instant: datetime) -> datetime:
        """Return what the wall clock shows."""
        return instant.astimezone(self.zone).replace(tzinfo=UTC, fold=0)

    def _next_wall(self, wall: datetime, until: date = date.max) -> datetime | None:
        return self._wall.after(wall, until)


def ever(expression: str) -> bool:
    """Say whether a plain expression ever matches."""
    return _ever(expression)


@functools.lru_cache(maxsize=4096)
def _ever(expression: str) -> bool:
    try:
        return _Wall(expression).after(YEAR_2000) is not None
    except CronSimError:
        return False


@functools.lru_cache(maxsize=REMEMBERED)
def walk(expression: str, zone: str, exclude: tuple[str, ...] = ()) -> CronWalk:
    """Return the walk of a plain expression, the same one for all schedules that share it."""
    return CronWalk(expression, zone, exclude)


@functools.lru_cache(maxsize=64)
def long_walk(expression: str, zone: str, exclude: tuple[str, ...]) -> CronWalk:
    """Return a walk that leaves out so many days that few like it can be remembered: one may have 80 KB."""
    return CronWalk(expression, zone, exclude)


@functools.lru_cache(maxsize=REMEMBERED)
def cached_after(walk: CronWalk, instant: datetime) -> datetime | None:
    """Return the walk's first slot later than `instant`, from memory where another schedule has asked for it."""
    return walk.after(instant)


@functools.lru_cache(maxsize=16_384)
def _cut_days(zone_name: str, year: int) -> tuple[int, ...]:
    """Return by month the days of a year whose last second the wall clock does not show."""
    bits = [0] * 13
    zone = ZoneInfo(zone_name)
    for turn in (turn for near in range(max(year - 1, 1), min(year + 1, 9999) + 1) for turn in _turns(zone_name, near)):
        shown = (turn - SECOND).astimezone(zone).date()
        for day in (shown, shown + DAY):  # a gap may be the whole of the next day
            if day.year == year and _in_gap(datetime.combine(day, LAST_SECOND, tzinfo=UTC), zone):
                bits[day.month] |= 1 << day.day
    return tuple(bits)


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
