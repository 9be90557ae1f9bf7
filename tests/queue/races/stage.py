"""Where races are played: two servers on one database, a clock that stands still, workers and jobs on demand.

On PostgreSQL the servers are two databases opened on one URL. A SQLite file has one server, so both are the same one
there, used by two tasks; its writer takes them one after the other.
Each scene has a queue and workers of its own, so that many can be played in one database.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from tests.clock import TestClock
from tests.kept import Kept, check_at_once, check_kept
from tests.queue.races.pausing import Pausing
from tests.sqltext import parse
from windlass.db import Database, Row, Statements
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import claim as claims
from windlass.queue import history, rescue, workers
from windlass.queue.claim import Claimed, Group, Want
from windlass.queue.lanes import LaneName, Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Fail, Release, Snooze
from windlass.queue.submit import submit

LEASE_MS = 30_000
NO_SILENCE = 1e6
"""The part of a lease for which the servers may be silent, where a test does not mean their silence."""
PATIENCE_S = 20
"""Nothing here takes nearly as long; past it a race hangs."""

# Only those who wait until a test goes on: all whom they wait for are idle or wait too. Other waits end by themselves.
WAITING = """
SELECT count(*) FROM pg_stat_activity w
 WHERE w.datname = current_database() AND w.backend_type = 'client backend' AND w.wait_event_type = 'Lock'
   AND pg_blocking_pids(w.pid) <> '{}'
   AND NOT EXISTS (SELECT 1 FROM pg_stat_activity b WHERE b.pid = ANY(pg_blocking_pids(w.pid))
                      AND b.state NOT LIKE 'idle%' AND b.wait_event_type IS DISTINCT FROM 'Lock')
"""

KILL = """
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'
"""

OPEN = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
   AND xact_start IS NOT NULL
"""

LOOK = parse(
    """
-- name: queue
-- The row of a job in queue.
-- both
SELECT * FROM queue WHERE id = :id
-- name: timer
-- The row of a job in timer.
-- both
SELECT * FROM timer WHERE id = :id
-- name: job
-- The row of a live job.
-- both
SELECT * FROM job WHERE id = :id
-- name: attempts
-- What the ended attempts of a job left.
-- both
SELECT * FROM attempts WHERE job_id = :id ORDER BY fence
-- name: session
-- The row of a session.
-- both
SELECT * FROM session WHERE id = :id
""",
    origin="stage.py",
)


def no_jitter() -> float:
    """Return the chance that adds nothing."""
    return 0.0


@dataclass(frozen=True)
class Scene:
    """A queue of its own with one worker; `leases` is what the worker holds, `ids` all jobs made."""

    queue: str
    worker: str
    session: UUID
    ids: list[UUID] = field(default_factory=list)
    leases: list[Claimed] = field(default_factory=list)

    @property
    def lease(self) -> Claimed:
        """The one lease."""
        [lease] = self.leases
        return lease

    @property
    def id(self) -> UUID:
        """The one job."""
        [job_id] = self.ids
        return job_id

    def complete(self, **fields: Any) -> Complete:
        """Return the report that the one lease succeeded."""
        return Complete(**self._named(fields))

    def fail(self, **fields: Any) -> Fail:
        """Return the report that the one lease failed."""
        return Fail(**self._named(fields))

    def release(self, **fields: Any) -> Release:
        """Return the report that gives the one lease back."""
        return Release(**self._named(fields))

    def snooze(self, **fields: Any) -> Snooze:
        """Return the report that puts the one lease off."""
        return Snooze(**self._named({"delay_ms": 60_000} | fields))

    def _named(self, fields: dict[str, Any]) -> dict[str, Any]:
        lease = self.lease
        return {"job_id": lease.id, "fence": lease.fence, "worker": self.worker, "session": self.session} | fields


