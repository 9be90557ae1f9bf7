"""Measure: rounds of two rivals in turn, and figures made of them.

Machines speed up, slow down and do other things besides, so a rate alone says little. The two sides of a comparison
run in alternating rounds, each ratio is of two rounds that followed each other, and the median of the ratios counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Any

import msgspec

ROUNDS = 5

Round = Callable[[float], Awaitable[float]]
"""Works for about so many seconds and returns what it did per second."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the result."""

    part: str
    name: str
    database: str
    batch: int
    value: float
    unit: str
    floor: float | None = None
    ratio: float | None = None
    """The value over its floor; of five alternating rounds the median."""
    spread: tuple[float, float] | None = None
    """The least and the greatest ratio of a round: how noisy it was."""
    goal: float | None = None
    """What the ratio is to reach."""

    def as_json(self) -> dict[str, Any]:
        """Return what stands in the file."""
        names = ("part", "name", "database", "batch", "value", "unit", "floor", "ratio")
        return {name: getattr(self, name) for name in names}


class Comparison(msgspec.Struct, frozen=True):
    """Two rivals measured in turn."""

    value: float
    floor: float
    ratio: float
    spread: tuple[float, float]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """Something to measure: what it is called, and how."""

    part: str
    name: str
    database: str
    batch: int
    unit: str = "jobs/s"
    goal: float | None = None
    run: Callable[[], Awaitable[Comparison]]

    async def figure(self) -> Figure:
        """Measure it."""
        found = await self.run()
        return Figure(
            part=self.part,
            name=self.name,
            database=self.database,
            batch=self.batch,
            unit=self.unit,
            goal=self.goal,
            value=found.value,
            floor=found.floor,
            ratio=found.ratio,
            spread=found.spread,
        )


async def alternate(ours: Round, floor: Round, *, seconds: float) -> Comparison:
    """Run both in turn, five rounds each that together take about `seconds` a side, after one that only warms up."""
    span = seconds / ROUNDS
    for warm_up in (ours, floor):
        await warm_up(span / 2)
    values, floors = [], []
    for _ in range(ROUNDS):
        values.append(await ours(span))
        floors.append(await floor(span))
    ratios = [value / floor for value, floor in zip(values, floors, strict=True)]
    return Comparison(median(values), median(floors), median(ratios), (min(ratios), max(ratios)))


def once(value: float, floor: float) -> Comparison:
    """Return what was counted and not timed: one round says it."""
    ratio = value / floor
    return Comparison(value, floor, ratio, (ratio, ratio))


class Stopwatch:
    """Counts jobs until the time is over."""

    def __init__(self, seconds: float) -> None:
        self.jobs = 0
        self._start = perf_counter()
        self._end = self._start + seconds
        self._stopped: float | None = None

    @property
    def running(self) -> bool:
        """Whether there is time left."""
        return perf_counter() < self._end

    def stop(self) -> None:
        """Note that all work is done."""
        self._stopped = perf_counter()

    @property
    def rate(self) -> float:
        """Jobs per second, until now or until stopped."""
        return self.jobs / ((self._stopped or perf_counter()) - self._start)
