"""Races about what goes on beside firing: of two who move a backfill on, or tell a missing run, one does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from tests.queue.races.orders import Race
from tests.queue.races.planned import FORGET, TOUCH, backfill_of, decided_slots, due_job, fire, hourly, step, watched
from tests.queue.races.stage import Stage
from tests.queue.races.steps import ME
from windlass.db import Database, Row
from windlass.errors import Contention, WindlassError
from windlass.job import State
from windlass.queue import backfills, watches
from windlass.queue.backfills import Advanced, Backfill, Stopped
from windlass.queue.newjob import NewJob
from windlass.queue.watches import Looked


async def jobs_of(stage: Stage, backfill: Backfill) -> dict[datetime, UUID]:
    """Return the jobs of a schedule's slots: each exists, and belongs to its slot."""
    found = {row["slot_at"]: row["job_id"] for row in await decided_slots(stage, backfill.schedule_id)}
    for slot, job_id in found.items():
        assert slot == (await stage.get(job_id)).slot_at
    return found


async def live_jobs(stage: Stage, backfill: Backfill) -> Sequence[Row]:
    """Return the live jobs of a backfill's schedule."""
    return await stage.db.fetch(FORGET["jobs"], id=backfill.schedule_id)


async def test_rel_b3_two_who_move_one_backfill_on(stage: Stage) -> None:
    """T13: each slot has one job, and no more live than allowed, whoever made them."""

    async def prepare() -> Backfill:
        return await backfill_of(stage, await hourly(stage), concurrency=2)

    async def advance(db: Database, backfill: Backfill) -> Advanced:
        return await step(stage, db, backfill)

    async def judge(backfill: Backfill, *answers: Advanced | WindlassError) -> None:
        made = [len(answer.jobs) for answer in answers if isinstance(answer, Advanced)]
        now = await backfills.get(stage.db, backfill.id, tenant="default")
        assert sum(made) == 2 == now.made_count == len(await jobs_of(stage, backfill))
        assert 0 == now.known_count

    assert 10 <= await Race(prepare, advance, advance, judge).in_every_order(stage)


async def test_rel_b3_a_backfill_beside_its_stop(stage: Stage) -> None:
    """T13: after the stop nothing is made, and no job is left behind that it did not see."""

    async def prepare() -> Backfill:
        return await backfill_of(stage, await hourly(stage), concurrency=2)

    async def advance(db: Database, backfill: Backfill) -> Advanced:
        return await step(stage, db, backfill)

    async def stop(db: Database, backfill: Backfill) -> Stopped:
        return await backfills.stop(db, backfill.id, tenant="default", actor=ME)

    async def judge(backfill: Backfill, advanced: Advanced | WindlassError, stopped: Stopped | WindlassError) -> None:
        assert isinstance(stopped, Stopped)
        assert "stopped" == (await backfills.get(stage.db, backfill.id, tenant="default")).status
        made = await jobs_of(stage, backfill)
        assert sorted(made.values()) == sorted(stopped.cancelled)
        assert {State.CANCELLED} >= {await stage.state(job_id) for job_id in made.values()}
        assert Advanced() == await step(stage, stage.db, backfill)

    assert 10 <= await Race(prepare, advance, stop, judge).in_every_order(stage)


async def test_rel_b3_a_backfill_beside_firing(stage: Stage) -> None:
    """T4: a slot that is due and one that is backfilled are the same slot: it has one job."""

    async def prepare() -> tuple[Backfill, NewJob]:
        schedule = await hourly(stage)
        return await backfill_of(stage, schedule, concurrency=10), due_job(stage, schedule)

    async def advance(db: Database, made: tuple[Backfill, NewJob]) -> Advanced:
        return await step(stage, db, made[0])

    async def also_fire(db: Database, made: tuple[Backfill, NewJob]) -> bool:
        return await fire(stage, db, made[1])

    async def judge(
        made: tuple[Backfill, NewJob], advanced: Advanced | WindlassError, fired: bool | WindlassError
    ) -> None:
        backfill, job = made
        now = await backfills.get(stage.db, backfill.id, tenant="default")
        found = await jobs_of(stage, backfill)
        assert isinstance(advanced, Advanced)
        assert (job.id in found.values()) is fired
        assert 3 == len(found) == now.made_count + now.known_count == len(await live_jobs(stage, backfill))
        assert fired == now.known_count

    assert 10 <= await Race(prepare, advance, also_fire, judge).in_every_order(stage)


