"""A rig around Pools for tests: tasks from plain functions, jobs, and waiting for what ended."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
from msgspec import Raw

from windlass.client.context import Context
from windlass.config.redact import Redactor
from windlass.config.settings import Worker
from windlass.errors import InvalidInput
from windlass.wire import work as wire
from windlass.wire.trail import LogChunk, LogLine, Note
from windlass.worker.frames import Lease
from windlass.worker.pools import Ended, Pools
from windlass.worker.runnable import Isolation, Tasks

PATIENCE_S = 60.0
BASE = datetime(2026, 1, 1, tzinfo=UTC)


class FunctionTask:
    """A task whose function takes the context."""

    def __init__(self, fn: Callable[[Context], Any], isolation: Isolation | None = None) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.is_async = inspect.iscoroutinefunction(fn)
        self.isolation = isolation
        self.exclusive = False

    def run(self, payload: bytes, context: Context) -> Any:
        """Call the function."""
        if payload == b'"wrong"':
            raise InvalidInput("payload", "it does not fit.")
        return self.fn(context)

    def encode(self, value: Any) -> bytes:
        """Return the value as JSON."""
        try:
            return msgspec.json.encode(value)
        except TypeError as error:
            raise InvalidInput("result", str(error)) from None


def claimed(task: str, *, timeout_s: int | None = None, payload: bytes = b"null", fence: int = 1) -> wire.ClaimedJob:
    """Return a job as a claim brings it."""
    job_id = uuid4()
    return wire.ClaimedJob(
        id=job_id,
        task=task,
        definition_id=None,
        schedule_id=None,
        run_id=f"{job_id}.{fence}",
        attempt=1,
        max_attempts=3,
        fence=fence,
        session=uuid4(),
        priority=0,
        scheduled_at=BASE,
        max_execution_time=timeout_s,
        lease_seconds=30.0,
        payload=Raw(payload),
        checkpoint=Raw(b'{"at":7}'),
        headers=Raw(b'{"trace":"t1"}'),
        tags=Raw(b'["red"]'),
        tenant="default",
        queue="default",
        labels=[],
    )


class Rig:
    """Pools with what they told."""

    def __init__(self, tasks: Tasks, settings: Worker, **options: Any) -> None:
        self.started: list[Lease] = []
        self.may_begin = True
        self.ahead_s = 0.0
        """How far a test has moved the clock of the pools."""
        self.woken = threading.Event()
        self.ended: dict[UUID, list[Ended]] = {}
        self.lines: dict[UUID, list[LogLine]] = {}
        self.chunks: list[LogChunk] = []
        self.notes: list[Note] = []
        arguments: dict[str, Any] = {"threads": 4, "isolation": "thread", "app_target": None, "redactor": Redactor()}
        self.pools = Pools(
            tasks,
            settings=settings,
            on_start=self.started.extend,
            may_begin=lambda: self.may_begin,
            wake=self.woken.set,
            clock=self.now,
            **(arguments | options),
        )

    def now(self) -> float:
        """Return what the clock of the pools shows."""
        return time.monotonic() + self.ahead_s

    def start(self, *jobs: wire.ClaimedJob) -> None:
        """Hand jobs over."""
        self.pools.start(jobs, now=self.now())

    def look(self) -> None:
        """Tend, and take everything there is."""
        self.woken.clear()
        self.pools.tend(self.now())
        for ended in self.pools.take_ended():
            self.ended.setdefault(ended.job_id, []).append(ended)
        chunks, notes = self.pools.take_trail()
        self.chunks += chunks
        self.notes += notes
        for chunk in chunks:
            self.lines.setdefault(chunk.job_id, []).extend(chunk.lines)

    async def until(self, condition: Callable[[], object]) -> None:
        """Look until the condition holds."""
        patience_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < patience_at, "it did not come in time"
            await asyncio.to_thread(self.woken.wait, 0.01)
            self.look()

    async def end(self, job: wire.ClaimedJob) -> Ended:
        """Return how a job ended."""
        await self.until(lambda: job.id in self.ended)
        return self.ended[job.id][0]

    async def run(self, job: wire.ClaimedJob) -> Ended:
        """Run one job to its end."""
        self.start(job)
        return await self.end(job)

    def texts(self, job: wire.ClaimedJob) -> list[str]:
        """Return the lines of a job's log."""
        return [line.text for line in self.lines.get(job.id, [])]


SHORT = Worker(cancel_grace_seconds=0.05, kill_seconds=0.2)


@asynccontextmanager
async def rig(
    *functions: Callable[[Context], Any], settings: Worker = SHORT, isolated: Sequence[str] = (), **options: Any
) -> AsyncIterator[Rig]:
    """Pools for these functions, closed at the end."""
    tasks = {fn.__name__: FunctionTask(fn, "process" if fn.__name__ in isolated else None) for fn in functions}
    made = Rig(tasks, settings, **({"abandon_s": 0.2} | options))
    try:
        yield made
    finally:
        await made.pools.close()


def failed(ended: Ended) -> wire.FailEntry:
    """Return the entry of an attempt that failed."""
    assert isinstance(ended.entry, wire.FailEntry), ended.entry
    return ended.entry


def completed(ended: Ended) -> wire.CompleteEntry:
    """Return the entry of an attempt that succeeded."""
    assert isinstance(ended.entry, wire.CompleteEntry), ended.entry
    return ended.entry
