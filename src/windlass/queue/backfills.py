"""Backfills: the slots of a past range get their jobs, in order, a few at a time.

A slot runs once, whoever made its job: what has a job already is left alone, by the same row that guards firing
(firing.py). A slot that was skipped (missed, paused, overlapped) may be made up for: its row is decided anew, once, and
one that stands for several slots goes on standing for the others (stretches.py).
How far a backfill is, the rows of its slots and their jobs are written together: a server that dies in between leaves
all or none, and of two servers one moves it on. The series is not touched: when the schedule fires next, which run is
its last, and whether the next one overlaps are as they were. A paused schedule is backfilled all the same.
Its jobs are due when they are made, so that they count as late for nobody, and have no start deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.db.partitions import make_days
from windlass.errors import Contention, InvalidInput, InvalidSchedule, NotFound
from windlass.ids import Ids
from windlass.queue import control, stretches
from windlass.queue.control import Actor
from windlass.queue.cron import Cron, Every, Series
from windlass.queue.defaults import OPEN, Defaults, Given, filled, nothing_given
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob, check_instant, check_range, storable
from windlass.queue.schedule import NewSchedule
from windlass.queue.schedulerows import Schedule, definition_from, series_of
from windlass.queue.schedulewrites import Each, Turn, in_thread
from windlass.queue.submit import Submitted, store

SQL = load(__file__)

MAX_SLOTS = 100_000
MAX_DAYS = 400
"""On so many days its slots may lie: on PostgreSQL each day of history is a table."""
MAX_CONCURRENCY = 1000
WALKED = 500
"""So many slots of a long range are counted at once."""
BATCH = 200
"""So many slots are looked at in one step."""
LOOK_BATCH = 50
TRIES = 10
FIRST_ID = UUID(int=0)
INSTANT = timedelta(microseconds=1)
"""The least time between two instants."""

Status = Literal["running", "done", "stopped"]
_STATUSES: tuple[Status, ...] = ("running", "done", "stopped")
_DONE, _STOPPED = 1, 2


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """A past range of slots that is run: from `since_at` on, before `until_at`."""

    id: UUID
    tenant: str
    schedule_id: UUID
    since_at: datetime
    until_at: datetime
    cursor_at: datetime
    """The last slot dealt with; before the first one an instant before `since_at`."""
    concurrency: int
    """How many of its jobs live at a time."""
    status: Status
    made_count: int
    known_count: int
    """Slots that had a job already."""
    actor: str | None
    reason: str | None
    created_at: datetime
    ended_at: datetime | None


class Advanced(msgspec.Struct, frozen=True, kw_only=True):
    """What one step did for a backfill, and whether there is more to do at once."""

    jobs: Sequence[NewJob] = ()
    made: Sequence[Submitted] = ()
    """What became of each of the jobs."""
    known_count: int = 0
    more: bool = False
    ended: bool = False


class Stopped(msgspec.Struct, frozen=True):
    """A backfill that makes no more jobs, and those of its jobs that were cancelled."""

    backfill: Backfill
    cancelled: list[UUID]


async def start(
    db: Statements,
    ids: Ids,
    schedule: Schedule,
    *,
    since: datetime,
    until: datetime,
    concurrency: int = 1,
    keep_days: int = 0,
    actor: Actor,
    each: Each = in_thread,
    turn: Turn = nullcontext,
) -> Backfill:
    """Store a backfill of the slots from `since` on, before `until`; InvalidInput if they are too many or too old.

    History is kept for `keep_days` (0: for ever): of older slots nobody knows which have run.
    NotFound if the schedule is gone meanwhile.
    """
    check_range("concurrency", concurrency, 1, MAX_CONCURRENCY)
    [clock] = await db.fetch(SQL.clock)
    _check_times(since, until, now=clock["now_at"], keep_days=keep_days)
    slots = schedule.series()
    if slots is None:
        raise InvalidSchedule("since", f"Schedule {schedule.definition.name!r} is run by hand: it has no slots.")
    await _check_range(schedule.definition, slots, since, until, each)
    async with turn():
        rows = await db.fetch(
            SQL.start,
            id=ids.new(),
            schedule_id=schedule.id,
            tenant=schedule.definition.tenant,
            since_at=since.astimezone(UTC),
            until_at=until.astimezone(UTC),
            cursor_at=since.astimezone(UTC) - INSTANT,
            concurrency=concurrency,
            actor=actor.name,
            reason=actor.reason,
        )
    if not rows:
        raise NotFound(f"There is no schedule {schedule.id}.")
    return _backfill(rows[0])


def _check_times(since: datetime, until: datetime, *, now: datetime, keep_days: int) -> None:
    """Raise InvalidInput if a range is none, lies ahead, or begins before history does."""
    check_instant("since", since)
    check_instant("until", until)
    if until <= since:
        raise InvalidInput("until", f"{until.isoformat()} is not later than since, {since.isoformat()}. Exchange them.")
    if until > now:
        raise InvalidInput("until", f"{until.isoformat()} lies ahead: the schedule itself runs what is to come.")
    if keep_days and since < now - timedelta(days=keep_days):
        raise InvalidInput(
            "since",
            f"{since.isoformat()} is more than {keep_days} days ago (retention.days): which slots have run since is "
            "known no more, and none may run twice. Begin later, or raise that setting in time.",
        )


async def _check_range(definition: NewSchedule, slots: Series, since: datetime, until: datetime, each: Each) -> None:
    """Raise InvalidInput if too many slots lie in the range; they are walked in portions."""
    span = until - since
    if span <= _least_step(definition) * MAX_SLOTS and span <= timedelta(days=MAX_DAYS):
        return
    count, days, walked = 0, set[date](), since - INSTANT
    while True:
        [found] = await each(lambda after: slots.between(after, until - INSTANT, limit=WALKED), [walked], field="since")
        count += len(found)
        days.update(slot.date() for slot in found)
        if count > MAX_SLOTS:
            raise InvalidInput("since", f"More than {MAX_SLOTS} slots lie in this range. Backfill it in parts.")
        if len(days) > MAX_DAYS:
            raise InvalidInput("since", f"Its slots lie on more than {MAX_DAYS} days. Backfill it in parts.")
        if len(found) < WALKED:
            return
        walked = found[-1]


def _least_step(definition: NewSchedule) -> timedelta:
    """Return a time that surely lies between two slots."""
    match definition.trigger:
        case Every(every_s):
            return timedelta(seconds=every_s)
        case Cron(expression) if len(expression.split()) <= 5:
            return timedelta(minutes=1)
    return timedelta(seconds=1)


async def get(db: Statements, backfill_id: UUID, *, tenant: str) -> Backfill:
    """Return a backfill; NotFound if it is unknown, another tenant's, or its schedule was deleted."""
    rows = await db.fetch(SQL.get, id=backfill_id, tenant=tenant)
    if not rows:
        raise NotFound(f"There is no backfill {backfill_id}.")
    return _backfill(rows[0])


