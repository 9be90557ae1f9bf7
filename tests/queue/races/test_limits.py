"""Races about limits: never more at once than a queue allows, whoever claims and whoever changes the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from tests.queue.races.orders import Race
from tests.queue.races.pausing import COMMIT, Pausing
from tests.queue.races.stage import Scene, Stage, no_jitter
from tests.queue.races.test_claims import Noted, note, noted
from tests.queue.races.test_reports import good
from windlass.db import Database, Statements
from windlass.errors import WindlassError
from windlass.queue import claim as claims
from windlass.queue import lanes, limits, workers
from windlass.queue.claim import Claimed
from windlass.queue.lanes import LaneName
from windlass.queue.report import report
from windlass.queue.retry import PRESETS


async def claim_limited(stage: Stage, db: Database, scene: Scene) -> list[Claimed]:
    """Claim up to three jobs of a limited queue."""
    own = LaneName("default", scene.queue)
    queue = (await stage.lanes.resolve(stage.db, [own]))[own].id
    served = await stage.lanes.serving(stage.db, "default", [scene.queue], tasks=None, labels=[])
    return (await limits.claim_limited(db, queue, [lane.id for lane in served], [scene.session] * 3)).jobs


async def end_all(stage: Stage, scene: Scene, leases: list[Claimed]) -> None:
    """Complete leases."""
    reports = [replaced(scene, lease).complete() for lease in leases]
    await report(stage.db, reports, chance=no_jitter)


def replaced(scene: Scene, lease: Claimed) -> Scene:
    """Return the scene with one lease."""
    return Scene(scene.queue, scene.worker, scene.session, [lease.id], [lease])


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 1), (1, None)])
async def test_rel_x6_claim_beside_limit_change(stage: Stage, old: int, new: int | None) -> None:
    """A claim obeys the limit that stands when it takes the queue's row: the old one or the new one, whole."""

    async def prepare() -> Noted:
        scene = noted(await stage.scene(3))
        await lanes.configure(stage.db, LaneName("default", scene.queue), max_running=old)
        return scene

    async def claim(db: Database, scene: Noted) -> list[Claimed]:
        note(scene, begun_after=scene.ended)
        return await claim_limited(stage, db, scene)

    async def change(db: Database, scene: Noted) -> None:
        await lanes.configure(db, LaneName("default", scene.queue), max_running=new)
        note(scene, ended=True)

    async def judge(scene: Noted, leases: list[Claimed] | WindlassError, _: WindlassError | None) -> None:
        allowed = {new or 3} if scene.begun_after else {old, new or 3}
        assert len(good(leases)) in allowed
        # A lowered limit is kept again when those that were running have ended.
        await end_all(stage, scene, good(leases))

    await Race(prepare, claim, change, judge).in_every_order(stage)


async def test_rel_x6_a_limit_switched_on_beside_claims(stage: Stage) -> None:
    """X6: what was claimed before a limit, or while it came, is counted by it from the first claim on, and for ever."""

    async def prepare() -> Scene:
        return await stage.scene(4)

    async def claim(db: Database, scene: Scene) -> list[Claimed]:
        return await stage.claim(db, scene.queue, scene.session, 2)

    async def switch_on(db: Database, scene: Scene) -> None:
        await lanes.configure(db, LaneName("default", scene.queue), max_running=2)

    async def judge(scene: Scene, leases: list[Claimed] | WindlassError, _: WindlassError | None) -> None:
        held = good(leases)
        late = await claim_limited(stage, stage.db, scene)
        assert 2 == len(held) + len(late)
        # Older claims cannot be under way any more: the first marks what they have taken, the second counts by that.
        stage.clock.advance(limits.UNSEEN_MS / 1000 + 1)
        assert [[], []] == [await claim_limited(stage, stage.db, scene) for _ in range(2)]
        await end_all(stage, scene, [held[0] if held else late[0]])
        last = await claim_limited(stage, stage.db, scene)
        assert 1 == len(last)
        assert [] == await claim_limited(stage, stage.db, scene)
        await end_all(stage, scene, [*[*held, *late][1:], *last])

    await Race(prepare, claim, switch_on, judge).in_every_order(stage)


async def test_rel_x6_a_limit_switched_off_beside_a_claim(stage: Stage) -> None:
    """X6: a claim that has not heard that a limit is gone does not bring it back, nor does the next one count short."""

    async def prepare() -> Scene:
        scene = await stage.scene(4)
        await lanes.configure(stage.db, LaneName("default", scene.queue), max_running=1)
        stage.clock.advance(limits.UNSEEN_MS / 1000 + 1)
        return scene

    async def claim(db: Database, scene: Scene) -> list[Claimed]:
        return await claim_limited(stage, db, scene)

    async def switch_off(db: Database, scene: Scene) -> None:
        await lanes.configure(db, LaneName("default", scene.queue))

    async def judge(scene: Scene, leases: list[Claimed] | WindlassError, _: WindlassError | None) -> None:
        free = await stage.claim(stage.db, scene.queue, scene.session)
        assert 1 == len(free)
        await lanes.configure(stage.db, LaneName("default", scene.queue), max_running=2)
        held = [*good(leases), *free]
        late = await claim_limited(stage, stage.db, scene)
        assert max(2 - len(held), 0) == len(late)
        await end_all(stage, scene, [*held, *late])

    await Race(prepare, claim, switch_off, judge).in_every_order(stage)


