"""A server is killed after it has committed and before it answers, or at any moment: what was told holds, once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clock import TestClock
from tests.db.test_sqlite import path_of
from tests.queue.faults import server
from tests.queue.races.conftest import staged
from tests.queue.races.stage import Scene, Stage
from tests.queue.races.test_reports import say_it
from tests.queue.races.test_submits import count
from windlass.job import State
from windlass.queue import workers
from windlass.queue.report import Status
from windlass.queue.submit import submit

REPOSITORY = Path(__file__).parents[3]


@contextmanager
def serving(url: str, clock: TestClock, *what: str) -> Iterator[subprocess.Popen[str]]:
    """Run a server in a process of its own; it is killed when the block ends, if not before."""
    command = [sys.executable, "-m", server.__name__, url, clock.now().isoformat(), *what]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def killed_before_its_answer(url: str, clock: TestClock, step: str, **arguments: Any) -> None:
    """Let a server do a step and be killed when it is committed; it answers nothing."""
    with serving(url, clock, "once", step, json.dumps(arguments, default=str)) as process:
        said, _ = process.communicate()
    assert ("", -signal.SIGKILL) == (said, process.returncode)


async def test_rel_x27_submit(database_url: str, clock: TestClock) -> None:
    """A submit whose server was killed before it answered, said again by its key, is answered with the same job."""
    async with staged(database_url, clock) as stage:
        first, again = (stage.job("default", idempotency_key="key") for _ in range(2))
    killed_before_its_answer(
        database_url, clock, "submit", id=first.id, task=first.task, queue=first.queue, idempotency_key="key"
    )

    async with staged(database_url, clock) as stage:
        [told] = await submit(stage.db, stage.lanes, [again])

        assert (first.id, True, State.QUEUED) == (told.id, told.duplicate, told.state)
        assert 1 == await count(stage, "default")
        await stage.sound()


@pytest.mark.parametrize(("step", "after"), [("complete", State.SUCCEEDED), ("fail", State.SCHEDULED)])
async def test_rel_x27_report(database_url: str, clock: TestClock, step: str, after: State) -> None:
    """A report whose server was killed before it answered is recorded; said again it is told so, and counts once."""
    async with staged(database_url, clock) as stage:
        scene = await stage.leased()
    said = getattr(scene, step)()
    killed_before_its_answer(
        database_url, clock, step, job_id=scene.id, fence=said.fence, worker=said.worker, session=said.session
    )

    async with staged(database_url, clock) as stage:
        before = await stage.bytes_of(scene.id)
        told = await say_it(stage.db, said)

        assert (Status.ALREADY, after) == (told.status, told.state)
        assert before == await stage.bytes_of(scene.id)
        assert 1 == len(before["attempts"])
        await stage.sound()


@pytest.mark.parametrize("repair", ["heartbeat", "rescue"])
async def test_rel_x27_claim(database_url: str, clock: TestClock, repair: str) -> None:
    """A claim whose server was killed before it answered comes back by heartbeat or rescue; no attempt is used."""
    async with staged(database_url, clock) as stage:
        scene = await stage.scene()
        found = await stage.lanes.serving(stage.db, "default", [scene.queue], tasks=None, labels=[])
        lanes = [lane.id for lane in found]
    killed_before_its_answer(database_url, clock, "claim", lanes=lanes, session=scene.session)

    async with staged(database_url, clock) as stage:
        assert State.ASSIGNED is await stage.state(scene.id)
        await (given_back(stage, scene) if repair == "heartbeat" else rescued(stage, scene))

        job = await stage.get(scene.id)
        assert (State.QUEUED, 0, 1) == (job.state, job.attempt, job.fence)
        [lease] = await stage.claim(stage.db, scene.queue, await stage.worker("next"))
        assert (scene.id, 2, 1) == (lease.id, lease.fence, lease.attempt)
        await stage.sound()


async def given_back(stage: Stage, scene: Scene) -> None:
    """Let the worker, which holds nothing, say so when a claim can no longer be under way."""
    stage.clock.advance(workers.UNLISTED_MS / 1000)
    [answer] = await workers.heartbeat(stage.db, [workers.Beat(scene.session, [])])
    assert scene.ids == answer.released


async def rescued(stage: Stage, scene: Scene) -> None:
    """Let the worker, which got no answer either, fall silent."""
    await stage.lapse()
    assert [scene.session] == (await stage.rescue(stage.db)).sessions


def ids_said(lines: list[str]) -> list[str]:
    """Return the ids in whole lines: half a line was no answer."""
    return [word for line in lines if line.endswith("\n") and line.strip() != server.BEGINS for word in line.split()]


async def sound_with(url: str, clock: TestClock, acknowledged: list[str]) -> None:
    """Open the file of a killed server: it is whole, and every job that was told is in it, once."""
    async with staged(url, clock) as stage:
        connection = sqlite3.connect(path_of(url))
        try:
            assert [("ok",)] == connection.execute("PRAGMA integrity_check").fetchall()
            stored = [job_id for (job_id,) in connection.execute("SELECT id FROM job")]
        finally:
            connection.close()
        assert set() == set(acknowledged) - set(stored)
        # The last batch may have been committed and not told; a batch is stored whole or not at all.
        assert len(stored) - len(acknowledged) in (0, server.BATCH)
        await stage.sound()


@pytest.mark.parametrize("lines", [1, 4, 16])
async def test_rel_x27_sqlite_killed_while_it_commits(sqlite_url: str, clock: TestClock, lines: int) -> None:
    """A server killed in a row of commits loses none that it has told of."""
    url = f"sqlite:///{path_of(sqlite_url)}"
    with serving(url, clock, "store") as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        os.kill(process.pid, signal.SIGKILL)
        said += process.stdout.readlines()

    assert lines <= len(said)
    await sound_with(url, clock, ids_said(said))


@pytest.mark.parametrize("checkpoints", [1, 2, 3, 5, 8])
async def test_rel_x32_sqlite_killed_while_it_checkpoints(sqlite_url: str, clock: TestClock, checkpoints: int) -> None:
    """A server killed when it has begun to copy its log into the file loses nothing that it has told of."""
    url = f"sqlite:///{path_of(sqlite_url)}"
    with serving(url, clock, "checkpoint") as process:
        assert process.stdout is not None
        said: list[str] = []
        while said.count(f"{server.BEGINS}\n") < checkpoints:
            said.append(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        said += process.stdout.readlines()

    await sound_with(url, clock, ids_said(said))


@pytest.mark.parametrize("pages", [0, 1, 5, 12])
async def test_rel_x32_sqlite_killed_at_a_page(sqlite_url: str, clock: TestClock, pages: int) -> None:
    """A server that dies after so many pages of a checkpoint leaves file and log that are whole together."""
    url = f"sqlite:///{path_of(sqlite_url)}"
    before = path_of(url).stat().st_size
    with serving(url, clock, "checkpoint", str(pages)) as process:
        assert process.stdout is not None
        said = process.stdout.readlines()
        assert -signal.SIGKILL == process.wait()

    assert before + pages * server.PAGE_BYTES == path_of(url).stat().st_size
    assert 0 < path_of(f"{url}-wal").stat().st_size
    assert server.BATCH == len(ids_said(said))
    await sound_with(url, clock, ids_said(said))
