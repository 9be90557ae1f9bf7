"""The time by PostgreSQL's clock, without asking it each time: as it was last read, gone on since.

Ids are made by it (ids.py), so a server whose own clock is wrong puts no job into a span of another time (spans.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic

from windlass.clock import Clock
from windlass.db.base import Database
from windlass.errors import WindlassError

READ_S = 15.0
"""How often the clock is read: that of the database's machine may be set, or the machine be another one."""
# What windlass.clock() says where no test has set the time, also before there is a schema; and now, not at the begin of
# the transaction.
CLOCK = (
    "SELECT clock_timestamp()"
    " + coalesce(CAST(nullif(current_setting('windlass.clock_shift', true), '') AS interval), interval '0')"
)


class DatabaseClock:
    """The last reading of the database's clock, with this machine's clock of elapsed time at that moment."""

    def __init__(self, given: Clock | None) -> None:
        self._given = given
        self._read: tuple[datetime, float]

    def now(self) -> datetime:
        """Return the time; setting this machine's clock changes nothing."""
        if self._given is not None:
            return self._given()
        read_at, read_s = self._read
        return read_at + timedelta(seconds=monotonic() - read_s)

    async def read(self, ask: Callable[[], Awaitable[datetime]]) -> None:
        """Ask the database what time it is; it was so about the middle of the round trip."""
        if self._given is None:
            asked_s = monotonic()
            read_at = await ask()
            self._read = read_at, (asked_s + monotonic()) / 2


async def keep(db: Database, pause: Callable[[float], Awaitable[None]]) -> None:
    """Read the database's clock again and again."""
    while True:
        await pause(READ_S)
        with suppress(WindlassError):  # time goes on from what was read before
            await db.read_clock()
