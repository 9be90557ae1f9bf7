"""Growth: the rate of claim + complete must not fall with what else lies in the database.

`growth` compares an empty database with one that holds timers, finished jobs and blocked jobs by the million.
`snapshot` (PostgreSQL) compares full load with full load while another connection holds a snapshot, so that no dead
row can be removed; it stands between two runs without. Claims then carry the rank that the last one reached, as a
dispatcher's do, and look from the bottom of the lane again every 1.5 s. Tables are just filled and never analysed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext

from windlass.bench import rounds
from windlass.bench.measure import Cell, Comparison, alternate
from windlass.bench.ours import Ours, open_ours
from windlass.bench.scratch import connected, is_postgres, scratch

BATCH = 100
FLAT_GOAL, SNAPSHOT_GOAL = 0.95, 0.8
CHUNK = 100_000
ROUNDS_LONGER = 5
PROBE_S = 3.0
"""How long the rate is measured that decides how many jobs a held snapshot needs."""
BLOCKED_SHARE = 10
"""One blocked job for so many timers."""


@asynccontextmanager
async def growth_cells(
    url: str, *, rows: int, hold_s: float, seconds: float, note: Callable[[str], None]
) -> AsyncIterator[list[Cell]]:
    """Fill a scratch database like the one at `url`, and yield what is to be measured beside an empty one."""
    async with AsyncExitStack() as stack:
        places = [await stack.enter_async_context(scratch(url)) for _ in range(2)]
        empty, filled = [await stack.enter_async_context(open_ours(place)) for place in places]
        version = await empty.db.version()
        await _fill(filled, rows, note)
        cells = [_flat(empty, filled, version, rows, seconds)]
        if is_postgres(url):
            cells.append(_snapshot(empty, places[0], version, hold_s))
        yield cells


async def _fill(filled: Ours, rows: int, note: Callable[[str], None]) -> None:
    for what, fill, count in (
        ("timers", filled.fill_timers, rows),
        ("finished jobs", filled.fill_done, rows),
        ("blocked jobs", filled.fill_blocked, rows // BLOCKED_SHARE),
    ):
        for start in range(0, count, CHUNK):
            note(f"filling with {what}: {start:,} of {count:,}")
            await fill(min(CHUNK, count - start))


def _flat(empty: Ours, filled: Ours, version: str, rows: int, seconds: float) -> Cell:
    async def run() -> Comparison:
        # Neither is cleared between the rounds, so both have the same dead rows in them.
        return await alternate(
            rounds.overlapping(filled, BATCH, cleared=False),
            rounds.overlapping(empty, BATCH, cleared=False),
            seconds=seconds * ROUNDS_LONGER,
        )

    name = f"claim + complete beside {rows:,} timers, {rows:,} finished, {rows // BLOCKED_SHARE:,} blocked"
    return Cell(part="growth", name=name, database=version, batch=BATCH, goal=FLAT_GOAL, run=run)


def _snapshot(ours: Ours, place: str, version: str, hold_s: float) -> Cell:
    async def loaded(jobs: int, *, held: bool) -> float:
        await ours.clear()
        for start in range(0, jobs, CHUNK):
            await ours.fill(min(CHUNK, jobs - start))
        ours.hinted = True
        async with snapshot(place) if held else nullcontext():
            watch = await rounds.overlap(ours, BATCH, seconds=hold_s)
        ours.hinted = False
        return watch.rate

    async def run() -> Comparison:
        probe_s = min(PROBE_S, hold_s)
        rate = await rounds.overlapping(ours, BATCH)(probe_s / 10)
        rate = max(rate, await rounds.overlapping(ours, BATCH)(probe_s))
        jobs = int(rate * hold_s * rounds.SPARE) + BATCH
        # Between two runs without it, so that a machine that slows down or speeds up meanwhile cancels out.
        before = await loaded(jobs, held=False)
        value = await loaded(jobs, held=True)
        after = await loaded(jobs, held=False)
        free = (before + after) / 2
        return Comparison(value, free, value / free, (value / max(before, after), value / min(before, after)))

    name = f"claim + complete, another connection holds a snapshot for {hold_s:g} s"
    return Cell(part="snapshot", name=name, database=version, batch=BATCH, goal=SNAPSHOT_GOAL, run=run)


@asynccontextmanager
async def snapshot(url: str) -> AsyncIterator[None]:
    """Hold a snapshot of the database on a connection of its own."""
    async with connected(url) as connection, connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("SELECT count(*) FROM windlass.lane")
        yield
