"""Races about who lives: a session is heard in time or is dead, and what it held goes on once."""

from __future__ import annotations

import asyncio
from uuid import UUID

from tests.queue.races.orders import Race
from tests.queue.races.pausing import COMMIT, Pausing
from tests.queue.races.stage import LEASE_MS, NO_SILENCE, PATIENCE_S, Scene, Stage, no_jitter
from tests.queue.races.test_reports import good, ids_of, say_it
from windlass.db import Database
from windlass.errors import WindlassError
from windlass.job import State
from windlass.queue import fleet, presence, rescue, workers
from windlass.queue.claim import Claimed
from windlass.queue.presence import Presence
from windlass.queue.report import Status
from windlass.queue.rescue import Rescued
from windlass.queue.workers import BareSession, Beat, BeatAnswer, Held


def beat_of(scene: Scene) -> Beat:
    """Return the heartbeat that names everything the worker holds."""
    return Beat(scene.session, [Held(lease.id, lease.fence, started=True) for lease in scene.leases])


async def beat(db: Database, scene: Scene) -> BeatAnswer:
    """Send one heartbeat."""
    [answer] = await workers.heartbeat(db, [beat_of(scene)])
    return answer


async def test_rel_x8_late_heartbeat_beside_death(stage: Stage) -> None:
    """A late heartbeat and the declaration of death: renewed and kept, or dead and rescued; never both."""
    seen = set()

    async def prepare() -> Scene:
        scene = await stage.leased(started=True)
        await stage.lapse()
        return scene

    async def judge(scene: Scene, answer: BeatAnswer | WindlassError, rescued: Rescued | WindlassError) -> None:
        alive, dead = good(answer).alive, scene.session in good(rescued).sessions
        seen.add(alive)
        row = await stage.session_row(scene.session)
        job = await stage.get(scene.id)
        assert alive is not dead
        assert row["state"] == (0 if alive else 1)  # alive, dead
        assert (row["expires_at"] > stage.clock.now()) is alive
        assert (job.state, job.lost) == ((State.RUNNING, 0) if alive else (State.QUEUED, 1))
        assert good(answer).lost == ([] if alive else [scene.id])
        assert (scene.id in ids_of(good(rescued).moved)) is dead

    await Race(prepare, beat, lambda db, _: stage.rescue(db), judge).in_every_order(stage)
    assert seen == {True, False}


async def test_rel_x8_claim_beside_death(stage: Stage) -> None:
    """A claim for a session that is being declared dead gets nothing, or what it got is rescued next time."""

    async def prepare() -> Scene:
        scene = await stage.scene()
        await stage.lapse()
        return scene

    async def claim(db: Database, scene: Scene) -> list[Claimed]:
        return await stage.claim(db, scene.queue, scene.session)

    async def judge(scene: Scene, leases: list[Claimed] | WindlassError, rescued: Rescued | WindlassError) -> None:
        assert scene.session in good(rescued).sessions
        late = scene.id in ids_of(good(rescued).moved) + ids_of((await stage.rescue(stage.db)).moved)
        assert late is bool(good(leases))
        assert await stage.state(scene.id) is State.QUEUED
        assert [] == await stage.claim(stage.db, scene.queue, scene.session)

    await Race(prepare, claim, lambda db, _: stage.rescue(db), judge).in_every_order(stage)


async def test_rel_x8_heartbeat_beside_death_and_claim(stage: Stage) -> None:
    """A late heartbeat, the declaration of death and a new claim of the same worker: its new session is untouched."""

    async def prepare() -> tuple[Scene, UUID]:
        scene = await stage.leased(started=True)
        await stage.lapse()
        return scene, await stage.worker(scene.worker)

    async def bury_and_claim(db: Database, made: tuple[Scene, UUID]) -> tuple[Rescued, list[Claimed]]:
        return await stage.rescue(db), await stage.claim(db, made[0].queue, made[1])

    async def judge(
        made: tuple[Scene, UUID],
        answer: BeatAnswer | WindlassError,
        after: tuple[Rescued, list[Claimed]] | WindlassError,
    ) -> None:
        scene, new = made
        rescued, leases = good(after)
        job = await stage.get(scene.id)
        assert good(answer).alive is (scene.session not in rescued.sessions) is (not leases)
        assert job.session == (new if leases else scene.session)
        assert job.fence == (2 if leases else 1)

    await Race(prepare, lambda db, made: beat(db, made[0]), bury_and_claim, judge).in_every_order(stage)


