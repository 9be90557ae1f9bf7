"""Vacuum: dead rows of the hot tables go before claims have to step over them.

Autovacuum wakes once a minute, and its few workers may be busy elsewhere; a busy queue leaves thousands of dead rows a
second. So a duty looks every few seconds (engine/duty.py) and vacuums what is worn. PostgreSQL only: SQLite has no
dead rows, and its free pages are given back by retention.py.
"""

from __future__ import annotations

from windlass.db import Database, load

SQL = load(__file__)

HOT_TABLES = ("queue", "timer", "session", "schedule_next")
LARGE_TABLES = ("schedule_next",)
"""With millions of rows that stay: reading their indexes is worth it only for a part of them, here a fiftieth."""
DEAD_ROWS = 5000
"""Fewer are not worth reading every index of a table for."""


async def vacuum(db: Database, *, dead_rows: int = DEAD_ROWS) -> list[str]:
    """Vacuum the hot tables with more than `dead_rows` dead rows, the worst first; return their names.

    One that somebody else is vacuuming, or has locked, is left alone.
    """
    rows = await db.fetch(SQL.worn, tables=list(HOT_TABLES), large=list(LARGE_TABLES), dead_rows=dead_rows)
    worn = [row["name"] for row in rows]
    for table in worn:
        await db.maintain(f"VACUUM (SKIP_LOCKED) windlass.{table}")
    return worn
