"""Races about the end of a lease: of all who want to end it one does, and the others are told so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.queue.races.orders import Race
from tests.queue.races.pausing import Pausing
from tests.queue.races.stage import Scene, Stage, no_jitter
from windlass.db import Database, Statements
from windlass.errors import JobFinished, NotFound, WindlassError
from windlass.job import Outcome, State
from windlass.queue import claim, control, deadlines, history, workers
from windlass.queue.control import Actor, Cancelled
from windlass.queue.moves import Moved
from windlass.queue.report import Answer, Report, Status, report
from windlass.queue.rescue import Rescued
from windlass.queue.retry import PRESETS

Say = Callable[[Scene], Report]
SAYINGS: dict[str, tuple[Say, State]] = {
    "complete": (lambda scene: scene.complete(result='{"nonce": 1}'), State.SUCCEEDED),
    "fail": (lambda scene: scene.fail(error="no"), State.SCHEDULED),
    "snooze": (lambda scene: scene.snooze(), State.SCHEDULED),
    "release": (lambda scene: scene.release(), State.QUEUED),
}
ALL_SAYINGS = pytest.mark.parametrize(("say", "after"), SAYINGS.values(), ids=SAYINGS)


async def say_it(db: Statements, said: Report) -> Answer:
    """Send one report."""
    [answer] = await report(db, [said], chance=no_jitter)
    return answer


def good(answer: Any) -> Any:
    """Return an answer that is no error."""
    assert not isinstance(answer, WindlassError), answer
    return answer


def ids_of(moved: list[Moved]) -> list[UUID]:
    """Return the jobs that were moved."""
    return [done.move.lease.id for done in moved]


@ALL_SAYINGS
async def test_rel_x1_report_beside_rescue(stage: Stage, say: Say, after: State) -> None:
    """A report and a rescue of one lease: one of them ends it, and the other changes nothing."""
    seen = set()

    async def prepare() -> Scene:
        scene = await stage.leased(started=True)
        await stage.lapse()
        return scene

    async def judge(scene: Scene, answer: Answer | WindlassError, rescued: Rescued | WindlassError) -> None:
        told, by_rescue = good(answer).status, scene.id in ids_of(good(rescued).moved)
        seen.add(told)
        job = await stage.get(scene.id)
        attempts = (await history.attempts(stage.db, scene.id, tenant="default")).items
        assert (told, by_rescue) in {(Status.APPLIED, False), (Status.STALE, True)}
        assert job.state is (State.QUEUED if by_rescue else after)
        assert job.lost == (1 if by_rescue else 0)
        assert [by_rescue] == [attempt.outcome is Outcome.LOST for attempt in attempts]

    await Race(prepare, lambda db, scene: say_it(db, say(scene)), lambda db, _: stage.rescue(db), judge).in_every_order(
        stage
    )
    assert seen == {Status.APPLIED, Status.STALE}


@ALL_SAYINGS
async def test_rel_x1_report_beside_revocation(stage: Stage, say: Say, after: State) -> None:
    """A report and the end of the time-out of one lease: one of them ends it."""

    async def prepare() -> Scene:
        scene = await stage.leased(started=True, timeout_s=1)
        stage.clock.advance(1 + workers.TIMEOUT_GRACE_MS / 1000 + 1)
        return scene

    async def overdue(db: Database, _: Scene) -> list[Moved]:
        return await deadlines.end_overdue(db, chance=no_jitter)

    async def judge(scene: Scene, answer: Answer | WindlassError, moved: list[Moved] | WindlassError) -> None:
        told, revoked = good(answer).status, scene.id in ids_of(good(moved))
        assert (told, revoked) in {(Status.APPLIED, False), (Status.STALE, True)}
        assert await stage.state(scene.id) is (State.SCHEDULED if revoked else after)

    await Race(prepare, lambda db, scene: say_it(db, say(scene)), overdue, judge).in_every_order(stage)


@ALL_SAYINGS
async def test_rel_x1_report_beside_goodbye(stage: Stage, say: Say, after: State) -> None:
    """A report and the closing of its session: what is reported is not given back as well."""

    async def goodbye(db: Database, scene: Scene) -> int:
        return len(await workers.close(db, scene.session, tenant="default", reason="drain"))

    async def judge(scene: Scene, answer: Answer | WindlassError, returned: int | WindlassError) -> None:
        told, back = good(answer).status, good(returned)
        assert await stage.state(scene.id) is (after if told is Status.APPLIED else State.QUEUED)
        if say(scene) == scene.release():
            assert (told, back) in {(Status.APPLIED, 0), (Status.ALREADY, 1)}
        else:
            assert (told, back) in {(Status.APPLIED, 0), (Status.STALE, 1)}

    await Race(stage.leased, lambda db, scene: say_it(db, say(scene)), goodbye, judge).in_every_order(stage)


async def ousted(stage: Stage) -> tuple[Scene, Scene]:
    """Return a worker whose job was rescued and claimed by another, and that other one."""
    old = await stage.leased(started=True)
    await stage.lapse()
    assert old.id in ids_of((await stage.rescue(stage.db)).moved)
    session = await stage.worker("successor")
    leases = await stage.claim(stage.db, old.queue, session)
    return old, Scene(old.queue, "successor", session, old.ids, leases)


@ALL_SAYINGS
async def test_rel_x2_old_worker_reports_after_reclaim(stage: Stage, say: Say, after: State) -> None:
    """A worker that comes back after its job was claimed again is refused and changes no byte."""
    old, new = await ousted(stage)
    before = await stage.bytes_of(old.id)

    for session in (old.session, None):
        told = await say_it(stage.servers[-1], say(Scene(**vars(old) | {"session": session})))
        assert told.status is Status.STALE
    assert before == await stage.bytes_of(old.id)
    assert new.lease.fence == old.lease.fence + 1
    assert (await say_it(stage.db, say(new))).state is after
    assert (await say_it(stage.db, say(old))).status is Status.STALE
    await stage.sound()


async def test_rel_x2_old_worker_reports_beside_reclaim(stage: Stage) -> None:
    """A late completion beside rescue and new claim: the lease has one end, and one owner afterwards."""

    async def prepare() -> tuple[Scene, UUID]:
        scene = await stage.leased(started=True)
        await stage.lapse()
        return scene, await stage.worker("successor")

    async def again(db: Database, made: tuple[Scene, UUID]) -> list[claim.Claimed]:
        await stage.rescue(db)
        return await stage.claim(db, made[0].queue, made[1])

    async def judge(
        made: tuple[Scene, UUID], answer: Answer | WindlassError, leases: list[claim.Claimed] | WindlassError
    ) -> None:
        told, got = good(answer).status, good(leases)
        # A claim may pass the job over while the late report has its row locked; the next one finds it.
        got = got or await stage.claim(stage.db, made[0].queue, made[1])
        assert (told, len(got)) in {(Status.APPLIED, 0), (Status.STALE, 1)}
        assert await stage.state(made[0].id) is (State.SUCCEEDED if told is Status.APPLIED else State.ASSIGNED)

    await Race(prepare, lambda db, made: say_it(db, made[0].complete()), again, judge).in_every_order(stage)


async def test_rel_x2_a_late_report_hides_the_job_while_it_is_under_way(postgres_stage: Stage) -> None:
    """A report that waited for the rescue has the new row locked until it ends: claims pass over it until then."""
    stage = postgres_stage
    scene = await stage.leased(started=True)
    await stage.lapse()
    successor = await stage.worker("successor")
    rescuer, reporter = Pausing(stage.servers[0]), Pausing(stage.servers[-1])
    has_lock, has_looked = rescuer.hold_before("lease_to_ready"), reporter.hold_before("commit")
    rescuing = asyncio.create_task(stage.rescue(rescuer))
    await has_lock.reached.wait()
    saying = asyncio.create_task(say_it(reporter, scene.complete()))
    await stage.until_parked(saying, rescuer, reporter)
    has_lock.release()
    await rescuing
    await has_looked.reached.wait()

    hidden = await stage.claim(stage.db, scene.queue, successor)
    has_looked.release()
    told = await saying

    assert (Status.STALE, []) == (told.status, hidden)
    assert scene.ids == [lease.id for lease in await stage.claim(stage.db, scene.queue, successor)]
    await stage.sound()


@ALL_SAYINGS
async def test_rel_x3_duplicate_in_one_batch(stage: Stage, say: Say, after: State) -> None:
    """The same report twice in one batch is recorded once, and both get the same answer."""
    scene = await stage.leased()

    first, second = await report(stage.db, [say(scene), say(scene)], chance=no_jitter)

    assert (first.status, second.status) == (Status.APPLIED, Status.ALREADY)
    assert (first.state, first.next_run_at) == (second.state, second.next_run_at)
    assert first.state is after
    await stage.sound()


@ALL_SAYINGS
async def test_rel_x3_duplicate_on_two_servers(stage: Stage, say: Say, after: State) -> None:
    """The same report on two servers, in two batches, is recorded once; the loser gets the winner's answer."""

    async def judge(scene: Scene, left: Answer | WindlassError, right: Answer | WindlassError) -> None:
        assert {good(left).status, good(right).status} == {Status.APPLIED, Status.ALREADY}
        assert good(left).state is good(right).state is after
        # A plain release is due at once; only its own batch knows the instant that was.
        assert good(left).next_run_at == good(right).next_run_at
        assert len((await history.attempts(stage.db, scene.id, tenant="default")).items) == 1

    def send(db: Database, scene: Scene) -> Any:
        return say_it(db, say(scene))

    await Race(stage.leased, send, send, judge).in_every_order(stage)


