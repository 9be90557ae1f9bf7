"""Deadlines: what its time has run out for, ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.queue.steps import ANN, Steps
from windlass.job import Outcome, State
from windlass.queue.control import cancel, pause_job
from windlass.queue.deadlines import DEADLINE_BATCH, end_overdue, expire
from windlass.queue.moves import Moved
from windlass.queue.report import Complete, Fail, Release, Snooze, Status


async def overdue(steps: Steps, limit: int = 500) -> list[Moved]:
    """End what is past its deadline, without jitter."""
    return await end_overdue(steps.db, chance=lambda: 0.0, limit=limit)


async def test_a_job_past_its_time_out_is_ended(steps: Steps) -> None:
    """W8: the servers are the backstop: time-out plus grace after the told start the attempt ends as timed out."""
    worker = await steps.worker()
    lease = await steps.running(worker, timeout_s=60)
    steps.clock.advance(90)
    early = await overdue(steps)
    steps.clock.advance(0.001)

    [moved] = await overdue(steps)

    assert [] == early
    assert "timer" == moved.move.to
    job = await steps.get(lease.id)
    assert (State.SCHEDULED, 1) == (job.state, job.attempt)
    assert steps.clock.now() + timedelta(seconds=2) == job.next_run_at
    [attempt] = await steps.attempts(lease.id)
    assert (Outcome.TIMED_OUT, "timeout", "ann") == (attempt.outcome, attempt.error_type, attempt.worker)


async def test_the_last_attempt_timed_out_is_the_end(steps: Steps) -> None:
    """R9: out of attempts: dead, and the last one says timed out."""
    lease = await steps.running(await steps.worker(), timeout_s=60, max_attempts=1)
    steps.clock.advance(91)

    await overdue(steps)

    assert State.DEAD is await steps.state_of(lease.id)
    assert [Outcome.TIMED_OUT] == [attempt.outcome for attempt in await steps.attempts(lease.id)]


async def test_a_time_out_counts_from_the_told_start(steps: Steps) -> None:
    """W8: an assigned job has no deadline; its lease is bounded by its worker's heartbeats alone."""
    worker = await steps.worker()
    lease = await steps.lease(worker, timeout_s=1)
    steps.clock.advance(3600)

    assert [] == await overdue(steps)
    assert State.ASSIGNED is await steps.state_of(lease.id)


async def test_a_report_after_the_time_out_was_decided_is_stale(steps: Steps) -> None:
    """R3: the servers ended the attempt; a success that comes later is refused."""
    lease = await steps.running(await steps.worker(), timeout_s=60)
    steps.clock.advance(91)
    await overdue(steps)
    before = await steps.dump()

    assert Status.STALE is (await steps.complete(lease)).status
    assert before == await steps.dump()


async def test_an_unconfirmed_cancel_is_revoked_after_its_grace(steps: Steps) -> None:
    """X3: grace plus a margin after the cancel the lease is revoked and the job cancelled."""
    worker = await steps.worker()
    lease = await steps.running(worker)
    await cancel(steps.db, [lease.id], tenant="default", actor=ANN, grace_ms=5000)
    steps.clock.advance(15)
    early = await overdue(steps)
    steps.clock.advance(0.001)

    [moved] = await overdue(steps)

    assert ([], "done") == (early, moved.move.to)
    job = await steps.get(lease.id)
    assert (State.CANCELLED, "ann") == (job.state, job.worker)
    assert "revoked" in (job.reason or "")
    assert [lease.id] == (await steps.beat(worker, lease)).lost


@pytest.mark.parametrize("how", ["revoked", "lost"])
async def test_reports_after_the_lease_was_taken_are_stale(steps: Steps, how: str) -> None:
    """X3: late reports of a revoked cancel get 409, also one that would confirm it; so after a rescue (R3)."""
    lease = await steps.running(await steps.worker())
    await steps.cancel(lease.id)
    if how == "lost":
        await steps.lose(lease)
    else:
        steps.clock.advance(41)
        await overdue(steps)
    before = await steps.dump()
    named = steps.named(lease)

    for report in (
        Complete(**named),
        Fail(**named),
        Fail(**named, outcome=Outcome.CANCELLED),
        Release(**named),
        Snooze(**named, delay_ms=1),
    ):
        assert [Status.STALE] == [answer.status for answer in await steps.report(report)]

    assert before == await steps.dump()


