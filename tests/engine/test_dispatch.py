"""Long poll: who gets what, when, and what becomes of jobs whose claimer has gone. On both databases."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from windlass.db import Database
from windlass.engine import dispatch
from windlass.engine.engine import Engine
from windlass.engine.line import Ask, Handout
from windlass.errors import Conflict, NotFound
from windlass.job import State
from windlass.queue import history
from windlass.queue.control import Actor
from windlass.queue.lanes import LaneName
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Status
from windlass.queue.workers import NewSession

PATIENCE_S = 20


async def submit(engine: Engine, count: int = 1, *, task: str = "t", queue: str = "default", priority: int = 0) -> list[UUID]:
    """Submit jobs and return their ids."""
    jobs = [NewJob(id=engine.ids.new(), task=task, queue=queue, priority=priority) for _ in range(count)]
    return [stored.id for stored in await engine.submit(jobs)]


async def opened(engine: Engine, worker: str) -> UUID:
    """Register a worker and return its session."""
    session = engine.ids.new()
    await engine.register(NewSession(id=session, worker=worker, capacity=10))
    return session


def ids_of(handout: Handout) -> list[UUID]:
    """Return the jobs of a handout."""
    return [handed.job.id for handed in handout.jobs]


def asking(worker: str = "w", session: UUID | None = None, *, count: int = 10, wait_s: float = PATIENCE_S,
           queues: tuple[str, ...] = ("default",), tasks: frozenset[str] | None = None,
           labels: frozenset[str] = frozenset()) -> Ask:
    """Return an ask of tenant default."""
    return Ask(tenant="default", worker=worker, session=session, count=count, wait_s=wait_s, queues=queues, tasks=tasks,
               labels=labels)


async def waiting(engine: Engine, *asks: Ask) -> list[asyncio.Task[Handout]]:
    """Let claims wait, and return when all of them stand in line."""
    before = engine.meters_waiting()
    tasks = [asyncio.create_task(engine.claim(ask)) for ask in asks]
    while engine.meters_waiting() < before + len(asks):
        await asyncio.sleep(0)
    return tasks
