"""Each guard by itself: the statement that writes refuses what a lock or an earlier test would have kept from it.

Most guards are doubled: a step locks and looks first, and the write tests again. Here the writes are called alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.queue.races.stage import NO_SILENCE, Scene, Stage, no_jitter
from tests.queue.races.test_reports import ids_of, say_it
from tests.sqltext import parse
from windlass.job import Outcome, State
from windlass.queue import claim as claims
from windlass.queue import control, deadletters, deadlines, lanes, limits, moves, rescue, timers, workers
from windlass.queue.control import Actor, Cancelled
from windlass.queue.lanes import LaneName
from windlass.queue.moves import Lease, LeaseName, Move, Record
from windlass.queue.report import Complete, Fail, Status, report
from windlass.queue.retry import PRESETS, Never
from windlass.queue.submit import submit
from windlass.queue.workers import Beat, Held

HOLD = parse(
    """
-- name: hold
-- Keep a lease from everybody, as a report that waits for its relay will.
-- both
UPDATE queue SET place = 3 WHERE id = :id
""",
    origin="test_guards.py",
)["hold"]

BARE = parse(
    """
-- name: bare
-- Make a session one that is forgotten with its lease.
-- both
UPDATE session SET bare = 1 WHERE id = :id
""",
    origin="test_guards.py",
)["bare"]

MOVES: dict[str, Callable[[Lease], Move]] = {
    "ready": lambda lease: moves.release(lease, None),
    "timer": lambda lease: moves.snooze(lease, None, delay_ms=1000),
    "done": lambda lease: moves.cancelled(lease, Record(outcome=Outcome.CANCELLED)),
    "dead": lambda lease: moves.dead(lease, Record(outcome=Outcome.FAILED), Never("no"), attempt=1, started=True),
}


async def locked(stage: Stage, scene: Scene) -> Lease:
    """Return the lease as a step finds it."""
    [lease] = await moves.lock(stage.db, [LeaseName(scene.id, scene.lease.fence)])
    return lease


async def refused(stage: Stage, scene: Scene, move: Move) -> None:
    """Fail unless the move changes no byte."""
    before = await stage.bytes_of(scene.id)
    async with stage.servers[-1].transaction() as transaction:
        assert {} == await moves.apply(transaction, [move])
    assert before == await stage.bytes_of(scene.id)
    await stage.sound()


@pytest.mark.parametrize("to", MOVES)
async def test_move_of_an_old_fence(stage: Stage, to: str) -> None:
    """A move decided for a lease that has ended does nothing to the next lease of the job."""
    scene = await stage.leased()
    lease = await locked(stage, scene)
    await say_it(stage.db, scene.release())
    await stage.claim(stage.db, scene.queue, scene.session)

    await refused(stage, scene, MOVES[to](lease))


@pytest.mark.parametrize("to", MOVES)
async def test_move_of_a_job_that_is_not_leased(stage: Stage, to: str) -> None:
    """A move decided for a lease does nothing to a job that was given back, though its fence is the same."""
    scene = await stage.leased()
    lease = await locked(stage, scene)
    await say_it(stage.db, scene.release())

    await refused(stage, scene, MOVES[to](lease))


async def test_report_of_a_lease_that_is_held(stage: Stage) -> None:
    """A lease that is held, and so out of reach, is not ended by a report, though fence and session are right."""
    scene = await stage.leased()
    await stage.db.fetch(HOLD, id=scene.id)
    before = await stage.bytes_of(scene.id)

    said = (scene.complete(), scene.fail(), scene.release(), scene.snooze())
    answers = [(await say_it(stage.db, report)).status for report in said]

    # Its end was told in a transaction of the application's: said once more, it is known.
    assert [Status.ALREADY, Status.STALE, Status.STALE, Status.STALE] == answers
    assert before == await stage.bytes_of(scene.id)


@pytest.mark.parametrize("named", ["fence", "session", "worker", "tenant"])
async def test_lock_names_the_lease(stage: Stage, named: str) -> None:
    """A lease is locked only by its fence, and by its session, worker and tenant where they are named."""
    scene = await stage.leased()
    good = LeaseName(scene.id, scene.lease.fence, scene.session, scene.worker, "default")
    other: dict[str, Any] = {"fence": 2, "session": await stage.worker("other"), "worker": "w", "tenant": "acme"}
    wrong = good._replace(**{named: other[named]})

    for skip in (True, False):
        for name, count in ((good, 1), (wrong, 0)):
            async with stage.db.transaction() as transaction:
                assert count == len(await moves.lock(transaction, [name], skip_locked=skip))


async def test_paused_lane_hands_out_nothing(stage: Stage) -> None:
    """A claim and a claim back from a paused queue take nothing."""
    scene = await stage.leased(retry=PRESETS["stepped"])
    await say_it(stage.db, scene.fail())
    await stage.submit(scene.queue)
    await control.pause_queue(stage.db, stage.lanes, LaneName("default", scene.queue), actor=Actor())

    assert [] == await stage.claim(stage.db, scene.queue, scene.session)
    assert [] == await claims.claim_back(stage.db, [(scene.id, 1)], session=scene.session, tenant="default")


@pytest.mark.parametrize("lanes", [1, 2])
async def test_claim_after_the_start_deadline(stage: Stage, lanes: int) -> None:
    """A job whose start deadline has come is not handed out, though nobody has expired it yet."""
    scene = await stage.scene(start_by=stage.clock.now() + timedelta(seconds=10))
    await stage.lanes_of(scene.queue, lanes)
    stage.clock.advance(10)

    assert [] == await stage.claim(stage.db, scene.queue, scene.session)


@pytest.mark.parametrize("end", ["dead", "closed"])
async def test_claim_by_a_session_that_has_ended(stage: Stage, end: str) -> None:
    """A session that is dead or closed claims nothing, and claims nothing back."""
    scene = await stage.leased(retry=PRESETS["stepped"])
    await say_it(stage.db, scene.fail())
    await stage.submit(scene.queue)
    if end == "dead":
        await stage.lapse()
        await stage.rescue(stage.db)
    else:
        await workers.close(stage.db, scene.session, tenant="default", reason="done")

    assert [] == await stage.claim(stage.db, scene.queue, scene.session)
    assert [] == await claims.claim_back(stage.db, [(scene.id, 1)], session=scene.session, tenant="default")


async def test_claim_back_by_another(stage: Stage) -> None:
    """A retry kept for a worker is claimed back by the session that failed it and with its fence, by nobody else."""
    scene = await stage.leased(retry=PRESETS["stepped"])
    await say_it(stage.db, scene.fail())
    other = await stage.worker(scene.worker)

    assert [] == await claims.claim_back(stage.db, [(scene.id, 1)], session=other, tenant="default")
    assert [] == await claims.claim_back(stage.db, [(scene.id, 2)], session=scene.session, tenant="default")
    [lease] = await claims.claim_back(stage.db, [(scene.id, 1)], session=scene.session, tenant="default")
    assert (lease.fence, lease.attempt) == (2, 2)


@pytest.mark.parametrize("how", ["claim", "claim_back"])
async def test_draining_session_gets_nothing(stage: Stage, how: str) -> None:
    """A worker that was told to drain gets no more, not even what is kept for it; another does."""
    scene = await stage.leased(retry=PRESETS["stepped"])
    await say_it(stage.db, scene.fail())
    await stage.submit(scene.queue)
    await workers.drain(stage.db, tenant="default", worker=scene.worker)

    if how == "claim":
        assert [] == await stage.claim(stage.db, scene.queue, scene.session)
        assert 1 == len(await stage.claim(stage.db, scene.queue, await stage.worker("other")))
    else:
        assert [] == await claims.claim_back(stage.db, [(scene.id, 1)], session=scene.session, tenant="default")


async def test_bare_session_claims_nothing_back(stage: Stage) -> None:
    """A bare caller's session is of one lease: its retry is kept for nobody, and nothing is handed back to it."""
    scene = await stage.leased(retry=PRESETS["stepped"])
    await say_it(stage.db, scene.fail())
    await stage.submit(scene.queue, retry=PRESETS["stepped"])
    [bare] = await stage.claim_bare(scene.queue)

    [answer] = await report(
        stage.db, [Fail(job_id=bare.id, fence=1, worker="bare", session=bare.session)], chance=no_jitter
    )
    await stage.db.fetch(BARE, id=scene.session)

    assert (stage.clock.now(), False) == (answer.next_run_at, answer.prefer_same_worker)
    assert [] == await claims.claim_back(stage.db, [(scene.id, 1)], session=scene.session, tenant="default")


