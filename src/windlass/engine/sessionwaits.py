"""Heartbeats that wait for news of their session: a job to stop, a drain, a lease or the session taken away.

A heartbeat renews its session when it comes, and then waits without a connection to the database. What happens on this
server is heard of at once, what happens on another by NOTIFY (wake.py). A slow look for all who wait is the net, two
statements however many they are; leases that were taken away are left to the next heartbeat then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from windlass.db import Database
from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.errors import WindlassError
from windlass.queue import workers
from windlass.queue.workers import Beat, BeatAnswer

LOOK_S = 1.0
"""Between looks for news that nobody told."""
SILENT_S = 10.0

logger = logging.getLogger("windlass")


class Waiter:
    """One heartbeat that waits."""

    def __init__(self, beat: Beat) -> None:
        self.beat = beat
        self.noticed = asyncio.Event()

    def is_news(self, answer: BeatAnswer) -> bool:
        """Say whether the answer tells something: that a worker drains is none to one that says so itself."""
        drains = answer.draining and not self.beat.draining
        return bool(not answer.alive or answer.cancel or answer.lost or answer.released or drains)


class SessionWaits:
    """The heartbeats that wait on this server, by session."""

    def __init__(self, db: Database, wake: Wake, *, outside: Outside) -> None:
        self._db = db
        self._outside = outside
        self._waiting: dict[UUID, set[Waiter]] = {}
        self._somebody = asyncio.Event()
        self._over = asyncio.Event()
        self.waiting_count = 0
        """Heartbeats that were renewed and wait."""
        wake.on_stop.append(lambda session, _job: self._notice(session))
        wake.on_session.append(self._notice)

    @contextmanager
    def waiting(self, beat: Beat) -> Iterator[Waiter]:
        """Hear of news within the block. It is entered before the first look, so that nothing in between is missed."""
        waiter = Waiter(beat)
        self._waiting.setdefault(beat.session, set()).add(waiter)
        self._somebody.set()
        try:
            yield waiter
        finally:
            waiters = self._waiting[beat.session]
            waiters.discard(waiter)
            if not waiters:
                del self._waiting[beat.session]

    async def news(self, waiter: Waiter, wait_s: float) -> BeatAnswer | None:
        """Return what the session must know as soon as something has happened to it; None if nothing has in time."""
        if self._over.is_set():
            return None
        self.waiting_count += 1
        try:
            async with asyncio.timeout(wait_s):
                await waiter.noticed.wait()
        except TimeoutError:
            return None
        finally:
            self.waiting_count -= 1
        if self._over.is_set():
            return None
        [answer] = await workers.look(self._db, [waiter.beat])
        return answer

    async def run(self) -> None:
        """Look for news that this server was not told, until cancelled."""
        while True:
            await self._somebody.wait()
            await self._outside.pause(LOOK_S)
            if not self._waiting:
                self._somebody.clear()
                continue
            try:
                async with asyncio.timeout(SILENT_S):
                    await self._look()
            except (WindlassError, TimeoutError) as error:
                logger.debug("Looking for news of sessions failed: %s", error)

    def answer_all(self) -> None:
        """Let everybody go who waits, now and from now on: the server stops."""
        self._over.set()
        for session in list(self._waiting):
            self._notice(session)

    async def _look(self) -> None:
        waiters = [waiter for waiters in self._waiting.values() for waiter in waiters]
        silent = [Beat(session=waiter.beat.session, tenant=waiter.beat.tenant) for waiter in waiters]
        for waiter, answer in zip(waiters, await workers.look(self._db, silent), strict=True):
            if waiter.is_news(answer):
                waiter.noticed.set()

    def _notice(self, session: UUID) -> None:
        for waiter in self._waiting.get(session, ()):
            waiter.noticed.set()
