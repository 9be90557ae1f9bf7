"""Workers: sessions live as long as they are heard, and say what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from tests.queue.steps import Steps, Worker
from windlass.db import Statements
from windlass.errors import Conflict, Contention, InvalidInput
from windlass.ids import Ids
from windlass.job import Outcome, State
from windlass.queue import workers
from windlass.queue.claim import Claimed, Group, Want, claim
from windlass.queue.fleet import get_worker
from windlass.queue.report import Complete
from windlass.queue.workers import (
    Beat,
    Held,
    LeaseKey,
    NewSession,
    claim_bare,
    close,
    drain,
    heartbeat,
    register,
)


async def bare(steps: Steps, count: int, name: str = "curl", lease_s: int = 30) -> list[Claimed]:
    """Claim for a caller that keeps no session."""
    wants = [Want(lane.id) for lane in await steps.serving()]
    return await claim_bare(
        steps.db,
        Ids(steps.clock),
        lambda db, sessions: claim(db, [Group(wants, sessions)]),
        count=count,
        worker=name,
        tenant="default",
        lease_ms=lease_s * 1000,
    )


async def test_a_heartbeat_renews_the_whole_session(steps: Steps) -> None:
    """L7: one beat renews the session and with it every lease, by the length of its own lease."""
    ann, slow = await steps.worker("ann"), await steps.worker("slow", lease_s=300)
    mine, other = await steps.lease(ann), await steps.lease(slow)
    steps.clock.advance(10)

    answers = await heartbeat(
        steps.db,
        [Beat(ann.session, [Held(mine.id, 1)], busy=1, skew_ms=-40), Beat(slow.session, [Held(other.id, 1)])],
    )

    assert [True, True] == [answer.alive for answer in answers]
    jobs = [await steps.get(lease.id) for lease in (mine, other)]
    now = steps.clock.now()
    assert [now, now] == [job.heartbeat_at for job in jobs]
    assert [now + timedelta(seconds=30), now + timedelta(seconds=300)] == [job.lease_expires_at for job in jobs]


async def test_a_heartbeat_touches_no_job(steps: Steps) -> None:
    """L7, Q7: beats cost O(workers): the job's rows stay as they are."""
    worker = await steps.worker()
    lease = await steps.running(worker)
    before = await steps.dump(["queue", "job", "timer", "attempt"])
    steps.clock.advance(10)

    await steps.beat(worker, lease, started=True)

    assert before == await steps.dump(["queue", "job", "timer", "attempt"])


async def test_a_start_is_told_with_a_heartbeat(steps: Steps) -> None:
    """W6: the next beat names what has begun; the job is running from then on, its time-out counts."""
    worker = await steps.worker()
    lease = await steps.lease(worker, timeout_s=100)
    steps.clock.advance(4)

    await steps.beat(worker, lease, started=True)

    job = await steps.get(lease.id)
    assert (State.RUNNING, steps.clock.now()) == (job.state, job.started_at)
    assert steps.clock.now() + timedelta(seconds=130) == job.deadline_at


async def test_a_start_told_late_is_recorded_when_it_was(steps: Steps) -> None:
    """W6, G7: the worker says how long ago the job began, and the time-out counts from there."""
    worker = await steps.worker()
    lease = await steps.lease(worker, timeout_s=100)
    steps.clock.advance(10)

    await steps.beat(worker, lease, started=True, ran_ms=7250)

    job = await steps.get(lease.id)
    began_at = steps.clock.now() - timedelta(seconds=7.25)
    assert (State.RUNNING, began_at) == (job.state, job.started_at)
    assert began_at + timedelta(seconds=130) == job.deadline_at


