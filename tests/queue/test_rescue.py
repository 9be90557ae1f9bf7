"""Rescue: jobs of workers that are gone go to others; our own silence is not the worker's fault."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from tests.queue.steps import ANN, Steps
from tests.sqltext import parse
from windlass.ids import Ids
from windlass.job import Outcome, State
from windlass.queue.claim import Group, Want, claim
from windlass.queue.control import pause_job
from windlass.queue.report import Complete
from windlass.queue.rescue import SQL, TOLERANCE, Rescued, rescue
from windlass.queue.retry import RetryPolicy
from windlass.queue.workers import Beat, Held, claim_bare, close, heartbeat

LATE_CLAIM = parse(
    """
-- name: late_claim
-- What a claim leaves that began while its session lived.
-- postgres
UPDATE queue SET place = 1, fence = 1, attempt = 1, session = CAST(:session AS uuid), claimed_at = :now WHERE id = :id
-- sqlite
UPDATE queue SET place = 1, fence = 1, attempt = 1, session = :session, claimed_at = :now WHERE id = :id
""",
    origin="test_rescue.py",
)["late_claim"]


async def test_a_lapsed_lease_is_lost_and_the_job_queued_again(steps: Steps) -> None:
    """L9: the attempt ends as lost, the owner is cleared, the job goes back to its lane and keeps its rank."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    lease = await steps.lease(ann)
    await steps.rescue(29)
    await steps.beat(bob)
    later = await steps.submit_one()

    run = await steps.rescue(2)

    assert ([ann.session], ["ready"]) == (run.sessions, [moved.move.to for moved in run.moved])
    job = await steps.get(lease.id)
    assert (State.QUEUED, None, None, None, None) == (
        job.state,
        job.worker,
        job.session,
        job.claimed_at,
        job.started_at,
    )
    [attempt] = await steps.attempts(lease.id)
    assert (Outcome.LOST, "ann", ann.session, 1, 1) == (
        attempt.outcome,
        attempt.worker,
        attempt.session,
        attempt.attempt,
        attempt.fence,
    )
    assert "Worker crashed or timed out" in (attempt.error or "")
    assert [(lease.id, 2), (later, 1)] == [(job.id, job.fence) for job in await steps.claim(bob, 2)]


async def test_a_lease_lapses_only_after_its_full_length(steps: Steps) -> None:
    """I6: no rescue for silence earlier than the lease after the last heartbeat; each session has its own length."""
    short, long = await steps.worker("short"), await steps.worker("long", lease_s=120)
    await steps.rescue()
    await steps.rescue(20)
    await steps.beat(short)

    early = await steps.rescue(30)
    due = await steps.rescue(0.001)
    rest = await steps.rescue(71)

    assert ([], [short.session], [long.session]) == (early.sessions, due.sessions, rest.sessions)


async def test_a_worker_that_beats_keeps_its_job_for_long(steps: Steps) -> None:
    """L8: the age of a lease is nothing; only silence ends it."""
    worker = await steps.worker()
    lease = await steps.running(worker, timeout_s=None)

    for _ in range(20):
        await steps.rescue(9, step_s=9)
        await steps.beat(worker, lease, started=True)

    assert State.RUNNING is await steps.state_of(lease.id)


async def test_an_attempt_is_consumed_only_if_its_start_was_told(steps: Steps) -> None:
    """L10: every loss counts as lost; as an attempt only after the start was told."""
    worker = await steps.worker()
    started, unstarted = await steps.running(worker), await steps.lease(worker)

    await steps.lose(started)

    jobs = [await steps.get(lease.id) for lease in (started, unstarted)]
    assert [(1, 1), (0, 1)] == [(job.attempt, job.lost) for job in jobs]
    [told] = await steps.attempts(started.id)
    [untold] = await steps.attempts(unstarted.id)
    assert (started.claimed_at, None) == (told.started_at, untold.started_at)


