"""History: what every job is, was and went through, until retention.

One job by its id, lists by combined filters in pages, counts, attempts, the timeline, and the report of a job.
Lists are keyset pages by id, newest first: each of the four places a job can lie in is asked for one page, by index,
and the pages are merged. Filters are clauses from a fixed table; values are always parameters.
What ended is looked for among the newest ends of all tenants, and if the tenant's are rare there, by its own lanes.
Either way a bounded number of rows is read: where that is not enough for a page, a short one says where to go on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from windlass.db import Query, Row, Statements, load
from windlass.errors import InvalidInput, NotFound
from windlass.ids import first_id_at
from windlass.job import FINAL_STATES, State
from windlass.queue.attempts import AttemptCursor as AttemptCursor
from windlass.queue.attempts import AttemptFilter as AttemptFilter
from windlass.queue.attempts import AttemptPage as AttemptPage
from windlass.queue.attempts import find_attempts as find_attempts
from windlass.queue.newjob import check_instant
from windlass.queue.recent import JobEvent as JobEvent
from windlass.queue.recent import events_since as events_since
from windlass.queue.views import Attempt as Attempt
from windlass.queue.views import Event as Event
from windlass.queue.views import Job as Job
from windlass.queue.views import attempt_from_row
from windlass.queue.views import job_from_row as job_from_row
from windlass.queue.waits import Waits as Waits
from windlass.queue.waits import waits_of

SQL = load(__file__)

MAX_PAGE = 500
MAX_COUNT = 10_000
EXAMINED = 20_000
"""How many of the newest ends, of all tenants, a list looks at before it goes by the tenant's lanes."""
OWN_ROWS = 100_000
"""How many ends of its own a tenant may have to be listed by its lanes; one with more is dense among all."""
SKEW = timedelta(hours=1)
"""How far the clock that made an id may be from the database's, which says when the job was created."""
NEWEST = UUID(int=2**128 - 1)
MAX_ENDINGS = 20
_END = re.compile(r"[0-9a-fA-F-]{4,36}")


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list: all conditions together; None or empty means any."""

    tenant: str
    id: UUID | None = None
    states: frozenset[State] = frozenset()
    stale: bool = False
    """Only jobs whose last attempt was lost and that have not begun again."""
    queue: str | None = None
    named_queue: bool = False
    """Of schedules only those that name their queue themselves."""
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


class Count(msgspec.Struct, frozen=True):
    """How many jobs match; not exact: at least so many."""

    jobs: int
    exact: bool


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to tell of a job: what it is, how it ended, what it went through and what it waited for."""

    job: Job
    outcome: State | None
    """None: it has not ended."""
    timeline: list[Event]
    attempts: list[Attempt]
    waits: Waits
    metrics: str | None


