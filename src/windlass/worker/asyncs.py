"""Coroutines as bodies: an event loop in a thread of its own, so that code that blocks there does not stop claims.

Attempts come and go in batches, one call across threads each. A body is stopped by cancelling its task, twice if need
be. A body that blocks the loop stops all the others there: when it is given up, new ones go to a new loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from functools import partial

import uvloop

from windlass import log
from windlass.worker.attempt import Attempt, Monotonic, arun
from windlass.worker.capture import CURRENT
from windlass.worker.endings import Halted, raised
from windlass.worker.ladder import Rung

LEAVE_S = 1.0
"""How long bodies have at the end, after the ladders of those that were to stop."""
Swap = Callable[[Sequence[Attempt]], Sequence[Attempt]]
"""Takes the attempts that a loop has ended and gives it those it is to begin."""


class Loop:
    """An event loop for bodies, in its own thread."""

    def __init__(self, swap: Swap, *, clock: Monotonic) -> None:
        self._swap = swap
        self._clock = clock
        self._loop = uvloop.new_event_loop()
        self._lock = threading.Lock()
        self._given: list[Attempt] = []
        self._ended: list[Attempt] = []
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}
        self._asked_count = 0
        self._heard_count = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="windlass-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closed:
            try:
                self._loop.run_forever()
            except BaseException as error:  # SystemExit of a task that a body started: nobody else catches it
                log.event("loop.failed", error=error)
        self._loop.close()

    def give(self, attempts: Sequence[Attempt]) -> None:
        """Begin these; called from any thread."""
        with self._lock:
            if self._closed:
                return
            first = not self._given
            self._given.extend(attempts)
            if first:
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        with self._lock:
            given, self._given = self._given, []
        for attempt in given:
            self._begin(attempt)

    def _begin(self, attempt: Attempt) -> None:
        attempt.place = self
        self._tasks[attempt] = self._loop.create_task(self._one(attempt))

    async def _one(self, attempt: Attempt) -> None:
        # Who stops it looks at the task after the ladder is set: one of the two sees the other.
        try:
            if attempt.ladder is None:
                CURRENT.set(attempt.trail)
                attempt.ending = await arun(attempt.task, attempt.job.payload, attempt.context)
            else:
                attempt.ending = Halted()
        except BaseException as error:  # its end could not be told, such as by an error that raises when it is shown
            attempt.ending = raised(error)
        finally:
            attempt.shut(self._clock())
            del self._tasks[attempt]
            if not self._ended:
                self._loop.call_soon(self._flush)
            self._ended.append(attempt)

    def _flush(self) -> None:
        ended, self._ended = self._ended, []
        for attempt in self._swap(ended):
            self._begin(attempt)

    def press(self, attempt: Attempt, rung: Rung) -> None:
        """Cancel the body's task, if it has not ended."""
        with self._lock:
            if not self._closed and rung in ("flag", "exception"):
                self._asked_count += 1
                self._loop.call_soon_threadsafe(partial(self._cancel, attempt))

    def _cancel(self, attempt: Attempt) -> None:
        self._heard_count += 1
        task = self._tasks.get(attempt)
        # One that has not taken its first step sees the ladder there; cancelled before, it would never take it.
        if task is not None and inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CREATED:  # type: ignore[arg-type]
            task.cancel()

    @property
    def stands_still(self) -> bool:
        """Whether something blocks it: it has not heard what it was asked."""
        return self._heard_count < self._asked_count

    def close(self) -> None:
        """Cancel what still runs, and end."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._leave()))

    async def _leave(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=LEAVE_S)
        self._loop.stop()

    def join(self, within_s: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(within_s)
