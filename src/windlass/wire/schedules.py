"""Schedules as their users see them: what is asked for, what is shown, and what became of each slot."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from windlass.job import State
from windlass.wire.base import MAX_PAGE, Because, Body, Instant, Key, Name, NamePages, PositiveSpan, Query, Span
from windlass.wire.jobs import Attempts, Json, Names, Policy, Preset, Priority, Timeout
from windlass.wire.people import Pause

Expression = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        examples=["30 2 * * *"],
        description="Five fields (minute, hour, day, month, weekday), six with seconds first, or `@daily` and such.",
    ),
]
Zone = Annotated[str, Meta(min_length=1, max_length=100, examples=["Europe/Berlin"], description="An IANA name.")]
Exclusion = Annotated[
    str,
    Meta(
        min_length=3,
        max_length=21,
        examples=["2026-12-25"],
        description="A day, a range `2026-12-24/2027-01-01`, a day of each year `--12-25`, or a weekday `SAT`.",
    ),
]
Exclusions = Annotated[tuple[Exclusion, ...], Meta(max_length=400)]
CatchUp = Literal["latest", "skip", "all"]
Overlap = Literal["skip", "allow", "queue_one", "queue_all", "cancel_previous"]
DecisionName = Literal["fired", "waiting", "replaced", "backfilled", "manual", "overlapped", "missed", "paused"]


class TriggerRequest(Body, frozen=True, kw_only=True):
    """When something is to happen; without cron, every and at: by hand only."""

    aliases: ClassVar[Mapping[str, str]] = {
        "schedule": "cron",
        "cron_expression": "cron",
        "interval": "every",
        "zone": "timezone",
        "tz": "timezone",
    }
    exclusive: ClassVar[tuple[tuple[str, str], ...]] = (("cron", "every"), ("cron", "at"), ("every", "at"))

    cron: Expression | None = None
    every: PositiveSpan | None = None
    """From 1 s, in whole seconds, by elapsed time."""
    at: Instant | None = None
    """Once."""
    timezone: Zone | None = None
    """Of the wall clock that cron goes by; UTC unless it is given."""
    start: Instant | None = None
    """No slot before then."""
    end: Instant | None = None
    """No slot after then."""
    exclude: Exclusions = ()
    """Days without a slot, by their date in the zone."""
    jitter: Span | None = None
    """Each slot is due later by a part of this that depends only on the schedule."""


class ScheduleRequest(TriggerRequest, frozen=True, kw_only=True):
    """A schedule to store; what is left out is the default, not what it was."""

    exclusive: ClassVar[tuple[tuple[str, str], ...]] = (*TriggerRequest.exclusive, ("max_attempts", "max_retries"))

    name: Annotated[Name, Meta(examples=["nightly-report"])]
    task: Annotated[Name, Meta(examples=["send_report"])]
    payload: Json | UnsetType = UNSET
    tenant: Name | None = None
    queue: Name = "default"
    priority: Priority | None = None
    timeout_seconds: Timeout | UnsetType | None = UNSET
    """Null: no limit."""
    max_attempts: Attempts | None = None
    max_retries: Annotated[int, Meta(ge=0, le=999)] | None = None
    max_lost: Attempts | None = None
    retry_policy: Policy | Preset | None = None
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    labels: Names = ()
    tags: Names = ()
    concurrency_key: Key | None = None
    headers: dict[str, str] | None = None
    catch_up: CatchUp | None = None
    """What becomes of slots missed while nothing fired: the latest one runs, none, or all of them."""
    catch_up_max: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """How many missed slots `all` runs, the newest ones."""
    catch_up_window: PositiveSpan | None = None
    """Slots missed longer ago do not run."""
    misfire_grace: PositiveSpan | None = None
    """A slot later than this counts as missed; 60 s unless it is given."""
    overlap: Overlap | None = None
    """What to do when the run before is not over."""
    expect_within: PositiveSpan | None = None
    """Dead-man's switch: tell when a run has not succeeded so long after its slot."""
    start_within: PositiveSpan | None = None
    """A job not started so long after its slot expires."""
    enabled: bool = True
    """False: stored, and paused."""
    replace_existing: bool = False
    """Give the schedule of this name exactly these settings, if there is one."""
    dry_run: bool = False
    """Store nothing; answer what would change."""


