"""What writing and running the model has found, kept as tests of their own."""

from __future__ import annotations

from datetime import timedelta

from tests.queue.steps import ANN, Steps
from windlass.job import State
from windlass.queue.control import change, pause_job
from windlass.queue.deadletters import Retried, retry
from windlass.queue.retention import sweep


async def test_a_job_retried_by_hand_before_its_nominal_time_stays_queued_when_changed(steps: Steps) -> None:
    """A retry by hand is due now; a change of its priority alone does not send it back to wait for `run_at`."""
    job_id = await steps.submit_one(run_at=steps.clock.now() + timedelta(days=1))
    await steps.cancel(job_id)
    await retry(steps.db, [job_id], tenant="default", actor=ANN)

    state = await change(steps.db, steps.lanes, job_id, tenant="default", actor=ANN, priority=3)

    assert State.QUEUED is state
    assert job_id == (await steps.claim_one(await steps.worker())).id


async def test_the_pause_of_a_job_ends_with_the_run_it_paused(steps: Steps) -> None:
    """A job that was paused, cancelled and retried is not paused, and nothing says that it is."""
    job_id = await steps.submit_one()
    await pause_job(steps.db, job_id, tenant="default", actor=ANN)
    await steps.cancel(job_id)

    await retry(steps.db, [job_id], tenant="default", actor=ANN)

    assert not (await steps.get(job_id)).paused
    assert [] == (await steps.dump(["pause"]))["pause"]


async def test_a_dead_letter_older_than_history_can_be_retried(steps: Steps) -> None:
    """Dead letters outlive retention: the old end of one moves to the attempts, also where its day was dropped."""
    lease = await steps.lease(await steps.worker(), max_attempts=1)
    await steps.fail(lease)
    steps.clock.advance(days=4)
    await sweep(steps.db, days=1)

    [answer] = await retry(steps.db, [lease.id], tenant="default", actor=ANN)

    assert isinstance(answer, Retried)
    assert [1] == [attempt.fence for attempt in await steps.attempts(lease.id)]
