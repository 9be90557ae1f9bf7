"""Races about waiting jobs: due once, cancelled for good, changed whole, run again once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from tests.queue.races.orders import Race
from tests.queue.races.pausing import COMMIT, Pausing
from tests.queue.races.stage import PATIENCE_S, Scene, Stage, no_jitter
from tests.queue.races.test_reports import good, say_it
from windlass.db import Database
from windlass.errors import Conflict, JobFinished, NotFound, WindlassError
from windlass.job import State
from windlass.queue import control, deadletters, history, timers
from windlass.queue.control import Actor, Cancelled
from windlass.queue.deadletters import Retried
from windlass.queue.history import Filter
from windlass.queue.report import report
from windlass.queue.submit import Submitted, submit
from windlass.queue.timers import Promoted

Found = Cancelled | JobFinished | NotFound


async def promote(db: Database, _: Scene) -> list[Promoted]:
    """Promote what is due."""
    return await timers.promote(db)


async def cancel(db: Database, scene: Scene) -> Found:
    """Cancel the job of a scene."""
    [answer] = await control.cancel(db, [scene.id], tenant="default", actor=Actor())
    return answer


async def due_scene(stage: Stage, jobs: int = 1) -> Scene:
    """Return a scene whose timers are due."""
    scene = await stage.scene(jobs, delay_ms=5000)
    stage.clock.advance(6)
    return scene


async def test_rel_x16_promotion_by_two(stage: Stage) -> None:
    """Two servers that promote at once move each timer once, and do not wait for each other."""

    async def judge(scene: Scene, left: list[Promoted] | WindlassError, right: list[Promoted] | WindlassError) -> None:
        moved = [timer.id for timer in good(left) + good(right) if timer.id in scene.ids]
        assert sorted(moved) == sorted(scene.ids)
        assert {await stage.state(job_id) for job_id in scene.ids} == {State.QUEUED}

    await Race(lambda: due_scene(stage, 3), promote, promote, judge).in_every_order(stage)


async def test_rel_x16_promotion_waits_for_nobody(postgres_stage: Stage) -> None:
    """Promotion passes by a timer that a rival has locked, and moves the others."""
    stage = postgres_stage
    scene = await due_scene(stage, 2)
    rival = Pausing(stage.servers[0])
    point = rival.hold_before(COMMIT)
    held = asyncio.create_task(timers.promote(rival, limit=1))
    await point.reached.wait()

    async with asyncio.timeout(PATIENCE_S):
        moved = await timers.promote(stage.servers[1])
    point.release()

    assert {timer.id for timer in [*moved, *await held]} == set(scene.ids)
    assert len(moved) == 1


async def test_rel_x16_promotion_beside_cancel(stage: Stage) -> None:
    """A cancel finds a job that is just being promoted, wherever it lies."""

    async def judge(scene: Scene, _: list[Promoted] | WindlassError, found: Found | WindlassError) -> None:
        assert found == Cancelled(scene.id, State.CANCELLED)
        assert await stage.state(scene.id) is State.CANCELLED

    await Race(lambda: due_scene(stage), promote, cancel, judge).in_every_order(stage)


async def test_rel_x16_promotion_beside_change(stage: Stage) -> None:
    """A job put off while it is being promoted waits until its new time."""
    new = timedelta(hours=1)

    async def change(db: Database, scene: Scene) -> State:
        at = stage.clock.now() + new
        return await control.change(db, stage.lanes, scene.id, tenant="default", actor=Actor(), run_at=at)

    async def judge(scene: Scene, _: list[Promoted] | WindlassError, state: State | WindlassError) -> None:
        job = await stage.get(scene.id)
        assert good(state) is job.state is State.SCHEDULED
        assert job.next_run_at == stage.clock.now() + new
        assert [] == await stage.claim(stage.db, scene.queue, scene.session)

    await Race(lambda: due_scene(stage), promote, change, judge).in_every_order(stage)


async def test_rel_x16_promotion_beside_pause(stage: Stage) -> None:
    """A timer paused while it is being promoted is held, and nobody gets it until it is resumed."""

    async def pause(db: Database, scene: Scene) -> State:
        return await control.pause_job(db, scene.id, tenant="default", actor=Actor())

    async def judge(scene: Scene, _: list[Promoted] | WindlassError, state: State | WindlassError) -> None:
        good(state)
        await timers.promote(stage.db)
        assert (await stage.get(scene.id)).paused
        assert [] == await stage.claim(stage.db, scene.queue, scene.session)
        await control.resume_job(stage.db, scene.id, tenant="default", actor=Actor())
        assert 1 == len(await stage.claim(stage.db, scene.queue, scene.session))

    await Race(lambda: due_scene(stage), promote, pause, judge).in_every_order(stage)


STATEMENTS = {history.FEW_ROWS: 3, 1: 10}
"""Of a list: all places at once, the sizes and the jobs; of a place with more than few jobs, this and each after it."""


@pytest.mark.parametrize(
    ("few", "number"), [(few, number) for few, most in STATEMENTS.items() for number in range(most + 1)]
)
async def test_rel_x16_listed_beside_promotion(
    stage: Stage, few: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list shows a job once, wherever between its statements the job is promoted and ends."""
    monkeypatch.setattr(history, "FEW_ROWS", few)
    scene = await due_scene(stage, 2)
    reader = Pausing(stage.servers[0])
    point = reader.hold_at(number)
    listing = asyncio.create_task(history.find(reader, Filter(tenant="default")))
    if number < STATEMENTS[few]:
        await point.reached.wait()
    else:
        await listing

    await timers.promote(stage.servers[-1])
    await control.cancel(stage.servers[-1], scene.ids[:1], tenant="default", actor=Actor())
    point.release()

    assert [job.id for job in (await listing).jobs] == sorted(scene.ids, reverse=True)


