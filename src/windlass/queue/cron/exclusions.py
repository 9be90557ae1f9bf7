"""Exclusions: days on which a schedule does not run. Pure.

A date, a range of dates, a day of each year, or a weekday; always the date that people read in the schedule's zone.
The days of a month are the bits of a number, bit 1 for the first day: a search costs one look at each month.
"""

from __future__ import annotations

import calendar
import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import date

from windlass.errors import InvalidSchedule
from windlass.queue.cron.fields import quoted

MAX_EXCLUSIONS = 400
MANY_DAYS = 20
"""What follows from more exclusions than this is remembered for few schedules: it is large."""
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
"""In the order of date.weekday()."""
LEAP_YEAR = 2000
DAYS_OF_LEAP_YEAR = 366

_DATE = r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
_RANGE = re.compile(f"{_DATE}(?:/{_DATE})?")
_YEARLY = re.compile(r"--([0-9]{2})-([0-9]{2})")


class DaysOff:
    """The days that are left out."""

    def __init__(self, items: Sequence[str]) -> None:
        self.weekdays: set[int] = set()
        self.yearly: set[tuple[int, int]] = set()
        ranges: list[tuple[date, date]] = []
        for item in items:
            self._add(item, ranges)
        self._yearly = [sum(1 << day for of, day in self.yearly if of == month) for month in range(13)]
        """The days of each month that are left out every year."""
        self._weekly = [
            sum(1 << day for day in range(1, 32) if (first + day - 1) % 7 in self.weekdays) for first in range(7)
        ]
        """Those of a month by its first weekday."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Ranges of days by their ordinals, in order and apart."""
        for first, last in sorted((first.toordinal(), last.toordinal()) for first, last in ranges):
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], last)
            else:
                self._starts.append(first)
                self._ends.append(last)

    @property
    def all(self) -> bool:
        """Whether every day is left out, by its weekday or its day of the year."""
        return len(self.weekdays) == len(WEEKDAYS) or len(self.yearly) == DAYS_OF_LEAP_YEAR

    def __contains__(self, day: date) -> bool:
        """Say whether the day is left out."""
        return bool(self.of_month(day.year, day.month) >> day.day & 1)

    def of_month(self, year: int, month: int) -> int:
        """Return the days of a month that are left out."""
        first_weekday, length, before = month_of(year, month)
        bits = self._weekly[first_weekday] | self._yearly[month]
        if not self._starts:
            return bits
        found = max(bisect_right(self._starts, before) - 1, 0)
        while found < len(self._starts) and (first := self._starts[found] - before) <= length:
            last = min(self._ends[found] - before, length)
            if last >= 1:
                bits |= (2 << last) - (1 << max(first, 1))
            found += 1
        return bits

    def next_open(self, day: date, *, until: date) -> date | None:
        """Return the first day from `day` to `until` that is not left out."""
        return first_day(
            day, until, lambda year, month: ~self.of_month(year, month) & (2 << month_of(year, month)[1]) - 2
        )

    def _add(self, item: str, ranges: list[tuple[date, date]]) -> None:
        if item.upper() in WEEKDAYS:
            self.weekdays.add(WEEKDAYS.index(item.upper()))
        elif yearly := _YEARLY.fullmatch(item):
            day = _date(f"{LEAP_YEAR}-{yearly[1]}-{yearly[2]}", item)
            self.yearly.add((day.month, day.day))
        elif match := _RANGE.fullmatch(item):
            first = _date(match[1], item)
            last = _date(match[2], item) if match[2] else first
            if last < first:
                raise InvalidSchedule("exclude", f"{quoted(item)} ends before it begins. Exchange its dates.")
            ranges.append((first, last))
        else:
            raise InvalidSchedule(
                "exclude",
                f"{quoted(item)} is no day to leave out. Give a date (2026-12-25), a range (2026-12-24/2027-01-01), "
                "a day of each year (--12-25) or a weekday (SAT).",
            )


@functools.lru_cache(maxsize=16_384)
def month_of(year: int, month: int) -> tuple[int, int, int]:
    """Return the first weekday of a month, its length, and the ordinal of the day before it."""
    return *calendar.monthrange(year, month), date(year, month, 1).toordinal() - 1


def first_day(day: date, until: date, days_of: Callable[[int, int], int]) -> date | None:
    """Return the first day from `day` to `until` that is among the days of its month."""
    year, month, bits = day.year, day.month, -1 << day.day
    while (year, month) <= (until.year, until.month):
        if found := days_of(year, month) & bits:
            first = date(year, month, (found & -found).bit_length() - 1)
            return first if first <= until else None
        bits = -1
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    return None


def _date(text: str, item: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidSchedule("exclude", f"{quoted(item)} names a day that no calendar has. Correct it.") from None


def check_exclusions(items: Sequence[str]) -> None:
    """Return if these days can be left out; InvalidSchedule names the one that is wrong."""
    if len(items) > MAX_EXCLUSIONS:
        raise InvalidSchedule(
            "exclude", f"{len(items)} days are left out; at most {MAX_EXCLUSIONS} are taken. Use ranges or weekdays."
        )
    DaysOff(items)


@functools.lru_cache(maxsize=64)
def days_off(items: tuple[str, ...]) -> DaysOff | None:
    """Return the days that are left out; None if there are none."""
    return DaysOff(items) if items else None
