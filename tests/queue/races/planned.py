"""Schedules on the stage: made, fired, edited and watched in the fewest statements, for races beside firing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from tests.queue.races.stage import Stage
from tests.sqltext import parse
from windlass.db import Database, Row
from windlass.queue import backfills, schedules, watches
from windlass.queue.backfills import Advanced, Backfill
from windlass.queue.control import Actor
from windlass.queue.cron import Cron
from windlass.queue.newjob import NewJob
from windlass.queue.schedule import NewSchedule, Policy
from windlass.queue.schedules import Schedule
from windlass.queue.submit import store

HOURS = 3
"""So many slots a backfill has."""
WITHIN_S = 60
NOBODY = Actor()

FORGET = parse(
    """
-- name: lock
-- Lock a schedule.
-- locks: schedule.
-- postgres
SELECT id FROM schedule WHERE id = :id FOR UPDATE
-- sqlite
SELECT id FROM schedule WHERE id = :id
-- name: jobs
-- The live jobs of a schedule.
-- both
SELECT id, payload FROM job WHERE schedule_id = :id
-- name: delete
-- Remove a schedule.
-- postgres
WITH n AS (DELETE FROM schedule_next WHERE id = :id) DELETE FROM schedule WHERE id = :id
-- sqlite
DELETE FROM schedule_next WHERE id = :id;
DELETE FROM schedule WHERE id = :id
""",
    origin="planned.py",
)
TOUCH = parse(
    """
-- name: edit
-- Give the jobs of a schedule another payload.
-- postgres
WITH n AS (UPDATE schedule_next SET version = version + 1 WHERE id = :id)
UPDATE schedule SET payload = '"edited"', version = version + 1 WHERE id = :id
-- sqlite
UPDATE schedule_next SET version = version + 1 WHERE id = :id;
UPDATE schedule SET payload = '"edited"', version = version + 1 WHERE id = :id
-- name: events
-- What was told of a schedule.
-- both
SELECT kind FROM event WHERE job_id = :id
-- name: watch
-- What is expected of a schedule.
-- both
SELECT slot_at FROM schedule_watch WHERE schedule_id = :id
-- name: slots
-- What was decided of a schedule's slots.
-- both
SELECT slot_at, decision, job_id FROM schedule_runs WHERE schedule_id = :id ORDER BY slot_at
-- name: decide
-- Decide a slot, as firing does.
-- both
INSERT INTO schedule_runs (schedule_id, slot_at, decision, job_id, term, decided_at, slot_count)
VALUES (:id, :slot_at, 0, :job_id, 1, :now, 1) ON CONFLICT DO NOTHING RETURNING slot_at
-- name: pass_over
-- Write down that six slots were missed.
-- both
INSERT INTO schedule_runs (schedule_id, slot_at, decision, term, decided_at, slot_count, first_at)
VALUES (:id, :slot_at, 6, 1, :now, 6, :first_at) RETURNING slot_at
""",
    origin="planned.py",
)


async def hourly(stage: Stage, *, within_s: int | None = None, queue: str = "default") -> Schedule:
    """Store a schedule that runs each hour."""
    schedule_id = stage.ids.new()
    definition = NewSchedule(
        id=schedule_id,
        name=f"schedule-{schedule_id}",
        task="task",
        queue=queue,
        trigger=Cron("0 * * * *"),
        policy=Policy(expect_within_s=within_s),
    )
    await schedules.create(stage.db, [definition])
    return await schedules.get(stage.db, schedule_id, tenant="default")


async def backfill_of(stage: Stage, schedule: Schedule, *, concurrency: int) -> Backfill:
    """Start a backfill of the last three slots; the lane of its jobs is known."""
    until = stage.clock.now()
    await stage.lanes.resolve(stage.db, [schedule.definition.job(schedule.id).lane])
    return await backfills.start(
        stage.db,
        stage.ids,
        schedule,
        since=until - timedelta(hours=HOURS),
        until=until,
        concurrency=concurrency,
        actor=NOBODY,
    )


async def step(stage: Stage, db: Database, backfill: Backfill) -> Advanced:
    """Take one step for a backfill as it was read before the race."""
    return await backfills.advance(db, stage.lanes, stage.ids, backfill=backfill)


def due_job(stage: Stage, schedule: Schedule) -> NewJob:
    """Return the job of the newest slot that is due."""
    slot_at = stage.clock.now().replace(minute=0, second=0, microsecond=0)
    return schedule.definition.job(stage.ids.new(), slot_at=slot_at)


async def fire(stage: Stage, db: Database, job: NewJob) -> bool:
    """Fire the slot of a job, as its duty does; return whether it made the job."""
    places = await stage.lanes.resolve(db, [job.lane])
    async with db.transaction() as transaction:
        if not await transaction.fetch(TOUCH["decide"], id=job.schedule_id, slot_at=job.slot_at, job_id=job.id):
            return False
        await store(transaction, stage.lanes, places, [job])
    return True


async def decided_slots(stage: Stage, schedule_id: UUID) -> Sequence[Row]:
    """Return what was decided of a schedule's slots."""
    return await stage.db.fetch(TOUCH["slots"], id=schedule_id)


async def watched(stage: Stage) -> UUID:
    """Store a schedule whose run is missing, and return its id."""
    schedule = await hourly(stage, within_s=WITHIN_S)
    expected = watches.expected(schedule.series(), within_s=WITHIN_S, after=stage.clock.now() - timedelta(hours=2))
    await watches.expect(stage.db, [(schedule.id, *expected)])
    return schedule.id