async def test_no_job_began_before_its_claim(steps: Steps) -> None:
    """W6: a worker that says so is wrong, or its word was long under way."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    claimed_at = steps.clock.now()
    steps.clock.advance(10)

    await steps.beat(worker, lease, started=True, ran_ms=60_000)

    assert claimed_at == (await steps.get(lease.id)).started_at


@pytest.mark.parametrize("end", ["release", "snooze"])
async def test_an_attempt_that_is_not_over_tells_how_long_it_ran(steps: Steps, end: str) -> None:
    """W16: also of one that goes back or is put off the start is the end less the duration."""
    lease = await steps.lease(await steps.worker())
    steps.clock.advance(10)

    if end == "release":
        await steps.release(lease, started=True, duration_ms=4000)
    else:
        await steps.snooze(lease, 1.0, duration_ms=4000)

    [attempt] = await steps.attempts(lease.id)
    assert steps.clock.now() - timedelta(seconds=4) == attempt.started_at


async def test_a_start_is_noted_once(steps: Steps) -> None:
    """W6: later beats repeat what has begun; start time and deadline stay."""
    worker = await steps.worker()
    lease = await steps.running(worker)
    first = await steps.get(lease.id)
    steps.clock.advance(10)

    await steps.beat(worker, lease, started=True)

    again = await steps.get(lease.id)
    assert (first.started_at, first.deadline_at) == (again.started_at, again.deadline_at)


async def test_a_job_without_a_time_out_has_no_deadline(steps: Steps) -> None:
    """L8: with no time-out a job that beats may run for ever."""
    lease = await steps.running(await steps.worker(), timeout_s=None)

    job = await steps.get(lease.id)
    assert (State.RUNNING, None) == (job.state, job.deadline_at)


async def test_an_unstarted_lease_is_only_held(steps: Steps) -> None:
    """W6: naming a job without saying that it has begun leaves it assigned."""
    worker = await steps.worker()
    lease = await steps.lease(worker)

    answer = await steps.beat(worker, lease)

    assert (True, [], [], []) == (answer.alive, answer.cancel, answer.lost, answer.released)
    assert State.ASSIGNED is await steps.state_of(lease.id)


@pytest.mark.parametrize("whose", ["other fence", "other session", "unknown job", "failed"])
async def test_a_lease_that_is_not_its_own_is_told_as_lost(steps: Steps, whose: str) -> None:
    """L13: unknown and stale pairs are named in the answer, and nothing of them is started or renewed."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    lease = await steps.lease(bob if whose == "other session" else ann)
    if whose == "other fence":
        lease = msgspec.structs.replace(lease, fence=2)
    elif whose == "unknown job":
        await steps.complete(lease)
        lease = msgspec.structs.replace(lease, id=uuid4())
    elif whose == "failed":
        await steps.fail(lease, retryable=False)
    before = await steps.dump(["queue", "done"])

    answer = await steps.beat(ann, lease, started=True)

    assert (True, [lease.id], []) == (answer.alive, answer.lost, answer.released)
    assert before == await steps.dump(["queue", "done"])


@pytest.mark.parametrize("end", ["dead", "closed", "unknown"])
async def test_a_session_that_has_ended_never_comes_back(steps: Steps, end: str) -> None:
    """internals 3.4: a dead session is told so and loses everything; it must open a new one."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    if end == "dead":
        await steps.lose(lease)
    elif end == "closed":
        await close(steps.db, worker.session, tenant="default", reason="bye")
    else:
        worker = Worker("ann", uuid4())
    before = await steps.dump()

    answer = await steps.beat(worker, lease, started=True)

    assert (False, [lease.id], [], []) == (answer.alive, answer.lost, answer.cancel, answer.released)
    assert before == await steps.dump()


async def test_a_lease_not_named_is_released_after_15_seconds(steps: Steps) -> None:
    """L13: so a claim whose answer was lost repairs itself; a younger one may still be on its way."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    lost = await steps.lease(ann)
    steps.clock.advance(5)
    named = await steps.lease(ann)
    steps.clock.advance(9.999)

    early = await steps.beat(ann, named)
    steps.clock.advance(0.001)
    late = await steps.beat(ann, named)

    assert ([], [lost.id]) == (early.released, late.released)
    job = await steps.get(lost.id)
    assert (State.QUEUED, 0, 1, 1, 0) == (job.state, job.attempt, job.fence, job.releases, job.lost)
    [attempt] = await steps.attempts(lost.id)
    assert (Outcome.RELEASED, "ann") == (attempt.outcome, attempt.worker)
    assert (lost.id, 2) == ((again := await steps.claim_one(bob)).id, again.fence)
    assert State.ASSIGNED is await steps.state_of(named.id)