_CLAUSES = {
    "id": "id = :id",
    "queue": "queue = :queue",
    "task": "task = :task",
    "worker": "worker = :worker",
    "idempotency_key": "idempotency_key = :idempotency_key",
    # Tags are a JSON array of strings, so a quoted tag stands in it or it does not.
    "tag": "replace(tags, :tag, '') <> tags",
    "schedule_id": "schedule_id = :schedule_id",
    "flow_id": "flow_id = :flow_id",
    "created_after": "created_at >= :created_after AND id >= :first_id",
    "created_before": "created_at < :created_before AND id < :last_id",
}
_TIMED = frozenset({State.SCHEDULED, State.SLEEPING})
_QUEUED = frozenset(State) - FINAL_STATES - _TIMED
_DONE, _DEAD = FINAL_STATES - {State.DEAD}, frozenset({State.DEAD})
_COUNTS = (
    (SQL.count_timed, _TIMED),
    (SQL.count_queued, _QUEUED),
    (SQL.count_done, _DONE),
    (SQL.count_dead, _DEAD),
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


async def ending_in(db: Statements, end: str, *, tenant: str, examined: int = EXAMINED) -> list[UUID]:
    """Return up to 20 jobs whose id ends so, among the newest `examined` that wait or run, are timed, done and dead.

    Ids of one moment begin alike: what tells them apart is their end.
    """
    if not _END.fullmatch(end):
        raise InvalidInput("id_end", f"{end[:50]!r} is no end of an id: at least 4 of its digits, 0 to 9 and a to f.")
    rows = await db.fetch(SQL.ending_in, end=end.lower(), tenant=tenant, examined=examined, limit=MAX_ENDINGS)
    return [row["id"] for row in rows]


async def find(db: Statements, where: Filter, *, limit: int = 100, cursor: UUID | None = None) -> Page:
    """Return up to `limit` jobs that match, newest first, from below `cursor` on.

    Each place is read by itself, timers first, ends last, timers again: a job that goes forward meanwhile, or back to
    wait for its next attempt, is listed once, as it was read last. One that goes back otherwise (another run of a
    finished job) may be missing from this page, and one that changes between a state asked for and another may be
    listed or not. A page with a cursor may be short or empty where the filters match few of very many jobs.
    """
    reading = _Reading(db, where, max(1, min(limit, MAX_PAGE)), cursor or NEWEST)
    # In the order in which a job goes forward, and timers once more: there a failed attempt goes back to.
    await reading.live(SQL.list_timed, _TIMED)
    await reading.live(SQL.list_queued, _QUEUED)
    await reading.ended((SQL.list_done, SQL.floor_done, SQL.own_done, SQL.done_by_id), _DONE)
    await reading.ended((SQL.list_dead, SQL.floor_dead, SQL.own_dead, SQL.dead_by_id), _DEAD)
    await reading.live(SQL.list_timed, _TIMED)
    return reading.page()


async def count(db: Statements, where: Filter, *, examined: int = EXAMINED) -> Count:
    """Return how many jobs match, up to 10,000; a bounded number of rows is looked at, so it may be more."""
    clauses, values = _conditions(where)
    jobs, exact = 0, True
    for query, states in _COUNTS:
        asked = _asked(where, states)
        if asked:
            stale = {} if states & FINAL_STATES else {"stale": int(where.stale)}
            [row] = await db.fetch(_compose(query, clauses), states=asked, examined=examined, **values, **stale)
            jobs += row["jobs"]
            exact = exact and row["examined"] < examined
    return Count(min(jobs, MAX_COUNT), exact and jobs <= MAX_COUNT)


async def attempts(db: Statements, job_id: UUID, *, tenant: str) -> list[Attempt]:
    """Return the ended attempts of a job, oldest first; NotFound as in `get`."""
    await get(db, job_id, tenant=tenant)
    return [attempt_from_row(row) for row in await db.fetch(SQL.attempts, id=job_id)]


async def timeline(db: Statements, job_id: UUID, *, tenant: str) -> list[Event]:
    """Return everything that happened to a job, in order; NotFound as in `get`."""
    await get(db, job_id, tenant=tenant)
    return await events_of(db, job_id)


async def events_of(db: Statements, job_id: UUID) -> list[Event]:
    """Return everything that happened to a job or a schedule that the caller has found, in order."""
    rows = await db.fetch(SQL.timeline, id=job_id)
    return [Event(row["happened_at"], row["kind"], row["worker"], row["detail"], row["actor"]) for row in rows]


async def report(db: Statements, job_id: UUID, *, tenant: str) -> Report:
    """Return the report of a job, of one that has not ended as far as it has come; NotFound as in `get`."""
    job = await get(db, job_id, tenant=tenant)
    tried = await attempts(db, job_id, tenant=tenant)
    return Report(
        job=job,
        outcome=job.state if job.state in FINAL_STATES else None,
        timeline=await timeline(db, job_id, tenant=tenant),
        attempts=tried,
        waits=waits_of(job, tried),
        metrics=job.metrics,
    )


class _Reading:
    """One list being read, place by place."""

    def __init__(self, db: Statements, where: Filter, limit: int, cursor: UUID) -> None:
        self._db = db
        self._where = where
        self._limit = limit
        self._cursor = cursor
        self._clauses, self._values = _conditions(where)
        self._found: dict[UUID, Row] = {}
        self._floors: list[UUID] = []

    async def live(self, query: Query, states: frozenset[State]) -> None:
        """Read a page of live jobs."""
        asked = _asked(self._where, states)
        if asked:
            await self._fetch(query, states=asked, cursor=self._cursor, stale=int(self._where.stale))

    async def ended(self, queries: tuple[Query, Query, Query, Query], states: frozenset[State]) -> None:
        """Read a page of ended jobs among the newest, and if these are too few, by the lanes of the tenant."""
        near, floor_of, own, by_id = queries
        asked = _asked(self._where, states)
        if not asked:
            return
        floors = await self._db.fetch(floor_of, cursor=self._cursor, examined=EXAMINED)
        floor: UUID = floors[0]["id"] if floors else UUID(int=0)
        if await self._fetch(near, states=asked, cursor=self._cursor, floor=floor) > self._limit or not floors:
            return
        rows = await self._db.fetch(
            _compose(own, self._clauses),
            states=asked,
            floor=floor,
            examined=OWN_ROWS,
            limit=self._limit + 1,
            **self._values,
        )
        if rows[0]["examined"] >= OWN_ROWS:
            self._floors.append(floor)
        elif rows[0]["id"] is not None:
            older = await self._db.fetch(by_id, ids=[row["id"] for row in rows], tenant=self._where.tenant)
            self._found.update((row["id"], row) for row in older)

    def page(self) -> Page:
        """Return the page: what was found down to where every place was read."""
        floor = max(self._floors, default=UUID(int=0))
        ids = sorted((job_id for job_id in self._found if job_id >= floor), reverse=True)
        jobs = [job_from_row(self._found[job_id]) for job_id in ids[: self._limit]]
        if len(ids) > self._limit:
            return Page(jobs, jobs[-1].id)
        return Page(jobs, floor if self._floors else None)

    async def _fetch(self, query: Query, **more: Any) -> int:
        rows = await self._db.fetch(_compose(query, self._clauses), limit=self._limit + 1, **self._values, **more)
        self._found.update((row["id"], row) for row in rows)
        return len(rows)


def _asked(where: Filter, states: frozenset[State]) -> list[State]:
    """Return which of the states of a place are asked for."""
    if where.stale:
        states -= FINAL_STATES
    return sorted(where.states & states if where.states else states)


def _conditions(where: Filter) -> tuple[tuple[str, ...], dict[str, Any]]:
    values: dict[str, Any] = {"tenant": where.tenant}
    clauses = []
    for name, clause in _CLAUSES.items():
        value = getattr(where, name)
        if value is not None:
            clauses.append(clause)
            values[name] = _quoted(value) if name == "tag" else value
    if where.created_after is not None:
        check_instant("created_after", where.created_after)
        values["first_id"] = first_id_at(where.created_after, shift=-SKEW)
    if where.created_before is not None:
        check_instant("created_before", where.created_before)
        values["last_id"] = first_id_at(where.created_before, shift=SKEW)
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
