"""Dead letters: retry gives a job another run, replay makes a new job, purge removes a dead one for good."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.queue.steps import ANN, Steps, job_in
from windlass.errors import Conflict, InvalidInput, NotFound, Unavailable, UniqueTaken
from windlass.job import Outcome, State
from windlass.queue import deadletters
from windlass.queue.control import pause_queue
from windlass.queue.deadletters import Retried, purge, replay, retry
from windlass.queue.lanes import LaneName
from windlass.queue.retry import RetryPolicy


async def retried(steps: Steps, *ids: UUID, payload: str | None = None) -> list[Retried | Conflict | NotFound]:
    """Retry jobs of the default tenant."""
    return await retry(steps.db, ids, tenant="default", actor=ANN, payload=payload)


async def dead(steps: Steps, **fields: Any) -> UUID:
    """Return a job that has just died after two attempts."""
    worker = await steps.worker()
    lease = await steps.lease(worker, max_attempts=2, **fields)
    await steps.fail(lease, "first")
    await steps.advance(2)
    await steps.fail(await steps.claim_one(worker, queue=fields.get("queue", "default")), "second")
    return lease.id


async def test_a_dead_job_runs_again_under_its_id(steps: Steps) -> None:
    """X6: same id, run + 1, attempts from 0, the fence keeps rising; queued now, claimable at once."""
    job_id = await dead(steps, payload="1", priority=4, tags=("t",))
    before = await steps.get(job_id)
    steps.clock.advance(hours=1)

    [answer] = await retried(steps, job_id)

    assert isinstance(answer, Retried)
    job = await steps.get(job_id)
    assert (State.QUEUED, 2, 0, 2, 0, 0) == (job.state, job.run, job.attempt, job.fence, job.lost, job.releases)
    assert (before.payload, before.priority, before.tags, before.created_at, before.scheduled_at) == (
        job.payload,
        job.priority,
        job.tags,
        job.created_at,
        job.scheduled_at,
    )
    lease = await steps.claim_one(await steps.worker())
    assert (job_id, 1, 3, 2, answer.lane, answer.rank) == (
        lease.id,
        lease.attempt,
        lease.fence,
        lease.run,
        lease.lane,
        lease.rank,
    )


async def test_a_retry_has_a_new_budget_of_attempts(steps: Steps) -> None:
    """X6: all attempts of the policy again, then dead again."""
    job_id = await dead(steps)
    await retried(steps, job_id)
    worker = await steps.worker()

    states = []
    for _ in range(2):
        states.append((await steps.fail(await steps.claim_one(worker))).state)
        await steps.advance(60)

    assert [State.SCHEDULED, State.DEAD] == states
    assert [(1, 1, 1), (1, 2, 2), (2, 1, 3), (2, 2, 4)] == [
        (attempt.run, attempt.attempt, attempt.fence) for attempt in await steps.attempts(job_id)
    ]


async def test_the_old_end_moves_to_the_attempts(steps: Steps) -> None:
    """X6: nothing of it is lost: outcome, error, worker and times stand among the attempts, once."""
    job_id = await dead(steps)
    before = await steps.attempts(job_id)

    await retried(steps, job_id)

    assert before == await steps.attempts(job_id)
    assert [(Outcome.FAILED, "first"), (Outcome.FAILED, "second")] == [(a.outcome, a.error) for a in before]


@pytest.mark.parametrize("end", ["cancelled waiting", "cancelled running", "expired"])
async def test_cancelled_and_expired_jobs_run_again(steps: Steps, end: str) -> None:
    """X6: every end but success can be retried; the start deadline that passed does not stop it."""
    worker = await steps.worker()
    if end == "expired":
        job_id = await job_in(steps, "expired")
    elif end == "cancelled waiting":
        job_id = await steps.submit_one(delay_ms=5000)
        await steps.cancel(job_id)
    else:
        lease = await steps.running(worker)
        job_id = lease.id
        await steps.cancel(job_id)
        await steps.fail(lease)
    fence = (await steps.get(job_id)).fence

    await retried(steps, job_id)

    lease = await steps.claim_one(worker)
    assert (job_id, fence + 1, 2) == (lease.id, lease.fence, lease.run)
    assert State.SUCCEEDED is (await steps.complete(lease)).state
    assert end.split()[0] == (await steps.attempts(job_id))[0].outcome.name.lower()


async def test_a_job_cancelled_before_its_time_runs_now_when_retried(steps: Steps) -> None:
    """X6: a retry is for now, also of a job that was meant for later; nothing tells of that later time any more."""
    job_id = await steps.submit_one(delay_ms=3_600_000)
    await steps.cancel(job_id)

    await retried(steps, job_id)

    job = await steps.get(job_id)
    assert (State.QUEUED, steps.clock.now()) == (job.state, job.next_run_at)


async def test_a_job_may_be_retried_many_times(steps: Steps) -> None:
    """X6: each retry is one more run; every end is kept."""
    worker = await steps.worker()
    lease = await steps.lease(worker, max_attempts=1)
    for _ in range(3):
        await steps.fail(lease)
        steps.clock.advance(1)
        await retried(steps, lease.id)
        lease = await steps.claim_one(worker)
    await steps.complete(lease)

    attempts = await steps.attempts(lease.id)

    assert [(1, 1), (2, 2), (3, 3), (4, 4)] == [(attempt.run, attempt.fence) for attempt in attempts]
    assert Outcome.SUCCEEDED is attempts[-1].outcome


async def test_a_retry_may_have_another_payload(steps: Steps) -> None:
    """R9: optionally edited; checked like any payload."""
    job_id = await dead(steps, payload="1")
    with pytest.raises(InvalidInput):
        await retried(steps, job_id, payload="{")

    await retried(steps, job_id, payload=' {"a": "\\u0000"}')

    assert ' {"a": "\\u0000"}' == (await steps.claim_one(await steps.worker())).payload


async def test_retries_are_answered_in_order(steps: Steps) -> None:
    """R9: one or many; succeeded, live and unknown ones say why not, and stay as they are."""
    first, second = await dead(steps), await dead(steps)
    done, live = await job_in(steps, "succeeded"), await steps.submit_one()
    running, unknown = await job_in(steps, "running", task="other"), uuid4()

    answers = await retried(steps, done, second, unknown, live, first, running, second)

    kinds = [Conflict, Retried, NotFound, Conflict, Retried, Conflict, Retried]
    assert kinds == [type(answer) for answer in answers]
    states = [await steps.state_of(job_id) for job_id in (done, live, running)]
    assert [State.SUCCEEDED, State.QUEUED, State.RUNNING] == states


async def test_a_retry_twice_is_a_conflict_the_second_time(steps: Steps) -> None:
    """X6: it lives already; there is one row of it."""
    job_id = await dead(steps)

    answers = [(await retried(steps, job_id))[0] for _ in range(2)]

    assert [Retried, Conflict] == [type(answer) for answer in answers]
    assert 2 == (await steps.get(job_id)).run


async def test_a_retry_waits_where_its_queue_is_paused(steps: Steps) -> None:
    """X5: a manual retry is no way around a pause."""
    job_id = await dead(steps)
    await pause_queue(steps.db, steps.lanes, LaneName("default", "default"), actor=ANN)

    await retried(steps, job_id)

    assert [] == await steps.claim(await steps.worker())


async def test_a_retry_is_ranked_as_due_now(steps: Steps) -> None:
    """S4: it does not jump ahead of what has waited longer."""
    job_id = await dead(steps)
    steps.clock.advance(1)
    waiting = await steps.submit_one()
    steps.clock.advance(1)

    await retried(steps, job_id)

    assert [waiting, job_id] == [lease.id for lease in await steps.claim(await steps.worker(), 5)]


async def test_a_held_job_is_retried_by_a_person(steps: Steps) -> None:
    """R10: it rests in dead with held until then."""
    worker = await steps.worker()
    lease = await steps.lease(worker, max_attempts=1, retry=RetryPolicy(then="hold"))
    await steps.fail(lease)
    held = (await steps.get(lease.id)).held

    await retried(steps, lease.id)

    assert held
    assert not (await steps.get(lease.id)).held
    assert lease.id == (await steps.claim_one(worker)).id


async def test_a_retry_whose_unique_key_is_taken_is_refused(steps: Steps) -> None:
    """S6: one live job per unique key; once that one has ended the retry takes the key."""
    job_id = await dead(steps, unique_key="u")
    rival = await steps.submit_one(unique_key="u")

    [refused] = await retried(steps, job_id)
    still = await steps.state_of(job_id)
    await steps.cancel(rival)
    [taken] = await retried(steps, job_id)

    assert (UniqueTaken, State.DEAD, Retried) == (type(refused), still, type(taken))
    assert job_id == await steps.submit_one(unique_key="u")
    await steps.complete(await steps.claim_one(await steps.worker()))
    assert job_id != await steps.submit_one(unique_key="u")


async def test_of_two_dead_jobs_with_one_unique_key_one_is_retried(steps: Steps) -> None:
    """S6: also in one call only one of them can live."""
    first, second = await dead(steps, unique_key="u"), await dead(steps, unique_key="u")

    answers = await retried(steps, first, second)

    assert {Retried, UniqueTaken} == {type(answer) for answer in answers}
    assert {State.QUEUED, State.DEAD} == {await steps.state_of(first), await steps.state_of(second)}


async def test_a_unique_key_whose_time_is_over_does_not_stop_a_retry(steps: Steps) -> None:
    """S6: a key held for a time is free after it, swept or not."""
    job_id = await dead(steps, unique_key="u")
    other = await steps.submit_one(unique_key="u", unique_ms=60_000)
    await steps.cancel(other)

    [within] = await retried(steps, job_id)
    steps.clock.advance(60)
    [after] = await retried(steps, job_id)

    assert (UniqueTaken, Retried) == (type(within), type(after))
    assert job_id == await steps.submit_one(unique_key="u")


@pytest.mark.parametrize("end", ["succeeded", "dead", "expired"])
async def test_a_replay_is_a_new_job(steps: Steps, end: str) -> None:
    """X7: a finished job once more under a new id, with what it was asked for and none of its keys."""
    job_id = await job_in(
        steps,
        end,
        payload="[1]",
        priority=3,
        tags=("t",),
        headers="{}",
        timeout_s=None,
        max_attempts=7,
        retry=RetryPolicy(kind="fixed", base_s=5.0),
        idempotency_key="k",
        unique_key="u",
    )
    steps.clock.advance(5)

    answer = await replay(steps.db, steps.lanes, steps.ids, job_id, tenant="default", actor=ANN)

    assert job_id != answer.id
    assert (State.QUEUED, False) == (answer.state, answer.duplicate)
    new, old = await steps.get(answer.id), await steps.get(job_id)
    assert ("[1]", 3, ["t"], "{}", None, 7, old.retry) == (
        new.payload,
        new.priority,
        new.tags,
        new.headers,
        new.timeout_s,
        new.max_attempts,
        new.retry,
    )
    assert (1, 0, 0, None, None, steps.clock.now()) == (
        new.run,
        new.attempt,
        new.fence,
        new.idempotency_key,
        new.unique_key,
        new.created_at,
    )
    assert end == old.state
    assert "replayed" == (await steps.kinds(job_id))[-1]


async def test_a_replay_goes_to_the_same_lane(steps: Steps) -> None:
    """X7: queue and labels are the job's."""
    job_id = await steps.submit_one(queue="q", labels=("gpu", "eu"), delay_ms=1)
    await steps.cancel(job_id)

    answer = await replay(steps.db, steps.lanes, steps.ids, job_id, tenant="default", actor=ANN, payload="2")

    new, old = await steps.get(answer.id), await steps.get(job_id)
    assert (old.queue, old.labels, "2") == (
        new.queue,
        new.labels,
        new.payload,
    )


