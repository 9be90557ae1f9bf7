"""Control: pause and resume of a job, a queue and a tenant."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from tests.queue.steps import ANN, LEASED, NO_ZONE, WAITING, Steps, job_in
from windlass.errors import InvalidInput, JobFinished, NotFound
from windlass.job import State
from windlass.queue.control import (
    Actor,
    pause_job,
    pause_queue,
    pause_tenant,
    resume_due,
    resume_job,
    resume_queue,
    resume_tenant,
)
from windlass.queue.lanes import LaneName

DEFAULT = LaneName("default", "default")


@pytest.mark.parametrize("where", [place for place in WAITING if not place.startswith("held")])
async def test_a_paused_job_waits_until_it_is_resumed(steps: Steps, where: str) -> None:
    """X5: it shows the state it has, with `paused` beside it; nobody can claim it; resumed, it goes on."""
    worker = await steps.worker()
    job_id = await job_in(steps, where)
    before = await steps.get(job_id)

    state = await pause_job(steps.db, job_id, tenant="default", actor=ANN)
    paused = await steps.get(job_id)
    await steps.advance(60)
    nothing = await steps.claim(worker, 5)
    await resume_job(steps.db, job_id, tenant="default", actor=ANN)

    assert (before.state, before.state, True) == (state, paused.state, paused.paused)
    assert [] == nothing
    assert job_id == (await steps.claim_one(worker)).id
    assert not (await steps.get(job_id)).paused


async def test_a_timer_resumed_before_it_is_due_stays_scheduled(steps: Steps) -> None:
    """X5: a pause does not change when a job is due."""
    job_id = await steps.submit_one(delay_ms=5000)
    await pause_job(steps.db, job_id, tenant="default", actor=ANN)

    state = await resume_job(steps.db, job_id, tenant="default", actor=ANN)

    assert State.SCHEDULED is state
    await steps.advance(5)
    assert job_id == (await steps.claim_one(await steps.worker())).id


@pytest.mark.parametrize("where", LEASED)
async def test_a_running_job_goes_on_when_paused(steps: Steps, where: str) -> None:
    """X5: pausing stops claims, not work; its success is recorded as ever."""
    worker = await steps.worker()
    lease = await (steps.running if where == "running" else steps.lease)(worker)

    state = await pause_job(steps.db, lease.id, tenant="default", actor=ANN)
    beat = await steps.beat(worker, lease)
    answer = await steps.complete(lease)

    assert (State(where), [], State.SUCCEEDED) == (state, beat.cancel, answer.state)


async def test_a_paused_lease_given_back_is_held_and_resumed_to_its_rank(steps: Steps) -> None:
    """X5: released it is held; resumed it stands where it stood."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    await pause_job(steps.db, lease.id, tenant="default", actor=ANN)
    steps.clock.advance(1)
    later = await steps.submit_one()
    await steps.release(lease)

    held = await steps.claim(worker, 1)
    state = await resume_job(steps.db, lease.id, tenant="default", actor=ANN)

    assert [later] == [job.id for job in held]
    assert State.QUEUED is state
    await steps.release(held[0])
    assert [lease.id, later] == [job.id for job in await steps.claim(worker, 5)]


async def test_a_lease_resumed_before_it_ends_goes_back_to_its_lane(steps: Steps) -> None:
    """X5: paused and resumed while it ran, the job is as if nothing had been."""
    worker = await steps.worker()
    lease = await steps.running(worker)
    await pause_job(steps.db, lease.id, tenant="default", actor=ANN)

    state = await resume_job(steps.db, lease.id, tenant="default", actor=ANN)
    await steps.release(lease)

    assert State.RUNNING is state
    assert lease.id == (await steps.claim_one(worker)).id


async def test_a_paused_job_can_be_cancelled(steps: Steps) -> None:
    """X1: held or not, a waiting job is cancelled at once."""
    job_id = await job_in(steps, "held")

    await steps.cancel(job_id)

    assert State.CANCELLED is await steps.state_of(job_id)


@pytest.mark.parametrize("where", ["queued", "scheduled", "running"])
async def test_pausing_twice_and_resuming_twice_is_harmless(steps: Steps, where: str) -> None:
    """Rule 15: the same request gets the same answer, and one event."""
    job_id = await job_in(steps, where)
    steps.clock.advance(1)

    states = [
        await act(steps.db, job_id, tenant="default", actor=ANN)
        for act in (pause_job, pause_job, resume_job, resume_job)
    ]

    assert [State(where)] * 4 == states
    kinds = await steps.kinds(job_id)
    assert (1, 1) == (kinds.count("paused"), kinds.count("resumed"))
    assert [] == (await steps.dump(["pause"]))["pause"]


