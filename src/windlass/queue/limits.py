"""Limits: how many jobs of a queue may run at once, and how fast they may start. Exact, without counters.

Under the lock of the queue's own lane row the leased rows are counted in the next statement, and the claim gets what
is left as its quota. Nothing can leak, because nothing is kept. The rate is one timestamp on the same row (GCRA):
it moves by what was really claimed. A full queue costs the claim nothing: with quota 0 its rows are not visited.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from uuid import UUID

from windlass.db import Row, Statements, load
from windlass.queue.claim import Claimed, Group, Want, claim

SQL = load(__file__)


async def claim_limited(db: Statements, queue: int, lanes: Sequence[int], slots: Sequence[UUID]) -> list[Claimed]:
    """Claim from the lanes of one limited queue, whose own row is `queue`; never more than its limits allow."""
    async with db.transaction() as transaction:
        rows = await transaction.fetch(SQL.lock_queue, queue=queue)
        if not rows:
            return []
        [count] = await transaction.fetch(SQL.count_running, queue=queue)
        quota = min(len(slots), *_allowances(rows[0], count["running"]))
        if quota < 1:
            return []
        jobs = await claim(transaction, [Group([Want(lane) for lane in lanes], slots[:quota])], queue=queue)
        if jobs and rows[0]["rate_per_s"] is not None:
            await transaction.fetch(SQL.charge_rate, queue=queue, spent_ms=len(jobs) * 1000 / rows[0]["rate_per_s"])
    return jobs


def _allowances(limit: Row, running: int) -> list[int]:
    allowed = []
    if limit["max_running"] is not None:
        allowed.append(limit["max_running"] - running)
    if limit["rate_per_s"] is not None:
        burst = limit["burst"] or 1
        allowed.append(math.floor(burst - limit["ahead_s"] * limit["rate_per_s"] + 1e-9))
    return allowed or [2**31]
