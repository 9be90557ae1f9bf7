"""Traffic: tasks that submit, claim and report on one open database while faults go on beside them.

Each call is said again until it is answered, as a client does, under the same idempotency key. Only Unavailable, with
its kinds, may come in between; any other error ends the test. What was acknowledged is kept, to be looked for later.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar
from uuid import UUID

from tests.queue.races.stage import no_jitter
from windlass.db import Database
from windlass.errors import Unavailable
from windlass.ids import Ids
from windlass.queue import workers
from windlass.queue.claim import Claimed, Group, Want, claim
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Status, report
from windlass.queue.submit import submit

T = TypeVar("T")

PATIENCE_S = 60
"""Nothing here takes nearly as long; past it something hangs."""
SUBMITTERS = [f"submitter-{number}" for number in range(3)]
WORKERS = [f"worker-{number}" for number in range(3)]
NAMES = [*SUBMITTERS, *WORKERS]


class Traffic:
    """What the tasks have done, and been told, so far."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.submitted: set[UUID] = set()
        self.reported: list[tuple[Complete, Status]] = []
        self.answered: Counter[str] = Counter()
        """How many calls of each task came to a good end."""
        self.failed: Counter[str] = Counter()
        """How many did not."""
        self._ids = Ids(db.now)
        self._lanes = Lanes()
        self._changed = asyncio.Condition()
        self._stopping = False

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Let the tasks run for a block; each ends what it has begun."""
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for name in SUBMITTERS:
                group.create_task(self._submit(name))
            for name in WORKERS:
                group.create_task(self._work(name))
            yield
            self._stopping = True

    async def more(self, counter: Counter[str], count: int = 1, *, names: Sequence[str] = NAMES) -> None:
        """Wait until each of the tasks has counted so many more."""
        wanted = {name: counter[name] + count for name in names}
        async with self._changed:
            await self._changed.wait_for(lambda: all(counter[name] >= wanted[name] for name in names))

    async def _until_answered(self, name: str, call: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """Say a call again until it is answered; return the answer, and how often it failed before."""
        failures = 0
        while True:
            try:
                answer = await call()
            except Unavailable:
                failures += 1
                await self._count(self.failed, name)
            else:
                await self._count(self.answered, name)
                return answer, failures

    async def _count(self, counter: Counter[str], name: str) -> None:
        async with self._changed:
            counter[name] += 1
            self._changed.notify_all()

    async def _submit(self, name: str) -> None:
        while not self._stopping:
            key = str(self._ids.new())

            async def once(key: str = key) -> UUID:
                # As by a server: the same key, but an id of its own each time.
                job = NewJob(id=self._ids.new(), task="task", idempotency_key=key)
                [told] = await submit(self.db, self._lanes, [job])
                return told.id

            job_id, _ = await self._until_answered(name, once)
            self.submitted.add(job_id)

    async def _work(self, name: str) -> None:
        session = workers.NewSession(id=self._ids.new(), worker=name, capacity=1000)
        await self._until_answered(name, lambda: workers.register(self.db, session))
        while not self._stopping:
            # A claim is not said again as the same one: what it may have got is for heartbeats to repair.
            leases, _ = await self._until_answered(name, lambda: self._claim(session.id))
            for lease in leases:
                said = Complete(job_id=lease.id, fence=lease.fence, worker=name, session=session.id)
                call = partial(report, self.db, [said], chance=no_jitter)
                [told], failures = await self._until_answered(name, call)
                assert told.status in ((Status.APPLIED, Status.ALREADY) if failures else (Status.APPLIED,))
                self.reported.append((said, told.status))

    async def _claim(self, session: UUID) -> list[Claimed]:
        lanes = await self._lanes.serving(self.db, "default", ["default"], tasks=None, labels=[])
        return await claim(self.db, [Group([Want(lane.id) for lane in lanes], [session] * 3)])
