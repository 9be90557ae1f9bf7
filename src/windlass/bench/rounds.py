"""Rounds: the ways a rival can be made to work for a while, each returning its jobs per second."""

from __future__ import annotations

import asyncio

from windlass.bench.measure import Round, Stopwatch
from windlass.bench.rivals import Rival, Taken

HANDED_OVER = 4
"""Claimed batches that may wait for the completing connection."""
FIRST_RATE = 5_000
"""Jobs per second that a round is filled for before any rate is known."""
SPARE = 1.5
"""Filled jobs over those that the last rate would take."""


class Filling:
    """Jobs made ready before a round: enough for it at the rate of the one before."""

    def __init__(self, rival: Rival, *, batch: int, cleared: bool = True) -> None:
        self._rival = rival
        self._batch = batch
        self._cleared = cleared
        self._rate: float = FIRST_RATE
        self._left = 0

    async def before(self, seconds: float) -> int:
        """Make jobs ready for a round of so many seconds; return how many there are."""
        if self._cleared:
            await self._rival.clear()
            self._left = 0
        wanted = max(4 * self._batch, int(self._rate * seconds * SPARE))
        if wanted > self._left:
            await self._rival.fill(wanted - self._left)
            self._left = wanted
        return self._left

    def after(self, watch: Stopwatch) -> float:
        """Note what a round took, and return its rate."""
        rate = watch.rate
        self._left -= watch.jobs
        self._rate = max(rate, self._rate if watch.jobs > self._batch else 0)
        return rate


def submitting(rival: Rival, batch: int) -> Round:
    """Submit, nothing else."""

    async def run(seconds: float) -> float:
        await rival.clear()
        watch = Stopwatch(seconds)
        while watch.running:
            await rival.submit(batch)
            watch.jobs += batch
        return watch.rate

    return run


def claiming(rival: Rival, batch: int) -> Round:
    """Claim jobs that lie ready, nothing else."""
    filling = Filling(rival, batch=batch)

    async def run(seconds: float) -> float:
        await filling.before(seconds)
        watch = Stopwatch(seconds)
        while watch.running and (taken := await rival.claim(batch)):
            watch.jobs += len(taken)
        return filling.after(watch)

    return run


def completing(rival: Rival, batch: int) -> Round:
    """Complete jobs claimed before, nothing else."""
    filling = Filling(rival, batch=batch)

    async def run(seconds: float) -> float:
        await filling.before(seconds)
        claimed: list[Taken] = []
        while taken := await rival.claim(1000):
            claimed += [taken[n : n + batch] for n in range(0, len(taken), batch)]
        watch = Stopwatch(seconds)
        for taken in claimed:
            await rival.complete(taken)
            watch.jobs += len(taken)
            if not watch.running:
                break
        return filling.after(watch)

    return run


def cycling(rival: Rival, batch: int) -> Round:
    """Submit, claim and complete a batch, one after the other, on tables that are otherwise empty."""

    async def run(seconds: float) -> float:
        await rival.clear()
        watch = Stopwatch(seconds)
        while watch.running:
            await cycle(rival, batch)
            watch.jobs += batch
        return watch.rate

    return run


async def cycle(rival: Rival, batch: int) -> None:
    """Take one batch through its whole life."""
    await rival.submit(batch)
    await rival.complete(await rival.claim(batch))


def overlapping(rival: Rival, batch: int, *, cleared: bool = True) -> Round:
    """Claim on one connection and complete on another at the same time; claimed batches are handed over."""
    filling = Filling(rival, batch=batch, cleared=cleared)

    async def run(seconds: float) -> float:
        await filling.before(seconds)
        return filling.after(await overlap(rival, batch, seconds=seconds))

    return run


async def overlap(rival: Rival, batch: int, *, seconds: float) -> Stopwatch:
    """Claim and complete until the time is over or nothing is ready; return the watch, which counts completed jobs."""
    handed: asyncio.Queue[Taken | None] = asyncio.Queue(HANDED_OVER)
    watch = Stopwatch(seconds)

    async def claim() -> None:
        # One batch at the least: a machine that stands still may use all the time before the first.
        while taken := await rival.claim(batch):
            await handed.put(taken)
            if not watch.running:
                break
        await handed.put(None)

    async def complete() -> None:
        while (taken := await handed.get()) is not None:
            await rival.complete(taken)
            watch.jobs += len(taken)
        watch.stop()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(claim())
        tasks.create_task(complete())
    return watch
