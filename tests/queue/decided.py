"""Slots decided by hand, as firing decides them: for tests of what is read of them, and of what comes after."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from tests.queue.steps import Steps
from tests.sqltext import parse
from windlass.db.partitions import make_days
from windlass.queue.claim import Claimed
from windlass.queue.schedule import Decision
from windlass.queue.schedules import Schedule
from windlass.queue.submit import store

DECIDE = parse(
    """
-- name: decide
-- Write down what was decided of a slot.
-- both
INSERT INTO schedule_runs (schedule_id, slot_at, decision, job_id, term, decided_at, slot_count, first_at, reason)
VALUES (:schedule_id, :slot_at, :decision, :job_id, 1, :now, :slot_count, :first_at, :reason)
""",
    origin="decided.py",
)["decide"]


async def fired(steps: Steps, schedule: Schedule, slot_at: datetime, *, decision: Decision = Decision.FIRED) -> UUID:
    """Give a slot its job, and return the job's id."""
    job = schedule.definition.job(steps.ids.new(), slot_at=None if decision is Decision.MANUAL else slot_at)
    places = await steps.lanes.resolve(steps.db, [job.lane])
    await make_days(steps.db, "schedule_runs", [slot_at])
    async with steps.db.transaction() as transaction:
        await store(transaction, steps.lanes, places, [job])
        await transaction.fetch(
            DECIDE,
            schedule_id=schedule.id,
            slot_at=slot_at,
            decision=int(decision),
            job_id=job.id,
            slot_count=1,
            first_at=None,
            reason=None,
        )
    return job.id


async def skipped(
    steps: Steps,
    schedule: Schedule,
    slot_at: datetime,
    decision: Decision,
    *,
    slot_count: int = 1,
    first_at: datetime | None = None,
    reason: str | None = None,
) -> None:
    """Pass over a slot, or several up to it."""
    await make_days(steps.db, "schedule_runs", [slot_at])
    await steps.db.fetch(
        DECIDE,
        schedule_id=schedule.id,
        slot_at=slot_at,
        decision=int(decision),
        job_id=None,
        slot_count=slot_count,
        first_at=first_at,
        reason=reason,
    )


async def running(steps: Steps) -> Claimed:
    """Let a worker begin the job that comes next, and return its lease."""
    worker = await steps.worker()
    lease = await steps.claim_one(worker)
    await steps.beat(worker, lease, started=True)
    return lease


async def run(steps: Steps) -> UUID:
    """Let a worker do the job that comes next, and return its id."""
    lease = await running(steps)
    await steps.complete(lease)
    return lease.id
