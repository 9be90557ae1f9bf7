"""What people see and do besides jobs: dead letters, workers, queues, duties, tenants, keys, the audit."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from windlass.wire.base import (
    MAX_INT,
    MAX_PAGE,
    AnyJson,
    Because,
    Instant,
    Name,
    NamePages,
    Pages,
    PauseRequest,
    Query,
)

ScopeName = Literal["submit", "work", "read", "operate", "admin"]
RoleName = Literal["admin", "producer", "reader", "worker"]
Ids = Annotated[tuple[UUID, ...], Meta(min_length=1, max_length=1000)]


class DeadQuery(Pages, frozen=True, kw_only=True):
    """Which dead letters to list."""

    queue: Name | None = None
    task: Name | None = None


class DeadRequest(Because, frozen=True, kw_only=True):
    """Which dead letters: these, or the newest of a queue or task, a thousand at most."""

    exclusive: ClassVar[tuple[tuple[str, str], ...]] = (("ids", "queue"), ("ids", "task"))

    ids: Ids | None = None
    queue: Name | None = None
    task: Name | None = None


class DeadRetryRequest(DeadRequest, frozen=True, kw_only=True):
    """Which dead letters to run again, and with what."""

    payload: Raw | UnsetType = UNSET


class DeadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one dead letter."""

    id: UUID
    status: Literal["retried", "purged", "conflict", "not_found"]
    detail: str | None = None


class DeadAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each dead letter."""

    count: int
    """How many it was done to."""
    jobs: list[DeadAnswer]


class TenantRequest(Because, frozen=True, kw_only=True):
    """A tenant to make."""

    name: Annotated[Name, Meta(examples=["acme"])]


class TenantChange(PauseRequest, frozen=True, kw_only=True):
    """What is to be otherwise of a tenant: whether its jobs are handed out. Its name never changes."""

    paused: bool


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing is handed out."""

    of: Literal["queue", "tenant", "schedule"]
    reason: str | None
    actor: str | None
    paused_at: datetime
    until: datetime | None


class TenantDelete(Query, frozen=True, kw_only=True):
    """How to delete a tenant."""

    erase: bool = False
    """Remove it with everything it has; else it is removed only if it has nothing left."""


class Erasing(msgspec.Struct, frozen=True, kw_only=True):
    """How far the erasure of a tenant is. Ask again until it is done; the servers go on with it in any case."""

    began_at: datetime
    removed: dict[str, int]
    """How many jobs, schedules and other rows are gone."""
    waits: bool = False
    """It waits for transactions that began before it, also for readers of a SQLite file."""


class ErasedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job without content."""

    id: UUID
    erased_at: datetime
    waits: bool = False
    """Its bytes are still in SQLite's log, for somebody reads from before; the server goes on with it."""


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant; one that is paused is handed nothing out."""

    name: str
    created_at: datetime
    paused: bool
    pause: Pause | None
    erasing: Erasing | None = None
    """Nothing can be added to a tenant that is being erased."""


class TenantList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tenants by name."""

    tenants: list[Tenant]
    next_cursor: str | None


class KeyRequest(Because, frozen=True, kw_only=True):
    """A key to make: with these scopes and those of the role; a reader's where neither is given."""

    name: Annotated[Name, Meta(examples=["mailer"])]
    scopes: Annotated[tuple[ScopeName, ...], Meta(min_length=1, max_length=5)] | None = None
    role: RoleName | None = None
    tenant: Name | None = None
    """Only from who is above tenants: whose key it is; null for one above tenants."""
    queues: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=100)] | None = None
    expires_at: Instant | None = None


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key: all but its secret."""

    id: str
    name: str
    tenant: str | None
    scopes: list[str]
    queues: list[str] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKey(Key, frozen=True, kw_only=True):
    """A key with its secret, which is shown this once."""

    token: str


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of keys by id."""

    keys: list[Key]
    next_cursor: str | None


class AuditQuery(Query, frozen=True, kw_only=True):
    """Which entries of the audit to list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    cursor: UUID | None = None
    action: Name | None = None
    subject: Name | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody did by hand."""

    id: UUID
    happened_at: datetime
    tenant: str | None
    actor: str | None
    address: str | None
    request_id: str | None
    action: str
    subject: str
    reason: str | None
    was: AnyJson
    became: AnyJson


