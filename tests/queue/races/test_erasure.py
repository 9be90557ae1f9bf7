"""Races about erasure: whatever comes beside it, nothing of the tenant is left; a job is erased or runs again."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from tests.clock import no_pause
from tests.queue.races.orders import Race
from tests.queue.races.pausing import COMMIT, Pausing
from tests.queue.races.stage import LEASE_MS, LOOK, Stage, no_jitter
from tests.queue.races.test_administration import exists
from windlass.db import Database
from windlass.errors import BeingErased, Conflict, WindlassError
from windlass.queue import checkpoints, deadletters, erasure, history, logs, tenants, workers
from windlass.queue import claim as claims
from windlass.queue.claim import Claimed, Group, Want
from windlass.queue.control import Actor
from windlass.queue.deadletters import Retried
from windlass.queue.erasure import Erased
from windlass.queue.lanes import Lanes
from windlass.queue.report import Answer, Complete, Fail, report
from windlass.queue.submit import submit

ME = Actor("me")
MOST = 100
"""Transactions that an erasure may take here."""


class Scene(NamedTuple):
    """A tenant with one job, a worker of it, and lanes as a server remembers them."""

    tenant: str
    job_id: UUID
    session: UUID
    lanes: Lanes


async def scene_of(stage: Stage) -> Scene:
    """Return a tenant made for one order of a race."""
    tenant = f"tenant-{stage.ids.new()}"
    job, lanes = stage.job("q", tenant=tenant), Lanes()
    await submit(stage.db, lanes, [job])
    return Scene(tenant, job.id, await stage.worker("w", tenant=tenant), lanes)


async def leased(stage: Stage, db: Database, scene: Scene) -> list[Claimed]:
    """Claim the job of a tenant from lanes that are remembered."""
    numbers = [lane.id for lane in (await scene.lanes.resolve(db, [stage.job("q", tenant=scene.tenant).lane])).values()]
    return await claims.claim(db, [Group([Want(number) for number in numbers], [scene.session])])


class Erasing:
    """The beginning of an erasure as one side of a race, and the rest of it after the race."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def begin(self, db: Database, scene: Scene) -> None:
        """Mark the tenant and take the first step, as a server that remembers no lanes."""
        await erasure.begin(db, Lanes(), scene.tenant, actor="me")
        await erasure.go_on(db, self._stage.ids, scene.tenant, batches=1)

    async def finish(self, scene: Scene) -> None:
        """Go on until all is gone; nobody writes any more, so nobody is waited for."""
        for _ in range(MOST):
            if await erasure.go_on(self._stage.db, self._stage.ids, scene.tenant, batches=1) is None:
                return
        raise AssertionError(f"{scene.tenant} is not gone after {MOST} transactions")

    async def gone(self, scene: Scene) -> None:
        """Finish it, and fail unless nothing is left of the job."""
        await self.finish(scene)
        assert {"queue": [], "timer": [], "job": [], "attempts": []} == await self._stage.bytes_of(scene.job_id)
        assert not await exists(self._stage, scene.tenant)


async def test_rel_t24_a_submit_beside_an_erasure_leaves_nothing(stage: Stage) -> None:
    """T24: its job is erased or refused; one that comes after the erasure is a new tenant's."""
    erasing = Erasing(stage)

    async def send(db: Database, scene: Scene) -> UUID:
        [answer] = await submit(db, scene.lanes, [stage.job("q", tenant=scene.tenant)])
        return answer.id

    async def judge(scene: Scene, _: object, sent: UUID | WindlassError) -> None:
        await erasing.gone(scene)
        if isinstance(sent, UUID):
            assert [] == await stage.db.fetch(LOOK["job"], id=sent)
        else:
            assert isinstance(sent, BeingErased)

    assert 8 <= await Race(lambda: scene_of(stage), erasing.begin, send, judge).in_every_order(stage)


