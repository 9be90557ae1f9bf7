"""Fleet: the workers as people see them: who they are, whether they live, what they hold.

A worker is known by its name and shown as its newest start is; sessions live and end in workers.py.
It is as busy as it told, or as it holds leases, in whichever of its live sessions: what it does not tell is seen.
A bare caller, which has a session for each job, is listed by its presence (presence.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import NotFound
from windlass.queue import views

SQL = load(__file__)

MAX_PAGE = 500
MAX_JOBS_SHOWN = 100
"""How many of the jobs that a worker holds are listed."""


class Status(StrEnum):
    """How a worker is."""

    STARTING = "starting"
    """Registered, and not heard since."""
    IDLE = "idle"
    ACTIVE = "active"
    BUSY = "busy"
    DRAINING = "draining"
    DEAD = "dead"
    STOPPED = "stopped"


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as its newest start is, with the jobs of all its live sessions."""

    worker: str
    session: UUID
    status: Status
    heartbeat_at: datetime
    expires_at: datetime
    started_at: datetime
    ended_at: datetime | None
    lease_ms: int
    total_threads: int
    busy_threads: int
    current_jobs: list[UUID]
    completed: int
    failed: int
    host: str | None
    pid: int | None
    version: str | None
    build: str | None
    region: str | None
    labels: str | None
    tasks: str | None
    queues: str | None
    skew_ms: int | None

    @property
    def available_threads(self) -> int:
        """How many jobs more it could run."""
        return max(0, self.total_threads - self.busy_threads)


class WorkerPage(msgspec.Struct, frozen=True):
    """A page of workers by name, and the name after which the next one begins; None on the last."""

    workers: list[Worker]
    next_cursor: str | None


class Threads(msgspec.Struct, frozen=True):
    """The threads of all live workers, and the largest difference of one's clock."""

    total: int
    busy: int
    skew_ms: int


async def list_workers(
    db: Statements,
    tenant: str,
    *,
    status: Status | None = None,
    limit: int = 100,
    cursor: str | None = None,
    with_texts: bool = True,
) -> WorkerPage:
    """Return up to `limit` workers of a tenant by name, those after `cursor`; of one status or of any.

    With labels, tasks and queues as many workers as fit into one answer.
    """
    limit = max(1, min(limit, MAX_PAGE))
    rows = await db.fetch(
        SQL.list_workers,
        tenant=tenant,
        worker=None,
        status=status and status.value,
        cursor=cursor or "",
        limit=limit + 1,
        most=views.LIST_BYTES,
        with_texts=int(with_texts),
    )
    workers = await _with_jobs(db, tenant, rows[:limit])
    return WorkerPage(workers, workers[-1].worker if rows and rows[0]["found"] > len(workers) else None)


async def get_worker(db: Statements, tenant: str, worker: str) -> Worker:
    """Return the worker of this name; NotFound if none has registered, or it ended long ago."""
    asked = {"tenant": tenant, "worker": worker, "status": None, "cursor": "", "limit": 1, "with_texts": 1}
    rows = await db.fetch(SQL.list_workers, most=views.LIST_BYTES, **asked)
    if not rows:
        raise NotFound(f"There is no worker {worker}.")
    [found] = await _with_jobs(db, tenant, rows)
    return found


async def threads(db: Statements) -> Threads:
    """Return how many threads the live workers of all tenants have, and how many are busy."""
    [row] = await db.fetch(SQL.threads)
    return Threads(row["total"], row["busy"], row["skew_ms"])


async def _with_jobs(db: Statements, tenant: str, rows: Sequence[Row]) -> list[Worker]:
    held: dict[str, list[UUID]] = {row["worker"]: [] for row in rows}
    for query, count in ((SQL.held_jobs, "held"), (SQL.held_alone, "alone")):
        workers = [row["worker"] for row in rows if row[count] > 0]
        if workers:
            for found in await db.fetch(query, tenant=tenant, workers=workers, most=MAX_JOBS_SHOWN):
                held[found["worker"]].append(found["id"])
    return [_worker(row, sorted(held[row["worker"]])[:MAX_JOBS_SHOWN]) for row in rows]


def _worker(row: Row, current_jobs: list[UUID]) -> Worker:
    columns = {name: row[name] for name in Worker.__struct_fields__ if name not in ("status", "current_jobs")}
    return Worker(**columns, status=Status(row["status"]), current_jobs=current_jobs)