class SchedulePatch(Because, frozen=True, kw_only=True):
    """What to change of a schedule; null takes a setting away."""

    aliases: ClassVar[Mapping[str, str]] = TriggerRequest.aliases

    name: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    payload: Json | UnsetType = UNSET
    cron: Expression | UnsetType | None = UNSET
    every: PositiveSpan | UnsetType | None = UNSET
    at: Instant | UnsetType | None = UNSET
    timezone: Zone | UnsetType | None = UNSET
    start: Instant | UnsetType | None = UNSET
    end: Instant | UnsetType | None = UNSET
    exclude: Exclusions | UnsetType = UNSET
    jitter: Span | UnsetType | None = UNSET
    queue: Name | UnsetType = UNSET
    priority: Priority | UnsetType | None = UNSET
    timeout_seconds: Timeout | UnsetType | None = UNSET
    max_attempts: Attempts | UnsetType | None = UNSET
    max_retries: Annotated[int, Meta(ge=0, le=999)] | UnsetType | None = UNSET
    max_lost: Attempts | UnsetType | None = UNSET
    retry_policy: Policy | Preset | UnsetType | None = UNSET
    labels: Names | UnsetType = UNSET
    tags: Names | UnsetType = UNSET
    concurrency_key: Key | UnsetType | None = UNSET
    headers: dict[str, str] | UnsetType | None = UNSET
    catch_up: CatchUp | UnsetType | None = UNSET
    catch_up_max: Annotated[int, Meta(ge=1, le=1000)] | UnsetType | None = UNSET
    catch_up_window: PositiveSpan | UnsetType | None = UNSET
    misfire_grace: PositiveSpan | UnsetType | None = UNSET
    overlap: Overlap | UnsetType | None = UNSET
    expect_within: PositiveSpan | UnsetType | None = UNSET
    start_within: PositiveSpan | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    """Only if it is still this version; 409 otherwise."""
    dry_run: bool = False
    """Store nothing; answer what would change."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, and when it fires."""

    id: UUID
    name: str
    tenant: str
    owner: str | None
    """The application that declares it."""
    task: str
    payload: Raw
    queue: str
    cron: str | None
    every_seconds: int | None
    at: datetime | None
    timezone: str
    words: str
    """The trigger in words."""
    start: datetime | None
    end: datetime | None
    exclude: list[str]
    jitter_seconds: int
    enabled: bool
    paused: bool
    pause: Pause | None
    status: Literal["active", "paused", "ended", "manual"]
    next_run_at: datetime | None
    """When the next slot is due."""
    last_run_at: datetime | None
    """The last slot that was decided."""
    priority: int
    timeout_seconds: int | None
    max_attempts: int
    max_retries: int
    max_lost: int
    retry_policy: Raw | None
    labels: list[str]
    tags: list[str]
    concurrency_key: str | None
    headers: Raw | None
    catch_up: CatchUp
    catch_up_max: int
    catch_up_window_seconds: int | None
    misfire_grace_seconds: int
    overlap: Overlap
    expect_within_seconds: int | None
    start_within_seconds: int | None
    missing: bool
    """The dead-man's switch has told, and no run has succeeded since."""
    waiting_jobs: int
    """Jobs of slots that wait for the run before them."""
    version: int
    created_at: datetime
    updated_at: datetime


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of schedules by name."""

    schedules: list[Schedule]
    next_cursor: str | None


class SchedulesQuery(NamePages, frozen=True, kw_only=True):
    """Which schedules to list."""

    task: Name | None = None
    queue: Name | None = None
    owner: Name | None = None
    paused: bool | None = None
    prefix: Name | None = None
    """Only names that begin so."""


class SchedulesRequest(Body, frozen=True, kw_only=True):
    """Schedules to store, all or none."""

    schedules: Annotated[list[ScheduleRequest], Meta(min_length=1, max_length=1000)]
    replace_existing: bool = False


class StoredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that was stored, in short."""

    id: UUID
    name: str
    next_run_at: datetime | None
    replaced: bool = False


class StoredSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each schedule, in order."""

    schedules: list[StoredSchedule]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that changes, as JSON."""

    field: str
    was: Raw | None
    becomes: Raw | None


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit would change, and the slots that follow from it; nothing was stored."""

    name: str
    exists: bool
    differences: list[Difference]
    slots: list[ShownSlot]


class ShownSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot to come: nominal, on the wall clock of its zone, and what a change of that clock does to it."""

    slot_at: datetime
    due_at: datetime
    """Later than the slot where there is jitter."""
    local: str
    mark: str | None


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The slots to come."""

    words: str
    timezone: str
    slots: list[ShownSlot]


class PreviewQuery(Query, frozen=True, kw_only=True):
    """How many slots to show, and from when on."""

    count: Annotated[int, Meta(ge=1, le=100)] = 10
    after: Instant | None = None


class PreviewRequest(TriggerRequest, frozen=True, kw_only=True):
    """A trigger that is not stored, to be looked at."""

    count: Annotated[int, Meta(ge=1, le=100)] = 10
    after: Instant | None = None


class DeleteQuery(Query, frozen=True, kw_only=True):
    """How to delete a schedule."""

    purge: bool = False
    """Remove its history too: the slots, and the jobs they made."""


class RunRequest(Because, frozen=True, kw_only=True):
    """A job to make now, beside the series."""

    payload: Raw | UnsetType = UNSET


class BackfillRequest(Because, frozen=True, kw_only=True):
    """A past range whose slots are to run: later than `since`, up to `until`."""

    since: Instant
    until: Instant
    concurrency: Annotated[int, Meta(ge=1, le=1000)] = 1
    """How many of its jobs live at a time."""


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill and how far it is."""

    id: UUID
    schedule_id: UUID
    since: datetime
    until: datetime
    concurrency: int
    status: Literal["running", "done", "stopped"]
    made: int
    """Jobs made."""
    known: int
    """Slots that had run before, or were under way: left alone."""
    reached: datetime
    """The last slot dealt with."""
    created_at: datetime
    ended_at: datetime | None


class BackfillList(msgspec.Struct, frozen=True, kw_only=True):
    """The backfills of a schedule, newest first."""

    backfills: list[Backfill]


class RunsQuery(Query, frozen=True, kw_only=True):
    """Which slots of a schedule to list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    cursor: Instant | None = None
    """`next_cursor` of the page before."""
    decision: DecisionName | None = None
    since: Instant | None = None
    until: Instant | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One slot: what was decided, and what became of its job."""

    schedule_id: UUID
    slot_at: datetime
    scheduled_at: datetime
    """The same as `slot_at`."""
    decision: DecisionName
    reason: str | None
    slots: int
    """How many slots this row stands for: those passed over together are one row, of the last of them."""
    first_slot_at: datetime
    decided_at: datetime
    job_id: UUID | None
    status: State | None
    """Of its job; null: none was made, or it is past retention."""
    executed_at: datetime | None
    finished_at: datetime | None
    execution_time_ms: int | None
    lateness_ms: int | None
    """From the slot to the start."""
    attempt: int | None
    worker_id: str | None
    error_message: str | None


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of slots, newest first."""

    runs: list[Run]
    next_cursor: datetime | None


class DeclareRequest(Body, frozen=True, kw_only=True):
    """All schedules that an application declares; those it declared before and does not any more are removed."""

    owner: Name
    schedules: Annotated[list[ScheduleRequest], Meta(max_length=1000)]
    dry_run: bool = False


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What declaring has changed."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int