@pytest.mark.parametrize("where", ["queued", "scheduled", "running"])
async def test_a_live_job_is_not_replayed(steps: Steps, where: str) -> None:
    """X7: replay is for finished jobs."""
    job_id = await job_in(steps, where)

    with pytest.raises(Conflict):
        await replay(steps.db, steps.lanes, steps.ids, job_id, tenant="default", actor=ANN)


async def test_purge_removes_dead_jobs_only(steps: Steps) -> None:
    """R9: gone for good; live, succeeded and cancelled ones are never touched."""
    first, second = await dead(steps), await dead(steps)
    others = [await job_in(steps, where) for where in ("succeeded", "expired", "running", "retry", "scheduled")]

    removed = await purge(steps.db, [first, first, uuid4(), *others], tenant="default")

    assert [first] == removed
    with pytest.raises(NotFound):
        await steps.get(first)
    assert State.DEAD is await steps.state_of(second)
    for job_id in others:
        await steps.get(job_id)
    assert [NotFound] == [type(answer) for answer in await retried(steps, first)]


async def test_a_key_remembers_a_purged_job(steps: Steps) -> None:
    """S6: within its window the key still answers with the job's id, though nothing else of it is left."""
    job = steps.job(idempotency_key="k", max_attempts=1)
    await steps.submit(job)
    await steps.fail(await steps.claim_one(await steps.worker()))
    await purge(steps.db, [job.id], tenant="default")

    again = steps.job(idempotency_key="k", max_attempts=1)
    [answer] = await steps.submit(again)

    assert (job.id, None, True) == (answer.id, answer.state, answer.duplicate)


