"""Races about slots: whoever fires beside whom, each slot is decided once, and an edit or pause is never undone."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.queue.races.orders import Race
from tests.queue.races.pausing import Pausing
from tests.queue.races.scheduled import NOBODY, fire, jobs, rows, scheduled
from tests.queue.races.stage import PATIENCE_S, Scene, Stage, no_jitter
from tests.queue.races.steps import ME
from windlass.db import Database
from windlass.errors import WindlassError
from windlass.job import FINAL_STATES, State
from windlass.queue import control, following, scheduledits, schedules
from windlass.queue.cron import Every
from windlass.queue.firing import Fired
from windlass.queue.following import Followed
from windlass.queue.report import Complete, report
from windlass.queue.schedule import Decision, NewSchedule
from windlass.queue.schedules import Schedule

Made = tuple[Scene, NewSchedule]


def good(answer: Any) -> Any:
    """Return an answer that is no error."""
    assert not isinstance(answer, WindlassError), answer
    return answer


async def slots(stage: Stage, schedule: NewSchedule) -> list[Decision]:
    """Return what was decided of the slots of a schedule, in order; the job of each is there once."""
    found = await rows(
        stage,
        "SELECT slot_at, decision, job_id FROM schedule_runs WHERE schedule_id = :id ORDER BY slot_at",
        id=schedule.id,
    )
    made = [row["job_id"] for row in found if row["job_id"] is not None]
    assert made == await jobs(stage, schedule.id)
    return [Decision(row["decision"]) for row in found]


async def stands(stage: Stage, schedule: NewSchedule) -> Schedule:
    """Return a schedule as it is now."""
    return await schedules.get(stage.db, schedule.id, tenant="default")


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue_all", "cancel_previous"])
async def test_rel_x17_two_holders_fire_one_schedule(stage: Stage, overlap: str) -> None:
    """X17, K3: in every order of their statements each slot has one decision and one job."""

    async def prepare() -> Made:
        made = await scheduled(stage, overlap=overlap)
        stage.clock.advance(2)
        return made

    async def judge(made: Made, *answers: Fired | WindlassError) -> None:
        _, schedule = made
        assert 2 == sum(good(answer).decided for answer in answers)
        assert 2 == len(await slots(stage, schedule))
        await rows(stage, "UPDATE schedule_next SET next_at = NULL WHERE id = :id", id=schedule.id)

    async def firing(db: Database, _: Made) -> Fired:
        return await fire(stage, db)

    assert 6 < await Race(prepare, firing, firing, judge).in_every_order(stage)


async def test_rel_x17_fire_beside_pause(stage: Stage) -> None:
    """Either the slot fired before the pause, or it never does."""

    async def pause(db: Database, made: Made) -> Schedule:
        return await scheduledits.pause(db, made[1].id, tenant="default", actor=ME)

    async def judge(made: Made, fired: Fired | WindlassError, paused: Schedule | WindlassError) -> None:
        good(fired), good(paused)
        found = await stands(stage, made[1])
        assert (None, True) == (found.next_at, found.definition.paused)
        assert 0 == (await fire(stage, stage.db)).decided
        assert 1 == len(await slots(stage, made[1]))

    await Race(lambda: due(stage), firing_on(stage), pause, judge).in_every_order(stage)


async def test_rel_x17_fire_beside_an_edit(stage: Stage) -> None:
    """A job is made from the definition that its slot was decided by, never from half of each."""

    async def edit(db: Database, made: Made) -> Schedule:
        becomes = msgspec.structs.replace(made[1], trigger=Every(3600), payload='"new"', priority=5)
        return await scheduledits.edit(db, made[1].id, becomes, tenant="default", actor=ME)

    async def judge(made: Made, fired: Fired | WindlassError, edited: Schedule | WindlassError) -> None:
        good(edited)
        count = good(fired).made
        found = await stands(stage, made[1])
        assert (Every(3600), '"new"', 2) == (found.definition.trigger, found.definition.payload, found.version)
        assert found.next_at is not None
        assert found.next_at > stage.clock.now()
        assert count == len(await jobs(stage, made[1].id))
        for job_id in await jobs(stage, made[1].id):
            [job] = await rows(stage, "SELECT payload, priority FROM job WHERE id = :id", id=job_id)
            assert ("null", 0) == (job["payload"], job["priority"])

    await Race(lambda: due(stage), firing_on(stage), edit, judge).in_every_order(stage)


async def test_rel_x17_fire_beside_an_edit_that_keeps_the_times(stage: Stage) -> None:
    """The slot fires, once: with the old queue and payload or with the new ones."""

    async def edit(db: Database, made: Made) -> Schedule:
        becomes = msgspec.structs.replace(made[1], payload='"new"', queue=f"{made[1].queue}-new")
        return await scheduledits.edit(db, made[1].id, becomes, tenant="default", actor=ME)

    async def judge(made: Made, fired: Fired | WindlassError, edited: Schedule | WindlassError) -> None:
        good(fired), good(edited)
        await fire(stage, stage.db)
        [job_id] = await jobs(stage, made[1].id)
        job = await stage.get(job_id)
        assert (job.queue, job.payload) in (
            (made[1].queue, "null"),
            (f"{made[1].queue}-new", '"new"'),
        )

    await Race(lambda: due(stage), firing_on(stage), edit, judge).in_every_order(stage)


async def test_rel_x17_fire_beside_delete(stage: Stage) -> None:
    """A job that was made before the schedule went is cancelled with it; none is made afterwards."""

    async def delete(db: Database, made: Made) -> scheduledits.Deleted:
        return await scheduledits.delete(db, made[1].id, tenant="default", actor=ME)

    async def judge(made: Made, fired: Fired | WindlassError, deleted: Any) -> None:
        count = good(fired).made
        assert count == len(good(deleted).cancelled)
        found = await jobs(stage, made[1].id)
        assert [State.CANCELLED] * count == [await stage.state(job_id) for job_id in found]
        assert [] == await rows(stage, "SELECT id FROM schedule_next WHERE id = :id", id=made[1].id)

    await Race(lambda: due(stage), firing_on(stage), delete, judge).in_every_order(stage)


async def test_fire_beside_the_end_of_the_run_before(stage: Stage) -> None:
    """Under `skip` the slot is skipped or fires, as the run was over or not when it was read; nothing else happens."""

    async def prepare() -> tuple[Made, Complete]:
        scene, schedule = await due(stage)
        await fire(stage, stage.db)
        [lease] = await stage.claim(stage.db, scene.queue, scene.session)
        stage.clock.advance(1)
        done = Scene(scene.queue, scene.worker, scene.session, [lease.id], [lease]).complete()
        return (scene, schedule), done

    async def firing(db: Database, _: object) -> Fired:
        return await fire(stage, db)

    async def complete(db: Database, made: tuple[Made, Complete]) -> object:
        return await report(db, [made[1]], chance=no_jitter)

    async def judge(made: tuple[Made, Complete], fired: Fired | WindlassError, _: object) -> None:
        schedule = made[0][1]
        assert 1 == good(fired).decided
        assert (await slots(stage, schedule))[1] in (Decision.FIRED, Decision.OVERLAPPED)
        await rows(stage, "UPDATE schedule_next SET next_at = NULL WHERE id = :id", id=schedule.id)

    await Race(prepare, firing, complete, judge).in_every_order(stage)


async def test_a_waiting_job_is_let_go_once(stage: Stage) -> None:
    """Two servers follow: one job goes, the next one waits for it."""

    async def judge(made: Made, *answers: Followed | WindlassError) -> None:
        first, second, third = await jobs(stage, made[1].id)
        assert [second] == [job.id for answer in answers for job in good(answer).jobs]
        assert [State.CANCELLED, State.QUEUED, State.BLOCKED] == [await stage.state(j) for j in (first, second, third)]
        assert 1 == (await stands(stage, made[1])).waiting_count

    async def follow(db: Database, _: Made) -> Followed:
        return await following.follow(db)

    await Race(lambda: behind(stage), follow, follow, judge).in_every_order(stage)


async def test_follow_beside_fire(stage: Stage) -> None:
    """A slot that fires while a job is let go waits behind those that wait; none is lost, none goes early."""

    async def prepare() -> Made:
        made = await behind(stage)
        stage.clock.advance(1)
        await rows(stage, "UPDATE schedule_next SET next_at = :now WHERE id = :id", id=made[1].id)
        return made

    async def follow(db: Database, _: Made) -> Followed:
        return await following.follow(db)

    async def judge(made: Made, *answers: Any) -> None:
        for answer in answers:
            good(answer)
        for _ in range(3):  # whichever moved second found that the schedule had changed, and comes again
            await following.follow(stage.db)
            await fire(stage, stage.db)
        states = Counter([await stage.state(job_id) for job_id in await jobs(stage, made[1].id)])
        assert {State.CANCELLED: 1, State.QUEUED: 1, State.BLOCKED: 2} == states
        assert 2 == (await stands(stage, made[1])).waiting_count

    await Race(prepare, follow, firing_on(stage), judge).in_every_order(stage)


async def test_follow_beside_cancel_of_the_waiting_job(stage: Stage) -> None:
    """A job that is cancelled while it waits never starts, and those behind it move up."""

    async def cancel(db: Database, made: Made) -> object:
        _, second, _ = await jobs(stage, made[1].id)
        return await control.cancel(db, [second], tenant="default", actor=ME)

    async def follow(db: Database, _: Made) -> Followed:
        return await following.follow(db)

    async def judge(made: Made, *answers: Any) -> None:
        for answer in answers:
            good(answer)
        for _ in range(2):
            await following.follow(stage.db)
        first, second, third = [await stage.state(job_id) for job_id in await jobs(stage, made[1].id)]
        assert {first, second} <= FINAL_STATES
        assert State.QUEUED is third
        assert 0 == (await stands(stage, made[1])).waiting_count

    await Race(lambda: behind(stage), follow, cancel, judge).in_every_order(stage)


async def test_rel_x17_a_holder_stopped_in_its_transaction_holds_up_only_its_own(postgres_stage: Stage) -> None:
    """Rows that it has locked are skipped: everything else fires, and these when its transaction is over."""
    stage = postgres_stage
    _, held = await due(stage)
    stopped = Pausing(stage.servers[0])
    point = stopped.hold_before("record")
    first = asyncio.create_task(fire(stage, stopped))
    async with asyncio.timeout(PATIENCE_S):
        await point.reached.wait()
        _, other = await due(stage)

        fired = await fire(stage, stage.servers[1])

        point.release()
        await first
    assert 1 == fired.made
    assert [Decision.FIRED] == await slots(stage, other)
    assert 1 == len(await slots(stage, held))


async def test_rel_m10_a_cursor_that_moved_has_its_job(stage: Stage) -> None:
    """Rule 10: whatever fails in between, the cursor and the job are both there or neither."""
    for query in ("record", "make_jobs"):
        _, schedule = await due(stage)
        failing = Pausing(stage.servers[0])
        point = failing.hold_before(query)
        task = asyncio.create_task(fire(stage, failing))
        async with asyncio.timeout(PATIENCE_S):
            await point.reached.wait()
            task.cancel()
            await asyncio.wait([task])
        await stage.until_none_open()  # what it had locked would be passed by

        assert None is (await stands(stage, schedule)).last_at
        assert 1 == (await fire(stage, stage.db)).made
        assert [Decision.FIRED] == await slots(stage, schedule)
        await rows(stage, "UPDATE schedule_next SET next_at = NULL WHERE id = :id", id=schedule.id)


async def test_rel_k10_the_last_slot_only_rises(stage: Stage) -> None:
    """A schedule set back by hand does not fire a slot again, also when retention has removed what became of it."""
    _, schedule = await due(stage)
    await fire(stage, stage.db)
    slot_at = (await stands(stage, schedule)).last_at
    assert slot_at is not None
    [job_id] = await jobs(stage, schedule.id)
    await control.cancel(stage.db, [job_id], tenant="default", actor=NOBODY)
    await rows(stage, "DELETE FROM schedule_runs WHERE schedule_id = :id", id=schedule.id)
    await rows(stage, "UPDATE schedule_next SET next_at = :slot WHERE id = :id", id=schedule.id, slot=slot_at)

    fired = await fire(stage, stage.db)

    assert 0 == fired.decided
    assert [job_id] == await jobs(stage, schedule.id)
    assert slot_at + timedelta(seconds=1) == (await stands(stage, schedule)).next_at


async def due(stage: Stage) -> Made:
    """Return a schedule with one slot that is due."""
    made = await scheduled(stage)
    stage.clock.advance(1)
    return made


async def behind(stage: Stage) -> Made:
    """Return a schedule with two jobs that wait, the run before them over."""
    made = await scheduled(stage, overlap="queue_all")
    stage.clock.advance(3)
    await fire(stage, stage.db)
    await rows(stage, "UPDATE schedule_next SET next_at = NULL WHERE id = :id", id=made[1].id)
    await control.cancel(stage.db, (await jobs(stage, made[1].id))[:1], tenant="default", actor=NOBODY)
    return made


def firing_on(stage: Stage) -> Any:
    """Return the step that fires."""

    async def firing(db: Database, _: Made) -> Fired:
        return await fire(stage, db)

    return firing