class Stage:
    """Two servers, a clock, and the means to make scenes and look at what became of them."""

    def __init__(
        self,
        clock: TestClock,
        servers: Sequence[Database],
        *,
        kept: Kept | None,
    ) -> None:
        self.clock = clock
        self.servers = servers
        self.ids = Ids(clock)
        self.lanes = Lanes()
        self._kept = kept
        self._numbers = itertools.count(1)

    @property
    def db(self) -> Database:
        """The first server, for what is not part of the race."""
        return self.servers[0]

    @property
    def many(self) -> bool:
        """Whether there are really several servers."""
        return self._kept is not None

    async def scene(self, jobs: int = 1, **fields: Any) -> Scene:
        """Return a new queue with `jobs` ready jobs and a worker that holds nothing."""
        number = next(self._numbers)
        scene = Scene(f"queue-{number}", f"worker-{number}", await self.worker(f"worker-{number}"))
        return Scene(scene.queue, scene.worker, scene.session, await self.submit(scene.queue, jobs, **fields))

    async def leased(self, jobs: int = 1, *, started: bool = False, **fields: Any) -> Scene:
        """Return a new queue whose worker holds all its `jobs`, and has told their start if so wished."""
        scene = await self.scene(jobs, **fields)
        leases = await self.claim(self.db, scene.queue, scene.session, jobs)
        assert len(leases) == jobs
        if started:
            held = [workers.Held(lease.id, lease.fence, started=True) for lease in leases]
            await workers.heartbeat(self.db, [workers.Beat(scene.session, held)])
        return Scene(scene.queue, scene.worker, scene.session, scene.ids, leases)

    async def worker(self, name: str, *, tenant: str = "default") -> UUID:
        """Register a worker and return its session."""
        session = uuid4()
        await workers.register(
            self.db, workers.NewSession(id=session, worker=name, tenant=tenant, lease_ms=LEASE_MS, capacity=1000)
        )
        return session

    def job(self, queue: str, **fields: Any) -> NewJob:
        """Return a job to submit."""
        values: dict[str, Any] = {"id": self.ids.new(), "task": "task", "queue": queue} | fields
        return NewJob(**values)

    async def submit(self, queue: str, jobs: int = 1, **fields: Any) -> list[UUID]:
        """Store jobs and return their ids."""
        if not jobs:
            return []
        made = [self.job(queue, **fields) for _ in range(jobs)]
        return [answer.id for answer in await submit(self.db, self.lanes, made)]

    async def lanes_of(self, queue: str, count: int) -> None:
        """Give a queue so many lanes, all without jobs but the first: a claim reads one lane otherwise than several."""
        names = [LaneName("default", queue, "task"), LaneName("default", queue, "other")]
        await self.lanes.resolve(self.db, names[:count])

    async def claim(
        self, db: Statements, queue: str, session: UUID, count: int = 1, *, hint: int = claims.OPEN_HINT
    ) -> list[Claimed]:
        """Claim from all lanes of a queue; the lanes are looked up on the first server."""
        lanes = await self.lanes.serving(self.db, "default", [queue], tasks=None, labels=[])
        return await claims.claim(db, [Group([Want(lane.id, hint=hint) for lane in lanes], [session] * count)])

    async def claim_bare(self, queue: str, count: int = 1) -> list[Claimed]:
        """Claim for a caller that keeps no session."""
        lanes = await self.lanes.serving(self.db, "default", [queue], tasks=None, labels=[])
        wants = [Want(lane.id) for lane in lanes]
        return await workers.claim_bare(
            self.db,
            self.ids,
            lambda db, sessions: claims.claim(db, [Group(wants, sessions)]),
            count=count,
            worker="bare",
            tenant="default",
            lease_ms=LEASE_MS,
        )

    async def get(self, job_id: UUID) -> history.Job:
        """Return a job as it is now."""
        return await history.get(self.db, job_id, tenant="default")

    async def state(self, job_id: UUID) -> State:
        """Return the state of a job."""
        return (await self.get(job_id)).state

    async def bytes_of(self, job_id: UUID) -> dict[str, list[dict[str, Any]]]:
        """Return every row that a job has, to be compared with what it is later."""
        looks = ("queue", "timer", "job", "attempts")
        return {name: [dict(row) for row in await self.db.fetch(LOOK[name], id=job_id)] for name in looks}

    async def session_row(self, session: UUID) -> Row:
        """Return the row of a session."""
        [row] = await self.db.fetch(LOOK["session"], id=session)
        return row

    async def lapse(self) -> None:
        """Let the leases of all workers run out, while rescue has been awake all the time."""
        await self.db.fetch(rescue.SQL.beat_pulse, tolerance=NO_SILENCE)
        self.clock.advance(LEASE_MS / 1000 + 1)

    async def rescue(self, db: Statements) -> rescue.Rescued:
        """Run the rescue, which takes no silence of its own for a gap."""
        return await rescue.rescue(db, chance=no_jitter, tolerance=NO_SILENCE)

    async def sound(self) -> None:
        """Fail unless every invariant holds."""
        assert [] == (await check_kept(self._kept, self.clock.now()) if self._kept else await check_at_once(self.db))

    def kill_open(self) -> None:
        """End every connection that has a transaction open."""
        assert self._kept is not None
        self._kept.rows(KILL)

    async def until_none_open(self) -> None:
        """Return when no connection has a transaction open: PostgreSQL rolls back after its client has gone."""
        async with asyncio.timeout(PATIENCE_S):
            while self._kept is not None and await self._count(self._kept, OPEN):
                pass

    async def waiting(self) -> int:
        """Return how many connections wait for one that is held at a mark, on PostgreSQL."""
        assert self._kept is not None
        return await self._count(self._kept, WAITING)

    async def _count(self, kept: Kept, query: str) -> int:
        await asyncio.sleep(0)  # the others must get as far
        [row] = kept.rows(query)
        return int(row["count"])

    async def until_waiting(self, count: int) -> None:
        """Return when so many connections wait for one that is held at a mark, on PostgreSQL."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.waiting() < count:
                pass

    async def until_parked(self, task: asyncio.Task[Any], holder: Pausing, asker: Pausing) -> bool:
        """Return when `task`, which uses `asker`, is done or waits for what `holder` has; whether it waits."""
        async with asyncio.timeout(PATIENCE_S):
            while not task.done():
                if self.many:
                    if await self.waiting():
                        return True
                elif holder.inside and asker.entering:
                    return True
                await asyncio.sleep(0)
        return False