async def test_session_that_holds_a_lease_is_kept(stage: Stage) -> None:
    """A bare caller's session goes a minute after it has ended, when it holds nothing: never before its lease."""
    scene = await stage.scene(2)
    ended, held = await stage.claim_bare(scene.queue, 2)
    await report(stage.db, [Complete(job_id=ended.id, fence=1, worker="bare", session=ended.session)], chance=no_jitter)
    await stage.lapse()
    await stage.db.fetch(rescue.SQL.declare_dead, tolerance=NO_SILENCE)

    assert 0 == await workers.forget_ended(stage.db, keep_ms=10**10, keep_bare_ms=60_000)
    stage.clock.advance(60.001)
    assert 1 == await workers.forget_ended(stage.db, keep_ms=10**10, keep_bare_ms=60_000)
    assert held.session == (await stage.session_row(held.session))["id"]


async def test_start_is_told_once(stage: Stage) -> None:
    """A start told again changes neither when the job began nor when its time is over."""
    scene = await stage.leased(started=True, timeout_s=60)
    before = await stage.bytes_of(scene.id)
    stage.clock.advance(5)

    await workers.heartbeat(stage.db, [Beat(scene.session, [Held(scene.id, 1, started=True)])])

    assert before == await stage.bytes_of(scene.id)