async def test_from_the_second_loss_on_the_job_waits(steps: Steps) -> None:
    """internals 3.9: the first loss may be the worker's own fault; after that a back-off shields the others."""
    first, second = await steps.worker("first"), await steps.worker("second", lease_s=60)
    lease = await steps.lease(first, max_attempts=9)
    await steps.lose(lease)
    await steps.beat(second)
    await steps.claim_one(second)

    run = await steps.rescue(61)

    [moved] = run.moved
    assert "timer" == moved.move.to
    job = await steps.get(lease.id)
    assert (State.SCHEDULED, 2, 0) == (job.state, job.lost, job.attempt)
    assert moved.next_run_at == job.next_run_at
    assert job.next_run_at is not None
    assert job.next_run_at > steps.clock.now() - timedelta(seconds=1)


async def test_a_job_that_kills_its_workers_is_dead_in_the_end(steps: Steps) -> None:
    """L10: at the fifth loss the job is dead, though no start was ever told and attempts are left."""
    job_id = await steps.submit_one(max_attempts=100)
    for number in range(1, 6):
        await steps.advance(60)
        lease = await steps.claim_one(await steps.worker(f"w{number}"))
        assert number == lease.fence
        await steps.lose(lease)

    job = await steps.get(job_id)
    assert (State.DEAD, 5, 0, 5) == (job.state, job.lost, job.attempt, job.fence)
    assert "lost 5 times" in (job.reason or "")
    assert [Outcome.LOST] * 5 == [attempt.outcome for attempt in await steps.attempts(job_id)]


async def test_the_last_attempt_lost_is_the_end(steps: Steps) -> None:
    """L9: no attempts left and the start was told: dead, with the reason."""
    worker = await steps.worker()
    lease = await steps.running(worker, max_attempts=1)

    await steps.lose(lease)

    job = await steps.get(lease.id)
    assert (State.DEAD, 1, 1) == (job.state, job.attempt, job.lost)
    assert "Worker crashed or timed out" in (job.error or "")


@pytest.mark.parametrize("started", [True, False])
async def test_at_most_once_is_never_run_twice(steps: Steps, started: bool) -> None:
    """R14: one attempt, and the first lost lease leads to dead, told or not."""
    worker = await steps.worker()
    lease = await (steps.running if started else steps.lease)(worker, max_attempts=1, max_lost=1)

    await steps.lose(lease)

    assert State.DEAD is await steps.state_of(lease.id)
    assert [] == await steps.claim(await steps.worker("bob"), 5)


async def test_a_held_policy_holds_a_lost_job(steps: Steps) -> None:
    """R10: then = hold: the dead letter waits for a person."""
    lease = await steps.running(await steps.worker(), max_attempts=1, retry=RetryPolicy(then="hold"))

    await steps.lose(lease)

    assert (await steps.get(lease.id)).held


async def test_a_cancelling_job_that_is_lost_is_cancelled(steps: Steps) -> None:
    """X2, L10: cancelling ends at the report or with the lease; the loss counts, the queue never sees it again."""
    lease = await steps.running(await steps.worker())
    await steps.cancel(lease.id)

    await steps.lose(lease)

    job = await steps.get(lease.id)
    assert (State.CANCELLED, "ann", 1) == (job.state, job.worker, job.lost)


async def test_a_paused_job_that_is_lost_is_held(steps: Steps) -> None:
    """X5: paused while it ran, it does not start again before it is resumed."""
    lease = await steps.running(await steps.worker())
    await pause_job(steps.db, lease.id, tenant="default", actor=ANN)

    await steps.lose(lease)

    job = await steps.get(lease.id)
    assert (State.QUEUED, True) == (job.state, job.paused)
    assert [] == await steps.claim(await steps.worker("bob"))


