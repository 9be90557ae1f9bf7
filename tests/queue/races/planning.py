"""Scenes with schedules that people make, change, remove and declare; each act can be run again, wherever it ended."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.queue.races.stage import Scene, Stage
from windlass.db import Database
from windlass.errors import NotFound
from windlass.queue import declared, recurring, scheduledits, schedules
from windlass.queue.control import Actor
from windlass.queue.cron import Every
from windlass.queue.lanes import Lanes
from windlass.queue.schedule import NewSchedule, Policy

ME = Actor("me", "for a test")


def planned(stage: Stage, name: str, **fields: Any) -> NewSchedule:
    """Return a schedule of which runs are expected, each second unless a trigger is given."""
    given: dict[str, Any] = {"trigger": Every(1), "policy": Policy(expect_within_s=60)} | fields
    return NewSchedule(id=stage.ids.new(), name=name, task="task", **given)


async def by_hand(stage: Stage) -> Scene:
    """Return a scene whose job was made by hand, of a schedule that has the name of the queue."""
    scene = await stage.scene(0)
    await schedules.create(stage.db, [planned(stage, scene.queue, queue=scene.queue)])
    job_id = await run(stage, stage.db, scene.queue)
    stage.clock.advance(2)
    return Scene(scene.queue, scene.worker, scene.session, [job_id])


async def run(stage: Stage, db: Database, name: str) -> UUID:
    """Run a schedule by hand; return the job."""
    found = await schedules.get(db, name, tenant="default")
    return (await scheduledits.run_now(db, Lanes(), stage.ids, found.id, tenant="default", actor=ME)).id


async def plan(stage: Stage, db: Database, scene: Scene) -> object:
    """Store schedules, of a new tenant too; give one another definition, load what is there, and list them."""
    name = f"{scene.queue}-new"
    await schedules.create(db, [planned(stage, name, paused=True)], replace=True)
    await schedules.create(db, [planned(stage, name, tags=(str(stage.ids.new()),))], replace=True)
    await schedules.load(db, [planned(stage, name, tenant=f"tenant-{stage.ids.new()}")])
    return await schedules.find(db, "default", task="nothing")


async def replan(stage: Stage, db: Database, scene: Scene) -> object:
    """Edit a schedule to another name and other times, pause it until a time that comes, and resume it."""
    job = await stage.get(scene.id)
    assert job.schedule_id is not None
    found = await schedules.get(db, job.schedule_id, tenant="default")
    becomes = planned(stage, f"{scene.queue}-{stage.ids.new()}", queue=scene.queue, trigger=Every(2))
    await scheduledits.edit(db, found.id, becomes, tenant="default", actor=ME)
    await scheduledits.pause(db, found.id, tenant="default", actor=ME, until=stage.clock.now() + timedelta(seconds=2))
    stage.clock.advance(5)
    await db.fetch(scheduledits.SQL.put_off_pause, tenant="default", name=str(found.id), ms=0)
    await scheduledits.resume_over(db)
    await scheduledits.pause(db, found.id, tenant="default", actor=ME)
    return await scheduledits.resume(db, found.id, tenant="default", actor=ME)


async def unplan(stage: Stage, db: Database, scene: Scene) -> object:
    """Delete a schedule with its job, another one with its history, and one as who knows only jobs."""
    with suppress(NotFound):
        was = await schedules.get(stage.db, scene.queue, tenant="default")
        await scheduledits.delete(db, was.id, tenant="default", actor=ME)
    [other] = await schedules.create(stage.db, [planned(stage, f"{scene.queue}-other")], replace=True)
    await run(stage, db, other.name)
    await scheduledits.delete(db, other.id, tenant="default", actor=ME, purge=True)
    [entry] = await schedules.create(stage.db, [planned(stage, f"{scene.queue}-entry")], replace=True)
    return await recurring.cancel(db, Lanes(), entry.id, tenant="default", actor=ME)


async def declare(stage: Stage, db: Database, scene: Scene) -> object:
    """Declare schedules of an application, then others, and look what none would do."""
    for release, numbers in enumerate(((1, 2), (2, 3), ())):
        asked = [planned(stage, f"{scene.queue}-{number}", tags=(f"release-{release}",)) for number in numbers]
        await declared.declare(db, scene.queue, asked, tenant="default", actor=ME)
    asked = [planned(stage, f"{scene.queue}-4")]
    return await declared.declare(db, scene.queue, asked, tenant="default", actor=ME, dry_run=True)