@pytest.mark.parametrize("order", [1, -1])
async def test_a_job_named_under_two_fences_is_not_lost_if_one_is_its_own(steps: Steps, order: int) -> None:
    """L13: the report of the first may be under way while the job was claimed anew by the same worker."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    other = msgspec.structs.replace(lease, fence=lease.fence + 1)

    answer = await steps.beat(worker, *[lease, other][::order])

    assert (True, [], []) == (answer.alive, answer.lost, answer.released)


async def test_a_beat_that_names_nothing_gives_everything_back(steps: Steps) -> None:
    """L13: an empty list says: I hold nothing; a beat that does not say gives nothing back."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    steps.clock.advance(20)

    [silent] = await heartbeat(steps.db, [Beat(worker.session)])
    empty = await steps.beat(worker)

    assert ([], [lease.id]) == (silent.released, empty.released)


async def test_a_lease_named_with_another_fence_counts_as_not_named(steps: Steps) -> None:
    """L13: the pair (job, fence) is what is held."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    steps.clock.advance(15)

    answer = await steps.beat(worker, msgspec.structs.replace(lease, fence=7))

    assert ([lease.id], [lease.id]) == (answer.lost, answer.released)


async def test_an_unnamed_lease_of_another_session_is_left_alone(steps: Steps) -> None:
    """K5: a worker restarted under its old name speaks only for its new session."""
    old = await steps.worker("pod-1")
    lease = await steps.lease(old)
    new = await steps.worker("pod-1")
    steps.clock.advance(20)

    answer = await steps.beat(new)

    assert [] == answer.released
    assert State.ASSIGNED is await steps.state_of(lease.id)


async def test_a_cancel_is_told_with_the_heartbeat(steps: Steps) -> None:
    """X2: the answer names what to stop, at every beat until the worker reports."""
    worker = await steps.worker()
    stopped, other = await steps.running(worker), await steps.running(worker)
    await steps.cancel(stopped.id)

    answers = [await steps.beat(worker, stopped, other, started=True) for _ in range(2)]

    assert [[stopped.id], [stopped.id]] == [answer.cancel for answer in answers]


async def test_rel_x2_who_does_not_say_what_it_holds_is_told_every_cancel(steps: Steps) -> None:
    """X2: a beat without `held` is answered with all jobs of its session to be cancelled, and with nobody else's."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    stopped = sorted([(await steps.lease(ann)).id, (await steps.running(ann)).id])
    kept, others = await steps.lease(ann), await steps.lease(bob)
    for job_id in (*stopped, others.id):
        await steps.cancel(job_id)

    silent = Beat(ann.session)
    answers = await heartbeat(steps.db, [silent, silent, Beat(ann.session, [Held(kept.id, 1)], whole=False)])

    assert [stopped, stopped, []] == [answer.cancel for answer in answers]


async def test_a_silent_session_that_ended_is_told_no_cancel(steps: Steps) -> None:
    """Who is not alive stops everything; and another tenant's session is as one that never was."""
    worker = await steps.worker("ann", tenant="acme")
    await steps.cancel((await steps.lease(worker, tenant="acme")).id, tenant="acme")

    foreign, own = await heartbeat(steps.db, [Beat(worker.session), Beat(worker.session, tenant="acme")])

    assert (False, []) == (foreign.alive, foreign.cancel)
    assert (True, 1) == (own.alive, len(own.cancel))


async def test_a_start_told_after_the_cancel_keeps_the_end_of_the_grace(steps: Steps) -> None:
    """X3: a late start must not lengthen the life of a job that is to stop."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    await steps.cancel(lease.id)
    before = (await steps.get(lease.id)).deadline_at
    steps.clock.advance(5)

    await steps.beat(worker, lease, started=True)

    assert before == (await steps.get(lease.id)).deadline_at


async def test_an_unnamed_lease_that_is_cancelling_is_cancelled(steps: Steps) -> None:
    """X2: a job to be cancelled that its worker does not have does not go back to the queue."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    await steps.cancel(lease.id)
    steps.clock.advance(15)

    answer = await steps.beat(worker)

    assert [lease.id] == answer.released
    assert State.CANCELLED is await steps.state_of(lease.id)


