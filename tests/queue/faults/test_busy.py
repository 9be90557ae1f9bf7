"""Another program keeps the SQLite file locked: steps wait, then give up and leave nothing, and later go on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from tests.clock import TestClock
from tests.db.test_sqlite import path_of
from tests.queue.steps import Steps
from windlass.db import open_database
from windlass.db.open import Role
from windlass.errors import Contention
from windlass.job import State
from windlass.queue import rescue, timers
from windlass.queue.check import check
from windlass.queue.claim import Claimed

# Has the file locked for writing until it is told to let go, as a program does that shares it.
HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE tenant SET name = 'never committed'")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@contextmanager
def locked(url: str) -> Iterator[subprocess.Popen[str]]:
    """Let another process write to the file, without an end, for a block; `communicate` lets it go before."""
    command = [sys.executable, "-c", HOLDER, str(path_of(url))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "held\n" == process.stdout.readline()
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def opened(url: str, clock: TestClock, *, role: Role = "server") -> AsyncIterator[Steps]:
    """Open the file for a block; afterwards every invariant must hold."""
    db = await open_database(url, clock=clock, role=role)
    try:
        yield Steps(db, clock)
        assert [] == await check(db)
    finally:
        await db.close()


Step = Callable[[Steps, Any, Claimed], Awaitable[object]]
STEPS: dict[str, Step] = {
    "submit": lambda steps, ann, lease: steps.submit_one(idempotency_key="key"),
    "submit into a new lane": lambda steps, ann, lease: steps.submit_one(queue="new"),
    "claim": lambda steps, ann, lease: steps.claim(ann),
    "heartbeat": lambda steps, ann, lease: steps.beat(ann, lease, started=True),
    "complete": lambda steps, ann, lease: steps.complete(lease),
    "fail": lambda steps, ann, lease: steps.fail(lease),
    "promote": lambda steps, ann, lease: timers.promote(steps.db),
    "rescue": lambda steps, ann, lease: rescue.rescue(steps.db, chance=lambda: 0.0),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
async def test_rel_g1_busy_file(sqlite_url: str, clock: TestClock, step: Step) -> None:
    """A step on a file that another keeps is Contention and changes nothing; reads go on; later it is done, once."""
    async with opened(sqlite_url, clock) as steps:
        ann = await steps.worker(lease_s=600)
        lease = await steps.lease(ann)
        await steps.submit_one(delay_ms=1)
        await steps.submit_one()
        clock.advance(minutes=1)
        before = await steps.dump()
        await steps.db.maintain("PRAGMA busy_timeout=1")
        with locked(sqlite_url) as holder:
            for _ in range(2):
                with pytest.raises(Contention, match=r"busy.*Running it again is safe"):
                    await step(steps, ann, lease)
            assert before == await steps.dump()
            assert State.ASSIGNED is await steps.state_of(lease.id)
            holder.kill()
            holder.wait()

            await step(steps, ann, lease)

        assert before != await steps.dump()


async def test_rel_g1_busy_for_a_moment(sqlite_url: str, clock: TestClock) -> None:
    """A program that writes for a moment costs a wait and no error."""
    async with opened(sqlite_url, clock) as steps:
        with locked(sqlite_url) as holder:
            calls = [asyncio.create_task(steps.submit_one()) for _ in range(5)]
            await steps.dump()
            assert not any(call.done() for call in calls)
            await asyncio.to_thread(holder.communicate, "let go\n")

            assert 5 == len(set(await asyncio.gather(*calls)))


async def test_rel_g1_busy_server(sqlite_url: str, clock: TestClock) -> None:
    """A program beside the server that finds it writing is told so, stores nothing, and may say it again."""
    async with opened(sqlite_url, clock) as server, opened(sqlite_url, clock, role="client") as client:
        await client.submit_one()
        await client.db.maintain("PRAGMA busy_timeout=1")
        job = client.job()
        async with server.db.transaction():
            with pytest.raises(Contention, match="Running it again is safe"):
                await client.submit(job)

        assert job.id == (await client.submit(job))[0].id
        assert State.QUEUED is await server.state_of(job.id)
