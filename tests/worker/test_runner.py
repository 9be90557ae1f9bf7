"""A worker runs jobs to their end: success, failure, retry, cancel; and it survives its own errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.clock import TestClock
from tests.worker.running import PATIENCE_S, Gate, Plain, entered, quick, until, working
from windlass.client.context import Context
from windlass.db import Database
from windlass.errors import Conflict, Unavailable
from windlass.job import Outcome, State
from windlass.queue.retry import PRESETS


def add(payload: Any, context: Context) -> int:
    """Add x and y."""
    total: int = payload["x"] + payload["y"]
    return total


async def later(payload: Any, context: Context) -> str:
    """Return in the next turn of the loop."""
    await asyncio.sleep(0)
    return context.run_id


def boom(payload: Any, context: Context) -> None:
    """Fail."""
    raise ValueError("boom")


@pytest.mark.parametrize("carries", [True, False])
async def test_jobs_run_to_success(db: Database, carries: bool) -> None:
    """Functions and coroutines: each job runs once, and its result is recorded."""
    async with working(db, {"add": Plain(add), "later": Plain(later)}, carries=carries) as work:
        sums = await work.submit_many("add", [{"x": n, "y": 1} for n in range(30)])
        late = await work.submit("later")

        results = [await work.result(job) for job in sums]

        assert list(range(1, 31)) == results
        assert f"{late}.1" == await work.result(late)
        assert [Outcome.SUCCEEDED] == [attempt.outcome for attempt in await work.attempts(sums[0])]


async def test_a_failure_is_reported_and_retried(db: Database, clock: TestClock) -> None:
    """An exception fails the attempt, with its type and message; the job runs again when it is due."""
    tries = []

    def flaky(payload: Any, context: Context) -> str:
        tries.append(context.attempt)
        if context.attempt == 1:
            raise ValueError("not yet")
        return "at last"

    async with working(db, {"flaky": Plain(flaky)}) as work:
        job = await work.submit("flaky", retry=PRESETS["immediate"])

        assert "at last" == await work.result(job)

        failed, succeeded = await work.attempts(job)
        assert [1, 2] == tries
        assert (Outcome.FAILED, "ValueError", "not yet") == (failed.outcome, failed.error_type, failed.error)
        assert Outcome.SUCCEEDED is succeeded.outcome


async def test_out_of_attempts_a_job_is_dead(db: Database) -> None:
    """The last failure ends the job."""
    async with working(db, {"boom": Plain(boom)}) as work:
        job = await work.submit("boom", max_attempts=1)

        assert State.DEAD is (await work.ended(job)).state


async def test_a_cancelled_job_is_stopped(db: Database) -> None:
    """A cancel reaches the running body by the claim that waits, and the worker confirms it."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}) as work:
        job = await work.submit("gate")
        await entered(gate)

        await work.cancel(job)

        assert State.CANCELLED is (await work.ended(job)).state
        [attempt] = await work.attempts(job)
        assert Outcome.CANCELLED is attempt.outcome


