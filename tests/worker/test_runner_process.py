"""The process of a runner, and its words with a keeper, whose part the test plays."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TypeVar
from uuid import UUID

import msgspec
import pytest

from tests.proofs.processes import environment, server_arguments, started
from tests.worker.overhttp import attempts_of, ended, nobody_waits, submit, to
from windlass.config import Settings
from windlass.config.workkinds import WorkKind
from windlass.wire import work as wire
from windlass.worker.frames import (
    Drain,
    Drop,
    Failed,
    FromKeeper,
    FromRunner,
    Hold,
    Leaving,
    Opened,
    Ready,
    Renewed,
    Start,
    Tick,
    from_runner,
    line,
)
from windlass.worker.httplink import HttpLink
from windlass.worker.pipekeeping import KeeperGone, PipeKeeping

PATIENCE_S = 30.0
RENEW_S = 0.2
MODULE = """
import os, time, windlass

app = windlass.App()

@app.task
def add(x: int, y: int) -> int:
    return x + y

@app.task(exclusive=True)
def long(ctx: windlass.Context) -> None:
    while True:
        time.sleep(0.01)
        ctx.check()

@app.task
def die() -> None:
    os.kill(os.getpid(), 9)
"""
Word = TypeVar("Word")
OPENED = Opened("ann", UUID(int=1), 30.0, 0.0)
"""The word before which nothing is imported."""


class Keeper:
    """The keeper's end."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.process = process
        self.said: list[FromRunner] = []
        self._reader = reader
        self._writer = writer

    def say(self, word: FromKeeper) -> None:
        """Say something to the runner."""
        self._writer.write(line(word))

    async def hears(self, kind: type[Word]) -> Word:
        """Return the next word of this kind."""
        async with asyncio.timeout(PATIENCE_S):
            while text := await self._reader.readline():
                word = from_runner(text)
                self.said.append(word)
                if isinstance(word, kind):
                    return word
        raise AssertionError(f"It said no {kind.__name__}, but {self.said}")

    async def renew_on(self) -> None:
        """Renew the lease again and again."""
        while True:
            self.say(Renewed(monotonic()))
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_S):
                    await asyncio.Event().wait()

    async def exit_code(self) -> int:
        """Return how the process ended."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    def hang_up(self) -> None:
        """Close the socket."""
        self._writer.close()


@asynccontextmanager
async def runner(settings: Settings, *arguments: str, folder: Path) -> AsyncIterator[Keeper]:
    """Start a runner in a folder, with its settings by the socket."""
    ours, theirs = socket.socketpair()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "windlass.worker.runner", "--fd", str(theirs.fileno()), *arguments),
        stdin=DEVNULL,
        pass_fds=(theirs.fileno(),),
        env=environment({}),
        cwd=folder,
        start_new_session=True,
    )
    theirs.close()
    reader, writer = await asyncio.open_connection(sock=ours)
    writer.write(msgspec.json.encode(settings) + b"\n")
    try:
        yield Keeper(process, reader, writer)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def opened(database_url: str, folder: Path, *, lease_s: float = 30.0) -> AsyncIterator[tuple[str, Keeper, UUID]]:
    """Run a server, and a runner with a session at it."""
    (folder / "shop.py").write_text(MODULE)
    async with started(*server_arguments(database_url)) as server:
        url = await server.serving()
        settings = to(url, lease_seconds=30.0)
        link = HttpLink(settings)
        async with runner(settings, "--app", "shop:app", folder=folder) as keeper:
            registered = await link.register(wire.RegisterRequest(worker_id="ann", lease_seconds=30.0))
            keeper.say(Opened("ann", registered.session, lease_s, monotonic()))
            await keeper.hears(Ready)
            yield url, keeper, registered.session
        await link.aclose()


async def test_a_runner_says_what_it_does(sqlite_url: str, tmp_path: Path) -> None:
    """A lease is named when it comes, its start before the body runs, its end after the report; it leaves with 0."""
    async with opened(sqlite_url, tmp_path) as (url, keeper, _):
        job = await submit(url, "add", {"x": 1, "y": 2})

        held = await keeper.hears(Hold)
        begun = await keeper.hears(Start)
        over = await keeper.hears(Drop)
        tick = await keeper.hears(Tick)
        keeper.say(Drain("drained", 60.0))
        leaving = await keeper.hears(Leaving)

        assert [(job, 1)] == held.jobs
        assert [3600] == held.limits_s
        assert ([(job, 1)], [(job, 1)]) == (begun.jobs, over.jobs)
        assert 3 == (await ended(url, job))["result"]
        assert 1 == tick.jobs_done
        assert ("drained", False) == (leaving.reason, leaving.replace)
        assert 0 == await keeper.exit_code()


async def test_a_start_is_with_the_keeper_before_the_body_runs(sqlite_url: str, tmp_path: Path) -> None:
    """A body that kills its process at once has been named: its keeper knows that it had begun."""
    async with opened(sqlite_url, tmp_path) as (url, keeper, _):
        job = await submit(url, "die")

        begun = await keeper.hears(Start)

        assert [(job, 1)] == begun.jobs
        assert -signal.SIGKILL == await keeper.exit_code()


async def test_a_drain_without_time_gives_back_and_leaves(sqlite_url: str, tmp_path: Path) -> None:
    """Told to leave now, a runner stops its body, gives the job back and ends, with 0."""
    async with opened(sqlite_url, tmp_path) as (url, keeper, _):
        job = await submit(url, "long")
        await keeper.hears(Start)

        keeper.say(Drain("Spot termination", 0.0))

        over = await keeper.hears(Drop)
        assert [(job, 1)] == over.jobs
        assert "Spot termination" == (await keeper.hears(Leaving)).reason
        assert 0 == await keeper.exit_code()


async def test_rel_b1_a_lease_not_renewed_stops_an_exclusive_body(sqlite_url: str, tmp_path: Path) -> None:
    """The keeper falls silent: past five sixths of the lease the job is dropped, and nothing is reported."""
    async with opened(sqlite_url, tmp_path, lease_s=3.0) as (url, keeper, _):
        renewing = asyncio.create_task(keeper.renew_on())
        job = await submit(url, "long")
        await keeper.hears(Start)

        renewing.cancel()
        over = await keeper.hears(Drop)

        assert [(job, 1)] == over.jobs
        assert [] == await attempts_of(url, job)
        await nobody_waits(url)
        renewing = asyncio.create_task(keeper.renew_on())
        again = await submit(url, "add", {"x": 1, "y": 1})
        held = await keeper.hears(Hold)
        renewing.cancel()
        assert [again] == [job_id for job_id, _ in held.jobs]


async def test_a_runner_ends_with_its_keeper(sqlite_url: str, tmp_path: Path) -> None:
    """When the keeper's end is closed the process is over at once, whatever it runs."""
    async with opened(sqlite_url, tmp_path) as (url, keeper, _):
        await submit(url, "long")
        await keeper.hears(Start)

        keeper.hang_up()

        assert 1 == await keeper.exit_code()