async def test_a_worker_told_to_drain_hears_it(steps: Steps) -> None:
    """H4: every live session of that worker, of that tenant, is told with its next beat."""
    ann, twin, bob = await steps.worker("ann"), await steps.worker("ann"), await steps.worker("bob")
    foreign = await steps.worker("ann", tenant="acme")

    told = await drain(steps.db, tenant="default", worker="ann")

    assert {ann.session, twin.session} == set(told)
    assert [True, True, False, False] == [(await steps.beat(who)).draining for who in (ann, twin, bob, foreign)]
    assert [] == await drain(steps.db, tenant="default", worker="nobody")


async def test_a_worker_that_drains_by_itself_says_so(steps: Steps) -> None:
    """H4: it is shown, and stays so; of several beats in one request one is enough, and others are left alone."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")

    await heartbeat(steps.db, [Beat(ann.session, draining=True), Beat(ann.session), Beat(bob.session)])

    assert [True, False] == [(await steps.beat(who)).draining for who in (ann, bob)]


async def test_closing_gives_back_what_is_held(steps: Steps) -> None:
    """W10: a worker that leaves releases the rest without using an attempt; a second close finds nothing."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    started, unstarted = await steps.running(ann), await steps.lease(ann)

    released = await close(steps.db, ann.session, tenant="default", reason="Spot termination")
    again = await close(steps.db, ann.session, tenant="default", reason="Spot termination")

    assert (2, 0) == (len(released), len(again))
    for lease in (started, unstarted):
        job = await steps.get(lease.id)
        assert (State.QUEUED, 0, 1, 0) == (job.state, job.attempt, job.releases, job.lost)
        assert ["Spot termination"] == [attempt.reason for attempt in await steps.attempts(lease.id)]
    assert 2 == len(await steps.claim(bob, 5))


async def test_closing_touches_no_other_session(steps: Steps) -> None:
    """K5: only the session that says goodbye gives back."""
    ann, twin = await steps.worker("ann"), await steps.worker("ann")
    lease = await steps.lease(twin)

    assert [] == await close(steps.db, ann.session, tenant="default", reason="bye")
    assert State.ASSIGNED is await steps.state_of(lease.id)
    assert (await steps.beat(twin, lease)).alive


async def test_a_bare_caller_gets_a_session_for_each_job(steps: Steps) -> None:
    """L18: each of its leases stands alone; sessions for jobs it did not get are not kept."""
    ids = [await steps.submit_one() for _ in range(2)]

    leases = await bare(steps, 5)

    assert ids == [lease.id for lease in leases]
    assert 2 == len({lease.session for lease in leases}) == len((await steps.dump(["session"]))["session"])
    job = await steps.get(ids[0])
    assert ("curl", steps.clock.now() + timedelta(seconds=30)) == (job.worker, job.lease_expires_at)


async def test_beating_one_bare_job_keeps_no_other_alive(steps: Steps) -> None:
    """L18: the lease of a bare job is renewed by its own beats alone, and the beat counts as its start."""
    for _ in range(2):
        await steps.submit_one()
    kept, silent = await bare(steps, 2)
    await steps.rescue(20)

    await heartbeat(steps.db, [Beat(kept.session, [Held(kept.id, kept.fence, True)])])
    run = await steps.rescue(15)

    assert [silent.session] == run.sessions
    assert (State.RUNNING, State.QUEUED) == (await steps.state_of(kept.id), await steps.state_of(silent.id))


async def test_a_bare_caller_reports_by_its_name_and_fence(steps: Steps) -> None:
    """L12: a caller without a session names worker and fence."""
    await steps.submit_one()
    [lease] = await bare(steps, 1)

    [answer] = await steps.report(Complete(job_id=lease.id, fence=1, worker="curl"))

    assert State.SUCCEEDED is answer.state


async def test_a_bare_lease_has_the_length_asked_for(steps: Steps) -> None:
    """L7: a bare claim may pass its own lease length; 300 seconds must work."""
    await steps.submit_one()
    [lease] = await bare(steps, 1, lease_s=300)

    run = await steps.rescue(299)
    late = await steps.rescue(10)

    assert ([], [lease.session]) == (run.sessions, late.sessions)


@pytest.mark.parametrize("name", ["", "a\x00", "a/b", "x" * 201])
async def test_a_worker_needs_a_proper_name(steps: Steps, name: str) -> None:
    """N3: a name that cannot be stored or told apart is refused before anything is written."""
    before = await steps.dump()

    with pytest.raises(InvalidInput):
        await register(steps.db, NewSession(id=uuid4(), worker=name))
    with pytest.raises(InvalidInput):
        await bare(steps, 1, name=name)

    assert before == await steps.dump()


