"""Control: cancel and change, in every state a job can be in. Pausing: test_pause.py."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.queue.steps import ANN, FINISHED, LEASED, NO_ZONE, WAITING, Steps, job_in
from windlass.errors import Conflict, InvalidInput, JobFinished, NotFound
from windlass.job import Outcome, State
from windlass.queue.control import Actor, Cancelled, cancel, change
from windlass.queue.deadletters import retry
from windlass.queue.deadlines import expire
from windlass.queue.history import timeline
from windlass.queue.lanes import LaneName, configure


async def changed(steps: Steps, job_id: UUID, **changes: Any) -> State:
    """Change a job of the default tenant."""
    return await change(steps.db, steps.lanes, job_id, tenant="default", actor=ANN, **changes)


@pytest.mark.parametrize("where", WAITING)
async def test_a_waiting_job_is_cancelled_at_once(steps: Steps, where: str) -> None:
    """X1: whatever it waits for, it is cancelled and never starts afterwards."""
    job_id = await job_in(steps, where)
    steps.clock.advance(1)

    answer = await steps.cancel(job_id)

    assert Cancelled(job_id, State.CANCELLED) == answer
    job = await steps.get(job_id)
    assert (State.CANCELLED, ANN.reason, steps.clock.now()) == (job.state, job.reason, job.finished_at)
    await steps.advance(minutes=5)
    assert [] == await steps.claim(await steps.worker(), 5)


@pytest.mark.parametrize("where", LEASED)
async def test_a_leased_job_is_told_to_stop(steps: Steps, where: str) -> None:
    """X2: cancelling, until its worker confirms; 30 seconds grace and a margin, then it is revoked."""
    job_id = await job_in(steps, where)

    answer = await steps.cancel(job_id)

    assert Cancelled(job_id, State.CANCELLING) == answer
    job = await steps.get(job_id)
    assert (State.CANCELLING, steps.clock.now() + timedelta(seconds=40)) == (job.state, job.deadline_at)


@pytest.mark.parametrize("where", FINISHED)
async def test_a_finished_job_cannot_be_cancelled(steps: Steps, where: str) -> None:
    """X4: it answers that it has ended, and stays as it is."""
    job_id = await job_in(steps, where)
    before = await steps.dump()

    assert isinstance(await steps.cancel(job_id), JobFinished)
    assert before == await steps.dump()


async def test_repeated_cancels_get_the_same_answer_and_one_event(steps: Steps) -> None:
    """X4: also at a later time; the grace is not lengthened."""
    waiting, running = await steps.submit_one(), await job_in(steps, "running", task="other")
    for job_id in (waiting, running):
        await steps.cancel(job_id)
    deadline_at = (await steps.get(running)).deadline_at
    steps.clock.advance(5)
    before = await steps.dump()

    again = [await steps.cancel(job_id) for job_id in (waiting, running)]

    expected = [Cancelled(waiting, State.CANCELLED, already=True), Cancelled(running, State.CANCELLING, already=True)]
    assert expected == again
    assert before == await steps.dump()
    assert deadline_at == (await steps.get(running)).deadline_at
    assert ["submitted", "cancel_requested", "cancelled"] == await steps.kinds(waiting)
    assert 1 == (await steps.kinds(running)).count("cancel_requested")


async def test_cancels_are_answered_in_order(steps: Steps) -> None:
    """X4: one answer for each id, in the order asked, also for an id named twice."""
    queued, done = await steps.submit_one(delay_ms=9000), await job_in(steps, "succeeded")
    running, unknown = await job_in(steps, "running"), uuid4()

    answers = await cancel(steps.db, [done, unknown, queued, running, queued], tenant="default", actor=ANN)

    kinds = [answer.state if isinstance(answer, Cancelled) else type(answer) for answer in answers]
    assert [JobFinished, NotFound, State.CANCELLED, State.CANCELLING, State.CANCELLED] == kinds


async def test_nothing_to_cancel(steps: Steps) -> None:
    """An empty list is answered with one."""
    assert [] == await cancel(steps.db, [], tenant="default", actor=ANN)


async def test_success_stands_while_cancelling(steps: Steps) -> None:
    """I17: exactly one of cancelled or the reported end; a job that made it has made it."""
    lease = await steps.running(await steps.worker())
    await steps.cancel(lease.id)

    answer = await steps.complete(lease, result="42")

    job = await steps.get(lease.id)
    assert (State.SUCCEEDED, State.SUCCEEDED, "42") == (answer.state, job.state, job.result)


@pytest.mark.parametrize("how", ["confirm", "fail", "time out", "release", "error", "snooze"])
async def test_every_other_end_cancels_while_cancelling(steps: Steps, how: str) -> None:
    """X2: failed, released or put off while it was to stop, the job is cancelled and not retried."""
    lease = await steps.running(await steps.worker())
    await steps.cancel(lease.id)

    if how == "release":
        answer = await steps.release(lease)
    elif how == "error":
        answer = await steps.release(lease, error="x")
    elif how == "snooze":
        answer = await steps.snooze(lease, 5)
    else:
        outcomes = {"confirm": Outcome.CANCELLED, "fail": Outcome.FAILED, "time out": Outcome.TIMED_OUT}
        answer = await steps.fail(lease, outcome=outcomes[how])

    assert (State.CANCELLED, None) == (answer.state, answer.next_run_at)
    assert State.CANCELLED is await steps.state_of(lease.id)
    assert [Outcome.CANCELLED] == [attempt.outcome for attempt in await steps.attempts(lease.id)]
    await steps.advance(60)
    assert [] == await steps.claim(await steps.worker(), 5)


async def test_who_cancelled_and_why_is_told(steps: Steps) -> None:
    """X10, Y1: a request to stop is kept with its actor and reason."""
    lease = await steps.running(await steps.worker())
    steps.clock.advance(1)
    await cancel(steps.db, [lease.id], tenant="default", actor=Actor("ann", "wrong file"))

    event = (await timeline(steps.db, lease.id, tenant="default")).items[-1]

    assert ("cancel_requested", "ann", "wrong file") == (event.kind, event.actor, event.detail)


@pytest.mark.parametrize("where", WAITING)
async def test_who_cancelled_a_waiting_job_is_told(steps: Steps, where: str) -> None:
    """X10, Y1: of a job that ends at once too, before its end and after its next run began."""
    job_id = await job_in(steps, where)
    steps.clock.advance(1)
    await cancel(steps.db, [job_id], tenant="default", actor=Actor("ann", "wrong file"))
    told = (await timeline(steps.db, job_id, tenant="default")).items[-2:]
    steps.clock.advance(1)

    await retry(steps.db, [job_id], tenant="default", actor=ANN)

    expected = [("cancel_requested", "ann", "wrong file"), ("cancelled", None, "wrong file")]
    assert expected == [(event.kind, event.worker or event.actor, event.detail) for event in told]
    assert told == (await timeline(steps.db, job_id, tenant="default")).items[-3:-1]


@pytest.mark.parametrize("where", WAITING)
async def test_a_new_priority_takes_effect_wherever_the_job_waits(steps: Steps, where: str) -> None:
    """X7: the job overtakes what was ahead of it; its counts, pause and due time stay."""
    first = await steps.submit_one("other", delay_ms=4000)
    job_id = await job_in(steps, where)
    before = await steps.get(job_id)

    state = await changed(steps, job_id, priority=5)

    after = await steps.get(job_id)
    assert (before.state, before.state, 5) == (state, after.state, after.priority)
    assert (before.attempt, before.fence, before.releases, before.paused, before.next_run_at) == (
        after.attempt,
        after.fence,
        after.releases,
        after.paused,
        after.next_run_at,
    )
    await steps.advance(60)
    claimed = [lease.id for lease in await steps.claim(await steps.worker(), 5)]
    assert ([first] if where.startswith("held") else [job_id, first]) == claimed


async def test_a_changed_priority_keeps_the_due_order_among_equals(steps: Steps) -> None:
    """S4: due time counts within a priority; changing there and back is no way to the front or the end."""
    ids = []
    for _ in range(3):
        ids.append(await steps.submit_one())
        steps.clock.advance(1)

    await changed(steps, ids[1], priority=3)
    await changed(steps, ids[1], priority=0)

    assert ids == [lease.id for lease in await steps.claim(await steps.worker(), 5)]


async def test_a_changed_retry_keeps_its_place_in_time(steps: Steps) -> None:
    """S4: a retry waits since it became ready, not since it was first due; changing it is no way past the others."""
    lease = await steps.lease(await steps.worker())
    steps.clock.advance(1)
    await steps.snooze(lease, 10)
    before = await steps.submit_one("before")
    await steps.advance(10)
    steps.clock.advance(1)
    after = await steps.submit_one("after")

    await changed(steps, lease.id, priority=3)
    await changed(steps, lease.id, priority=0)

    assert [before, lease.id, after] == [found.id for found in await steps.claim(await steps.worker(), 5)]


async def test_a_moved_retry_keeps_its_place_in_time(steps: Steps) -> None:
    """S4: in another queue too, and also a job that somebody has retried by hand."""
    dead = await job_in(steps, "dead")
    steps.clock.advance(1)
    before = await steps.submit_one("before", queue="other")
    steps.clock.advance(1)
    await retry(steps.db, [dead], tenant="default", actor=ANN)
    steps.clock.advance(1)
    after = await steps.submit_one("after", queue="other")

    await changed(steps, dead, queue="other")

    claimed = await steps.claim(await steps.worker(), 5, queue="other")
    assert [before, dead, after] == [found.id for found in claimed]


async def test_a_queue_whose_credit_was_changed_tells_no_time(steps: Steps) -> None:
    """S4: a rank given before says something else by then; the job comes to lie between its creation and now."""
    job_id = await steps.submit_one(priority=5)
    await configure(steps.db, LaneName("default", "default"), credit_ms=1)
    steps.clock.advance(1)
    later = await steps.submit_one("later", priority=5)

    await changed(steps, job_id, priority=4)
    await changed(steps, job_id, priority=5)

    assert [job_id, later] == [found.id for found in await steps.claim(await steps.worker(), 5)]


@pytest.mark.parametrize("where", WAITING)
async def test_a_job_moves_to_another_queue(steps: Steps, where: str) -> None:
    """X7: it keeps its task and labels and is claimed there, not here."""
    worker = await steps.worker()
    job_id = await job_in(steps, where, labels=())

    await changed(steps, job_id, queue="other")

    job = await steps.get(job_id)
    assert ("other", "mail") == (job.queue, job.task)
    await steps.advance(60)
    assert [] == await steps.claim(worker, 5)
    expected = [] if where.startswith("held") else [job_id]
    assert expected == [lease.id for lease in await steps.claim(worker, 5, queue="other")]


async def test_moving_to_a_queue_takes_its_order(steps: Steps) -> None:
    """S4: in the new queue the job is ranked by that queue's rule."""
    await steps.own_row("line")
    await configure(steps.db, LaneName("default", "line"), fifo=True)
    moved = await steps.submit_one(priority=-9)
    steps.clock.advance(1)
    other = await steps.submit_one(queue="line")

    await changed(steps, moved, queue="line")

    assert [moved, other] == [lease.id for lease in await steps.claim(await steps.worker(), 5, queue="line")]


