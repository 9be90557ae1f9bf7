"""Jobs as workers see them: claim, heartbeat, and how an attempt ended.

The literal `status` words of these answers are fixed, whatever vocabulary is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from windlass.job import State
from windlass.wire.base import MAX_WAIT_S, Body, Count, Duration, Fence, Instant, Name, Reason, Span, Started, Text
from windlass.wire.tasks import MOST_TASKS, Signature
from windlass.wire.trail import LogChunk, Note, Refused

MOST_HELD = 10_000
"""Jobs that one heartbeat names."""
MOST_BARE = 100
"""Jobs that a caller without session names in one heartbeat: each of them has a session of its own to renew."""
NULL = Raw(b"null")
"""Where a worker reads any JSON or null: `Raw | None` would take nothing but null."""
Lease = Annotated[float, Meta(ge=1, le=86_400)]
Names = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=1000)]
Labels = Annotated[tuple[Name, ...], Meta(max_length=32)]
NumberOrText = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | Text
Metrics = Annotated[dict[Annotated[str, Meta(min_length=1, max_length=200)], NumberOrText], Meta(max_length=32)]


FailedOutcome = Literal["failed", "timed_out", "cancelled", "canceled", "FAILED", "TIMED_OUT", "CANCELLED", "CANCELED"]
"""How an attempt ended without success, in each spelling that is taken."""


class Inner(msgspec.Struct, frozen=True, gc=False):
    """An object in a capability: it may hold anything, and is not looked into."""


_Part = bool | NumberOrText | Inner | None
_Parts = Annotated[tuple[_Part | Annotated[tuple[_Part, ...], Meta(max_length=32)], ...], Meta(max_length=32)]
Capability = _Part | _Parts
"""The value of one capability: any JSON, of lists 32 items and two levels."""
Capable = Annotated[dict[Annotated[str, Meta(min_length=1, max_length=200)], Capability], Meta(max_length=32)]


class Capabilities(Body, frozen=True, kw_only=True):
    """What a worker can run. Further fields are labels: `"gpu": true` is `gpu`, `"region": "eu"` is `region=eu`."""

    extras: ClassVar[str | None] = "others"

    tasks: Annotated[tuple[Name, ...], Meta(max_length=MOST_TASKS)] | None = None
    """Null: every task."""
    labels: Labels | Capable = ()
    others: Capable = msgspec.field(default_factory=dict)


class ClaimRequest(Body, frozen=True, kw_only=True):
    """A worker asks for jobs."""

    worker_id: Annotated[Name, Meta(examples=["worker-1"])]
    session: UUID | None = None
    """Of its registration; without one each job has a session of its own."""
    count: Annotated[int, Meta(ge=1, le=1000)] = 10
    queues: Names = ("default",)
    capabilities: Capabilities | None = None
    tasks: Annotated[tuple[Name, ...], Meta(max_length=MOST_TASKS)] | None = None
    labels: Labels = ()
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_S)] = 0.0
    lease_seconds: Lease | None = None
    """Of a caller without session."""


class ClaimedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its lease."""

    id: UUID
    task: str
    definition_id: UUID | None
    schedule_id: UUID | None
    run_id: str
    attempt: int
    max_attempts: int
    fence: int
    session: UUID
    priority: int
    scheduled_at: datetime
    max_execution_time: int | None
    """Seconds; null: no limit."""
    lease_seconds: float
    payload: Raw
    checkpoint: Raw = msgspec.field(default_factory=lambda: NULL)
    """What an attempt before left, to go on from; null: none did."""
    headers: Raw
    tags: Raw
    tenant: str
    queue: str
    labels: list[str]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs for a worker, and those of its own that it is to stop."""

    jobs: list[ClaimedJob]
    cancel: list[UUID]


class LeaseBody(Body, frozen=True, kw_only=True):
    """What every report about a lease names."""

    expected: ClassVar[tuple[str, ...]] = ("fence",)

    worker_id: Annotated[Name, Meta(examples=["worker-1"])]
    fence: Fence | UnsetType = UNSET
    """Required, unless the server is told to do without (`api.allow_unfenced`)."""
    session: UUID | None = None


class JobBeatRequest(Body, frozen=True, kw_only=True):
    """A worker is alive and has this job."""

    worker_id: Annotated[Name, Meta(examples=["worker-1"])]
    fence: Fence | None = None
    session: UUID | None = None
    started: Started = False
    progress: Raw | UnsetType = UNSET
    """How far it is, in any form; shown with the job."""
    checkpoint: Raw | UnsetType = UNSET
    """From where a later attempt may go on: the next claim of the job brings it."""


class JobBeat(msgspec.Struct, frozen=True, kw_only=True):
    """The lease goes on. Cancel: stop the job, and confirm with a fail of outcome `cancelled`."""

    status: Literal["ok"] = "ok"
    cancel: bool
    lease_seconds: float
    drain: bool
    refused: list[Refused] = []
    """Notes that were not kept."""


class CompleteRequest(LeaseBody, frozen=True, kw_only=True):
    """The task has succeeded. Further fields are taken as metrics."""

    extras: ClassVar[str | None] = "metrics"

    result: Raw | UnsetType = UNSET
    metrics: Metrics | None = None
    duration_seconds: Duration | None = None


class FailRequest(LeaseBody, frozen=True, kw_only=True):
    """The task has failed, timed out, or was stopped."""

    aliases: ClassVar[Mapping[str, str]] = {"error": "error_message"}

    error_message: Text = ""
    error_type: Annotated[str, Meta(max_length=200)] | None = None
    traceback: Text | None = None
    retryable: bool = True
    outcome: FailedOutcome = "failed"
    metrics: Metrics | None = None
    duration_seconds: Duration | None = None


class ReleaseRequest(LeaseBody, frozen=True, kw_only=True):
    """The worker gives the job back; with an error it is a failed attempt."""

    aliases: ClassVar[Mapping[str, str]] = {"error": "error_message"}

    reason: Reason | None = None
    error_message: Text | None = None
    started: bool = False
    checkpoint: Raw | UnsetType = UNSET
    """From where the next attempt goes on: its claim brings it."""
    duration_seconds: Duration | None = None


class SnoozeRequest(LeaseBody, frozen=True, kw_only=True):
    """The task wants to be run again later: after a delay, or at a time."""

    either: ClassVar[tuple[str, ...]] = ("delay", "until")

    delay: Span | None = None
    until: Instant | None = None
    reason: Reason | None = None
    checkpoint: Raw | UnsetType = UNSET
    """From where the next attempt goes on: its claim brings it."""
    duration_seconds: Duration | None = None


class Completed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result is recorded."""

    status: Literal["completed"]
    already_applied: bool = False


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the attempt is recorded; what becomes of the job."""

    status: Literal["failed", "released", "snoozed"]
    state: State
    next_run_at: datetime | None
    already_applied: bool = False


class _Entry(Body, frozen=True, kw_only=True, tag_field="kind"):
    """One report of a list; its session is that of the list where it names none."""

    expected: ClassVar[tuple[str, ...]] = ("fence",)

    job_id: UUID
    fence: Fence | UnsetType = UNSET
    session: UUID | None = None


class CompleteEntry(_Entry, frozen=True, kw_only=True, tag="complete"):
    """The task has succeeded."""

    result: Raw | UnsetType = UNSET
    metrics: Metrics | None = None
    duration_seconds: Duration | None = None


class FailEntry(_Entry, frozen=True, kw_only=True, tag="fail"):
    """The task has failed, timed out, or was stopped."""

    aliases: ClassVar[Mapping[str, str]] = {"error": "error_message"}

    error_message: Text = ""
    error_type: Annotated[str, Meta(max_length=200)] | None = None
    traceback: Text | None = None
    retryable: bool = True
    outcome: FailedOutcome = "failed"
    metrics: Metrics | None = None
    duration_seconds: Duration | None = None


class ReleaseEntry(_Entry, frozen=True, kw_only=True, tag="release"):
    """The worker gives the job back."""

    aliases: ClassVar[Mapping[str, str]] = {"error": "error_message"}

    reason: Reason | None = None
    error_message: Text | None = None
    started: bool = False
    checkpoint: Raw | UnsetType = UNSET
    """From where the next attempt goes on: its claim brings it."""
    duration_seconds: Duration | None = None


class SnoozeEntry(_Entry, frozen=True, kw_only=True, tag="snooze"):
    """The task wants to be run again later: after a delay, or at a time."""

    either: ClassVar[tuple[str, ...]] = ("delay", "until")

    delay: Span | None = None
    until: Instant | None = None
    reason: Reason | None = None
    checkpoint: Raw | UnsetType = UNSET
    """From where the next attempt goes on: its claim brings it."""
    duration_seconds: Duration | None = None


Entry = CompleteEntry | FailEntry | ReleaseEntry | SnoozeEntry


class NextClaim(Body, frozen=True, kw_only=True):
    """Jobs that a worker wants with the answer to its reports, if there are any at once."""

    count: Annotated[int, Meta(ge=1, le=1000)] = 10
    queues: Names = ("default",)
    tasks: Annotated[tuple[Name, ...], Meta(max_length=MOST_TASKS)] | None = None
    labels: Labels = ()


class ReportRequest(Body, frozen=True, kw_only=True):
    """How attempts ended, one entry each; what running ones have to say; and what the worker wants next."""

    bound: ClassVar[Mapping[str, Any]] = {
        "not": {"required": ["claim"], "properties": {"claim": {"type": "object"}, "session": {"type": "null"}}}
    }

    worker_id: Annotated[Name, Meta(examples=["worker-1"])]
    reports: Annotated[tuple[Entry, ...], Meta(max_length=1000)] = ()
    session: UUID | None = None
    logs: Annotated[tuple[LogChunk, ...], Meta(max_length=1000)] = ()
    """Kept before the reports are."""
    notes: Annotated[tuple[Note, ...], Meta(max_length=1000)] = ()
    claim: NextClaim | None = None
    """Only of a worker with a session. The reports stand, whatever becomes of the claim."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one report."""

    job_id: UUID
    status: Literal["applied", "already", "stale", "unknown"]
    state: State | None
    next_run_at: datetime | None


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each report, in order; and jobs, where some were asked for."""

    answers: list[Answer]
    jobs: list[ClaimedJob] = []
    cancel: list[UUID] = []
    refused: list[Refused] = []
    """Notes and lines that were not kept."""


class RegisterRequest(Body, frozen=True, kw_only=True):
    """A worker starts."""

    aliases: ClassVar[Mapping[str, str]] = {"capacity": "max_threads", "dead_after_seconds": "lease_seconds"}

    worker_id: Annotated[Name, Meta(examples=["worker-1"])]
    session: UUID | None = None
    """Random and fresh at each start; without one it is made here, and the worker may name it or keep none."""
    lease_seconds: Lease | None = None
    max_threads: Count = 1
    host: Name | None = None
    pid: Count | None = None
    version: Name | None = None
    build: Name | None = None
    region: Name | None = None
    tasks: Annotated[tuple[Name, ...], Meta(max_length=MOST_TASKS)] = ()
    signatures: Annotated[dict[Name, Signature], Meta(max_length=MOST_TASKS)] = msgspec.field(default_factory=dict)
    """What tasks take: submits of these are checked against it, for a day."""
    labels: Labels = ()
    queues: Annotated[tuple[Name, ...], Meta(max_length=300)] = ()


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The worker is known: keep it alive with heartbeats. Who names the session in every call holds its jobs by it."""

    status: Literal["registered"] = "registered"
    worker_id: str
    session: UUID
    start_id: UUID
    """Of this start, as the list of workers shows it."""
    lease_seconds: float
    heartbeat_seconds: float


