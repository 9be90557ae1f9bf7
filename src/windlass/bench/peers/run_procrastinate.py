"""Procrastinate with psycopg's pool, uvloop and many jobs at once; finished jobs are kept, as by default.

It keeps each job with its events, and no results.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from importlib import import_module
from typing import Any

stage: Any = import_module("stage")
uvloop: Any = import_module("uvloop")
psycopg: Any = import_module("psycopg")
procrastinate: Any = import_module("procrastinate")

CONCURRENCY = 20
FILL = 1_000
FINISHED = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"


def application(url: str, tally: Any) -> tuple[Any, Any]:
    """Return the application and its task."""
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=CONCURRENCY // 2, max_size=CONCURRENCY)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop")  # type: ignore[untyped-decorator]
    async def noop(order: int, to: str, note: str) -> dict[str, bool]:
        tally.mark()
        result: dict[str, bool] = stage.RESULT
        return result

    return app, noop


async def prepare(url: str) -> None:
    """Make the tables."""
    app, _ = application(url, None)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def fill(url: str, count: int) -> None:
    """Submit jobs."""
    app, noop = application(url, None)
    async with app.open_async():
        for start in range(0, count, FILL):
            await noop.batch_defer_async(*[stage.PAYLOAD] * min(FILL, count - start))


async def work(url: str, folder: str) -> None:
    """Run jobs until SIGTERM."""
    logging.disable()
    app, _ = application(url, stage.Tally(folder))
    async with app.open_async():
        await asyncio.to_thread(stage.ready)
        await app.run_worker_async(concurrency=CONCURRENCY)


def looked(url: str, count: int) -> None:
    """Say when so many jobs are finished."""
    with psycopg.connect(url, autocommit=True) as connection:
        stage.until_done(count, lambda: connection.execute(FINISHED).fetchone()[0])


def timed(url: str, folder: str, count: int) -> None:
    """Submit one job at a time, by the synchronous call of the application."""
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
    with app.open():
        stage.pickups(folder, count, lambda: app.configure_task("noop").defer(**stage.PAYLOAD))


def main(verb: str, url: str, *more: str) -> None:
    """Do one of the verbs."""
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    if verb == "prepare":
        loop.run_until_complete(prepare(url))
    elif verb == "fill":
        loop.run_until_complete(fill(url, int(more[0])))
    elif verb == "work":
        loop.run_until_complete(work(url, more[0]))
    elif verb == "done":
        looked(url, int(more[0]))
    elif verb == "pickup":
        timed(url, more[0], int(more[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
