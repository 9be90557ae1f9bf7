"""Outbox: what an application said inside a transaction of its own, read after its commit and done once.

`windlass.enqueue` and `windlass.finish` (migration 0001) write rows here; on SQLite the application does so itself.
A row to enqueue leaves in the transaction that stores its job (submit.py), under the row's id: one row, one job.
So its id must be a UUIDv7, of a time at most a week ahead; any past one will do.
A finish has taken its lease out of reach already; its row leaves in the transaction that ends the job (moves.py).
Rows that are being done by a rival are skipped. Who reads them, and when: engine/relay.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from windlass.clock import to_us
from windlass.db import Database, Row, Statements, load
from windlass.errors import NotFound
from windlass.ids import ms_of
from windlass.job import Outcome
from windlass.queue import moves
from windlass.queue.moves import LeaseName, Move, Moved, Record
from windlass.queue.newjob import storable
from windlass.queue.submit import Take

SQL = load(__file__)

RELAY_BATCH = 500
NEAR, FAR = timedelta(minutes=1), timedelta(days=7)
"""How far an id may be ahead of the database's clock: surely there is a partition for it; no job may have it."""
_NO_UUIDV7 = (
    "Its id is no UUIDv7, and jobs are ordered by the time that their ids tell. "
    "Give the row a UUIDv7 and clear its error, or enqueue the job anew."
)
_TOO_FAR_AHEAD = (
    "Its id tells a time that is {} ahead of the database's clock, and jobs of that time are not taken yet: "
    "the clock of the application is wrong. Set it right, then give the row a new UUIDv7 and clear its error, "
    "or enqueue the job anew."
)


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


async def waiting(db: Database, *, limit: int = RELAY_BATCH) -> tuple[list[Waiting], list[Kept]]:
    """Return rows that are due, first written first, and those that cannot be read, or have a bad id, and why."""
    rows: dict[UUID, Waiting] = {}
    refused: list[Kept] = []
    for row in await db.fetch(SQL.waiting, limit=limit):
        try:
            read = _read(row)
        except (ValueError, msgspec.ValidationError) as problem:
            refused.append(Kept(row["name"], error=f"It cannot be read: {problem}."))
            continue
        if read.kind == "enqueue" and read.id.version != 7:
            refused.append(Kept(read.name, error=_NO_UUIDV7))
        else:
            # The same id in another spelling has its turn when this one is done.
            rows.setdefault(read.id, read)
    for job_id, ahead in (await _too_far_ahead(db, rows.values())).items():
        refused.append(Kept(rows.pop(job_id).name, error=_TOO_FAR_AHEAD.format(ahead)))
    return list(rows.values()), refused


async def _too_far_ahead(db: Database, rows: Iterable[Waiting]) -> dict[UUID, timedelta]:
    """Return the ids that tell a time too far ahead, with how far: a week, or where there is no partition yet."""
    now_s = to_us(db.now()) // 1_000_000
    ahead = {row.id: timedelta(seconds=ms_of(row.id) // 1000 - now_s) for row in rows if row.kind == "enqueue"}
    asked = sorted(job_id for job_id, span in ahead.items() if NEAR < span <= FAR)
    beyond = {row["id"] for row in await db.fetch(SQL.beyond, ids=asked)} if asked else set()
    return {job_id: span for job_id, span in ahead.items() if span > FAR or job_id in beyond}


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