async def test_a_cancel_comes_with_a_heartbeat(db: Database) -> None:
    """Where no claim waits, because there is no room, the next heartbeat brings the cancel."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}, settings=quick(threads=1)) as work:
        job = await work.submit("gate")
        await entered(gate)

        await work.cancel(job)

        assert State.CANCELLED is (await work.ended(job)).state


async def test_an_unknown_task_is_not_claimed(db: Database) -> None:
    """Claims name the tasks of the worker: a job of another stays queued and untouched."""
    async with working(db, {"add": Plain(add)}) as work:
        foreign = await work.submit("elsewhere")
        ours = await work.submit("add", {"x": 1, "y": 1})

        assert 2 == await work.result(ours)

        assert State.QUEUED is await work.state(foreign)
        assert [] == await work.attempts(foreign)
        assert all(("add",) == claim.tasks for claim in work.link.claims)


@pytest.mark.parametrize("error", [Unavailable("nobody"), Conflict("odd"), ZeroDivisionError("a fault of ours")])
async def test_a_loop_error_is_survived(db: Database, error: Exception) -> None:
    """Whatever a claim meets is followed by a pause and another claim; the worker does not end (W4)."""
    failures = 3

    async def breaks(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal failures
        if name == "claim" and failures:
            failures -= 1
            raise error
        return await call()

    async with working(db, {"add": Plain(add)}) as work:
        work.link.breaks = breaks
        await until(lambda: failures == 0)
        job = await work.submit("add", {"x": 1, "y": 1})

        assert 2 == await work.result(job)
        assert not work.running.done()


@pytest.mark.parametrize("part", ["claims", "reports", "tending", "hearing"])
async def test_rel_k18_a_dead_loop_begins_again(db: Database, part: str) -> None:
    """Each loop of a worker may die while the others live: it is begun again, and jobs run."""
    async with working(db, {"add": Plain(add)}) as work:
        assert 2 == await work.result(await work.submit("add", {"x": 1, "y": 1}))

        [loop] = [task for task in asyncio.all_tasks() if task.get_name() == part]
        loop.cancel()
        await asyncio.wait([loop], timeout=PATIENCE_S)

        assert 3 == await work.result(await work.submit("add", {"x": 1, "y": 2}))


async def test_rel_k18_a_report_survives_the_death_of_its_loop(db: Database) -> None:
    """The loop dies while a report is under way: it is told by the next one."""
    under_way = asyncio.Event()

    async def breaks(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name == "report" and not under_way.is_set():
            under_way.set()
            await asyncio.Event().wait()
        return await call()

    async with working(db, {"add": Plain(add)}) as work:
        work.link.breaks = breaks
        job = await work.submit("add", {"x": 1, "y": 1})
        await under_way.wait()

        [loop] = [task for task in asyncio.all_tasks() if task.get_name() == "reports"]
        loop.cancel()

        assert 2 == await work.result(job)


async def test_a_worker_that_cannot_register_does_not_start(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while without an answer the error ends the worker (W3)."""
    monkeypatch.setattr("windlass.worker.keeping.REGISTER_S", 0.0)

    async def breaks(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        raise Unavailable("nobody")

    async with working(db, {"add": Plain(add)}) as work:
        work.link.breaks = breaks

        with pytest.raises(Unavailable, match="nobody"):
            await work.left()


async def test_claims_stay_within_capacity(db: Database) -> None:
    """No more is held than slots, and as many again for short jobs."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}, settings=quick(threads=3)) as work:
        jobs = await work.submit_many("gate", [None] * 10)
        for _ in range(3):
            await entered(gate)

        states = [await work.state(job) for job in jobs]

        assert 3 == sum(state is not State.QUEUED for state in states)
        gate.opened.set()
        for job in jobs:
            assert "through" == await work.result(job)


async def test_under_load_reports_carry_the_claims(db: Database) -> None:
    """Many short jobs: the next ones come with the answers, and few claims are asked for alone."""
    async with working(db, {"add": Plain(add)}, settings=quick(threads=20)) as work:
        await until(lambda: bool(work.link.claims))
        jobs = await work.submit_many("add", [{"x": n, "y": 0} for n in range(500)])

        results = [await work.result(job) for job in jobs]

        assert list(range(500)) == results
        carried = [report.claim.count for report in work.link.reports if report.claim is not None]
        assert 40 >= max(carried)
        assert 250 <= sum(len(report.reports) for report in work.link.reports if report.claim is not None)
        assert len(carried) > len(work.link.claims)


async def test_a_claim_loop_that_stands_still_is_not_told_as_alive(db: Database) -> None:
    """With room and nothing under way for longer than any pause, the keeper hears no tick (K18)."""
    async with working(db, {"echo": Plain(lambda payload, context: payload)}) as work:
        await until(lambda: bool(work.link.claims))
        claims, worker = work.worker._claims, work.worker
        still_at = claims._advanced_at + 1000.0

        in_time = claims.advances(claims._advanced_at)
        with_room = claims.advances(still_at)
        worker._holdings.claims_closed = True
        without = claims.advances(still_at)
        worker._holdings.claims_closed = False

        assert (True, False, True) == (in_time, with_room, without)
