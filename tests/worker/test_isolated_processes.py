"""Isolated processes: they obey their worker alone, block nobody, and pass nothing on from one body to the next."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from tests.rules.source import REPOSITORY
from tests.worker.poolsrig import PATIENCE_S, FunctionTask, Rig, claimed, failed
from tests.worker.test_isolation import TARGET, begun, cells, result
from windlass.client.context import Context
from windlass.config import Settings
from windlass.config.redact import Redactor
from windlass.config.settings import Worker
from windlass.wire import work as wire
from windlass.worker import cellprocess
from windlass.worker.attempt import Attempt
from windlass.worker.cellprocess import CellProcess
from windlass.worker.child import start_runner
from windlass.worker.frames import Opened, Ready
from windlass.worker.trail import Rules, Trail


def waiting(path: Path) -> wire.ClaimedJob:
    """Return a job that waits for a file."""
    return claimed("waits_for", payload=msgspec.json.encode({"path": str(path)}))


async def started(rig: Rig) -> CellProcess:
    """Return the only process, as soon as there is one."""
    await rig.until(lambda: rig.pools._isolated._all)
    [cell] = rig.pools._isolated._all
    return cell


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_that_the_worker_did_not_send_is_not_obeyed(tmp_path: Path, number: signal.Signals) -> None:
    """A platform signals every process of a unit; the worker then drains, and the body has its time."""
    async with cells(threads=1) as rig:
        job = waiting(tmp_path / "go")
        rig.start(job)
        await begun(rig, job)
        pid = int(rig.texts(job)[0])

        os.kill(pid, number)
        (tmp_path / "go").touch()

        assert pid == result(await rig.end(job))


async def test_a_signal_before_the_process_is_up_does_not_end_it(tmp_path: Path) -> None:
    """It waits until the process can hear it."""
    async with cells(threads=1) as rig:
        job = waiting(tmp_path / "go")
        rig.start(job)
        pid = (await started(rig)).pid

        os.kill(pid, signal.SIGTERM)
        (tmp_path / "go").touch()

        assert pid == result(await rig.end(job))


async def test_a_process_that_reads_nothing_holds_nobody_up(tmp_path: Path) -> None:
    """Who presses it is the loop of the worker: it never waits for room in the socket."""
    async with cells(Worker(cancel_grace_seconds=0.1, kill_seconds=0.1), threads=1, abandon_s=30.0) as rig:
        job = waiting(tmp_path / "go")
        rig.start(job)
        await begun(rig, job)
        cell = await started(rig)
        os.kill(cell.pid, signal.SIGSTOP)
        attempt = cell.attempt
        assert attempt is not None

        for _ in range(5_000):
            cell.press(attempt, "flag")

        rig.pools.stop((job.id, job.fence), "cancel")
        assert {"stopped_by": "sigkill"} == failed(await rig.end(job)).metrics


async def test_a_process_that_does_not_read_its_job_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload that finds no room is waited for by the thread of its body, not for ever."""
    async with cells(threads=1) as rig:
        result(await rig.run(claimed("about")))
        os.kill((await started(rig)).pid, signal.SIGSTOP)
        monkeypatch.setattr(cellprocess, "START_S", 0.5)

        entry = failed(await rig.run(claimed("about", payload=b'"%s"' % (b"x" * 10_000_000))))

    assert ("ProcessDied", True) == (entry.error_type, entry.retryable)
    assert "read nothing" in entry.error_message


async def test_a_process_that_is_not_up_in_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that hangs when it is imported must not hold a slot for ever."""
    (tmp_path / "hangs.py").write_text("import threading; threading.Event().wait()")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY / "src"), str(tmp_path)]))
    monkeypatch.setattr(cellprocess, "START_S", 0.2)
    async with cells(threads=1, app_target="hangs:app") as rig:
        entry = failed(await rig.run(claimed("about")))

    assert ("ProcessNotStarted", True) == (entry.error_type, entry.retryable)
    assert "not ready after 0 s" in entry.error_message


def test_the_start_of_a_process_is_no_part_of_the_time_of_its_body() -> None:
    """The limit runs from when the body is given to the process."""
    now = [100.0]
    fresh: deque[Trail] = deque()
    rules = Rules(cap_bytes=100, redactor=Redactor())
    attempt = Attempt(
        claimed("slow", timeout_s=10),
        FunctionTask(slow, "process"),
        kind="process",
        rules=rules,
        fresh=fresh,
        clock=lambda: now[0],
    )

    assert 110.0 == attempt.begin(100.0)
    assert (None, 135.0) == (attempt.due_at, attempt.look_at(125.0))

    now[0] = 128.0
    attempt.restart()

    assert (138.0, 138.0) == (attempt.due_at, attempt.look_at(129.0))


def slow(context: Context) -> None:
    """Have a name."""


@pytest.fixture
def hiding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with files that are called like modules of the library."""
    for name in ("queue.py", "calendar.py"):
        (tmp_path / name).write_text("raise RuntimeError('not the library')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("hiding")
async def test_a_file_where_one_works_does_not_hide_the_library_from_a_process() -> None:
    """An isolated process finds Python's own queue."""
    async with cells(threads=1) as rig:
        assert 1 == result(await rig.run(claimed("about", payload=b'{"x":1}')))["x"]


@pytest.mark.usefixtures("hiding")
async def test_a_file_where_one_works_does_not_hide_the_library_from_a_runner() -> None:
    """It comes up."""
    child = await start_runner(Settings(), TARGET)
    child.send(Opened("ann", uuid4(), 30.0, 0.0))
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert isinstance(await anext(aiter(child.frames())), Ready)
    finally:
        child.kill()
        await child.ended()
        child.let_go()


@pytest.mark.parametrize("what", ["thread", "child"])
async def test_rel_f17_a_process_with_something_left_runs_no_other_body(what: str) -> None:
    """What a thread or a child of one body prints must not stand in the log of the next."""
    async with cells(threads=1) as rig:
        left = result(await rig.run(claimed("leaves", payload=msgspec.json.encode({"what": what}))))

        assert left != result(await rig.run(claimed("about")))["pid"]


async def test_rel_f17_timers_and_handlers_are_put_back() -> None:
    """An alarm that a body set must not ring in the next."""
    async with cells(threads=1) as rig:
        first = result(await rig.run(claimed("sets_alarm")))

        assert first == result(await rig.run(claimed("sets_alarm")))