async def test_rel_x8_the_dead_stay_dead(stage: Stage) -> None:
    """A session declared dead never comes back: its heartbeats are refused and it claims nothing."""
    scene = await stage.leased()
    await stage.lapse()
    await stage.rescue(stage.db)
    before = dict(await stage.session_row(scene.session))

    for db in stage.servers:
        answer = await beat(db, scene)
        assert (answer.alive, answer.lost) == (False, [scene.id])
        assert [] == await stage.claim(db, scene.queue, scene.session)
    assert before == dict(await stage.session_row(scene.session))


async def test_rel_x9_worker_restarts_under_its_name(stage: Stage) -> None:
    """The jobs of a worker that crashed are rescued though it lives again under the same name."""
    old = await stage.leased(started=True)
    await stage.db.fetch(rescue.SQL.beat_pulse, tolerance=NO_SILENCE)
    stage.clock.advance(LEASE_MS / 2000)
    new = Scene(old.queue, old.worker, await stage.worker(old.worker))
    stage.clock.advance(LEASE_MS / 2000 + 1)

    assert (await beat(stage.db, new)).alive
    rescued = await stage.rescue(stage.servers[-1])

    assert rescued.sessions == [old.session]
    assert ids_of(rescued.moved) == old.ids
    assert (await beat(stage.db, new)).alive
    [lease] = await stage.claim(stage.db, new.queue, new.session)
    assert lease.id == old.id
    await stage.sound()


async def test_rel_k5_sessions_of_one_name_are_told_apart(stage: Stage) -> None:
    """Three sessions of one worker name: a report that names its session speaks for that one only."""
    scene = await stage.leased()
    others = [await stage.worker(scene.worker) for _ in range(2)]

    for session in others:
        before = await stage.bytes_of(scene.id)
        assert (await say_it(stage.db, scene.complete(session=session))).status is Status.STALE
        assert (await say_it(stage.db, scene.fail(session=session))).status is Status.STALE
        [heard] = await workers.heartbeat(stage.db, [Beat(session, [Held(scene.id, scene.lease.fence, started=True)])])
        assert heard.lost == [scene.id]
        assert before == await stage.bytes_of(scene.id)
    assert (await say_it(stage.db, scene.complete(session=None))).status is Status.APPLIED


async def test_rel_k5_another_worker_cannot_speak(stage: Stage) -> None:
    """A right fence from another worker is answered as if there were no such job, and changes no byte."""
    scene = await stage.leased()
    before = await stage.bytes_of(scene.id)

    for said in (scene.complete, scene.fail, scene.release, scene.snooze):
        assert (await say_it(stage.db, said(worker="stranger", session=None))).status is Status.UNKNOWN
    assert before == await stage.bytes_of(scene.id)


async def test_rel_k6_who_did_it_is_told_by_the_rows(stage: Stage) -> None:
    """Of two rescues at once each session is declared dead by one of them, on every database."""

    async def prepare() -> Scene:
        scene = await stage.leased()
        await stage.lapse()
        return scene

    async def judge(scene: Scene, left: Rescued | WindlassError, right: Rescued | WindlassError) -> None:
        assert [scene.session] == [s for s in good(left).sessions + good(right).sessions if s == scene.session]
        moved = ids_of(good(left).moved + good(right).moved)
        assert moved.count(scene.id) <= 1
        if scene.id not in moved:
            # One read the orphans before the other had declared the session dead.
            moved = ids_of((await stage.rescue(stage.db)).moved)
        assert scene.id in moved
        assert (await stage.get(scene.id)).lost == 1

    await Race(prepare, lambda db, _: stage.rescue(db), lambda db, _: stage.rescue(db), judge).in_every_order(stage)


async def test_rel_x1_rescue_waits_for_nobody(postgres_stage: Stage) -> None:
    """A rescue passes by a lease that is being reported at this moment, and takes the others."""
    stage = postgres_stage
    scenes = [await stage.leased(started=True) for _ in range(2)]
    await stage.lapse()
    server = Pausing(stage.servers[0])
    point = server.hold_before(COMMIT)
    said = asyncio.create_task(say_it(server, scenes[0].complete()))
    await point.reached.wait()

    async with asyncio.timeout(PATIENCE_S):
        rescued = await stage.rescue(stage.servers[1])
    point.release()

    assert ids_of(rescued.moved) == scenes[1].ids
    assert (await said).status is Status.APPLIED
    await stage.sound()


