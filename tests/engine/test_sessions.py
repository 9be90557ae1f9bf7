"""Sessions as a server knows them: what workers completed and failed is counted, whether or not they keep a session."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.clock import TestClock
from tests.engine.test_dispatch import PATIENCE_S, asking, opened, submit
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.engine.line import Handed
from windlass.engine.outside import Outside
from windlass.engine.sessions import COUNTS_S
from windlass.queue.fleet import get_worker
from windlass.queue.report import Complete, Fail
from windlass.queue.workers import Beat, close, find_sessions


class Elapsed:
    """Elapsed seconds, which pass when the test says so."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


async def end_two(engine: Engine, worker: str, session: UUID | None = None) -> None:
    """Claim two jobs, complete one and fail the other."""
    await submit(engine, 2)
    first, second = (await engine.claim(asking(worker, session, count=2))).jobs
    await engine.report([Complete(**_lease(first, worker)), Fail(**_lease(second, worker), error="x")])


def _lease(handed: Handed, worker: str) -> dict[str, Any]:
    job = handed.job
    return {"job_id": job.id, "fence": job.fence, "session": job.session, "worker": worker, "tenant": "default"}


async def counted(engine: Engine, worker: str) -> tuple[int, int]:
    """Return what a worker is shown to have completed and failed."""
    shown = await get_worker(engine.db, "default", worker)
    return shown.completed, shown.failed


async def called(engine: Engine, elapsed: Elapsed, worker: str, expected: tuple[int, int]) -> None:
    """Let the worker call a moment later, until it is shown with these counts."""
    elapsed.s += COUNTS_S + 1
    async with asyncio.timeout(PATIENCE_S):
        await engine.seen("default", worker)
        while expected != await counted(engine, worker):  # noqa: ASYNC110 — what is waited for sets no event
            await asyncio.sleep(0)


async def test_the_counts_of_a_bare_caller_are_stored_with_a_sign_of_life_soon_after(db: Database) -> None:
    """H1: who keeps no session is counted too, a moment after it reported, and once."""
    elapsed = Elapsed()
    engine = Engine(db, Settings(), name="s", outside=Outside(monotonic=elapsed))
    async with engine.running():
        await end_two(engine, "curl")
        before = await counted(engine, "curl")

        await called(engine, elapsed, "curl", (1, 1))
        await end_two(engine, "curl")
        await called(engine, elapsed, "curl", (2, 2))

    assert (0, 0) == before


async def test_counts_that_could_not_be_stored_go_with_the_next_beat(db: Database) -> None:
    """H1: where a presence has ended meanwhile, what its caller did is counted by the next one."""
    elapsed = Elapsed()
    engine = Engine(db, Settings(), name="s", outside=Outside(monotonic=elapsed))
    async with engine.running():
        await end_two(engine, "curl")
        await engine._sessions.idle()
        await close(db, (await get_worker(db, "default", "curl")).session, tenant="default", reason="bye")
        elapsed.s += COUNTS_S + 1
        await engine.seen("default", "curl")
        await engine._sessions.idle()
        between = await counted(engine, "curl")

        await called(engine, elapsed, "curl", (1, 1))

    assert (0, 0) == between


async def test_the_counts_of_a_session_are_stored_with_its_heartbeat(engine: Engine) -> None:
    """H1: a worker need not count; also at a server that met its session in the heartbeat alone."""
    session = await opened(engine, "ann")
    await end_two(engine, "ann", session)
    engine._sessions._known.clear()

    await engine.heartbeat(Beat(session=session), worker="ann")

    assert (1, 1) == await counted(engine, "ann")


@pytest.mark.parametrize(
    ("tenant", "worker", "renewed"), [("default", "ann", True), ("other", "ann", False), ("default", "eve", False)]
)
async def test_a_report_keeps_alive_no_session_but_its_workers_own(
    engine: Engine, clock: TestClock, tenant: str, worker: str, renewed: bool
) -> None:
    """L14: who knows a session of another tenant or worker cannot renew its leases by naming it in a report."""
    session = await opened(engine, "ann")
    clock.advance(20)

    await engine.report([Complete(job_id=uuid4(), fence=1, session=session, worker=worker, tenant=tenant)])
    await engine._sessions.idle()

    found = await find_sessions(engine.db, [session])
    assert renewed == (found[session].silent_s < 15)
