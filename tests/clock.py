"""The clock of the tests: it stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


class TestClock:
    """Answers the same instant until it is advanced; passed wherever the product wants a clock."""

    __test__ = False  # pytest takes every class named Test… for a class of tests

    def __init__(self, start: datetime = START) -> None:
        self._now = start

    def __call__(self) -> datetime:
        return self._now

    def now(self) -> datetime:
        """Return the present instant, in UTC."""
        return self._now

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> datetime:
        """Move on and return the new instant; a negative span moves back, as a wall clock may."""
        self._now += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self._now


async def no_pause(_seconds: float) -> None:
    """Return at once, where the product would wait."""
