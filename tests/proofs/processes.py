"""A real `windlass server`: a process of its own, what it says, and the signals it gets.

It dies with the process that started it, however that ends, and with its block. What it says is kept, line by line, so
that a test waits for a line and not for time to pass. Next is fleet.py: several of them on one database.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import resource
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import windlass

PATIENCE_S = 30.0
"""Nothing that is waited for takes nearly as long; past it something hangs."""
LONGEST_LINE = 1 << 20
PR_SET_PDEATHSIG = 1
SERVES = re.compile(r"Windlass serves (https?)://(\S+):(\d+) \((\S+)\)\.")

_LIBC = ctypes.CDLL(None)


class ProcessEnded(Exception):
    """The process ended before it said what was waited for."""


class ServerProcess:
    """One process of the command line, and what it has said so far."""

    def __init__(self, process: Process) -> None:
        self.pid = process.pid
        self.lines: list[str] = []
        self._process = process
        self._said = asyncio.Condition()
        self._closed = False
        self._listening = asyncio.create_task(self._listen())

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.returncode is None

    @property
    def text(self) -> str:
        """All that it has said."""
        return "\n".join(self.lines)

    async def said(self, pattern: str | re.Pattern[str], *, since: int = 0) -> re.Match[str]:
        """Wait until a line after the first `since` matches; ProcessEnded if the process ends without."""
        async with asyncio.timeout(PATIENCE_S), self._said:
            while True:
                for line in self.lines[since:]:
                    if found := re.search(pattern, line):
                        return found
                if self._closed:
                    raise ProcessEnded(self.text)
                await self._said.wait()

    async def serving(self) -> str:
        """Wait until it serves; return its URL."""
        found = await self.said(SERVES)
        return f"{found[1]}://{found[2]}:{found[3]}"

    async def ended(self) -> int:
        """Wait for its end; return the exit code, negative for a signal."""
        async with asyncio.timeout(PATIENCE_S):
            code = await self._process.wait()
            await self._listening
            return code

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def close(self) -> None:
        """End it, whatever state it is in."""
        if self.is_running:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
        await self._listening

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            async with self._said:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self._said.notify_all()
        async with self._said:
            self._closed = True
            self._said.notify_all()


async def start(
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    files: int | None = None,
    module: str = "windlass",
    nohup: bool = False,
) -> ServerProcess:
    """Start `windlass`, or a module that runs it, with these arguments and variables; the caller closes it.

    `files` is how many files it may have open, and no more. With `nohup` it is started to ignore SIGHUP.
    """

    def prepare() -> None:
        _die_with_parent()
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    process = await asyncio.create_subprocess_exec(
        *(["nohup"] if nohup else []),
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        env=environment(settings or {}),
        cwd=cwd,
        limit=LONGEST_LINE,
        start_new_session=True,  # Ctrl-C is for the test run
        preexec_fn=prepare,
    )
    return ServerProcess(process)


@asynccontextmanager
async def started(
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    files: int | None = None,
    module: str = "windlass",
    nohup: bool = False,
) -> AsyncIterator[ServerProcess]:
    """Start `windlass`, or a module that runs it, for a block; the process is gone when it ends."""
    process = await start(*arguments, settings=settings, cwd=cwd, files=files, module=module, nohup=nohup)
    try:
        yield process
    finally:
        await process.close()


def server_arguments(database_url: str, *, port: int = 0) -> list[str]:
    """Return the arguments of a server on this database."""
    return ["server", "--database", database_url, "--port", str(port), "--log-format", "text"]


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return our environment without its settings of Windlass, with these; the sources are those of this process.

    The PostgreSQL of the tests forces nothing to disk (cluster.py), and is served all the same.
    """
    sources = Path(windlass.__file__).resolve().parent.parent
    ours = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    return (
        ours
        | {"PYTHONPATH": str(sources), "PYTHONUNBUFFERED": "1", "WINDLASS_DATABASE_ALLOW_UNDURABLE": "true"}
        | dict(settings)
    )


def _die_with_parent() -> None:
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
