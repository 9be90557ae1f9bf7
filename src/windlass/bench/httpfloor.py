"""The raw driver on as many connections as the server has callers: what the database alone allows.

Each connection works for itself, one commit per request, without a server in between (floor.py has the statements).
On SQLite all of them share the one writer thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter
from typing import Any

from windlass.bench import rounds
from windlass.bench.floor import Floor, PostgresFloor, SqliteFloor, open_floor
from windlass.bench.measure import Round, Stopwatch
from windlass.bench.scratch import connected


@asynccontextmanager
async def open_floors(url: str, count: int) -> AsyncIterator[list[Floor]]:
    """Make the floor's table in the scratch database `url`, and yield `count` that work on it at once."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_floor(url))
        first.keeps = first.tuned = True
        floors: list[Floor] = [first]
        for _ in range(count - 1):
            if isinstance(first, SqliteFloor):
                floors.append(first)
            else:
                connection = await stack.enter_async_context(connected(url, jit="off"))
                floor = PostgresFloor(connection, connection)
                floor.keeps = floor.tuned = True
                floors.append(floor)
        yield floors


def submitting(floors: list[Floor], batch: int) -> Round:
    """Insert batches on every connection at once."""
    return _at_once(floors, batch, lambda floor: floor.submit(batch))


def cycling(floors: list[Floor], batch: int) -> Round:
    """Insert, claim and complete a batch, one after the other, on every connection at once."""
    return _at_once(floors, batch, lambda floor: rounds.cycle(floor, batch))


def _at_once(floors: list[Floor], batch: int, work: Callable[[Floor], Coroutine[Any, Any, None]]) -> Round:
    async def run(seconds: float) -> float:
        await floors[0].clear()
        watch = Stopwatch(seconds)

        async def one(floor: Floor) -> None:
            while watch.running:
                await work(floor)
                watch.jobs += batch

        await asyncio.gather(*(one(floor) for floor in floors))
        return watch.rate

    return run


async def commit_times_ms(floor: Floor, count: int) -> list[float]:
    """Return how long `count` commits of one row took, one after the other."""
    times = []
    for _ in range(count):
        start = perf_counter()
        await floor.submit(1)
        times.append((perf_counter() - start) * 1000)
    return times
