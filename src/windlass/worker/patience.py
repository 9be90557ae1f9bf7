"""Patience: how long one call may take, and how long to wait before the next try."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from windlass.errors import Unavailable


@asynccontextmanager
async def answered(within_s: float) -> AsyncIterator[None]:
    """Bound what happens within: past it nobody has answered, which is Unavailable."""
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError:
        raise Unavailable(f"Nobody answered within {within_s:g} s. It is tried again.") from None


class BackOff:
    """Pauses between tries, with full jitter: from 0 up to a bound that doubles.

    What a server asks for comes on top, up to `asked_s`: the longest pause where it is not given.
    """

    def __init__(
        self, first_s: float, longest_s: float, *, chance: Callable[[], float], asked_s: float | None = None
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._most_asked_s = longest_s if asked_s is None else asked_s
        self._chance = chance
        self.tries = 0

    def next_s(self, error: BaseException | None = None) -> float:
        """Return the pause before the next try; not shorter than the server asked for, if it did."""
        bound_s: float = min(self._first_s * 2 ** min(self.tries, 30), self._longest_s)
        self.tries += 1
        return min(_asked_s(error), self._most_asked_s) + self._chance() * bound_s

    def reset(self) -> None:
        """Begin anew after a success."""
        self.tries = 0


class Rest:
    """A pause that can be cut short."""

    def __init__(self, pause: Callable[[float], Awaitable[None]]) -> None:
        self._pause = pause
        self._pausing: asyncio.Future[None] | None = None

    async def take(self, span_s: float) -> None:
        """Pause for so long, or until it is cut short."""
        self._pausing = pausing = asyncio.ensure_future(self._pause(span_s))
        try:
            await asyncio.wait([pausing])
        finally:
            pausing.cancel()
            self._pausing = None

    def cut(self) -> None:
        """End the pause under way, if there is one."""
        if self._pausing is not None:
            self._pausing.cancel()


def _asked_s(error: BaseException | None) -> float:
    """Return how long a server asked to wait; one that did not answer at all did not."""
    return 0.0 if error is None else float(vars(error).get("retry_after_s", 0.0))
