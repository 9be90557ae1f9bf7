"""Recurring: schedules in the shape of jobs, for callers who know only jobs.

Such a job is scheduled, next for the next slot, and is never run itself: the jobs of its slots are. Listed with other
jobs they come by their ids, the newest first. As with ended jobs (history.py) a bounded number of rows is read: the
tenant's newest, and where these are not enough for a page, a short one says where to go on.
Schedules as they are, by name: schedules.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.errors import Contention, NotFound
from windlass.ids import first_id_at
from windlass.job import State
from windlass.queue import control, history, scheduledits, schedules, schedulewrites, views
from windlass.queue.control import Actor
from windlass.queue.defaults import Defaults, Given, filled, nothing_given
from windlass.queue.history import MAX_KEYS, MAX_PAGE, NEWEST, SKEW, Count, Filter, Job, Key, Keys, Page
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import check_instant
from windlass.queue.retry import policy_to_json
from windlass.queue.schedule import Reach
from windlass.queue.scheduledits import Deleted
from windlass.queue.schedulerows import Schedule, schedule_from
from windlass.queue.submit import store

SQL = load(__file__)

TRIES = 10
EXAMINED = 20_000
"""How many of a tenant's newest schedules a list looks at."""
_AS_IT_IS = (
    *("id", "tenant", "queue", "task", "payload", "headers", "paused", "priority", "max_attempts"),
    *("max_lost", "timeout_s", "defaults"),
)
"""Settings of a schedule that its jobs have under the same names."""
_CLAUSES = {
    "queue": "x.queue = :queue",
    "task": "x.task = :task",
    "tag": "replace(x.tags, :tag, '') <> x.tags",
    "schedule_id": "x.id = :schedule_id",
    "created_after": "x.created_at >= :created_after AND x.id >= :first_id",
    "created_before": "x.created_at < :created_before AND x.id < :last_id",
}


async def get(db: Statements, schedule_id: UUID, *, tenant: str) -> Job:
    """Return a schedule as a job; NotFound if the tenant has none with this id."""
    return as_job(await schedules.get(db, schedule_id, tenant=tenant))


async def find(db: Statements, where: Filter, *, limit: int = 100, cursor: UUID | None = None) -> Page:
    """Return up to `limit` jobs and schedules that match, newest first, from below `cursor` on, as many as fit."""
    jobs, planned, next_cursor = await _find_keys(db, where, limit=min(limit, MAX_PAGE), cursor=cursor)
    weights = dict.fromkeys(planned, 0) | dict(zip(jobs, await history.sizes(db, jobs), strict=False))
    rows = await db.fetch(SQL.sizes, ids=[key.id for key in planned]) if planned else []
    weights |= {Key(row["id"], None): row["bytes"] for row in rows}
    keys = sorted((*jobs, *planned), key=lambda key: key.id, reverse=True)
    # A job without a size lies behind jobs that fill the page.
    fit = keys[: views.fitting(weights.get(key, views.LIST_BYTES) for key in keys)]
    last = fit[-1].id if fit else NEWEST
    own = [key for key in jobs if key.id >= last]
    found, count = await history.read(db, where, own)
    if count < len(own):
        last = own[count - 1].id
    ids = [key.id for key in planned if key.id >= last]
    rows = await db.fetch(SQL.of_page, ids=ids, tenant=where.tenant) if ids else []
    found += [as_job(schedule_from(row)) for row in rows]
    return Page(sorted(found, key=_id, reverse=True), last if keys and last > keys[-1].id else next_cursor)


async def find_keys(db: Statements, where: Filter, *, limit: int, cursor: UUID | None = None) -> Keys:
    """Return where up to `limit` jobs and schedules lie that match, as `find` does."""
    jobs, planned, next_cursor = await _find_keys(db, where, limit=min(limit, MAX_KEYS), cursor=cursor)
    return Keys(sorted((*jobs, *planned), key=lambda key: key.id, reverse=True), next_cursor)


async def _find_keys(
    db: Statements, where: Filter, *, limit: int, cursor: UUID | None
) -> tuple[list[Key], list[Key], UUID | None]:
    """Return the keys of jobs, those of schedules, and where the next page begins."""
    jobs = await history.find_keys(db, where, limit=limit, cursor=cursor)
    planned = await _find_schedules(db, where, limit=limit, cursor=cursor or NEWEST)
    # Below the higher of the two cursors one of them has not been read.
    floors = [page.next_cursor for page in (jobs, planned) if page.next_cursor is not None]
    floor = max(floors, default=UUID(int=0))
    ids = sorted((key.id for page in (jobs, planned) for key in page.found if key.id >= floor), reverse=True)
    last = ids[limit - 1] if len(ids) > limit else floor
    own, others = ([key for key in page.found if key.id >= last] for page in (jobs, planned))
    return own, others, last if len(ids) > limit or floors else None


