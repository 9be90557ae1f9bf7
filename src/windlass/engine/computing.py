"""Computing: the times of schedules are computed in one thread beside the event loop, and tenants take turns there.

A request brings items, as the schedules of a batch. They are computed in pieces of some milliseconds; each piece waits
for its tenant's turn (fair.py). So a tenant with a thousand hard schedules delays another tenant by one piece at a
time, and the event loop by no more: two threads of Python share one interpreter, which is free between two pieces.
A request has one budget for all times that it computes. One that is over its budget is refused for good, by the item
that it was about: sent again it would take as long. When its caller leaves, no further piece is computed.
Payloads of schedules are looked through here too, by the same turns and without a budget: a body is of bounded size.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from windlass.engine.fair import Turnstile
from windlass.errors import InvalidSchedule

PIECE_S = 0.01
"""After so long a piece ends, with the item that it is at."""
BUDGET_S = 0.4
"""So long the items of one request may take: a thousand usual schedules take a tenth of it."""
RANGE_S = 2.0
"""So long the slots of one range may take to be counted: a hundred thousand take a quarter of it."""
ROOM = 200
"""So many requests of one tenant compute or wait here, of one key half of these."""

Item = TypeVar("Item")
Value = TypeVar("Value")

_thread = ThreadPoolExecutor(1, "windlass-times")


class Computing:
    """The turns of tenants in the thread for times, on one server."""

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        """`cpu_s` is the clock of the work itself: a busy machine uses up nobody's budget."""
        self.cpu_s = cpu_s
        self.turns = Turnstile("requests for times", at_once=1, at_once_each=1, room_each=ROOM)

    def budget(self, tenant: str, key: str | None) -> Budget:
        """Return what one request may compute."""
        return Budget(self, tenant, key)


class Budget:
    """The computing time that one request has used, and its limit."""

    def __init__(self, computing: Computing, tenant: str, key: str | None) -> None:
        self._computing = computing
        self._tenant = tenant
        self._key = key
        self._spent_s = 0.0

    async def each(
        self,
        work: Callable[[Item], Value],
        items: Sequence[Item],
        *,
        field: str = "cron",
        enough_s: float | None = None,
        limit_s: float | None = None,
        counted: bool = True,
    ) -> list[Value]:
        """Return what `work` returns for each item, in order; after `enough_s`, if given, no more of them.

        `limit_s` is the budget, if not the usual one. Work that is not `counted` takes its turns and uses up nothing.

        Raises InvalidSchedule if the request is over its budget. It names `field`, and the item's index among several.
        """
        limit_s = math.inf if not counted else BUDGET_S if limit_s is None else limit_s
        done: list[Value] = []
        begun_s = self._spent_s
        while len(done) < len(items) and (enough_s is None or not done or self._spent_s - begun_s < enough_s):
            async with self._computing.turns.turn(self._tenant, self._key):
                await asyncio.get_running_loop().run_in_executor(_thread, self._piece, work, items, done, limit_s)
            if self._spent_s >= limit_s:
                problem = (
                    f"computing the times of this request took more than {limit_s:g} s. "
                    "Ask for less at once: fewer schedules, a shorter range, or simpler days to leave out."
                )
                index = len(done) - 1 if len(items) > 1 else None
                raise InvalidSchedule(field, problem, index=index, batch="schedules")
        return done

    def _piece(self, work: Callable[[Item], Value], items: Sequence[Item], done: list[Value], limit_s: float) -> None:
        """Compute the next items, in the thread; there is one at least."""
        cpu_s = self._computing.cpu_s
        begun_s = cpu_s()
        try:
            while True:
                done.append(work(items[len(done)]))
                if len(done) == len(items) or cpu_s() - begun_s >= min(PIECE_S, limit_s - self._spent_s):
                    break
        finally:
            if limit_s < math.inf:
                self._spent_s += cpu_s() - begun_s
