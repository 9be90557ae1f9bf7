"""What became of the slots of a schedule, and backfills: past slots that are run afterwards.

Next: schedules.py has the schedules themselves.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from windlass.job import State
from windlass.wire.base import MAX_PAGE, Because, Instant, Query

DecisionName = Literal["fired", "waiting", "replaced", "backfilled", "manual", "overlapped", "missed", "paused"]


class BackfillRequest(Because, frozen=True, kw_only=True):
    """A past range whose slots are to run: from `since` on, before `until`."""

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
    """The last slot dealt with; at first `since`."""
    created_at: datetime
    ended_at: datetime | None


class BackfillList(msgspec.Struct, frozen=True, kw_only=True):
    """The backfills of a schedule, newest first."""

    backfills: list[Backfill]


class RunsQuery(Query, frozen=True, kw_only=True):
    """Which slots of a schedule to list: from `since` on, before `until`."""

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
