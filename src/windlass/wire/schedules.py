"""Schedules as their users see them: what is asked for, and what is shown.

Next: triggers.py has when they fire, runs.py what became of each slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from windlass.wire.base import (
    MAX_INT,
    AnyJson,
    Because,
    Body,
    Instant,
    Name,
    NamePages,
    PositiveSpan,
    Query,
    Reason,
    Span,
)
from windlass.wire.jobs import Attempts, Delivery, Json, Names, Policy, Preset, Priority, Timeout
from windlass.wire.people import Pause
from windlass.wire.runs import Backfill as Backfill
from windlass.wire.runs import BackfillList as BackfillList
from windlass.wire.runs import BackfillRequest as BackfillRequest
from windlass.wire.runs import DecisionName as DecisionName
from windlass.wire.runs import Run as Run
from windlass.wire.runs import RunPage as RunPage
from windlass.wire.runs import RunsQuery as RunsQuery
from windlass.wire.triggers import Exclusion as Exclusion
from windlass.wire.triggers import Exclusions as Exclusions
from windlass.wire.triggers import Expression as Expression
from windlass.wire.triggers import Preview as Preview
from windlass.wire.triggers import PreviewQuery as PreviewQuery
from windlass.wire.triggers import PreviewRequest as PreviewRequest
from windlass.wire.triggers import ShownSlot as ShownSlot
from windlass.wire.triggers import TriggerRequest as TriggerRequest
from windlass.wire.triggers import Zone as Zone

CatchUp = Literal["latest", "skip", "all"]
Overlap = Literal["skip", "allow", "queue_one", "queue_all", "cancel_previous"]
Version = Annotated[int, Meta(ge=1, le=MAX_INT)]


class ScheduleRequest(TriggerRequest, frozen=True, kw_only=True):
    """A schedule to store; what is left out is the default, not what it was."""

    exclusive: ClassVar[tuple[tuple[str, str], ...]] = (*TriggerRequest.exclusive, ("max_attempts", "max_retries"))

    name: Annotated[Name, Meta(examples=["nightly-report"])]
    task: Annotated[Name, Meta(examples=["send_report"])]
    payload: Json | UnsetType = UNSET
    tenant: Name | None = None
    queue: Name | None = None
    """`default`, unless its task has another."""
    priority: Priority | None = None
    timeout_seconds: Timeout | UnsetType | None = UNSET
    """Null: no limit."""
    max_attempts: Attempts | None = None
    max_retries: Annotated[int, Meta(ge=0, le=999)] | None = None
    max_lost: Attempts | None = None
    retry_policy: Policy | Preset | None = None
    delivery: Delivery | None = None
    labels: Names | UnsetType = UNSET
    tags: Names | UnsetType = UNSET
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
    enabled: bool | UnsetType = UNSET
    """False: stored, and paused. Left out: a new one runs, and one that is there is paused or not as it was."""
    replace_existing: bool = False
    """Give the schedule of this name exactly these settings, if there is one."""
    dry_run: bool = False
    """Store nothing; answer what would change."""


class ScheduleReplacement(ScheduleRequest, frozen=True, kw_only=True):
    """All settings that a schedule is to have from now on; what is left out is the default, not what it was."""

    version: Version | None = None
    """Only if it is still this version; 409 otherwise."""
    reason: Reason | None = None


class SchedulePatch(Because, frozen=True, kw_only=True):
    """What to change of a schedule; null takes a setting away, and one of cron, every and at the others."""

    aliases: ClassVar[Mapping[str, str]] = TriggerRequest.aliases
    exclusive: ClassVar[tuple[tuple[str, str], ...]] = ScheduleRequest.exclusive

    name: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    payload: Json | UnsetType = UNSET
    cron: Expression | UnsetType | None = UNSET
    every: Span | UnsetType | None = UNSET
    at: Instant | UnsetType | None = UNSET
    timezone: Zone | UnsetType | None = UNSET
    start: Instant | UnsetType | None = UNSET
    end: Instant | UnsetType | None = UNSET
    exclude: Exclusions | UnsetType = UNSET
    jitter: Span | UnsetType | None = UNSET
    queue: Name | UnsetType | None = UNSET
    priority: Priority | UnsetType | None = UNSET
    timeout_seconds: Timeout | UnsetType | None = UNSET
    max_attempts: Attempts | UnsetType | None = UNSET
    max_retries: Annotated[int, Meta(ge=0, le=999)] | UnsetType | None = UNSET
    max_lost: Attempts | UnsetType | None = UNSET
    retry_policy: Policy | Preset | UnsetType | None = UNSET
    labels: Names | UnsetType = UNSET
    tags: Names | UnsetType = UNSET
    headers: dict[str, str] | UnsetType | None = UNSET
    delivery: Delivery | UnsetType = UNSET
    """Back to at_least_once, attempts and losses are the default ones unless they are given too."""
    catch_up: CatchUp | UnsetType | None = UNSET
    catch_up_max: Annotated[int, Meta(ge=1, le=1000)] | UnsetType | None = UNSET
    catch_up_window: PositiveSpan | UnsetType | None = UNSET
    misfire_grace: PositiveSpan | UnsetType | None = UNSET
    overlap: Overlap | UnsetType | None = UNSET
    expect_within: PositiveSpan | UnsetType | None = UNSET
    start_within: PositiveSpan | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    version: Version | None = None
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
    payload: AnyJson
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
    delivery: Literal["at_least_once", "at_most_once"]
    retry_policy: AnyJson
    labels: list[str]
    tags: list[str]
    headers: AnyJson
    defaults: dict[str, Literal["task", "settings"]]
    """Where the value comes from of each option that it leaves open: a job gets what its task has when it is made."""
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

    bound: ClassVar[Mapping[str, Any]] = {
        "not": {
            "required": ["replace_existing", "skip_existing"],
            "properties": {"replace_existing": {"const": True}, "skip_existing": {"const": True}},
        }
    }

    schedules: Annotated[list[ScheduleRequest], Meta(min_length=1, max_length=1000)]
    replace_existing: bool = False
    skip_existing: bool = False
    """Leave out those whose names are taken: an import that was interrupted is said again."""


class StoredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that was stored, in short."""

    id: UUID
    name: str
    next_run_at: datetime | None
    replaced: bool = False


class StoredSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that were stored, in order."""

    schedules: list[StoredSchedule]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that changes, as JSON."""

    field: str
    was: AnyJson
    becomes: AnyJson


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit would change, and the slots that follow from it; nothing was stored."""

    name: str
    exists: bool
    differences: list[Difference]
    slots: list[ShownSlot]


class DeleteQuery(Query, frozen=True, kw_only=True):
    """How to delete a schedule."""

    purge: bool = False
    """Remove its history too: the slots, and the jobs they made."""
    reason: Reason | None = None


class RunRequest(Because, frozen=True, kw_only=True):
    """A job to make now, beside the series."""

    payload: Raw | UnsetType = UNSET


class DeclareRequest(Body, frozen=True, kw_only=True):
    """All schedules that an application declares; those it declared before and does not any more are removed."""

    owner: Name
    schedules: Annotated[list[ScheduleRequest], Meta(max_length=1000)]
    keep: Annotated[tuple[Name, ...], Meta(max_length=1000)] = ()
    """Names of schedules that stay as they are, and are not removed though they are not in the list."""
    skip_refused: bool = False
    """Store the others where one cannot be accepted; what is there under its name stays. False: all or none."""
    dry_run: bool = False


class RefusedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A declared schedule that was not accepted, and why."""

    name: str
    reason: str


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What declaring has changed."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int
    refused: list[RefusedSchedule] = []
    """Those that were not accepted, where `skip_refused` was asked for."""
