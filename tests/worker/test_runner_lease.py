"""Leases: what a worker does when its own is gone, and when answers are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.clock import TestClock
from tests.worker.running import Break, Gate, Plain, Work, entered, quick, until, working
from windlass.client.context import Context
from windlass.db import Database
from windlass.errors import Unavailable
from windlass.job import Outcome, State
from windlass.queue.retry import RetryPolicy


def echo(payload: Any, context: Context) -> Any:
    """Return the payload."""
    return payload


def away(*names: str) -> Break:
    """Break the calls of these names, all others are made."""

    async def breaks(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name in names:
            raise Unavailable("nobody")
        return await call()

    return breaks


def reported(work: Work) -> list[Any]:
    """Return every entry that was reported so far."""
    return [entry for report in work.link.reports for entry in report.reports]


async def test_the_lease_is_the_servers(db: Database) -> None:
    """A worker that names none takes jobs.lease_seconds of the server (V10)."""
    usual = quick(heartbeat_seconds=None)
    settings = msgspec.structs.replace(usual, jobs=msgspec.structs.replace(usual.jobs, lease_seconds=90.0))
    async with working(db, {"echo": Plain(echo)}, settings=settings) as work:
        await until(lambda: work.worker._holdings.opened is not None)

        assert 90.0 == work.worker._holdings.lease_s


@pytest.mark.parametrize("by", ["task", "worker"])
async def test_rel_b1_a_lease_not_renewed_stops_exclusive_bodies(db: Database, by: str) -> None:
    """When the lease is gone by the worker's own clock an exclusive body is stopped, and nothing is reported (L14)."""
    gate = Gate()
    tasks, settings = {"gate": Plain(gate, exclusive=by == "task")}, quick(lease_seconds=1.0, exclusive=by == "worker")
    async with working(db, tasks, settings=settings) as work:
        job = await work.submit("gate")
        await entered(gate)

        work.link.breaks = away("heartbeat")
        await until(lambda: work.worker._pools.busy_count == 0)

        assert not gate.opened.is_set()
        assert [] == reported(work)
        assert State.QUEUED is not await work.state(job)


