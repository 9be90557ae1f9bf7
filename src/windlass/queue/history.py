"""History: what every job is, was and went through, until retention.

One job by its id, lists by combined filters in pages, counts, attempts, the timeline, and the report of a job.
Lists are keyset pages by id, newest first: the four places a job can lie in are asked for the ids of one page, by
index, and these are merged. Then as many jobs are read as fit into one answer, by their sizes; no more are held.
Filters are clauses from a fixed table; values are always parameters.
A job is looked for among the newest of all tenants, and if the tenant's are rare there, by its own lanes.
Either way a bounded number of rows is read: where that is not enough for a page, a short one says where to go on.
A count goes by the tenant's lanes alone: what others have does not change it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from windlass.db import Query, Row, Statements, load, union
from windlass.errors import InvalidInput, NotFound
from windlass.ids import first_id_at
from windlass.job import FINAL_STATES, State
from windlass.queue import views
from windlass.queue.attempts import AttemptCursor as AttemptCursor
from windlass.queue.attempts import AttemptFilter as AttemptFilter
from windlass.queue.attempts import AttemptPage as AttemptPage
from windlass.queue.attempts import find_attempts as find_attempts
from windlass.queue.newjob import check_instant
from windlass.queue.recent import JobEvent as JobEvent
from windlass.queue.recent import events_since as events_since
from windlass.queue.views import Attempt as Attempt
from windlass.queue.views import AttemptPlace as AttemptPlace
from windlass.queue.views import Event as Event
from windlass.queue.views import Job as Job
from windlass.queue.views import Slice as Slice
from windlass.queue.views import attempt_from_row
from windlass.queue.views import job_from_row as job_from_row
from windlass.queue.waits import Times, waits_of
from windlass.queue.waits import Waits as Waits

SQL = load(__file__)

MAX_PAGE = 500
MAX_KEYS = 20 * MAX_PAGE
"""How many jobs one look passes over, for a page by its number."""
MAX_COUNT = 10_000
EXAMINED = 20_000
"""How many of the newest jobs of a place, of all tenants, a list looks at before it goes by the tenant's lanes."""
FEW_ROWS = 1000
"""A tenant that has fewer jobs than this in a place has all of them looked at, by its lanes."""
OWN_ROWS = 100_000
"""How many jobs of its own a tenant may have in a place to be listed by its lanes; one with more is dense among all."""
SKEW = timedelta(hours=1)
"""How far the time that an id tells may be from when the job was created. Ids from an outbox may be further off."""
FIRST_PORTION = 8
"""Jobs that are read before their sizes are known: each has a payload, a result and an error at most."""
NEWEST = UUID(int=2**128 - 1)
MAX_ENDINGS = 20
BEFORE_ALL = AttemptPlace(-1, 0, 0)
"""Below every fence: a job that was never claimed has 0."""
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


class Key(NamedTuple):
    """Where a list found a job."""

    id: UUID
    finished_at: datetime | None
    """Of one that lies in `done`: in which day."""


class Keys(msgspec.Struct, frozen=True):
    """Where the jobs of a page lie, newest first, and where the next one begins; None on the last."""

    found: list[Key]
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
    timeline: Slice[Event, int]
    attempts: Slice[Attempt, AttemptPlace]
    waits: Waits
    metrics: str | None


_OF_JOB = "(SELECT {} FROM job AS j WHERE j.id = v.id)"
_CLAUSES = {
    "id": "v.id = :id",
    "queue": "v.queue = :queue",
    "task": "v.task = :task",
    "worker": "v.worker = :worker",
    "idempotency_key": _OF_JOB.format("j.idempotency_key = :idempotency_key"),
    # Tags are a JSON array of strings, so a quoted tag stands in it or it does not.
    "tag": _OF_JOB.format("replace(j.tags, :tag, '') <> j.tags"),
    "schedule_id": _OF_JOB.format("j.schedule_id = :schedule_id"),
    "flow_id": _OF_JOB.format("j.flow_id = :flow_id"),
    "created_after": "v.id >= :first_id AND " + _OF_JOB.format("j.created_at >= :created_after"),
    "created_before": "v.id < :last_id AND " + _OF_JOB.format("j.created_at < :created_before"),
}
_TIMED = frozenset({State.SCHEDULED, State.SLEEPING})
_QUEUED = frozenset(State) - FINAL_STATES - _TIMED
_DONE, _DEAD = FINAL_STATES - {State.DEAD}, frozenset({State.DEAD})


class _Place(NamedTuple):
    """One of the places that jobs lie in, and how it is asked."""

    table: str
    states: frozenset[State]
    floor: Query
    near: Query
    own: Query

    @property
    def is_live(self) -> bool:
        """Whether jobs lie here that have not ended."""
        return not self.states & FINAL_STATES


