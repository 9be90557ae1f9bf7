"""The acts of people on schedules wake who must know: workers that wait for jobs, and callers that wait for ends."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.engine.test_dispatch import until
from windlass.engine.engine import Engine
from windlass.engine.line import Ask
from windlass.job import State
from windlass.queue.control import Actor
from windlass.queue.schedule import NewSchedule
from windlass.queue.schedules import find

ME = Actor("me", "for a test")
PATIENCE_S = 30.0


def planned(engine: Engine, name: str = "nightly", **fields: Any) -> NewSchedule:
    """Return a schedule that is run by hand."""
    return NewSchedule(id=engine.ids.new(), name=name, task="mail", **fields)


async def test_a_job_by_hand_wakes_who_waits_for_work(engine: Engine) -> None:
    """A worker that waits has the job at once."""
    [stored] = await engine.schedules.create([planned(engine)])
    ask = Ask(worker="ann", tenant="default", queues=("default",), count=1, wait_s=PATIENCE_S)
    waiting = asyncio.create_task(engine.claim(ask))
    await until(lambda: engine.waiting_count == 1)

    made = await engine.schedules.run_now(stored.id, tenant="default", actor=ME)

    assert [made.id] == [handed.job.id for handed in (await asyncio.wait_for(waiting, PATIENCE_S)).jobs]


async def test_deleting_and_declaring_wake_who_waits_for_an_end(engine: Engine) -> None:
    """Who waits for a job that is cancelled with its schedule is answered."""
    [stored] = await engine.schedules.create([planned(engine, "by hand")])
    await engine.schedules.declare("shop", [planned(engine, "declared")], tenant="default", actor=ME)
    [declared] = [schedule.id for schedule in (await find(engine.db, "default", owner="shop")).schedules]
    jobs = [
        (await engine.schedules.run_now(schedule_id, tenant="default", actor=ME)).id
        for schedule_id in (stored.id, declared)
    ]
    waits = [
        asyncio.create_task(engine.waits.wait_ended(job_id, tenant="default", wait_s=PATIENCE_S)) for job_id in jobs
    ]

    await engine.schedules.delete(stored.id, tenant="default", actor=ME)
    done = await engine.schedules.declare("shop", [], tenant="default", actor=ME)

    assert ["declared"] == done.declared.removed
    ended = await asyncio.wait_for(asyncio.gather(*waits), PATIENCE_S)
    assert [State.CANCELLED] * 2 == [job.state for job in ended]