async def test_rel_x6_leases_marked_beside_an_end(stage: Stage) -> None:
    """X6: the claim that marks the leases of a new limit, and the end of one of them: one is free afterwards."""

    async def prepare() -> Scene:
        scene = await stage.leased()
        await stage.submit(scene.queue, 2)
        await lanes.configure(stage.db, LaneName("default", scene.queue), max_running=1)
        stage.clock.advance(limits.UNSEEN_MS / 1000 + 1)
        return scene

    async def claim(db: Database, scene: Scene) -> list[Claimed]:
        return await claim_limited(stage, db, scene)

    async def end(db: Database, scene: Scene) -> object:
        return await report(db, [scene.complete()], chance=no_jitter)

    async def judge(scene: Scene, leases: list[Claimed] | WindlassError, _: object) -> None:
        leases = good(leases) or await claim_limited(stage, stage.db, scene)
        assert 1 == len(leases)
        assert [] == await claim_limited(stage, stage.db, scene)

    await Race(prepare, claim, end, judge).in_every_order(stage)


async def test_rel_x6_claim_of_a_server_that_does_not_know_the_limit(stage: Stage) -> None:
    """A claim that has not counted takes nothing from a limited queue, from old and from new lanes, nor back."""
    scene = await stage.leased(retry=PRESETS["stepped"])
    await report(stage.db, [scene.fail()], chance=no_jitter)
    await stage.submit(scene.queue)
    await lanes.configure(stage.servers[-1], LaneName("default", scene.queue), max_running=1)
    await stage.submit(scene.queue, task="new")

    assert [] == await stage.claim(stage.db, scene.queue, scene.session, 3)
    assert [] == await claims.claim_back(stage.db, [(scene.id, 1)], session=scene.session, tenant="default")
    assert 1 == len(await claim_limited(stage, stage.db, scene))
    await lanes.configure(stage.servers[-1], LaneName("default", scene.queue))
    assert 1 == len(await stage.claim(stage.db, scene.queue, scene.session, 3))


async def test_rel_x7_lanes_of_another_queue(stage: Stage) -> None:
    """Room in one queue is not room in another: a claim under the lock of one takes nothing from the other's lanes."""
    roomy, full = await stage.scene(1), await stage.scene(3)
    for scene, limit in ((roomy, 9), (full, 1)):
        await lanes.configure(stage.db, LaneName("default", scene.queue), max_running=limit)
    name = LaneName("default", roomy.queue)
    queue = (await stage.lanes.resolve(stage.db, [name]))[name].id
    served = await stage.lanes.serving(stage.db, "default", [roomy.queue, full.queue], tasks=None, labels=[])

    got = (await limits.claim_limited(stage.db, queue, [lane.id for lane in served], [roomy.session] * 9)).jobs

    assert roomy.ids == [lease.id for lease in got]


async def test_rel_x6_bare_claims_obey_a_limit(stage: Stage) -> None:
    """A caller without a session gets no more than the limit, and leaves no session that holds nothing."""
    scene = await stage.scene(3)
    name = LaneName("default", scene.queue)
    await lanes.configure(stage.db, name, max_running=2)
    queue = (await stage.lanes.resolve(stage.db, [name]))[name].id
    served = [lane.id for lane in await stage.lanes.serving(stage.db, "default", [scene.queue], tasks=None, labels=[])]

    async def claiming(db: Statements, sessions: Sequence[UUID]) -> list[Claimed]:
        return (await limits.claim_limited(db, queue, served, sessions)).jobs

    got = await workers.claim_bare(
        stage.db,
        stage.ids,
        claiming,
        count=3,
        worker="bare",
        tenant="default",
        lease_ms=1000,
    )

    assert 2 == len(got)
    assert [] == await stage.claim_bare(scene.queue)


async def test_rel_x7_two_servers_one_limit(stage: Stage) -> None:
    """Two servers that claim from a queue with limit 1 get one job together."""

    async def prepare() -> Scene:
        scene = await stage.scene(3)
        await lanes.configure(stage.db, LaneName("default", scene.queue), max_running=1)
        return scene

    async def claim(db: Database, scene: Scene) -> list[Claimed]:
        return await claim_limited(stage, db, scene)

    async def judge(_: Scene, left: list[Claimed] | WindlassError, right: list[Claimed] | WindlassError) -> None:
        assert len(good(left)) + len(good(right)) == 1

    await Race(prepare, claim, claim, judge).in_every_order(stage)


async def test_rel_x7_three_servers_two_slots(postgres_stage: Stage) -> None:
    """Three servers that claim at once from a queue with limit 2 get two jobs together."""
    stage = postgres_stage
    scene = await stage.scene(9)
    await lanes.configure(stage.db, LaneName("default", scene.queue), max_running=2)
    first = Pausing(stage.servers[0])
    point = first.hold_before(COMMIT)

    claims = [asyncio.create_task(claim_limited(stage, first, scene))]
    await point.reached.wait()
    claims += [asyncio.create_task(claim_limited(stage, db, scene)) for db in stage.servers[1:]]
    await stage.until_waiting(2)
    point.release()

    got = await asyncio.gather(*claims)

    assert sum(map(len, got)) == 2
    await stage.sound()