async def find(db: Statements, schedule_id: UUID, *, tenant: str, limit: int = 100) -> list[Backfill]:
    """Return the backfills of a schedule, newest first."""
    rows = await db.fetch(SQL.of_schedule, schedule_id=schedule_id, tenant=tenant, limit=limit)
    return [_backfill(row) for row in rows]


async def under_way(db: Statements, *, after: UUID = FIRST_ID, limit: int = LOOK_BATCH) -> list[Backfill]:
    """Return backfills that have not ended, by their ids from after `after` on."""
    return [_backfill(row) for row in await db.fetch(SQL.under_way, after=after, limit=limit)]


async def stop(db: Statements, backfill_id: UUID, *, tenant: str, actor: Actor) -> Stopped:
    """Let a backfill make no more jobs, and cancel those that no worker has; one that has ended stays as it is."""
    async with db.transaction() as transaction:
        await get(transaction, backfill_id, tenant=tenant)
        # A step that is under way is waited for: its jobs are seen below.
        stopped = await transaction.fetch(
            SQL.finish, id=backfill_id, state=_STOPPED, cursor_at=None, reason=actor.reason
        )
        cancelled = await _cancel_waiting(transaction, backfill_id, tenant, actor) if stopped else []
        await transaction.fetch(SQL.drop_jobs, id=backfill_id)
        return Stopped(await get(transaction, backfill_id, tenant=tenant), cancelled)


async def _cancel_waiting(transaction: Statements, backfill_id: UUID, tenant: str, actor: Actor) -> list[UUID]:
    cancelled: list[UUID] = []
    for _ in range(TRIES):
        found = [row["job_id"] for row in await transaction.fetch(SQL.not_started, id=backfill_id)]
        if not found:
            return cancelled
        # What is claimed meanwhile goes on; what is promoted meanwhile is found by the next try.
        ended = [
            row["id"]
            for query in (control.SQL.cancel_queued, control.SQL.cancel_timed)
            for row in await transaction.fetch(query, ids=found, tenant=tenant, reason=actor.reason)
        ]
        await control.note_events(transaction, ended, "cancel_requested", actor)
        cancelled += ended
    raise Contention(f"Jobs of backfill {backfill_id} move faster than they can be cancelled. Try again.")


async def forget(transaction: Statements, schedule_ids: Sequence[UUID]) -> None:
    """Remove the backfills of schedules that are being deleted."""
    await transaction.fetch(SQL.forget, ids=list(schedule_ids))


