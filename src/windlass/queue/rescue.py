"""Rescue: jobs of workers that are gone go to others.

A session that has not been heard for its lease is declared dead; each lease it held is lost (retry.py decides what
follows). Dead sessions are looked at again and again, because a claim may commit just after one was declared dead.
An ended session is kept for a day; that of a bare caller for a minute, or there would be one for every job.
Our own silence is not the worker's fault: each run leaves a pulse, and a session for whose lease the gap between two
pulses was too long gets one full lease to be heard before it is declared dead.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.queue import moves, workers
from windlass.queue.moves import LeaseName, Moved
from windlass.queue.report import Chance

SQL = load(__file__)

RESCUE_BATCH = 200
SESSION_KEEP_MS = 24 * 3600 * 1000
"""How long an ended session is shown, and looked at for a claim that commits late."""
BARE_KEEP_MS = 60_000
"""The same for bare callers, who have one for every job: twice as long as a statement may take."""
TOLERANCE = 1 / 3
"""The part of its lease for which we may be silent before a session gets a full lease anew."""
PULSE_S = 2.0
"""How long rescue may sleep: a successor that takes 7 s to notice is then in time for the default lease."""
PULSES_PER_LEASE = 6
"""How often rescue is awake within the shortest lease: twice as often as our silence is tolerated."""


class Rescued(msgspec.Struct, frozen=True):
    """What one run did: sessions declared dead, and where their leases went."""

    sessions: list[UUID]
    moved: list[Moved]


async def rescue(db: Statements, *, chance: Chance, tolerance: float = TOLERANCE, limit: int = RESCUE_BATCH) -> Rescued:
    """Declare lapsed sessions dead and end up to `limit` of the leases that sessions which ended still hold."""
    await db.fetch(SQL.beat_pulse, tolerance=tolerance)
    dead = [row["id"] for row in await db.fetch(SQL.declare_dead, tolerance=tolerance)]
    async with db.transaction() as transaction:
        found = await transaction.fetch(SQL.orphans, limit=limit)
        named = [LeaseName(row["id"], row["fence"], row["session"]) for row in found]
        leases = await moves.lock(transaction, named, skip_locked=True)
        moved = await moves.apply(transaction, [moves.lose(lease, chance=chance()) for lease in leases])
    await workers.forget_ended(db, keep_ms=SESSION_KEEP_MS, keep_bare_ms=BARE_KEEP_MS)
    return Rescued(dead, list(moved.values()))
