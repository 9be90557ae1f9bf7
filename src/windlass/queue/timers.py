"""Timers: jobs that are not due yet become ready when they are.

Scheduled jobs, retries, sleeps and snoozes wait in `timer`, apart from the hot rows: ten million of them cost a claim
nothing. Promotion is safe on every server at once: rows that another one has locked are skipped.
A paused timer goes to held. One past its start deadline is promoted all the same; no claim takes it, and
deadlines.py ends it.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from windlass.db import Statements, load

SQL = load(__file__)

PROMOTE_BATCH = 2000


class Promoted(msgspec.Struct, frozen=True):
    """A job that has become due, and where it now stands, so that claimers can be woken."""

    id: UUID
    lane: int
    rank: int
    place: int


async def promote(db: Statements, *, limit: int = PROMOTE_BATCH) -> list[Promoted]:
    """Move up to `limit` due timers into the queue, the earliest first; an empty list when nothing is due."""
    rows = await db.fetch(SQL.promote, limit=limit)
    return [Promoted(row["id"], row["lane"], row["rank"], row["place"]) for row in rows]