@pytest.mark.parametrize("where", WAITING)
async def test_a_new_time_ahead_makes_the_job_scheduled(steps: Steps, where: str) -> None:
    """X7: due then and not before; the nominal time is the new one."""
    job_id = await job_in(steps, where)
    run_at = steps.clock.now() + timedelta(hours=1)

    state = await changed(steps, job_id, run_at=run_at)

    job = await steps.get(job_id)
    assert (State.SCHEDULED, State.SCHEDULED, run_at, run_at) == (state, job.state, job.scheduled_at, job.next_run_at)
    await steps.advance(3599)
    assert [] == await steps.claim(await steps.worker(), 5)
    await steps.advance(1)
    assert State.QUEUED is await steps.state_of(job_id)


@pytest.mark.parametrize("where", ["scheduled", "retry", "snoozed", "queued"])
async def test_a_new_time_of_now_makes_the_job_due(steps: Steps, where: str) -> None:
    """X7: brought forward, it is claimable at once; the fence goes on."""
    job_id = await job_in(steps, where)
    fence = (await steps.get(job_id)).fence

    state = await changed(steps, job_id, run_at=steps.clock.now())

    assert State.QUEUED is state
    lease = await steps.claim_one(await steps.worker())
    assert (job_id, fence + 1) == (lease.id, lease.fence)