async def test_another_tenants_dead_letters_are_unknown(steps: Steps) -> None:
    """N1: retry, replay and purge of a foreign id answer like those of an unknown one, and nothing changes."""
    worker = await steps.worker(tenant="acme")
    lease = await steps.lease(worker, tenant="acme", max_attempts=1)
    await steps.fail(lease)
    cancelled = await steps.submit_one(tenant="acme")
    await steps.cancel(cancelled, tenant="acme")
    before = await steps.dump()

    for job_id in (lease.id, cancelled, uuid4()):
        assert [NotFound] == [type(answer) for answer in await retried(steps, job_id)]
        assert [] == await purge(steps.db, [job_id], tenant="default")
        with pytest.raises(NotFound):
            await replay(steps.db, steps.lanes, steps.ids, job_id, tenant="default", actor=ANN)

    assert before == await steps.dump()
    assert [lease.id] == await purge(steps.db, [lease.id], tenant="acme")


async def test_a_retried_job_may_run_past_its_old_start_deadline(steps: Steps) -> None:
    """X6: the deadline was for the first start; a person's retry has none."""
    job_id = await dead(steps, start_by=steps.clock.now() + timedelta(seconds=30))
    steps.clock.advance(60)

    await retried(steps, job_id)

    assert job_id == (await steps.claim_one(await steps.worker())).id


async def test_a_replay_and_its_event_are_stored_together(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """I1: a replay that fails has made no job, so that asking again makes one and not two."""
    lease = await steps.lease(await steps.worker(), max_attempts=1)
    await steps.fail(lease)
    before = await steps.dump()

    async def broken(*_: object) -> None:
        raise Unavailable("the database has gone")

    with monkeypatch.context() as patched:
        patched.setattr(deadletters, "note_events", broken)
        with pytest.raises(Unavailable):
            await replay(steps.db, steps.lanes, steps.ids, lease.id, tenant="default", actor=ANN)

    assert before == await steps.dump()
    await replay(steps.db, steps.lanes, steps.ids, lease.id, tenant="default", actor=ANN)
    assert "replayed" in await steps.kinds(lease.id)
