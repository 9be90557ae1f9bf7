"""Races about handing out: no job twice, none that was taken back, none beyond a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.databases import PATIENT, connected, open_with
from tests.queue.races.orders import Race
from tests.queue.races.pausing import COMMIT, Pausing
from tests.queue.races.stage import PATIENCE_S, WAITING, Scene, Stage, no_jitter
from tests.queue.races.test_reports import good
from windlass.db import Database, Query, Row
from windlass.errors import Conflict, Contention, JobFinished, NotFound, WindlassError
from windlass.ids import Ids
from windlass.job import Outcome, State
from windlass.queue import claim as claims
from windlass.queue import control, deadlines, moves, timers, workers
from windlass.queue.check import check
from windlass.queue.claim import Claimed, Group, Want
from windlass.queue.control import Actor, Cancelled
from windlass.queue.lanes import LaneName, Lanes
from windlass.queue.moves import LeaseName
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Fail, Report, report
from windlass.queue.retry import PRESETS
from windlass.queue.submit import submit

GATE = 20


class Noted(Scene):
    """A scene that notes whether the rival's act had ended when the claim began."""

    ended = False
    begun_after = False


def noted(scene: Scene) -> Noted:
    """Return the scene with room for notes."""
    return Noted(**vars(scene))


def note(scene: Noted, **notes: bool) -> None:
    """Keep notes on a scene."""
    for name, value in notes.items():
        object.__setattr__(scene, name, value)


@pytest.fixture(params=["queue", "tenant"])
def pause(request: pytest.FixtureRequest) -> str:
    """What is paused."""
    return str(request.param)


async def test_rel_x6_claim_beside_pause(stage: Stage) -> None:
    """A claim begun after a pause has committed takes nothing; one begun before may."""

    async def prepare() -> Noted:
        return noted(await stage.scene())

    async def claim(db: Database, scene: Noted) -> list[Claimed]:
        note(scene, begun_after=scene.ended)
        return await stage.claim(db, scene.queue, scene.session)

    async def pause_it(db: Database, scene: Noted) -> None:
        await control.pause_queue(db, Lanes(), LaneName("default", scene.queue), actor=Actor())
        note(scene, ended=True)

    async def judge(scene: Noted, leases: list[Claimed] | WindlassError, _: WindlassError | None) -> None:
        assert not (scene.begun_after and good(leases))
        assert await stage.state(scene.id) is (State.ASSIGNED if good(leases) else State.QUEUED)
        assert [] == await stage.claim(stage.servers[-1], scene.queue, scene.session)

    await Race(prepare, claim, pause_it, judge).in_every_order(stage)


async def test_rel_x6_claim_beside_pause_of_the_job(stage: Stage) -> None:
    """A job is paused or claimed, or both when it was claimed first; held, nobody gets it."""

    async def claim(db: Database, scene: Scene) -> list[Claimed]:
        return await stage.claim(db, scene.queue, scene.session)

    async def pause_it(db: Database, scene: Scene) -> State:
        return await control.pause_job(db, scene.id, tenant="default", actor=Actor())

    async def judge(scene: Scene, leases: list[Claimed] | WindlassError, state: State | WindlassError) -> None:
        job = await stage.get(scene.id)
        assert job.paused
        assert job.state is good(state) is (State.ASSIGNED if good(leases) else State.QUEUED)
        assert [] == await stage.claim(stage.servers[-1], scene.queue, scene.session)

    await Race(stage.scene, claim, pause_it, judge).in_every_order(stage)


async def test_rel_x6_claim_beside_cancel(stage: Stage) -> None:
    """A cancel that ended a waiting job keeps it from ever starting; a leased one is told to stop."""

    async def claim(db: Database, scene: Scene) -> list[Claimed]:
        return await stage.claim(db, scene.queue, scene.session)

    async def cancel(db: Database, scene: Scene) -> Cancelled | JobFinished | NotFound:
        [answer] = await control.cancel(db, [scene.id], tenant="default", actor=Actor())
        return answer

    async def judge(
        scene: Scene,
        leases: list[Claimed] | WindlassError,
        found: Cancelled | JobFinished | NotFound | WindlassError,
    ) -> None:
        state = State.CANCELLING if good(leases) else State.CANCELLED
        assert found == Cancelled(scene.id, state)
        assert await stage.state(scene.id) is state

    await Race(stage.scene, claim, cancel, judge).in_every_order(stage)


