"""Timers: what is not due waits apart, and becomes ready when its time has come."""

from __future__ import annotations

from datetime import timedelta

from tests.queue.steps import ANN, Steps
from windlass.job import Place, State
from windlass.queue.control import pause_job, resume_job
from windlass.queue.lanes import LaneName, configure
from windlass.queue.timers import promote


async def test_a_timer_is_promoted_at_its_due_time(steps: Steps) -> None:
    """T15: not a moment before it is due; from then on the job is queued and claimable."""
    job_id = await steps.submit_one(delay_ms=5000)
    steps.clock.advance(4.999)
    early = await promote(steps.db)

    steps.clock.advance(0.001)
    [promoted] = await promote(steps.db)

    assert [] == early
    assert (job_id, Place.READY) == (promoted.id, promoted.place)
    assert State.QUEUED is await steps.state_of(job_id)
    lease = await steps.claim_one(await steps.worker())
    assert (job_id, promoted.lane, promoted.rank) == (lease.id, lease.lane, lease.rank)


async def test_a_scheduled_job_cannot_be_claimed(steps: Steps) -> None:
    """L2, I11: nothing starts before its due time."""
    await steps.submit_one(delay_ms=1)

    assert [] == await steps.claim(await steps.worker())


async def test_promotion_takes_the_earliest_up_to_its_limit(steps: Steps) -> None:
    """T15: in batches, the earliest due first; what is left comes with the next one."""
    ids = [await steps.submit_one(delay_ms=ms) for ms in (3000, 1000, 2000, 9000)]
    steps.clock.advance(5)

    runs = [{job.id for job in await promote(steps.db, limit=2)} for _ in range(3)]

    assert [{ids[1], ids[2]}, {ids[0]}, set()] == runs


async def test_promotion_is_done_once(steps: Steps) -> None:
    """T15: a second run, on this server or another, finds nothing to do."""
    await steps.submit_one(delay_ms=1000)
    steps.clock.advance(1)
    await promote(steps.db)
    before = await steps.dump()

    assert [] == await promote(steps.db)
    assert before == await steps.dump()


async def test_the_next_due_time_is_known(steps: Steps) -> None:
    """U9: the duty sleeps until the next due time; without timers there is none."""
    assert None is await steps.left_s("promote")

    await steps.submit_one(delay_ms=60_000)
    await steps.submit_one(delay_ms=20_000)

    assert 20.0 == await steps.left_s("promote")


async def test_promoted_jobs_are_ranked_by_their_due_time(steps: Steps) -> None:
    """S4: order is priority, then due time; a late promotion changes nothing of it."""
    worker = await steps.worker()
    late = await steps.submit_one(delay_ms=9000)
    soon = await steps.submit_one(delay_ms=5000)
    high = await steps.submit_one(delay_ms=9000, priority=1)
    steps.clock.advance(7)
    between = await steps.submit_one()
    await steps.advance(60)
    last = await steps.submit_one()

    claimed = await steps.claim(worker, 10)

    assert [high, soon, between, late, last] == [lease.id for lease in claimed]


async def test_a_fifo_queue_ranks_promoted_jobs_by_creation(steps: Steps) -> None:
    """S4: order fifo is creation among the due; priority and due time do not count."""
    await steps.own_row()
    await configure(steps.db, LaneName("default", "default"), fifo=True)
    first = await steps.submit_one(delay_ms=9000)
    second = await steps.submit_one(delay_ms=1000, priority=9)
    steps.clock.advance(5)
    third = await steps.submit_one(priority=99)
    await steps.advance(5)

    assert [first, second, third] == [lease.id for lease in await steps.claim(await steps.worker(), 10)]


async def test_attempt_fence_and_counts_travel_through_a_timer(steps: Steps) -> None:
    """I5: the fence is carried from queue to timer and back, so it never falls."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    await steps.release(lease)
    await steps.fail(await steps.claim_one(worker))
    waiting = await steps.get(lease.id)
    await steps.advance(2)

    again = await steps.claim_one(worker)

    assert (State.SCHEDULED, 1, 2, 1) == (waiting.state, waiting.attempt, waiting.fence, waiting.releases)
    assert (2, 3) == (again.attempt, again.fence)
    assert 1 == (await steps.get(lease.id)).releases


async def test_a_paused_timer_is_held_when_due(steps: Steps) -> None:
    """X5: a paused job is promoted, but nobody can claim it until it is resumed."""
    worker = await steps.worker()
    job_id = await steps.submit_one(delay_ms=1000)
    await pause_job(steps.db, job_id, tenant="default", actor=ANN)
    steps.clock.advance(1)

    [promoted] = await promote(steps.db)

    assert Place.HELD == promoted.place
    assert [] == await steps.claim(worker)
    job = await steps.get(job_id)
    assert (State.QUEUED, True) == (job.state, job.paused)
    await resume_job(steps.db, job_id, tenant="default", actor=ANN)
    assert job_id == (await steps.claim_one(worker)).id


async def test_a_timer_past_its_start_deadline_is_promoted_but_never_claimed(steps: Steps) -> None:
    """I11: no start after the start deadline; the deadlines step ends the job."""
    job_id = await steps.submit_one(delay_ms=5000, start_by=steps.clock.now() + timedelta(seconds=3))
    await steps.advance(6)

    assert State.QUEUED is await steps.state_of(job_id)
    assert [] == await steps.claim(await steps.worker())


async def test_a_retry_has_no_start_deadline_any_more(steps: Steps) -> None:
    """L2: the deadline is for the first start; a job that has started may be retried after it."""
    worker = await steps.worker()
    lease = await steps.lease(worker, start_by=steps.clock.now() + timedelta(seconds=1))
    await steps.fail(lease)
    await steps.advance(2)

    assert lease.id == (await steps.claim_one(worker)).id
