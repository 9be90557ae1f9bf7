"""One SQLite file and several processes, crashes and clocks."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from tests.clock import START, TestClock
from tests.queue.races.conftest import staged
from tests.queue.races.stage import PATIENCE_S, Stage
from tests.queue.races.test_reports import say_it
from windlass.db import open_database
from windlass.errors import DatabaseLocked, SetupError
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import claim as claims
from windlass.queue import timers
from windlass.queue.check import check
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.report import Status
from windlass.queue.submit import submit

# Opens the file in the server's role, submits jobs for ever, and says after each commit how many there are.
SERVER = """
import asyncio, sys
from windlass.db import open_database
from windlass.ids import Ids
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.submit import submit

async def main():
    db = await open_database(sys.argv[1])
    ids, lanes, stored = Ids(db.now), Lanes(), 0
    while True:
        await submit(db, lanes, [NewJob(id=ids.new(), task="task") for _ in range(20)])
        stored += 20
        print(stored, flush=True)

asyncio.run(main())
"""


@contextmanager
def serving(url: str) -> Iterator[subprocess.Popen[str]]:
    """Run a second process in the server's role; it has stored its first jobs when the block begins."""
    command = [sys.executable, "-c", SERVER, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == 20
            yield process
        finally:
            process.kill()


async def test_rel_x32_second_server_is_refused(sqlite_url: str) -> None:
    """A second process in the server's role is refused with a message that names the first."""
    with serving(sqlite_url) as process, pytest.raises(DatabaseLocked, match=f"process {process.pid}"):
        await open_database(sqlite_url)


async def test_rel_x32_client_beside_a_server(sqlite_url: str) -> None:
    """A program beside the server submits and reads under SQLite's own locks, and may not claim."""
    with serving(sqlite_url):
        client = await open_database(sqlite_url, role="client")
        try:
            job = NewJob(id=Ids(client.now).new(), task="task", queue="of-client")
            async with asyncio.timeout(PATIENCE_S):
                [told] = await submit(client, Lanes(), [job])
            lane = (await Lanes().resolve(client, [job.lane]))[job.lane]
            with pytest.raises(SetupError, match="may not claim"):
                await claims.claim(client, [claims.Group([claims.Want(lane.id)], [job.id])])
            with pytest.raises(SetupError, match="may not claim"):
                await claims.claim_back(client, [(job.id, 1)], session=job.id, tenant="default")
            assert told.state is State.QUEUED
        finally:
            await client.close()


async def test_rel_x32_killed_server_gives_the_role_back(sqlite_url: str) -> None:
    """After kill -9 of a server the next one opens the file at once, and has every job that was acknowledged."""
    with serving(sqlite_url) as process:
        process.send_signal(signal.SIGKILL)
        assert process.stdout is not None
        acknowledged = max([20, *(int(line) for line in process.stdout if line.endswith("\n"))])
        process.wait()

    db = await open_database(sqlite_url)
    try:
        path = sqlite_url.removeprefix("sqlite:///").partition("?")[0]
        with sqlite3.connect(path) as connection:
            [(stored,)] = connection.execute("SELECT count(*) FROM job")
        connection.close()
        # The last batch may have been committed and not told.
        assert acknowledged <= stored <= acknowledged + 20
        assert [] == await check(db)
    finally:
        await db.close()


async def test_rel_k10_clock_set_back(sqlite_stage: Stage) -> None:
    """With the clock set back an hour nothing is due again, no lease is shorter, and times still rise."""
    stage = sqlite_stage
    scene = await stage.scene(delay_ms=1000)
    stage.clock.advance(2)
    assert 1 == len(await timers.promote(stage.db))
    before = stage.clock.now()
    stage.clock.advance(hours=-1)

    [lease] = await stage.claim(stage.db, scene.queue, scene.session)
    session = await stage.session_row(await stage.worker("late"))

    assert lease.claimed_at >= before
    assert session["expires_at"] > before
    assert [] == await timers.promote(stage.db)
    assert [] == (await stage.rescue(stage.db)).sessions
    held = type(scene)(scene.queue, scene.worker, scene.session, scene.ids, [lease])
    assert (await say_it(stage.db, held.complete())).status is Status.APPLIED
    await stage.sound()


async def test_rel_k10_clock_set_back_over_a_restart(sqlite_url: str) -> None:
    """A server restarted with its clock set back goes on above every instant that was written before."""
    async with staged(sqlite_url, TestClock()) as stage:
        scene = await stage.scene()
        stage.clock.advance(hours=1)
        [lease] = await stage.claim(stage.db, scene.queue, scene.session)

    async with staged(sqlite_url, TestClock(START - timedelta(hours=5))) as later:
        held = type(scene)(scene.queue, scene.worker, scene.session, scene.ids, [lease])
        assert (await say_it(later.db, held.complete())).status is Status.APPLIED
        job = await later.get(scene.id)
        await later.sound()

    assert job.finished_at is not None
    assert job.finished_at >= lease.claimed_at