async def test_rel_x3_two_ends_on_two_servers(stage: Stage) -> None:
    """Success and failure reported for one lease: the first is recorded, the other is stale."""

    async def judge(scene: Scene, done: Answer | WindlassError, failed: Answer | WindlassError) -> None:
        assert {good(done).status, good(failed).status} == {Status.APPLIED, Status.STALE}
        won = good(done).status is Status.APPLIED
        assert await stage.state(scene.id) is (State.SUCCEEDED if won else State.SCHEDULED)

    await Race(
        stage.leased,
        lambda db, scene: say_it(db, scene.complete()),
        lambda db, scene: say_it(db, scene.fail()),
        judge,
    ).in_every_order(stage)


@ALL_SAYINGS
async def test_rel_x5_unlisted_lease_beside_its_report(stage: Stage, say: Say, after: State) -> None:
    """A lease that a heartbeat does not name is given back, or reported by the worker that has it after all."""

    async def prepare() -> Scene:
        scene = await stage.leased()
        stage.clock.advance(workers.UNLISTED_MS / 1000 + 1)
        return scene

    async def beat(db: Database, scene: Scene) -> workers.BeatAnswer:
        [answer] = await workers.heartbeat(db, [workers.Beat(scene.session, [])])
        return answer

    async def judge(scene: Scene, answer: Answer | WindlassError, heard: workers.BeatAnswer | WindlassError) -> None:
        told, back = good(answer).status, good(heard).released == [scene.id]
        refused = Status.ALREADY if say(scene) == scene.release() else Status.STALE
        assert (told, back) in {(Status.APPLIED, False), (refused, True)}
        job = await stage.get(scene.id)
        assert job.state is (State.QUEUED if back else after)
        assert not back or job.attempt == 0

    await Race(prepare, lambda db, scene: say_it(db, say(scene)), beat, judge).in_every_order(stage)


