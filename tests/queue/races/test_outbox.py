"""Races about the outbox: of all who want one row, or the end of one lease, one has it, and the others are told so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.queue import said
from tests.queue.races.orders import Race
from tests.queue.races.stage import Scene, Stage, no_jitter
from tests.queue.races.steps import ME
from windlass.db import Database
from windlass.engine.duty import Ran
from windlass.errors import Contention, JobFinished, WindlassError
from windlass.job import State
from windlass.queue import control, history, workers
from windlass.queue.control import Cancelled
from windlass.queue.report import Answer, Status, report
from windlass.queue.rescue import Rescued

STALE = "WL409"
"""The SQLSTATE of a finish whose lease is over."""


async def finish(db: Database, scene: Scene) -> bool:
    """Finish the one lease in a transaction, as an application does; return whether it was accepted."""
    try:
        async with db.transaction() as transaction:
            await said.finish(transaction, scene.lease.id, scene.lease.fence, result='"by the application"')
    except asyncpg.PostgresError as error:
        if error.sqlstate != STALE:
            raise
        return False
    return True


def good(answer: Any) -> Any:
    """Return an answer that is no error."""
    assert not isinstance(answer, WindlassError), answer
    return answer


async def ended_by_the_application(stage: Stage, scene: Scene) -> None:
    """Relay what is to be relayed: the job has succeeded, with the application's result and one attempt."""
    await said.relay(stage.db)
    job = await stage.get(scene.id)
    assert (State.SUCCEEDED, '"by the application"') == (job.state, job.result)
    assert 1 == len((await history.attempts(stage.db, scene.id, tenant="default")).items)


async def test_rel_s11_relay_beside_relay(stage: Stage) -> None:
    """Two servers relay the same rows: each row becomes one job."""

    async def prepare() -> tuple[Scene, list[UUID]]:
        scene = await stage.scene(0)
        return scene, [await said.enqueue(stage.db, queue=scene.queue, unique_key=f"{scene.queue}-{n}") for n in "ab"]

    async def relay(db: Database, _: object) -> Ran:
        return await said.relay(db)

    async def judge(made: tuple[Scene, list[UUID]], *answers: Ran | WindlassError) -> None:
        scene, ids = made
        for answer in answers:
            good(answer)
        await said.relay(stage.db)
        assert [] == await said.left(stage.db)
        assert sorted(ids) == sorted(lease.id for lease in await stage.claim(stage.db, scene.queue, scene.session, 10))

    await Race(prepare, relay, relay, judge).in_every_order(stage)


async def test_rel_s11_relay_beside_a_relay_whose_job_ends(stage: Stage) -> None:
    """A server that is slow to relay what it has read does nothing, also when the job has run to its end meanwhile."""

    async def prepare() -> Scene:
        scene = await stage.scene(0)
        job_id = await said.enqueue(stage.db, queue=scene.queue)
        return Scene(scene.queue, scene.worker, scene.session, [job_id])

    async def relay(db: Database, _: Scene) -> Ran:
        return await said.relay(db)

    async def relay_and_run(db: Database, scene: Scene) -> None:
        await said.relay(db)
        for lease in await stage.claim(db, scene.queue, scene.session):
            done = Scene(scene.queue, scene.worker, scene.session, scene.ids, [lease])
            await report(db, [done.complete()], chance=no_jitter)

    async def judge(scene: Scene, *answers: object) -> None:
        for answer in answers:
            good(answer)
        await relay_and_run(stage.db, scene)
        assert State.SUCCEEDED is await stage.state(scene.id)
        assert 1 == len((await history.attempts(stage.db, scene.id, tenant="default")).items)

    await Race(prepare, relay, relay_and_run, judge).in_every_order(stage)


async def test_rel_r13_relay_of_a_finish_beside_relay(stage: Stage) -> None:
    """Two servers relay the same finish: the job ends once."""

    async def prepare() -> Scene:
        scene = await stage.leased(started=True)
        await said.finish(stage.db, scene.lease.id, scene.lease.fence, result='"by the application"')
        return scene

    async def relay(db: Database, _: object) -> Ran:
        return await said.relay(db)

    async def judge(scene: Scene, *answers: Ran | WindlassError) -> None:
        for answer in answers:
            good(answer)
        await ended_by_the_application(stage, scene)

    await Race(prepare, relay, relay, judge).in_every_order(stage)


async def test_rel_r13_finish_beside_rescue(postgres_stage: Stage) -> None:
    """A finish and a rescue of one lease: one of them has it; a refused finish leaves the job to another worker."""
    stage, seen = postgres_stage, set[bool]()

    async def prepare() -> Scene:
        scene = await stage.leased(started=True)
        await stage.lapse()
        return scene

    async def judge(scene: Scene, finished: bool | WindlassError, rescued: Rescued | WindlassError) -> None:
        lost = scene.id in [moved.move.lease.id for moved in good(rescued).moved]
        seen.add(good(finished))
        assert lost is not finished
        if finished:
            await ended_by_the_application(stage, scene)
        else:
            assert State.QUEUED is await stage.state(scene.id)

    await Race(prepare, finish, lambda db, _: stage.rescue(db), judge).in_every_order(stage)
    assert {True, False} == seen


