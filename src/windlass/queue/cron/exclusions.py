"""Exclusions: days on which a schedule does not run. Pure.

A date, a range of dates, a day of each year, or a weekday; always the date that people read in the schedule's zone.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Sequence
from datetime import date, timedelta

from windlass.errors import InvalidSchedule
from windlass.queue.cron.fields import quoted

MAX_EXCLUSIONS = 400
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
"""In the order of date.weekday()."""
LEAP_YEAR = 2000
DAYS_OF_LEAP_YEAR = 366
DAY = timedelta(days=1)

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
        self._starts: list[date] = []
        self._ends: list[date] = []
        for first, last in sorted(ranges):
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
        if day.weekday() in self.weekdays or (day.month, day.day) in self.yearly:
            return True
        return self._range_end(day) is not None

    def next_open(self, day: date, *, until: date) -> date | None:
        """Return the first day from `day` to `until` that is not left out."""
        while day <= until:
            if (end := self._range_end(day)) is not None:
                day = end
            elif day not in self:
                return day
            if day >= until:
                return None
            day += DAY
        return None

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

    def _range_end(self, day: date) -> date | None:
        found = bisect_right(self._starts, day) - 1
        return self._ends[found] if found >= 0 and day <= self._ends[found] else None


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


@functools.lru_cache(maxsize=1024)
def days_off(items: tuple[str, ...]) -> DaysOff | None:
    """Return the days that are left out; None if there are none."""
    return DaysOff(items) if items else None