async def advance(
    db: Statements, lanes: Lanes, ids: Ids, *, backfill: Backfill, given: Given = nothing_given
) -> Advanced:
    """Make the next jobs of a backfill, as many as may live beside those that do, or end it; nothing if it moved on."""
    found = await db.fetch(SQL.definition, id=backfill.schedule_id)
    if not found:
        return await give_up(db, backfill, reason="Its schedule was deleted.")
    schedule = definition_from(found[0])
    slots = series_of(schedule, found[0]["base_at"])
    [jobs] = await db.fetch(SQL.drop_ended, id=backfill.id)
    room = backfill.concurrency - jobs["live"]
    if room < 1:
        return Advanced()
    ahead = [] if slots is None else slots.between(backfill.cursor_at, backfill.until_at - INSTANT, limit=BATCH)
    if slots is None or not ahead:
        return Advanced() if jobs["live"] else await _end(db, backfill, _DONE, None)
    known = {row["slot_at"] for row in await _known(db, backfill, ahead)}
    taken = _first(ahead, known, room=room)
    fresh = [slot for slot in taken if slot not in known]
    of_task = (await given({(schedule.tenant, schedule.task)})).get((schedule.tenant, schedule.task), Defaults())
    made = [filled(_job(schedule, ids.new(), slot), of_task) for slot in fresh]
    places = await lanes.resolve(db, {job.lane for job in made})
    narrowed = await stretches.touched(db, slots, backfill.schedule_id, taken=fresh, since=backfill.since_at)
    await make_days(db, "schedule_runs", [*fresh, *(stretch.left_until for stretch in narrowed)])
    async with db.transaction() as transaction:
        locked = await transaction.fetch(SQL.lock_schedule, id=backfill.schedule_id)
        # Edited or deleted since it was read: the next step sees it as it is then.
        if not locked or locked[0]["version"] != found[0]["version"]:
            return Advanced(more=True)
        if not await transaction.fetch(SQL.lock_backfill, id=backfill.id, cursor_at=backfill.cursor_at):
            return Advanced()
        await stretches.narrow(transaction, backfill.schedule_id, narrowed)
        decided = await _decide(transaction, backfill, made)
        stored = await store(transaction, lanes, places, decided)
        if decided:
            await transaction.fetch(SQL.keep_jobs, id=backfill.id, ids=[job.id for job in decided])
        await transaction.fetch(
            SQL.go_on,
            id=backfill.id,
            cursor_at=backfill.cursor_at,
            reached_at=taken[-1],
            made=len(decided),
            known=len(taken) - len(decided),
        )
    return Advanced(
        jobs=decided,
        made=[stored[job.id] for job in decided],
        known_count=len(taken) - len(decided),
        more=len(decided) < room,
    )


async def give_up(db: Statements, backfill: Backfill, *, reason: str) -> Advanced:
    """Stop a backfill that cannot go on; its jobs do."""
    return await _end(db, backfill, _STOPPED, storable(reason))


def _first(slots: Sequence[datetime], known: set[datetime], *, room: int) -> list[datetime]:
    """Return the first slots, as far as `room` of them need a job, and what is known in between."""
    taken: list[datetime] = []
    for slot in slots:
        room -= slot not in known
        if room < 0:
            break
        taken.append(slot)
    return taken


def _job(schedule: NewSchedule, job_id: UUID, slot_at: datetime) -> NewJob:
    job = schedule.job(job_id, slot_at=slot_at)
    # A start deadline counts from the slot, and that is long gone.
    return msgspec.structs.replace(job, run_at=None, start_by=None, defaults=job.defaults & ~OPEN["start_deadline"])


async def _known(db: Statements, backfill: Backfill, slots: Sequence[datetime]) -> list[Row]:
    return await db.fetch(SQL.known, schedule_id=backfill.schedule_id, slots=[(slot,) for slot in slots])


async def _decide(transaction: Statements, backfill: Backfill, jobs: Sequence[NewJob]) -> list[NewJob]:
    """Decide the slots of jobs; return the jobs whose slot had none."""
    if not jobs:
        return []
    slots = [(job.slot_at, job.id) for job in jobs]
    rows = await transaction.fetch(SQL.decide, schedule_id=backfill.schedule_id, slots=slots)
    decided = {row["slot_at"] for row in rows}
    return [job for job in jobs if job.slot_at in decided]


async def _end(db: Statements, backfill: Backfill, state: int, reason: str | None) -> Advanced:
    async with db.transaction() as transaction:
        ended = await transaction.fetch(
            SQL.finish, id=backfill.id, state=state, cursor_at=backfill.cursor_at, reason=reason
        )
        if ended:
            await transaction.fetch(SQL.drop_jobs, id=backfill.id)
    return Advanced(ended=bool(ended))


def _backfill(row: Row) -> Backfill:
    columns = {name: value for name, value in row.items() if name != "state"}
    return Backfill(**columns, status=_STATUSES[row["state"]])