async def test_rel_k9_a_silent_worker_loses_its_job(stage: Stage) -> None:
    """A worker killed without a word keeps its job for one lease, not longer."""
    scene = await stage.leased(started=True)
    await stage.db.fetch(rescue.SQL.beat_pulse, tolerance=NO_SILENCE)
    stage.clock.advance(LEASE_MS / 1000)
    in_time = await stage.rescue(stage.db)
    stage.clock.advance(0.001)
    late = await stage.rescue(stage.db)

    assert (in_time.sessions, in_time.moved) == ([], [])
    assert (late.sessions, ids_of(late.moved)) == ([scene.session], scene.ids)
    [lease] = await stage.claim(stage.db, scene.queue, await stage.worker("another"))
    assert lease.fence == scene.lease.fence + 1
    await stage.sound()


async def test_rel_k9_our_own_silence_is_not_the_workers_fault(stage: Stage) -> None:
    """After a gap in our own waking nobody is declared dead for one full lease."""
    scene = await stage.leased(started=True)
    await rescue.rescue(stage.db, chance=no_jitter)
    stage.clock.advance(hours=1)

    woken = await rescue.rescue(stage.db, chance=no_jitter)
    quiet = []
    for _ in range(LEASE_MS // 5000):
        stage.clock.advance(5)
        quiet += (await rescue.rescue(stage.db, chance=no_jitter)).sessions
    stage.clock.advance(5)
    over = await rescue.rescue(stage.db, chance=no_jitter)

    assert woken.sessions == quiet == []
    assert over.sessions == [scene.session]


async def test_rel_x9_a_presence_is_opened_beside_a_call_without_it(stage: Stage) -> None:
    """L18: a call that names its session, and one that does not: the session is one from then on, for its own beats."""

    async def prepare() -> UUID:
        start = workers.NewSession(id=stage.ids.new(), worker=f"bare-{stage.ids.new()}")
        await presence.register(stage.db, start, lease_asked=False)
        return start.id

    async def open_it(db: Database, start: UUID) -> None:
        row = await stage.session_row(start)
        await workers.open_session(db, start, worker=row["worker"], tenant="default", lease_ms=LEASE_MS)

    async def call(db: Database, start: UUID) -> BeatAnswer:
        [answer] = await workers.heartbeat(db, [Beat(start, presence=True)])
        return answer

    async def judge(start: UUID, opened: WindlassError | None, called: BeatAnswer | WindlassError) -> None:
        assert opened is None
        assert not isinstance(called, WindlassError)
        assert 0 == (await stage.session_row(start))["presence"]
        assert not (await call(stage.db, start)).alive

    await Race(prepare, open_it, call, judge).in_every_order(stage)


async def test_two_servers_that_meet_a_caller_make_it_one_presence(stage: Stage) -> None:
    """H1: whoever writes first, a worker has one row; a registration beside them is its start."""

    async def prepare() -> str:
        return f"bare-{stage.ids.new()}"

    async def appear(db: Database, worker: str) -> Presence:
        return await presence.appear(db, BareSession(stage.ids.new(), worker, "default", LEASE_MS))

    async def register(db: Database, worker: str) -> UUID:
        start = workers.NewSession(id=stage.ids.new(), worker=worker, capacity=7)
        await presence.register(db, start, lease_asked=False)
        return start.id

    async def judge_two(worker: str, one: Presence | WindlassError, other: Presence | WindlassError) -> None:
        assert good(one).id == good(other).id

    async def judge(worker: str, _: Presence | WindlassError, start: UUID | WindlassError) -> None:
        [shown] = (await fleet.list_workers(stage.db, "default", cursor=worker[:-1], limit=1)).workers
        assert (worker, good(start), 7) == (shown.worker, shown.session, shown.total_threads)

    await Race(prepare, appear, appear, judge_two).in_every_order(stage)
    await Race(prepare, appear, register, judge).in_every_order(stage)
