"""The model's memory: plain records in dictionaries, and how they look from outside.

`dump` shows the model as the views and tables of a database would: one list of rows for each, instants in
microseconds, ids as text. TEXT stands for a text of the product's own wording, which the model does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any, Literal
from uuid import UUID

import msgspec

from tests.clock import TestClock
from windlass.clock import to_us
from windlass.job import Outcome, Reason, State
from windlass.queue.lanes import STRICT_PRIORITY_MS, LaneName
from windlass.queue.retry import RetryPolicy, policy_to_json

TEXT = "<some text>"
Where = Literal["ready", "leased", "held", "timer", "done", "dead"]
PLACES = {"ready": 0, "leased": 1, "held": 3}
Dump = dict[str, list[dict[str, Any]]]


class SessionState(IntEnum):
    """A worker session lives, has lapsed, or was closed by its worker; stored as these numbers."""

    ALIVE = 0
    DEAD = 1
    CLOSED = 2


@dataclass
class Queue:
    """How a queue ranks and limits its jobs."""

    credit_ms: int = STRICT_PRIORITY_MS
    fifo: bool = False
    max_running: int | None = None
    rate_per_s: float | None = None
    burst: int | None = None
    tat_at: datetime | None = None


@dataclass
class End:
    """How an attempt ended, or a job that had none."""

    outcome: Outcome
    finished_at: datetime
    result: str | None = None
    metrics: str | None = None
    error_type: str | None = None
    error: str | None = None
    traceback: str | None = None
    reason: str | None = None
    worker: str | None = None
    session: UUID | None = None
    queued_at: datetime | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    taken: bool = False
    """The lease was taken away before its worker had said anything; not shown."""


@dataclass
class Attempt:
    """An end that is not, or no longer, the job's own."""

    job_id: UUID
    lane: LaneName
    run: int
    attempt: int
    fence: int
    end: End
    next_run_at: datetime | None = None


@dataclass
class Job:
    """A job wherever it lies; fields that mean nothing there are None."""

    id: UUID
    lane: LaneName
    payload: str
    priority: int
    max_attempts: int
    max_lost: int
    timeout_s: int | None
    retry: RetryPolicy | None
    tags: tuple[str, ...]
    idempotency_key: str | None
    unique_key: str | None
    run_at: datetime
    created_at: datetime
    start_by: datetime | None
    run: int = 1
    where: Where = "ready"
    rank: int | None = None
    attempt: int = 0
    fence: int = 0
    lost: int = 0
    releases: int = 0
    session: UUID | None = None
    queued_at: datetime | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    deadline_at: datetime | None = None
    due_at: datetime | None = None
    reason: Reason | None = None
    paused: bool = False
    cancel: bool = False
    begun: bool = False
    """A worker has begun it in this run."""
    preferred: bool = False
    end: End | None = None
    held: bool = False

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.where not in ("done", "dead")

    @property
    def state(self) -> State:
        """The state as everybody sees it."""
        if self.where == "timer":
            return State.SCHEDULED
        if self.where == "leased":
            if self.cancel:
                return State.CANCELLING
            return State.RUNNING if self.started_at else State.ASSIGNED
        if self.where == "dead":
            return State.DEAD
        if self.where == "done":
            assert self.end is not None
            return State(self.end.outcome.name.lower())
        return State.QUEUED

    @property
    def next_run_at(self) -> datetime | None:
        """When it can run: never before it was submitted."""
        if not self.live:
            return None
        return self.due_at if self.where == "timer" else max(self.run_at, self.created_at)

    @property
    def must_start_by(self) -> datetime | None:
        """The start deadline while it still counts."""
        return None if self.begun else self.start_by

    @property
    def flags(self) -> int:
        """What its place row carries."""
        unique = self.unique_key is not None
        return self.paused + 2 * self.cancel + 4 * unique + 8 * self.begun + 16 * self.preferred


@dataclass
class Session:
    """One start of a worker."""

    id: UUID
    worker: str
    tenant: str
    lease_ms: int
    started_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    capacity: int = 1
    busy: int = 0
    bare: bool = False
    state: SessionState = SessionState.ALIVE
    draining: bool = False
    ended_at: datetime | None = None
    completed: int = 0
    failed: int = 0
    presence: int = 0


@dataclass
class Key:
    """Who has a key, until when (None: as long as the job lives), and for which content."""

    job_id: UUID
    expires_at: datetime | None
    content: Any = None


@dataclass
class Pause:
    """Who paused something, since when and until when."""

    paused_at: datetime
    resume_at: datetime | None
    reason: str | None