async def test_an_unstarted_job_keeps_its_start_deadline_when_lost(steps: Steps) -> None:
    """I11: it never started, so it must not start after the deadline; one that had started may."""
    worker = await steps.worker()
    deadline = steps.clock.now() + timedelta(seconds=20)
    unstarted = await steps.lease(worker, start_by=deadline)
    started = await steps.running(worker, start_by=deadline)

    await steps.lose(started)

    assert [started.id] == [job.id for job in await steps.claim(await steps.worker("bob"), 5)]
    assert State.QUEUED is await steps.state_of(unstarted.id)


async def test_leases_of_ended_sessions_are_found_again_and_again(steps: Steps) -> None:
    """internals 3.9: in chunks, and for every session that has ended, not only those just declared dead."""
    worker = await steps.worker()
    await steps.submit(*(steps.job() for _ in range(5)))
    await steps.claim(worker, 5)
    await steps.rescue(30)
    steps.clock.advance(1)

    sizes = [len((await rescue(steps.db, chance=lambda: 0.0, limit=2)).moved) for _ in range(4)]

    assert [2, 2, 1, 0] == sizes


async def test_rescue_repeats_nothing(steps: Steps) -> None:
    """I7: a second run, here or on another server, changes no job."""
    lease = await steps.lease(await steps.worker())
    await steps.lose(lease)
    before = await steps.dump(["queue", "attempt", "session", "job"])

    run = await steps.rescue()

    assert ([], []) == (run.sessions, run.moved)
    assert before == await steps.dump(["queue", "attempt", "session", "job"])


async def test_a_closed_session_is_not_declared_dead(steps: Steps) -> None:
    """W3: who said goodbye is gone in good order."""
    worker = await steps.worker()
    await close(steps.db, worker.session, tenant="default", reason="bye")

    assert [] == (await steps.rescue(120)).sessions


@pytest.mark.parametrize("silence_s", [11, 45, 3600])
async def test_after_our_own_silence_a_full_lease_passes(steps: Steps, silence_s: int) -> None:
    """L11: servers down, database gone: everybody gets one full lease, counted from when we are back."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    lease, other = await steps.running(ann), await steps.running(bob)
    await steps.rescue(20)
    steps.clock.advance(silence_s)

    quiet = await steps.rescue(30)
    await steps.beat(bob, other, started=True)
    after = await steps.rescue(0.001)

    assert ([], []) == (quiet.sessions, quiet.moved)
    assert [ann.session] == after.sessions
    assert (State.QUEUED, State.RUNNING) == (await steps.state_of(lease.id), await steps.state_of(other.id))


@pytest.mark.parametrize(("lease_s", "silence_s"), [(2, 1.1), (5, 2), (8, 9), (9, 3.1), (15, 6), (29, 9.9)])
async def test_after_our_own_silence_a_full_lease_passes_also_where_it_is_short(
    steps: Steps, lease_s: int, silence_s: float
) -> None:
    """L11: a silence of more than a third of the session's own lease, however short that is."""
    worker = await steps.worker(lease_s=lease_s)
    lease = await steps.running(worker)
    await awake(steps, lease_s - 0.5)
    steps.clock.advance(silence_s)

    quiet = [await rescue(steps.db, chance=lambda: 0.0), *await awake(steps, lease_s)]
    [after] = await awake(steps, 0.5)

    assert [] == [session for run in quiet for session in run.sessions]
    assert [worker.session] == after.sessions
    assert State.QUEUED is await steps.state_of(lease.id)


async def test_a_short_lease_does_not_open_quiet_periods_for_a_long_one(steps: Steps) -> None:
    """L11: a silence of two seconds is one for a lease of three, and none for that of another worker."""
    short, long = await steps.worker("short", lease_s=3), await steps.worker("long")
    await awake(steps, 28.5)
    steps.clock.advance(2)

    runs = await awake(steps, 2)

    assert short.session not in [session for run in runs for session in run.sessions]
    assert long.session in [session for run in runs for session in run.sessions]


