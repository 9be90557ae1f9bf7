"""Ids: UUIDv7, made before the statement that stores them, by the database's clock.

One maker hands out strictly increasing ids: the 12 bits behind the millisecond and the 18 bits after them are a
counter, the rest is random. Ids sort by time, so inserts append to their index; ascending ids are the order in which
rows are locked. On PostgreSQL the time in an id also decides which partition its job lies in, so a server whose own
clock is wrong must not put it there: it gives `Database.now`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from secrets import token_bytes
from uuid import UUID

from windlass.clock import Clock, to_us

_MS_BITS = 48
_COUNTER_BITS = 30
_TAIL_BITS = 44
_BACK_MS = 60_000


class RandomBits:
    """Random bits from the operating system, fetched in blocks: a call for each id would cost more than the id."""

    def __init__(self, random_bytes: Callable[[int], bytes] = token_bytes, block: int = 4096) -> None:
        self._random_bytes = random_bytes
        self._block = block
        self._bytes = b""
        self._used = 0
        self._process = os.getpid()

    def __call__(self, count: int) -> int:
        """Return `count` random bits."""
        size = (count + 7) // 8
        # A forked child must not hand out what its parent has.
        if self._used + size > len(self._bytes) or self._process != os.getpid():
            self._bytes, self._used = self._random_bytes(max(self._block, size)), 0
            self._process = os.getpid()
        self._used += size
        return int.from_bytes(self._bytes[self._used - size : self._used]) & ((1 << count) - 1)


class Ids:
    """Makes UUIDv7s from a clock and random bits: strictly increasing, but where the clock is set back for good."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int] | None = None) -> None:
        self._clock = clock
        self._random_bits = RandomBits() if random_bits is None else random_bits
        self._last_ms = 0
        self._counter = 0

    def new(self) -> UUID:
        """Return an id greater than every one this maker returned before, also when the clock steps back by a minute.

        From a clock that is set back further the ids begin anew: they must not tell a time that is long to come.
        """
        ms = max(to_us(self._clock()) // 1000, 0)
        if ms > self._last_ms or ms < self._last_ms - _BACK_MS:
            self._last_ms = ms
            # Half of the counter's room is left above the random start.
            self._counter = self._random_bits(_COUNTER_BITS - 1)
        else:
            self._counter += 1
            if self._counter >> _COUNTER_BITS:
                self._last_ms += 1
                self._counter = 0
        return _uuid7(self._last_ms, self._counter, self._random_bits(_TAIL_BITS))


def first_id_at(instant: datetime, *, shift: timedelta = timedelta(0)) -> UUID:
    """Return the smallest id that can be made at an instant, shifted; before 1970 it is the smallest of all."""
    ms = min(max(to_us(instant) // 1000 + shift // timedelta(milliseconds=1), 0), 2**_MS_BITS - 1)
    return _uuid7(ms, 0, 0)


def ms_of(made: UUID) -> int:
    """Return the milliseconds since 1970 that a UUIDv7 tells."""
    return made.int >> (128 - _MS_BITS)


def _uuid7(ms: int, counter: int, tail: int) -> UUID:
    high, low = counter >> 18, counter & 0x3FFFF
    return UUID(int=(ms << (128 - _MS_BITS)) | (0x7 << 76) | (high << 64) | (0b10 << 62) | (low << 44) | tail)
