"""Rescue: jobs of workers that are gone go to others.

A session that has not been heard for its lease is declared dead; each lease it held is lost (retry.py decides what
follows). Dead sessions are looked at again and again, because a claim may commit just after one was declared dead.
An ended session is kept for a day; that of a bare caller for a minute, or there would be one for every job.
Our own silence is not the worker's fault: each run leaves a pulse, and after a gap between pulses of more than a third
of its lease a session gets one full lease to be heard before it is declared dead (L11).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.queue import moves, workers
from windlass.queue.moves import LeaseName, Moved
from windlass.queue.report import Chance

SQL = load(__file__)

RESCUE_BATCH = 500
SESSION_KEEP_MS = 24 * 3600 * 1000
"""How long an ended session is shown, and looked at for a claim that commits late."""
BARE_KEEP_MS = 60_000
"""The same for bare callers, who have one for every job: twice as long as a statement may take."""
GAPS_MS = (10_000, 3_000, 1_000)
"""A longer silence of ours opens a quiet period for the sessions whose leases are three times as long, or longer.

The longest is for the default lease, the shortest also for all leases that are shorter still.
"""
PULSE_S = 2.0
"""How long rescue may sleep: a successor that takes 7 s to notice is then still within the longest gap."""
LEAST_PULSE_S = 0.5
"""The same where leases are short: half of the shortest gap."""


class Rescued(msgspec.Struct, frozen=True):
    """What one run did: sessions declared dead, and where their leases went."""

    sessions: list[UUID]
    moved: list[Moved]


async def rescue(
    db: Statements, *, chance: Chance, gaps_ms: Sequence[int] = GAPS_MS, limit: int = RESCUE_BATCH
) -> Rescued:
    """Declare lapsed sessions dead and end up to `limit` of the leases that sessions which ended still hold."""
    await pulse(db, gaps_ms)
    found = await db.fetch(SQL.declare_dead, gaps=_named(gaps_ms), least_ms=min(gaps_ms))
    dead = [row["id"] for row in found]
    async with db.transaction() as transaction:
        found = await transaction.fetch(SQL.orphans, limit=limit)
        named = [LeaseName(row["id"], row["fence"], row["session"]) for row in found]
        leases = await moves.lock(transaction, named, skip_locked=True)
        moved = await moves.apply(transaction, [moves.lose(lease, chance=chance()) for lease in leases])
    await workers.forget_ended(db, keep_ms=SESSION_KEEP_MS, keep_bare_ms=BARE_KEEP_MS)
    return Rescued(dead, list(moved.values()))


async def pulse(db: Statements, gaps_ms: Sequence[int] = GAPS_MS) -> None:
    """Say that rescue is awake."""
    await db.fetch(SQL.beat_pulse, gaps=_named(gaps_ms))


def _named(gaps_ms: Sequence[int]) -> list[tuple[object, ...]]:
    """Return the row of each gap; that of the longest, which comes first, is `rescue`."""
    return [("rescue" if number == 0 else f"rescue:{number}", gap_ms) for number, gap_ms in enumerate(gaps_ms)]


async def lapse_in_s(db: Statements) -> float:
    """Return in how many seconds there is something to rescue, or a pulse to leave; none or fewer if there is."""
    [row] = await db.fetch(SQL.next_lapse)
    if row["beat_at"] is None:
        return 0.0
    pulse_s = PULSE_S if row["lease_ms"] is None else min(PULSE_S, max(LEAST_PULSE_S, row["lease_ms"] / 6000))
    left_s: float = pulse_s - (row["now_at"] - row["beat_at"]).total_seconds()
    if row["expires_at"] is not None:
        left_s = min(left_s, (row["expires_at"] - row["now_at"]).total_seconds())
    return left_s
