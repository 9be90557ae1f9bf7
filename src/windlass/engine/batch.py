"""Natural batching: while one flush is under way requests collect, and when it returns all that wait go next.

There is no timer: an idle server answers after one round trip, and under load batches grow by themselves.
A request is answered after its flush has committed. One that the database cannot take is found by halving the batch,
request by request, so that its neighbours get their answers. What a rival prevented is run again.
A line has a bound: beyond it callers are told to come back later, instead of all waiting longer and longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from windlass.engine.outside import Outside
from windlass.errors import CommitAborted, Contention, TooMany, Unavailable, WindlassError

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Flush = Callable[[Sequence[Request]], Awaitable[Sequence[Answer | WindlassError]]]
Weigh = Callable[[Request], tuple[int, int]]
"""How many rows a request has, and how many bytes."""

SURELY_ABORTED: tuple[type[Unavailable], ...] = (Contention, CommitAborted)
"""After these nothing was written: the same batch may go again."""
MOST_ROWS = 1000
MOST_BYTES = 8 * 1024 * 1024
MUCH = 100
"""Rows that make a second flush worth its cost."""
PATIENCE_S = 5.0
"""How long a caller waits for its answer before it is told to come back."""
ROOM_BYTES = 64 * 1024 * 1024
TRIES = 5
FIRST_PAUSE_S = 0.005
FLUSH_S = 10.0
"""Longer than this no flush may take: a database that has fallen silent must not keep its line for ever."""

logger = logging.getLogger("windlass")


class _Waiting(Generic[Request, Answer]):
    __slots__ = ("answer", "request", "rows", "size")

    def __init__(self, request: Request, rows: int, size: int) -> None:
        self.request = request
        self.rows = rows
        self.size = size
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
    ) -> None:
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
        self._waiting: deque[_Waiting[Request, Answer]] = deque()
        self._rows = 0
        self._bytes = 0
        self._busy_count = 0
        self._working: set[asyncio.Task[None]] = set()

    @property
    def fullness(self) -> float:
        """Between 0 and 1: how much of the line's room is taken."""
        return max(self._rows / self._room, self._bytes / ROOM_BYTES)

    async def ask(self, request: Request) -> Answer:
        """Return the answer to `request`, after its commit; TooMany when the line is full."""
        rows, size = self._weigh(request)
        if self._waiting and (self._rows + rows > self._room or self._bytes + size > ROOM_BYTES):
            raise TooMany(f"{self._rows} rows wait already to {self._name}; the server is overloaded. Try again.")
        waiting: _Waiting[Request, Answer] = _Waiting(request, rows, size)
        self._waiting.append(waiting)
        self._rows += rows
        self._bytes += size
        # A second flush beside the first only when much waits: else both would be small, and each costs the same.
        if self._busy_count == 0 or (self._busy_count < self._lines and self._rows >= MUCH):
            # Counted here and in the work itself: a task is done a moment after it has seen that nothing waits.
            self._busy_count += 1
            task = asyncio.create_task(self._work(), name=f"batch-{self._name}")
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        late = asyncio.get_running_loop().call_later(PATIENCE_S, _give_up, waiting.answer)
        try:
            return await waiting.answer
        finally:
            late.cancel()

    async def idle(self) -> None:
        """Return when nothing waits and nothing is under way."""
        while self._working:
            await asyncio.wait(self._working)

    async def _work(self) -> None:
        try:
            while True:
                if self._gather_s and self._waiting:
                    await self._outside.pause(self._gather_s)
                if not (batch := self._take()):
                    return
                started = self._outside.monotonic()
                await self._answer(batch)
                if self._observe is not None:
                    rows = sum(waiting.rows for waiting in batch)
                    self._observe(self._name, rows, self._outside.monotonic() - started)
        finally:
            self._busy_count -= 1

    def _take(self) -> list[_Waiting[Request, Answer]]:
        """Take what waits, up to the bounds of a batch; those whose callers left are dropped here."""
        batch: list[_Waiting[Request, Answer]] = []
        rows = size = 0
        while self._waiting:
            first = self._waiting[0]
            if batch and (rows + first.rows > MOST_ROWS or size + first.size > MOST_BYTES):
                break
            self._waiting.popleft()
            self._rows -= first.rows
            self._bytes -= first.size
            if not first.answer.done():
                batch.append(first)
                rows += first.rows
                size += first.size
        return batch

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
