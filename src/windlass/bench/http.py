"""`windlass bench http`: one server process over HTTP, beside the raw driver and a bare endpoint of the same run.

`submit` has single jobs and batches, `work` claim + report, `pipeline` all three at once, `wake` the time from a submit
to the answer of a claim that waited, `idle` what workers cost that wait for nothing.
The driver is this process (httpload.py), on the same cores as the server and the database.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median
from typing import Any

import msgspec

from windlass.bench import httpfloor, httpload, rounds
from windlass.bench.floor import Floor
from windlass.bench.httpload import BATCH, SUBMITTERS, WORKERS
from windlass.bench.httpserver import Costs, Served, bare_server, windlass_server
from windlass.bench.measure import Round
from windlass.bench.scratch import is_postgres, scratch
from windlass.db import open_database

PARTS = ("submit", "work", "pipeline", "wake", "idle")
CALLERS = 32
ROUNDS = 3
WAKE_UPS = 300
SETTLE_S = 2.0
"""How long idle workers are left alone before their cost counts."""
CYCLING = 4
"""Connections of the raw driver that submit, claim and complete at once."""

SINGLE = httpload.submit_one("single")
MANY = httpload.submit_many("batch")
CLAIM_AND_REPORT = httpload.claim_and_report("work")


class Goal(msgspec.Struct, frozen=True):
    """What a figure is to reach."""

    at: float
    at_most: bool = False
    required: bool = False

    def met(self, value: float) -> bool:
        """Say whether `value` reaches it."""
        return value <= self.at if self.at_most else value >= self.at


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the result; ratios are ours over the floor's, the median of rounds that followed each other."""

    part: str
    name: str
    database: str
    batch: int
    value: float
    unit: str
    driver: float | None = None
    driver_ratio: float | None = None
    endpoint: float | None = None
    endpoint_ratio: float | None = None
    cpu_us: float | None = None
    """CPU of the server process for one job, in microseconds: it depends less on what else the machine does."""
    goal: Goal | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what stands in the file."""
        shown = msgspec.structs.asdict(self) | {"goal": None, "required": None, "met": None}
        if self.goal is not None:
            shown |= {"goal": self.goal.at, "required": self.goal.required, "met": self.goal.met(self.value)}
        return shown


class HttpCell(msgspec.Struct, frozen=True):
    """Something to measure: what it is called, and how."""

    name: str
    run: Callable[[], Awaitable[list[Reading]]]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how much to measure."""

    seconds: float
    idle_s: float
    idle_workers: int


# Of PostgreSQL; what is required holds on both.
_GOALS = {
    "submit, single jobs": Goal(5_000),
    "submit": Goal(20_000),
    "claim + report": Goal(10_000),
    "wake-up, median": Goal(5, at_most=True),
    "wake-up, 99th percentile": Goal(15, at_most=True),
    "idle workers": Goal(5, at_most=True),
}
_REQUIRED = {"submit + claim + report": Goal(1_667, required=True)}


@asynccontextmanager
async def http_cells(url: str, *, parts: tuple[str, ...], span: Span) -> AsyncIterator[list[HttpCell]]:
    """Start a server on a scratch database like the one at `url`, and yield what is to be measured of it."""
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(scratch(url))
        beside = await stack.enter_async_context(scratch(url))
        bench = _Bench(
            ours=await stack.enter_async_context(windlass_server(place)),
            bare=await stack.enter_async_context(bare_server()),
            floors=await stack.enter_async_context(httpfloor.open_floors(beside, CALLERS)),
            database=await _version(beside),
            is_postgres=is_postgres(url),
            span=span,
        )
        cells = bench.cells()
        yield (
            [HttpCell("memory of a fresh server", bench.memory("memory, fresh server"))]
            + [cell for part in PARTS if part in parts for cell in cells[part]]
            + [HttpCell("memory after the load", bench.memory("memory, after all of this"))]
        )


async def _version(url: str) -> str:
    db = await open_database(url)
    try:
        return await db.version()
    finally:
        await db.close()