async def test_rel_t24_an_erasure_waits_for_a_submit_that_has_not_seen_it(postgres_stage: Stage) -> None:
    """T24: what an open transaction has written cannot be seen yet, so nothing ends before that transaction does."""
    stage = postgres_stage
    erasing, scene = Erasing(stage), await scene_of(stage)
    sending, job = Pausing(stage.servers[1]), stage.job("q", tenant=scene.tenant)
    point = sending.hold_before(COMMIT)
    sent = asyncio.create_task(submit(sending, scene.lanes, [job]))
    await point.reached.wait()

    await erasure.begin(stage.db, Lanes(), scene.tenant, actor="me")
    left = await erasure.go_on(stage.db, stage.ids, scene.tenant)
    point.release()
    await sent

    assert left is not None
    assert left.waits
    await erasing.gone(scene)
    assert [] == await stage.db.fetch(LOOK["job"], id=job.id)


@pytest.mark.exhaustive
async def test_rel_t24_a_claim_beside_an_erasure_leaves_nothing(stage: Stage) -> None:
    """T24: a lease that was given just then is gone with its job."""
    erasing = Erasing(stage)

    async def judge(scene: Scene, _: object, claimed: list[Claimed] | WindlassError) -> None:
        assert isinstance(claimed, list)
        await erasing.gone(scene)

    async def take(db: Database, scene: Scene) -> list[Claimed]:
        return await leased(stage, db, scene)

    assert 6 <= await Race(lambda: scene_of(stage), erasing.begin, take, judge).in_every_order(stage)


@pytest.mark.exhaustive
async def test_rel_t24_a_report_beside_an_erasure_leaves_nothing(stage: Stage) -> None:
    """T24: a job that goes back to wait for its next attempt is found there."""
    erasing = Erasing(stage)

    async def prepare() -> Scene:
        scene = await scene_of(stage)
        assert 1 == len(await leased(stage, stage.db, scene))
        return scene

    async def fail(db: Database, scene: Scene) -> list[Answer]:
        told = Fail(job_id=scene.job_id, fence=1, worker="w", session=scene.session, tenant=scene.tenant, error="boom")
        return await report(db, [told], chance=no_jitter)

    async def judge(scene: Scene, _: object, told: list[Answer] | WindlassError) -> None:
        assert isinstance(told, list)
        await erasing.gone(scene)

    assert 8 <= await Race(prepare, erasing.begin, fail, judge).in_every_order(stage)


async def test_rel_t24_a_job_is_erased_or_runs_again(stage: Stage) -> None:
    """T24: never both: one without its arguments must not run."""

    async def prepare() -> UUID:
        scene = await stage.leased(payload='"kept"')
        await report(stage.db, [scene.fail(error="boom", retryable=False)], chance=no_jitter)
        return scene.id

    async def erase(db: Database, job_id: UUID) -> Erased:
        return await erasure.erase_job(db, job_id, tenant="default", actor=ME)

    async def retry(db: Database, job_id: UUID) -> Retried | Conflict | WindlassError:
        [answer] = await deadletters.retry(db, [job_id], tenant="default", actor=ME)
        return answer

    async def judge(job_id: UUID, erased: Erased | WindlassError, retried: Retried | WindlassError) -> None:
        payload = (await history.get(stage.db, job_id, tenant="default")).payload
        if isinstance(erased, Erased):
            assert isinstance(retried, Conflict)
            assert "null" == payload
        else:
            assert (Conflict, Retried) == (type(erased), type(retried))
            assert '"kept"' == payload

    assert 8 <= await Race(prepare, erase, retry, judge).in_every_order(stage)


async def tell(db: Database, lease: Claimed, worker: str, tenant: str = "default") -> None:
    """Keep a line of a lease."""
    line = logs.Line(lease.claimed_at, "a secret")
    chunk = logs.Chunk(job_id=lease.id, fence=lease.fence, worker=worker, tenant=tenant, seq=0, lines=[line])
    await logs.keep(db, [chunk])


async def note(db: Database, lease: Claimed, worker: str, tenant: str = "default") -> None:
    """Keep a checkpoint of a lease."""
    told = checkpoints.Note(job_id=lease.id, fence=lease.fence, worker=worker, tenant=tenant, checkpoint='"a secret"')
    await checkpoints.keep(db, [told])


async def words_of(stage: Stage, job_id: UUID) -> tuple[list[logs.Written], dict[UUID, checkpoints.Kept]]:
    """Return the lines and the checkpoint of a job."""
    return (await logs.read(stage.db, job_id)).lines, await checkpoints.find(stage.db, [job_id])


