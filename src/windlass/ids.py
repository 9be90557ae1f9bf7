"""Ids: UUIDv7, made before the statement that stores them.

One maker hands out strictly increasing ids: the 12 bits behind the millisecond and the 18 bits after them are a
counter, the rest is random. Ids sort by time, so inserts append to their index; ascending ids are the order in which
rows are locked.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from secrets import randbits
from uuid import UUID

from windlass.clock import Clock, system_clock, to_us

_MS_BITS = 48
_COUNTER_BITS = 30
_TAIL_BITS = 44


class Ids:
    """Makes strictly increasing UUIDv7s from a clock and a source of random bits."""

    def __init__(self, clock: Clock = system_clock, random_bits: Callable[[int], int] = randbits) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._last_ms = 0
        self._counter = 0

    def new(self) -> UUID:
        """Return an id greater than every one this maker returned before, also when the clock steps back."""
        ms = to_us(self._clock()) // 1000
        if ms > self._last_ms:
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


def _uuid7(ms: int, counter: int, tail: int) -> UUID:
    high, low = counter >> 18, counter & 0x3FFFF
    return UUID(int=(ms << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | (low << 44) | tail)
