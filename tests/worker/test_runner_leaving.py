"""A worker leaves: it drains, gives back what it cannot finish, and is replaced after many jobs or much memory."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from tests.worker.running import Gate, Plain, entered, quick, until, working
from windlass.client.context import Context, Stopped
from windlass.db import Database
from windlass.job import Outcome, State
from windlass.queue import fleet, history


def echo(payload: Any, context: Context) -> Any:
    """Return the payload."""
    return payload


async def test_a_job_that_is_given_to_the_pool_is_told(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """O17: the job, its attempt, the worker and the tenant."""
    caplog.set_level("DEBUG", logger="windlass")
    async with working(db, {"echo": Plain(echo)}) as work:
        job = await work.submit("echo")
        await until(lambda: "job.pooled" in caplog.text)

        [worker] = (await fleet.list_workers(work.engine.db, "default")).workers
        [line] = [record.getMessage() for record in caplog.records if "job.pooled" in record.getMessage()]
        assert f"job.pooled job={job} task=echo tenant=default attempt=1 worker={worker.worker}" == line


async def test_a_drain_finishes_what_runs(db: Database) -> None:
    """A draining worker claims no more, waits for its bodies, reports them and leaves; its session is closed."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}) as work:
        running = await work.submit("gate")
        await entered(gate)

        work.worker.drain("drained", within_s=60)
        waiting = await work.submit("gate")
        gate.opened.set()

        assert "drained" == (await work.left()).reason
        assert State.SUCCEEDED is await work.state(running)
        assert State.QUEUED is await work.state(waiting)
        [worker] = (await fleet.list_workers(work.engine.db, "default")).workers
        assert fleet.Status.STOPPED is worker.status


async def test_a_drain_releases_the_rest_without_an_attempt(db: Database) -> None:
    """What is not done in time is stopped and given back: released, with the reason, and no attempt is used (W10)."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}) as work:
        job = await work.submit("gate", max_attempts=1)
        await entered(gate)

        work.worker.drain("Spot termination", within_s=0)

        leaving = await work.left()
        assert ("Spot termination", 1) == (leaving.reason, leaving.given_back_count)
        assert State.QUEUED is await work.state(job)
        [attempt] = await work.attempts(job)
        assert (Outcome.RELEASED, "Spot termination") == (attempt.outcome, attempt.reason)
        assert 0 == await attempts_used(work.engine.db, job)


async def attempts_used(db: Database, job: UUID) -> int:
    """Return how many attempts count against the limit of a job that waits."""
    return (await history.get(db, job, tenant="default")).attempt


async def test_a_second_word_hastens_the_drain(db: Database) -> None:
    """A worker that drains for long is told to stop now: the sooner end counts, a later one does not."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}) as work:
        job = await work.submit("gate")
        await entered(gate)

        work.worker.drain("drained", within_s=300)
        work.worker.drain("drained", within_s=0)
        work.worker.drain("drained", within_s=300)

        await work.left()
        assert State.QUEUED is await work.state(job)


