"""The model: what people and duties do to jobs: cancel, pause, change, promote, expire, retry, purge, sweep.

Errors are answered as their class's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.queue.model_leases import Leases, milliseconds
from tests.queue.model_rows import TEXT, End, Job, Key, Pause, Queue, as_attempt
from windlass.clock import EPOCH
from windlass.job import Outcome, Reason, State
from windlass.queue.lanes import LaneName

CANCEL_PATIENCE_MS = 10_000
"""Added to the grace before a lease is revoked."""


class Control(Leases):
    """What is done to jobs besides running them."""

    def make_lanes(self, lanes: Sequence[LaneName]) -> None:
        """Tenants, queues and lanes come into being when first named."""
        for lane in lanes:
            self.tenants.add(lane.tenant)
            self.queues.setdefault(lane.of_queue, Queue())
            self.lanes |= {lane, lane.of_queue}

    def find_job(self, job_id: UUID, tenant: str) -> Job | None:
        """The job, if it is the tenant's."""
        job = self.jobs.get(job_id)
        return job if job is not None and job.lane.tenant == tenant else None

    def note(self, job: Job, kind: str, reason: str | None) -> None:
        """Remember what no column tells."""
        self.events.append((job.id, self.now, kind, reason))

    def cancel(self, ids: Sequence[UUID], tenant: str, reason: str | None, grace_ms: int) -> list[Any]:
        """A waiting job is cancelled at once; a leased one is told to stop, and has so long."""
        answers: dict[UUID, Any] = {}
        for job_id in dict.fromkeys(ids):
            job = self.find_job(job_id, tenant)
            if job is None:
                answers[job_id] = "NotFound"
            elif job.state in (State.CANCELLING, State.CANCELLED):
                answers[job_id] = (job_id, job.state, True)
            elif not job.live:
                answers[job_id] = "JobFinished"
            elif job.where == "leased":
                job.cancel = True
                job.deadline_at = self.now + timedelta(milliseconds=grace_ms + CANCEL_PATIENCE_MS)
                self.note(job, "cancel_requested", reason)
                answers[job_id] = (job_id, State.CANCELLING, False)
            else:
                self.note(job, "cancel_requested", reason)
                self.finish(job, End(Outcome.CANCELLED, self.now, reason=reason))
                answers[job_id] = (job_id, State.CANCELLED, False)
        return [answers[job_id] for job_id in ids]

    def pause_job(self, job_id: UUID, tenant: str, reason: str | None, until: datetime | None) -> Any:
        """A paused job is not claimed; one that runs goes on."""
        job = self.find_job(job_id, tenant)
        if job is None or not job.live:
            return _gone(job)
        if not job.paused:
            job.paused = True
            job.where = "held" if job.where == "ready" else job.where
            self.note(job, "paused", reason)
        self._keep_pause(("job", tenant, str(job_id)), reason, until)
        return job.state

    def resume_job(self, job_id: UUID, tenant: str, reason: str | None) -> Any:
        """A resumed job stands where it stood."""
        job = self.find_job(job_id, tenant)
        if job is None or not job.live:
            return _gone(job)
        if job.paused:
            job.paused = False
            job.where = "ready" if job.where == "held" else job.where
            self.note(job, "resumed", reason)
        self.pauses.pop(("job", tenant, str(job_id)), None)
        return job.state

    def pause_queue(self, queue: LaneName, reason: str | None, until: datetime | None) -> None:
        """A paused queue hands out nothing, also from lanes made later."""
        self.make_lanes([queue.of_queue])
        self._keep_pause(("queue", queue.tenant, queue.queue), reason, until)

    def resume_queue(self, queue: LaneName) -> bool:
        """Answers whether it was paused."""
        return self.pauses.pop(("queue", queue.tenant, queue.queue), None) is not None

    def pause_tenant(self, tenant: str, reason: str | None, until: datetime | None) -> Any:
        """A paused tenant's queues hand out nothing."""
        if tenant not in self.tenants:
            return "NotFound"
        self._keep_pause(("tenant", tenant, ""), reason, until)
        return None

    def resume_tenant(self, tenant: str) -> bool:
        """Answers whether it was paused; queues paused by themselves stay so."""
        return self.pauses.pop(("tenant", tenant, ""), None) is not None

    def _keep_pause(self, name: tuple[str, str, str], reason: str | None, until: datetime | None) -> None:
        first = self.pauses.get(name)
        self.pauses[name] = Pause(first.paused_at if first else self.now, until, reason)

    def resume_due(self) -> int:
        """Pauses whose end has come are over."""
        over = [name for name, pause in self.pauses.items() if pause.resume_at and pause.resume_at <= self.now]
        for kind, tenant, name in over:
            if kind == "job":
                self.resume_job(UUID(name), tenant, "The pause is over.")
            self.pauses.pop((kind, tenant, name), None)
        return len(over)

    def change(
        self, job_id: UUID, tenant: str, priority: int | None, queue: str | None, run_at: datetime | None
    ) -> Any:
        """A waiting job gets another priority, queue or due time; a retry keeps its own due time."""
        job = self.find_job(job_id, tenant)
        if job is None or not job.live:
            return _gone(job)
        if job.where == "leased":
            return "Conflict"
        # What is ready goes on waiting since it became so, as far as its rank tells.
        waited = self._ready_since(job)
        if queue is not None:
            lane = job.lane
            job.lane = LaneName(tenant, queue, lane.task, lane.labels, lane.key)
            self.make_lanes([job.lane])
        job.priority = job.priority if priority is None else priority
        # A time in the past means now.
        due_at = max(run_at, self.now) if run_at else job.due_at or waited
        job.run_at = run_at or job.run_at
        job.preferred = False
        if due_at > self.now:
            job.reason = job.reason if job.where == "timer" else Reason.SCHEDULED
            job.where, job.due_at, job.rank, job.queued_at = "timer", due_at, None, None
        else:
            self._to_queue(job, due_at, queued_at=job.queued_at or self.now)
        self.note(job, "changed", None)
        return job.state

    def _ready_since(self, job: Job) -> datetime:
        queue = self.queues[job.lane.of_queue]
        if queue.fifo or job.rank is None:
            return min(max(job.run_at, job.created_at), self.now)
        ready_ms = max(job.rank + job.priority * queue.credit_ms, milliseconds(job.created_at))
        return EPOCH + timedelta(milliseconds=min(ready_ms, milliseconds(self.now)))

    def _to_queue(self, job: Job, due_at: datetime, *, queued_at: datetime) -> None:
        job.where, job.queued_at = "held" if job.paused else "ready", queued_at
        job.rank = self.rank(job, due_at)
        job.due_at = job.reason = None
        job.preferred = False

    def promote(self, limit: int) -> list[Any]:
        """Due timers become ready, the earliest first; paused ones are held."""
        due = sorted(
            (job.due_at, job.id) for job in self.jobs.values() if job.due_at is not None and job.due_at <= self.now
        )
        promoted = []
        for due_at, job_id in due[:limit]:
            job = self.jobs[job_id]
            self._to_queue(job, due_at, queued_at=due_at)
            promoted.append((job.id, job.lane, job.rank, 3 if job.paused else 0))
        return sorted(promoted)

    def expire(self) -> list[UUID]:
        """A waiting job not started by its start deadline ends."""
        late = [
            job
            for job in self.jobs.values()
            if job.where in ("ready", "held") and job.must_start_by is not None and job.must_start_by <= self.now
        ]
        for job in late:
            self.finish(job, End(Outcome.EXPIRED, self.now, reason=TEXT))
        return sorted(job.id for job in late)

    def retry(self, ids: Sequence[UUID], tenant: str, payload: str | None) -> list[Any]:
        """A dead, cancelled or expired job runs again under its id: new attempts, the same fence."""
        answers: dict[UUID, Any] = {}
        # Of several with one unique key the first lives: dead ones before others, then by id.
        order = {i: (self.jobs[i].where != "dead" if i in self.jobs else True, i) for i in ids}
        for job_id in sorted(order, key=lambda i: order[i]):
            job = self.find_job(job_id, tenant)
            if job is None or job.live or job.state is State.SUCCEEDED:
                answers[job_id] = "NotFound" if job is None else "Conflict"
                continue
            scope = (f"{tenant}/unique", job.unique_key or "")
            if job.unique_key is not None:
                if self.holder(scope) is not None:
                    answers[job_id] = "UniqueTaken"
                    continue
                self.keys[scope] = Key(job.id, None)
            self.attempts.append(as_attempt(job))
            job.end, job.held, job.start_by = None, False, None
            job.payload = job.payload if payload is None else payload
            job.run += 1
            job.run_at = min(job.run_at, self.now)
            job.attempt = job.lost = job.releases = 0
            self._to_queue(job, self.now, queued_at=self.now)
            self.note(job, "retried", None)
            # What paused it is over with the run it paused.
            self.pauses.pop(("job", tenant, str(job_id)), None)
            answers[job_id] = (job.id, job.lane, job.rank)
        return [answers[job_id] for job_id in ids]

    def holder(self, name: tuple[str, str]) -> Key | None:
        """Who has a key now."""
        key = self.keys.get(name)
        return key if key is not None and (key.expires_at is None or key.expires_at > self.now) else None

    def purge(self, ids: Sequence[UUID], tenant: str) -> list[UUID]:
        """Dead jobs are removed for good, with their attempts and events."""
        gone = [i for i in set(ids) if (job := self.find_job(i, tenant)) is not None and job.where == "dead"]
        for job_id in gone:
            del self.jobs[job_id]
        self.attempts = [attempt for attempt in self.attempts if attempt.job_id not in gone]
        self.events = [event for event in self.events if event[0] not in gone]
        return sorted(gone)

    def sweep(self, days: int, dead_days: int) -> dict[str, int]:
        """Old history goes, and what has served its time."""
        since, dead_since = self.now - timedelta(days=days), self.now - timedelta(days=dead_days)
        done = [j.id for j in self.jobs.values() if j.where == "done" and j.end and j.end.finished_at < since]
        dead = [j.id for j in self.jobs.values() if j.where == "dead" and j.end and j.end.finished_at < dead_since]
        for job_id in done + dead if dead_days else done:
            del self.jobs[job_id]
        self.attempts = [a for a in self.attempts if a.end.finished_at >= since]
        self.events = [event for event in self.events if event[1] >= since]
        keys = [n for n, k in self.keys.items() if k.expires_at is not None and k.expires_at <= self.now]
        pauses = [n for n in self.pauses if n[0] == "job" and not self._is_live(UUID(n[2]))]
        for key in keys:
            del self.keys[key]
        for pause in pauses:
            del self.pauses[pause]
        # Nothing of the model rolls up minutes, keeps a record of acts, or is erased.
        counts = {"expire_keys": len(keys), "forget_pauses": len(pauses), "forget_stats": 0, "forget_audit": 0}
        counts |= dict.fromkeys(("forget_checkpoints", "forget_tasks", "forget_backfills"), 0)
        counts |= dict.fromkeys(("forget_erased", "forget_names"), 0)
        return counts | ({"forget_dead": len(dead)} if dead_days else {})

    def _is_live(self, job_id: UUID) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.live


def _gone(job: Job | None) -> str:
    return "NotFound" if job is None else "JobFinished"
