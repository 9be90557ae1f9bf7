"""Explain: why a job that waits is not running, for one job by its id and for lists in one look."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.queue.steps import ANN, Steps, at_once, job_in
from windlass.errors import InvalidInput
from windlass.queue import history
from windlass.queue.control import pause_job, pause_queue, pause_tenant
from windlass.queue.explain import Stuck, reasons, stuck_lanes
from windlass.queue.lanes import LaneName
from windlass.queue.workers import drain


async def codes(steps: Steps, job_id: UUID) -> list[str]:
    """Return the codes of why a job waits."""
    job = await history.get(steps.db, job_id, tenant="default")
    return [reason.code for reason in await reasons(steps.db, job, give_way=at_once)]


async def detail(steps: Steps, job_id: UUID) -> str:
    """Return the one sentence that says why a job waits."""
    job = await history.get(steps.db, job_id, tenant="default")
    [reason] = await reasons(steps.db, job, give_way=at_once)
    return reason.detail


async def test_nothing_runs_at_all(steps: Steps) -> None:
    """Neither a server nor a worker: the first thing to be said."""
    job = await steps.submit_one()

    assert ["no_server"] == await codes(steps, job)
    assert "windlass up" in await detail(steps, job)


@pytest.mark.parametrize(
    ("worker", "code", "told"),
    [
        ({"queues": "other", "tasks": "mail"}, "no_worker_for_queue", "queue default"),
        ({"queues": "default", "tasks": "post,bill"}, "no_worker_for_task", "task mail"),
        ({"queues": "default", "tasks": "mail", "labels": "big"}, "no_worker_for_labels", "gpu"),
    ],
)
async def test_what_no_worker_serves_is_named(steps: Steps, worker: Any, code: str, told: str) -> None:
    """L17: queue, task or label, whichever is missing first among live workers."""
    await steps.worker(**worker)
    job = await steps.submit_one(labels=("gpu",))

    assert [code] == await codes(steps, job)
    assert told in await detail(steps, job)


@pytest.mark.parametrize(
    "worker",
    [
        {"queues": "other,default", "tasks": "bill,mail", "labels": "big,gpu"},
        {"queues": None, "tasks": None},  # a worker that does not say what it serves may serve it
    ],
)
async def test_a_job_that_a_worker_can_run_waits_for_its_turn(steps: Steps, worker: Any) -> None:
    """Then it is a matter of threads."""
    await steps.worker(capacity=4, **worker)
    job = await steps.submit_one(labels=("gpu",))

    assert ["turn"] == await codes(steps, job)
    assert "4" in await detail(steps, job)


async def test_workers_that_claim_no_more_do_not_count(steps: Steps) -> None:
    """One drains, one was not heard for its lease, one is another tenant's: nobody is there."""
    ann = await steps.worker("ann", tasks="mail")
    await drain(steps.db, tenant="default", worker=ann.name)
    await steps.worker("bob", tasks="mail")
    steps.clock.advance(31)
    await steps.worker("eve", tasks="mail", tenant="acme")

    assert ["no_server"] == await codes(steps, await steps.submit_one())


async def test_pauses_are_told_with_who_why_and_until_when(steps: Steps) -> None:
    """X9: the job's own, its queue's, its tenant's, all there are; then what comes after."""
    await steps.worker(tasks="mail")
    job = await steps.submit_one()
    until = steps.clock.now().replace(year=2099)
    await pause_tenant(steps.db, "default", actor=ANN)
    await pause_queue(steps.db, steps.lanes, LaneName("default", "default"), actor=ANN, until=until)
    await pause_job(steps.db, job, tenant="default", actor=ANN)

    found = await reasons(steps.db, await history.get(steps.db, job, tenant="default"), give_way=at_once)

    assert ["paused_job", "paused_queue", "paused_tenant"] == [reason.code for reason in found]
    assert all("by ann: she said so" in reason.detail for reason in found)
    assert "until 2099-" in found[1].detail


async def test_a_job_that_is_not_due_says_when(steps: Steps) -> None:
    """With the time; past it, that no server has made it ready."""
    due = steps.clock.now().replace(microsecond=0) + timedelta(hours=1)
    job = await steps.submit_one(run_at=due)

    assert ["not_due"] == await codes(steps, job)
    assert f"{due:%Y-%m-%dT%H:%M:%SZ}" in await detail(steps, job)
    steps.clock.advance(3601)
    assert ["not_promoted", "no_server"] == await codes(steps, job)


async def test_what_does_not_wait_has_no_reason(steps: Steps) -> None:
    """Leased, ended."""
    ann = await steps.worker()
    lease = await steps.lease(ann)
    assert [] == await codes(steps, lease.id)

    await steps.complete(lease)
    assert [] == await codes(steps, lease.id)


async def test_lanes_that_nobody_serves_are_found_in_one_look(steps: Steps) -> None:
    """For lists: tasks with ready jobs that are paused, or that no live worker serves; nothing else."""
    await steps.worker(queues="default,shut", tasks="mail,post")
    for task, queue in (("mail", "default"), ("typo", "default"), ("post", "shut"), ("mail", "lone")):
        await steps.submit_one(task, queue=queue)
    await pause_queue(steps.db, steps.lanes, LaneName("default", "shut"), actor=ANN)

    found = await stuck_lanes(steps.db, "default", give_way=at_once)

    assert [
        ("default", "typo", "no_worker_for_task"),
        ("lone", "mail", "no_worker_for_queue"),
        ("shut", "post", "paused_queue"),
    ] == [(lane.queue, lane.task, lane.reason.code) for lane in found.lanes]
    assert found.complete
    assert Stuck([], complete=True) == await stuck_lanes(steps.db, "acme", give_way=at_once)


async def test_jobs_are_found_by_the_end_of_their_id(steps: Steps) -> None:
    """Waiting, timed, ended and dead ones; of the tenant only, and among the newest."""
    ann = await steps.worker()
    done = await steps.lease(ann)
    await steps.complete(done)
    ids = [
        done.id,
        await job_in(steps, "dead"),
        await steps.submit_one(),
        await steps.submit_one(run_at=steps.clock.now().replace(year=2099)),
    ]
    foreign = await steps.submit_one(tenant="acme")

    for job_id in ids:
        assert [job_id] == await history.ending_in(steps.db, str(job_id)[-9:], tenant="default")
    assert [] == await history.ending_in(steps.db, str(foreign)[-9:], tenant="default")
    assert [] == await history.ending_in(steps.db, str(ids[2])[-9:], tenant="default", examined=0)
    with pytest.raises(InvalidInput, match="%"):
        await history.ending_in(steps.db, "%%%%", tenant="default")
