"""Schedules that fire in tests: a step at a time, with what became of each slot in short words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.queue.planned import made, runs_of
from tests.queue.steps import Steps
from windlass.db import Query, Row
from windlass.queue import firing, following, schedules
from windlass.queue.cron import Cron
from windlass.queue.firing import Fired
from windlass.queue.schedule import Decision
from windlass.queue.schedules import Schedule

NOON = datetime(2026, 1, 1, 12, 1, tzinfo=UTC)
EVERY_MINUTE = Cron("* * * * *")


async def fire(steps: Steps, after_s: float = 0, **how: Any) -> Fired:
    """Move the clock and fire once."""
    steps.clock.advance(after_s)
    return await firing.fire(steps.db, steps.lanes, steps.ids, **how)


async def fire_all(steps: Steps, after_s: float = 0, **how: Any) -> int:
    """Move the clock and fire until nothing is due; return how many jobs were made."""
    steps.clock.advance(after_s)
    count = 0
    while (fired := await firing.fire(steps.db, steps.lanes, steps.ids, **how)).decided:
        count += fired.made
    return count


async def follow(steps: Steps, **how: Any) -> list[UUID]:
    """Let waiting jobs go, and return them."""
    return [job.id for job in (await following.follow(steps.db, **how)).jobs]


async def decisions(steps: Steps, schedule: Schedule) -> list[tuple[str, str]]:
    """Return the slots that were decided, as times of the day, and what was decided."""
    return [
        (f"{row['slot_at'].astimezone(UTC):%H:%M:%S}", Decision(row["decision"]).word)
        for row in await runs_of(steps, schedule.id)
    ]


async def jobs_of(steps: Steps, schedule: Schedule) -> list[Row]:
    """Return the live jobs of a schedule by slot, with their places."""
    text = (
        "SELECT j.id, j.slot_at, j.run_at, j.start_by, j.payload, j.priority, q.place, q.pending, q.lane, q.rank "
        "FROM job j JOIN queue q ON q.id = j.id WHERE j.schedule_id = :id ORDER BY j.slot_at, j.id"
    )
    return await steps.db.fetch(Query("jobs_of", "Jobs.", text, text), id=schedule.id)


async def write(steps: Steps, text: str, **values: Any) -> None:
    """Change rows by hand."""
    await steps.db.fetch(Query("write", "By hand.", text, text), **values)


async def again(steps: Steps, schedule: Schedule) -> Schedule:
    """Return the schedule as it stands now."""
    return await schedules.get(steps.db, schedule.id, tenant=schedule.definition.tenant)


async def every_minute(steps: Steps, name: str = "beat", **fields: Any) -> Schedule:
    """Make a schedule whose slots are the minutes after noon."""
    return await made(steps, name, **{"trigger": EVERY_MINUTE} | fields)


def at(minutes: float) -> datetime:
    """Return the instant so many minutes after the beginning."""
    return NOON + timedelta(minutes=minutes)