@dataclass
class Memory:
    """Everything the model knows."""

    clock: TestClock
    jobs: dict[UUID, Job] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    sessions: dict[UUID, Session] = field(default_factory=dict)
    keys: dict[tuple[str, str], Key] = field(default_factory=dict)
    pauses: dict[tuple[str, str, str], Pause] = field(default_factory=dict)
    events: list[tuple[UUID, datetime, str, str | None]] = field(default_factory=list)
    tenants: set[str] = field(default_factory=lambda: {"default"})
    queues: dict[LaneName, Queue] = field(default_factory=dict)
    lanes: set[LaneName] = field(default_factory=set)
    pulse: datetime | None = None

    @property
    def now(self) -> datetime:
        """The present instant."""
        return self.clock.now()

    def paused_bits(self, lane: LaneName) -> int:
        """Which pauses keep a lane closed: 1 its queue's, 2 its tenant's."""
        of_queue = ("queue", lane.tenant, lane.queue) in self.pauses
        return of_queue + 2 * (("tenant", lane.tenant, "") in self.pauses)

    def dump(self) -> Dump:
        """Return what a database in this state shows."""
        live = [job for job in self.jobs.values() if job.live]
        shown: Dump = plain(
            {
                "jobs": [self._job_row(job) for job in self.jobs.values()],
                "job": [{"id": job.id} for job in self.jobs.values()],
                "queue": [_queue_row(job) for job in live if job.where != "timer"],
                "timer": [_timer_row(job) for job in live if job.where == "timer"],
                "attempts": [_attempt_row(a) for a in self._all_attempts()],
                "session": [_session_row(session) for session in self.sessions.values()],
                "dedup": [
                    {"scope": scope, "key": key, "job_id": k.job_id, "expires_at": k.expires_at}
                    for (scope, key), k in self.keys.items()
                ],
                "pause": [
                    {"kind": kind, "tenant": tenant, "name": name, **asdict(pause)}
                    for (kind, tenant, name), pause in self.pauses.items()
                ],
                "event": [{"job_id": e[0], "happened_at": e[1], "kind": e[2], "reason": e[3]} for e in self.events],
                "lane": [self._lane_row(lane) for lane in self.lanes],
                "pulse": [{"beat_at": self.pulse}] if self.pulse else [],
                "tenant": [{"name": name} for name in self.tenants],
            }
        )
        return shown

    def _all_attempts(self) -> list[Attempt]:
        ended = [job for job in self.jobs.values() if job.end is not None and job.end.session is not None]
        return self.attempts + [as_attempt(job) for job in ended]

    def _lane_row(self, lane: LaneName) -> dict[str, Any]:
        queue = self.queues[lane.of_queue]
        limits = ("max_running", "rate_per_s", "burst", "tat_at")
        own = lane == lane.of_queue
        return {
            **_lane(lane),
            "paused": self.paused_bits(lane),
            "limited": int(queue.max_running is not None or queue.rate_per_s is not None),
            "credit_ms": queue.credit_ms,
            "fifo": queue.fifo,
            **{name: getattr(queue, name) if own else None for name in limits},
        }

    def _job_row(self, job: Job) -> dict[str, Any]:
        names = ("id", "payload", "priority", "attempt", "max_attempts", "max_lost", "timeout_s", "fence", "lost")
        more = ("releases", "run", "idempotency_key", "unique_key", "created_at", "start_by")
        row = {name: getattr(job, name) for name in names + more} | {
            "tenant": job.lane.tenant,
            "queue": job.lane.queue,
            "task": job.lane.task,
            "labels": job.lane.labels,
            "state": job.state,
            "paused": job.paused,
            "tags": msgspec.json.encode(job.tags).decode() if job.tags else None,
            "retry": policy_to_json(job.retry),
            "scheduled_at": job.run_at,
            "next_run_at": job.next_run_at,
            "held": job.held,
            "source": "submit",
            "defaults": 0,
        }
        session = self.sessions[job.session] if job.session else None
        if job.end is not None:
            end = asdict(job.end)
            del end["outcome"], end["traceback"]
            return row | end
        return row | {
            "worker": session.worker if session else None,
            "session": job.session,
            "queued_at": job.queued_at,
            "claimed_at": job.claimed_at,
            "started_at": job.started_at,
            "heartbeat_at": session.heartbeat_at if session else None,
            "lease_expires_at": session.expires_at if session else None,
            "deadline_at": job.deadline_at,
        }


def as_attempt(job: Job) -> Attempt:
    """Return the end of a finished job as the attempt it was."""
    assert job.end is not None
    return Attempt(job.id, job.lane, job.run, job.attempt, job.fence, job.end)


def _lane(lane: LaneName) -> dict[str, Any]:
    return {"tenant": lane.tenant, "queue": lane.queue, "task": lane.task, "labels": lane.labels, "key": lane.key}


def _attempt_row(attempt: Attempt) -> dict[str, Any]:
    names = ("job_id", "run", "attempt", "fence", "next_run_at")
    return {name: getattr(attempt, name) for name in names} | asdict(attempt.end) | _lane(attempt.lane)


def _queue_row(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "rank": job.rank,
        "place": PLACES[job.where],
        "queued_at": job.queued_at,
        "start_by": job.must_start_by,
        "flags": job.flags,
    }


def _timer_row(job: Job) -> dict[str, Any]:
    return {"id": job.id, "due_at": job.due_at, "reason": job.reason, "flags": job.flags}


def _session_row(session: Session) -> dict[str, Any]:
    return asdict(session)


def plain(value: Any) -> Any:
    """Return `value` as both databases can show it: ids as text, instants in microseconds."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return to_us(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value
