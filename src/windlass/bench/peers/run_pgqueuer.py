"""PGQueuer, as its documentation says it is fast: asyncpg, uvloop, batches, its own vacuum settings.

It keeps a log row of each finished job, and no results.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from importlib import import_module
from typing import Any

stage: Any = import_module("stage")
asyncpg: Any = import_module("asyncpg")
uvloop: Any = import_module("uvloop")
pgqueuer: Any = import_module("pgqueuer")
driver: Any = import_module("pgqueuer.db")
queries: Any = import_module("pgqueuer.queries")

BATCH = 100
FILL = 1_000
BODY = json.dumps(stage.PAYLOAD).encode()
FINISHED = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"


async def connect(url: str) -> tuple[Any, Any]:
    """Return a connection and the queries on it."""
    connection = await asyncpg.connect(url)
    return connection, queries.Queries(driver.AsyncpgDriver(connection))


async def prepare(url: str) -> None:
    """Make the tables."""
    _, store = await connect(url)
    await store.install()
    await store.optimize_autovacuum()


async def fill(url: str, count: int) -> None:
    """Submit jobs."""
    _, store = await connect(url)
    for start in range(0, count, FILL):
        size = min(FILL, count - start)
        await store.enqueue(["noop"] * size, [BODY] * size, [0] * size)


async def work(url: str, folder: str) -> None:
    """Run jobs until SIGTERM."""
    connection, _ = await connect(url)
    queue = pgqueuer.PgQueuer(driver.AsyncpgDriver(connection))
    tally = stage.Tally(folder)

    @queue.entrypoint("noop")  # type: ignore[untyped-decorator]
    async def noop(job: Any) -> None:
        tally.mark()
        json.loads(job.payload)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    await asyncio.to_thread(stage.ready)
    await queue.run(batch_size=BATCH)


def looked(loop: asyncio.AbstractEventLoop, url: str, count: int) -> None:
    """Say when so many jobs are finished."""
    connection, _ = loop.run_until_complete(connect(url))
    stage.until_done(count, lambda: loop.run_until_complete(connection.fetchval(FINISHED)))


def timed(loop: asyncio.AbstractEventLoop, url: str, folder: str, count: int) -> None:
    """Submit one job at a time."""
    _, store = loop.run_until_complete(connect(url))
    stage.pickups(folder, count, lambda: loop.run_until_complete(store.enqueue("noop", BODY, 0)))


def main(verb: str, url: str, *more: str) -> None:
    """Do one of the verbs."""
    loop = uvloop.new_event_loop()
    if verb == "prepare":
        loop.run_until_complete(prepare(url))
    elif verb == "fill":
        loop.run_until_complete(fill(url, int(more[0])))
    elif verb == "work":
        loop.run_until_complete(work(url, more[0]))
    elif verb == "done":
        looked(loop, url, int(more[0]))
    elif verb == "pickup":
        timed(loop, url, more[0], int(more[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
