"""Tries: when a call that found nobody is made again, and when it is given up. Pure.

Only what is safe to say twice is said twice: a question, a submit under a key, or whatever surely was not heard.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.client.requests import Request
from windlass.errors import CommitAborted, Contention, TooMany, Unavailable, WindlassError

FIRST_S = 0.1
LONGEST_S = 2.0
SHORTEST_CONNECT_S = 0.5
SHORTEST_ANSWER_S = 2.0
"""However short patience is, an answer may take so long."""


class NotHeard(Unavailable):
    """Nobody took the request: saying it again is safe, whatever it is."""


class ServerDown(NotHeard):
    """No server is there at all."""


_SURELY_NOTHING = (NotHeard, Contention, CommitAborted, TooMany)
_WORTH_IT = (Unavailable, TooMany)


class Tries:
    """The tries of one call; None: for ever."""

    def __init__(
        self,
        within_s: float | None,
        *,
        monotonic: Callable[[], float],
        chance: Callable[[], float],
        down_s: float | None = None,
    ) -> None:
        """`down_s`: how long it is tried where no server is, if not as long as the rest."""
        self._monotonic = monotonic
        self._began_at = monotonic()
        self._down_at = None if down_s is None else monotonic() + down_s
        self._chance = chance
        self._over_at = None if within_s is None else monotonic() + within_s
        self._within_s = within_s
        self._count = 0
        self._is_unsure = False
        """Whether one of the tries may have been heard."""

    @property
    def left_s(self) -> float | None:
        """How long it may still take; None: as long as it likes."""
        return None if self._over_at is None else max(0.0, self._over_at - self._monotonic())

    def expire(self) -> None:
        """Take what is left of the time away."""
        self._over_at = self._monotonic()

    def answered(self) -> None:
        """Note that somebody answered: the next trouble is a new one."""
        self._count = 0

    def bounded(self, request: Request) -> Request:
        """Return the request with a bound for its answer that leaves time for another try, where one is safe."""
        left_s = self.left_s
        if self._down_at is not None:
            connect_s = max(SHORTEST_CONNECT_S, self._down_at - self._monotonic())
            request = msgspec.structs.replace(request, connect_s=connect_s)
        if left_s is None or self._within_s is None or not request.repeatable:
            return request
        answer_s = max(SHORTEST_ANSWER_S, min(request.answer_s, self._within_s * 0.45, left_s))
        return msgspec.structs.replace(request, answer_s=answer_s)

    def pause_after(self, request: Request, error: WindlassError) -> float:
        """Return how long to wait before the next try; raises the error if there is to be none."""
        unheard = isinstance(error, _SURELY_NOTHING)
        self._is_unsure |= not unheard
        if not (request.repeatable or unheard) or not isinstance(error, _WORTH_IT):
            raise error
        self._count += 1
        longest_s: float = min(FIRST_S * 2 ** min(self._count, 10), LONGEST_S)
        pause_s = longest_s * (0.5 + 0.5 * self._chance())
        if isinstance(error, TooMany):
            pause_s = max(pause_s, error.retry_after_s)
        left_s = self.left_s
        if isinstance(error, ServerDown) and self._down_at is not None and self._down_at < self._monotonic() + pause_s:
            tried_s = self._monotonic() - self._began_at
            error.args = (f'{error} It was tried for {tried_s:.1f} s; App(patience="30s") waits longer.',)
            raise self._last(error, request)
        if left_s is not None and pause_s > left_s:
            raise self._last(error, request)
        return pause_s

    def _last(self, error: WindlassError, request: Request) -> WindlassError:
        """Return the error that ends the tries; it names the key under which a submit is safely said again."""
        if self._is_unsure and request.key is not None and isinstance(error, Unavailable):
            error.idempotency_key = request.key
            how = f"submit it again with idempotency_key={request.key!r}, and it is one job either way"
            error.args = (f"{error} Whether the job was stored is not known: {how}.",)
        return error
