"""A runner as its keeper sees it: a process of its own, and a socket on which both speak (frames.py).

The runner dies with the process that started it: the kernel kills it, and the socket ends. It has a session of its own
for the terminal, so that Ctrl-C reaches only the fleet, which then drains it. Settings, and with them the key, go over
the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import msgspec

from windlass.config import Settings
from windlass.config.settings import Database, Security
from windlass.worker.frames import FromKeeper, FromRunner, from_runner, line

LONGEST_LINE = 1 << 24
"""Bytes of a frame: one that names twenty thousand jobs is a tenth of it."""
PR_SET_PDEATHSIG = 1

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Child(Protocol):
    """A runner that was started."""

    @property
    def pid(self) -> int:
        """Of its process."""

    def send(self, frame: FromKeeper) -> None:
        """Say something to it; nothing happens if it is gone."""

    def frames(self) -> AsyncIterator[FromRunner]:
        """What it says, until it is gone."""

    async def ended(self) -> int:
        """Wait for its end; return its exit code, negative for a signal."""

    def kill(self) -> None:
        """End it, and what it started, at once."""

    def let_go(self) -> None:
        """Close the socket to it."""


StartChild = Callable[[], Awaitable[Child]]


class RunnerProcess:
    """A runner in a process."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.pid = process.pid
        self._process = process
        self._reader = reader
        self._writer = writer

    def send(self, frame: FromKeeper) -> None:
        """Say something to it; nothing happens if it is gone."""
        if not self._writer.is_closing():
            self._writer.write(line(frame))

    async def frames(self) -> AsyncIterator[FromRunner]:
        """Yield what it says, until it is gone; a line cut off by its death is none."""
        with contextlib.suppress(ConnectionError):
            while (text := await self._reader.readline()).endswith(b"\n"):
                yield from_runner(text)

    async def ended(self) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        return await self._process.wait()

    def kill(self) -> None:
        """End it, and what it started, at once."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
                return
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def let_go(self) -> None:
        """Close the socket to it."""
        self._writer.close()


def for_runners(settings: Settings) -> Settings:
    """Return the settings without what only a server needs: its database, its first key, its certificate."""
    security = Security(redact=settings.security.redact)
    return msgspec.structs.replace(settings, database=Database(), security=security)


async def start_runner(
    settings: Settings, app_target: str | None, *, serves_tasks_queues: bool = False
) -> RunnerProcess:
    """Start a runner that imports `app_target`, or serves only what the settings have.

    With `serves_tasks_queues` it serves the queues that the application's tasks name besides those of the settings.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        app = [] if app_target is None else ["--app", app_target]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # Without the working folder on its path: a file there may be called like a module of the library.
            "-P",
            "-m",
            "windlass.worker.runner",
            "--fd",
            str(theirs.fileno()),
            *app,
            *(["--tasks-queues"] if serves_tasks_queues else []),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    ours.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
    writer.write(msgspec.json.encode(for_runners(settings)) + b"\n")
    return RunnerProcess(process, reader, writer)


def _die_with_parent() -> None:
    # A task that holds the interpreter never sees the end of the socket.
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
