"""Clocks: who is asked what time it is.

The database's clock decides what is due, whose lease has lapsed and who leads.
On PostgreSQL that is the server's `now()`; on SQLite it is the clock of the process that writes, passed in here.
Tests pass their own to either and move it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]
"""Answers the present instant as an aware datetime in UTC."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def system_clock() -> datetime:
    """Return the machine's wall clock in UTC."""
    return datetime.now(UTC)


def to_us(instant: datetime) -> int:
    """Return whole microseconds since 1970, exactly; float seconds would lose the last digit."""
    return (instant - EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """Return the instant `us` microseconds after 1970."""
    return EPOCH + timedelta(microseconds=us)
