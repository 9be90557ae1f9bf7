"""A real store that takes the model's commands: the steps of `queue/` on SQLite or PostgreSQL.

Every command answers in the model's shape: lanes by name instead of number, errors by the name of their class.
`dump` shows the tables and views, in the model's shape too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from tests.kept import check_at_once
from tests.queue.model import Ask
from tests.queue.model_rows import Dump, plain
from windlass.clock import system_clock
from windlass.db import Database
from windlass.errors import NotFound, WindlassError
from windlass.ids import Ids
from windlass.job import Flag, State
from windlass.queue import claim as claims
from windlass.queue import control, deadletters, deadlines, history, limits, rescue, retention, timers, workers
from windlass.queue.check import Violation
from windlass.queue.claim import Claimed, Group, Want
from windlass.queue.lanes import LaneName, Lanes, configure
from windlass.queue.moves import Moved
from windlass.queue.newjob import NewJob
from windlass.queue.report import Report, report
from windlass.queue.submit import Submitted, submit_requests
from windlass.queue.workers import Beat, NewSession

_LANE = "l.tenant, l.queue, l.task, l.labels, l.key"
DUMP = {
    "jobs": "SELECT * FROM jobs",
    # On PostgreSQL a job goes with its span, later than its end.
    "job": """SELECT j.id FROM job j WHERE EXISTS (SELECT 1 FROM queue q WHERE q.id = j.id)
                  OR EXISTS (SELECT 1 FROM timer t WHERE t.id = j.id) OR EXISTS (SELECT 1 FROM done d WHERE d.id = j.id)
                  OR EXISTS (SELECT 1 FROM dead d WHERE d.id = j.id)""",
    "queue": f"SELECT id, rank, place, queued_at, start_by, flags & {~Flag.LIMITED} AS flags FROM queue",
    "timer": "SELECT id, due_at, reason, flags FROM timer",
    "attempts": f"""SELECT a.job_id, a.run, a.attempt, a.fence, a.outcome, a.result, a.metrics, a.error_type, a.error,
                    a.traceback, a.reason, a.worker, a.session, a.queued_at, a.claimed_at, a.started_at, a.finished_at,
                    a.next_run_at, {_LANE} FROM attempts a JOIN lane l ON l.id = a.lane""",
    "session": "SELECT * FROM session",
    "dedup": "SELECT scope, key, job_id, expires_at FROM dedup",
    "pause": "SELECT kind, tenant, name, reason, paused_at, resume_at FROM pause",
    "event": "SELECT job_id, happened_at, kind, reason FROM event",
    "lane": f"""SELECT {_LANE}, l.paused, CASE WHEN l.limited > 0 THEN 1 ELSE 0 END AS limited, l.credit_ms, l.fifo,
                       l.max_running, l.rate_per_s, l.burst, l.tat_at FROM lane l""",
    "pulse": "SELECT beat_at FROM pulse",
    "tenant": "SELECT name FROM tenant",
}
TIMELINE = "SELECT job_id, happened_at, kind, worker, actor, detail FROM job_events"
SHOWN = "SELECT session, status, held_jobs, busy_threads, available_threads FROM workers"
BESIDE = {"timeline": TIMELINE, "workers": SHOWN}
"""Views that are compared between the two databases only."""


class GivenIds(Ids):
    """Hands out ids that the test has chosen, the same to every store."""

    def __init__(self, ids: Iterable[UUID]) -> None:
        super().__init__(system_clock)
        self._given = iter(ids)

    def new(self) -> UUID:
        """Return the next of them."""
        return next(self._given)


class Store:
    """One database, driven by the model's commands."""

    def __init__(self, name: str, db: Database, reader: sqlite3.Connection | asyncpg.Connection[Any]) -> None:
        self.name = name
        self.db = db
        self.lanes = Lanes()
        self.reader = reader
        self._names: dict[int, LaneName] = {}

    async def run(self, command: str, arguments: Sequence[Any]) -> Any:
        """Run a command and return its answer; an error is answered by the name of its class."""
        try:
            return await getattr(self, command)(*arguments)
        except WindlassError as error:
            return type(error).__name__

    async def dump(self) -> Dump:
        """Return everything the database shows."""
        tables = DUMP | BESIDE
        if isinstance(self.reader, sqlite3.Connection):
            cursors = {name: self.reader.execute(text) for name, text in tables.items()}
            found = {
                name: [dict(zip([c[0] for c in cursor.description], row, strict=True)) for row in cursor.fetchall()]
                for name, cursor in cursors.items()
            }
        else:
            found = {name: [dict(row) for row in await self.reader.fetch(text)] for name, text in tables.items()}
        dumped: Dump = plain(found)
        return dumped

    async def violations(self) -> list[Violation]:
        """Return what the operator's check finds."""
        async with self.db.transaction() as transaction:
            return await check_at_once(transaction)

    async def _name(self, lane: int) -> LaneName:
        if lane not in self._names:
            text = f"SELECT l.id, {_LANE} FROM lane l"
            rows = (
                self.reader.execute(text).fetchall()
                if isinstance(self.reader, sqlite3.Connection)
                else await self.reader.fetch(text)
            )
            self._names = {row[0]: LaneName(*row[1:]) for row in rows}
        return self._names[lane]

    async def submit(self, requests: Sequence[Sequence[NewJob]]) -> list[Any]:
        """Store several requests in one transaction."""
        answers = await submit_requests(self.db, self.lanes, requests)
        return [
            type(answer).__name__ if isinstance(answer, WindlassError) else [_submitted(job) for job in answer]
            for answer in answers
        ]

    async def register(self, session: UUID, worker: str, tenant: str, lease_ms: int, capacity: int) -> None:
        """Open a session."""
        new = NewSession(id=session, worker=worker, tenant=tenant, lease_ms=lease_ms, capacity=capacity)
        await workers.register(self.db, new)

    async def close(self, session: UUID, tenant: str, reason: str) -> int:
        """End a session."""
        return len(await workers.close(self.db, session, tenant=tenant, reason=reason))

    async def drain(self, tenant: str, worker: str) -> int:
        """Ask sessions to leave."""
        return len(await workers.drain(self.db, tenant=tenant, worker=worker))

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Any]:
        """Renew sessions."""
        answers = await workers.heartbeat(self.db, beats)
        return [(a.alive, a.cancel, a.lost, a.released, a.draining) for a in answers]

    async def _wants(self, ask: Ask) -> list[Want]:
        lanes = await self.lanes.serving(self.db, ask.tenant, ask.queues, tasks=ask.tasks, labels=ask.labels)
        hint = claims.OPEN_HINT if ask.hint is None else ask.hint
        return [Want(lane.id, hint) for lane in lanes]

    async def _claimed(self, jobs: Sequence[Claimed]) -> list[Any]:
        return [
            (
                job.id,
                await self._name(job.lane),
                *(job.rank, job.attempt, job.fence, job.session, job.task, job.payload, job.priority, job.timeout_s),
                *(job.max_attempts, job.run, job.scheduled_at, job.created_at, job.claimed_at),
            )
            for job in jobs
        ]

    async def claim(self, asks: Sequence[Ask]) -> list[Any]:
        """Claim for several groups at once."""
        groups = [Group(await self._wants(ask), ask.slots) for ask in asks]
        return await self._claimed(await claims.claim(self.db, groups))

    async def claim_bare(self, ask: Ask, worker: str, lease_ms: int) -> list[Any]:
        """Claim for a caller without a session."""
        wants = await self._wants(ask)
        jobs = await workers.claim_bare(
            self.db,
            GivenIds(ask.slots),
            lambda db, sessions: claims.claim(db, [Group(wants, sessions)]),
            count=len(ask.slots),
            worker=worker,
            tenant=ask.tenant,
            lease_ms=lease_ms,
        )
        return await self._claimed(jobs)

    async def claim_limited(self, ask: Ask) -> list[Any]:
        """Claim from a limited queue."""
        lanes = [want.lane for want in await self._wants(ask)]
        own = LaneName(ask.tenant, ask.queues[0])
        number = (await self.lanes.resolve(self.db, [own]))[own].id
        return await self._claimed((await limits.claim_limited(self.db, number, lanes, ask.slots)).jobs)

    async def claim_back(self, leases: Sequence[tuple[UUID, int]], session: UUID, tenant: str) -> list[Any]:
        """Claim kept retries."""
        return await self._claimed(await claims.claim_back(self.db, leases, session=session, tenant=tenant))

    async def report(self, reports: Sequence[Report], chance: float) -> list[Any]:
        """Report ends of attempts."""
        answers = await report(self.db, reports, chance=lambda: chance)
        return [(a.status, a.state, a.next_run_at, a.prefer_same_worker) for a in answers]

    async def rescue(self, chance: float, tolerance: float) -> Any:
        """Rescue jobs of dead sessions."""
        rescued = await rescue.rescue(self.db, chance=lambda: chance, tolerance=tolerance)
        return (sorted(rescued.sessions), _moved(rescued.moved))

    async def end_overdue(self, chance: float) -> list[Any]:
        """End leases past their deadline."""
        return _moved(await deadlines.end_overdue(self.db, chance=lambda: chance))

    async def expire(self) -> list[UUID]:
        """Expire what was not started in time."""
        return sorted(await deadlines.expire(self.db))

    async def promote(self, limit: int) -> list[Any]:
        """Promote due timers."""
        promoted = await timers.promote(self.db, limit=limit)
        return sorted([(p.id, await self._name(p.lane), p.rank, p.place) for p in promoted])

    async def cancel(self, ids: Sequence[UUID], tenant: str, reason: str | None, grace_ms: int) -> list[Any]:
        """Cancel jobs."""
        answers = await control.cancel(self.db, ids, tenant=tenant, actor=_actor(reason), grace_ms=grace_ms)
        return [type(a).__name__ if isinstance(a, WindlassError) else (a.id, a.state, a.already) for a in answers]

    async def pause_job(self, job_id: UUID, tenant: str, reason: str | None, until: datetime | None) -> State:
        """Pause a job."""
        return await control.pause_job(self.db, job_id, tenant=tenant, actor=_actor(reason), until=until)

    async def resume_job(self, job_id: UUID, tenant: str, reason: str | None) -> State:
        """Resume a job."""
        return await control.resume_job(self.db, job_id, tenant=tenant, actor=_actor(reason))

    async def pause_queue(self, queue: LaneName, reason: str | None, until: datetime | None) -> None:
        """Pause a queue."""
        await control.pause_queue(self.db, self.lanes, queue, actor=_actor(reason), until=until)

    async def resume_queue(self, queue: LaneName) -> bool:
        """Resume a queue."""
        return await control.resume_queue(self.db, queue)

    async def pause_tenant(self, tenant: str, reason: str | None, until: datetime | None) -> None:
        """Pause a tenant."""
        await control.pause_tenant(self.db, tenant, actor=_actor(reason), until=until)

    async def resume_tenant(self, tenant: str) -> bool:
        """Resume a tenant."""
        return await control.resume_tenant(self.db, tenant)

    async def resume_due(self) -> int:
        """End pauses whose end has come."""
        return await control.resume_due(self.db)

    async def change(
        self, job_id: UUID, tenant: str, priority: int | None, queue: str | None, run_at: datetime | None
    ) -> State:
        """Change a waiting job."""
        return await control.change(
            self.db,
            self.lanes,
            job_id,
            tenant=tenant,
            actor=_actor(None),
            priority=priority,
            queue=queue,
            run_at=run_at,
        )

    async def retry(self, ids: Sequence[UUID], tenant: str, payload: str | None) -> list[Any]:
        """Retry by hand."""
        answers = await deadletters.retry(self.db, ids, tenant=tenant, actor=_actor(None), payload=payload)
        return [
            type(a).__name__ if isinstance(a, WindlassError) else (a.id, await self._name(a.lane), a.rank)
            for a in answers
        ]

    async def replay(self, job_id: UUID, tenant: str, new_id: UUID, payload: str | None) -> Any:
        """Replay as a new job."""
        ids = GivenIds([new_id])
        answer = await deadletters.replay(
            self.db, self.lanes, ids, job_id, tenant=tenant, actor=_actor(None), payload=payload
        )
        return _submitted(answer)

    async def purge(self, ids: Sequence[UUID], tenant: str) -> list[UUID]:
        """Remove dead jobs."""
        return sorted(await deadletters.purge(self.db, ids, tenant=tenant))

    async def sweep(self, days: int, dead_days: int) -> dict[str, int]:
        """Apply retention; history is counted by rows on SQLite only, jobs on PostgreSQL, so both are left out."""
        swept = await retention.sweep(self.db, days=days, dead_days=dead_days)
        return {name: n for name, n in swept.rows.items() if name not in _COUNTED_BY_ONE}

    async def configure(self, queue: LaneName, settings: dict[str, Any]) -> None:
        """Set how a queue ranks and limits."""
        await self.lanes.resolve(self.db, [queue])
        await configure(self.db, queue, **settings)

    async def find(self, tenant: str, states: frozenset[State], where: dict[str, Any], limit: int) -> list[UUID]:
        """List jobs; what is listed must be found by its id too."""
        page = await history.find(self.db, history.Filter(tenant=tenant, states=states, **where), limit=limit)
        for job in page.jobs:
            if await history.get(self.db, job.id, tenant=tenant) != job:
                raise NotFound(f"job {job.id} looks different by itself")
        return [job.id for job in page.jobs]


_COUNTED_BY_ONE = {"forget_done", "forget_attempts", "forget_events", "forget_logs", "forget_runs", "forget_jobs"}


def _actor(reason: str | None) -> control.Actor:
    return control.Actor("tester", reason)


def _submitted(job: Submitted) -> tuple[Any, ...]:
    return (job.id, job.state, job.next_run_at, job.duplicate, job.rank)


def _moved(moved: Sequence[Moved]) -> list[tuple[Any, ...]]:
    return sorted((m.move.lease.id, m.move.to, m.next_run_at) for m in moved)