async def test_start_does_not_outlive_a_cancel(stage: Stage) -> None:
    """A start told after a cancel leaves the end of the cancel's grace as it was."""
    scene = await stage.leased(timeout_s=3600)
    await control.cancel(stage.db, scene.ids, tenant="default", actor=Actor())
    before = (await stage.get(scene.id)).deadline_at

    await workers.heartbeat(stage.db, [Beat(scene.session, [Held(scene.id, 1, started=True)])])

    job = await stage.get(scene.id)
    assert (job.deadline_at, job.state) == (before, State.CANCELLING)
    assert job.started_at is not None


async def test_second_cancel_does_not_prolong_the_first(stage: Stage) -> None:
    """A cancel repeated is answered as already asked for, and the grace of the first goes on."""
    scene = await stage.leased()
    await control.cancel(stage.db, scene.ids, tenant="default", actor=Actor())
    before = await stage.bytes_of(scene.id)
    stage.clock.advance(20)

    [again] = await control.cancel(stage.db, scene.ids, tenant="default", actor=Actor())

    assert again == Cancelled(scene.id, State.CANCELLING, already=True)
    assert before == await stage.bytes_of(scene.id)


async def test_lost_while_cancelling(stage: Stage) -> None:
    """A job whose worker is lost while it is being cancelled is cancelled, not run again."""
    scene = await stage.leased()
    await control.cancel(stage.db, scene.ids, tenant="default", actor=Actor())
    await stage.lapse()

    assert ids_of((await stage.rescue(stage.db)).moved) == scene.ids
    assert await stage.state(scene.id) is State.CANCELLED


async def test_losses_are_counted_to_the_end(stage: Stage) -> None:
    """Every lost lease counts, and at the last the job is dead; one that had not begun used no attempt."""
    scene = await stage.scene(max_lost=3)
    seen = []
    for _ in range(3):
        stage.clock.advance(10)
        await timers.promote(stage.db)
        session = await stage.worker("doomed")
        [lease] = await stage.claim(stage.db, scene.queue, session)
        assert lease.attempt == 1
        await stage.lapse()
        await stage.rescue(stage.db)
        job = await stage.get(scene.id)
        seen.append((job.lost, job.attempt, job.state))

    assert seen == [(1, 0, State.QUEUED), (2, 0, State.SCHEDULED), (3, 0, State.DEAD)]


async def test_overdue_only_past_its_deadline(stage: Stage) -> None:
    """A lease is not revoked before its time-out and the grace have passed."""
    scene = await stage.leased(started=True, timeout_s=60)
    stage.clock.advance(10)

    assert [] == await deadlines.end_overdue(stage.db, chance=no_jitter)
    assert await stage.state(scene.id) is State.RUNNING


async def test_expiry_is_for_those_who_wait(stage: Stage) -> None:
    """Past the start deadline a waiting job expires; a leased one goes on, and so does one whose time has not come."""
    scene = await stage.leased(start_by=stage.clock.now() + timedelta(seconds=10))
    [waiting] = await stage.submit(scene.queue, start_by=stage.clock.now() + timedelta(seconds=20))

    stage.clock.advance(15)
    early = await deadlines.expire(stage.db)
    stage.clock.advance(10)
    late = await deadlines.expire(stage.db)

    assert (early, late) == ([], [waiting])
    assert await stage.state(scene.id) is State.ASSIGNED