async def test_rel_x5_listed_or_young_leases_stay(stage: Stage) -> None:
    """A heartbeat gives back only what it does not name and what is older than a claim can be under way."""
    scene = await stage.leased()
    held = [workers.Held(scene.id, scene.lease.fence)]

    [young] = await workers.heartbeat(stage.db, [workers.Beat(scene.session, [])])
    stage.clock.advance(workers.UNLISTED_MS / 1000 + 1)
    [silent, listed] = await workers.heartbeat(
        stage.db, [workers.Beat(scene.session, None), workers.Beat(scene.session, held)]
    )

    assert young.released == silent.released == listed.released == []
    assert await stage.state(scene.id) is State.ASSIGNED


@ALL_SAYINGS
async def test_rel_x6_cancel_beside_report(stage: Stage, say: Say, after: State) -> None:
    """A cancel and a report: a cancel that was accepted is never forgotten, and the job has one end."""

    async def cancel(db: Database, scene: Scene) -> Cancelled | JobFinished | NotFound:
        [answer] = await control.cancel(db, [scene.id], tenant="default", actor=Actor())
        return answer

    async def judge(
        scene: Scene, answer: Answer | WindlassError, found: Cancelled | JobFinished | NotFound | WindlassError
    ) -> None:
        assert good(answer).status is Status.APPLIED
        ends = State.SUCCEEDED if after is State.SUCCEEDED else State.CANCELLED
        assert await stage.state(scene.id) is ends
        if isinstance(found, Cancelled):
            assert found.state in (State.CANCELLED, State.CANCELLING)
        else:
            assert isinstance(found, JobFinished)
            assert ends is State.SUCCEEDED

    await Race(stage.leased, lambda db, scene: say_it(db, say(scene)), cancel, judge).in_every_order(stage)


