"""A server to be stopped: a process of its own that does one duty, promotion, and waits in the midst of it.

    python -m tests.engine.loops_process URL before    waits before its statement
    python -m tests.engine.loops_process URL inside    waits in its transaction, before COMMIT

It says `begun` where it waits, goes on when a line is sent to it, and says what became of it.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import UUID, uuid4

from tests.engine.loops_world import Pace, Wake
from windlass.db import Database, open_database
from windlass.engine.duty import Duty, Ran
from windlass.engine.loops import Loops
from windlass.queue import timers

PACE = Pace(heartbeat_seconds=0.5, lease_seconds=2.0, standby_seconds=0.2)


async def told() -> None:
    """Say that the duty is in the midst of its work, and wait for a line."""
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def promote(db: Database, where: str) -> int:
    """Promote what is due, with a wait before or inside."""
    if where == "before":
        await told()
        return len(await timers.promote(db))
    async with db.transaction() as transaction:
        promoted = await timers.promote(transaction)
        await told()
    return len(promoted)


def loops(db: Database, run: Duty, holder: UUID) -> Loops:
    """Return a server with this duty, on the real clock."""
    return Loops(db, Wake(), [run], holder=holder, server="same", settings=PACE)


async def main(url: str, where: str) -> None:
    """Do the duty until killed."""

    async def run(db: Database, most: int) -> Ran:
        try:
            promoted = await promote(db, where)
        except BaseException as error:
            print(type(error).__name__, flush=True)
            raise
        print(f"promoted {promoted}", flush=True)
        return Ran(promoted)

    db = await open_database(url)
    await loops(db, Duty("promote", run, 0.1), uuid4()).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