async def count(db: Statements, where: Filter) -> Count:
    """Return how many jobs and schedules match, up to 10,000 of each; if not exact, there are at least so many."""
    jobs = await history.count(db, where)
    if not _possible(where):
        return jobs
    clauses, values = _conditions(where)
    [row] = await db.fetch(SQL.matching.where(*clauses), examined=EXAMINED, **values)
    return Count(jobs.jobs + row["schedules"], jobs.exact and row["examined"] < EXAMINED)


async def cancel(
    db: Statements,
    lanes: Lanes,
    schedule_id: UUID,
    *,
    tenant: str,
    actor: Actor,
    reach: Reach | None = None,
    given: Given = nothing_given,
) -> Deleted:
    """Remove a schedule, as `scheduledits.delete`, and leave a cancelled job under its id in its place.

    So that who knows only jobs finds it cancelled, as long as ended jobs are kept.
    """
    for _ in range(TRIES):
        schedule = await schedules.get(db, schedule_id, tenant=tenant)
        job = schedule.definition.job(schedule_id)
        of_task = (await given({(tenant, job.task)})).get((tenant, job.task), Defaults())
        job = filled(job, of_task)
        places = await lanes.resolve(db, [job.lane])
        async with db.transaction(tracked=True) as transaction:
            found = await schedulewrites.lock(transaction, [schedule_id], tenant=tenant, reach=reach)
            if schedule_id not in found.by_id:
                raise NotFound(f"There is no schedule {schedule_id}.")
            if found.by_id[schedule_id].version != schedule.version:
                continue
            # It is ended before anybody can see it.
            await store(transaction, lanes, places, [job])
            was = as_job(schedule)
            await transaction.fetch(SQL.keep_created, id=job.id, created_at=was.created_at, due_at=was.scheduled_at)
            await transaction.fetch(control.SQL.cancel_queued, ids=[job.id], tenant=tenant, reason=actor.reason)
            await control.note_events(transaction, [job.id], "cancel_requested", actor)
            cancelled = await scheduledits.remove(transaction, [schedule_id], tenant=tenant, actor=actor)
        return Deleted(cancelled + await scheduledits.cancel_rest(db, [schedule_id], tenant=tenant, actor=actor))
    raise Contention(f"Schedule {schedule_id} is edited faster than it can be cancelled. Try again.")


def as_job(schedule: Schedule) -> Job:
    """Return a schedule in the shape of a job that is never claimed."""
    it = schedule.definition
    fields: dict[str, Any] = {
        **dict.fromkeys(Job.__struct_fields__),
        **dict.fromkeys(("attempt", "fence", "lost", "releases"), 0),
        **{name: getattr(it, name) for name in _AS_IT_IS},
        "state": State.SCHEDULED,
        "labels": ",".join(it.labels),
        "tags": list(it.tags),
        "retry": policy_to_json(it.retry),
        "run": 1,
        "schedule_id": it.id,
        "created_at": schedule.created_at,
        "scheduled_at": schedule.next_at or schedule.last_at or schedule.created_at,
        "next_run_at": schedule.next_at,
        "reason": None if schedule.pause is None else schedule.pause.reason,
        "held": False,
        "source": "schedule",
    }
    return Job(**fields)


async def _find_schedules(db: Statements, where: Filter, *, limit: int, cursor: UUID) -> Keys:
    if not _possible(where):
        return Keys([], None)
    clauses, values = _conditions(where)
    floors = await db.fetch(SQL.floor, tenant=where.tenant, cursor=cursor, examined=EXAMINED)
    floor: UUID | None = floors[0]["id"] if floors else None
    rows = await db.fetch(
        SQL.newest.where(*clauses), cursor=cursor, floor=floor or UUID(int=0), limit=limit + 1, **values
    )
    found = [Key(row["id"], None) for row in rows[:limit]]
    return Keys(found, found[-1].id if len(rows) > limit else floor)


async def read_clock(db: Statements) -> datetime:
    """Return the database's time, by which slots are due."""
    [row] = await db.fetch(SQL.read_clock)
    now: datetime = row["now_at"]
    return now


def _id(job: Job) -> UUID:
    return job.id


def _possible(where: Filter) -> bool:
    """Say whether a schedule, as a scheduled job that nobody ran, can match."""
    if where.states and State.SCHEDULED not in where.states:
        return False
    return not where.stale and where.worker is None and where.idempotency_key is None and where.flow_id is None


def _conditions(where: Filter) -> tuple[tuple[str, ...], dict[str, Any]]:
    values: dict[str, Any] = {"tenant": where.tenant}
    clauses = []
    for name, clause in _CLAUSES.items():
        value = getattr(where, name)
        if value is not None:
            clauses.append(clause)
            values[name] = msgspec.json.encode(value).decode() if name == "tag" else value
    if where.named_queue:
        clauses.append("x.defaults & 1 = 0")
    if where.created_after is not None:
        check_instant("created_after", where.created_after)
        values["first_id"] = first_id_at(where.created_after, shift=-SKEW)
    if where.created_before is not None:
        check_instant("created_before", where.created_before)
        values["last_id"] = first_id_at(where.created_before, shift=SKEW)
    return tuple(clauses), values
