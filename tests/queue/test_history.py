"""History: one job, lists by filters in pages, counts, attempts and the timeline."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.queue.steps import ANN, Steps, job_in
from windlass.db.sqlfile import qualify
from windlass.errors import NotFound
from windlass.job import Flag, Outcome, Place, Reason, State
from windlass.queue.control import pause_job, resume_job
from windlass.queue.deadletters import retry
from windlass.queue.history import Filter, attempts, count, find, get, timeline

WHERE = {
    "scheduled": State.SCHEDULED,
    "queued": State.QUEUED,
    "held": State.QUEUED,
    "assigned": State.ASSIGNED,
    "running": State.RUNNING,
    "retry": State.SCHEDULED,
    "snoozed": State.SCHEDULED,
    "released": State.QUEUED,
    "succeeded": State.SUCCEEDED,
    "dead": State.DEAD,
    "expired": State.EXPIRED,
}


async def one_of_each(steps: Steps) -> dict[str, UUID]:
    """Bring a job into every state, each of a task of its own, and return their ids."""
    ids = {where: await job_in(steps, where, task=where.replace(" ", "-")) for where in WHERE}
    ids["cancelled"] = await steps.submit_one("cancelled", delay_ms=1)
    await steps.cancel(ids["cancelled"])
    ids["cancelling"] = await job_in(steps, "running", task="cancelling")
    await steps.cancel(ids["cancelling"])
    return ids


async def found(steps: Steps, tenant: str = "default", **where: Any) -> set[UUID]:
    """Return the ids of the jobs that match."""
    page = await find(steps.db, Filter(tenant=tenant, **where), limit=500)
    return {job.id for job in page.jobs}


async def damage(steps: Steps, statement: str) -> None:
    """Run a statement on the rows of the test, past all steps."""
    await steps.db.run(f"{qualify(statement) if steps.db.dialect == 'postgres' else statement};\n")


async def test_every_state_is_shown_as_it_is(steps: Steps) -> None:
    """Y1: by id and in lists, wherever the row lies."""
    ids = await one_of_each(steps)
    states = WHERE | {"cancelled": State.CANCELLED, "cancelling": State.CANCELLING}

    page = await find(steps.db, Filter(tenant="default"))

    assert states == {where: await steps.state_of(job_id) for where, job_id in ids.items()}
    assert {ids[where]: state for where, state in states.items()} == {job.id: job.state for job in page.jobs}
    assert sorted(ids.values(), reverse=True) == [job.id for job in page.jobs]


@pytest.mark.breaks_rows
@pytest.mark.parametrize(
    ("state", "place", "flags", "started", "pending"),
    [
        (State.QUEUED, Place.READY, Flag.NONE, False, 0),
        (State.ASSIGNED, Place.LEASED, Flag.NONE, False, 0),
        (State.RUNNING, Place.LEASED, Flag.NONE, True, 0),
        (State.CANCELLING, Place.LEASED, Flag.CANCEL, False, 0),
        (State.CANCELLING, Place.LEASED, Flag.CANCEL | Flag.PAUSED, True, 0),
        (State.BLOCKED, Place.BLOCKED, Flag.NONE, False, 2),
        (State.BLOCKED, Place.BLOCKED, Flag.NONE, False, 0),
        (State.BLOCKED, Place.HELD, Flag.PAUSED, False, 1),
        (State.QUEUED, Place.HELD, Flag.PAUSED, False, 0),
        (State.RUNNING, Place.LEASED, Flag.PAUSED, True, 0),
    ],
)
async def test_the_state_of_a_row_in_queue(
    steps: Steps, state: State, place: Place, flags: Flag, started: bool, pending: int
) -> None:
    """The table of states of the design: by place, cancel flag, told start and open parents; pause is no state."""
    job_id = await steps.submit_one()
    session = "id" if place is Place.LEASED else "NULL"
    values = f"place = {place:d}, flags = {flags:d}, pending = {pending}, session = {session}"
    await damage(steps, f"UPDATE queue SET {values}")
    if started:
        await damage(steps, "UPDATE queue SET started_at = (SELECT created_at FROM job)")

    assert state is await steps.state_of(job_id)


@pytest.mark.parametrize("reason", Reason)
async def test_the_state_of_a_row_in_timer(steps: Steps, reason: Reason) -> None:
    """Sleeping is a durable delay inside a job; everything else that waits for its time is scheduled."""
    job_id = await steps.submit_one(delay_ms=5000)
    await damage(steps, f"UPDATE timer SET reason = {reason:d}")

    assert (State.SLEEPING if reason is Reason.SLEEP else State.SCHEDULED) is await steps.state_of(job_id)


async def test_a_job_is_the_same_by_id_and_in_a_list(steps: Steps) -> None:
    """Y1: one job, one picture."""
    await one_of_each(steps)

    page = await find(steps.db, Filter(tenant="default"))

    assert page.jobs == [await steps.get(job.id) for job in page.jobs]


async def test_lists_by_state(steps: Steps) -> None:
    """P9: one state or several, live and finished ones mixed."""
    ids = await one_of_each(steps)

    for states, expected in [
        ({State.SCHEDULED}, {"scheduled", "retry", "snoozed"}),
        ({State.QUEUED}, {"queued", "held", "released"}),
        ({State.CANCELLING, State.RUNNING}, {"cancelling", "running"}),
        ({State.DEAD, State.EXPIRED, State.ASSIGNED}, {"dead", "expired", "assigned"}),
        ({State.SUCCEEDED, State.CANCELLED}, {"succeeded", "cancelled"}),
        ({State.BLOCKED, State.SLEEPING}, set()),
    ]:
        assert {ids[where] for where in expected} == await found(steps, states=frozenset(states))


async def test_each_filter_and_all_together(steps: Steps) -> None:
    """C18: queue, task, worker, key, tag, schedule, flow and time of creation, alone and combined."""
    schedule_id, flow_id = uuid4(), uuid4()
    worker = await steps.worker()
    plain = await steps.submit_one()
    steps.clock.advance(10)
    created_at = steps.clock.now()
    lease = await steps.lease(
        worker,
        "report",
        queue="q",
        idempotency_key="k",
        tags=("a", 'say "hi" ü'),
        schedule_id=schedule_id,
        flow_id=flow_id,
    )
    steps.clock.advance(10)
    later = await steps.submit_one(tags=("ab", "a b"))
    filters: dict[str, Any] = {
        "queue": "q",
        "task": "report",
        "worker": "ann",
        "idempotency_key": "k",
        "tag": "a",
        "schedule_id": schedule_id,
        "flow_id": flow_id,
        "states": frozenset({State.ASSIGNED}),
    }

    for name, value in filters.items():
        assert {lease.id} == await found(steps, **{name: value}), name
    assert {lease.id} == await found(steps, tag='say "hi" ü')
    assert {later} == await found(steps, tag="a b")
    assert set() == await found(steps, tag="b")
    assert {lease.id, later} == await found(steps, created_after=created_at)
    assert {plain} == await found(steps, created_before=created_at)
    span: dict[str, Any] = {"created_after": created_at, "created_before": created_at + timedelta(microseconds=1)}
    assert {lease.id} == await found(steps, **filters, **span)
    assert set() == await found(steps, **filters | {"task": "other"})
    await steps.complete(lease)
    assert {lease.id} == await found(steps, **filters | {"states": frozenset({State.SUCCEEDED})}, **span)


async def test_a_filter_is_a_value_never_a_pattern(steps: Steps) -> None:
    """Values are parameters: quotes, percent signs and backslashes match only themselves."""
    await steps.submit_one(tags=("x",), idempotency_key="x")

    for odd in ("%", "_", "' OR 1=1 --", "\\", '"', '["x"]', ""):
        assert set() == await found(steps, tag=odd)
        assert set() == await found(steps, idempotency_key=odd)
        assert set() == await found(steps, queue=odd)


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_pages_are_complete_and_without_repeats(steps: Steps, limit: int) -> None:
    """P9: keyset pages, newest first, over all places a job can lie in; None after the last."""
    ids = sorted((await one_of_each(steps)).values(), reverse=True)

    pages = [await find(steps.db, Filter(tenant="default"), limit=limit)]
    while (cursor := pages[-1].next_cursor) is not None and len(pages) <= len(ids):
        pages.append(await find(steps.db, Filter(tenant="default"), limit=limit, cursor=cursor))

    assert ids == [job.id for page in pages for job in page.jobs]
    assert all(limit == len(page.jobs) for page in pages[:-1])
    assert 1 <= len(pages[-1].jobs) <= limit


async def test_pages_stand_while_jobs_come_and_go(steps: Steps) -> None:
    """P9: jobs submitted or finished between two pages neither repeat nor hide others."""
    worker = await steps.worker()
    ids = [await steps.submit_one() for _ in range(6)]
    first = await find(steps.db, Filter(tenant="default"), limit=3)

    await steps.submit_one("new")
    for lease in await steps.claim(worker, 6, tasks=["mail"]):
        await steps.complete(lease)
    second = await find(steps.db, Filter(tenant="default"), limit=3, cursor=first.next_cursor)

    assert ids[::-1] == [job.id for page in (first, second) for job in page.jobs]
    assert None is second.next_cursor


async def test_a_filtered_list_is_paged_too(steps: Steps) -> None:
    """P9: the cursor and the filters hold together."""
    wanted = [await steps.submit_one(task) for task in ("a", "b") * 5][::2]
    where = Filter(tenant="default", task="a")

    first = await find(steps.db, where, limit=3)
    second = await find(steps.db, where, limit=3, cursor=first.next_cursor)

    assert wanted[::-1] == [job.id for page in (first, second) for job in page.jobs]
    assert None is second.next_cursor


async def test_an_empty_list(steps: Steps) -> None:
    """No job, one empty page."""
    page = await find(steps.db, Filter(tenant="default"))

    assert ([], None) == (page.jobs, page.next_cursor)


async def test_attempts_tell_the_whole_story(steps: Steps) -> None:
    """R11: every attempt leaves a record: number, fence, outcome, worker, times, error; the last one too."""
    ann, bob = await steps.worker("ann", lease_s=600), await steps.worker("bob", lease_s=600)
    lease = await steps.running(ann)
    steps.clock.advance(1)
    await steps.fail(lease, "boom", error_type="io")
    await steps.advance(2)
    await steps.release(await steps.claim_one(bob), reason="drain")
    await steps.snooze(await steps.claim_one(bob), 5, reason="later")
    await steps.advance(5)
    last = await steps.claim_one(ann)
    steps.clock.advance(3)
    await steps.complete(last, result="7")

    told = await steps.attempts(lease.id)

    assert [
        (1, 1, Outcome.FAILED, "ann", "boom", None),
        (2, 2, Outcome.RELEASED, "bob", None, "drain"),
        (2, 3, Outcome.SNOOZED, "bob", None, "later"),
        (2, 4, Outcome.SUCCEEDED, "ann", None, None),
    ] == [(a.attempt, a.fence, a.outcome, a.worker, a.error, a.reason) for a in told]
    assert "7" == told[-1].result
    assert all(a.claimed_at is not None and a.claimed_at <= a.finished_at for a in told)
    assert steps.clock.now() == told[-1].finished_at


async def test_a_waiting_job_has_no_attempts(steps: Steps) -> None:
    """R11: what never was leased has no record of an attempt, also when it is cancelled."""
    job_id = await steps.submit_one()
    before = await steps.attempts(job_id)
    await steps.cancel(job_id)

    assert ([], []) == (before, await steps.attempts(job_id))


async def test_the_timeline_is_in_order_and_grows_at_its_end(steps: Steps) -> None:
    """Y2, I20: read at any time it is a prefix of what is read later: nothing told is ever changed."""
    worker = await steps.worker(lease_s=6000)
    job_id = await steps.submit_one(max_attempts=2)
    readings = []

    async def step(act: Awaitable[object]) -> None:
        readings.append((await timeline(steps.db, job_id, tenant="default")).items)
        steps.clock.advance(1)
        await act

    await step(pause_job(steps.db, job_id, tenant="default", actor=ANN))
    await step(resume_job(steps.db, job_id, tenant="default", actor=ANN))
    lease = await steps.claim_one(worker)
    await step(steps.beat(worker, lease, started=True))
    await step(steps.fail(lease))
    await step(steps.advance(5))
    lease = await steps.claim_one(worker)
    await step(steps.beat(worker, lease, started=True))
    await step(steps.fail(lease))
    await step(retry(steps.db, [job_id], tenant="default", actor=ANN))
    lease = await steps.claim_one(worker)
    await step(steps.beat(worker, lease, started=True))
    await step(steps.cancel(job_id))
    await step(steps.fail(lease, outcome=Outcome.CANCELLED))
    await step(retry(steps.db, [job_id], tenant="default", actor=ANN))
    await step(steps.cancel(job_id))
    await step(retry(steps.db, [job_id], tenant="default", actor=ANN))
    lease = await steps.claim_one(worker)
    await step(steps.complete(lease))
    final = (await timeline(steps.db, job_id, tenant="default")).items

    for reading in readings:
        assert reading == final[: len(reading)]
    assert [event.happened_at for event in final] == sorted(event.happened_at for event in final)
    kinds = (
        "submitted paused resumed assigned running failed assigned running failed dead retried "
        "assigned running cancel_requested cancelled retried cancel_requested cancelled retried "
        "assigned running succeeded"
    )
    assert kinds.split() == [event.kind for event in final]


async def test_the_timeline_of_a_loss(steps: Steps) -> None:
    """Y1: transitions with times, worker and error."""
    lease = await steps.running(await steps.worker())
    await steps.lose(lease)

    events = (await timeline(steps.db, lease.id, tenant="default")).items

    assert ["submitted", "assigned", "running", "lost"] == [event.kind for event in events]
    assert ("ann", "Worker crashed or timed out.") == (events[-1].worker, events[-1].detail)


async def test_the_times_and_holder_of_a_job(steps: Steps) -> None:
    """M9-M12: who has it, since when, until when; cleared while it waits, kept when it has ended."""
    worker = await steps.worker()
    created_at = steps.clock.now()
    lease = await steps.lease(worker)
    steps.clock.advance(1)
    await steps.beat(worker, lease, started=True)
    running = await steps.get(lease.id)
    steps.clock.advance(2)
    await steps.complete(lease)
    done = await steps.get(lease.id)

    beat_at = created_at + timedelta(seconds=1)
    assert (created_at, created_at, beat_at, None) == (
        running.created_at,
        running.claimed_at,
        running.started_at,
        running.finished_at,
    )
    assert (beat_at, beat_at + timedelta(seconds=30)) == (running.heartbeat_at, running.lease_expires_at)
    assert ("ann", worker.session, beat_at, steps.clock.now()) == (
        done.worker,
        done.session,
        done.started_at,
        done.finished_at,
    )


async def test_a_job_asked_for_in_the_past_runs_next_when_it_was_submitted(steps: Steps) -> None:
    """S3, S5: first and repeated submit and every later look tell one time; the one asked for is the nominal one."""
    asked_at = steps.clock.now() - timedelta(hours=1)
    [first] = await steps.submit(steps.job(run_at=asked_at, idempotency_key="k"))
    steps.clock.advance(5)

    [again] = await steps.submit(steps.job(run_at=asked_at, idempotency_key="k"))

    job = await steps.get(first.id)
    assert (first.id, True) == (again.id, again.duplicate)
    assert job.created_at == first.next_run_at == again.next_run_at == job.next_run_at
    assert asked_at == job.scheduled_at


async def test_attempt_and_max_attempts_are_shown(steps: Steps) -> None:
    """M14: attempt 0 and max_attempts 3 at first; the attempt counts up with each try."""
    worker = await steps.worker()
    job_id = await steps.submit_one()
    fresh = await steps.get(job_id)
    await steps.fail(await steps.claim_one(worker))
    waiting = await steps.get(job_id)

    assert [(0, 3), (1, 3)] == [(job.attempt, job.max_attempts) for job in (fresh, waiting)]


async def test_another_tenants_history_is_unknown(steps: Steps) -> None:
    """N1, I18: by id, in lists, counts, attempts and timeline a foreign job does not exist."""
    foreign = [await steps.submit_one(tenant="acme"), await steps.submit_one(tenant="acme", delay_ms=5)]
    lease = await steps.lease(await steps.worker(tenant="acme"), "t", tenant="acme")
    await steps.complete(lease)
    mine = await steps.submit_one()

    for job_id in (*foreign, lease.id, uuid4()):
        for read in (get, attempts, timeline):
            with pytest.raises(NotFound):
                await read(steps.db, job_id, tenant="default")
    assert {mine} == await found(steps)
    assert {*foreign, lease.id} == await found(steps, tenant="acme")
    assert 1 == (await count(steps.db, Filter(tenant="default"))).jobs
