"""Free pages of a SQLite file: what deleted rows took is given back to the disk, a few pages at a time.

A file is made with `auto_vacuum = INCREMENTAL` (sqlite.py), so pages that hold nothing can be cut off its end.
PostgreSQL gives back whole partitions (partitions.py, spans.py).
"""

from __future__ import annotations

from windlass.db.base import Database
from windlass.db.sqlfile import load

SQL = load(__file__)

STEP_PAGES = 1000
"""Given back in one transaction (4 MiB), so that whoever wants to write waits some milliseconds."""


async def give_back(db: Database, *, step: int = STEP_PAGES) -> int:
    """Cut the free pages off the file and return how many; 0 on PostgreSQL, and of a file made without them."""
    first = free = await _free(db)
    while free:
        await db.maintain(f"PRAGMA incremental_vacuum({step})")
        before, free = free, await _free(db)
        if free >= before:  # a file that cannot give them back, or others free as fast as we cut off
            break
    if free < first:
        # The file itself is cut when the log is copied into it; passive, so it waits for nobody.
        await db.maintain("PRAGMA wal_checkpoint(PASSIVE)")
    return max(first - free, 0)


async def _free(db: Database) -> int:
    [row] = await db.fetch(SQL.free_pages)
    return int(row["pages"])
