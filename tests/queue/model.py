"""A model of the queue in plain Python: what every command must answer and leave behind.

Written from the specification, not from the steps; no SQL, no database, one thing at a time.
A command is a method of the same name and arguments on the model and on a real store (`model_store.py`).
The other halves: `model_rows.py` what it remembers, `model_leases.py` how leases end, `model_control.py` the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from tests.queue.model_control import Control
from tests.queue.model_leases import UNLISTED
from tests.queue.model_rows import Job, Key, Session, SessionState
from windlass.job import Reason, State
from windlass.queue.lanes import LaneName
from windlass.queue.newjob import NewJob
from windlass.queue.workers import Beat

TIMEOUT_GRACE_MS = 30_000


class Ask(NamedTuple):
    """A group of a claim: workers of one capability that wait at some queues of a tenant."""

    tenant: str
    queues: tuple[str, ...]
    slots: tuple[UUID, ...]
    tasks: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()
    hint: int | None = None


class Model(Control):
    """The queue, from submit to history."""

    def submit(self, requests: Sequence[Sequence[NewJob]]) -> list[Any]:
        """Each request is stored whole or refused, as if they had come one after the other."""
        valid = [all(_is_valid(job) for job in request) for request in requests]
        self.make_lanes([job.lane for request, ok in zip(requests, valid, strict=True) if ok for job in request])
        fresh: dict[UUID, tuple[Any, ...]] = {}
        return [
            self._submit(request, fresh) if ok else "InvalidInput" for request, ok in zip(requests, valid, strict=True)
        ]

    def _submit(self, jobs: Sequence[NewJob], fresh: dict[UUID, tuple[Any, ...]]) -> Any:
        named: dict[UUID, UUID] = {}
        taken: dict[tuple[str, str], Key] = {}
        for job in jobs:
            if job.idempotency_key is not None:
                name = (f"{job.tenant}/key", job.idempotency_key)
                key = taken.get(name) or self.holder(name)
                if key is None:
                    taken[name] = Key(job.id, self._after(job.idempotency_ms), _content(job))
                elif key.content != _content(job):
                    return "KeyReused"
                else:
                    named[job.id] = key.job_id
        for job in jobs:
            if job.unique_key is not None and job.id not in named:
                name = (f"{job.tenant}/unique", job.unique_key)
                key = taken.get(name) or self.holder(name)
                if key is None:
                    taken[name] = Key(job.id, None if job.unique_ms is None else self._after(job.unique_ms))
                    continue
                named[job.id] = key.job_id
                if job.idempotency_key is not None:
                    taken[f"{job.tenant}/key", job.idempotency_key].job_id = key.job_id
        self.keys |= taken
        fresh.update({job.id: self._store(job) for job in jobs if job.id not in named})
        winners = [named.get(job.id, job.id) for job in jobs]
        winners = [named.get(winner, winner) for winner in winners]
        return [
            fresh[job.id] if job.id == winner else self._known(winner, fresh)
            for job, winner in zip(jobs, winners, strict=True)
        ]

    def _after(self, ms: int) -> datetime:
        return self.now + timedelta(milliseconds=ms)

    def _store(self, new: NewJob) -> tuple[Any, ...]:
        asked_at = new.run_at or self._after(new.delay_ms or 0)
        limit = new.retry.max_attempts if new.retry else None
        job = self.jobs[new.id] = Job(
            id=new.id,
            lane=new.lane,
            payload=new.payload,
            priority=new.priority,
            max_attempts=limit or new.max_attempts,
            max_lost=new.max_lost,
            timeout_s=new.timeout_s,
            retry=new.retry,
            tags=new.tags,
            idempotency_key=new.idempotency_key,
            unique_key=new.unique_key if new.unique_ms is None else None,
            run_at=asked_at,
            created_at=self.now,
            start_by=new.start_by,
        )
        if asked_at > self.now:
            job.where, job.due_at, job.reason = "timer", asked_at, Reason.SCHEDULED
        else:
            job.rank, job.queued_at = self.rank(job, self.now), self.now
        return (job.id, job.state, max(asked_at, self.now), False, job.rank)

    def _known(self, job_id: UUID, fresh: dict[UUID, tuple[Any, ...]]) -> tuple[Any, ...]:
        if job_id in fresh:
            return (*fresh[job_id][:3], True, None)
        job = self.jobs.get(job_id)
        if job is None:
            return (job_id, None, None, True, None)
        return (job_id, job.state, job.next_run_at, True, None)

    def register(self, session: UUID, worker: str, tenant: str, lease_ms: int, capacity: int) -> None:
        """A session's lease runs from now."""
        self._open(session, worker, tenant, lease_ms, capacity=capacity)

    def _open(self, session: UUID, worker: str, tenant: str, lease_ms: int, **more: Any) -> None:
        expires_at = self._after(lease_ms)
        self.sessions[session] = Session(session, worker, tenant, lease_ms, self.now, self.now, expires_at, **more)

    def close(self, session: UUID, tenant: str, reason: str) -> int:
        """A worker that leaves gives everything back."""
        known = self.sessions.get(session)
        if known is None or known.tenant != tenant:
            return 0
        if known.state is SessionState.ALIVE:
            known.state, known.busy, known.ended_at = SessionState.CLOSED, 0, self.now
        held = [job for job in self.leased() if job.session == session]
        for job in held:
            self.give_back(job, reason)
        return len(held)

    def drain(self, tenant: str, worker: str) -> int:
        """The live sessions of a worker are told to leave."""
        told = [s for s in self.sessions.values() if self._alive(s.id) and (s.tenant, s.worker) == (tenant, worker)]
        for session in told:
            session.draining = True
        return len(told)

    def _alive(self, session: UUID) -> bool:
        return session in self.sessions and self.sessions[session].state is SessionState.ALIVE

    def heartbeat(self, beats: Sequence[Beat]) -> list[Any]:
        """One beat keeps all of a session's leases; what it does not name and is old goes back."""
        heard = [b for b in beats if self._alive(b.session) and self.sessions[b.session].tenant == b.tenant]
        for beat in heard:
            session = self.sessions[beat.session]
            session.heartbeat_at, session.expires_at = self.now, self._after(session.lease_ms)
            session.busy = session.busy if beat.busy is None else beat.busy
            session.draining = session.draining or beat.draining
        stopping = sorted((job for job in self.leased() if job.cancel), key=lambda job: job.id)
        return [self._beat(beat, stopping) if beat in heard else self._deaf(beat) for beat in beats]

    def _deaf(self, beat: Beat) -> tuple[Any, ...]:
        return (False, [], [held.job_id for held in beat.held or ()], [], False)

    def _beat(self, beat: Beat, stopping: Sequence[Job]) -> tuple[Any, ...]:
        cancel, lost, own = [], [], set()
        if beat.held is None:
            cancel = [job.id for job in stopping if job.session == beat.session]
        for held in beat.held or ():
            job = self.jobs.get(held.job_id)
            if job is None or job.where != "leased" or (job.fence, job.session) != (held.fence, beat.session):
                lost.append(held.job_id)
                continue
            own.add(job.id)
            if held.started and job.started_at is None:
                job.started_at = self.now
                if not job.cancel and job.timeout_s is not None:
                    job.deadline_at = self._after(job.timeout_s * 1000 + TIMEOUT_GRACE_MS)
            if job.cancel:
                cancel.append(job.id)
        released = []
        if beat.held is not None:
            mine = [job for job in self.leased() if job.session == beat.session and job.id not in own]
            for job in mine:
                if job.claimed_at is not None and job.claimed_at <= self.now - UNLISTED:
                    if job.max_lost == 1 and job.started_at is not None:
                        self.lose(job, 0)
                    else:
                        self.give_back(job, "Not held by its worker.")
                    released.append(job.id)
        return (True, cancel, lost, sorted(released), self.sessions[beat.session].draining)

    def claim(self, asks: Sequence[Ask]) -> list[Any]:
        """The best jobs of each group go to its slots in order; a slot whose session may not claim stays empty."""
        return sorted((row for ask in asks for row in self._claim(ask)), key=lambda row: (row[2], row[0]))

    def _claim(self, ask: Ask, *, limited: bool = False) -> list[tuple[Any, ...]]:
        heads: list[Job] = []
        for lane in self.serving(ask):
            if self.is_limited(lane) and not limited:
                continue
            ready = sorted((job for job in self.jobs.values() if self._claimable(job, lane, ask)), key=_order)
            heads += ready[: len(ask.slots)]
        best = zip(sorted(heads, key=_order), ask.slots, strict=False)
        return [self._lease(job, session) for job, session in best if self._may_claim(session, ask.tenant)]

    def _may_claim(self, session: UUID, tenant: str) -> bool:
        known = self.sessions.get(session)
        return known is not None and self._alive(session) and known.tenant == tenant and not known.draining

    def serving(self, ask: Ask) -> list[LaneName]:
        """The lanes of the queues that the workers can run."""
        return [
            lane
            for lane in self.lanes
            if lane.tenant == ask.tenant
            and lane.queue in ask.queues
            and lane.task
            and (ask.tasks is None or lane.task in ask.tasks)
            and set(filter(None, lane.labels.split(","))) <= set(ask.labels)
        ]

    def _claimable(self, job: Job, lane: LaneName, ask: Ask) -> bool:
        if job.lane != lane or job.where != "ready" or self.paused_bits(lane):
            return False
        if ask.hint is not None and (job.rank or 0) < ask.hint:
            return False
        return job.must_start_by is None or job.must_start_by > self.now

    def _lease(self, job: Job, session: UUID) -> tuple[Any, ...]:
        job.where, job.session, job.claimed_at = "leased", session, self.now
        job.attempt += 1
        job.fence += 1
        told = (job.lane.task, job.payload, job.priority, job.timeout_s, job.max_attempts, job.run, job.run_at)
        return (job.id, job.lane, job.rank, job.attempt, job.fence, session, *told, job.created_at, job.claimed_at)

    def claim_bare(self, ask: Ask, worker: str, lease_ms: int) -> list[Any]:
        """Each job gets a session of its own; sessions without a job are dropped."""
        for session in ask.slots:
            self._open(session, worker, ask.tenant, lease_ms, bare=True, busy=1)
        jobs = self._claim(ask)
        for session in set(ask.slots) - {row[5] for row in jobs}:
            del self.sessions[session]
        return jobs

    def claim_limited(self, ask: Ask) -> list[Any]:
        """Never more leased than the queue's limit, never faster than its rate."""
        queue = self.queues.get(LaneName(ask.tenant, ask.queues[0]))
        if queue is None:
            return []
        running = sum(job.lane.of_queue == LaneName(ask.tenant, ask.queues[0]) for job in self.leased())
        quota = len(ask.slots)
        if queue.max_running is not None:
            quota = min(quota, queue.max_running - running)
        if queue.rate_per_s is not None:
            ahead = max((queue.tat_at or self.now) - self.now, timedelta())
            spent = Fraction(ahead // timedelta(microseconds=1), 1_000_000) * Fraction(queue.rate_per_s)
            quota = min(quota, floor((queue.burst or 1) - spent))
        jobs = self._claim(ask._replace(slots=ask.slots[: max(quota, 0)]), limited=True)
        if jobs and queue.rate_per_s is not None:
            spent_ms = Fraction(len(jobs) * 1000) / Fraction(queue.rate_per_s)
            queue.tat_at = max(queue.tat_at or self.now, self.now) + timedelta(milliseconds=int(spent_ms))
        return jobs

    def claim_back(self, leases: Sequence[tuple[UUID, int]], session: UUID, tenant: str) -> list[Any]:
        """A retry that is kept for the worker that failed it goes back to that worker."""
        got = []
        for job_id, fence in sorted(set(leases)):
            job = self.jobs.get(job_id)
            failed = any((a.job_id, a.fence, a.end.session) == (job_id, fence, session) for a in self.attempts)
            if job is None or not failed or job.fence != fence or not job.preferred or job.lane.tenant != tenant:
                continue
            if not self._may_claim(session, job.lane.tenant) or self.sessions[session].bare:
                continue
            if job.paused or self.paused_bits(job.lane) or self.is_limited(job.lane):
                continue
            job.due_at = job.reason = None
            job.preferred = False
            job.rank, job.queued_at = self.rank(job, self.now), self.now
            got.append(self._lease(job, session))
        return sorted(got, key=lambda row: (row[2], row[0]))

    def is_limited(self, lane: LaneName) -> bool:
        """Whether the lane's queue counts or meters its jobs: then only a limited claim may take them."""
        queue = self.queues[lane.of_queue]
        return queue.max_running is not None or queue.rate_per_s is not None

    def configure(self, queue: LaneName, settings: dict[str, Any]) -> None:
        """How a queue ranks and limits; what is not named is as by default. Another rate begins anew."""
        self.make_lanes([queue])
        known = self.queues[queue]
        defaults = type(known)(tat_at=known.tat_at if known.rate_per_s == settings.get("rate_per_s") else None)
        self.queues[queue] = defaults
        for name, value in settings.items():
            setattr(defaults, name, value)

    def replay(self, job_id: UUID, tenant: str, new_id: UUID, payload: str | None) -> Any:
        """A finished job once more, as a new one without its keys and deadline."""
        job = self.find_job(job_id, tenant)
        if job is None:
            return "NotFound"
        if job.live:
            return "Conflict"
        again = NewJob(
            id=new_id,
            task=job.lane.task,
            payload=job.payload if payload is None else payload,
            tenant=tenant,
            queue=job.lane.queue,
            labels=tuple(filter(None, job.lane.labels.split(","))),
            priority=job.priority,
            max_attempts=job.max_attempts,
            max_lost=job.max_lost,
            timeout_s=job.timeout_s,
            retry=job.retry,
            tags=job.tags,
        )
        answer = self._store(again)
        self.note(job, "replayed", None)
        return answer

    def find(self, tenant: str, states: frozenset[State], where: dict[str, Any], limit: int) -> list[UUID]:
        """The newest jobs that match everything asked for."""
        rows = self.dump()["jobs"]
        found = [
            UUID(row["id"])
            for row in rows
            if row["tenant"] == tenant
            and (not states or row["state"] in states)
            and all(row.get(name) == value for name, value in where.items())
        ]
        return sorted(found, reverse=True)[:limit]


def _order(job: Job) -> tuple[int, UUID]:
    assert job.rank is not None
    return (job.rank, job.id)


def _content(job: NewJob) -> dict[str, Any]:
    """What a request asks for: everything but its own id and the key."""
    names = set(job.__struct_fields__) - {"id", "idempotency_key", "idempotency_ms"}
    return {name: getattr(job, name) for name in names}


def _is_valid(job: NewJob) -> bool:
    try:
        msgspec.json.decode(job.payload)
    except msgspec.DecodeError:
        return False
    return abs(job.priority) <= 127 and (job.run_at is None or job.delay_ms is None)
