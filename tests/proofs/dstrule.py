"""The oracle of slots at changes of the clock: the written rule, applied minute by minute. It knows nothing of ours.

Requirement T9. Fixed times (five fields, neither minute nor hour begins with a star): in a gap once, right after it,
several of one expression in the same gap as one run; in a repeated hour once, the first. Everything else follows
real time: minutes that do not exist are skipped, repeated ones fire twice.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTES_OF_DAY = 1440
NAMES = {name: number for number, name in enumerate("SUN MON TUE WED THU FRI SAT".split())}
NAMES |= {name: number for number, name in enumerate("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split(), 1)}
EPOCH_DAY = date(1970, 1, 1).toordinal()


def numbers(text: str, low: int, high: int) -> set[int]:
    """Return the numbers that a field means."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            begin, end = low, high
        else:
            begin = NAMES[first] if first in NAMES else int(first)
            end = (NAMES[last] if last in NAMES else int(last)) if dash else (high if step else begin)
        found.update(range(begin, end + 1, int(step or 1)))
    return found


class Rule:
    """One expression, as its fields are written."""

    def __init__(self, expression: str) -> None:
        fields = expression.split()
        minute, hour, self.day, month, self.weekday = fields[-5:]
        self.expression = expression
        self.fixed = len(fields) == 5 and minute[0] != "*" and hour[0] != "*"
        self.seconds = numbers(fields[0], 0, 59) if len(fields) == 6 else {0}
        self.times = {60 * h + m for h in numbers(hour, 0, 23) for m in numbers(minute, 0, 59)}
        self.months = numbers(month, 1, 12)
        self._known_days: dict[int, bool] = {}

    def has_day(self, number: int) -> bool:
        """Say whether a day, counted from 1970, matches."""
        if number not in self._known_days:
            self._known_days[number] = self._matches(date.fromordinal(EPOCH_DAY + number))
        return self._known_days[number]

    def _matches(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day, by_weekday = self._has_date(day), self._has_weekday(day)
        if self.day[0] == "*" or self.weekday[0] == "*":
            return by_day and by_weekday
        return by_day or by_weekday

    def _has_date(self, day: date) -> bool:
        last = calendar.monthrange(day.year, day.month)[1]
        if self.day == "L":
            return day.day == last
        if self.day == "LW":
            return day.day == max(n for n in range(last - 2, last + 1) if day.replace(day=n).isoweekday() <= 5)
        return day.day in numbers(self.day, 1, 31)

    def _has_weekday(self, day: date) -> bool:
        field, hash_, nth = self.weekday.partition("#")
        is_last = field.endswith("L")
        named = numbers(field.removesuffix("L"), 0, 7 if "7" in field else 6)
        if day.isoweekday() % 7 not in {number % 7 for number in named}:
            return False
        if is_last:
            return (day + timedelta(days=7)).month != day.month
        return not hash_ or (day.day + 6) // 7 == int(nth)


def is_left_out(second: int, zone: ZoneInfo, days: Sequence[str]) -> bool:
    """Say whether the date that people read at a slot is one of these: weekdays, and days of each year."""
    day = datetime.fromtimestamp(second, zone).date()
    return f"--{day:%m-%d}" in days or day.isoweekday() % 7 in {NAMES[name] for name in days if name in NAMES}


class Oracle:
    """All expressions in one walk."""

    def __init__(self, expressions: Sequence[str]) -> None:
        self.rules = [Rule(expression) for expression in expressions]
        self._at: list[list[int]] = [[] for _ in range(MINUTES_OF_DAY)]
        for place, rule in enumerate(self.rules):
            for minute in rule.times:
                self._at[minute].append(place)

    def slots(self, zone: ZoneInfo, *, begin: int, end: int, warm: int) -> list[list[int]]:
        """Return each expression's slots from `begin` to `end`; minutes since 1970; the walk starts at `warm`."""
        found: list[list[int]] = [[] for _ in self.rules]
        newest = before = wall_minute(zone, warm - 1)
        for minute in range(warm, end + 1):
            wall = wall_minute(zone, minute)
            due = {place for place in self._named(wall) if wall > newest or not self.rules[place].fixed}
            for skipped in range(max(before, newest) + 1, wall):
                due.update(place for place in self._named(skipped) if self.rules[place].fixed)
            if minute >= begin:
                for place in due:
                    found[place].append(minute)
            before, newest = wall, max(newest, wall)
        return found

    def _named(self, wall: int) -> Iterator[int]:
        day, minute = divmod(wall, MINUTES_OF_DAY)
        return (place for place in self._at[minute] if self.rules[place].has_day(day))


def wall_minute(zone: ZoneInfo, minute: int) -> int:
    """Return what the wall clock shows, in minutes, at a minute of real time."""
    offset = datetime.fromtimestamp(60 * minute, zone).utcoffset()
    assert offset is not None
    whole, rest = divmod(offset.total_seconds(), 60)
    assert rest == 0
    return minute + int(whole)


def second_slots(expression: str, zone: ZoneInfo, *, begin_s: int, end_s: int) -> list[int]:
    """Return the slots of an expression with seconds, which follow real time; offsets are whole minutes."""
    rule = Rule(expression)
    found = []
    for at in range(begin_s // 60, end_s // 60 + 1):
        day, minute = divmod(wall_minute(zone, at), MINUTES_OF_DAY)
        if minute in rule.times and rule.has_day(day):
            found += [60 * at + second for second in sorted(rule.seconds) if begin_s <= 60 * at + second <= end_s]
    return found
