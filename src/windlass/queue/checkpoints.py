"""Checkpoints: how far an attempt is, and from where a later one goes on.

A worker notes both while it holds the lease; the guard stands in the statement, so a worker whose lease is gone
changes nothing, and a later attempt's word is never undone by an earlier one. When a lease ends and its job goes on, a
job that has a checkpoint is marked on its place row (moves.py): only for such a claim (claim.py) is followed by a look.
The row stays as long as the job lives or lies among the dead letters; the rest is swept by retention.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.queue.newjob import check_json

SQL = load(__file__)


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What the holder of a lease tells; None: nothing is said of that. Texts are JSON, kept as received."""

    job_id: UUID
    fence: int
    worker: str
    session: UUID | None = None
    tenant: str = "default"
    progress: str | None = None
    checkpoint: str | None = None


class Kept(msgspec.Struct, frozen=True):
    """What is kept of a job's attempts."""

    fence: int
    """Of the attempt that told it last."""
    progress: str | None
    checkpoint: str | None
    updated_at: datetime


async def keep(db: Statements, notes: Sequence[Note]) -> set[UUID]:
    """Keep what the holders of leases tell, of others nothing; return the jobs of which something was kept."""
    for note in notes:
        check_note(note)
    merged = _merged(notes)
    if not merged:
        return set()
    async with db.transaction() as transaction:
        await transaction.fetch(SQL.lock_notes, notes=merged)
        return {row["job_id"] for row in await transaction.fetch(SQL.keep, notes=merged)}


def check_note(note: Note) -> None:
    """Return if the texts are JSON that can be stored; InvalidInput otherwise."""
    for field in ("progress", "checkpoint"):
        text = getattr(note, field)
        if text is not None:
            check_json(field, text)


async def sizes(db: Statements, ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return how many bytes are kept of each job; those of which nothing is are left out."""
    if not ids:
        return {}
    return {row["job_id"]: row["size"] for row in await db.fetch(SQL.sizes, ids=[(job_id,) for job_id in ids])}


async def find(db: Statements, ids: Sequence[UUID]) -> dict[UUID, Kept]:
    """Return what is kept of the jobs, by id; those of which nothing is are left out."""
    if not ids:
        return {}
    rows = await db.fetch(SQL.read, ids=[(job_id,) for job_id in ids])
    return {row["job_id"]: Kept(row["fence"], row["progress"], row["value"], row["updated_at"]) for row in rows}


def _merged(notes: Sequence[Note]) -> list[tuple[object, ...]]:
    """Return one row for each lease that is named; of each field the last word counts."""
    told: dict[tuple[UUID, int, UUID | None, str, str], tuple[str | None, str | None]] = {}
    for note in notes:
        name = (note.job_id, note.fence, note.session, note.worker, note.tenant)
        progress, checkpoint = told.get(name, (None, None))
        told[name] = (
            progress if note.progress is None else note.progress,
            checkpoint if note.checkpoint is None else note.checkpoint,
        )
    return [(*name, *words) for name, words in sorted(told.items(), key=lambda item: item[0][:2]) if any(words)]
