"""Outbox: what an application said inside a transaction of its own, read after its commit and done once.

`windlass.enqueue` and `windlass.finish` (migration 0004) write rows here; on SQLite the application does so itself.
A row to enqueue leaves in the transaction that stores its job (submit.py), under the row's id: one row, one job.
A finish has taken its lease out of reach already; its row leaves in the transaction that ends the job (moves.py).
Rows that are being done by a rival are skipped. Who reads them, and when: engine/relay.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.job import Outcome
from windlass.queue import moves
from windlass.queue.moves import LeaseName, Move, Moved, Record
from windlass.queue.newjob import storable

SQL = load(__file__)

RELAY_BATCH = 500


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One row, as it waits."""

    id: UUID
    kind: Literal["enqueue", "finish"]
    tenant: str
    task: str
    payload: str | None
    """JSON text; of a finish the result."""
    options: str
    """A JSON object: the fields of a request besides task and payload."""
    fence: int | None
    created_at: datetime


class Kept(msgspec.Struct, frozen=True):
    """A row that could not be done: with an error it is set aside for good, else it is due again after the wait."""

    id: UUID
    error: str | None = None
    wait_ms: int = 0


async def waiting(db: Statements, *, limit: int = RELAY_BATCH) -> list[Waiting]:
    """Return rows that are due, first written first; an empty list when there are none."""
    return [Waiting(**dict(row)) for row in await db.fetch(SQL.waiting, limit=limit)]


async def take(transaction: Statements, ids: Sequence[UUID]) -> set[UUID]:
    """Remove rows in the caller's transaction and return those whose job is to be stored now.

    Left out is what a rival has, and what became a job before: a row's id is the name of its work.
    """
    rows = await transaction.fetch(SQL.take_rows, ids=list(ids))
    return {row["id"] for row in rows if not row["known"]}


async def end_finished(db: Statements, rows: Sequence[Waiting]) -> tuple[list[Moved], list[UUID]]:
    """End the jobs of finishes as succeeded; return the moves, and rows that named no lease, which are gone too."""
    if not rows:
        return [], []
    results = {row.id: row.payload for row in rows}
    fences = {row.id: row.fence or 0 for row in rows}
    async with db.transaction() as transaction:
        taken = [row["id"] for row in await transaction.fetch(SQL.take_rows, ids=sorted(results))]
        leases = [(job_id, fences[job_id]) for job_id in sorted(taken)]
        opened = [row["id"] for row in await transaction.fetch(SQL.reopen, leases=leases)] if leases else []
        locked = await moves.lock(transaction, [LeaseName(job_id, fences[job_id]) for job_id in opened])
        ends = [
            Move(
                lease=lease,
                to="done",
                record=Record(outcome=Outcome.SUCCEEDED, result=results[lease.id]),
                attempt=lease.attempt,
                started=True,
            )
            for lease in locked
        ]
        moved = await moves.apply(transaction, ends)
    return list(moved.values()), sorted(set(taken) - moved.keys())


async def keep(db: Statements, kept: Sequence[Kept]) -> None:
    """Set rows aside, or put them off."""
    if kept:
        await db.fetch(SQL.keep_rows, kept=[(row.id, storable(row.error), row.wait_ms) for row in kept])