@pytest.mark.parametrize("words", [tell, note])
async def test_rel_t24_words_that_are_being_written_are_erased(postgres_stage: Stage, words: Any) -> None:
    """T24: an erasure waits for a writer that has seen the lease, and removes what the writer wrote."""
    stage = postgres_stage
    scene, writing = await stage.leased(), Pausing(stage.servers[1])
    point = writing.hold_before(COMMIT)
    written = asyncio.create_task(words(writing, scene.lease, scene.worker))
    await point.reached.wait()
    await report(stage.db, [scene.complete()], chance=no_jitter)

    erasing = asyncio.create_task(erasure.erase_job(stage.db, scene.id, tenant="default", actor=ME))
    waited = await stage.until_parked(erasing, writing, Pausing(stage.db))
    point.release()
    await asyncio.gather(written, erasing)

    assert ([], {}) == await words_of(stage, scene.id)
    assert waited


@pytest.mark.parametrize("words", [tell, note])
async def test_rel_t24_words_of_a_tenant_that_is_being_erased_are_erased(postgres_stage: Stage, words: Any) -> None:
    """T24: also those of a lease whose holder began to write after the erasure had begun."""
    stage = postgres_stage
    scene, writing, erasing = await scene_of(stage), Pausing(stage.servers[1]), Erasing(stage)
    [lease] = await leased(stage, stage.db, scene)
    await erasing.begin(stage.db, scene)
    point = writing.hold_before(COMMIT)
    written = asyncio.create_task(words(writing, lease, "w", scene.tenant))
    await point.reached.wait()

    finished = asyncio.create_task(erasing.finish(scene))
    waited = await stage.until_parked(finished, writing, Pausing(stage.db))
    point.release()
    await asyncio.gather(written, finished)

    assert ([], {}) == await words_of(stage, scene.job_id)
    assert waited


async def test_rel_t24_a_line_that_waited_is_not_written_after_an_erasure(postgres_stage: Stage) -> None:
    """T24: who has seen a lease and waits for the log of another job looks again before writing."""
    stage = postgres_stage
    scene, first = await stage.leased(2), Pausing(stage.servers[1])
    one, other = sorted(scene.leases, key=lambda lease: lease.id)
    point = first.hold_before(COMMIT)
    writing = asyncio.create_task(tell(first, one, scene.worker))
    await point.reached.wait()
    line = logs.Line(other.claimed_at, "a secret")
    chunks = [
        logs.Chunk(job_id=lease.id, fence=lease.fence, worker=scene.worker, seq=1, lines=[line])
        for lease in (one, other)
    ]
    late = asyncio.create_task(logs.keep(stage.servers[1], chunks))
    assert await stage.until_parked(late, first, Pausing(stage.servers[1]))

    done = Complete(job_id=other.id, fence=other.fence, worker=scene.worker, session=scene.session)
    await report(stage.db, [done], chance=no_jitter)
    await erasure.erase_job(stage.db, other.id, tenant="default", actor=ME)
    point.release()
    await asyncio.gather(writing, late)

    assert ([], {}) == await words_of(stage, other.id)
    assert 2 == len((await logs.read(stage.db, one.id)).lines)


async def test_rel_t24_a_name_is_forgotten_or_given_again(stage: Stage) -> None:
    """M1: whoever forgets names that were erased long ago leaves the new owner of one alone."""
    erasing = Erasing(stage)

    async def prepare() -> Scene:
        scene = await scene_of(stage)
        await erasing.begin(stage.db, scene)
        await erasing.finish(scene)
        stage.clock.advance(1)
        return scene

    async def forget(db: Database, _: Scene) -> int:
        return await erasure.forget_names(db, age_ms=500, limit=MOST)

    async def give(db: Database, scene: Scene) -> UUID:
        await tenants.create(db, scene.tenant, pause=no_pause)
        session = workers.NewSession(id=stage.ids.new(), worker="new", tenant=scene.tenant, lease_ms=LEASE_MS)
        await workers.register(db, session)
        return session.id

    async def judge(scene: Scene, forgotten: object, session: UUID | WindlassError) -> None:
        assert isinstance(forgotten, int)
        assert isinstance(session, UUID)
        assert await exists(stage, scene.tenant)
        [beat] = await workers.heartbeat(stage.db, [workers.Beat(session, tenant=scene.tenant)])
        assert beat.alive

    assert 6 <= await Race(prepare, forget, give, judge).in_every_order(stage)
