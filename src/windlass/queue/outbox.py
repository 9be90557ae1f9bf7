"""Outbox: what an application said inside a transaction of its own, read after its commit and done once.

`windlass.enqueue` and `windlass.finish` (migration 0004) write rows here; on SQLite the application does so itself.
A row to enqueue leaves in the transaction that stores its job (submit.py), under the row's id: one row, one job.
A finish has taken its lease out of reach already; its row leaves in the transaction that ends the job (moves.py).
Rows that are being done by a rival are skipped. Who reads them, and when: engine/relay.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import NotFound
from windlass.job import Outcome
from windlass.queue import moves
from windlass.queue.moves import LeaseName, Move, Moved, Record
from windlass.queue.newjob import storable
from windlass.queue.submit import Take

SQL = load(__file__)

RELAY_BATCH = 500


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One row, as it waits."""

    name: str
    """Its id as it is written, by which it is found again."""
    id: UUID
    kind: Literal["enqueue", "finish"]
    tenant: str
    task: str
    payload: str | None
    """JSON text; of a finish the result."""
    options: str
    """A JSON object: the fields of a request besides task and payload."""
    fence: int | None
    age_ms: int
    """How long ago it was written, by the database's clock."""


class Kept(msgspec.Struct, frozen=True):
    """A row that could not be done: with an error it is set aside for good, else it is due again after the wait."""

    name: str
    error: str | None = None
    wait_ms: int = 0


async def waiting(db: Statements, *, limit: int = RELAY_BATCH) -> tuple[list[Waiting], list[Kept]]:
    """Return rows that are due, first written first, and those among them that cannot be read, with the reason."""
    rows: dict[UUID, Waiting] = {}
    unread: list[Kept] = []
    for row in await db.fetch(SQL.waiting, limit=limit):
        try:
            read = _read(row)
        except (ValueError, msgspec.ValidationError) as problem:
            unread.append(Kept(row["name"], error=f"It cannot be read: {problem}."))
        else:
            # The same id in another spelling has its turn when this one is done.
            rows.setdefault(read.id, read)
    return list(rows.values()), unread


def _read(row: Row) -> Waiting:
    fields = {name: _text(value) for name, value in row.items()}
    try:
        row_id = UUID(fields["name"])
    except ValueError:
        raise ValueError(f"its id {fields['name'][:100]!r} is no UUID") from None
    return msgspec.convert({**fields, "id": row_id}, Waiting)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


async def is_waiting(db: Statements, job_id: UUID, *, tenant: str) -> bool:
    """Say whether a committed row asks for this job and nobody has stored it yet; NotFound if the row is set aside."""
    for row in await db.fetch(SQL.find_row, id=job_id):
        try:
            named = msgspec.json.decode(row["options"], type=_Named).tenant
            mine = (named or _text(row["tenant"])) == tenant
        except (ValueError, msgspec.MsgspecError):  # the relay sets it aside
            continue
        if mine and row["error"] is not None:
            raise NotFound(f"There is no job {job_id}: what asked for it in a transaction was refused. {row['error']}")
        if mine:
            return True
    return False


class _Named(msgspec.Struct, frozen=True):
    tenant: str | None = None


def taking(rows: Sequence[Waiting]) -> Take:
    """Return what removes rows by the ids of their jobs, in the transaction that stores these.

    Left out is what a rival has, and what became a job before: a row's id is the name of its work.
    """
    names = {row.id: row.name for row in rows}

    async def take(transaction: Statements, ids: Sequence[UUID]) -> set[UUID]:
        taken = await _take(transaction, {names[job_id]: job_id for job_id in ids})
        return taken - {row["id"] for row in await transaction.fetch(SQL.known, ids=sorted(taken))}

    return take


async def _take(transaction: Statements, ids: Mapping[str, UUID]) -> set[UUID]:
    return {ids[row["name"]] for row in await transaction.fetch(SQL.take_rows, names=sorted(ids))}


async def end_finished(db: Statements, rows: Sequence[Waiting]) -> tuple[list[Moved], list[UUID]]:
    """End the jobs of finishes as succeeded; return the moves, and rows that named no lease, which are gone too."""
    if not rows:
        return [], []
    results = {row.id: row.payload for row in rows}
    fences = {row.id: row.fence or 0 for row in rows}
    async with db.transaction() as transaction:
        taken = await _take(transaction, {row.name: row.id for row in rows})
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
    return list(moved.values()), sorted(taken - moved.keys())


async def keep(db: Statements, kept: Sequence[Kept]) -> None:
    """Set rows aside, or put them off."""
    if kept:
        await db.fetch(SQL.keep_rows, kept=[(row.name, storable(row.error), row.wait_ms) for row in kept])