class AuditList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the audit, newest first."""

    entries: list[AuditEntry]
    next_cursor: UUID | None


class Duty(msgspec.Struct, frozen=True, kw_only=True):
    """A chore of the servers, and who does it."""

    name: str
    held_by: str | None
    held_for_seconds: float | None
    heartbeat_age_seconds: float
    progress_age_seconds: float | None
    term: int
    last_run_at: datetime | None
    items: int
    errors: int
    duration_ms: int | None


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server heard within a day."""

    id: UUID
    name: str
    version: str
    address: str | None
    live: bool
    started_at: datetime
    heartbeat_at: datetime


class DutyList(msgspec.Struct, frozen=True, kw_only=True):
    """The duties by name, and the servers they are spread over."""

    duties: list[Duty]
    servers: list[Server]


class WorkersQuery(NamePages, frozen=True, kw_only=True):
    """Which workers to list."""

    status: Literal["starting", "idle", "active", "busy", "draining", "dead", "stopped"] | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, as its newest start is."""

    id: str
    worker_id: str
    start_id: UUID
    """Of its newest start; another at each."""
    status: str
    last_heartbeat_at: datetime
    expires_at: datetime
    started_at: datetime
    ended_at: datetime | None
    lease_seconds: float
    total_threads: int
    busy_threads: int
    available_threads: int
    current_jobs: list[UUID]
    jobs_completed: int
    jobs_failed: int
    host: str | None
    pid: int | None
    version: str | None
    build: str | None
    region: str | None
    labels: list[str]
    tasks: list[str]
    queues: list[str]
    skew_ms: int | None


class WorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of workers by name."""

    workers: list[Worker]
    next_cursor: str | None


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a worker is, in the words of item workers."""

    id: str
    status: str
    last_heartbeat: datetime
    current_page: UUID | None
    pages_completed: int
    pages_failed: int


class WorkerStatuses(msgspec.Struct, frozen=True, kw_only=True):
    """How the workers are."""

    workers: list[WorkerStatus]


class Draining(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was told to finish and claim no more."""

    worker_id: str
    status: Literal["draining"] = "draining"
    sessions: int


class CloseQuery(Query, frozen=True, kw_only=True):
    """Which session of a worker to end."""

    session: UUID | None = None
    """Required of a key that has only the scope `work`."""
    lost: bool = False
    """Its process died: what it had begun counts as lost, instead of going back without an attempt used."""


class QueueRequest(Because, frozen=True, kw_only=True):
    """The settings of a queue; what is left out is the default, not what it was."""

    order: Literal["priority", "fifo"] = "priority"
    max_running: Annotated[int, Meta(ge=0, le=MAX_INT)] | None = None
    rate_per_second: Annotated[float, Meta(ge=1e-6, le=1e6)] | None = None
    burst: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    priority_credit_seconds: Annotated[float, Meta(ge=0, le=1_000_000_000)] | None = None
    """What one level of priority is worth in waiting time; null: priority comes first, always."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: its settings, and how much waits and runs in it."""

    name: str
    paused: bool
    pause: Pause | None
    order: str
    max_running: int | None
    rate_per_second: float | None
    burst: int | None
    priority_credit_seconds: float | None
    pending: int
    held: int
    in_progress: int
    scheduled: int
    blocked: int
    sleeping: int
    dead: int
    counts_are_exact: bool
    oldest_queued_seconds: float | None


class QueueList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of queues by name."""

    queues: list[Queue]
    next_cursor: str | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What waits, runs and ended, and how many workers there are."""

    pending: int
    """Due and claimable now."""
    in_progress: int
    completed_24h: int
    failed_24h: int
    """Jobs gone dead."""
    active_workers: int
    average_wait_seconds: float
    scheduled: int
    blocked: int
    sleeping: int
    dead_letter_jobs: int
    pending_is_estimate: bool
    others_are_estimates: bool


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers there should be, and why."""

    desired_workers: int
    active_workers: int
    pending: int
    in_progress: int
    queue_depth_per_worker: float
    policy: str
