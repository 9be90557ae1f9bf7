"""Changes: those who follow along hear that something has happened, and look for themselves what it was.

A change on this server is heard at once; one on another within a second, by looking. Streams share one event, so a
thousand changes in a moment are one look for each stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.errors import TooMany

MOST_STREAMS = 200
GATHER_S = 0.1
"""A stream looks no more often than this."""
LOOK_S = 1.0


class Changes:
    """Tells streams when to look."""

    def __init__(self, wake: Wake, *, outside: Outside) -> None:
        self._pause = outside.pause
        self._changed = asyncio.Event()
        self._stream_count = 0
        self._over = False
        wake.on_change.append(self._changed.set)

    def check_room(self) -> None:
        """Return if another stream may begin; TooMany if there are enough already."""
        if self._stream_count >= MOST_STREAMS:
            raise TooMany(f"{MOST_STREAMS} streams are open on this server. Close some, or ask another server.")

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count a stream as long as it lasts."""
        self._stream_count += 1
        try:
            yield
        finally:
            self._stream_count -= 1

    async def wait(self, longest_s: float = LOOK_S) -> bool:
        """Return after a change, or after a while without one; False when the server stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(longest_s, LOOK_S)):
                await self._changed.wait()
        if not self._over:
            await self._pause(min(longest_s, GATHER_S))
        self._changed.clear()
        return not self._over

    def stop(self) -> None:
        """Let all streams end."""
        self._over = True
        self._changed.set()
