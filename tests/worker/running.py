"""A worker on an engine in the same process, for tests: its tasks, its settings, and a link that a test may break.

async with working(db, {"add": Plain(add)}) as work:
    job = await work.submit("add", {"x": 1})
    assert 2 == await work.result(job)
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import msgspec

from windlass.client.context import Context
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.job import State
from windlass.queue import history
from windlass.queue.control import Actor
from windlass.queue.newjob import NewJob
from windlass.queue.views import Attempt
from windlass.wire import work as wire
from windlass.worker.enginelink import EngineLink
from windlass.worker.frames import Leaving
from windlass.worker.keeping import OwnKeeping
from windlass.worker.link import Link
from windlass.worker.runnable import Isolation
from windlass.worker.runner import Worker

PATIENCE_S = 30.0
"""Nothing that is waited for takes nearly as long; past it something hangs."""
LOOK_S = 0.005


class Plain:
    """A task of a function that gets the decoded payload and the context."""

    def __init__(
        self,
        fn: Callable[[Any, Context], Any],
        *,
        name: str = "",
        isolation: Isolation | None = None,
        exclusive: bool = False,
    ) -> None:
        self.fn = fn
        self.name = name
        self.is_async = inspect.iscoroutinefunction(fn)
        self.isolation: Isolation | None = isolation
        self.exclusive = exclusive

    def run(self, payload: bytes, context: Context) -> Any:
        """Call the function."""
        return self.fn(msgspec.json.decode(payload), context)

    def encode(self, value: Any) -> bytes:
        """Return the result as JSON."""
        return msgspec.json.encode(value)


class Gate:
    """A body that says that it runs, and waits until it may go on, or is told to stop."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)
        self.entered_count = 0

    def __call__(self, payload: Any, context: Context) -> str:
        """Wait; checks all the time."""
        self.entered_count += 1
        self.entered.release()
        while not self.opened.wait(0.01):
            context.check()
        return "through"


Break = Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Gets the name of a call and the call; makes it, or does something else."""


class BrokenLink:
    """A link whose calls a test may break."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.breaks: Break | None = None
        self.claims: list[wire.ClaimRequest] = []
        self.reports: list[wire.ReportRequest] = []

    async def _call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        return await (call() if self.breaks is None else self.breaks(name, call))

    async def register(self, request: wire.RegisterRequest) -> wire.Registered:
        """Open a session."""
        answer: wire.Registered = await self._call("register", lambda: self._link.register(request))
        return answer

    async def heartbeat(self, request: wire.BeatRequest) -> wire.Beat:
        """Renew it."""
        answer: wire.Beat = await self._call("heartbeat", lambda: self._link.heartbeat(request))
        return answer

    async def claim(self, request: wire.ClaimRequest) -> wire.Claim:
        """Wait for jobs."""
        self.claims.append(request)
        answer: wire.Claim = await self._call("claim", lambda: self._link.claim(request))
        return answer

    async def report(self, request: wire.ReportRequest) -> wire.Answers:
        """Tell how attempts ended."""
        self.reports.append(request)
        answer: wire.Answers = await self._call("report", lambda: self._link.report(request))
        return answer

    async def close(self, worker_id: str, *, session: UUID, lost: bool = False) -> None:
        """End the session."""
        await self._call("close", lambda: self._link.close(worker_id, session=session, lost=lost))

    async def aclose(self) -> None:
        """Let go."""
        await self._link.aclose()


class Work:
    """A worker that runs, and the engine that it works for."""

    def __init__(self, engine: Engine, link: BrokenLink, worker: Worker) -> None:
        self.engine = engine
        self.link = link
        self.worker = worker
        self.running: asyncio.Task[Leaving] = asyncio.create_task(worker.run())

    async def submit(self, task: str, payload: Any = None, **fields: Any) -> UUID:
        """Submit a job."""
        [job] = await self.submit_many(task, [payload], **fields)
        return job

    async def submit_many(self, task: str, payloads: list[Any], **fields: Any) -> list[UUID]:
        """Submit jobs in one request."""
        jobs = [
            NewJob(id=self.engine.ids.new(), task=task, payload=msgspec.json.encode(payload).decode(), **fields)
            for payload in payloads
        ]
        await self.engine.submit(jobs)
        return [job.id for job in jobs]

    async def ended(self, job: UUID) -> history.Job:
        """Return the job when it has ended."""
        found = await self.engine.waits.wait_ended(job, tenant="default", wait_s=PATIENCE_S)
        assert found.finished_at is not None
        return found

    async def result(self, job: UUID) -> Any:
        """Return the result of a job when it has ended."""
        found = await self.ended(job)
        return None if found.result is None else msgspec.json.decode(found.result)

    async def attempts(self, job: UUID) -> list[Attempt]:
        """Return the ended attempts of a job."""
        return (await history.attempts(self.engine.db, job, tenant="default")).items

    async def state(self, job: UUID) -> State:
        """Return the state of a job."""
        return (await history.get(self.engine.db, job, tenant="default")).state

    async def cancel(self, job: UUID) -> None:
        """Cancel a job."""
        await self.engine.acts.cancel([job], tenant="default", actor=Actor("ann"))

    async def left(self) -> Leaving:
        """Return the worker's last word."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.running


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return when the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = condition()
            if answer if isinstance(answer, bool) else await answer:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await asyncio.Event().wait()


async def entered(gate: Gate) -> None:
    """Return when one more body has entered the gate."""
    assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE_S)


def quick(**worker: Any) -> Settings:
    """Return settings with short pauses, and with these of the worker."""
    short: dict[str, Any] = {
        "threads": 4,
        "backoff_min_seconds": 0.01,
        "backoff_max_seconds": 0.05,
        "error_pause_seconds": 0.01,
        "heartbeat_seconds": 0.1,
        "cancel_grace_seconds": 5.0,
    }
    usual = Settings()
    return msgspec.structs.replace(usual, worker=msgspec.structs.replace(usual.worker, **{**short, **worker}))


@asynccontextmanager
async def working(
    db: Database,
    tasks: dict[str, Plain],
    *,
    settings: Settings | None = None,
    carries: bool = True,
    before_claims: Callable[[], Awaitable[None]] | None = None,
    breaks: Break | None = None,
) -> AsyncIterator[Work]:
    """Run an engine and a worker on it; both have stopped when the block ends."""
    given = settings or quick()
    for name, task in tasks.items():
        task.name = name
    engine = Engine(db, given, name="scheduler_test_1", outside=Outside())
    async with engine.running():
        link = BrokenLink(EngineLink(engine))
        link.breaks = breaks
        keeping = OwnKeeping(link, given)
        worker = Worker(tasks, link, keeping=keeping, settings=given, carries=carries, before_claims=before_claims)
        work = Work(engine, link, worker)
        try:
            yield work
        finally:
            link.breaks = None
            if not work.running.done():
                work.worker.drain("the test is over", within_s=0)
                await asyncio.wait([work.running], timeout=PATIENCE_S)
            work.running.cancel()
            await asyncio.gather(work.running, return_exceptions=True)
