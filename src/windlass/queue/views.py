"""Views: a job, an attempt and an event as people see them, wherever their rows lie.

States are derived by the views of the database; history.py reads them, recent.py and waits.py tell more from the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from windlass.db import Row
from windlass.job import Outcome, Source, State

Item = TypeVar("Item")
Place = TypeVar("Place")

LIST_BYTES = 256 << 10
"""Of texts in one answer with a list: a page ends there, and its cursor goes on. One item may be beyond it."""
MAX_OF_JOB = 1000
"""How many attempts or events of one job are in a page."""
LAST_RUN = 2**15 - 1
LONGEST_DETAIL = 1000
"""Characters of what is told with an event."""


class Slice(msgspec.Struct, Generic[Item, Place], frozen=True):
    """Some of what there is of one job, in order, and after what the next page begins; None on the last."""

    items: list[Item]
    next_cursor: Place | None


class AttemptPlace(NamedTuple):
    """Where an ended attempt of a job stands among the others."""

    fence: int
    run: int
    unclaimed: int
    """1: the run ended without another claim, 0 otherwise."""


def fitting(sizes: Iterable[int]) -> int:
    """Return how many of the first items, of so many bytes each, one list may show: the first always."""
    total = count = 0
    for size in sizes:
        total += size
        if total > LIST_BYTES and count:
            break
        count += 1
    return count


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it can be looked up, live or finished."""

    id: UUID
    tenant: str
    queue: str
    task: str
    labels: str
    state: State
    paused: bool
    payload: str
    headers: str | None
    tags: list[str]
    priority: int
    attempt: int
    max_attempts: int
    max_lost: int
    timeout_s: int | None
    retry: str | None
    fence: int
    lost: int
    releases: int
    run: int
    idempotency_key: str | None
    unique_key: str | None
    flow_id: UUID | None
    parent_id: UUID | None
    schedule_id: UUID | None
    slot_at: datetime | None
    created_at: datetime
    scheduled_at: datetime
    next_run_at: datetime | None
    start_by: datetime | None
    defaults: int
    """Which options it left open, and which of these its task gave (defaults.py)."""
    worker: str | None
    session: UUID | None
    queued_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    deadline_at: datetime | None
    result: str | None
    metrics: str | None
    error_type: str | None
    error: str | None
    reason: str | None
    held: bool
    source: Source


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One ended attempt of a job."""

    job_id: UUID
    run: int
    attempt: int
    fence: int
    outcome: Outcome
    result: str | None
    metrics: str | None
    error_type: str | None
    error: str | None
    traceback: str | None
    reason: str | None
    worker: str | None
    session: UUID | None
    queued_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime
    next_run_at: datetime | None


class Event(msgspec.Struct, frozen=True):
    """One thing that happened to a job."""

    happened_at: datetime
    kind: str
    worker: str | None
    detail: str | None
    actor: str | None = None
    """The person or the part of Windlass that did it, where no worker did."""


def job_from_row(row: Row) -> Job:
    """Return the job in `row`, one of the `jobs` view."""
    columns = dict(row)
    columns["state"] = State(row["state"])
    columns["paused"] = bool(row["paused"])
    columns["held"] = bool(row["held"])
    columns["tags"] = msgspec.json.decode(row["tags"], type=list[str]) if row["tags"] else []
    return Job(**columns)


def attempt_from_row(row: Row) -> Attempt:
    """Return the attempt in `row`, one of the `attempts` view; columns that are no field of it are left out."""
    columns = {name: row[name] for name in Attempt.__struct_fields__}
    return Attempt(**columns | {"outcome": Outcome(row["outcome"])})