async def awake(steps: Steps, seconds: float) -> list[Rescued]:
    """Run the rescue every half second for so long, as where leases are short."""
    runs = []
    for _ in range(round(seconds * 2)):
        steps.clock.advance(0.5)
        runs.append(await rescue(steps.db, chance=lambda: 0.0))
    return runs


async def test_the_quiet_period_is_one_lease_of_each_session(steps: Steps) -> None:
    """L11: a session with a longer lease gets its own length."""
    short, long = await steps.worker("short"), await steps.worker("long", lease_s=120)
    await steps.rescue()
    steps.clock.advance(600)

    first = await steps.rescue(31)
    second = await steps.rescue(88)
    third = await steps.rescue(2)

    assert ([short.session], [], [long.session]) == (first.sessions, second.sessions, third.sessions)


@pytest.mark.parametrize("lease_s", [2, 6, 15, 120])
async def test_silence_is_measured_by_each_lease(steps: Steps, lease_s: int) -> None:
    """L11: more than a third of a session's own lease without us, and it gets one full lease; up to a third, none."""
    slept_through = await steps.worker("ann", lease_s=lease_s)
    heard_of_us = await steps.worker("bob", lease_s=lease_s * 4)
    await steps.rescue()
    await steps.rescue(lease_s * 2 / 3, step_s=lease_s / 6)
    steps.clock.advance(lease_s * 0.4)  # longer than a third of the one lease, shorter than a third of the other

    quiet = await steps.rescue(lease_s, step_s=lease_s / 6)
    over = await steps.rescue(0.001)
    other = await steps.rescue(lease_s * 2, step_s=lease_s / 6)

    assert ([], [slept_through.session]) == (quiet.sessions, over.sessions)
    assert [heard_of_us.session] == other.sessions


@pytest.mark.parametrize("lease_s", [1, 2, 6, 30])
async def test_rescue_is_awake_often_enough_for_the_shortest_lease(steps: Steps, lease_s: int) -> None:
    """L11: it never sleeps so long that its own sleep would count as silence; a dead worker is found in one lease."""
    worker = await steps.worker(lease_s=lease_s)
    await steps.rescue()
    registered_at = steps.clock.now()

    dead: list[UUID] = []
    while not dead:
        steps.clock.advance(max(await steps.left_s("rescue") or 0, 0.001))
        dead = (await rescue(steps.db, chance=lambda: 0.0)).sessions

    assert [worker.session] == dead
    assert timedelta(seconds=lease_s) < steps.clock.now() - registered_at < timedelta(seconds=lease_s + 0.01)


async def test_a_server_stopped_before_its_verdict_declares_nobody_dead(steps: Steps) -> None:
    """L11: after the pulse, before the statement that declares sessions dead: what it then finds is its own silence."""
    await steps.worker(lease_s=6)
    await steps.rescue()
    await steps.rescue(6, step_s=1)
    steps.clock.advance(3)

    assert [] == await steps.db.fetch(SQL.declare_dead, tolerance=TOLERANCE)


async def test_a_short_gap_is_no_silence(steps: Steps) -> None:
    """L11: up to a third of a lease between two runs is ordinary, as after a graceful hand-over."""
    worker = await steps.worker()
    await steps.rescue()

    runs = [await steps.rescue(step, step_s=10) for step in (10, 10, 10)]
    last = await steps.rescue(0.001)

    assert [[], [], []] == [run.sessions for run in runs]
    assert [worker.session] == last.sessions


async def test_the_first_run_ever_waits_too(steps: Steps) -> None:
    """L11: a rescue without a past cannot know how long it was away."""
    worker = await steps.worker()
    steps.clock.advance(300)

    first = await steps.rescue(30)
    after = await steps.rescue(0.001)

    assert ([], [worker.session]) == (first.sessions, after.sessions)


