"""Schedules for tests: definitions with what every one needs filled in, and rows read as they lie there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tests.queue.steps import Steps
from windlass.db import Query, Row
from windlass.queue import schedules
from windlass.queue.cron import Cron, Every
from windlass.queue.schedule import NewSchedule
from windlass.queue.schedules import Schedule

NOON = datetime(2026, 1, 1, 12, 1, tzinfo=UTC)
"""What the clock of a test of the queue tells at its beginning."""
HOURLY = Cron("0 * * * *")
MINUTELY = Every(60)


def planned(steps: Steps, name: str = "nightly", **fields: Any) -> NewSchedule:
    """Return a schedule to store, each hour unless a trigger is given."""
    given: dict[str, Any] = {"id": steps.ids.new(), "name": name, "task": "mail", "trigger": HOURLY}
    return NewSchedule(**given | fields)


async def made(steps: Steps, name: str = "nightly", **fields: Any) -> Schedule:
    """Store a schedule and return it."""
    schedule = planned(steps, name, **fields)
    await schedules.create(steps.db, [schedule])
    return await schedules.get(steps.db, schedule.id, tenant=schedule.tenant)


async def runs_of(steps: Steps, schedule_id: UUID) -> list[Row]:
    """Return what was decided of the slots of a schedule, in order."""
    text = "SELECT * FROM schedule_runs WHERE schedule_id = :id ORDER BY slot_at"
    return await steps.db.fetch(Query("runs_of", "Slots.", text, text), id=schedule_id)