async def test_a_new_time_in_the_past_does_not_jump_the_queue(steps: Steps) -> None:
    """S3, S4: due is the later of the asked time and now, also when it is changed."""
    job_id = await steps.submit_one(delay_ms=3_600_000)
    steps.clock.advance(10)
    first = await steps.submit_one()
    steps.clock.advance(10)
    past = steps.clock.now() - timedelta(seconds=15)

    await changed(steps, job_id, run_at=past)

    assert past == (await steps.get(job_id)).scheduled_at
    assert [first, job_id] == [lease.id for lease in await steps.claim(await steps.worker(), 5)]


async def test_everything_can_change_together(steps: Steps) -> None:
    """X7: priority, queue and time in one act, told as one event."""
    job_id = await steps.submit_one(delay_ms=5000)
    steps.clock.advance(1)
    run_at = steps.clock.now() + timedelta(days=1)

    await changed(steps, job_id, priority=-1, queue="other", run_at=run_at)

    job = await steps.get(job_id)
    assert (-1, "other", run_at) == (job.priority, job.queue, job.scheduled_at)
    assert ["submitted", "changed"] == await steps.kinds(job_id)


@pytest.mark.parametrize(("where", "error"), [("assigned", Conflict), ("running", Conflict), ("dead", JobFinished)])
async def test_a_job_that_does_not_wait_is_not_changed(steps: Steps, where: str, error: type[Conflict]) -> None:
    """P11: 409 while a worker has it, and after its end."""
    job_id = await job_in(steps, where)
    before = await steps.dump()

    with pytest.raises(error):
        await changed(steps, job_id, priority=1)

    assert before == await steps.dump()


