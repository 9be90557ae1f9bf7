"""The steps of the queue as tests take them: one job, one worker, one call at a time, defaults filled in.

ann = await steps.worker("ann")
lease = await steps.lease(ann, priority=3)      # submitted and claimed
await steps.complete(lease)
assert State.SUCCEEDED is await steps.state_of(lease.id)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.clock import TestClock
from windlass.db import Database, Query
from windlass.errors import JobFinished, NotFound
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import history, looks, rescue, timers
from windlass.queue.claim import Claimed, Group, Want, claim
from windlass.queue.control import Actor, Cancelled, cancel, pause_job
from windlass.queue.deadlines import expire
from windlass.queue.lanes import Lane, LaneName, Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.report import Answer, Complete, Fail, Release, Report, Snooze, report
from windlass.queue.submit import Submitted, submit
from windlass.queue.workers import Beat, BeatAnswer, Held, NewSession, heartbeat, register

ANN = Actor("ann", "she said so")
TABLES = "attempt dead dedup done event job lane pause pulse queue session tenant timer".split()
LANE_COLUMNS = (
    "id AS number, tenant, queue, task, labels, key, paused, limited, credit_ms, fifo, max_running, rate_per_s, burst, "
    "tat_at"
)
LEASE_S = 30
NO_ZONE = datetime(2026, 1, 1)  # noqa: DTZ001 - to be refused

WAITING = ["scheduled", "queued", "held", "held timer", "retry", "snoozed", "released"]
LEASED = ["assigned", "running"]
FINISHED = ["succeeded", "dead", "expired"]
"""Where `job_in` can bring a job."""


@dataclass(frozen=True)
class Worker:
    """A worker process: its name, its session and its tenant."""

    name: str
    session: UUID
    tenant: str = "default"


async def at_once() -> None:
    """Give no way: what a test computes is small."""


class Steps:
    """What a test does to the queue. Chance is always 0: waits have no jitter."""

    def __init__(self, db: Database, clock: TestClock) -> None:
        self.db = db
        self.clock = clock
        self.ids = Ids(clock)
        self.lanes = Lanes()
        self._workers: dict[UUID, Worker] = {}

    def job(self, task: str = "mail", **fields: Any) -> NewJob:
        """Return a job to submit, with an id above all before it."""
        return NewJob(id=self.ids.new(), task=task, **fields)

    async def submit(self, *jobs: NewJob) -> list[Submitted]:
        """Submit jobs in one request."""
        return await submit(self.db, self.lanes, jobs)

    async def submit_one(self, task: str = "mail", **fields: Any) -> UUID:
        """Submit one job and return the id it was answered with."""
        [answer] = await self.submit(self.job(task, **fields))
        return answer.id

    async def worker(self, name: str = "ann", *, lease_s: int = LEASE_S, **fields: Any) -> Worker:
        """Register a worker and return it with its session."""
        worker = Worker(name, self.ids.new(), fields.get("tenant", "default"))
        self._workers[worker.session] = worker
        await register(self.db, NewSession(id=worker.session, worker=name, lease_ms=lease_s * 1000, **fields))
        return worker

    async def serving(
        self, *, queue: str = "default", tenant: str = "default", tasks: Iterable[str] | None = None, labels: str = ""
    ) -> list[Lane]:
        """Return the lanes of a queue that a worker with these tasks and labels can run."""
        return await self.lanes.serving(self.db, tenant, [queue], tasks=tasks, labels=labels.split())

    async def claim(self, worker: Worker, count: int = 1, **routes: Any) -> list[Claimed]:
        """Claim up to `count` jobs for a worker; routes as in `serving`."""
        lanes = await self.serving(**routes)
        return await claim(self.db, [Group([Want(lane.id) for lane in lanes], [worker.session] * count)])

    async def claim_one(self, worker: Worker, **routes: Any) -> Claimed:
        """Claim the job that comes next; there must be one."""
        [lease] = await self.claim(worker, **routes)
        return lease

    async def lease(self, worker: Worker, task: str = "mail", **fields: Any) -> Claimed:
        """Submit a job and claim it."""
        job_id = await self.submit_one(task, **fields)
        lease = await self.claim_one(
            worker, tasks=[task], queue=fields.get("queue", "default"), tenant=fields.get("tenant", "default")
        )
        assert job_id == lease.id
        return lease

    async def running(self, worker: Worker, task: str = "mail", **fields: Any) -> Claimed:
        """Submit a job, claim it and tell that it has started."""
        lease = await self.lease(worker, task, **fields)
        await self.beat(worker, lease, started=True)
        return lease

    async def beat(self, worker: Worker, *held: Claimed, started: bool = False, ran_ms: int = 0) -> BeatAnswer:
        """Send a heartbeat that names these leases and no others."""
        named = [Held(lease.id, lease.fence, started, ran_ms) for lease in held]
        [answer] = await heartbeat(self.db, [Beat(worker.session, named, tenant=worker.tenant)])
        return answer

    async def report(self, *reports: Report) -> list[Answer]:
        """Report how attempts ended."""
        return await report(self.db, reports, chance=lambda: 0.0)

    async def complete(self, lease: Claimed, **fields: Any) -> Answer:
        """Report a success, as the worker that holds the lease."""
        [answer] = await self.report(Complete(**self.named(lease), **fields))
        return answer

    async def fail(self, lease: Claimed, error: str = "boom", **fields: Any) -> Answer:
        """Report a failure, as the worker that holds the lease."""
        [answer] = await self.report(Fail(**self.named(lease), error=error, **fields))
        return answer

    async def snooze(self, lease: Claimed, seconds: float, **fields: Any) -> Answer:
        """Put a job off, as the worker that holds the lease."""
        [answer] = await self.report(Snooze(**self.named(lease), delay_ms=round(seconds * 1000), **fields))
        return answer

    async def release(self, lease: Claimed, **fields: Any) -> Answer:
        """Give a job back, as the worker that holds the lease."""
        [answer] = await self.report(Release(**self.named(lease), **fields))
        return answer

    def named(self, lease: Claimed) -> dict[str, Any]:
        """Return what every report of a lease names."""
        worker = self._workers[lease.session]
        return {
            "job_id": lease.id,
            "fence": lease.fence,
            "worker": worker.name,
            "session": lease.session,
            "tenant": worker.tenant,
        }

    async def cancel(self, job_id: UUID, tenant: str = "default") -> Cancelled | JobFinished | NotFound:
        """Cancel one job."""
        [answer] = await cancel(self.db, [job_id], tenant=tenant, actor=ANN)
        return answer

    async def advance(self, seconds: float = 0, **spans: float) -> datetime:
        """Move the clock and promote what has become due."""
        now = self.clock.advance(seconds, **spans)
        await timers.promote(self.db)
        return now

    async def rescue(self, after_s: float = 0, *, step_s: float = 5) -> rescue.Rescued:
        """Let rescue run, awake without a gap, until `after_s` seconds have passed; return what all runs did."""
        sessions, moved = [], []
        until = self.clock.now() + timedelta(seconds=after_s)
        while True:
            run = await rescue.rescue(self.db, chance=lambda: 0.0)
            sessions += run.sessions
            moved += run.moved
            left_s = (until - self.clock.now()).total_seconds()
            if left_s <= 0:
                return rescue.Rescued(sessions, moved)
            self.clock.advance(min(step_s, left_s))

    async def left_s(self, duty: str) -> float | None:
        """Return in how many seconds a duty has something to do; None: never."""
        return (await looks.look(self.db)).left_s(duty)

    async def lose(self, lease: Claimed) -> None:
        """Let the worker of a lease fall silent until rescue has ended the lease."""
        run = await self.rescue(LEASE_S + 1)
        while lease.id not in {moved.move.lease.id for moved in run.moved}:
            run = await self.rescue(LEASE_S + 1)

    async def get(self, job_id: UUID, tenant: str = "default") -> history.Job:
        """Return the job."""
        return await history.get(self.db, job_id, tenant=tenant)

    async def state_of(self, job_id: UUID) -> State:
        """Return the state of a job."""
        return (await self.get(job_id)).state

    async def attempts(self, job_id: UUID) -> list[history.Attempt]:
        """Return the ended attempts of a job."""
        return (await history.attempts(self.db, job_id, tenant="default")).items

    async def kinds(self, job_id: UUID) -> list[str]:
        """Return what happened to a job, in order."""
        return [event.kind for event in (await history.timeline(self.db, job_id, tenant="default")).items]

    async def dump(self, tables: Sequence[str] = TABLES) -> dict[str, list[str]]:
        """Return every row of every table, as text."""
        found = {}
        for table in tables:
            # Ids are UUIDs but for those of lanes.
            columns = "*" if table != "lane" else LANE_COLUMNS
            text = f"SELECT {columns} FROM {table}"
            rows = await self.db.fetch(Query(table, "All rows.", text, text))
            found[table] = sorted(repr(sorted(dict(row).items())) for row in rows)
        return found

    async def own_row(self, queue: str = "default", tenant: str = "default") -> int:
        """Return the number of a queue's own row, made if need be."""
        name = LaneName(tenant, queue)
        return (await self.lanes.resolve(self.db, [name]))[name].id


async def job_in(steps: Steps, where: str, **fields: Any) -> UUID:
    """Bring a new job into a state and return its id."""
    worker = await steps.worker()
    if where in ("scheduled", "held timer"):
        job_id = await steps.submit_one(delay_ms=5000, **fields)
    elif where == "expired":
        job_id = await steps.submit_one(start_by=steps.clock.now(), **fields)
        await expire(steps.db)
    elif where in ("queued", "held"):
        job_id = await steps.submit_one(**fields)
    else:
        lease = await steps.lease(worker, **fields)
        job_id = lease.id
        if where == "retry":
            await steps.fail(lease)
        elif where == "snoozed":
            await steps.snooze(lease, 5)
        elif where == "released":
            await steps.release(lease)
        elif where == "running":
            await steps.beat(worker, lease, started=True)
        elif where == "succeeded":
            await steps.complete(lease)
        elif where == "dead":
            await steps.fail(lease, retryable=False)
    if where.startswith("held"):
        await pause_job(steps.db, job_id, tenant="default", actor=ANN)
    return job_id
