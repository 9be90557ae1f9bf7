"""History: what every job is, was and went through, until retention.

One job by its id, lists by combined filters in pages, counts, attempts, and the timeline.
Lists are keyset pages by id, newest first: each of the four places a job can lie in is asked for one page, by index,
and the pages are merged. Filters are clauses from a fixed table; values are always parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from windlass.db import Query, Row, Statements, load
from windlass.errors import InvalidInput, NotFound
from windlass.job import FINAL_STATES, Outcome, State

SQL = load(__file__)

MAX_PAGE = 500


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it can be looked up, live or finished."""

    id: UUID
    tenant: str
    queue: str
    task: str
    labels: str
    concurrency_key: str
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
    worker: str | None
    session: UUID | None
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


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list: all conditions together; None or empty means any."""

    tenant: str
    states: frozenset[State] = frozenset()
    queue: str | None = None
    task: str | None = None
    worker: str | None = None
    idempotency_key: str | None = None
    tag: str | None = None
    schedule_id: UUID | None = None
    flow_id: UUID | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


class Page(msgspec.Struct, frozen=True):
    """A page of jobs, newest first, and where the next one begins; None on the last."""

    jobs: list[Job]
    next_cursor: UUID | None


_CLAUSES = {
    "queue": "queue = :queue",
    "task": "task = :task",
    "worker": "worker = :worker",
    "idempotency_key": "idempotency_key = :idempotency_key",
    # Tags are a JSON array of strings, so a quoted tag stands in it or it does not.
    "tag": "replace(tags, :tag, '') <> tags",
    "schedule_id": "schedule_id = :schedule_id",
    "flow_id": "flow_id = :flow_id",
    "created_after": "created_at >= :created_after",
    "created_before": "created_at < :created_before",
}
# In the order in which a job goes forward, which is the order of reading.
_SOURCES = (
    (SQL.list_timed, frozenset({State.SCHEDULED, State.SLEEPING})),
    (SQL.list_queued, frozenset(State) - FINAL_STATES - {State.SCHEDULED, State.SLEEPING}),
    (SQL.list_done, FINAL_STATES - {State.DEAD}),
    (SQL.list_dead, frozenset({State.DEAD})),
)
_composed: dict[tuple[str, tuple[str, ...]], Query] = {}


async def get(db: Statements, job_id: UUID, *, tenant: str) -> Job:
    """Return the job; NotFound if it is unknown, another tenant's, or past retention."""
    rows = await db.fetch(SQL.get, id=job_id, tenant=tenant)
    if not rows:
        raise NotFound(f"There is no job {job_id}.")
    return job_from_row(rows[0])


async def live(db: Statements, ids: Sequence[UUID]) -> set[UUID]:
    """Return those of the jobs that have not ended."""
    return {row["id"] for row in await db.fetch(SQL.live_jobs, ids=list(ids))}


async def find(db: Statements, where: Filter, *, limit: int = 100, cursor: UUID | None = None) -> Page:
    """Return up to `limit` jobs that match, newest first, from below `cursor` on.

    Each place is read by itself, timers first, ends last: a job that goes forward meanwhile is listed once, as it was
    read last. One that goes back meanwhile (a retry that waits, a snooze, a later time, another run of a finished job)
    may be missing from this page, and one that changes between a state asked for and another may be listed or not.
    """
    limit = max(1, min(limit, MAX_PAGE))
    clauses, values = _conditions(where, cursor)
    found: dict[UUID, Row] = {}
    for query, states in _SOURCES:
        if not where.states or where.states & states:
            wanted = sorted(where.states or states)
            page = await db.fetch(_compose(query, clauses), states=wanted, limit=limit + 1, **values)
            found.update((row["id"], row) for row in page)
    jobs = [job_from_row(found[job_id]) for job_id in sorted(found, reverse=True)[:limit]]
    return Page(jobs, jobs[-1].id if len(found) > limit else None)


async def counts(db: Statements, *, tenant: str, queue: str | None = None, since: datetime) -> dict[State, int]:
    """Return how many jobs are in each state; of the finished ones in `done`, those that ended since then."""
    rows = await db.fetch(SQL.counts, tenant=tenant, queue=queue, since=since)
    found = dict.fromkeys(State, 0)
    for row in rows:
        found[State(row["state"])] += row["jobs"]
    return found


async def attempts(db: Statements, job_id: UUID, *, tenant: str) -> list[Attempt]:
    """Return the ended attempts of a job, oldest first; NotFound as in `get`."""
    await get(db, job_id, tenant=tenant)
    rows = await db.fetch(SQL.attempts, id=job_id)
    return [Attempt(**(dict(row) | {"outcome": Outcome(row["outcome"])})) for row in rows]


async def timeline(db: Statements, job_id: UUID, *, tenant: str) -> list[Event]:
    """Return everything that happened to a job, in order; NotFound as in `get`."""
    await get(db, job_id, tenant=tenant)
    rows = await db.fetch(SQL.timeline, id=job_id)
    return [Event(row["happened_at"], row["kind"], row["worker"], row["detail"]) for row in rows]


def job_from_row(row: Row) -> Job:
    """Return the job in `row`, one of the `jobs` view."""
    columns = dict(row)
    columns["state"] = State(row["state"])
    columns["paused"] = bool(row["paused"])
    columns["held"] = bool(row["held"])
    columns["tags"] = msgspec.json.decode(row["tags"], type=list[str]) if row["tags"] else []
    return Job(**columns)


def _conditions(where: Filter, cursor: UUID | None) -> tuple[tuple[str, ...], dict[str, Any]]:
    values: dict[str, Any] = {"tenant": where.tenant}
    clauses = []
    for name, clause in _CLAUSES.items():
        value = getattr(where, name)
        if value is not None:
            clauses.append(clause)
            values[name] = _quoted(value) if name == "tag" else value
    if cursor is not None:
        clauses.append("id < :cursor")
        values["cursor"] = cursor
    return tuple(clauses), values


def _quoted(tag: str) -> str:
    try:
        return msgspec.json.encode(tag).decode()
    except UnicodeEncodeError:
        raise InvalidInput("tag", "it holds half of a surrogate pair, which is not text.") from None


def _compose(query: Query, clauses: tuple[str, ...]) -> Query:
    key = (query.name, clauses)
    if key not in _composed:
        _composed[key] = query.where(*clauses)
    return _composed[key]