async def test_registering_again_is_harmless(steps: Steps) -> None:
    """A worker whose answer was lost says the same again: the lease runs from now, what it holds stays its own."""
    ann = await steps.worker("ann")
    lease = await steps.lease(ann)
    now = steps.clock.advance(10)

    await register(steps.db, NewSession(id=ann.session, worker="ann", capacity=5))

    job = await steps.get(lease.id)
    assert (State.ASSIGNED, now + timedelta(seconds=30)) == (job.state, job.lease_expires_at)


async def test_an_ended_or_foreign_session_is_not_registered_again(steps: Steps) -> None:
    """A session never comes back, and never changes its worker."""
    ann = await steps.worker("ann")
    with pytest.raises(Conflict, match="another worker's"):
        await register(steps.db, NewSession(id=ann.session, worker="bob"))
    await close(steps.db, ann.session, tenant="default", reason="done")

    with pytest.raises(Conflict, match="has ended"):
        await register(steps.db, NewSession(id=ann.session, worker="ann"))


async def test_registering_again_does_not_end_a_drain(steps: Steps) -> None:
    """W3: a worker that was told to drain and says its registration again is still to drain."""
    ann = await steps.worker("ann")
    await drain(steps.db, tenant="default", worker="ann")

    await register(steps.db, NewSession(id=ann.session, worker="ann"))

    assert (await steps.beat(ann)).draining


async def test_rel_t9_a_heartbeat_that_names_many_jobs_is_reconciled_in_portions(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T9: others write in between; each job is answered as in one go, and what is not named goes back."""
    monkeypatch.setattr(workers, "NAMED_AT_ONCE", 2)
    portions: list[int] = []
    own = workers._own

    async def noted(db: Statements, named: Sequence[LeaseKey]) -> dict[LeaseKey, int]:
        portions.append(len(named))
        return await own(db, named)

    monkeypatch.setattr(workers, "_own", noted)
    worker = await steps.worker()
    leases = [await steps.lease(worker) for _ in range(6)]
    await steps.advance(20)
    unknown = uuid4()
    held = [Held(lease.id, lease.fence, started=True) for lease in leases[:4]]
    held += [Held(leases[4].id, 9), Held(unknown, 1, started=True)]

    [answer] = await heartbeat(steps.db, [Beat(worker.session, held)])

    assert [2, 2, 2] == portions
    assert {leases[4].id, unknown} == set(answer.lost)
    assert sorted([leases[4].id, leases[5].id]) == answer.released
    assert 4 == len(answer.late_ms)
    assert [State.RUNNING] * 4 + [State.QUEUED] * 2 == [await steps.state_of(lease.id) for lease in leases]


@pytest.mark.parametrize(("step", "script"), [("_own", [False, True]), ("_cancelled", [True])])
async def test_a_long_heartbeat_that_a_rival_prevented_counts_once(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, step: str, script: list[bool]
) -> None:
    """H1: it is run again, wherever it was prevented; its leases live from the first time on."""
    monkeypatch.setattr(workers, "NAMED_AT_ONCE", 2)
    real, is_prevented = getattr(workers, step), iter(script)

    async def prevented(*asked: Any) -> Any:
        if next(is_prevented, False):
            raise Contention("A rival.")
        return await real(*asked)

    monkeypatch.setattr(workers, step, prevented)
    worker = await steps.worker()
    leases = [await steps.lease(worker) for _ in range(3)]
    beat = Beat(worker.session, [Held(lease.id, lease.fence) for lease in leases], completed=5, failed=2)
    steps.clock.advance(10)

    with pytest.raises(Contention):
        await heartbeat(steps.db, [beat])
    renewed_at = (await steps.get(leases[0].id)).heartbeat_at
    first = await get_worker(steps.db, "default", worker.name)
    await heartbeat(steps.db, [beat])
    again = await get_worker(steps.db, "default", worker.name)

    assert steps.clock.now() == renewed_at
    assert [(0, 0), (5, 2)] == [(seen.completed, seen.failed) for seen in (first, again)]