class _Bench:
    def __init__(
        self, ours: Served, bare: Served, *, floors: list[Floor], database: str, is_postgres: bool, span: Span
    ) -> None:
        self._ours = ours
        self._bare = bare
        self._floors = floors
        self._database = database
        self._is_postgres = is_postgres
        self._span = span
        self._costs = Costs(ours)

    def cells(self) -> dict[str, list[HttpCell]]:
        """Return everything that can be measured, by part."""
        return {
            "submit": [
                self._submit(f"submit, single jobs, {CALLERS} connections", SINGLE, callers=CALLERS, batch=1),
                self._submit(f"submit, {SUBMITTERS} connections", MANY, callers=SUBMITTERS, batch=BATCH),
            ],
            "work": [self._work()],
            "pipeline": [self._pipeline()],
            "wake": [HttpCell("wake-up from submit to claim", self._wake)],
            "idle": [
                self._idle("long polls", beats=False),
                self._idle("long polls and heartbeats", beats=True),
            ],
        }

    def _submit(self, name: str, request: bytes, *, callers: int, batch: int) -> HttpCell:
        return self._rates(
            "submit",
            name,
            batch=batch,
            ours=httpload.asking(self._ours.port, [request], callers=callers, jobs=batch, costs=self._costs),
            driver=httpfloor.submitting(self._floors[:callers], batch),
            endpoint=httpload.asking(self._bare.port, [request], callers=callers, jobs=batch),
        )

    def _work(self) -> HttpCell:
        return self._rates(
            "work",
            f"claim + report, {WORKERS} workers",
            batch=BATCH,
            ours=httpload.working(self._ours.port, "work", self._costs),
            driver=rounds.overlapping(self._floors[0], BATCH),
            endpoint=httpload.asking(self._bare.port, CLAIM_AND_REPORT, callers=WORKERS, jobs=BATCH),
        )

    def _pipeline(self) -> HttpCell:
        return self._rates(
            "pipeline",
            "submit + claim + report, all at once",
            batch=BATCH,
            ours=httpload.flowing(self._ours.port, "pipeline", self._costs),
            driver=httpfloor.cycling(self._floors[:CYCLING], BATCH),
            endpoint=httpload.asking(self._bare.port, [MANY, *CLAIM_AND_REPORT], callers=WORKERS, jobs=BATCH),
        )

    def _rates(self, part: str, name: str, *, batch: int, ours: Round, driver: Round, endpoint: Round) -> HttpCell:
        async def run() -> list[Reading]:
            each = self._span.seconds / ROUNDS
            for warm_up in (ours, driver, endpoint):
                await warm_up(each / 2)
            self._costs.forget()
            found = [[await side(each) for side in (ours, driver, endpoint)] for _ in range(ROUNDS)]
            values, drivers, endpoints = (list(side) for side in zip(*found, strict=True))
            reading = self._reading(
                part,
                name,
                batch=batch,
                value=median(values),
                unit="jobs/s",
                cpu_us=self._costs.us_per_job,
                driver=median(drivers),
                driver_ratio=_ratio(values, drivers),
                endpoint=median(endpoints),
                endpoint_ratio=_ratio(values, endpoints),
            )
            return [reading]

        return HttpCell(name, run)

    async def _wake(self) -> list[Reading]:
        count = max(5, min(WAKE_UPS, round(WAKE_UPS * self._span.seconds)))
        await httpload.wake_up_times_ms(self._ours.port, "wake", 5)
        ours = await httpload.wake_up_times_ms(self._ours.port, "wake", count)
        driver = await httpfloor.commit_times_ms(self._floors[0], count)
        endpoint = await httpload.round_trip_times_ms(self._bare.port, httpload.submit_one("wake"), count)
        found = []
        for name, share in (("wake-up, median", 0.5), ("wake-up, 99th percentile", 0.99)):
            value, low, bare = (percentile(times, share) for times in (ours, driver, endpoint))
            found.append(
                self._reading(
                    "wake",
                    name,
                    batch=1,
                    value=value,
                    unit="ms",
                    driver=low,
                    driver_ratio=value / low,
                    endpoint=bare,
                    endpoint_ratio=value / bare,
                )
            )
        return found

    def _idle(self, kind: str, *, beats: bool) -> HttpCell:
        workers, seconds = self._span.idle_workers, self._span.idle_s
        name = f"idle workers, {workers} {kind}"

        async def run() -> list[Reading]:
            async with httpload.idling(self._ours.port, "idle", workers, beats=beats):
                await asyncio.sleep(min(SETTLE_S, seconds))
                before = self._ours.cpu_s()
                await asyncio.sleep(seconds)
                after = self._ours.cpu_s()
                memory = await self.memory(f"memory, {workers} {kind}")()
            if before is None or after is None:
                return []
            share = (after - before) / seconds * 100
            return [self._reading("idle", name, batch=1, value=share, unit="% of a core"), *memory]

        return HttpCell(f"{name}, for {seconds:g} s", run)

    def memory(self, name: str) -> Callable[[], Awaitable[list[Reading]]]:
        """Return how much the server has in memory when this is run."""

        async def run() -> list[Reading]:
            memory_mb = self._ours.memory_mb()
            return [] if memory_mb is None else [self._reading("memory", name, batch=1, value=memory_mb, unit="MB")]

        return run

    def _reading(self, part: str, name: str, *, batch: int, value: float, unit: str, **more: float | None) -> Reading:
        goals = _REQUIRED | (_GOALS if self._is_postgres else {})
        goal = next((goals[start] for start in goals if name.startswith(start)), None)
        return Reading(
            part=part, name=name, database=self._database, batch=batch, value=value, unit=unit, goal=goal, **more
        )


def _ratio(values: list[float], floors: list[float]) -> float:
    return median(value / floor for value, floor in zip(values, floors, strict=True))


def percentile(times: list[float], share: float) -> float:
    """Return the least time that `share` of all times do not exceed."""
    return sorted(times)[max(0, math.ceil(len(times) * share) - 1)]
