"""Scenes beside firing: a backfill that is under way, and a run that is missing."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from tests.queue.races.planned import NOBODY, TOUCH, backfill_of, hourly, step
from tests.queue.races.stage import Scene, Stage, no_jitter
from windlass.db import Database
from windlass.queue import backfills, control, looks, runs, schedules, watches
from windlass.queue.cron import At
from windlass.queue.report import report
from windlass.queue.schedule import Decision, NewSchedule, Policy


async def backfilled(stage: Stage) -> Scene:
    """Return a scene whose job is the second of a backfill; the first was claimed, given back and cancelled."""
    scene = await stage.scene(0)
    schedule = await hourly(stage, queue=scene.queue)
    last = stage.clock.now().replace(minute=0, second=0, microsecond=0)
    await stage.db.fetch(TOUCH["pass_over"], id=schedule.id, slot_at=last, first_at=last - timedelta(hours=5))
    found = await backfill_of(stage, schedule, concurrency=2)
    first, second = (await step(stage, stage.db, found)).jobs
    leases = await stage.claim(stage.db, scene.queue, scene.session)
    await report(stage.db, [Scene(scene.queue, scene.worker, scene.session, [], leases).release()], chance=no_jitter)
    await control.cancel(stage.db, [first.id], tenant="default", actor=NOBODY)
    return Scene(scene.queue, scene.worker, scene.session, [second.id])


async def backfill(stage: Stage, db: Database, scene: Scene) -> object:
    """Move all backfills on, look at them and at their slots, stop them, and forget those of another schedule."""
    for found in await backfills.under_way(db):
        await step(stage, db, found)
        await backfills.find(db, found.schedule_id, tenant="default")
        await runs.find_runs(db, found.schedule_id, tenant="default")
        await runs.find_runs(db, found.schedule_id, tenant="default", decision=Decision.MANUAL)
        await backfills.stop(db, found.id, tenant="default", actor=NOBODY)
    other = await hourly(stage)
    now = stage.clock.now()
    begun = await backfills.start(
        db, stage.ids, other, since=now - timedelta(minutes=5), until=now - timedelta(minutes=4), actor=NOBODY
    )
    await step(stage, db, begun)
    await backfills.forget(db, [other.id])
    return None


async def expected(stage: Stage) -> Scene:
    """Return a scene whose job has succeeded, for a schedule of one time whose run is told to be missing."""
    scene = await stage.leased()
    await report(stage.db, [scene.complete()], chance=no_jitter)
    schedule = NewSchedule(
        id=stage.ids.new(),
        name=scene.queue,
        task="task",
        trigger=At(stage.clock.now() - timedelta(hours=1)),
        policy=Policy(expect_within_s=60),
    )
    await schedules.create(stage.db, [schedule])
    slot_at = stage.clock.now().replace(microsecond=0)
    await watches.expect(stage.db, [(schedule.id, slot_at - timedelta(hours=1), slot_at)])
    await stage.db.fetch(TOUCH["decide"], id=schedule.id, slot_at=slot_at, job_id=scene.id)
    return scene


async def look_out(stage: Stage, db: Database, scene: Scene) -> object:
    """Tell that a run is missing, and then that one has succeeded; expect another, and nothing any more."""
    for _ in range(2):
        await looks.look(db)
        await watches.look(db)
        stage.clock.advance(120)
    schedule = await schedules.get(stage.db, scene.queue, tenant="default")
    again = msgspec.structs.replace(schedule.definition, id=stage.ids.new(), name=f"{schedule.id}-{stage.ids.new()}")
    await schedules.create(stage.db, [again])
    await watches.expect(db, [(again.id, stage.clock.now(), stage.clock.now())])
    await watches.look(db)
    await watches.expect(db, [(again.id, None, None)])
    return await watches.missing_count(db)