async def test_overdue_leases_end_in_batches_and_once(steps: Steps) -> None:
    """Each run takes a bounded number; what has ended is not ended again."""
    worker = await steps.worker()
    for _ in range(3):
        await steps.running(worker, timeout_s=1)
    steps.clock.advance(40)

    assert [2, 1, 0] == [len(await overdue(steps, limit=2)) for _ in range(3)]


async def test_a_job_not_started_in_time_expires(steps: Steps) -> None:
    """L2, I11: past its start deadline a waiting job is expired, with the reason, and never starts."""
    job_id = await steps.submit_one(start_by=steps.clock.now() + timedelta(seconds=5))
    steps.clock.advance(4.999)
    early = await expire(steps.db)
    steps.clock.advance(0.001)

    assert ([], [job_id], []) == (early, await expire(steps.db), await expire(steps.db))
    job = await steps.get(job_id)
    assert (State.EXPIRED, steps.clock.now(), None) == (job.state, job.finished_at, job.worker)
    assert "start deadline" in (job.reason or "")
    assert ["submitted", "expired"] == await steps.kinds(job_id)


async def test_a_leased_job_does_not_expire(steps: Steps) -> None:
    """I11: claimed in time it may run; given back unstarted after the deadline it expires."""
    worker = await steps.worker()
    lease = await steps.lease(worker, start_by=steps.clock.now() + timedelta(seconds=5))
    steps.clock.advance(6)

    while_leased = await expire(steps.db)
    await steps.release(lease)
    after = await expire(steps.db)

    assert ([], [lease.id]) == (while_leased, after)


@pytest.mark.parametrize("how", ["release", "fail", "snooze", "released unheard"])
async def test_a_job_that_had_started_does_not_expire(steps: Steps, how: str) -> None:
    """The start deadline is met by the first start; retries, snoozes and releases come after it."""
    worker = await steps.worker()
    lease = await steps.lease(worker, start_by=steps.clock.now() + timedelta(seconds=5))
    if how == "release":
        await steps.beat(worker, lease, started=True)
        await steps.release(lease)
    elif how == "released unheard":
        await steps.release(lease, started=True)
    elif how == "fail":
        await steps.fail(lease)
    else:
        await steps.snooze(lease, 1)
    await steps.advance(10)

    assert [] == await expire(steps.db)
    assert lease.id == (await steps.claim_one(worker)).id


async def test_a_paused_job_expires_too(steps: Steps) -> None:
    """A pause does not stop the clock of a start deadline."""
    job_id = await steps.submit_one(start_by=steps.clock.now() + timedelta(seconds=5))
    await pause_job(steps.db, job_id, tenant="default", actor=ANN)
    steps.clock.advance(5)

    assert [job_id] == await expire(steps.db)


async def test_expiry_comes_in_batches(steps: Steps) -> None:
    """A bounded number at a time."""
    deadline = steps.clock.now() + timedelta(seconds=1)
    await steps.submit(*(steps.job(start_by=deadline) for _ in range(3)))
    steps.clock.advance(1)

    assert [2, 1] == [len(await expire(steps.db, limit=2)) for _ in range(2)]


async def test_more_than_a_batch_expires_where_asked_for(steps: Steps) -> None:
    """The limit is the caller's: who asks for more than one statement takes gets them, and no more."""
    deadline = steps.clock.now() + timedelta(seconds=1)
    await steps.submit(*(steps.job(start_by=deadline) for _ in range(DEADLINE_BATCH + 12)))
    steps.clock.advance(1)

    assert [DEADLINE_BATCH + 10, 2, 0] == [len(await expire(steps.db, limit=DEADLINE_BATCH + 10)) for _ in range(3)]
