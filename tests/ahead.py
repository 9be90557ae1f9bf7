"""Partitions for the days ahead: tests whose clock goes on make them, as servers do all the time."""

from __future__ import annotations

from windlass.db import Database
from windlass.db.partitions import make_partitions
from windlass.db.spans import make_spans


async def make_ahead(db: Database) -> None:
    """Make what is missing for the days ahead of the database's clock; a SQLite file has no partitions."""
    if db.capabilities.partitions:
        await make_partitions(db)
        await make_spans(db)
