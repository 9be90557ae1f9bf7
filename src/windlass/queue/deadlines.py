"""Deadlines: what its time has run out for, ends.

A job that runs past its time-out plus a grace, as a backstop to its worker: the attempt ends as timed out.
A job told to cancel whose worker never confirmed it: its lease is revoked, a late report is refused.
A job not started by its start deadline: it expires.
"""

from __future__ import annotations

from uuid import UUID

from windlass.db import Statements, load
from windlass.job import Outcome
from windlass.queue import moves
from windlass.queue.moves import Lease, LeaseName, Move, Moved, Record
from windlass.queue.report import Chance

SQL = load(__file__)

DEADLINE_BATCH = 500
"""At most so many in one statement: `expire` says so to the planner as a literal."""


async def end_overdue(db: Statements, *, chance: Chance, limit: int = DEADLINE_BATCH) -> list[Moved]:
    """End up to `limit` leases past their deadline: timed out, or cancelled where that was asked for."""
    async with db.transaction() as transaction:
        found = await transaction.fetch(SQL.overdue, limit=limit)
        named = [LeaseName(row["id"], row["fence"], row["session"]) for row in found]
        leases = await moves.lock(transaction, named, skip_locked=True)
        rows = [(lease.id,) for lease in leases]
        overdue = {row["id"] for row in await transaction.fetch(SQL.still_overdue, leases=rows)} if rows else set()
        moved = await moves.apply(transaction, [_end(lease, chance) for lease in leases if lease.id in overdue])
    return list(moved.values())


async def expire(db: Statements, *, limit: int = DEADLINE_BATCH) -> list[UUID]:
    """Expire up to `limit` waiting jobs whose start deadline has passed; return their ids."""
    expired: list[UUID] = []
    while len(expired) < limit:
        batch = min(limit - len(expired), DEADLINE_BATCH)
        rows = await db.fetch(SQL.expire, limit=batch)
        expired += [row["id"] for row in rows]
        if len(rows) < batch:
            break
    return expired


def _end(lease: Lease, chance: Chance) -> Move:
    if lease.cancelling:
        reason = "Its worker did not confirm the cancel in time; the lease was revoked."
        return moves.cancelled(lease, Record(outcome=Outcome.CANCELLED, error_type="revoked", reason=reason))
    record = Record(
        outcome=Outcome.TIMED_OUT, error_type="timeout", error="It ran past its time-out and its worker did not end it."
    )
    return moves.fail(lease, record, retryable=True, chance=chance())
