"""A session whose process died: what it had begun is lost at once, the rest goes back, rescue finds what came late."""

from __future__ import annotations

from tests.queue.steps import Steps, Worker
from windlass.job import Outcome, State
from windlass.queue import workers
from windlass.queue.check import check
from windlass.queue.moves import Moved


async def lose(steps: Steps, worker: Worker, tenant: str = "default") -> list[Moved]:
    """Tell that the process of a worker died."""
    return await workers.lose(steps.db, worker.session, tenant=tenant, reason="It died.", chance=lambda: 0.0)


async def test_what_had_begun_is_lost_and_the_rest_goes_back(steps: Steps) -> None:
    """A begun job has used its attempt and counts a loss; one not begun is ready again and has used nothing."""
    ann = await steps.worker()
    begun, waiting = await steps.running(ann), await steps.lease(ann)

    moved = await lose(steps, ann)
    lost, back = await steps.get(begun.id), await steps.get(waiting.id)

    assert 2 == len(moved)
    assert (1, 1, 0) == (lost.attempt, lost.lost, lost.releases)
    assert [Outcome.LOST] == [attempt.outcome for attempt in await steps.attempts(begun.id)]
    assert (State.QUEUED, 0, 0, 1) == (back.state, back.attempt, back.lost, back.releases)
    assert [Outcome.RELEASED] == [attempt.outcome for attempt in await steps.attempts(waiting.id)]
    assert [] == await check(steps.db)


async def test_a_lost_session_is_dead_and_holds_nothing_more(steps: Steps) -> None:
    """After that it is not alive, cannot register again, and its reports are stale; saying it twice is harmless."""
    ann = await steps.worker()
    lease = await steps.running(ann)
    await lose(steps, ann)

    again = await lose(steps, ann)
    answer = await steps.complete(lease)
    found = await workers.find_sessions(steps.db, [ann.session])

    assert ([], "stale", False) == (again, answer.status, found[ann.session].alive)
    assert not (await steps.beat(ann)).alive


async def test_another_tenant_ends_no_session(steps: Steps) -> None:
    """The tenant stands in the guard: another's word changes nothing."""
    ann = await steps.worker()
    lease = await steps.running(ann)

    moved = await lose(steps, ann, tenant="other")

    assert ([], State.RUNNING) == (moved, await steps.state_of(lease.id))
    assert (await steps.beat(ann, lease)).alive


async def test_a_job_that_may_run_once_and_had_begun_is_dead(steps: Steps) -> None:
    """At most once holds here as everywhere: begun and lost is the end, not begun is as if never claimed."""
    ann = await steps.worker()
    begun = await steps.running(ann, delivery="at_most_once")
    waiting = await steps.lease(ann, delivery="at_most_once")

    await lose(steps, ann)

    assert [State.DEAD, State.QUEUED] == [await steps.state_of(lease.id) for lease in (begun, waiting)]


async def test_rescue_finds_a_lease_that_the_end_did_not(steps: Steps) -> None:
    """A claim that commits after its session was ended as dead is found by the next run of rescue."""
    ann = await steps.worker()
    lease = await steps.running(ann)
    async with steps.db.transaction() as transaction:
        await transaction.fetch(
            workers.SQL.close, session=ann.session, tenant="default", state=int(workers.SessionState.DEAD)
        )

    run = await steps.rescue()

    assert [lease.id] == [moved.move.lease.id for moved in run.moved]
    assert [Outcome.LOST] == [attempt.outcome for attempt in await steps.attempts(lease.id)]


async def test_the_grace_after_a_time_out_is_the_servers_choice(steps: Steps) -> None:
    """A heartbeat that tells a start sets the deadline: the time-out and the grace that the server is told."""
    ann = await steps.worker()
    lease = await steps.lease(ann, timeout_s=10)
    held = [workers.Held(lease.id, lease.fence, started=True)]

    await workers.heartbeat(steps.db, [workers.Beat(ann.session, held)], timeout_grace_ms=5000)
    job = await steps.get(lease.id)

    assert job.deadline_at is not None
    assert 15 == (job.deadline_at - steps.clock.now()).total_seconds()