class HeldJob(Body, frozen=True, kw_only=True):
    """A lease that a worker names."""

    job_id: UUID
    fence: Fence
    started: Started = False
    progress: Raw | UnsetType = UNSET
    """How far it is, in any form; shown with the job."""


class BeatRequest(Body, frozen=True, kw_only=True):
    """A worker is alive; with a session, this is everything it holds."""

    bound: ClassVar[Mapping[str, Any]] = {
        "not": {
            "required": ["held"],
            "properties": {"held": {"type": "array", "minItems": MOST_BARE + 1}, "session": {"type": "null"}},
        }
    }

    worker_id: Annotated[Name, Meta(examples=["worker-1"])]
    session: UUID | None = None
    busy_threads: Count | None = None
    held: Annotated[tuple[HeldJob, ...], Meta(max_length=MOST_HELD)] | None = None
    """Null: it does not say; nothing is given back. Without session, 100 at most."""
    completed: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """Attempts since the last heartbeat. Null: it does not count, the server does."""
    failed: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    draining: bool = False
    """It finishes what it holds and claims no more; with a session."""
    current_page_id: UUID | None = None
    timestamp: Instant | None = None
    """Its clock, for the skew that is shown."""
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_S)] = 0.0
    """Of one with a session: it is renewed at once, and answered when there is something to tell, or after so long."""


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker must know: jobs to stop, jobs that are no longer its own, whether to finish and claim no more."""

    status: Literal["ok"] = "ok"
    cancel: list[UUID]
    lost: list[UUID]
    released: list[UUID]
    drain: bool
    refused: list[Refused] = []
    """Progress that was not kept."""
