"""Jobs as their users see them: what is submitted, and what is shown of them.

Next: work.py has the same jobs as workers see them, attempts.py what was tried, schedules.py what makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from windlass.job import GivenOption, Source, State, WaitCode
from windlass.wire.attempts import Attempt as Attempt
from windlass.wire.attempts import AttemptList as AttemptList
from windlass.wire.attempts import AttemptPage as AttemptPage
from windlass.wire.attempts import AttemptsOfJobQuery as AttemptsOfJobQuery
from windlass.wire.attempts import AttemptsQuery as AttemptsQuery
from windlass.wire.attempts import ListedAttempt as ListedAttempt
from windlass.wire.attempts import OfJobQuery as OfJobQuery
from windlass.wire.base import (
    MAX_CANCEL_WAIT_S,
    MAX_WAIT_S,
    AnyJson,
    Because,
    Body,
    Instant,
    Key,
    Name,
    Pages,
    PositiveSpan,
    Span,
    Words,
)
from windlass.wire.trail import Left
from windlass.wire.triggers import Expression, Zone, needs
from windlass.wire.vocabulary import FILTER_NAMES

Attempts = Annotated[int, Meta(ge=1, le=1000)]
Priority = Annotated[int, Meta(ge=-127, le=127)]
Names = Annotated[tuple[Name, ...], Meta(max_length=32)]
Json = Annotated[Raw, Meta(description="Any JSON, kept byte for byte.", examples=[{"to": "ann@example.org"}])]
StateNames = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="Names of states in any vocabulary and case, separated by commas; `stale`, alone, for lost ones.",
        extra_json_schema={"enum": list(FILTER_NAMES)},
    ),
]
Timeout = Annotated[float, Meta(ge=1, le=315_360_000)]


class PolicyByError(Body, frozen=True, kw_only=True):
    """How long to wait before each further attempt after an error of one type."""

    aliases: ClassVar[Mapping[str, str]] = {"backoff": "kind"}

    kind: Literal["exponential", "linear", "fixed", "table"] = "exponential"
    base: Span = 1.0
    """After attempt n the wait is base × factor^n (exponential: 2, 4, 8 … s unless changed), base × n or base."""
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    cap: Span = 3600.0
    """The longest wait."""
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """The share of the wait that is added by chance, at most."""
    delays: Annotated[tuple[Span, ...], Meta(max_length=1000)] = ()
    """Of kind table: the waits in order; the last one repeats."""
    prefer_same_worker: bool = False
    max_attempts: Attempts | None = None
    then: Literal["dead", "hold"] = "dead"


class Policy(PolicyByError, frozen=True, kw_only=True):
    """How long to wait before each further attempt, and what comes after the last."""

    by_error: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^\\u0000]+$")], PolicyByError],
        Meta(max_length=32),
    ] = msgspec.field(default_factory=dict)


Preset = Literal["default", "immediate", "stepped"]
Delivery = Literal["at_least_once", "at_most_once"]


class JobRequest(Body, frozen=True, kw_only=True):
    """A job to submit. Options that are left out come from what workers publish of its task, else the settings."""

    aliases: ClassVar[Mapping[str, str]] = {
        "name": "task",
        "work_kind": "task",
        "scheduled_at": "run_at",
        "cron": "schedule",
    }
    exclusive: ClassVar[tuple[tuple[str, str], ...]] = (
        ("run_at", "delay"),
        ("start_deadline", "start_within"),
        ("max_attempts", "max_retries"),
        *(("schedule", other) for other in ("delay", "unique_key", "unique_for", "start_deadline", "start_within")),
    )
    bound: ClassVar[Mapping[str, Any]] = needs("schedule", "timezone", "schedule_name")

    task: Annotated[Name, Meta(examples=["send_mail"])]
    payload: Json | UnsetType = UNSET
    """What the task is to be run with."""
    tenant: Name | None = None
    queue: Name | None = None
    """`default`, unless its task has another."""
    priority: Priority | None = None
    """Higher goes first."""
    run_at: Instant | None = None
    """Not before then."""
    delay: Span | None = None
    """Not before so long from now, in seconds or as `5m`, `1h30m`."""
    timeout_seconds: Timeout | UnsetType | None = UNSET
    """Null: no limit."""
    max_attempts: Attempts | None = None
    max_retries: Annotated[int, Meta(ge=0, le=999)] | None = None
    max_lost: Attempts | None = None
    """How often its worker may vanish."""
    retry_policy: Policy | Preset | None = None
    delivery: Delivery | None = None
    """At least once, unless its task is at most once."""
    idempotency_key: Key | None = None
    """The same key again: the job made first, and no second one."""
    unique_key: Key | None = None
    """No second job with this key while the first lives, or for `unique_for`."""
    unique_for: PositiveSpan | None = None
    start_deadline: Instant | None = None
    """Not started by then, it expires."""
    start_within: PositiveSpan | None = None
    """Not started so long after the submit, it expires; in seconds or as `10m`."""
    labels: Names | UnsetType = UNSET
    """Only for workers that have all of them."""
    tags: Names | UnsetType = UNSET
    headers: dict[str, str] | None = None
    without: Annotated[tuple[GivenOption, ...], Meta(max_length=14)] = ()
    """Options that are not to come from the task where they are left out."""
    schedule: Expression | None = None
    """Cron: makes a schedule in place of a job, from `run_at` on; its id is good for the routes of jobs too."""
    timezone: Zone | None = None
    """Of the wall clock that `schedule` goes by; UTC unless it is given."""
    schedule_name: Name | None = None
    """Of the schedule; made of the task and the id, or of the idempotency key, unless it is given."""


class BatchRequest(Body, frozen=True, kw_only=True):
    """Jobs to submit, all or none."""

    jobs: Annotated[list[JobRequest], Meta(min_length=1, max_length=1000)]


class Submitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a job that was submitted."""

    id: UUID
    status: str | None
    state: State | None
    """Null: its key is remembered longer than the job itself."""
    next_run_at: datetime | None
    duplicate: bool = False
    """Its idempotency or unique key was known: this is the job made first."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each job, in order."""

    jobs: list[Submitted]


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a job waits."""

    code: WaitCode
    detail: str


class Job(Left, frozen=True, kw_only=True):
    """A job, live or finished."""

    id: UUID
    name: str
    task: str
    tenant: str
    tenant_id: str
    queue: str
    status: str
    state: State
    paused: bool
    payload: AnyJson
    headers: AnyJson
    labels: list[str]
    tags: list[str]
    priority: int
    attempt: int
    attempt_number: int
    attempts: int
    retry_count: int
    max_attempts: int
    max_retries: int
    max_lost: int
    timeout_seconds: int | None
    max_execution_time: int | None
    retry_policy: AnyJson
    fence: int
    lost: int
    releases: int
    run: int
    run_id: str | None
    """`<job id>.<fence>` of the last attempt; null until the first."""
    idempotency_key: str | None
    unique_key: str | None
    flow_id: UUID | None
    parent_id: UUID | None
    schedule_id: UUID | None
    definition_id: UUID | None
    created_at: datetime
    updated_at: datetime
    scheduled_at: datetime
    run_at: datetime | None
    next_run_at: datetime | None
    executed_at: datetime | None
    start_deadline: datetime | None
    defaults: dict[str, Literal["task", "settings"]]
    """Where the value came from of each option that its submit left open; the others it named itself."""
    worker_id: str | None
    claimed_by: str | None
    lease_owner: str | None
    queued_at: datetime | None
    """Since when it could be claimed, but for pauses; of a job that ended, before its last attempt."""
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    completed_at: datetime | None
    execution_time_ms: int | None
    lateness_ms: int | None
    """From the nominal time to the start."""
    result: AnyJson
    metrics: AnyJson
    error_type: str | None
    error_message: str | None
    failure_reason: str | None
    reason: str | None
    held: bool
    source: Source
    """Who made it: a submit, a slot of a schedule (also by a backfill), or a schedule run by hand."""
    waiting: list[Waiting] | None = None
    """Why it waits, what must end first at the top; empty if it does not, null where nobody looked, as in lists."""
    erased_at: datetime | None = None
    """When its content was removed; null in lists."""


class StuckLane(Waiting, frozen=True, kw_only=True):
    """A task with jobs that are due, and why nobody is handed them."""

    queue: str
    task: str
    labels: list[str]


class StuckLanes(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks with jobs that are due, and that are paused or that no live worker serves; by queue and name."""

    tasks: list[StuckLane]
    complete: bool
    """False: there are so many tasks or workers that not all were looked at; then only what is sure is listed."""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first."""

    jobs: list[Job]
    total: int
    total_is_estimate: bool
    """There are at least so many."""
    page: int
    next_cursor: UUID | None


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cancel has brought a job."""

    id: UUID
    status: str
    state: State


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A job and where it stands now."""

    id: UUID
    status: str
    state: State
    paused: bool = False


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds by cause."""

    scheduled_ms: int
    queued_ms: int
    assigned_ms: int
    running_ms: int
    backoff_ms: int
    snoozed_ms: int
    ended_ms: int


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a job."""

    happened_at: datetime
    kind: str
    worker_id: str | None
    actor: str | None = None
    """Who did it, where no worker did: the name of a key, or a part of Windlass."""
    detail: str | None


class EventList(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a job, in order."""

    events: list[Event]
    next_cursor: int | None = None


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a job: its end, its story, what it waited for."""

    id: UUID
    status: str
    state: State
    outcome: State | None
    """Null while it has not ended."""
    waits: Waits
    timeline: list[Event]
    timeline_cursor: int | None = None
    attempts: list[Attempt]
    attempts_cursor: str | None = None
    """Where /attempts goes on, as `timeline_cursor` where /events does; null if these are all."""
    metrics: AnyJson


class JobQuery(Words, frozen=True, kw_only=True):
    """How a job is asked for."""

    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_S)] = 0.0
    """Seconds to wait for its end."""


class CancelQuery(Words, frozen=True, kw_only=True):
    """How a cancel is asked for."""

    wait: Annotated[float, Meta(ge=0, le=MAX_CANCEL_WAIT_S)] = 0.0
    """Seconds to wait until it has ended."""
    reason: Annotated[str, Meta(min_length=1, max_length=2000, pattern="^[^\\u0000]+$")] | None = None


class JobsQuery(Pages, frozen=True, kw_only=True):
    """Which jobs to list."""

    status: StateNames | None = None
    state: StateNames | None = None
    queue: Name | None = None
    task: Name | None = None
    name: Name | None = None
    id_end: Annotated[str, Meta(pattern="^[0-9a-fA-F-]{4,36}$", examples=["4b5c6d7e8f90"])] | None = None
    """How its id ends, among the 20,000 newest that wait or run, are timed, done, and dead; twenty jobs at most."""
    worker_id: Name | None = None
    key: Key | None = None
    tag: Name | None = None
    schedule_id: UUID | None = None
    flow_id: UUID | None = None
    created_after: Instant | None = None
    created_before: Instant | None = None
    page: Annotated[int, Meta(ge=1, le=20)] = 1
    include: Literal["schedules", "none"] | None = None
    """`schedules`: list them too, as jobs that are scheduled; so by itself in vocabulary c, unless `none` is given."""


class CancelRequest(Because, frozen=True, kw_only=True):
    """Why to cancel. Force: do not wait for the worker to stop by itself."""

    force: bool = False


class RetryRequest(Because, frozen=True, kw_only=True):
    """Why to run it again, and with what."""

    payload: Raw | UnsetType = UNSET


class ChangeRequest(Because, frozen=True, kw_only=True):
    """What to change of a job that waits."""

    some: ClassVar[tuple[str, ...]] = ("priority", "queue", "run_at")

    priority: Priority | None = None
    queue: Name | None = None
    run_at: Instant | None = None
