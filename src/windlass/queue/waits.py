"""Waits: what a job spent its time on, told from its own times and those of its attempts. Pure.

Every moment from its creation to its end, or to where its story stops, is of one cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from windlass.job import Outcome
from windlass.queue.views import Job

_MILLISECOND = timedelta(milliseconds=1)
_PUT_OFF = {Outcome.SNOOZED: "snoozed_ms"}
_FIELDS = ("scheduled_ms", "queued_ms", "assigned_ms", "running_ms", "backoff_ms", "snoozed_ms", "ended_ms")


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds by cause."""

    scheduled_ms: int = 0
    """From its creation until it was due."""
    queued_ms: int = 0
    """Due, and not claimed yet: no worker was free, it was paused, or limits held it."""
    assigned_ms: int = 0
    """Claimed, and not begun yet; attempts that never began too."""
    running_ms: int = 0
    backoff_ms: int = 0
    """From a failed or lost attempt until the next was due."""
    snoozed_ms: int = 0
    ended_ms: int = 0
    """Dead, cancelled or expired, until somebody had it run again."""


class Times(msgspec.Struct, frozen=True):
    """When an attempt was claimed, began and ended, and what followed."""

    outcome: Outcome
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime
    next_run_at: datetime | None


def waits_of(job: Job, attempts: Sequence[Times]) -> Waits:
    """Return what a job waited for and how long it ran, up to its end or to the last thing known of it."""
    spent = dict.fromkeys(_FIELDS, timedelta(0))
    at, due_at = job.created_at, max(job.created_at, job.scheduled_at)
    before = "scheduled_ms"
    for attempt in attempts:
        claimed_at = attempt.claimed_at or attempt.finished_at
        at = _spend(spent, before, at, min(due_at, claimed_at))
        at = _spend(spent, "queued_ms", at, claimed_at)
        if attempt.claimed_at is not None:
            at = _spend(spent, "assigned_ms", at, attempt.started_at or attempt.finished_at)
            at = _spend(spent, "running_ms", at, attempt.finished_at)
        # Nothing was to follow, so what followed was somebody's wish: until then it had ended.
        before = _PUT_OFF.get(attempt.outcome, "backoff_ms") if attempt.next_run_at else "ended_ms"
        due_at = attempt.next_run_at or datetime.max.replace(tzinfo=at.tzinfo)
    _spend_last(spent, job, before, at, due_at)
    return Waits(**{name: span // _MILLISECOND for name, span in spent.items()})


def _spend(spent: dict[str, timedelta], cause: str, since: datetime, until: datetime) -> datetime:
    """Add the time until then to a cause; return the instant up to which all is told."""
    if until <= since:
        return since
    spent[cause] += until - since
    return until


def _spend_last(spent: dict[str, timedelta], job: Job, before: str, at: datetime, due_at: datetime) -> None:
    """Add what came after the last attempt: the lease that runs, or the wait in which the job ended."""
    if job.finished_at is None and job.claimed_at is not None:
        at = _spend(spent, before, at, min(due_at, job.claimed_at))
        at = _spend(spent, "queued_ms", at, job.claimed_at)
        _spend(spent, "assigned_ms", at, job.started_at or at)
    elif job.finished_at is not None:
        at = _spend(spent, before, at, min(due_at, job.finished_at))
        _spend(spent, "queued_ms", at, job.finished_at)