async def test_not_due_is_not_promoted(stage: Stage) -> None:
    """A timer is promoted when it is due, not before."""
    scene = await stage.scene(delay_ms=5000)
    stage.clock.advance(4)

    assert [] == await timers.promote(stage.db)
    assert await stage.state(scene.id) is State.SCHEDULED


async def test_rate_is_charged(stage: Stage) -> None:
    """A queue with a rate hands out its burst, then one job per interval."""
    scene = await stage.scene(5)
    own = LaneName("default", scene.queue)
    await lanes.configure(stage.db, own, rate_per_s=1.0, burst=2)
    queue = (await stage.lanes.resolve(stage.db, [own]))[own].id
    served = [lane.id for lane in await stage.lanes.serving(stage.db, "default", [scene.queue], tasks=None, labels=[])]

    async def claim() -> int:
        return len((await limits.claim_limited(stage.db, queue, served, [scene.session] * 5)).jobs)

    counts = [await claim(), await claim()]
    stage.clock.advance(1)
    counts += [await claim(), await claim()]

    assert counts == [2, 0, 1, 0]


async def test_fence_goes_on_over_a_retry_of_a_cancelled_job(stage: Stage) -> None:
    """A cancelled job that is run again gets a higher fence than it ever had, so its old worker stays refused."""
    scene = await stage.leased()
    await control.cancel(stage.db, scene.ids, tenant="default", actor=Actor())
    await say_it(stage.db, scene.fail(outcome=Outcome.CANCELLED))
    await deadletters.retry(stage.db, scene.ids, tenant="default", actor=Actor())

    [lease] = await stage.claim(stage.db, scene.queue, scene.session)

    assert (lease.fence, lease.attempt, lease.run) == (2, 1, 2)
    assert (await say_it(stage.db, scene.complete())).status is Status.STALE


Ending = Callable[[Stage, Scene], Awaitable[object]]


async def fail_for_good(stage: Stage, scene: Scene) -> None:
    """End a leased job as dead."""
    await say_it(stage.db, (await taken(stage, scene)).fail(retryable=False))


async def complete(stage: Stage, scene: Scene) -> None:
    """End a leased job with success."""
    await say_it(stage.db, (await taken(stage, scene)).complete())


async def confirm_cancel(stage: Stage, scene: Scene) -> None:
    """End a leased job by cancelling it."""
    scene = await taken(stage, scene)
    await control.cancel(stage.db, scene.ids, tenant="default", actor=Actor())
    await say_it(stage.db, scene.release())


async def taken(stage: Stage, scene: Scene) -> Scene:
    """Return the scene with its job leased."""
    stage.clock.advance(2)
    await timers.promote(stage.db)
    leases = await stage.claim(stage.db, scene.queue, scene.session)
    return Scene(scene.queue, scene.worker, scene.session, scene.ids, leases)


async def cancel_timer(stage: Stage, scene: Scene) -> None:
    """Cancel a job that is not due."""
    await control.cancel(stage.db, scene.ids, tenant="default", actor=Actor())


async def cancel_ready(stage: Stage, scene: Scene) -> None:
    """Cancel a job that is ready."""
    stage.clock.advance(2)
    await timers.promote(stage.db)
    await control.cancel(stage.db, scene.ids, tenant="default", actor=Actor())


async def expire(stage: Stage, scene: Scene) -> None:
    """Let a job miss its start deadline."""
    stage.clock.advance(minutes=2)
    await timers.promote(stage.db)
    assert scene.ids == await deadlines.expire(stage.db)


ENDINGS: dict[str, Ending] = {
    "complete": complete,
    "dead": fail_for_good,
    "cancelled": confirm_cancel,
    "cancel_timer": cancel_timer,
    "cancel_ready": cancel_ready,
    "expire": expire,
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_unique_key_is_free_after_every_end(stage: Stage, ending: str) -> None:
    """However a job ends, its unique key is free for the next."""
    start_by = stage.clock.now() + timedelta(minutes=1)
    scene = await stage.scene(unique_key="unique", delay_ms=1000, start_by=start_by)
    await ENDINGS[ending](stage, scene)

    [told] = await submit(stage.db, stage.lanes, [stage.job(scene.queue, unique_key="unique")])

    assert not told.duplicate
    await stage.sound()
