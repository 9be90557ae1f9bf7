"""Waiting for the end of a job: `?wait=` and `job.result()`.

A job that ends on this server is heard of at once. One that ends on another is found by a look at all the jobs that
are waited for here, ten times a second: one statement, however many wait.
A job that an application has committed, and that the relay has not stored yet (relay.py), is waited for a little too.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from uuid import UUID

from windlass.db import Database
from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.errors import NotFound, Unavailable, WindlassError
from windlass.job import FINAL_STATES
from windlass.queue import history, outbox
from windlass.queue.history import Job

LOOK_S = 0.1
SILENT_S = 10.0
RELAY_LOOK_S = 0.05
RELAYED_S = 2.0
"""By then the relay of a server has stored what an application committed."""

logger = logging.getLogger("windlass")


class Waits:
    """Who waits for which job."""

    def __init__(self, db: Database, wake: Wake, *, outside: Outside) -> None:
        self._db = db
        self._outside = outside
        self._waiting: dict[UUID, set[asyncio.Future[None]]] = {}
        self._somebody = asyncio.Event()
        self._over = False
        wake.on_ended.append(self._ended)

    async def wait_ended(self, job_id: UUID, *, tenant: str, wait_s: float) -> Job:
        """Return the job when it has ended, or as it is after `wait_s`; NotFound if there is none."""
        until_s = self._outside.monotonic() + wait_s
        job = await self._stored(job_id, tenant, wait_s)
        wait_s = until_s - self._outside.monotonic()
        if wait_s <= 0 or self._over or job.state in FINAL_STATES:
            return job
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(ended)
        self._somebody.set()
        try:
            # Registered first, then looked again: an end in between is not missed.
            job = await history.get(self._db, job_id, tenant=tenant)
            if job.state in FINAL_STATES:
                return job
            await asyncio.wait([ended], timeout=wait_s)
        finally:
            waiting = self._waiting.get(job_id, set())
            waiting.discard(ended)
            if not waiting:
                self._waiting.pop(job_id, None)
        return await history.get(self._db, job_id, tenant=tenant)

    async def _stored(self, job_id: UUID, tenant: str, wait_s: float) -> Job:
        """Return the job as soon as it is stored; NotFound if nobody asked for it, Unavailable if that takes long."""
        with suppress(NotFound):
            return await history.get(self._db, job_id, tenant=tenant)
        until_s = self._outside.monotonic() + max(wait_s, RELAYED_S)
        while await outbox.is_waiting(self._db, job_id, tenant=tenant):
            if self._over or self._outside.monotonic() >= until_s:
                raise Unavailable(f"Job {job_id} waits in the outbox and is not stored yet. Try again.")
            await self._outside.pause(RELAY_LOOK_S)
        return await history.get(self._db, job_id, tenant=tenant)

    async def run(self) -> None:
        """Look for the ends that this server did not see, until cancelled."""
        while True:
            await self._somebody.wait()
            await self._outside.pause(LOOK_S)
            if not self._waiting:
                self._somebody.clear()
                continue
            try:
                waited = list(self._waiting)
                async with asyncio.timeout(SILENT_S):
                    live = await history.live(self._db, waited)
            except (WindlassError, TimeoutError) as error:
                logger.debug("Looking for jobs that ended failed: %s", error)
                continue
            for job_id in waited:
                if job_id not in live:
                    self._ended(job_id)

    def answer_all(self) -> None:
        """Let everybody go who waits, now and from now on: the server stops."""
        self._over = True
        for job_id in list(self._waiting):
            self._ended(job_id)

    def _ended(self, job_id: UUID) -> None:
        for waiting in self._waiting.pop(job_id, ()):
            if not waiting.done():
                waiting.set_result(None)