def new_lane_beside_pause(stage: Stage, pause: str) -> Race[LaneName, None, int]:
    """Return the race of pausing a queue or a tenant and making a lane there."""
    numbers = iter(range(1000))

    async def prepare() -> LaneName:
        name = LaneName(f"tenant-{next(numbers)}", "queue", "first")
        await Lanes().resolve(stage.db, [name])
        return name

    async def make(db: Database, name: LaneName) -> int:
        new = LaneName(name.tenant, name.queue, "second")
        return (await Lanes().resolve(db, [new]))[new].id

    async def pause_it(db: Database, name: LaneName) -> None:
        if pause == "queue":
            await control.pause_queue(db, Lanes(), name, actor=Actor())
        else:
            await control.pause_tenant(db, name.tenant, actor=Actor())

    async def judge(name: LaneName, _: WindlassError | None, lane: int | WindlassError) -> None:
        session = await stage.worker("worker", tenant=name.tenant)
        await submit(stage.db, Lanes(), [stage.job("queue", tenant=name.tenant, task="second")])
        group = claims.Group([claims.Want(good(lane))], [session])
        assert [] == await claims.claim(stage.db, [group])

    return Race(prepare, pause_it, make, judge)


async def test_rel_x6_new_lane_beside_pause(stage: Stage, pause: str) -> None:
    """A lane made while its queue or tenant is being paused is paused too, whoever comes first."""
    await new_lane_beside_pause(stage, pause).in_every_order(stage)


async def test_rel_x6_new_lane_inside_pause(postgres_stage: Stage, pause: str) -> None:
    """A pause that finds a lane being made waits for it and pauses it: that is what its lock of the tenant is for.

    Pausing a queue makes the queue first, in a transaction of its own that locks the tenant too: only a lane begun
    after that one and not committed when the next begins tells the second lock from none.
    """
    race = new_lane_beside_pause(postgres_stage, pause)
    await race.crossed(postgres_stage, left=1 if pause == "queue" else 0, right=COMMIT)


async def test_rel_x6_new_lane_beside_resume(stage: Stage, pause: str) -> None:
    """A lane made while its queue or tenant is being resumed is not left paused."""
    numbers = iter(range(1000))

    async def prepare() -> LaneName:
        name = LaneName(f"tenant-{next(numbers)}", "queue", "first")
        await Lanes().resolve(stage.db, [name])
        if pause == "queue":
            await control.pause_queue(stage.db, Lanes(), name, actor=Actor())
        else:
            await control.pause_tenant(stage.db, name.tenant, actor=Actor())
        return name

    async def make(db: Database, name: LaneName) -> None:
        await Lanes().resolve(db, [LaneName(name.tenant, name.queue, "second")])

    async def resume(db: Database, name: LaneName) -> bool:
        if pause == "queue":
            return await control.resume_queue(db, name)
        return await control.resume_tenant(db, name.tenant)

    async def judge(name: LaneName, _: WindlassError | None, resumed: bool | WindlassError) -> None:
        made = await Lanes().serving(stage.db, name.tenant, ["queue"], tasks=None, labels=[])
        assert good(resumed)
        assert [(lane.name.task, lane.paused) for lane in made] == [("first", 0), ("second", 0)]

    await Race(prepare, make, resume, judge).in_every_order(stage)


async def test_rel_k2_two_claims_of_one_job(stage: Stage) -> None:
    """Two claims of one job, in every order: one gets it, its fence and attempt rise by one, nobody waits."""

    async def claim(db: Database, scene: Scene) -> list[Claimed]:
        return await stage.claim(db, scene.queue, scene.session)

    async def judge(scene: Scene, left: list[Claimed] | WindlassError, right: list[Claimed] | WindlassError) -> None:
        [lease] = good(left) + good(right)
        job = await stage.get(scene.id)
        assert (lease.fence, lease.attempt) == (job.fence, job.attempt) == (1, 1)

    await Race(stage.scene, claim, claim, judge).in_every_order(stage)


@pytest.mark.parametrize("lanes", [1, 2])
async def test_rel_k2_claim_waits_for_nobody(postgres_stage: Stage, lanes: int) -> None:
    """A claim passes by rows that a rival has locked, and takes what is free; in one lane as many as asked."""
    scene = await postgres_stage.scene(3)
    await postgres_stage.lanes_of(scene.queue, lanes)
    rival = Pausing(postgres_stage.servers[0])
    point = rival.hold_before(COMMIT)
    held = asyncio.create_task(postgres_stage.claim(rival, scene.queue, scene.session))
    await point.reached.wait()

    async with asyncio.timeout(PATIENCE_S):
        got = await postgres_stage.claim(postgres_stage.servers[1], scene.queue, scene.session, 2)
    point.release()

    assert [lease.id for lease in [*await held, *got]] == scene.ids[: 3 if lanes == 1 else 2]


