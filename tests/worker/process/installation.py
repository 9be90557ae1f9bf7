"""An installation of real processes: a server on a file, fleets of workers, and a gate at which tasks wait.

A task that begins says so at the gate, and goes on when the test lets it: nothing here waits for time to pass.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.cluster import free_port
from tests.proofs.load import pause
from tests.proofs.processes import ServerProcess, server_arguments, started
from tests.rules.source import REPOSITORY

PATIENCE_S = 60.0
POLL_S = 0.05
FOR_EVER_MS = 180_000
"""Longer than anybody waits here; what a broken test leaves behind ends nevertheless."""
SAMPLE = "tests.worker.process.sample:app"
LEASE_S = 2.0
SHORT = {"worker_lease_seconds": str(LEASE_S)}
"""For workers whose lease is to lapse: a busy machine may let it lapse by itself."""
QUICK = {
    "WINDLASS_WORKER_LEASE_SECONDS": "300",
    "WINDLASS_WORKER_HEARTBEAT_SECONDS": "0.6",
    "WINDLASS_WORKER_SPOT_NOTICE": "off",
    "WINDLASS_WORKER_WAIT_SECONDS": "5",
    "WINDLASS_WORKER_BACKOFF_MAX_SECONDS": "1",
    "WINDLASS_RETRY_BASE_SECONDS": "0",
}
ENDED = {"succeeded", "dead", "cancelled", "expired"}


class Begun:
    """A task that has begun and waits at the gate."""

    def __init__(self, told: dict[str, Any], writer: asyncio.StreamWriter, gone: asyncio.Task[bytes]) -> None:
        self.pid: int = told["pid"]
        self.job_id: str = told["job"]
        self.attempt: int = told["attempt"]
        self._writer = writer
        self._gone = gone

    def go_on(self, word: str = "done") -> None:
        """Let it return this word."""
        self._writer.write(word.encode())

    async def gone(self) -> None:
        """Wait until its end of the connection is closed: it returned, or its process is dead."""
        async with asyncio.timeout(PATIENCE_S):
            await self._gone


class Installation:
    """A server, workers and a gate."""

    def __init__(self, folder: Path, stack: AsyncExitStack, gate: asyncio.Queue[Begun], port: int) -> None:
        self.port = port
        """Of the gate."""
        self.url = ""
        self.server: ServerProcess
        self.database_url = f"sqlite:///{folder}/jobs.db"
        self._stack = stack
        self._gate = gate

    async def start_server(self, **settings: str) -> None:
        """Start the server, at the port it had before."""
        port = urlsplit(self.url).port or free_port()
        arguments = server_arguments(self.database_url, port=port)
        self.server = await self._start(*arguments, **settings)
        self.url = await self.server.serving()

    async def start_workers(self, *arguments: str, app: str = SAMPLE, **settings: str) -> ServerProcess:
        """Start a fleet and wait until it is ready."""
        fleet = await self.launch_workers(*arguments, app=app, **settings)
        await fleet.said("is ready")
        return fleet

    async def launch_workers(
        self, *arguments: str, app: str = SAMPLE, url: str | None = None, **settings: str
    ) -> ServerProcess:
        """Start a fleet of the server, or of one that is reached at `url`."""
        where = ["--url", url or self.url] if url or self.url else []
        return await self._start("worker", app, *where, "--log-format", "text", *arguments, **settings)

    async def submit(self, task: str, **payload: Any) -> str:
        """Submit a job; return its id."""
        return await self.submit_with(task, payload)

    async def submit_with(self, task: str, payload: dict[str, Any], **options: Any) -> str:
        """Submit a job with options; return its id."""
        answer = await self._call("POST", "/jobs", json={"task": task, "payload": payload, **options})
        return str(answer["id"])

    async def begun(self) -> Begun:
        """Wait until a task has begun."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._gate.get()

    def begun_count(self) -> int:
        """Return how many tasks have begun that nobody asked for yet."""
        return self._gate.qsize()

    async def job(self, job_id: str, **query: Any) -> dict[str, Any]:
        """Return a job."""
        return await self._call("GET", f"/jobs/{job_id}", params=query)

    async def ended(self, job_id: str) -> dict[str, Any]:
        """Wait for the end of a job; return it."""
        return await self.until(lambda job: job["status"] in ENDED, f"/jobs/{job_id}", wait=5)

    async def attempts(self, job_id: str) -> list[dict[str, Any]]:
        """Return the ended attempts of a job."""
        found = await self._call("GET", f"/jobs/{job_id}/attempts")
        return list(found["attempts"])

    async def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        await self._call("DELETE", f"/jobs/{job_id}")

    async def until(self, so: Callable[[dict[str, Any]], bool], path: str, **query: Any) -> dict[str, Any]:
        """Ask until the answer is so; return it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self._call("GET", path, params=query)
                if so(answer):
                    return answer
                await pause(asyncio.Event(), POLL_S)

    async def _call(self, method: str, path: str, **parts: Any) -> dict[str, Any]:
        async with httpx2.AsyncClient(verify=False, base_url=f"{self.url}/api/v1", timeout=PATIENCE_S) as client:
            answer = await client.request(method, path, **parts)
            answer.raise_for_status()
            return dict(answer.json())

    async def _start(self, *arguments: str, **settings: str) -> ServerProcess:
        named = QUICK | {f"WINDLASS_{name.upper()}": value for name, value in settings.items()}
        return await self._stack.enter_async_context(started(*arguments, settings=named, cwd=REPOSITORY))


@asynccontextmanager
async def installed(folder: Path) -> AsyncIterator[Installation]:
    """Have an installation for a block; its processes are gone afterwards."""
    begun: asyncio.Queue[Begun] = asyncio.Queue()
    readings: set[asyncio.Task[bytes]] = set()

    async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told = json.loads(await reader.readline())
        gone = asyncio.create_task(_rest(reader))
        readings.add(gone)
        begun.put_nowait(Begun(told, writer, gone))
        await gone
        writer.close()

    gate = await asyncio.start_server(come, "127.0.0.1", 0)
    async with AsyncExitStack() as stack:
        stack.callback(gate.close)
        yield Installation(folder, stack, begun, gate.sockets[0].getsockname()[1])


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except OSError:  # its process was killed
        return b""


def kill(pid: int) -> None:
    """End a process as the machine does when memory is short."""
    os.kill(pid, signal.SIGKILL)
