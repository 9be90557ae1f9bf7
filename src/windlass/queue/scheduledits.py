"""What people do to a schedule: edit, pause, resume, delete, run it now.

Each locks the schedule and where it stands, looks, decides (cursor.py) and writes (schedulewrites.py), in one
transaction: a slot fires before the act or after it, never by half. An edit that changes when it runs leaves slots of
the old times that are due and not fired: they are written down as missed. A job made by hand stands beside the series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from windlass import log
from windlass.db import Statements, load
from windlass.errors import AlreadyExists, Conflict, Contention, Forbidden, NotFound, Unavailable
from windlass.ids import Ids
from windlass.queue import backfills, control, cursor, schedulewrites
from windlass.queue.control import Actor
from windlass.queue.cron import check_trigger
from windlass.queue.defaults import OPEN, Defaults, Given, filled, nothing_given
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob, check_instant, validate
from windlass.queue.schedule import Decision, NewSchedule, Reach, check_schedule
from windlass.queue.schedulerows import Schedule, schedule_from
from windlass.queue.schedules import SQL as SCHEDULES
from windlass.queue.schedules import get, name_taken
from windlass.queue.schedulewrites import SQL as WRITES
from windlass.queue.submit import Submitted, store

SQL = load(__file__)

TRIES = 10
LOOKED_AT_ONCE = 2000
"""So many jobs of deleted schedules are looked at in one transaction, the newest first; older ones in the next."""
PURGED_AT_ONCE = 1000
NEWEST = UUID(int=2**128 - 1)
RESUMED_AT_ONCE = 1000
PUT_OFF_MS = 600_000
"""The end of a pause that cannot be ended is put off for so long."""


class Deleted(msgspec.Struct, frozen=True):
    """What went with a schedule: jobs that were cancelled, and how many ended ones were purged."""

    cancelled: list[UUID]
    purged_count: int = 0


async def edit(
    db: Statements,
    schedule_id: UUID,
    definition: NewSchedule,
    *,
    tenant: str,
    actor: Actor,
    version: int | None = None,
    reach: Reach | None = None,
) -> Schedule:
    """Give a schedule another definition and return it; Conflict if it is not of this `version` any more.

    As in every act here, Forbidden if it is out of the caller's reach.

    If its times stay the same its series goes on where it stands. If they change, the new ones count from now on: slots
    of the old times that were due and had not fired do not fire any more. A definition that is paused, or not, pauses
    or resumes it.
    """
    becomes = msgspec.structs.replace(definition, id=schedule_id, tenant=tenant)
    check_schedule(becomes)
    try:
        async with db.transaction(tracked=True) as transaction:
            was, now = await _locked(transaction, schedule_id, tenant, reach)
            if version not in (None, was.version):
                raise Conflict(
                    f'Schedule "{was.definition.name}" is of version {was.version} now, not {version}: '
                    "somebody changed it. Look at it, and edit again."
                )
            change = schedulewrites.changed(was, becomes, now=now)
            if change.becomes == was.definition:
                return was
            if becomes.name != was.definition.name and await transaction.fetch(
                SCHEDULES.ids_of_names, names=[(tenant, becomes.name)]
            ):
                raise name_taken(becomes.name)
            await schedulewrites.change(transaction, [change], now=now, actor=actor)
            return await _look(transaction, schedule_id, tenant)
    except AlreadyExists:  # a rival took the name after we had looked
        raise name_taken(becomes.name) from None


async def pause(
    db: Statements,
    schedule_id: UUID,
    *,
    tenant: str,
    actor: Actor,
    until: datetime | None = None,
    reach: Reach | None = None,
) -> Schedule:
    """Let a schedule make no jobs, those it has made go on; return it. Slots that were due and had not fired go too.

    One that is paused already gets the new reason and end.
    """
    check_instant("until", until)
    async with db.transaction(tracked=True) as transaction:
        was, now = await _locked(transaction, schedule_id, tenant, reach)
        if was.definition.paused:
            await schedulewrites.keep_pauses(transaction, [was.definition], now=now, actor=actor, until=until)
        else:
            becomes = msgspec.structs.replace(was.definition, paused=True)
            change = schedulewrites.moved(was, becomes, cursor.paused(was, now=now))
            await schedulewrites.change(transaction, [change], now=now, actor=actor, until=until)
        await control.note_events(transaction, [schedule_id], "paused", actor)
        return await _look(transaction, schedule_id, tenant)


async def resume(
    db: Statements, schedule_id: UUID, *, tenant: str, actor: Actor, reach: Reach | None = None
) -> Schedule:
    """Let a schedule make jobs again, from its next slot on, and return it; what passed meanwhile is written down."""
    async with db.transaction(tracked=True) as transaction:
        was, now = await _locked(transaction, schedule_id, tenant, reach)
        if not was.definition.paused:
            return was
        await _resume(transaction, was, now, actor)
        return await _look(transaction, schedule_id, tenant)


async def resume_over(db: Statements, *, limit: int = RESUMED_AT_ONCE) -> int:
    """Resume schedules whose pause has an end that has come; return how many. One that a rival holds is left.

    One that cannot be resumed, as its zone is not known any more, keeps nobody waiting: it is tried again later.
    """
    resumed = 0
    for row in await db.fetch(SQL.schedule_pauses_over, limit=limit):
        try:
            async with db.transaction(tracked=True) as transaction:
                resumed += await _resume_over(transaction, UUID(row["name"]), row["tenant"])
        except Contention:
            continue
        except Unavailable:  # the database, not the schedule
            raise
        except Exception as error:
            log.event("schedule.broken", schedule=row["name"], error=error)
            await db.fetch(SQL.put_off_pause, tenant=row["tenant"], name=row["name"], ms=PUT_OFF_MS)
    return resumed


async def _resume_over(transaction: Statements, schedule_id: UUID, tenant: str) -> bool:
    found = await schedulewrites.lock(transaction, [schedule_id], tenant=tenant)
    was = found.by_id.get(schedule_id)
    # A pause that was prolonged since it was read is not over.
    over = await transaction.fetch(control.SQL.drop_pause_over, kind="schedule", tenant=tenant, name=str(schedule_id))
    if was is None or found.now is None or not over:
        return False
    await _resume(transaction, was, found.now, Actor(reason="The pause is over."))
    return True


async def delete(
    db: Statements,
    schedule_id: UUID,
    *,
    tenant: str,
    actor: Actor,
    purge: bool = False,
    reach: Reach | None = None,
) -> Deleted:
    """Remove a schedule and cancel its jobs that no worker has; those that run go on.

    What became of its slots stays until retention; with `purge` it goes too, with the jobs that have ended.
    """
    async with db.transaction(tracked=True) as transaction:
        await _locked(transaction, schedule_id, tenant, reach)
        cancelled = await remove(transaction, [schedule_id], tenant=tenant, actor=actor)
    cancelled += await cancel_rest(db, [schedule_id], tenant=tenant, actor=actor)
    return Deleted(cancelled, await _purge(db, schedule_id) if purge else 0)


async def remove(transaction: Statements, ids: Sequence[UUID], *, tenant: str, actor: Actor) -> list[UUID]:
    """Remove schedules that are locked, with what they wait for and expect; return the jobs that were cancelled.

    If there are many jobs only the newest are looked at: `cancel_rest` follows after the commit.
    """
    await backfills.forget(transaction, ids)
    await transaction.fetch(SQL.remove_schedules, ids=list(ids))
    await transaction.fetch(WRITES.drop_schedule_pauses, pauses=[(tenant, str(found)) for found in ids])
    cancelled, _ = await _cancel_some(transaction, dict.fromkeys(ids, NEWEST), tenant, actor)
    return cancelled


async def cancel_rest(db: Statements, ids: Sequence[UUID], *, tenant: str, actor: Actor) -> list[UUID]:
    """Cancel what is left of the jobs of removed schedules; return them."""
    cancelled: list[UUID] = []
    below = dict.fromkeys(ids, NEWEST)
    while below:
        async with db.transaction() as transaction:
            some, below = await _cancel_some(transaction, below, tenant, actor)
        cancelled += some
    return cancelled


async def run_now(
    db: Statements,
    lanes: Lanes,
    ids: Ids,
    schedule_id: UUID,
    *,
    tenant: str,
    actor: Actor,
    payload: str | None = None,
    reach: Reach | None = None,
    given: Given = nothing_given,
) -> Submitted:
    """Make a job of a schedule now, beside its series, with its own payload unless another is given."""
    for _ in range(TRIES):
        schedule = await get(db, schedule_id, tenant=tenant)
        job = schedule.definition.job(ids.new())
        job = job if payload is None else msgspec.structs.replace(job, payload=payload)
        of_task = (await given({(tenant, job.task)})).get((tenant, job.task), Defaults())
        job = filled(job, of_task)
        validate([job])
        places = await lanes.resolve(db, [job.lane])
        async with db.transaction(tracked=True) as transaction:
            was, now = await _locked(transaction, schedule_id, tenant, reach)
            if was.version != schedule.version:
                continue
            if reach is not None and job.queue not in reach.queues:  # its task has moved meanwhile
                raise Forbidden(f"Jobs of schedule {schedule_id} go to a queue that this key is not for.")
            within_s: float | None = was.definition.policy.start_within_s
            if within_s is None and job.defaults & OPEN["start_deadline"]:
                within_s = of_task.start_within_s
            if within_s is not None:
                job = msgspec.structs.replace(job, start_by=now + timedelta(seconds=within_s))
            await _record_manual(transaction, job, now, actor)
            return (await store(transaction, lanes, places, [job]))[job.id]
    raise Contention(f"Schedule {schedule_id} is edited faster than it can be run. Try again.")


async def _record_manual(transaction: Statements, job: NewJob, now: datetime, actor: Actor) -> None:
    for later_us in range(TRIES * 100):
        at = now + timedelta(microseconds=later_us)
        # Slots are whole seconds: a row there would keep the slot of this second from its job.
        if at.microsecond == 0:
            continue
        row = (job.schedule_id, at, int(Decision.MANUAL), job.id, 1, None, actor.reason)
        if await transaction.fetch(WRITES.record_slots, slots=[row]):
            return
    raise Contention(f"Schedule {job.schedule_id} is run by hand too often at this instant. Try again.")


async def _locked(
    transaction: Statements, schedule_id: UUID, tenant: str, reach: Reach | None
) -> tuple[Schedule, datetime]:
    found = await schedulewrites.lock(transaction, [schedule_id], tenant=tenant, reach=reach)
    if found.now is None:
        raise NotFound(f"There is no schedule {schedule_id}.")
    return found.by_id[schedule_id], found.now


async def _look(transaction: Statements, schedule_id: UUID, tenant: str) -> Schedule:
    [row] = await transaction.fetch(WRITES.schedules_now, ids=[schedule_id], tenant=tenant)
    return schedule_from(row)


async def _resume(transaction: Statements, was: Schedule, now: datetime, actor: Actor) -> None:
    check_trigger(was.definition.trigger)
    becomes = msgspec.structs.replace(was.definition, paused=False)
    change = schedulewrites.moved(was, becomes, cursor.resumed(was, now=now))
    await schedulewrites.change(transaction, [change], now=now, actor=actor)
    await control.note_events(transaction, [was.id], "resumed", actor)


async def _cancel_some(
    transaction: Statements, below: Mapping[UUID, UUID], tenant: str, actor: Actor
) -> tuple[list[UUID], dict[UUID, UUID]]:
    """Look at the next jobs of schedules, each below an id, and cancel those that no worker has.

    Return the jobs that were cancelled, and the schedules of which more is to be looked at, each below an id.
    """
    each = max(LOOKED_AT_ONCE // len(below), 1)
    rows = await transaction.fetch(SQL.jobs_below, walks=sorted(below.items()), each=each)
    jobs: dict[UUID, list[UUID]] = {}
    for row in rows:
        jobs.setdefault(row["schedule_id"], []).append(row["id"])
    rest = {schedule_id: min(found) for schedule_id, found in jobs.items() if len(found) == each}
    cancelled: list[UUID] = []
    for _ in range(TRIES):
        found = [row["id"] for row in await transaction.fetch(SQL.not_started, ids=[row["id"] for row in rows])]
        if not found:
            return cancelled, rest
        # What is claimed meanwhile goes on; what is promoted meanwhile is found by the next try.
        ended = [
            row["id"]
            for query in (control.SQL.cancel_queued, control.SQL.cancel_timed)
            for row in await transaction.fetch(query, ids=found, tenant=tenant, reason=actor.reason)
        ]
        await control.note_events(transaction, ended, "cancel_requested", actor)
        cancelled += ended
    raise Contention("Jobs of the schedule move faster than they can be cancelled. Try again.")


async def _purge(db: Statements, schedule_id: UUID) -> int:
    """Remove the slots of a schedule that is gone, and their ended jobs; return how many jobs."""
    purged = 0
    while True:
        async with db.transaction() as transaction:
            rows = await transaction.fetch(SQL.decided_slots, id=schedule_id, limit=PURGED_AT_ONCE)
            # What was told of the schedule itself is kept as events of its own id.
            jobs = [schedule_id, *(row["job_id"] for row in rows if row["job_id"] is not None)]
            [answer] = await transaction.fetch(SQL.purge_jobs, ids=jobs)
            purged += int(answer["removed"])
            if not rows:
                return purged
            await transaction.fetch(SQL.purge_slots, id=schedule_id, slots=[(row["slot_at"],) for row in rows])
