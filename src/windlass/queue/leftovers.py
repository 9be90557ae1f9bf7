"""Leftovers: what bears a tenant's name and is worth nothing without the tenant.

It goes with the tenant (tenants.py, erasure.py). A worker whose key is believed for two more seconds may write under
the name after that: who makes a tenant of a deleted name, by `tenants.create` or by the first use of a lane (lanes.py),
removes that first, so that the next owner of the name reads nothing of it.
"""

from __future__ import annotations

from windlass.db import Query, Statements, load

SQL = load(__file__)

ROWS = 1000
"""Rows removed by one statement."""
NAMED = (
    SQL.leave_sessions,
    SQL.remove_idempotency,
    SQL.remove_tasks,
    SQL.remove_pauses,
    SQL.remove_stats,
)


async def remove_late(transaction: Statements, name: str, *, was_there: bool = False) -> None:
    """Remove what came under the name of a deleted tenant, whose name has been given again in this transaction.

    A name that was never deleted keeps its workers: they may come before the tenant is made.
    """
    if was_there or await transaction.fetch(SQL.was_deleted, tenant=name):
        await remove_named(transaction, name)


async def remove_named(db: Statements, name: str) -> None:
    """Remove what bears the name of a tenant, in short transactions, or in the one that is open."""
    for query in NAMED:
        await remove_rows(db, query, name)


async def remove_rows(db: Statements, query: Query, name: str) -> None:
    """Remove what one query finds of a tenant, portion by portion."""
    while (await db.fetch(query, tenant=name, limit=ROWS))[0]["removed"] >= ROWS:
        pass