async def test_rel_b3_a_backfill_beside_the_end_of_its_schedule(stage: Stage) -> None:
    """T13: a schedule that is deleted gets no job afterwards."""

    async def prepare() -> Backfill:
        return await backfill_of(stage, await hourly(stage), concurrency=2)

    async def advance(db: Database, backfill: Backfill) -> Advanced:
        return await step(stage, db, backfill)

    async def delete(db: Database, backfill: Backfill) -> int:
        async with db.transaction() as transaction:
            await transaction.fetch(FORGET["lock"], id=backfill.schedule_id)
            seen = len(await transaction.fetch(FORGET["jobs"], id=backfill.schedule_id))
            await backfills.forget(transaction, [backfill.schedule_id])
            await transaction.fetch(FORGET["delete"], id=backfill.schedule_id)
        return seen

    async def judge(backfill: Backfill, advanced: Advanced | WindlassError, seen: int | WindlassError) -> None:
        assert not isinstance(advanced, WindlassError) or isinstance(advanced, Contention)
        # Whoever deletes a schedule ends the jobs it sees; there must be no others.
        assert seen == len(await live_jobs(stage, backfill))
        assert Advanced() == await step(stage, stage.db, backfill)

    assert 10 <= await Race(prepare, advance, delete, judge).in_every_order(stage)


async def test_rel_b3_a_backfill_beside_an_edit(stage: Stage) -> None:
    """T6: jobs made after an edit are those of the new definition."""

    async def prepare() -> Backfill:
        return await backfill_of(stage, await hourly(stage), concurrency=2)

    async def advance(db: Database, backfill: Backfill) -> Advanced:
        return await step(stage, db, backfill)

    async def edit(db: Database, backfill: Backfill) -> int:
        async with db.transaction() as transaction:
            await transaction.fetch(TOUCH["edit"], id=backfill.schedule_id)
            return len(await transaction.fetch(FORGET["jobs"], id=backfill.schedule_id))

    async def judge(backfill: Backfill, advanced: Advanced | WindlassError, before: int | WindlassError) -> None:
        assert not isinstance(advanced, WindlassError) or isinstance(advanced, Contention)
        made = await live_jobs(stage, backfill)
        assert before == sum(row["payload"] == "null" for row in made)

    assert 10 <= await Race(prepare, advance, edit, judge).in_every_order(stage)


async def test_rel_b3_two_who_look_at_one_missing_run(stage: Stage) -> None:
    """T14: it is told once, with one event."""

    async def prepare() -> UUID:
        return await watched(stage)

    async def look(db: Database, _: UUID) -> Looked:
        return await watches.look(db)

    async def judge(schedule_id: UUID, *answers: Looked | WindlassError) -> None:
        told = [found for answer in answers if isinstance(answer, Looked) for found in answer.told]
        assert [schedule_id] == [found.schedule_id for found in told]
        assert 1 == len(await stage.db.fetch(TOUCH["events"], id=schedule_id))
        await watches.expect(stage.db, [(schedule_id, None, None)])

    assert 4 <= await Race(prepare, look, look, judge).in_every_order(stage)


async def test_rel_b3_a_look_beside_a_pause(stage: Stage) -> None:
    """X5, T14: what is paused owes nothing: a look that read it before writes nothing after."""

    async def prepare() -> UUID:
        return await watched(stage)

    async def look(db: Database, _: UUID) -> Looked:
        return await watches.look(db)

    async def pause(db: Database, schedule_id: UUID) -> int:
        async with db.transaction() as transaction:
            await watches.expect(transaction, [(schedule_id, None, None)])
            return len(await transaction.fetch(TOUCH["events"], id=schedule_id))

    async def judge(schedule_id: UUID, looked: Looked | WindlassError, told: int | WindlassError) -> None:
        assert isinstance(looked, Looked)
        assert told == len(looked.told) == len(await stage.db.fetch(TOUCH["events"], id=schedule_id))
        assert [] == await stage.db.fetch(TOUCH["watch"], id=schedule_id)

    assert 8 <= await Race(prepare, look, pause, judge).in_every_order(stage)
