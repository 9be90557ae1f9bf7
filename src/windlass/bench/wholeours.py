"""Our sides of `windlass bench whole`: over HTTP with a fleet, and in-process with an engine beside each worker."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass.bench.httpserver import windlass_server
from windlass.bench.scratch import is_postgres, scratch
from windlass.bench.wholeside import Script

IN_PROCESS = "in-process"
ASYNC_SLOTS = 500
"""Async jobs of one process at a time: batches are as large as this, and cost least."""
THREADS = 100
"""Jobs of one process at a time that have a thread each."""
_SCRIPT = (sys.executable, "-m", "windlass.bench.wholescript")


class OverHttp:
    """One server, one fleet with several runners."""

    def __init__(self, name: str, url: str, *, task: str, processes: int, threads: int = ASYNC_SLOTS) -> None:
        self.name = name
        self.workers = 1
        self.works_itself = False
        self._url = url
        self._task = task
        self._processes = processes
        self._threads = threads
        self.server_pid = 0
        """Of the server of the latest round."""

    @asynccontextmanager
    async def opened(self, folder: str) -> AsyncIterator[Script]:
        """Start a server on a scratch database."""
        async with scratch(self._url) as database, windlass_server(database) as served:
            self.server_pid = served.pid
            more = (self._task, str(self._processes), str(self._threads))
            yield Script(
                command=(*_SCRIPT, f"http://127.0.0.1:{served.port}", *more),
                url=database,
                ours=True,
                database=database,
                others={"server": served.pid},
            )


class InProcess:
    """Processes that each have an engine and a worker."""

    def __init__(self, name: str, url: str, *, task: str, processes: int, threads: int = ASYNC_SLOTS) -> None:
        self.name = name
        self.workers = processes
        self.works_itself = True
        self._url = url
        self._task = task
        self._threads = threads

    @asynccontextmanager
    async def opened(self, folder: str) -> AsyncIterator[Script]:
        """Make a scratch database."""
        url = self._url if is_postgres(self._url) else f"sqlite:///{folder}/bench.db"
        async with scratch(url) as database:
            yield Script(
                command=(*_SCRIPT, IN_PROCESS, self._task, "1", str(self._threads)),
                url=database,
                ours=True,
                database=database,
            )
