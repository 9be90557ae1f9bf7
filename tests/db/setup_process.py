"""A first set-up to be killed: a process of its own that stops between two files of the migrations.

    python -m tests.db.setup_process URL

It says `between` where it waits.
"""

from __future__ import annotations

import asyncio
import sys

from tests.queue.races.pausing import COMMIT, Pausing, Point
from windlass.db import open_database
from windlass.db.migrate import known_migrations, migrate, read_migration

TWO = [
    *known_migrations(),
    read_migration(
        9000, "more", "-- postgres\nCREATE TABLE windlass.more (id int);\n-- sqlite\nCREATE TABLE more (id INT);\n"
    ),
]
"""As many files as there will be."""


async def stop_between_files(db: Pausing) -> Point:
    """Return when the set-up through `db` has recorded its first file, held before the next statement."""
    point = db.hold_before("record_migration")
    await point.reached.wait()
    while db.trail[-1] in ("record_migration", COMMIT):
        following = db.hold_at(len(db.trail))
        point.release()
        point = following
        await point.reached.wait()
    return point


async def main(url: str) -> None:
    """Set the database up, as far as the first file."""
    db = Pausing(await open_database(url))
    setting_up = asyncio.create_task(migrate(db, known=TWO))
    await stop_between_files(db)
    print("between", flush=True)
    await setting_up


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
