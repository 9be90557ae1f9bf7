"""Queues: what people see of a queue and set on it: pause, order, limits, and how much waits in it.

A queue is made by its first job, or by setting something on it; its settings are of its own lane (lanes.py), its pause
comes from control.py, and its depths are counted at a bounded cost (depths.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import NotFound
from windlass.job import State
from windlass.queue.depths import Depth, depths, longest_waits
from windlass.queue.lanes import STRICT_PRIORITY_MS, LaneName, configure

SQL = load(__file__)

MAX_PAGE = 500
IN_PROGRESS = frozenset({State.ASSIGNED, State.RUNNING, State.CANCELLING})

Order = Literal["priority", "fifo"]


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set on a queue; a setting that is left out is the default, not what it was."""

    order: Order = "priority"
    credit_ms: int = STRICT_PRIORITY_MS
    """What one level of priority is worth in waiting time; by default priority comes first, always."""
    max_running: int | None = None
    rate_per_s: float | None = None
    burst: int | None = None


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing is handed out: who said so, since when, and until when if it ends by itself."""

    of: Literal["queue", "tenant", "schedule"]
    reason: str | None
    actor: str | None
    paused_at: datetime
    resume_at: datetime | None


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: its settings, and how much waits and runs in it."""

    name: str
    settings: QueueSettings
    pause: Pause | None
    """That of the queue, or of its tenant; None: jobs are handed out."""
    pending: int
    """Due and claimable now; nothing of a paused queue is."""
    held: int
    """Due, and kept back by a pause."""
    in_progress: int
    scheduled: int
    blocked: int
    sleeping: int
    dead: int
    counts_are_exact: bool
    """False: of some there are at least so many."""
    oldest_queued_s: float | None
    """How long the claimable job that waits longest has been due; None: there is none."""

    @property
    def paused(self) -> bool:
        """Whether nothing is handed out of it."""
        return self.pause is not None


class QueuePage(msgspec.Struct, frozen=True):
    """A page of queues by name, and the name after which the next one begins; None on the last."""

    queues: list[Queue]
    next_cursor: str | None


async def list_queues(db: Statements, tenant: str, *, limit: int = 100, cursor: str | None = None) -> QueuePage:
    """Return up to `limit` queues of a tenant by name, those after `cursor`."""
    limit = max(1, min(limit, MAX_PAGE))
    rows = await db.fetch(SQL.list_queues, tenant=tenant, queue=None, cursor=cursor or "", limit=limit + 1)
    queues = await _with_depths(db, tenant, rows[:limit])
    return QueuePage(queues, queues[-1].name if len(rows) > limit else None)


async def get_queue(db: Statements, tenant: str, name: str) -> Queue:
    """Return the queue of this name; NotFound if no job and no setting ever named it."""
    rows = await db.fetch(SQL.list_queues, tenant=tenant, queue=name, cursor="", limit=1)
    if not rows:
        raise NotFound(f"There is no queue {name}. A queue is made by its first job or by its first setting.")
    [found] = await _with_depths(db, tenant, rows)
    return found


async def put_queue(db: Statements, tenant: str, name: str, *, settings: QueueSettings) -> Queue:
    """Give a queue exactly these settings, making it if need be, and return it; InvalidInput as in `configure`."""
    await configure(
        db,
        LaneName(tenant, name),
        credit_ms=settings.credit_ms,
        fifo=settings.order == "fifo",
        max_running=settings.max_running,
        rate_per_s=settings.rate_per_s,
        burst=settings.burst,
    )
    return await get_queue(db, tenant, name)


async def _with_depths(db: Statements, tenant: str, rows: Sequence[Row]) -> list[Queue]:
    if not rows:
        return []
    names = [row["queue"] for row in rows]
    found: dict[str, list[Depth]] = {name: [] for name in names}
    for depth in await depths(db, tenant, queues=names):
        found[depth.queue].append(depth)
    waits = {wait.queue: wait.waited_s for wait in await longest_waits(db, tenant, queues=names)}
    return [_queue(row, found[row["queue"]], waits.get(row["queue"])) for row in rows]


def _queue(row: Row, found: Sequence[Depth], oldest_queued_s: float | None) -> Queue:
    jobs = dict.fromkeys(State, 0) | {depth.state: depth.jobs for depth in found}
    return Queue(
        name=row["queue"],
        settings=QueueSettings(
            order="fifo" if row["fifo"] else "priority",
            credit_ms=row["credit_ms"],
            max_running=row["max_running"],
            rate_per_s=row["rate_per_s"],
            burst=row["burst"],
        ),
        pause=_pause(row),
        pending=jobs[State.QUEUED],
        held=sum(depth.held for depth in found),
        in_progress=sum(jobs[state] for state in IN_PROGRESS),
        scheduled=jobs[State.SCHEDULED],
        blocked=jobs[State.BLOCKED],
        sleeping=jobs[State.SLEEPING],
        dead=jobs[State.DEAD],
        counts_are_exact=all(depth.exact for depth in found),
        oldest_queued_s=oldest_queued_s,
    )


def _pause(row: Row) -> Pause | None:
    if row["pause_kind"] is None:
        return None
    return Pause(
        of=row["pause_kind"],
        reason=row["pause_reason"],
        actor=row["pause_actor"],
        paused_at=row["paused_at"],
        resume_at=row["resume_at"],
    )