@pytest.mark.parametrize("kind", ["complete", "fail", "release", "snooze"])
async def test_rel_r13_finish_beside_report(postgres_stage: Stage, kind: str) -> None:
    """A finish and a report of one lease: the first ends it; the other is told that it is over, or done already."""
    stage, seen = postgres_stage, set[tuple[bool, Status]]()

    async def say(db: Database, scene: Scene) -> Answer:
        [answer] = await report(db, [getattr(scene, kind)()], chance=no_jitter)
        return answer

    async def judge(scene: Scene, finished: bool | WindlassError, answer: Answer | WindlassError) -> None:
        seen.add((good(finished), good(answer).status))
        if finished:
            await ended_by_the_application(stage, scene)
        else:
            assert 1 == len((await history.attempts(stage.db, scene.id, tenant="default")).items)

    await Race(lambda: stage.leased(started=True), finish, say, judge).in_every_order(stage)
    refused = Status.ALREADY if kind == "complete" else Status.STALE
    assert {(True, refused), (False, Status.APPLIED)} == seen


async def test_rel_r13_finish_beside_cancel(postgres_stage: Stage) -> None:
    """A finish wins over a cancel that nobody has confirmed yet, whichever comes first."""
    stage = postgres_stage

    async def cancel(db: Database, scene: Scene) -> Cancelled | JobFinished | Any:
        [answer] = await control.cancel(db, scene.ids, tenant="default", actor=ME)
        return answer

    async def judge(scene: Scene, finished: bool | WindlassError, cancelled: object) -> None:
        assert good(finished)
        assert isinstance(cancelled, JobFinished) or (
            isinstance(cancelled, Cancelled) and cancelled.state is State.CANCELLING
        )
        await ended_by_the_application(stage, scene)

    await Race(lambda: stage.leased(started=True), finish, cancel, judge).in_every_order(stage)


async def test_rel_r13_finish_beside_itself(postgres_stage: Stage) -> None:
    """Two applications with the same lease: one of them finishes it, the other must roll back."""
    stage = postgres_stage

    async def judge(scene: Scene, one: bool | WindlassError, other: bool | WindlassError) -> None:
        assert {True, False} == {good(one), good(other)}
        await ended_by_the_application(stage, scene)

    await Race(lambda: stage.leased(started=True), finish, finish, judge).in_every_order(stage)


async def lose_session(db: Database, scene: Scene) -> object:
    """Close the session of the worker."""
    return await workers.close(db, scene.session, tenant="default", reason="drain")


async def relay_it(db: Database, _: Scene) -> object:
    """Relay."""
    return await said.relay(db)


async def complete(db: Database, scene: Scene) -> object:
    """Report the success, too late."""
    [answer] = await report(db, [scene.complete()], chance=no_jitter)
    assert Status.ALREADY is answer.status
    return answer


async def pause_and_resume(db: Database, scene: Scene) -> object:
    """Pause and resume the job, if it still lives."""
    try:
        await control.pause_job(db, scene.id, tenant="default", actor=ME)
        return await control.resume_job(db, scene.id, tenant="default", actor=ME)
    except JobFinished:
        return None


async def cancel_it(db: Database, scene: Scene) -> object:
    """Cancel the job, too late."""
    [answer] = await control.cancel(db, scene.ids, tenant="default", actor=ME)
    assert isinstance(answer, JobFinished)
    return None


Act = Callable[[Database, Scene], Awaitable[object]]


@pytest.mark.parametrize("act", [lose_session, complete, pause_and_resume, cancel_it], ids=lambda act: act.__name__)
async def test_rel_r13_relay_of_a_finish_beside(stage: Stage, act: Act) -> None:
    """Whatever is done to a job whose finish is being relayed: it ends once, with the application's result."""

    async def prepare() -> Scene:
        scene = await stage.leased(started=True)
        await said.finish(stage.db, scene.lease.id, scene.lease.fence, result='"by the application"')
        return scene

    async def judge(scene: Scene, *answers: object) -> None:
        for answer in answers:
            good(answer)
        await ended_by_the_application(stage, scene)

    await Race(prepare, relay_it, act, judge).in_every_order(stage)


async def test_rel_r13_heartbeats_do_not_wait_for_an_open_finish(postgres_stage: Stage) -> None:
    """An application that keeps its transaction open after a finish holds up nobody's heartbeat."""
    stage = postgres_stage
    scene, other = await stage.leased(), await stage.leased()
    held = [workers.Held(made.lease.id, made.lease.fence, started=True) for made in (scene, other)]

    async with stage.servers[0].transaction() as transaction:
        await said.finish(transaction, scene.lease.id, scene.lease.fence, result='"by the application"')
        answers = await workers.heartbeat(
            stage.servers[-1],
            [workers.Beat(made.session, [one]) for made, one in zip((scene, other), held, strict=True)],
        )

    assert [True, True] == [answer.alive for answer in answers]
    assert State.RUNNING is await stage.state(other.id)
    await ended_by_the_application(stage, scene)


async def test_rel_r13_a_cancel_does_not_wait_for_an_open_finish(hasty_stage: Stage) -> None:
    """Whoever cancels a job that is being finished hears so while the application's transaction is still open."""
    stage = hasty_stage
    scene = await stage.leased(started=True)

    async with stage.servers[0].transaction() as transaction:
        await said.finish(transaction, scene.lease.id, scene.lease.fence, result='"by the application"')
        with pytest.raises(Contention):
            await control.cancel(stage.servers[-1], scene.ids, tenant="default", actor=ME)

    await ended_by_the_application(stage, scene)