async def test_rel_b1_a_lease_not_renewed_lets_bodies_go_on(db: Database) -> None:
    """Nobody answers for longer than a lease: the body goes on, and its end is told when somebody does (L14, Z3)."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}, settings=quick(lease_seconds=1.0)) as work:
        job = await work.submit("gate")
        await entered(gate)
        first = work.worker._holdings.opened

        work.link.breaks = away("heartbeat", "claim", "report", "register")
        await until(lambda: work.worker._holdings.lapsed)
        busy_count = work.worker._pools.busy_count
        gate.opened.set()
        await until(lambda: bool(work.link.reports))
        work.link.breaks = None

        assert 1 == busy_count
        assert "through" == await work.result(job)
        assert ([Outcome.SUCCEEDED], 1) == ([a.outcome for a in await work.attempts(job)], gate.entered_count)
        assert first is work.worker._holdings.opened


async def test_rel_d2_what_was_claimed_ahead_is_not_begun_in_doubt(db: Database) -> None:
    """A slot frees while the lease is in doubt: the job in line begins only after a server has answered (L14)."""
    gate, second = Gate(), Gate()
    second.opened.set()
    settings = quick(lease_seconds=1.0, threads=1, claim_batch=2)
    async with working(db, {"gate": Plain(gate), "second": Plain(second)}, settings=settings, carries=False) as work:
        await work.submit("gate")
        await entered(gate)
        job = await work.submit("second")
        await until(lambda: work.worker._pools.line_count == 1)
        work.worker._moved_at = float("inf")  # it is not given back

        work.link.breaks = away("heartbeat", "claim", "report", "register")
        await until(lambda: work.worker._holdings.lapsed)
        gate.opened.set()
        await until(lambda: work.worker._pools.busy_count == 0)
        await until(lambda: bool(work.link.reports))
        entered_count = second.entered_count
        work.link.breaks = None

        assert 0 == entered_count
        assert "through" == await work.result(job)
        assert 1 == len(await work.attempts(job))


async def test_a_worker_asks_for_jobs_at_once_when_a_heartbeat_is_answered(db: Database) -> None:
    """After an outage nobody sits out a back-off, of claims or of reports: here of half an hour, mostly."""
    never = quick(backoff_min_seconds=3600.0, backoff_max_seconds=3600.0, lease_seconds=86_400.0)
    async with working(db, {"echo": Plain(echo)}, settings=never, carries=False) as work:
        await until(lambda: bool(work.link.claims))
        work.link.breaks = away("heartbeat", "claim", "report")
        job = await work.submit("echo", 1)
        await until(lambda: work.worker._claims._is_unheard and work.worker._reports._is_unheard)

        work.link.breaks = None

        assert 1 == await work.result(job)
        later = await work.submit("echo", 2)
        assert 2 == await work.result(later)


async def test_rel_b1_an_end_that_is_known_is_told_though_the_lease_lapsed(db: Database) -> None:
    """The worker no longer trusts its lease, the servers still hold it: the work is not thrown away and done again."""
    async with working(db, {"echo": Plain(echo)}, settings=quick(lease_seconds=30.0)) as work:
        await until(lambda: bool(work.link.claims))
        work.link.breaks = away("heartbeat", "report")
        under_way = await work.submit("echo", 1)
        await until(lambda: bool(work.link.reports))
        waiting = await work.submit("echo", 2)
        await until(lambda: work.worker._reports.pending)
        work.worker._holdings._renewed_at = float("-inf")
        await until(lambda: work.worker._holdings.lapsed)

        work.link.breaks = None

        assert (1, 2) == (await work.result(under_way), await work.result(waiting))
        assert (1, 1) == (len(await work.attempts(under_way)), len(await work.attempts(waiting)))


async def test_an_end_is_told_under_the_session_it_was_reached_in(db: Database) -> None:
    """A session was ended before its reports were answered: they name it, and the job runs again."""
    async with working(db, {"echo": Plain(echo)}, settings=quick(lease_seconds=30.0)) as work:
        await until(lambda: bool(work.link.claims))
        first = work.worker._holdings.opened
        assert first is not None
        work.link.breaks = away("report")
        under_way = await work.submit("echo", 1)
        await until(lambda: bool(work.link.reports))
        waiting = await work.submit("echo", 2)
        await until(lambda: work.worker._reports.pending)

        await work.engine.acts.close(first.session, tenant="default", reason="removed")
        await until(lambda: work.worker._holdings.opened is not first)
        work.link.reports.clear()
        work.link.breaks = None

        assert (1, 2) == (await work.result(under_way), await work.result(waiting))
        sessions = {
            (entry.job_id, entry.fence): entry.session or request.session
            for request in work.link.reports
            for entry in request.reports
        }
        assert [first.session] * 2 == [sessions[under_way, 1], sessions[waiting, 1]]
        assert first.session not in (sessions[under_way, 2], sessions[waiting, 2])


async def test_a_repeated_report_leaves_the_next_lease_of_its_job_alone(db: Database) -> None:
    """The answer to a failure was lost and the job claimed anew: the second answer is about the first lease only."""
    gate, is_lost, may_fail = Gate(), asyncio.Event(), asyncio.Event()

    def body(payload: Any, context: Context) -> str:
        if context.attempt == 1:
            raise ValueError("first")
        return gate(payload, context)

    async def loses_one(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        answer = await call()
        if name == "report" and not is_lost.is_set():
            is_lost.set()
            await may_fail.wait()
            raise Unavailable("The answer was lost.")
        return answer

    async with working(db, {"body": Plain(body)}, settings=quick(lease_seconds=30.0), carries=False) as work:
        await until(lambda: bool(work.link.claims))
        work.link.breaks = loses_one
        job = await work.submit("body", max_attempts=3, retry=RetryPolicy(kind="fixed", base_s=0.0))
        await entered(gate)
        told = len(work.link.reports)
        may_fail.set()
        await until(lambda: len(work.link.reports) > told and work.worker._reports.idle)

        assert [(job, 2)] == work.worker._holdings.held
        beats = work.worker._keeping._held  # type: ignore[attr-defined]
        assert {(job, 2): True} == {lease: began_at is not None for lease, began_at in beats.items()}
        gate.opened.set()
        assert "through" == await work.result(job)
        assert 1 == gate.entered_count


async def test_an_ended_session_is_replaced_by_another(db: Database, clock: TestClock) -> None:
    """A session that the servers have ended: its bodies are stopped, a new one is opened, and jobs run again."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}) as work:
        job = await work.submit("gate")
        await entered(gate)
        first = work.worker._holdings.opened
        assert first is not None

        await work.engine.acts.close(first.session, tenant="default", reason="removed")
        await entered(gate)
        gate.opened.set()

        assert "through" == await work.result(job)
        second = work.worker._holdings.opened
        assert second is not None
        assert second.session != first.session
        released, succeeded = await work.attempts(job)
        assert (Outcome.RELEASED, Outcome.SUCCEEDED) == (released.outcome, succeeded.outcome)