async def test_a_runner_told_to_stop_by_itself_asks_to_be_replaced(sqlite_url: str, tmp_path: Path) -> None:
    """SIGTERM to this process alone: it drains, and another should take its place. Ctrl-C is not for it."""
    async with opened(sqlite_url, tmp_path) as (_, keeper, _session):
        await keeper.hears(Tick)

        keeper.process.send_signal(signal.SIGINT)
        await keeper.hears(Tick)
        keeper.process.send_signal(signal.SIGTERM)

        assert (await keeper.hears(Leaving)).replace
        assert 0 == await keeper.exit_code()


async def test_a_module_that_cannot_be_imported_is_told(tmp_path: Path) -> None:
    """The keeper hears why, and the process ends with 1."""
    (tmp_path / "shop.py").write_text("import no_such_library\n")
    async with runner(to("http://127.0.0.1:9"), "--app", "shop:app", folder=tmp_path) as keeper:
        keeper.say(OPENED)
        failed = await keeper.hears(Failed)

        assert "No module named 'no_such_library'" in failed.reason
        assert 1 == await keeper.exit_code()


async def test_a_runner_without_a_module_serves_the_work_kinds(tmp_path: Path) -> None:
    """With no application a runner has the tasks of the configuration; those of an application have signatures."""
    (tmp_path / "shop.py").write_text(MODULE)
    settings = msgspec.structs.replace(to("http://127.0.0.1:9"), work_kinds={"email": WorkKind()})
    async with runner(settings, folder=tmp_path) as keeper:
        keeper.say(OPENED)
        plain = await keeper.hears(Ready)
    async with runner(settings, "--app", "shop.py", folder=tmp_path) as keeper:
        keeper.say(OPENED)
        ready = await keeper.hears(Ready)

    assert ["email"] == plain.tasks
    assert {"email", "add", "long", "die"} == set(ready.tasks)
    assert {"add", "long", "die"} == set(ready.signatures)


@contextmanager
def keeping_by_pipe() -> Iterator[tuple[socket.socket, PipeKeeping]]:
    """Give the keeper's end of a pipe, and the runner's way to use the other."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            yield ours, PipeKeeping(theirs)
        finally:
            asyncio.get_running_loop().remove_reader(theirs)


async def test_words_may_come_in_pieces() -> None:
    """A word is heard when its line is whole; the first line is no word, and what came with it is not lost."""
    with keeping_by_pipe() as (ours, keeping):
        text = line(Renewed(1.0)) + line(Renewed(2.0))
        ours.sendall(b"{}\n" + text[:10])

        assert b"{}" == keeping.read_line()
        ours.sendall(text[10:])
        assert [Renewed(1.0), Renewed(2.0)] == [await keeping.hear(), await keeping.hear()]


async def test_words_that_come_with_the_session_are_heard() -> None:
    """They lie in the buffer when the session is read, and nothing else may come for long."""
    with keeping_by_pipe() as (ours, keeping):
        ours.sendall(b"{}\n" + line(OPENED) + line(Renewed(1.0)))
        keeping.read_line()
        keeping.read_opened()

        opened = await keeping.open([], {})

        assert (OPENED, Renewed(1.0)) == (opened, await keeping.hear())


async def test_a_keeper_that_is_gone_is_noticed() -> None:
    """Reading says so; writing does not fail."""
    with keeping_by_pipe() as (ours, keeping):
        ours.close()

        keeping.start([(UUID(int=1), 1)])

        with pytest.raises(KeeperGone):
            keeping.read_line()
        with pytest.raises(KeeperGone):
            await keeping.hear()
