"""The store: the steps of a job's path, alone and together, beside the floor.

`steps` has each step and the whole cycle by itself on one connection; `pipeline` claims on one connection and
completes into history on another at the same time; `cost` counts what a job writes and how many statements it takes.
What the store does with millions of other rows in it is in growth.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from math import nan
from statistics import median

from windlass.bench import rounds
from windlass.bench.count import CountingStatements
from windlass.bench.floor import Floor, open_floor
from windlass.bench.measure import ROUNDS, Cell, Comparison, Round, alternate, once
from windlass.bench.ours import Ours, open_ours
from windlass.bench.rivals import Rival
from windlass.bench.scratch import connected, scratch
from windlass.bench.wholecost import Costs, postmaster

BATCHES = (1, 10, 100, 500, 1000)
PARTS = ("steps", "pipeline", "cost")
MANY_LANES = 20
COUNTED_BATCH = 100
COUNTED_CYCLES = 20
PIPELINE_ROUNDS_LONGER = 2.5
"""Two tasks need a while to find their stride."""

CPU_ROUNDS_LONGER = 20
"""Filled for a rate that is so many times the first guess: it must not run empty."""

# What the ratio of claim + complete is to reach in one lane.
GOALS = {("postgres", 100): 0.55, ("postgres", 500): 0.55, ("sqlite", 100): 0.35, ("sqlite", 500): 0.35}

_STEPS: dict[str, Callable[[Rival, int], Round]] = {
    "submit": rounds.submitting,
    "claim": rounds.claiming,
    "complete": rounds.completing,
    "whole cycle": rounds.cycling,
}


@asynccontextmanager
async def store_cells(url: str, *, parts: tuple[str, ...], seconds: float) -> AsyncIterator[list[Cell]]:
    """Open scratch databases like the one at `url` and yield what is to be measured in them."""
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(scratch(url))
        ours = await stack.enter_async_context(open_ours(place))
        floor = await stack.enter_async_context(open_floor(place))
        version = await ours.db.version()
        cells: list[Cell] = []
        if "steps" in parts:
            cells += _steps(ours, floor, version, seconds)
        if "pipeline" in parts:
            elsewhere = await stack.enter_async_context(scratch(url))
            many = await stack.enter_async_context(open_ours(elsewhere, lanes=MANY_LANES))
            cells += _pipeline(ours, many, floor, version, seconds)
        if "cost" in parts:
            cells += _cost(ours, floor, version, place, seconds)
        yield cells


def _steps(ours: Ours, floor: Floor, version: str, seconds: float) -> list[Cell]:
    def cell(name: str, batch: int) -> Cell:
        rounds_of = _STEPS[name]

        async def run() -> Comparison:
            floor.keeps, floor.tuned = False, False
            return await alternate(rounds_of(ours, batch), rounds_of(floor, batch), seconds=seconds)

        return Cell(part="steps", name=name, database=version, batch=batch, run=run)

    return [cell(name, batch) for name in _STEPS for batch in BATCHES]


def _pipeline(ours: Ours, many: Ours, floor: Floor, version: str, seconds: float) -> list[Cell]:
    span = seconds * PIPELINE_ROUNDS_LONGER

    def cell(rival: Ours, lanes: int, batch: int, *, keeps: bool = False, tuned: bool = False) -> Cell:
        async def run() -> Comparison:
            floor.keeps, floor.tuned = keeps, tuned
            return await alternate(rounds.overlapping(rival, batch), rounds.overlapping(floor, batch), seconds=span)

        against = ", floor keeps jobs" if keeps else ", tuned floor" if tuned else ""
        name = f"claim + complete, {lanes} {'lane' if lanes == 1 else 'lanes'}{against}"
        goal = GOALS.get((ours.db.dialect, batch)) if lanes == 1 and not against else None
        return Cell(part="pipeline", name=name, database=version, batch=batch, goal=goal, run=run)

    cells = [cell(ours, 1, batch) for batch in (100, 500)]
    cells += [cell(many, MANY_LANES, batch) for batch in (100, 500)]
    cells += [cell(ours, 1, batch, keeps=True) for batch in (100, 500)]
    if ours.db.dialect == "postgres":
        cells += [cell(ours, 1, batch, tuned=True) for batch in (100, 500)]
    return cells


def _cost(ours: Ours, floor: Floor, version: str, place: str, seconds: float) -> list[Cell]:
    def cell(name: str, unit: str, batch: int, run: Callable[[], Awaitable[Comparison]]) -> Cell:
        return Cell(part="cost", name=name, database=version, batch=batch, unit=unit, run=run)

    async def statements() -> Comparison:
        counting = CountingStatements(ours.db)
        watched = ours.on(counting)
        await watched.clear()
        await rounds.cycle(watched, COUNTED_BATCH)  # lanes are made once, not for every job
        before = counting.statements
        for _ in range(COUNTED_CYCLES):
            await rounds.cycle(watched, COUNTED_BATCH)
        # The floor: one statement each to submit, claim and complete.
        return once((counting.statements - before) / (COUNTED_CYCLES * COUNTED_BATCH), 3 / COUNTED_BATCH)

    async def wal() -> Comparison:
        floor.keeps, floor.tuned = True, False
        return once(await _wal_of(ours, place), await _wal_of(floor, place))

    def cpu(batch: int) -> Callable[[], Awaitable[Comparison]]:
        async def run() -> Comparison:
            floor.keeps, floor.tuned = True, True
            costs = [await _cpu_of(rival, place, batch, seconds) for rival in (ours, floor) * ROUNDS]
            return once(median(costs[::2]), median(costs[1::2]))

        return run

    cells = [cell("whole cycle, statements", "statements/job", COUNTED_BATCH, statements)]
    if ours.db.dialect == "postgres":
        cells.append(cell("whole cycle, WAL", "bytes/job", COUNTED_BATCH, wal))
        cells += [cell("claim + complete, CPU of the database", "µs/job", batch, cpu(batch)) for batch in (100, 500)]
    return cells


async def _wal_of(rival: Rival, place: str) -> float:
    await rival.clear()
    async with connected(place) as connection:
        # A checkpoint in between would add whole pages that are not the jobs'.
        await connection.execute("CHECKPOINT")
        await rounds.cycle(rival, COUNTED_BATCH)
        before = await connection.fetchval("SELECT pg_current_wal_insert_lsn()")
        for _ in range(COUNTED_CYCLES):
            await rounds.cycle(rival, COUNTED_BATCH)
        written = await connection.fetchval("SELECT pg_current_wal_insert_lsn() - $1::pg_lsn", before)
    return float(written) / (COUNTED_CYCLES * COUNTED_BATCH)


async def _cpu_of(rival: Rival, place: str, batch: int, seconds: float) -> float:
    """Return the CPU of the database for one job, claimed and completed; not a number if it is on another machine."""
    await rounds.Filling(rival, batch=batch).before(seconds * CPU_ROUNDS_LONGER)
    process = await postmaster(place)
    costs = Costs({} if process is None else {"database": [process]})
    watch = await rounds.overlap(rival, batch, seconds=seconds)
    return costs.us_per_job(watch.jobs).get("database", nan)
