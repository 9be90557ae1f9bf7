"""Races about the partitions of `job`: made beside submits, and dropped beside whatever is done to the jobs in them.

Spans of a day lie one behind the other in the future, and jobs get ids of those days: so each order of a race has a
span of its own to make or to drop, and the clock, and with it history, stays where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

import asyncpg
import pytest

from tests.queue.races.orders import Race
from tests.queue.races.pausing import COMMIT, Pausing
from tests.queue.races.stage import PATIENCE_S, Scene, Stage
from tests.queue.races.steps import STEPS, Step
from tests.queue.races.test_reports import good
from windlass.db import Database
from windlass.db.spans import drop_spans, make_spans, reach
from windlass.errors import Contention, Unavailable, WindlassError
from windlass.ids import Ids
from windlass.queue import history
from windlass.queue.lanes import Lanes
from windlass.queue.submit import Submitted, submit

OFTEN = ("retry", "retry_cancelled", "complete", "die", "cancel", "change", "promote", "claim")
"""What brings a job back, ends it, or takes it from one place to another; `make test-all` has every step."""
EVERY_STEP = [
    pytest.param(step, marks=() if name in OFTEN else pytest.mark.exhaustive, id=name) for name, step in STEPS.items()
]


def days_to(db: Database, day: date) -> int:
    """Return how many days ahead of the clock a day is."""
    return (day - db.now().date()).days


async def add_span(db: Database) -> None:
    """Make the span of one more day."""
    assert await make_spans(db, days=1, days_ahead=days_to(db, await reach(db)) + 1)


async def in_a_new_span(stage: Stage) -> None:
    """Let the next jobs lie in a span of their own, which is the last but one."""
    await add_span(stage.db)
    noon = datetime.combine(await reach(stage.db) - timedelta(days=2), time(12), UTC)
    stage.ids = Ids(lambda: noon)


async def drop(db: Database, _: object) -> dict[str, int]:
    """Drop all spans but the last one."""
    return (await drop_spans(db, days=1 - days_to(db, await reach(db)))).row_estimates


@pytest.mark.parametrize("step", EVERY_STEP)
async def test_rel_x23_a_span_dropped_beside_a_step(postgres_stage: Stage, step: Step) -> None:
    """X23: whatever is done to a job while its span goes, in any order, is done, and the job is there."""
    stage = postgres_stage

    async def prepare() -> Scene:
        await in_a_new_span(stage)
        return await step.prepare(stage)

    async def act(db: Database, scene: Scene) -> object:
        return await step.act(stage, db, scene)

    async def judge(scene: Scene, answer: object, dropped: dict[str, int] | WindlassError) -> None:
        assert not isinstance(answer, WindlassError), answer
        assert await stage.state(scene.ids[0]) is step.after
        # One that could not have its locks is left to the next run.
        assert {*good(dropped), *(await drop(stage.db, scene))}
        assert await stage.state(scene.ids[0]) is step.after

    assert 8 <= await Race(prepare, act, drop, judge).in_every_order(stage)


async def test_rel_x23_a_span_dropped_by_two(postgres_stage: Stage) -> None:
    """X23: two servers that drop the same span at once both end well, and its jobs are there once."""
    stage = postgres_stage

    async def prepare() -> Scene:
        await in_a_new_span(stage)
        return await stage.scene(3)

    async def drop_well(db: Database, scene: Scene) -> dict[str, int]:
        try:
            return await drop(db, scene)
        except asyncpg.PostgresError as error:
            raise AssertionError("a rival's removal is an error of the driver") from error

    async def judge(scene: Scene, left: dict[str, int] | WindlassError, right: dict[str, int] | WindlassError) -> None:
        assert all(isinstance(answer, dict | Contention) for answer in (left, right)), (left, right)
        await drop(stage.db, scene)
        assert {*scene.ids} == await history.live(stage.db, scene.ids)

    await Race(prepare, drop_well, drop_well, judge).in_every_order(stage)


async def test_rel_x23_spans_made_by_two(postgres_stage: Stage) -> None:
    """X23: two servers that make the same span at once both end well, and it is made once."""
    stage = postgres_stage

    async def prepare() -> int:
        return days_to(stage.db, await reach(stage.db)) + 1

    async def make(db: Database, ahead: int) -> list[str]:
        return await make_spans(db, days=1, days_ahead=ahead)

    async def judge(_: int, left: list[str] | WindlassError, right: list[str] | WindlassError) -> None:
        assert 1 == len([*good(left), *good(right)])

    await Race(prepare, make, make, judge).in_every_order(stage)


async def test_rel_x23_submit_into_a_span_that_is_made(postgres_stage: Stage) -> None:
    """X23: a job for whose time there is no span yet is refused with what to do, and stored as soon as there is one."""
    stage = postgres_stage

    async def prepare() -> UUID:
        noon = datetime.combine(await reach(stage.db), time(12), UTC)
        return Ids(lambda: noon).new()

    async def store(db: Database, job_id: UUID) -> Sequence[Submitted]:
        return await submit(db, Lanes(), [stage.job("queue", id=job_id)])

    async def make(db: Database, _: UUID) -> None:
        await add_span(db)

    async def judge(job_id: UUID, stored: Sequence[Submitted] | WindlassError, _: WindlassError | None) -> None:
        if isinstance(stored, WindlassError):
            assert isinstance(stored, Unavailable)
            assert "Run `windlass migrate` or start a server" in str(stored)
            stored = await store(stage.db, job_id)
        assert [job_id] == [answer.id for answer in stored]
        assert {job_id} == await history.live(stage.db, [job_id])

    await Race(prepare, store, make, judge).in_every_order(stage)


async def test_rel_x23_a_late_job_beside_the_end_of_its_span(postgres_stage: Stage) -> None:
    """X23: a job whose id is of a span that is being dropped, from an outbox that was read late, is stored for good."""
    stage = postgres_stage

    async def prepare() -> UUID:
        await in_a_new_span(stage)
        await stage.scene()
        return stage.ids.new()

    async def store(db: Database, job_id: UUID) -> Sequence[Submitted]:
        return await submit(db, Lanes(), [stage.job("queue", id=job_id)])

    async def judge(
        job_id: UUID, stored: Sequence[Submitted] | WindlassError, _: dict[str, int] | WindlassError
    ) -> None:
        assert [job_id] == [answer.id for answer in good(stored)]
        await drop(stage.db, None)
        assert {job_id} == await history.live(stage.db, [job_id])

    await Race(prepare, store, drop, judge).in_every_order(stage)


async def test_rel_x23_jobs_go_on_while_a_span_is_waited_for(postgres_stage: Stage) -> None:
    """X23: a removal that finds a long reader gives up soon, and nobody waits behind it for as long as the reader."""
    stage = postgres_stage
    await in_a_new_span(stage)
    scene = await stage.leased()
    reader = Pausing(stage.servers[0])
    point = reader.hold_before(COMMIT)

    async def look() -> None:
        async with reader.transaction() as transaction:
            await transaction.fetch(history.SQL.get, id=scene.id, tenant="default")

    looking = asyncio.create_task(look())
    await point.reached.wait()
    async with asyncio.timeout(PATIENCE_S):
        dropped = await drop(stage.servers[1], scene)
        stored = await stage.submit(scene.queue)
    point.release()
    await looking

    assert {} == dropped
    assert {*stored, scene.id} == await history.live(stage.db, [*stored, scene.id])
    await stage.sound()