@pytest.mark.parametrize(
    "change", [{"priority": 128}, {"priority": -128}, {"queue": "a/b"}, {"queue": ""}, {"run_at": NO_ZONE}]
)
async def test_a_change_out_of_bounds_is_refused(steps: Steps, change: dict[str, Any]) -> None:
    """S9: the same bounds as at submit."""
    job_id = await steps.submit_one()

    with pytest.raises(InvalidInput):
        await changed(steps, job_id, **change)

    assert State.QUEUED is await steps.state_of(job_id)


async def test_a_unique_key_survives_a_change(steps: Steps) -> None:
    """S6: a moved job still holds its key, and still frees it at its end."""
    job_id = await steps.submit_one(unique_key="u", delay_ms=5000)
    await changed(steps, job_id, queue="other", run_at=steps.clock.now())

    assert job_id == await steps.submit_one(unique_key="u")
    await steps.complete(await steps.claim_one(await steps.worker(), queue="other"))
    assert job_id != await steps.submit_one(unique_key="u")


async def test_a_start_deadline_survives_a_change(steps: Steps) -> None:
    """I11: a moved job still expires."""
    job_id = await steps.submit_one(start_by=steps.clock.now() + timedelta(seconds=5))
    await changed(steps, job_id, queue="other", priority=2)
    steps.clock.advance(5)

    assert [] == await steps.claim(await steps.worker(), queue="other")
    assert [job_id] == await expire(steps.db)


async def test_another_tenants_job_is_unknown_to_every_act(steps: Steps) -> None:
    """N1: a foreign id answers exactly like an unknown one, waiting or leased, and nothing changes."""
    foreign = [await steps.submit_one(tenant="acme", delay_ms=5000), await steps.submit_one(tenant="acme")]
    foreign.append((await steps.lease(await steps.worker(tenant="acme"), "leased", tenant="acme")).id)
    before = await steps.dump()

    for job_id in (*foreign, uuid4()):
        assert isinstance(await steps.cancel(job_id), NotFound)
        with pytest.raises(NotFound):
            await changed(steps, job_id, priority=1)

    assert before == await steps.dump()
