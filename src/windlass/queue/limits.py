"""Limits: how many jobs of a queue may run at once, and how fast they may start. Exact, without counters.

Under the lock of the queue's own lane row the leased rows are counted in the next statement, and the claim gets what
is left as its quota. Nothing can leak, because nothing is kept. The rate is one timestamp on the same row (GCRA):
it moves by what was really claimed. A full queue costs the claim nothing: with quota 0 its rows are not visited.

Claims mark the leases of limited queues, and an index has only these. A limit that is switched on finds leases without
the mark, and claims that began before it may add some: until none can, all leases are counted, then the rest is marked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.queue.claim import Claimed, Group, Want, claim

SQL = load(__file__)

UNSEEN_MS = 60_000
"""How long a claim may be under way that has not seen a limit: longer than the database lets it (db/postgres.py)."""
_ALL_MARKED = 2


class Limited(msgspec.Struct, frozen=True):
    """What was claimed from a limited queue, and whether its limits were what kept it from being more."""

    jobs: list[Claimed]
    full: bool = False
    again_s: float | None = None
    """In how many seconds its rate lets the next job start."""


async def claim_limited(db: Statements, queue: int, lanes: Sequence[int], slots: Sequence[UUID]) -> Limited:
    """Claim from the lanes of one limited queue, whose own row is `queue`; never more than its limits allow."""
    async with db.transaction() as transaction:
        rows = await transaction.fetch(SQL.lock_queue, queue=queue, unseen_ms=UNSEEN_MS)
        if not rows:
            return Limited([])
        limit = rows[0]
        if limit["counted"] == 1:
            await transaction.fetch(SQL.mark_leases, queue=queue)
            await transaction.fetch(SQL.all_marked, queue=queue)
        count_all = SQL.count_running if limit["counted"] == _ALL_MARKED else SQL.count_leased
        [count] = await transaction.fetch(count_all, queue=queue)
        quota = min(len(slots), *_allowances(limit, count["running"]))
        if quota < 1:
            return Limited([], full=True, again_s=_again_s(limit, 0))
        jobs = await claim(transaction, [Group([Want(lane) for lane in lanes], slots[:quota])], queue=queue)
        if jobs and limit["rate_per_s"] is not None:
            await transaction.fetch(SQL.charge_rate, queue=queue, spent_ms=len(jobs) * 1000 / limit["rate_per_s"])
    full = len(jobs) == quota < len(slots)
    return Limited(jobs, full, _again_s(limit, len(jobs)) if full else None)


def _again_s(limit: Row, claimed: int) -> float | None:
    """Return when the rate has room for one more, after so many were just claimed; None without a rate."""
    if limit["rate_per_s"] is None:
        return None
    spent: float = limit["ahead_s"] * limit["rate_per_s"] + claimed
    return max(float((spent - (limit["burst"] or 1) + 1) / limit["rate_per_s"]), 0.0)


def _allowances(limit: Row, running: int) -> list[int]:
    allowed = []
    if limit["max_running"] is not None:
        allowed.append(limit["max_running"] - running)
    if limit["rate_per_s"] is not None:
        burst = limit["burst"] or 1
        allowed.append(math.floor(burst - limit["ahead_s"] * limit["rate_per_s"] + 1e-9))
    return allowed or [2**31]