@pytest.mark.parametrize("lanes", [1, 2])
async def test_rel_k2_claim_looks_again_after_its_lock(postgres_stage: Stage, postgres_url: str, lanes: int) -> None:
    """A job claimed by a rival between a claim's look and its lock is not claimed a second time."""
    scene = await postgres_stage.scene()
    await postgres_stage.lanes_of(scene.queue, lanes)
    text = claims.SQL.claim.postgres_source
    for old, new in (
        ("WITH wanted AS", f"WITH gate AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared({GATE})), wanted AS"),
        ("WHERE l.id = w.lane", "WHERE EXISTS (SELECT 1 FROM gate) AND l.id = w.lane"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    slow = Pausing(postgres_stage.servers[0], instead={"claim": replace(claims.SQL.claim, postgres_source=text)})
    async with connected(postgres_url) as keeper:
        await keeper.execute(f"SELECT pg_advisory_lock({GATE})")
        late = asyncio.create_task(postgres_stage.claim(slow, scene.queue, scene.session))
        assert await postgres_stage.until_parked(late, slow, slow)

        [lease] = await postgres_stage.claim(postgres_stage.servers[1], scene.queue, scene.session)
        await keeper.execute(f"SELECT pg_advisory_unlock({GATE})")

        assert [] == await late
    job = await postgres_stage.get(scene.id)
    assert (job.fence, job.attempt) == (lease.fence, lease.attempt) == (1, 1)
    await postgres_stage.sound()


class SecondLookFails(Pausing):
    """A database that gives no answer to the second look of a claim."""

    def __init__(self, inner: Database, error: BaseException) -> None:
        super().__init__(inner)
        self._error = error

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run a query, unless it is the one."""
        if query.name == "claim" and query.name in self.trail:
            raise self._error
        return await super().fetch(query, **parameters)


@pytest.mark.parametrize("error", [Contention("A rival."), asyncio.CancelledError()], ids=["rival", "cancelled"])
async def test_jobs_of_a_first_look_are_handed_out_or_ready_again(stage: Stage, error: BaseException) -> None:
    """A claim from many lanes that is cut off between its looks leaves no lease of which nobody knows."""
    scene = await stage.scene(20)
    for number in range(5):
        await stage.submit(scene.queue, task=f"task-{number}")
    server = SecondLookFails(stage.db, error)

    if isinstance(error, Contention):
        taken = await stage.claim(server, scene.queue, scene.session, 16)
        assert scene.ids[: claims.READ_LEAST] == [lease.id for lease in taken]
        return
    with pytest.raises(asyncio.CancelledError):
        await stage.claim(server, scene.queue, scene.session, 16)

    assert {State.QUEUED} == {await stage.state(job_id) for job_id in scene.ids}
    await stage.sound()


async def test_rel_k2_expiry_beside_claim(stage: Stage) -> None:
    """At its start deadline a job expires or was claimed before; never both."""

    async def prepare() -> Scene:
        return await stage.scene(start_by=stage.clock.now() + timedelta(seconds=5))

    async def claim(db: Database, scene: Scene) -> list[Claimed]:
        return await stage.claim(db, scene.queue, scene.session)

    async def expire(db: Database, _: Scene) -> list[UUID]:
        stage.clock.advance(6)
        return await deadlines.expire(db)

    async def judge(scene: Scene, leases: list[Claimed] | WindlassError, ended: list[UUID] | WindlassError) -> None:
        assert bool(good(leases)) != (scene.id in good(ended)) or (
            # The expiry passed by a row that the claim had locked, and the claim found it late: next time.
            not good(leases) and await stage.state(scene.id) is State.QUEUED
        )

    await Race(prepare, claim, expire, judge).in_every_order(stage)


async def test_rel_k2_claim_back_beside_promotion(stage: Stage) -> None:
    """A retry kept for its worker is claimed back by it or promoted for all, never both."""

    async def prepare() -> Scene:
        scene = await stage.leased(retry=PRESETS["stepped"])
        [answer] = await report(stage.db, [scene.fail()], chance=no_jitter)
        assert answer.prefer_same_worker
        stage.clock.advance(11)
        return scene

    async def back(db: Database, scene: Scene) -> list[Claimed]:
        return await claims.claim_back(db, [(scene.id, scene.lease.fence)], session=scene.session, tenant="default")

    async def promote(db: Database, _: Scene) -> list[timers.Promoted]:
        return await timers.promote(db)

    async def judge(
        scene: Scene, leases: list[Claimed] | WindlassError, due: list[timers.Promoted] | WindlassError
    ) -> None:
        promoted = scene.id in [timer.id for timer in good(due)]
        assert len(good(leases)) + promoted == 1
        job = await stage.get(scene.id)
        assert (job.state, job.fence) == ((State.QUEUED, 1) if promoted else (State.ASSIGNED, 2))

    await Race(prepare, back, promote, judge).in_every_order(stage)


async def test_rel_x6_claim_beside_change(stage: Stage) -> None:
    """A waiting job is changed before it is claimed, or the change is refused because it is leased."""

    async def claim(db: Database, scene: Scene) -> list[Claimed]:
        return await stage.claim(db, scene.queue, scene.session)

    async def change(db: Database, scene: Scene) -> State:
        return await control.change(db, stage.lanes, scene.id, tenant="default", actor=Actor(), priority=5)

    async def judge(scene: Scene, leases: list[Claimed] | WindlassError, state: State | WindlassError) -> None:
        job = await stage.get(scene.id)
        if isinstance(state, WindlassError):
            assert type(state) is Conflict
            assert (job.state, job.priority) == (State.ASSIGNED, 0)
        else:
            assert job.priority == 5
            assert job.state is (State.ASSIGNED if good(leases) else State.QUEUED)

    await Race(stage.scene, claim, change, judge).in_every_order(stage)


@pytest.mark.parametrize("lanes", [1, 2])
async def test_rel_x20_slow_enqueue_below_the_hint(postgres_stage: Stage, lanes: int) -> None:
    """A job that commits after the hint has passed its rank is found when the hint is opened again."""
    scene = await postgres_stage.scene(0)
    await postgres_stage.lanes_of(scene.queue, lanes)
    slow = Pausing(postgres_stage.servers[0])
    job = postgres_stage.job(scene.queue)
    await postgres_stage.lanes.resolve(postgres_stage.db, [job.lane])
    point = slow.hold_before(COMMIT)
    enqueued = asyncio.create_task(submit(slow, postgres_stage.lanes, [job]))
    await point.reached.wait()
    postgres_stage.clock.advance(1)
    await postgres_stage.submit(scene.queue)
    [taken] = await postgres_stage.claim(postgres_stage.servers[1], scene.queue, scene.session)
    point.release()
    await enqueued

    passed = await postgres_stage.claim(postgres_stage.servers[1], scene.queue, scene.session, hint=taken.rank)
    opened = await postgres_stage.claim(postgres_stage.servers[1], scene.queue, scene.session)

    assert passed == []
    assert [lease.id for lease in opened] == [job.id]


async def test_rel_x24_claim_beside_ddl(hasty_stage: Stage, postgres_url: str) -> None:
    """A claim that meets a lock on the whole table gives up after the lock time-out, and may be run again."""
    scene = await hasty_stage.scene()
    async with connected(postgres_url) as keeper:
        await keeper.execute("BEGIN; LOCK TABLE windlass.queue IN ACCESS EXCLUSIVE MODE")
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(Contention):
                await hasty_stage.claim(hasty_stage.db, scene.queue, scene.session)
        await keeper.execute("ROLLBACK")

    assert 1 == len(await hasty_stage.claim(hasty_stage.db, scene.queue, scene.session))
    await hasty_stage.sound()


async def test_rel_x24_claim_beside_vacuum(postgres_stage: Stage) -> None:
    """VACUUM and a claim in flight do not wait for each other."""
    scene = await postgres_stage.scene(2)
    slow = Pausing(postgres_stage.servers[0])
    point = slow.hold_before(COMMIT)
    held = asyncio.create_task(postgres_stage.claim(slow, scene.queue, scene.session))
    await point.reached.wait()

    async with asyncio.timeout(PATIENCE_S):
        await postgres_stage.servers[1].maintain("VACUUM windlass.queue")
        got = await postgres_stage.claim(postgres_stage.servers[1], scene.queue, scene.session, 2)
    point.release()

    assert 2 == len([*got, *await held])


@pytest.mark.parametrize("end", ["rescue", "expire"])
async def test_rel_i20_nothing_ends_before_it_began(fresh_postgres_url: str, end: str) -> None:
    """I20: a transaction that began before a job was made, or claimed, and sees it, gives it no earlier time."""
    db = await open_with(PATIENT, fresh_postgres_url)
    lanes, ids, session = Lanes(), Ids(db.now), uuid4()
    await workers.register(db, workers.NewSession(id=session, worker="w"))
    late = datetime.now(UTC) if end == "expire" else None
    async with db.transaction() as early:
        await early.fetch(claims.SQL.claim_back, leases=[], session=session, tenant="default", inline=1)
        [job] = await submit(db, lanes, [NewJob(id=ids.new(), task="t", start_by=late)])
        served = await lanes.serving(db, "default", ["default"], tasks=None, labels=[])
        asked = [Group([Want(lane.id) for lane in served], [session])]
        if end == "expire":
            assert [job.id] == await deadlines.expire(early)
        else:
            assert [job.id] == [lease.id for lease in await claims.claim(early, asked)]
    found = await check(db)
    if end == "rescue":
        async with db.transaction() as early:
            await early.fetch(claims.SQL.claim_back, leases=[], session=session, tenant="default", inline=1)
            await submit(db, lanes, [NewJob(id=ids.new(), task="t")])
            [lease] = await claims.claim(db, asked)
            [locked] = await moves.lock(early, [LeaseName(lease.id, lease.fence)])
            await moves.apply(early, [moves.lose(locked, chance=0.0)])
        found += await check(db)
    await db.close()

    assert [] == found


@pytest.mark.parametrize("said", ["complete", "fail", "cancelled"])
async def test_rel_i20_a_report_that_waited_ends_after_the_start(fresh_postgres_url: str, said: str) -> None:
    """I20: a start told while a report waits for its locks is not after the end that the report records."""
    db = await open_with(PATIENT, fresh_postgres_url)
    lanes, ids, session = Lanes(), Ids(db.now), uuid4()
    await workers.register(db, workers.NewSession(id=session, worker="w", capacity=2))
    await submit(db, lanes, [NewJob(id=ids.new(), task="t") for _ in range(2)])
    served = await lanes.serving(db, "default", ["default"], tasks=None, labels=[])
    leases = await claims.claim(db, [Group([Want(lane.id) for lane in served], [session] * 2)])
    first, second = sorted(leases, key=lambda lease: lease.id)
    named = [{"job_id": lease.id, "fence": 1, "worker": "w"} for lease in (first, second)]
    ends: dict[str, Callable[..., Report]] = {
        "complete": Complete,
        "fail": Fail,
        "cancelled": partial(Fail, outcome=Outcome.CANCELLED),
    }
    reports = [ends[said](**lease) for lease in named]
    async with asyncio.timeout(PATIENCE_S), connected(fresh_postgres_url) as keeper:
        await keeper.execute("BEGIN")
        await keeper.execute("SELECT FROM windlass.queue WHERE id = $1 FOR UPDATE", first.id)
        reporting = asyncio.create_task(report(db, reports, chance=no_jitter))
        async with connected(fresh_postgres_url) as watcher:
            while not await watcher.fetchval(WAITING):
                pass
        await workers.heartbeat(db, [workers.Beat(session, [workers.Held(second.id, 1, started=True)])])
        await keeper.execute("ROLLBACK")
        await reporting
    found = await check(db)
    await db.close()

    assert [] == found


async def test_rel_x6_cancel_beside_its_deadline(stage: Stage) -> None:
    """A cancel that comes while an overdue lease is being ended gives the worker its whole grace."""

    async def prepare() -> Scene:
        scene = await stage.leased(started=True, timeout_s=1)
        stage.clock.advance(60)
        return scene

    async def cancel(db: Database, scene: Scene) -> list[Cancelled | JobFinished | NotFound]:
        return await control.cancel(db, scene.ids, tenant="default", actor=Actor())

    async def end(db: Database, scene: Scene) -> bool:
        moved = await deadlines.end_overdue(db, chance=no_jitter)
        return scene.id in {done.move.lease.id for done in moved}

    async def judge(
        scene: Scene, cancelled: list[Cancelled | JobFinished | NotFound] | WindlassError, ended: bool | WindlassError
    ) -> None:
        job = await stage.get(scene.id)
        if job.state is State.CANCELLING:
            assert not good(ended)
            assert job.deadline_at is not None
            assert job.deadline_at > stage.clock.now()
        else:
            assert good(ended)
            assert job.state in (State.SCHEDULED, State.CANCELLED)
            assert job.reason != "Its worker did not confirm the cancel in time; the lease was revoked."

    await Race(prepare, cancel, end, judge).in_every_order(stage)
