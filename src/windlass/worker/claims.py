"""Claims: a worker asks for jobs whenever it has room, and waits for them at the server.

Under load the next jobs come with the answer to reports (reports.py), and this loop rests; when those bring less than
was asked for, it takes over. An error is logged and followed by a pause; only the worker's leaving ends the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from windlass import log
from windlass.config import Settings
from windlass.engine.outside import Outside
from windlass.errors import Conflict, NotFound, SetupError, TooMany, Unavailable, WindlassError
from windlass.wire import work as wire
from windlass.wire.tasks import MOST_TASKS
from windlass.worker.holdings import Holdings
from windlass.worker.link import Link
from windlass.worker.patience import BackOff, Rest, answered


def check_tasks(tasks: Collection[str]) -> None:
    """Return if one worker can claim for so many tasks; SetupError if not."""
    if len(tasks) > MOST_TASKS:
        raise SetupError(
            f"{len(tasks)} tasks in one worker; at most {MOST_TASKS} are possible. Make several apps of them."
        )


class Claims:
    """The loop that asks for jobs."""

    def __init__(
        self,
        link: Link,
        holdings: Holdings,
        *,
        settings: Settings,
        tasks: Sequence[str],
        resting: Callable[[], bool],
        take: Callable[[wire.Claim], None],
        outside: Outside,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._link = link
        self._holdings = holdings
        self._settings = settings.worker
        self._tasks = tuple(tasks)
        self._resting = resting
        """Whether reports bring jobs just now."""
        self._take = take
        self._outside = outside
        self._before = before
        """What comes before the first claim; it takes a short while at most."""
        self._has_begun = False
        """Whether what comes before the first claim is done."""
        self._bell = asyncio.Event()
        self._rest = Rest(outside.pause)
        self._is_unheard = False
        """Whether the last claim got no answer."""
        self._asking: asyncio.Task[wire.Claim] | None = None
        self._advanced_at = outside.monotonic()
        """When the loop last went round."""
        worker = settings.worker
        self._errors = BackOff(worker.backoff_min_seconds, worker.backoff_max_seconds, chance=outside.chance)
        # Without jitter: W4 says how far apart the polls of an empty queue are.
        self._empties = BackOff(worker.backoff_min_seconds, worker.backoff_max_seconds, chance=lambda: 1.0)

    @property
    def capability(self) -> dict[str, Any]:
        """What this worker can run, as claims name it: an unknown task is never claimed."""
        return {"queues": self._settings.queues, "tasks": self._tasks, "labels": self._settings.labels}

    @property
    def waiting(self) -> bool:
        """Whether a claim is under way."""
        return self._asking is not None

    @property
    def has_no_need(self) -> bool:
        """Whether it rests because there is no room, or because reports bring jobs."""
        return self._resting() or self._holdings.room() == 0

    def advances(self, now: float) -> bool:
        """Say whether the loop has begun, and goes round, or rests because it has nothing to ask for."""
        worker = self._settings
        asking_s = worker.wait_seconds + worker.claim_timeout_seconds
        pausing_s = 2 * worker.backoff_max_seconds + worker.poll_interval_seconds + worker.error_pause_seconds
        return self._has_begun and (self.has_no_need or now - self._advanced_at <= asking_s + pausing_s)

    def ring(self) -> None:
        """Look again: there may be room, or a session."""
        self._bell.set()

    def hurry(self) -> None:
        """A server answers again: ask at once if the last claim got no answer."""
        self.ring()
        if self._is_unheard:
            self._rest.cut()

    def recall(self) -> None:
        """Give up the claim under way: its session is over, or nothing more is wanted."""
        if self._asking is not None:
            self._asking.cancel()

    async def run(self) -> None:
        """Ask for jobs, for ever."""
        if self._before is not None:
            await self._before()
        self._has_begun = True
        while True:
            self._advanced_at = self._outside.monotonic()
            self._bell.clear()
            count = 0 if self._resting() else self._holdings.room()
            if count == 0:
                await self._bell.wait()
                continue
            pause_s = await self._claim(count)
            if pause_s:
                await self._rest.take(pause_s)

    async def _claim(self, count: int) -> float:
        """Claim once; return how long to pause before the next."""
        began_at, wait_s = self._outside.monotonic(), self._settings.wait_seconds
        self._is_unheard = False
        self._asking = asyncio.create_task(self._ask(count), name="claim")
        try:
            claim = await self._asking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling() or not self._asking.cancelled():
                raise
            return 0.0
        except (TooMany, Unavailable) as error:
            if self._errors.tries == 0:  # of a row of failures the others only say the same
                log.event("worker.unheard", detail="Its claim was not answered.", reason=str(error))
            self._is_unheard = isinstance(error, Unavailable)
            return self._errors.next_s(error)
        except (Conflict, NotFound) as error:
            # The session is over: nothing is asked for until another is open, or this one is renewed after all.
            log.event("worker.unheard", detail="Its claim was refused.", reason=str(error))
            self._holdings.session_over = True
            return 0.0
        except WindlassError as error:
            log.event("worker.failed", part="claims", error=error)
            return self._settings.error_pause_seconds
        finally:
            self._asking = None
        self._errors.reset()
        self._take(claim)
        if claim.jobs:
            self._empties.reset()
        elif not claim.cancel and (wait_s == 0 or self._outside.monotonic() - began_at <= self._soon_s):
            # Nothing, and not because nothing came while it waited.
            return max(self._settings.poll_interval_seconds, self._empties.next_s())
        return 0.0

    @property
    def _soon_s(self) -> float:
        """An empty answer before this came without a wait for work, or after one so short that it is polling."""
        return max(self._settings.wait_seconds / 2, self._settings.poll_interval_seconds)

    async def _ask(self, count: int) -> wire.Claim:
        opened, wait_s = self._holdings.opened, self._settings.wait_seconds
        assert opened is not None
        request = wire.ClaimRequest(
            worker_id=opened.worker_id, session=opened.session, count=count, wait=wait_s, **self.capability
        )
        async with answered(wait_s + self._settings.claim_timeout_seconds):
            return await self._link.claim(request)