_IN_TIMER = _Place("timer", _TIMED, SQL.floor_timed, SQL.list_timed, SQL.own_timed)
_IN_QUEUE = _Place("queue", _QUEUED, SQL.floor_queued, SQL.list_queued, SQL.own_queued)
_IN_DONE = _Place("done", _DONE, SQL.floor_done, SQL.list_done, SQL.own_done)
_IN_DEAD = _Place("dead", _DEAD, SQL.floor_dead, SQL.list_dead, SQL.own_dead)
PLACES = (_IN_TIMER, _IN_QUEUE, _IN_DONE, _IN_DEAD)
"""In the order in which a job goes forward."""


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
    """Return up to `limit` jobs that match, newest first, from below `cursor` on, as many as fit into one answer.

    All places where the tenant has few jobs are looked through at one instant. Where it has more, a place is looked
    through by itself, and if these have not ended, so is each after it, timers last: a job that goes forward meanwhile,
    or back to wait for its next attempt, is listed once, as it was read last. One that goes back otherwise (another run
    of a finished job) may then be missing from this page, and one that changes between a state asked for and another
    may be listed or not. A page with a cursor may be short or empty where the filters match few of very many jobs.
    """
    keys = await find_keys(db, where, limit=min(limit, MAX_PAGE), cursor=cursor)
    jobs, count = await read(db, where, keys.found[: views.fitting(await sizes(db, keys.found))])
    return Page(jobs, keys.found[count - 1].id if count < len(keys.found) else keys.next_cursor)


async def find_keys(db: Statements, where: Filter, *, limit: int, cursor: UUID | None = None) -> Keys:
    """Return where up to `limit` jobs lie that match, as `find` does; nothing of the jobs themselves is read."""
    reading = _Reading(db, where, max(1, min(limit, MAX_KEYS)), cursor or NEWEST)
    dense = places = await reading.look_at(PLACES)
    if any(place.is_live for place in dense):
        # What lies there goes on meanwhile, or back to timers for another attempt.
        places = [*PLACES[PLACES.index(dense[0]) :], _IN_TIMER]
    for place in places:
        if place in dense or await reading.look_at([place]):
            await reading.look_far(place)
    return reading.keys()


async def sizes(db: Statements, keys: Sequence[Key]) -> list[int]:
    """Return how many bytes a list shows of each of the first of these jobs: of all that fit into one answer at least.

    SQLite reads a text to tell its size, so the jobs are looked at in portions, and none beyond a full answer.
    """
    found: list[int] = []
    portion = FIRST_PORTION
    while len(found) < len(keys) and sum(found) <= views.LIST_BYTES:
        asked = keys[len(found) : len(found) + portion]
        by_id = {row["id"]: row["bytes"] for row in await db.fetch(SQL.sizes, jobs=asked)}
        found += [by_id.get(key.id, 0) for key in asked]
        portion *= 4
    return found


async def read(db: Statements, where: Filter, keys: Sequence[Key]) -> tuple[list[Job], int]:
    """Return the jobs of these keys, in order, and how many of the keys were read.

    Left out are jobs that have left the states asked for since. Jobs that have ended since may be larger than they were
    when their sizes were read: if they are too large together, the last keys are not read.
    """
    rows = {row["id"]: row for row in await db.fetch(SQL.of_page, jobs=keys, tenant=where.tenant)} if keys else {}
    moved = [key.id for key in keys if key.id not in rows]
    grown = 0
    while moved and grown <= views.LIST_BYTES:
        asked, moved = moved[:FIRST_PORTION], moved[FIRST_PORTION:]
        found = await db.fetch(SQL.wherever, ids=asked, tenant=where.tenant)
        rows |= {row["id"]: row for row in found}
        grown += sum(len(row[name] or "") for row in found for name in ("payload", "result", "error"))
    if moved:
        keys = keys[: [key.id for key in keys].index(moved[0])]
    jobs = [job_from_row(rows[key.id]) for key in keys if key.id in rows]
    return [job for job in jobs if not where.states or job.state in where.states], len(keys)


async def count(db: Statements, where: Filter, *, examined: int = EXAMINED) -> Count:
    """Return how many jobs match, up to 10,000; a bounded number of rows is looked at, so it may be more."""
    places, asked = _asked(where, PLACES)
    if not places:
        return Count(0, True)
    clauses, values = _conditions(where)
    rows = await db.fetch(
        union(*[place.own for place in places]).where(*clauses),
        floor=NEWEST,
        examined=examined,
        limit=1,
        **asked,
        **values,
    )
    jobs = sum(row["jobs"] for row in rows)
    return Count(min(jobs, MAX_COUNT), jobs <= MAX_COUNT and all(row["examined"] < examined for row in rows))


async def attempts(
    db: Statements, job_id: UUID, *, tenant: str, after: AttemptPlace = BEFORE_ALL, limit: int = views.MAX_OF_JOB
) -> Slice[Attempt, AttemptPlace]:
    """Return the ended attempts of a job after a place, oldest first, as many as fit; NotFound as in `get`."""
    await get(db, job_id, tenant=tenant)
    return await _attempts(db, job_id, after=after, limit=limit)


