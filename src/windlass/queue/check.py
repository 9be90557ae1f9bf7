"""Check: the invariants that every state of the database must keep, as queries; an empty answer is good.

The names are those of the reliability handbook. Each query is one statement, so it sees one snapshot and may be run
beside live servers.
"""

from __future__ import annotations

import msgspec

from windlass.db import Statements, load

SQL = load(__file__)

SHOWN = 20
"""Violations told of one invariant; more of the same kind add nothing."""

INVARIANTS = (
    SQL.i3_unique_keys,
    SQL.i4_one_end,
    SQL.i5_fences,
    SQL.i10_attempts,
    SQL.i12_pending,
    SQL.i15_limits,
    SQL.i20_times,
    SQL.i21_one_place,
    SQL.i22_leases,
    SQL.outbox,
    SQL.partitions,
    SQL.pauses,
    SQL.references,
    SQL.schedules,
    SQL.slots,
)


class Violation(msgspec.Struct, frozen=True):
    """One thing that must not be: which invariant, of what, and what was found."""

    invariant: str
    subject: str
    detail: str


async def check(db: Statements) -> list[Violation]:
    """Return every violation of the invariants, the first few of each; an empty list when all hold."""
    return [
        Violation(query.name, row["subject"], row["detail"])
        for query in INVARIANTS
        for row in await db.fetch(query, limit=SHOWN)
    ]
