"""Servers that are really stopped: SIGSTOP for longer than the lease, while another process takes over."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest

from tests.databases import opened
from tests.engine.loops_process import loops
from tests.mutants.mutant import REPOSITORY
from windlass.db import Database
from windlass.engine.duty import Duty, Ran
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import history, timers
from windlass.queue.duties import list_duties
from windlass.queue.lanes import Lanes
from windlass.queue.looks import look
from windlass.queue.newjob import NewJob
from windlass.queue.submit import submit

PATIENCE_S = 30


@asynccontextmanager
async def process(url: str, where: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a server that waits in the midst of its duty; it is killed at the end of the block."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.engine.loops_process", url, where),
        cwd=REPOSITORY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        started.kill()
        await started.communicate()


async def line_of(server: asyncio.subprocess.Process) -> str:
    """Return the next line that a server says."""
    assert server.stdout
    return (await server.stdout.readline()).decode().strip()


async def due_job(db: Database) -> UUID:
    """Store a job and return its id when it is due."""
    job_id = Ids(db.now).new()
    await submit(db, Lanes(), [NewJob(id=job_id, task="t", delay_ms=1)])
    while ((await look(db)).left_s("promote") or 0) >= 0:
        pass
    return job_id


@pytest.mark.parametrize("where", ["before", "inside"])
async def test_rel_b3_a_server_stopped_in_mid_tick_writes_nothing_when_it_goes_on(
    fresh_postgres_url: str, where: str
) -> None:
    """B3, B4, K4: another server takes the duty and skips what is locked until the idle time-out frees it."""
    promoted: list[UUID] = []
    done = asyncio.Event()

    async def run(db: Database, most: int) -> Ran:
        promoted.extend(job.id for job in await timers.promote(db))
        if promoted:
            done.set()
        return Ran(0)

    async with opened(fresh_postgres_url) as db, asyncio.timeout(PATIENCE_S):
        job_id = await due_job(db)
        async with process(fresh_postgres_url, where) as stopped:
            assert "begun" == await line_of(stopped)
            stopped.send_signal(signal.SIGSTOP)
            rival_id = uuid4()
            rival = loops(db, Duty("promote", run, 0.1), rival_id)
            running = asyncio.create_task(rival.run())
            await done.wait()

            assert stopped.stdin
            stopped.stdin.write(b"go on\n")
            stopped.send_signal(signal.SIGCONT)
            said = await line_of(stopped)

        assert said in ("DutyLost", "CancelledError")
        assert [job_id] == promoted
        assert State.QUEUED is (await history.get(db, job_id, tenant="default")).state
        [duty] = await list_duties(db)
        assert (True, rival_id) == (duty.term >= 2, duty.holder)  # a rival that was slow has taken it anew
        await rival.stop()
        await running
