"""A server in a thread of the test: real HTTP on a free port, and a hand that does the work of a worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import msgspec
import uvicorn
import uvloop

from windlass import App
from windlass.client.context import AboutJob, Behind, Context
from windlass.config import Settings
from windlass.config.settings import Database, Server
from windlass.db import open_database
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.server.app import create_app
from windlass.server.auth import Gate
from windlass.server.protocol import Protocol
from windlass.server.run import listening

PATIENCE_S = 60.0


async def until(condition: Callable[[], bool]) -> None:
    """Return when it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 — what is waited for sets no event
            await asyncio.sleep(0)


class _Quiet(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """Leave signals to the test run."""


class Served:
    """A server of a database, until it is closed."""

    def __init__(self, database_url: str) -> None:
        self.settings = Settings(database=Database(url=database_url), server=Server(port=0))
        self._loop = uvloop.new_event_loop()
        self._stack = AsyncExitStack()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.url = self._within(self._open())

    def close(self) -> None:
        """Stop it in order."""
        self._within(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        # A query that was cut off is cancelled by a task of its driver's: its connection is closed with it.
        if left := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE_S))
        self._loop.close()

    def run_next(self, app: App, *lines: str) -> dict[str, Any]:
        """Claim one job as a bare worker, run it with the application's task, report how it ended; return the job.

        `lines` are what the attempt writes, each sent by itself.
        """
        with httpx2.Client(verify=False, base_url=f"{self.url}/api/v1", timeout=PATIENCE_S) as client:
            claim = {"worker_id": "hand", "count": 1, "wait": 20}
            [job] = client.post("/jobs/claim", json=claim).raise_for_status().json()["jobs"]
            lease = {"worker_id": "hand", "fence": job["fence"], "session": job["session"]}
            for seq, line in enumerate(lines):
                written = [{"at": "2026-01-01T00:00:00Z", "text": line}]
                logs = [{"job_id": job["id"], "fence": job["fence"], "seq": seq, "lines": written}]
                said = {"worker_id": "hand", "session": job["session"], "reports": [], "logs": logs}
                client.post("/jobs/report", json=said).raise_for_status()
            task = app.tasks[job["task"]]
            about = AboutJob(id=job["id"], task=task.name)
            try:
                result = task.run(msgspec.json.encode(job["payload"]), Context(about, NoOne()))
                lease["result"] = msgspec.Raw(task.encode(asyncio.run(result) if task.is_async else result))
                path = "complete"
            except Exception as error:
                lease |= {"error": str(error), "error_type": type(error).__name__, "retryable": False}
                lease |= {"traceback": "Traceback: where it was"}
                path = "fail"
            headers = {"content-type": "application/json"}
            body = msgspec.json.encode(lease)
            client.post(f"/jobs/{job['id']}/{path}", content=body, headers=headers).raise_for_status()
            found: dict[str, Any] = job
            return found

    def _within(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _open(self) -> str:
        db = await open_database(self.settings.database.url)
        self._stack.push_async_callback(db.close)
        engine = Engine(db, self.settings, name="scheduler_test_1", outside=Outside())
        await self._stack.enter_async_context(engine.running())
        door = create_app(engine, self.settings, Gate(db, keys_required=False))
        listener = self._stack.enter_context(listening(self.settings))
        server = _Quiet(uvicorn.Config(door, http=Protocol, ws="none", lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listener]))

        async def stop() -> None:
            server.should_exit = True
            await serving

        self._stack.push_async_callback(stop)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


class NoOne(Behind):
    """Nothing behind a context."""

    stopping = None
    remaining_s = None

    def progress(self, value: bytes) -> None:
        """Nobody looks."""

    def checkpoint(self, value: bytes) -> None:
        """There will be no later attempt."""

    def alive(self) -> None:
        """Nobody asks."""