async def test_rel_k1_rescuer_undoes_nothing(stage: Stage) -> None:
    """Given back and claimed again between the rescuer's read and its write: the new lease stands."""

    async def prepare() -> tuple[Scene, UUID]:
        scene = await stage.leased(started=True)
        await stage.lapse()
        return scene, await stage.worker("successor")

    async def hand_over(db: Database, made: tuple[Scene, UUID]) -> list[claim.Claimed]:
        await say_it(db, made[0].release())
        return await stage.claim(db, made[0].queue, made[1])

    async def judge(
        made: tuple[Scene, UUID], leases: list[claim.Claimed] | WindlassError, rescued: Rescued | WindlassError
    ) -> None:
        job = await stage.get(made[0].id)
        lost = made[0].id in ids_of(good(rescued).moved)
        assert job.lost == int(lost)
        if good(leases):
            assert (job.state, job.session, job.fence) == (State.ASSIGNED, made[1], made[0].lease.fence + 1)
        else:
            # The claim passed by while the rescue was not committed yet.
            assert lost
            assert job.state is State.QUEUED

    await Race(prepare, hand_over, lambda db, _: stage.rescue(db), judge).in_every_order(stage)


async def test_rel_k21_old_calls_all_bounce(stage: Stage) -> None:
    """Every call of attempt n, held back until attempt n + 1 runs, does nothing, even from the same session."""
    scene = await stage.leased(retry=PRESETS["stepped"])
    late = Scene(**vars(scene))
    await say_it(stage.db, scene.release())
    [new] = await stage.claim(stage.db, scene.queue, scene.session)
    before = await stage.bytes_of(scene.id)

    for say, _ in SAYINGS.values():
        answer = await say_it(stage.servers[-1], say(late))
        # That it was given back is what the worker asked for then.
        assert answer.status is (Status.ALREADY if say(late) == late.release() else Status.STALE)
    held = workers.Held(late.id, late.lease.fence, started=True)
    [beat] = await workers.heartbeat(stage.db, [workers.Beat(scene.session, [held])])
    back = await claim.claim_back(stage.db, [(late.id, late.lease.fence)], session=scene.session, tenant="default")

    assert new.fence == late.lease.fence + 1
    assert (beat.alive, beat.lost, beat.released) == (True, [late.id], [])
    assert back == []
    assert before == await stage.bytes_of(scene.id)
    await stage.sound()