@pytest.mark.parametrize(
    ("few", "number"), [(few, number) for few, most in STATEMENTS.items() for number in range(1, most)]
)
async def test_rel_x16_listed_as_read_last(
    stage: Stage, few: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job found in two places is shown as it was when it was read, and fills one line of the page."""
    monkeypatch.setattr(history, "FEW_ROWS", few)
    scene = await due_scene(stage, 3)
    reader = Pausing(stage.servers[0])
    point = reader.hold_at(number)
    listing = asyncio.create_task(history.find(reader, Filter(tenant="default"), limit=3))
    await point.reached.wait()

    await timers.promote(stage.servers[-1])
    point.release()

    page = await listing
    assert ([State.QUEUED] * 3, None) == ([job.state for job in page.jobs], page.next_cursor)
    assert 3 == len({job.id for job in page.jobs} & set(scene.ids))


async def test_rel_x16_a_job_that_left_the_state_asked_for_is_not_listed(stage: Stage) -> None:
    """A list of scheduled jobs shows none that was promoted between the look and the reading."""
    await due_scene(stage, 2)
    reader = Pausing(stage.servers[0])
    point = reader.hold_before("of_page")
    scheduled = frozenset({State.SCHEDULED})
    listing = asyncio.create_task(history.find(reader, Filter(tenant="default", states=scheduled)))
    await point.reached.wait()

    await timers.promote(stage.servers[-1])
    point.release()

    assert [] == (await listing).jobs


@pytest.mark.parametrize("statement", ["floor_queued", "list_queued", "own_done", "own_timed"])
async def test_rel_x16_listed_beside_a_failure(stage: Stage, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that goes back to wait for its next attempt while a list is read place by place is in the list, once."""
    monkeypatch.setattr(history, "FEW_ROWS", 1)  # the ready job: the look at all places sees no other
    scene = await stage.leased(started=True)
    ids = [*scene.ids, *await stage.submit(scene.queue)]
    reader = Pausing(stage.servers[0])
    point = reader.hold_before(statement)
    listing = asyncio.create_task(history.find(reader, Filter(tenant="default")))
    await point.reached.wait()

    await report(stage.servers[-1], [scene.fail()], chance=no_jitter)
    point.release()

    page = await listing
    assert sorted(ids, reverse=True) == [job.id for job in page.jobs]
    assert State.SCHEDULED is {job.id: job.state for job in page.jobs}[scene.id]


async def test_rel_k2_two_cancels(stage: Stage) -> None:
    """Of two cancels of one job one ends it, and the other is told that it had been cancelled before."""

    async def judge(scene: Scene, left: Found | WindlassError, right: Found | WindlassError) -> None:
        assert {good(left), good(right)} == {
            Cancelled(scene.id, State.CANCELLED),
            Cancelled(scene.id, State.CANCELLED, already=True),
        }

    await Race(stage.scene, cancel, cancel, judge).in_every_order(stage)


async def test_rel_x22_cancel_beside_submit_of_the_same_keys(stage: Stage) -> None:
    """A cancel of jobs in both places and a submit of their unique keys wait for each other one way round only."""

    async def prepare() -> Scene:
        scene = await stage.scene(0)
        ids = [
            *await stage.submit(scene.queue, unique_key=f"{scene.queue}-b"),
            *await stage.submit(scene.queue, unique_key=f"{scene.queue}-a", delay_ms=5000),
        ]
        return Scene(scene.queue, scene.worker, scene.session, ids)

    async def cancel_both(db: Database, scene: Scene) -> list[Found]:
        return await control.cancel(db, scene.ids, tenant="default", actor=Actor())

    async def submit_both(db: Database, scene: Scene) -> list[Submitted]:
        jobs = [stage.job(scene.queue, unique_key=f"{scene.queue}-{end}") for end in "ab"]
        return await submit(db, stage.lanes, jobs)

    async def judge(scene: Scene, found: list[Found] | WindlassError, made: list[Submitted] | WindlassError) -> None:
        assert [Cancelled(job_id, State.CANCELLED) for job_id in scene.ids] == good(found)
        assert [answer.id in scene.ids for answer in good(made)] == [answer.duplicate for answer in good(made)]

    await Race(prepare, cancel_both, submit_both, judge).in_every_order(stage)


async def test_rel_k2_two_retries(stage: Stage) -> None:
    """Two people who retry one dead job start one run; its fence goes on."""

    async def retry(db: Database, scene: Scene) -> Retried | Conflict | NotFound:
        [answer] = await deadletters.retry(db, [scene.id], tenant="default", actor=Actor())
        return answer

    async def judge(
        scene: Scene,
        left: Retried | Conflict | NotFound | WindlassError,
        right: Retried | Conflict | NotFound | WindlassError,
    ) -> None:
        job = await stage.get(scene.id)
        assert sorted(type(answer).__name__ for answer in (left, right)) == ["Conflict", "Retried"]
        assert (job.run, job.attempt, job.fence, job.state) == (2, 0, 1, State.QUEUED)
        [lease] = await stage.claim(stage.db, scene.queue, scene.session)
        assert lease.fence == 2

    await Race(lambda: dead_scene(stage), retry, retry, judge).in_every_order(stage)


async def dead_scene(stage: Stage) -> Scene:
    """Return a scene whose job is dead."""
    scene = await stage.leased()
    assert (await say_it(stage.db, scene.fail(retryable=False))).state is State.DEAD
    return scene


async def test_rel_k2_retry_beside_purge(stage: Stage) -> None:
    """A dead job is retried or purged, never both."""

    async def retry(db: Database, scene: Scene) -> Retried | Conflict | NotFound:
        [answer] = await deadletters.retry(db, [scene.id], tenant="default", actor=Actor())
        return answer

    async def purge(db: Database, scene: Scene) -> list[UUID]:
        return await deadletters.purge(db, [scene.id], tenant="default")

    async def judge(
        scene: Scene, answer: Retried | Conflict | NotFound | WindlassError, gone: list[UUID] | WindlassError
    ) -> None:
        assert isinstance(answer, NotFound if scene.id in good(gone) else Retried)

    await Race(lambda: dead_scene(stage), retry, purge, judge).in_every_order(stage)