@pytest.mark.parametrize("where", ["succeeded", "dead", "expired", "cancelled"])
async def test_a_finished_job_is_neither_paused_nor_resumed(steps: Steps, where: str) -> None:
    """X5: it has ended, and stays as it is."""
    job_id = await job_in(steps, "queued" if where == "cancelled" else where)
    if where == "cancelled":
        await steps.cancel(job_id)
    before = await steps.dump()

    for act in (pause_job, resume_job):
        with pytest.raises(JobFinished):
            await act(steps.db, job_id, tenant="default", actor=ANN)

    assert before == await steps.dump()


async def test_a_job_being_cancelled_may_be_paused_and_still_ends(steps: Steps) -> None:
    """X2: a pause does not save a job from its cancel."""
    lease = await steps.running(await steps.worker())
    await steps.cancel(lease.id)
    await pause_job(steps.db, lease.id, tenant="default", actor=ANN)

    await steps.release(lease)

    assert State.CANCELLED is await steps.state_of(lease.id)


async def test_a_paused_queue_hands_out_nothing(steps: Steps) -> None:
    """X5: of all its lanes; jobs already leased go on; other queues too."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    for task in ("a", "b"):
        await steps.submit_one(task)
    other = await steps.submit_one(queue="other")

    await pause_queue(steps.db, steps.lanes, DEFAULT, actor=ANN)

    assert [] == await steps.claim(worker, 5)
    assert [other] == [job.id for job in await steps.claim(worker, 5, queue="other")]
    assert State.SUCCEEDED is (await steps.complete(lease)).state
    assert await resume_queue(steps.db, DEFAULT)
    assert 2 == len(await steps.claim(worker, 5))


async def test_a_queue_may_be_paused_before_its_first_job(steps: Steps) -> None:
    """X5: what comes later waits."""
    await pause_queue(steps.db, steps.lanes, LaneName("default", "new"), actor=ANN)

    job_id = await steps.submit_one(queue="new")

    assert State.QUEUED is await steps.state_of(job_id)
    assert [] == await steps.claim(await steps.worker(), queue="new")


async def test_a_paused_tenant_hands_out_nothing_of_any_queue(steps: Steps) -> None:
    """X5: all its queues, and no other tenant's."""
    worker = await steps.worker()
    for queue in ("a", "b"):
        await steps.submit_one(queue=queue)
    foreign = await steps.submit_one(queue="a", tenant="acme")

    await pause_tenant(steps.db, "default", actor=ANN)

    assert [[], []] == [await steps.claim(worker, 5, queue=queue) for queue in ("a", "b")]
    assert [foreign] == [
        job.id for job in await steps.claim(await steps.worker(tenant="acme"), 5, queue="a", tenant="acme")
    ]
    assert await resume_tenant(steps.db, "default")
    assert 1 == len(await steps.claim(worker, 5, queue="a"))


async def test_queue_and_tenant_are_paused_independently(steps: Steps) -> None:
    """X5: each pause is lifted by its own resume; one does not lift the other."""
    worker = await steps.worker()
    await steps.submit_one()
    await pause_queue(steps.db, steps.lanes, DEFAULT, actor=ANN)
    await pause_tenant(steps.db, "default", actor=ANN)

    assert await resume_tenant(steps.db, "default")
    still = await steps.claim(worker)
    await pause_tenant(steps.db, "default", actor=ANN)
    assert await resume_queue(steps.db, DEFAULT)
    again = await steps.claim(worker)
    await resume_tenant(steps.db, "default")

    assert ([], [], 1) == (still, again, len(await steps.claim(worker)))


async def test_resuming_what_is_not_paused_says_so(steps: Steps) -> None:
    """False, and nothing changes."""
    await steps.submit_one()
    before = await steps.dump()

    assert [False, False] == [await resume_queue(steps.db, DEFAULT), await resume_tenant(steps.db, "default")]
    assert before == await steps.dump()


