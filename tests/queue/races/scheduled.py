"""Scenes with schedules: a slot that is due, a run that is to be replaced, a job that waits for the run before it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from tests.queue.races.stage import Scene, Stage
from windlass.db import Database, Query, Row
from windlass.queue import control, firing, following, looks, schedules, zonerules
from windlass.queue.control import Actor
from windlass.queue.cron import Cron, Every
from windlass.queue.firing import Fired
from windlass.queue.lanes import Lanes
from windlass.queue.schedule import NewSchedule, Policy

NOBODY = Actor()


async def scheduled(stage: Stage, **policy: Any) -> tuple[Scene, NewSchedule]:
    """Return a scene, and a schedule of its queue that fires each second from the next one on."""
    scene = await stage.scene(0)
    schedule = NewSchedule(
        id=stage.ids.new(),
        name=scene.queue,
        task="task",
        queue=scene.queue,
        trigger=Every(1),
        policy=Policy(**{"misfire_grace_s": 86_400} | policy),
    )
    await schedules.create(stage.db, [schedule])
    return scene, schedule


async def fire(stage: Stage, db: Database) -> Fired:
    """Fire once on a database, with lanes looked up anew."""
    return await firing.fire(db, Lanes(), stage.ids, term=1)


async def rows(stage: Stage, text: str, **values: Any) -> Sequence[Row]:
    """Run a query by hand."""
    return await stage.db.fetch(Query("by_hand", "By hand.", text, text), **values)


async def jobs(stage: Stage, schedule_id: UUID) -> list[UUID]:
    """Return all jobs that a schedule has made, live or ended, by slot."""
    text = "SELECT j.id FROM jobs j WHERE j.schedule_id = :id ORDER BY j.slot_at"
    return [row["id"] for row in await rows(stage, text, id=schedule_id)]


async def replaced(stage: Stage) -> Scene:
    """Return a scene whose job, with another behind it, is to be replaced by that of a slot that is due."""
    scene, schedule = await scheduled(stage, overlap="queue_all")
    stage.clock.advance(2)
    await fire(stage, stage.db)
    await rows(stage, "UPDATE schedule SET overlap = 4 WHERE id = :id", id=schedule.id)
    zoned = msgspec.structs.replace(
        schedule, id=stage.ids.new(), name=f"{schedule.name}-zoned", trigger=Cron("30 2 * * *", "Europe/Berlin")
    )
    [stored] = await schedules.create(stage.db, [zoned])
    assert stored.next_at is not None
    later = stored.next_at + timedelta(hours=1)
    await rows(stage, "UPDATE schedule_next SET next_at = :later WHERE id = :id", id=zoned.id, later=later)
    stage.clock.advance(1)
    return Scene(scene.queue, scene.worker, scene.session, (await jobs(stage, schedule.id))[:1])


async def followed(stage: Stage) -> Scene:
    """Return a scene whose job waits for a run that is over."""
    scene, schedule = await scheduled(stage, overlap="queue_all")
    stage.clock.advance(2)
    await fire(stage, stage.db)
    first, waiting = await jobs(stage, schedule.id)
    await rows(stage, "UPDATE schedule_next SET next_at = NULL WHERE id = :id", id=schedule.id)
    await control.cancel(stage.db, [first], tenant="default", actor=NOBODY)
    return Scene(scene.queue, scene.worker, scene.session, [waiting])


async def gave_up_waiting(stage: Stage) -> Scene:
    """Return a scene whose job was cancelled while it waited for a run."""
    scene, schedule = await scheduled(stage, overlap="queue_all")
    stage.clock.advance(2)
    await fire(stage, stage.db)
    _, waiting = await jobs(stage, schedule.id)
    await rows(stage, "UPDATE schedule_next SET next_at = NULL WHERE id = :id", id=schedule.id)
    await control.cancel(stage.db, [waiting], tenant="default", actor=NOBODY)
    return Scene(scene.queue, scene.worker, scene.session, [waiting])


async def look_and_fire(stage: Stage, db: Database, _: Scene) -> object:
    """Look what is due, and fire it; then look at the zones of all schedules."""
    await looks.look(db)
    fired = await fire(stage, db)
    await zonerules.changed(db, "rules")
    await zonerules.renew(db)
    return fired


async def let_go(_: Stage, db: Database, __: Scene) -> object:
    """Let waiting jobs go."""
    return await following.follow(db)