async def test_a_late_heartbeat_before_the_verdict_saves_the_session(steps: Steps) -> None:
    """internals 3.9: lapsed is not dead; a beat that comes before rescue renews."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    await steps.rescue(30)
    steps.clock.advance(5)

    answer = await steps.beat(worker, lease)
    run = await steps.rescue(29)

    assert (True, []) == (answer.alive, run.sessions)


async def test_at_most_once_dies_with_its_first_lost_lease(steps: Steps) -> None:
    """Under `at_most_once` a lost lease ends in dead, also when nobody had said that the job began."""
    lease = await steps.lease(await steps.worker(), delivery="at_most_once", max_attempts=3, max_lost=5)

    await steps.lose(lease)

    job = await steps.get(lease.id)
    assert (State.DEAD, 1, 1) == (job.state, job.max_attempts, job.max_lost)


async def test_ended_sessions_are_forgotten_after_a_day(steps: Steps) -> None:
    """Sessions that ended more than a day ago and hold nothing go; those that live stay."""
    gone, alive = await steps.worker("gone"), await steps.worker("alive", lease_s=86_400)
    steps.clock.advance(hours=5)  # it was not heard since, but it is the end that counts
    await steps.beat(alive)
    await close(steps.db, gone.session, tenant="default", reason="bye")
    counts = []
    for hours, seconds in ((23, 0), (1, 1)):
        steps.clock.advance(hours=hours, seconds=seconds)
        await steps.beat(alive)
        await steps.rescue()
        counts.append(len((await steps.dump(["session"]))["session"]))

    assert [2, 1] == counts
    assert (await steps.beat(alive)).alive


async def test_an_ended_session_that_still_holds_a_lease_is_kept(steps: Steps) -> None:
    """I22: a lease's session is there as long as the lease, or rescue could not find it."""
    worker = await steps.worker()
    await steps.submit(steps.job(), steps.job())
    await steps.claim(worker, 2)
    await steps.rescue(30)
    steps.clock.advance(1)
    first = await rescue(steps.db, chance=lambda: 0.0, limit=1)
    steps.clock.advance(days=3)

    second = await rescue(steps.db, chance=lambda: 0.0, limit=1)

    assert [1, 1] == [len(run.moved) for run in (first, second)]
    assert [] == (await steps.dump(["session"]))["session"]


async def test_a_claim_that_commits_after_its_session_was_given_up_is_rescued(steps: Steps) -> None:
    """I26: a session silent for days is declared dead and kept, because a claim that saw it alive may still commit."""
    worker = await steps.worker(lease_s=86_400)
    await steps.rescue()
    steps.clock.advance(days=3)
    await rescue(steps.db, chance=lambda: 0.0, tolerance=10)
    job_id = await steps.submit_one()
    await steps.db.fetch(LATE_CLAIM, id=job_id, session=worker.session)

    run = await rescue(steps.db, chance=lambda: 0.0, tolerance=10)

    assert [job_id] == [moved.move.lease.id for moved in run.moved]


async def test_sessions_of_bare_callers_go_with_their_leases(steps: Steps) -> None:
    """There is one for every job: they go a minute after their end, but never before their lease has ended."""
    await steps.submit(steps.job(), steps.job())
    wants = [Want(lane.id) for lane in await steps.serving()]
    ended, held = await claim_bare(
        steps.db,
        Ids(steps.clock),
        lambda db, sessions: claim(db, [Group(wants, sessions)]),
        count=2,
        worker="curl",
        tenant="default",
        lease_ms=30_000,
    )
    await steps.report(Complete(job_id=ended.id, fence=1, worker="curl", session=ended.session))
    counts = []
    for _ in range(2):
        await steps.rescue(25)
        [answer] = await heartbeat(steps.db, [Beat(held.session, [Held(held.id, 1)])])
        counts.append((answer.alive, len((await steps.dump(["session"]))["session"])))

    assert [(True, 2), (True, 2)] == counts
    await steps.rescue(31)
    assert State.QUEUED is await steps.state_of(held.id)
    await steps.rescue(65)
    assert [] == (await steps.dump(["session"]))["session"]