async def test_bodies_of_an_ended_session_are_stopped_before_there_is_another(db: Database) -> None:
    """A heartbeat says that the session has ended: its bodies are stopped at once, also while none can be opened."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}) as work:
        await work.submit("gate")
        await entered(gate)
        opened = work.worker._holdings.opened
        assert opened is not None

        work.link.breaks = away("register", "claim")
        await work.engine.acts.close(opened.session, tenant="default", reason="removed")

        await until(lambda: work.worker._pools.busy_count == 0)
        assert not work.worker._holdings.lapsed
        assert [] == reported(work)


@pytest.mark.parametrize("carries", [True, False])
async def test_rel_z3_a_report_is_repeated_until_it_is_answered(db: Database, carries: bool) -> None:
    """Nobody answers, or the answer is lost after the commit: the report is said again, and recorded once."""
    lost = 0

    async def breaks(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal lost
        if name == "report" and lost < 4:
            lost += 1
            if lost % 2:
                raise Unavailable("nobody")
            await call()
            raise Unavailable("the answer was lost")
        return await call()

    async with working(db, {"echo": Plain(echo)}, carries=carries) as work:
        work.link.breaks = breaks
        job = await work.submit("echo", 1)

        assert 1 == await work.result(job)
        await until(lambda: work.worker._holdings.held_count == 0)
        assert [Outcome.SUCCEEDED] == [attempt.outcome for attempt in await work.attempts(job)]
        assert 4 == lost


async def test_a_lost_claim_answer_comes_back(db: Database, clock: TestClock) -> None:
    """Jobs whose claim answer never came are not named by the next heartbeats, and go back to the queue (L13)."""
    lost: list[Any] = []

    async def breaks(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        answer = await call()
        if name == "claim" and answer.jobs and not lost:
            lost.extend(answer.jobs)
            raise Unavailable("the answer was lost")
        return answer

    async with working(db, {"echo": Plain(echo)}) as work:
        work.link.breaks = breaks
        job = await work.submit("echo", 1)
        await until(lambda: bool(lost))

        clock.advance(16)

        assert 1 == await work.result(job)
        released, succeeded = await work.attempts(job)
        assert (Outcome.RELEASED, Outcome.SUCCEEDED) == (released.outcome, succeeded.outcome)


async def test_jobs_claimed_ahead_go_back_when_no_slot_frees(db: Database) -> None:
    """A job that waits here for a slot while none frees is given back, so that another worker may have it."""
    gate = Gate()
    tasks = {"echo": Plain(echo), "gate": Plain(gate)}
    async with working(db, tasks, settings=quick(threads=2)) as work:
        for job in await work.submit_many("echo", list(range(20))):
            await work.ended(job)
        assert 2 == work.worker._holdings.capacity.ahead

        jobs = await work.submit_many("gate", [None] * 4)
        await entered(gate)
        await entered(gate)
        await until(lambda: work.worker._pools.line_count == 2)

        async def are_back() -> bool:
            return [await work.state(job) for job in jobs[2:]] == [State.QUEUED] * 2

        await until(are_back)
        [attempt] = await work.attempts(jobs[2])
        assert (Outcome.RELEASED, "claimed ahead") == (attempt.outcome, attempt.reason)
        assert 0 == work.worker._holdings.capacity.ahead
        gate.opened.set()
        for job in jobs:
            assert "through" == await work.result(job)


async def test_a_poison_result_fails_only_its_own_job(db: Database) -> None:
    """A result beyond the limit fails its job, for good and with a clear message; its neighbours succeed."""

    def big(payload: Any, context: Context) -> Any:
        return "x" * payload

    async with working(db, {"big": Plain(big)}) as work:
        jobs = await work.submit_many("big", [1, 300_000, 2])

        poisoned = await work.ended(jobs[1])

        assert State.DEAD is poisoned.state
        [attempt] = await work.attempts(jobs[1])
        assert "result_too_large" == attempt.error_type
        assert "300002 bytes, more than 262144" in (attempt.error or "")
        assert ["x", "xx"] == [await work.result(jobs[0]), await work.result(jobs[2])]


async def test_what_a_server_refuses_fails_only_its_own_job(db: Database) -> None:
    """A result that only the server finds wrong: the entry it names fails, the others are recorded."""

    class Raw(Plain):
        def encode(self, value: Any) -> bytes:
            return b'{"no json' if value == 1 else b"null"

    async with working(db, {"raw": Raw(echo)}) as work:
        jobs = await work.submit_many("raw", [0, 1, 2])

        states = [(await work.ended(job)).state for job in jobs]

        assert [State.SUCCEEDED, State.DEAD, State.SUCCEEDED] == states
        [attempt] = await work.attempts(jobs[1])
        assert "result_refused" == attempt.error_type