async def test_who_paused_why_and_when_is_kept(steps: Steps) -> None:
    """X5: reason, who, when and optional end survive a restart: they are rows."""
    job_id = await steps.submit_one()
    until = steps.clock.now() + timedelta(hours=1)
    who = Actor("ann", "too hot")
    await pause_job(steps.db, job_id, tenant="default", actor=who, until=until)
    await pause_queue(steps.db, steps.lanes, DEFAULT, actor=who)
    await pause_tenant(steps.db, "default", actor=who, until=until)

    rows = (await steps.dump(["pause"]))["pause"]

    assert 3 == len(rows)
    assert all("'ann'" in row and "'too hot'" in row and repr(steps.clock.now()) in row for row in rows)
    assert 2 == sum(repr(until) in row for row in rows)


async def test_a_pause_with_an_end_is_over_then(steps: Steps) -> None:
    """X5: job, queue and tenant are resumed at the end of their pause, not before."""
    worker, foreign = await steps.worker(), await steps.worker(tenant="acme")
    held, in_queue = await steps.submit_one(), await steps.submit_one(queue="q")
    of_tenant = await steps.submit_one(tenant="acme")
    until = steps.clock.now() + timedelta(seconds=60)
    await pause_job(steps.db, held, tenant="default", actor=ANN, until=until)
    await pause_queue(steps.db, steps.lanes, LaneName("default", "q"), actor=ANN, until=until)
    await pause_tenant(steps.db, "acme", actor=ANN, until=until + timedelta(seconds=1))
    await pause_queue(steps.db, steps.lanes, LaneName("default", "for ever"), actor=ANN)

    steps.clock.advance(59.999)
    early = await resume_due(steps.db)
    steps.clock.advance(0.001)
    due = await resume_due(steps.db)

    assert (0, 2) == (early, due)
    assert [held] == [job.id for job in await steps.claim(worker, 5)]
    assert [in_queue] == [job.id for job in await steps.claim(worker, 5, queue="q")]
    assert [] == await steps.claim(foreign, 5, tenant="acme")
    steps.clock.advance(1)
    assert [1, 0] == [await resume_due(steps.db) for _ in range(2)]
    assert [of_tenant] == [job.id for job in await steps.claim(foreign, 5, tenant="acme")]
    assert 1 == len((await steps.dump(["pause"]))["pause"])


async def test_a_second_pause_sets_another_end(steps: Steps) -> None:
    """X5: the later word counts, also one without an end."""
    await steps.submit_one()
    until = steps.clock.now() + timedelta(seconds=60)
    await pause_queue(steps.db, steps.lanes, DEFAULT, actor=ANN, until=until)
    await pause_queue(steps.db, steps.lanes, DEFAULT, actor=ANN)
    steps.clock.advance(61)

    assert 0 == await resume_due(steps.db)
    assert [] == await steps.claim(await steps.worker())


async def test_the_end_of_a_finished_jobs_pause_is_dropped(steps: Steps) -> None:
    """X5: a job that ended while paused leaves nothing that resumes for ever."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    until = steps.clock.now() + timedelta(seconds=5)
    await pause_job(steps.db, lease.id, tenant="default", actor=ANN, until=until)
    await steps.complete(lease)
    steps.clock.advance(5)

    await resume_due(steps.db)

    assert 0 == await resume_due(steps.db)
    assert [] == (await steps.dump(["pause"]))["pause"]


async def test_pauses_of_another_tenant_are_not_ours(steps: Steps) -> None:
    """N1: a foreign job is unknown; a queue of the same name is another queue; an unknown tenant is none."""
    foreign = await steps.submit_one(tenant="acme")
    await pause_queue(steps.db, steps.lanes, DEFAULT, actor=ANN)

    for job_id in (foreign, uuid4()):
        for act in (pause_job, resume_job):
            with pytest.raises(NotFound):
                await act(steps.db, job_id, tenant="default", actor=ANN)
    with pytest.raises(NotFound):
        await pause_tenant(steps.db, "nobody", actor=ANN)

    assert not await resume_queue(steps.db, LaneName("acme", "default"))
    assert [foreign] == [job.id for job in await steps.claim(await steps.worker(tenant="acme"), 5, tenant="acme")]


async def test_an_end_without_a_zone_is_refused(steps: Steps) -> None:
    """G8: instants carry their zone."""
    job_id = await steps.submit_one()

    with pytest.raises(InvalidInput):
        await pause_job(steps.db, job_id, tenant="default", actor=ANN, until=NO_ZONE)
    with pytest.raises(InvalidInput):
        await pause_queue(steps.db, steps.lanes, DEFAULT, actor=ANN, until=NO_ZONE)
    with pytest.raises(InvalidInput):
        await pause_tenant(steps.db, "default", actor=ANN, until=NO_ZONE)
