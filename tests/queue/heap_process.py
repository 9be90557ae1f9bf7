"""A list of workers with long texts, read with little memory: a process of its own, since SQLite counts by process.

    python -m tests.queue.heap_process FILE

It says how many workers the first page shows.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing

from windlass.db import open_database
from windlass.db.migrate import ensure_schema
from windlass.ids import Ids
from windlass.queue import fleet, workers
from windlass.queue.newjob import MAX_TEXT

WORKERS = 200
TEXT = "t" * MAX_TEXT
HEAP_BYTES = 20 << 20
"""What SQLite may hold, its cached pages among it: half of the texts."""


async def main(file: str) -> None:
    """Register workers in a new file and list them."""
    db = await open_database(f"sqlite:///{file}")
    ids = Ids(db.now)
    try:
        await ensure_schema(db)
        for number in range(WORKERS):
            await workers.register(
                db,
                workers.NewSession(
                    id=ids.new(), worker=f"w{number:03}", lease_ms=30_000, labels=TEXT, tasks=TEXT, queues=TEXT
                ),
            )
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"PRAGMA hard_heap_limit={HEAP_BYTES}")
        print(len((await fleet.list_workers(db, "default", limit=fleet.MAX_PAGE)).workers))
    finally:
        await db.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
