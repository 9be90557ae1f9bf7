"""Attempts as people see them: those of a job, and those of all jobs.

Next: jobs.py has the jobs that they are of.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from windlass.wire.base import MAX_PAGE, AnyJson, Instant, Name, Query
from windlass.wire.vocabulary import OUTCOMES, any_case

MAX_OF_JOB = 1000
_ATTEMPT_CURSOR = "^[0-9]{1,16}_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_[0-9]{1,10}$"
"""Microseconds since 1970, job, fence."""
_ATTEMPT_PLACE = "^[0-9]{1,10}(_[0-9]{1,5}_[01])?$"
"""Fence, run, and whether that run ended without another claim; a fence alone: after all that have it."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One ended attempt of a job."""

    id: str
    """The same as `run_id`."""
    run_id: str
    job_id: UUID
    run: int
    attempt: int
    attempt_number: int
    fence: int
    outcome: str
    status: str
    worker_id: str | None
    queued_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime
    completed_at: datetime
    execution_time_ms: int | None
    next_run_at: datetime | None
    output: AnyJson
    metrics: AnyJson
    error_type: str | None
    error_message: str | None
    traceback: str | None
    reason: str | None


class AttemptList(msgspec.Struct, frozen=True, kw_only=True):
    """The ended attempts of a job, oldest first."""

    attempts: list[Attempt]
    next_cursor: str | None = None
    """After which the next page begins; null on the last."""


class AttemptsOfJobQuery(Query, frozen=True, kw_only=True):
    """Which attempts of a job to show."""

    limit: Annotated[int, Meta(ge=1, le=MAX_OF_JOB)] = MAX_OF_JOB
    cursor: Annotated[str, Meta(max_length=20, pattern=_ATTEMPT_PLACE)] | None = None
    """`next_cursor` of the page before."""


class OfJobQuery(Query, frozen=True, kw_only=True):
    """Which events of a job to show."""

    limit: Annotated[int, Meta(ge=1, le=MAX_OF_JOB)] = MAX_OF_JOB
    cursor: Annotated[int, Meta(ge=0, le=2**31 - 2)] | None = None
    """`next_cursor` of the page before."""


OutcomeName = Annotated[str, Meta(pattern=any_case(*OUTCOMES), examples=["failed"])]
"""How an attempt ended, in any case; `stale` is `lost`, `canceled` is `cancelled`."""


class AttemptsQuery(Query, frozen=True, kw_only=True):
    """Which attempts to list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    cursor: Annotated[str, Meta(max_length=100, pattern=_ATTEMPT_CURSOR)] | None = None
    """`next_cursor` of the page before."""
    schedule_id: UUID | None = None
    task: Name | None = None
    worker_id: Name | None = None
    outcome: OutcomeName | None = None
    since: Instant | None = None
    until: Instant | None = None


class ListedAttempt(Attempt, frozen=True, kw_only=True):
    """One ended attempt of any job."""

    queue: str
    task: str


class AttemptPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of ended attempts, newest first."""

    attempts: list[ListedAttempt]
    next_cursor: str | None