async def timeline(
    db: Statements, job_id: UUID, *, tenant: str, skip: int = 0, limit: int = views.MAX_OF_JOB
) -> Slice[Event, int]:
    """Return what happened to a job, in order, without the first `skip`; NotFound as in `get`."""
    await get(db, job_id, tenant=tenant)
    return await events_of(db, job_id, skip=skip, limit=limit)


async def events_of(db: Statements, job_id: UUID, *, skip: int = 0, limit: int = views.MAX_OF_JOB) -> Slice[Event, int]:
    """Return what happened to a job or a schedule that the caller has found, in order, without the first `skip`."""
    rows = await db.fetch(SQL.timeline, id=job_id, skip=skip, limit=limit + 1, longest=views.LONGEST_DETAIL)
    events = [Event(row["happened_at"], row["kind"], row["worker"], row["detail"], row["actor"]) for row in rows]
    return Slice(events[:limit], skip + limit if len(events) > limit else None)


async def report(db: Statements, job_id: UUID, *, tenant: str) -> Report:
    """Return the report of a job, of one that has not ended as far as it has come; NotFound as in `get`."""
    job = await get(db, job_id, tenant=tenant)
    times = await db.fetch(SQL.attempt_times, id=job_id, limit=EXAMINED)
    return Report(
        job=job,
        outcome=job.state if job.state in FINAL_STATES else None,
        timeline=await events_of(db, job_id),
        attempts=await _attempts(db, job_id, after=BEFORE_ALL, limit=views.MAX_OF_JOB),
        waits=waits_of(job, [Times(**row) for row in times]),
        metrics=job.metrics,
    )


async def _attempts(db: Statements, job_id: UUID, *, after: AttemptPlace, limit: int) -> Slice[Attempt, AttemptPlace]:
    rows = await db.fetch(SQL.attempts, id=job_id, **after._asdict(), limit=limit, most=views.LIST_BYTES)
    found = [attempt_from_row(row) for row in rows]
    if not rows or not rows[0]["more"]:
        return Slice(found, None)
    last = found[-1]
    return Slice(found, AttemptPlace(last.fence, last.run, int(last.session is None)))


class _Reading:
    """One list being looked through, place by place."""

    def __init__(self, db: Statements, where: Filter, limit: int, cursor: UUID) -> None:
        self._db = db
        self._where = where
        self._limit = limit
        self._cursor = cursor
        self._clauses, self._values = _conditions(where)
        self._found: dict[UUID, Key] = {}
        self._floors: list[UUID] = []

    async def look_at(self, places: Sequence[_Place]) -> list[_Place]:
        """Look through all places where the tenant has little: others' jobs cost it nothing. Return the others."""
        places, asked = _asked(self._where, places)
        if not places:
            return []
        own = union(*[place.own for place in places])
        rows = await self._fetch(own, floor=self._cursor, examined=FEW_ROWS, **asked)
        dense = {row["place"] for row in rows if row["examined"] >= FEW_ROWS}
        return [place for place in places if place.table in dense]

    async def look_far(self, place: _Place) -> None:
        """Look for a page among the newest jobs of the place, and if these are too few, by the tenant's lanes."""
        _, asked = _asked(self._where, [place])
        floors = await self._db.fetch(place.floor, cursor=self._cursor, examined=EXAMINED)
        floor: UUID = floors[0]["id"] if floors else UUID(int=0)
        rows = await self._fetch(place.near, cursor=self._cursor, floor=floor, **asked)
        if len(rows) > self._limit or not floors:
            return
        [first, *_] = await self._fetch(place.own, floor=floor, examined=OWN_ROWS, **asked)
        if first["examined"] >= OWN_ROWS:
            self._floors.append(floor)

    def keys(self) -> Keys:
        """Return the page: what was found down to where every place was looked through."""
        floor = max(self._floors, default=UUID(int=0))
        ids = sorted((job_id for job_id in self._found if job_id >= floor), reverse=True)
        found = [self._found[job_id] for job_id in ids[: self._limit]]
        if len(ids) > self._limit:
            return Keys(found, found[-1].id)
        return Keys(found, floor if self._floors else None)

    async def _fetch(self, query: Query, **more: Any) -> list[Row]:
        rows = await self._db.fetch(query.where(*self._clauses), limit=self._limit + 1, **self._values, **more)
        self._found.update((row["id"], Key(row["id"], row["finished_at"])) for row in rows if row["id"] is not None)
        return rows


def _asked(where: Filter, places: Sequence[_Place]) -> tuple[list[_Place], dict[str, Any]]:
    """Return which of the places may have what is asked for, the states there, and of live ones whether stale."""
    wanted = where.states or frozenset(State)
    asked = [place for place in places if wanted & place.states and (place.is_live or not where.stale)]
    states = sorted(state for place in asked for state in wanted & place.states)
    return asked, {"states": states, **({"stale": int(where.stale)} if any(place.is_live for place in asked) else {})}


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