async def test_a_drain_gives_the_line_back_at_once(db: Database) -> None:
    """Jobs that wait for a slot go back when the drain begins, not when it ends."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}, settings=quick(threads=1, claim_batch=3)) as work:
        jobs = await work.submit_many("gate", [None] * 3)
        await entered(gate)
        await until(lambda: work.worker._pools.line_count == 2)

        work.worker.drain("drained", within_s=300)

        async def are_back() -> bool:
            return [await work.state(job) for job in jobs[1:]] == [State.QUEUED] * 2

        await until(are_back)
        [attempt] = await work.attempts(jobs[1])
        assert (Outcome.RELEASED, "drained") == (attempt.outcome, attempt.reason)
        assert not work.running.done()


async def test_a_body_that_cannot_be_stopped_does_not_keep_its_worker(db: Database) -> None:
    """A body that swallows every exception is given up, and the worker leaves all the same."""
    running, over = threading.Event(), threading.Event()

    def stubborn(payload: Any, context: Context) -> None:
        running.set()
        while not over.is_set():
            try:
                over.wait(0.01)
            except Stopped:
                continue

    async with working(db, {"stubborn": Plain(stubborn)}) as work:
        job = await work.submit("stubborn")
        await asyncio.to_thread(running.wait)

        work.worker.drain("drained", within_s=0)

        try:
            await work.left()
            [attempt] = await work.attempts(job)
            assert Outcome.RELEASED is attempt.outcome
        finally:
            over.set()


async def test_a_worker_is_replaced_after_so_many_jobs(db: Database) -> None:
    """With `max_jobs` a worker runs no more than so many, and leaves to be replaced; the others stay queued."""
    async with working(db, {"echo": Plain(echo)}, settings=quick(max_jobs=5)) as work:
        jobs = await work.submit_many("echo", list(range(12)))

        leaving = await work.left()

        assert leaving.replace
        states = [await work.state(job) for job in jobs]
        assert (5, 7) == (states.count(State.SUCCEEDED), states.count(State.QUEUED))


async def test_a_worker_is_replaced_above_its_memory(db: Database) -> None:
    """Above `max_memory_mb` a worker finishes what it has and leaves to be replaced."""
    async with working(db, {"echo": Plain(echo)}, settings=quick(max_memory_mb=1)) as work:
        leaving = await work.left()

        assert leaving.replace
        assert "MB" in leaving.reason


async def test_a_worker_with_a_zombie_is_replaced(db: Database) -> None:
    """A body that could not be stopped: no more is claimed, the others are finished, and another takes its place."""
    gate, running, over = Gate(), threading.Event(), threading.Event()

    def stubborn(payload: Any, context: Context) -> None:
        running.set()
        while not over.is_set():
            try:
                over.wait(0.01)
            except Stopped:
                continue

    settings = quick(cancel_grace_seconds=0.0)
    async with working(db, {"stubborn": Plain(stubborn), "gate": Plain(gate)}, settings=settings) as work:
        other = await work.submit("gate")
        await entered(gate)
        stuck = await work.submit("stubborn")
        await asyncio.to_thread(running.wait)

        await work.cancel(stuck)

        assert State.CANCELLED is (await work.ended(stuck)).state
        await until(lambda: work.worker._departure is not None)
        gate.opened.set()
        try:
            assert (await work.left()).replace
            assert State.SUCCEEDED is await work.state(other)
        finally:
            over.set()


async def test_an_operator_drains_a_worker(db: Database) -> None:
    """A drain by the API comes with the next heartbeat."""
    async with working(db, {"echo": Plain(echo)}) as work:
        assert 1 == await work.result(await work.submit("echo", 1))
        [worker] = (await fleet.list_workers(work.engine.db, "default")).workers

        await work.engine.acts.drain(tenant="default", worker=worker.worker)

        assert "drained" == (await work.left()).reason


async def test_a_job_handed_out_while_draining_goes_back(db: Database) -> None:
    """The answer to a claim may come when the worker has just begun to drain: its jobs are given back, not lost."""
    arrived = asyncio.Event()

    async def breaks(name: str, call: Any) -> Any:
        answer = await call()
        if name == "claim" and answer.jobs:
            arrived.set()
            with suppress(asyncio.CancelledError):  # it comes too late for an answer that is there
                await asyncio.Event().wait()
            # Long enough for a worker that would not wait for it to be gone.
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await asyncio.Event().wait()
        return answer

    async with working(db, {"echo": Plain(echo)}) as work:
        work.link.breaks = breaks
        job = await work.submit("echo")
        await arrived.wait()

        work.worker.drain("drained", within_s=300)

        await work.left()
        [attempt] = await work.attempts(job)
        assert (Outcome.RELEASED, "drained") == (attempt.outcome, attempt.reason)
