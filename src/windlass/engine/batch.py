"""Natural batching: while one flush is under way requests collect, and when it returns all that wait go next.

There is no timer: an idle server answers after one round trip, and under load batches grow by themselves.
A request is answered after its flush has committed. One that the database cannot take is found by halving the batch,
request by request, so that its neighbours get their answers. What a rival prevented is run again.
A line has a bound: beyond it callers are told to come back later, instead of all waiting longer and longer.

Tenants take turns (fair.py), and each has half of the room at most. A large request shares its flush with none of
another tenant. Small requests and large ones go by turns; where there are two flushes at once, one is for small ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from windlass.engine.fair import FairQueue, LargeWrites
from windlass.engine.outside import Outside
from windlass.engine.weights import Weight
from windlass.errors import CommitAborted, Contention, TooMany, Unavailable, WindlassError

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Flush = Callable[[Sequence[Request]], Awaitable[Sequence[Answer | WindlassError]]]
Weigh = Callable[[Request], Weight]

SURELY_ABORTED: tuple[type[Unavailable], ...] = (Contention, CommitAborted)
"""After these nothing was written: the same batch may go again."""
MOST_ROWS = 1000
MOST_BYTES = 8 * 1024 * 1024
MUCH = 100
"""Rows that make a second flush worth its cost, and beyond which a request is large."""
MUCH_BYTES = 256 * 1024
"""Bytes beyond which a request is large."""
PATIENCE_S = 5.0
"""How long a caller waits for its answer before it is told to come back."""
ROOM_BYTES = 64 * 1024 * 1024
TRIES = 5
FIRST_PAUSE_S = 0.005
FLUSH_S = 10.0
"""Longer than this no flush may take: a database that has fallen silent must not keep its line for ever."""

logger = logging.getLogger("windlass")


class _Waiting(Generic[Request, Answer]):
    __slots__ = ("answer", "request", "rows", "size", "tenant")

    def __init__(self, request: Request, weight: Weight) -> None:
        self.request = request
        self.rows, self.size, self.tenant = weight
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()


class Batcher(Generic[Request, Answer]):
    """One line of work: requests in, one flush for all that wait, answers out."""

    def __init__(
        self,
        name: str,
        flush: Flush[Request, Answer],
        *,
        weigh: Weigh[Request],
        outside: Outside,
        lines: int = 1,
        room: int = 20 * MOST_ROWS,
        gather_s: float = 0.0,
        again: tuple[type[Unavailable], ...] = SURELY_ABORTED,
        observe: Callable[[str, int, float], None] | None = None,
        large_writes: LargeWrites | None = None,
    ) -> None:
        """`large_writes` are the turns of flushes that hold large requests."""
        self._name = name
        self._flush = flush
        self._weigh = weigh
        self._outside = outside
        self._lines = lines
        self._room = room
        self._gather_s = gather_s
        """How long a flush waits for company: for requests that are not in a hurry."""
        self._again = again
        self._observe = observe
        self._large_writes = large_writes
        self._small: FairQueue[_Waiting[Request, Answer]] = FairQueue()
        self._large: FairQueue[_Waiting[Request, Answer]] = FairQueue()
        self._large_next = False
        """Whether large requests come next, where both wait."""
        self._rows = 0
        self._bytes = 0
        self._taken: dict[str, tuple[int, int]] = {}
        """Rows and bytes that wait, by tenant."""
        self._busy_count = 0
        self._busy_large = 0
        """Flushes under way that hold large requests."""
        self._working: set[asyncio.Task[None]] = set()

    def fullness(self, tenant: str) -> float:
        """Return how much of its share of the line's room a tenant has taken, between 0 and 1."""
        rows, size = self._taken.get(tenant, (0, 0))
        return min(1.0, 2 * max(rows / self._room, size / ROOM_BYTES))

    async def ask(self, request: Request) -> Answer:
        """Return the answer to `request`, after its commit. Raises TooMany if the line, or the tenant's half, is full.

        A tenant of which nothing waits is never refused.
        """
        weight = self._weigh(request)
        self._check_room(weight)
        waiting: _Waiting[Request, Answer] = _Waiting(request, weight)
        is_large = waiting.rows > MUCH or waiting.size > MUCH_BYTES
        cost = max(waiting.rows / MOST_ROWS, waiting.size / MOST_BYTES)
        (self._large if is_large else self._small).push(waiting.tenant, waiting, cost)
        self._count(waiting, 1)
        # A second flush beside the first only when much waits, else both would be small and each costs the same;
        # or when a small request would wait for a large one.
        is_behind = self._busy_large == self._busy_count and not is_large
        if self._busy_count < self._most() and (self._busy_count == 0 or self._rows >= MUCH or is_behind):
            self._begin()
        late = asyncio.get_running_loop().call_later(PATIENCE_S, _give_up, waiting.answer)
        try:
            return await waiting.answer
        finally:
            late.cancel()

    async def idle(self) -> None:
        """Return when nothing waits and nothing is under way."""
        while self._working:
            await asyncio.wait(self._working)

    def _begin(self) -> None:
        # Counted here and in the work itself: a task is done a moment after it has seen that nothing waits.
        self._busy_count += 1
        task = asyncio.create_task(self._work(), name=f"batch-{self._name}")
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _work(self) -> None:
        try:
            while True:
                if self._busy_count > self._most():
                    return
                if self._gather_s and self._rows:
                    await self._outside.pause(self._gather_s)
                queue = self._next_queue()
                if not (batch := self._take(queue)):
                    if len(self._small) or self._may_be_large():
                        continue  # the callers of all that waited in one queue had left
                    return
                self._busy_large += queue is self._large
                if queue is self._large and len(self._small) and self._busy_count < self._most():
                    self._begin()
                try:
                    await (self._answer_large(batch) if queue is self._large else self._observed(batch))
                finally:
                    self._busy_large -= queue is self._large
        finally:
            self._busy_count -= 1

    def _most(self) -> int:
        """Return how many flushes may be under way: beside a large one always another."""
        return max(self._lines, 1 + min(self._busy_large, 1))

    def _check_room(self, weight: Weight) -> None:
        rows, size = self._taken.get(weight.tenant, (0, 0))
        if not rows:
            return
        if 2 * (rows + weight.rows) > self._room or 2 * (size + weight.size) > ROOM_BYTES:
            raise TooMany(f"{rows} rows of tenant {weight.tenant} wait already to {self._name}. Try again.")
        if self._rows + weight.rows > self._room or self._bytes + weight.size > ROOM_BYTES:
            raise TooMany(f"{self._rows} rows wait already to {self._name}; the server is overloaded. Try again.")

    def _count(self, waiting: _Waiting[Request, Answer], sign: int) -> None:
        """Note that a request waits, or that it does so no more."""
        self._rows += sign * waiting.rows
        self._bytes += sign * waiting.size
        rows, size = self._taken.get(waiting.tenant, (0, 0))
        self._taken[waiting.tenant] = (rows + sign * waiting.rows, size + sign * waiting.size)
        if not self._taken[waiting.tenant][0]:
            del self._taken[waiting.tenant]

    def _may_be_large(self) -> bool:
        return len(self._large) > 0 and self._busy_large < max(1, self._lines - 1)

    def _next_queue(self) -> FairQueue[_Waiting[Request, Answer]]:
        """Return the small requests or the large ones, by turns; of two flushes at once one is for small ones."""
        if self._may_be_large() and (self._large_next or not len(self._small)):
            self._large_next = False
            return self._large
        self._large_next = True
        return self._small

    def _take(self, queue: FairQueue[_Waiting[Request, Answer]]) -> list[_Waiting[Request, Answer]]:
        """Take what waits, up to the bounds of a batch; those whose callers left are dropped here."""
        batch: list[_Waiting[Request, Answer]] = []
        rows = size = 0
        while (first := queue.peek()) is not None:
            if batch and (rows + first.rows > MOST_ROWS or size + first.size > MOST_BYTES):
                break
            if batch and queue is self._large and first.tenant != batch[0].tenant:
                break
            queue.pop()
            self._count(first, -1)
            if not first.answer.done():
                batch.append(first)
                rows += first.rows
                size += first.size
        return batch

    async def _answer_large(self, batch: list[_Waiting[Request, Answer]]) -> None:
        """Answer large requests, in turn with other large writes: so a small one waits for one of them at most."""
        if self._large_writes is None:
            await self._observed(batch)
            return
        try:
            async with self._large_writes.turn(batch[0].tenant):
                # What a caller was told to send again while it waited for the turn must not be written.
                if remaining := [waiting for waiting in batch if not waiting.answer.done()]:
                    await self._observed(remaining)
        except Unavailable as error:
            _refuse(batch, error)

    async def _observed(self, batch: list[_Waiting[Request, Answer]]) -> None:
        """Answer requests, and tell how long that took: without the wait for a turn and the rest after it."""
        started = self._outside.monotonic()
        await self._answer(batch)
        if self._observe is not None:
            rows = sum(waiting.rows for waiting in batch)
            self._observe(self._name, rows, self._outside.monotonic() - started)

    async def _answer(self, batch: list[_Waiting[Request, Answer]]) -> None:
        try:
            answers = await self._flushed([waiting.request for waiting in batch])
        except Unavailable as error:
            _refuse(batch, error)
        except Exception as error:
            if len(batch) > 1:
                # One of them cannot be stored: find it by halves, so that the others are.
                middle = len(batch) // 2
                await self._answer(batch[:middle])
                await self._answer(batch[middle:])
                return
            if not isinstance(error, WindlassError):
                logger.exception("A request to %s could not be served.", self._name)
            _refuse(batch, error)
        else:
            for waiting, answer in zip(batch, answers, strict=True):
                if waiting.answer.done():
                    continue
                if isinstance(answer, WindlassError):
                    waiting.answer.set_exception(answer)
                else:
                    waiting.answer.set_result(answer)

    async def _flushed(self, requests: Sequence[Request]) -> Sequence[Answer | WindlassError]:
        pause_s = FIRST_PAUSE_S
        for remaining in reversed(range(TRIES)):
            try:
                async with asyncio.timeout(FLUSH_S):
                    return await self._flush(requests)
            except TimeoutError:
                raise Unavailable(f"The database did not answer for {FLUSH_S:g} s. Try again.") from None
            except self._again:
                if not remaining:
                    raise
                await self._outside.pause(pause_s * (0.5 + self._outside.chance()))
                pause_s *= 3
        raise AssertionError("unreachable")


def _refuse(batch: Sequence[_Waiting[Request, Answer]], error: Exception) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)


def _give_up(answer: asyncio.Future[Answer]) -> None:
    if not answer.done():
        answer.set_exception(Unavailable(f"The database did not answer within {PATIENCE_S:g} s. Try again."))
