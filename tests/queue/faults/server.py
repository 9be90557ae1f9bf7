"""A server to be killed: a process of its own, which uses the library and dies with SIGKILL where it is told to.

    python -m tests.queue.faults.server URL INSTANT once STEP ARGUMENTS    does one step and dies before it answers
    python -m tests.queue.faults.server URL INSTANT store                  stores jobs until it is killed
    python -m tests.queue.faults.server URL INSTANT checkpoint [PAGES]     the same, with a checkpoint after each batch

The clock stands at INSTANT. Of jobs that are committed it says their ids, a line for a batch; of a checkpoint that it
begins. With PAGES its first checkpoint cannot write beyond so many more, and it dies in the midst of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from windlass.db import Database, open_database
from windlass.errors import Unavailable
from windlass.ids import Ids
from windlass.queue.claim import Group, Want, claim
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Fail, report
from windlass.queue.submit import submit

BATCH = 20
PAGE_BYTES = 4096
PAYLOAD = f'"{"x" * 2000}"'
CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"
BEGINS = "checkpoint"


async def step(db: Database, name: str, given: dict[str, Any]) -> None:
    """Do one step; when this returns it is committed."""
    if name == "submit":
        await submit(db, Lanes(), [NewJob(**given | {"id": UUID(given["id"])})])
    elif name == "claim":
        assert await claim(db, [Group([Want(lane) for lane in given["lanes"]], [UUID(given["session"])])])
    else:
        kind = {"complete": Complete, "fail": Fail}[name]
        said = kind(**given | {"job_id": UUID(given["job_id"]), "session": UUID(given["session"])})
        await report(db, [said], chance=lambda: 0.0)


async def store(db: Database, *, checkpoints: bool, pages: int | None) -> None:
    """Store batches of jobs for ever."""
    ids, lanes = Ids(db.now), Lanes()
    while True:
        jobs = [NewJob(id=ids.new(), task="task", payload=PAYLOAD) for _ in range(BATCH)]
        print(*(answer.id for answer in await submit(db, lanes, jobs)), flush=True)
        if checkpoints:
            print(BEGINS, flush=True)
            if pages is not None:
                allow_pages(db, pages)
            with suppress(Unavailable):
                await db.maintain(CHECKPOINT)
            if pages is not None:
                die()


def allow_pages(db: Database, pages: int) -> None:
    """Let the file grow by so many pages and no more."""
    path: Path = db.path  # type: ignore[attr-defined]
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + pages * PAGE_BYTES, hard))


def die() -> None:
    """End as a process does that the machine kills: nothing is closed, nobody is told."""
    os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, instant: str, what: str, *arguments: str) -> None:
    """Do what the command line says."""
    at = datetime.fromisoformat(instant)
    db = await open_database(url, clock=lambda: at)
    if what == "once":
        await step(db, arguments[0], json.loads(arguments[1]))
        die()
    pages = int(arguments[0]) if arguments else None
    await store(db, checkpoints=what == "checkpoint", pages=pages)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
