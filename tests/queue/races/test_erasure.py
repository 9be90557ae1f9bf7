"""Races about erasure: whatever comes beside it, nothing of the tenant is left; a job is erased or runs again."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from uuid import UUID

import pytest

from tests.queue.races.orders import Race
from tests.queue.races.pausing import COMMIT, Pausing
from tests.queue.races.stage import LOOK, Stage, no_jitter
from tests.queue.races.test_administration import exists
from windlass.db import Database
from windlass.errors import BeingErased, Conflict, WindlassError
from windlass.queue import claim as claims
from windlass.queue import deadletters, erasure, history
from windlass.queue.claim import Claimed, Group, Want
from windlass.queue.control import Actor
from windlass.queue.deadletters import Retried
from windlass.queue.erasure import Erased
from windlass.queue.lanes import Lanes
from windlass.queue.report import Answer, Fail, report
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
