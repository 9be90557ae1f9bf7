"""What a duty is, and the duties there are: each is a few lines that call a step of queue/ and wake who waits for it.

Each asks first how long there is nothing to do (looks.py), which one look by the database's clock tells all of them.
Whoever is to be woken is woken after the commit: a claimer that came before would find nothing and sleep again.
Who runs them, and on which server, is decided in loops.py; that every server may run them at once, by the steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from windlass import log
from windlass.db import Database
from windlass.engine.looks import Looks
from windlass.job import Outcome, Place
from windlass.queue import control, deadlines, rescue, retention, scheduledits, timers, vacuum
from windlass.queue.moves import Moved
from windlass.queue.report import Chance

VACUUM_PERIOD_S = 15.0


class Ran(msgspec.Struct, frozen=True):
    """What one run of a duty did: how many things, and in how many seconds it runs again (None: its period)."""

    items: int
    next_s: float | None = None
    note: str | None = None
    """What it has to tell the other servers; kept with the duty."""


Run = Callable[[Database, int], Awaitable[Ran]]
"""Does one batch of a duty, of at most so many things."""
Tell = Callable[[Sequence[Moved]], Awaitable[None]]
"""Hears of leases that were ended."""


class Duty(msgspec.Struct, frozen=True):
    """Work that no caller asks for: its name, one batch of it, how often to look, and how much a batch may be."""

    name: str
    run: Run
    period_s: float
    most: int = 500
    looks: Looks | None = None
    """Of a quick duty: where it hears that it has something to do earlier."""


class Waking(Protocol):
    """Who is told, after the commit, of what a duty did: wake.py."""

    def ready(self, lane: int, rank: int) -> None:
        """A job can be claimed in the lane."""

    def freed(self, lane: int) -> None:
        """A lease of the lane has ended."""

    def ended(self, job_id: UUID) -> None:
        """A job has ended."""

    def session(self, session: UUID) -> None:
        """A session has lost a lease."""

    def duties(self) -> None:
        """A duty was given up."""


class Periods(Protocol):
    """How often duties look, in seconds: the settings of section `duties`."""

    @property
    def expire_seconds(self) -> float:
        """What is due waits at most so long."""

    @property
    def cleanup_seconds(self) -> float:
        """How often history is swept."""


async def _nobody(_moves: Sequence[Moved]) -> None:
    """Hear of nothing."""


def queue_duties(
    wake: Waking,
    chance: Chance,
    *,
    looks: Looks,
    periods: Periods,
    days: int,
    dead_days: int,
    told: Tell = _nobody,
) -> list[Duty]:
    """Return the duties that keep the queue going; history stays for `days`, dead jobs for `dead_days` (0: always).

    `told` hears of every lease that they end.
    """
    often_s = periods.expire_seconds
    return [
        Duty("promote", _promoting(wake, looks), often_s, timers.PROMOTE_BATCH, looks),
        Duty("rescue", _rescuing(wake, chance, told, looks, often_s), often_s, rescue.RESCUE_BATCH, looks),
        Duty("deadlines", _ending(wake, chance, told, looks), often_s, deadlines.DEADLINE_BATCH, looks),
        Duty("retention", _sweeping(days, dead_days), periods.cleanup_seconds, retention.CHUNK),
        every("vacuum", VACUUM_PERIOD_S, _vacuum),
    ]


def every(name: str, period_s: float, step: Callable[[Database], Awaitable[int]]) -> Duty:
    """Return the duty that runs `step`, which says how many things it did, once in each period."""

    async def run(db: Database, most: int) -> Ran:
        return Ran(await step(db))

    return Duty(name, run, period_s)


def _promoting(wake: Waking, looks: Looks) -> Run:
    async def run(db: Database, most: int) -> Ran:
        if (rest_s := await looks.rest_s("promote", db)) > 0:
            return Ran(0, rest_s)
        looks.acted("promote")
        promoted = await timers.promote(db, limit=most)
        for job in promoted:
            if job.place == Place.READY:
                wake.ready(job.lane, job.rank)
        # What is due and did not come is being promoted by a rival.
        return Ran(len(promoted), 0.0 if promoted else None)

    return run


def _rescuing(wake: Waking, chance: Chance, told: Tell, looks: Looks, often_s: float) -> Run:
    async def run(db: Database, most: int) -> Ran:
        if (rest_s := await looks.rest_s("rescue", db)) > 0:
            return Ran(0, rest_s)
        looks.acted("rescue")
        count = 0
        while True:
            rescued = await rescue.rescue(db, chance=chance, limit=most)
            tell(wake, rescued.moved)
            await told(rescued.moved)
            count += len(rescued.moved)
            if len(rescued.moved) < most:  # the look does not see leases of sessions that have ended
                return Ran(count, min(often_s, looks.pulse_s))

    return run


def _ending(wake: Waking, chance: Chance, told: Tell, looks: Looks) -> Run:
    async def run(db: Database, most: int) -> Ran:
        if (rest_s := await looks.rest_s("deadlines", db)) > 0:
            return Ran(0, rest_s)
        looks.acted("deadlines")
        moved = await deadlines.end_overdue(db, chance=chance, limit=most)
        tell(wake, moved)
        await told(moved)
        expired = await deadlines.expire(db, limit=most)
        for job_id in expired:
            wake.ended(job_id)
        resumed = await control.resume_due(db) + await scheduledits.resume_over(db, limit=most)
        return Ran(len(moved) + len(expired) + resumed, 0.0 if max(len(moved), len(expired)) >= most else None)

    return run


def _sweeping(days: int, dead_days: int) -> Run:
    async def run(db: Database, most: int) -> Ran:
        swept = await retention.sweep(db, days=days, dead_days=dead_days, chunk=most)
        removed = sum(swept.rows.values())
        dropped = swept.partitions_dropped
        estimate = sum(dropped.values()) if dropped else None
        log.event("history.cleaned", rows=removed, partitions=len(dropped) or None, partition_rows_estimate=estimate)
        return Ran(len(swept.partitions_made) + len(swept.partitions_dropped) + removed)

    return run


async def _vacuum(db: Database) -> int:
    return len(await vacuum.vacuum(db))


def tell(wake: Waking, moves: Iterable[Moved]) -> None:
    """Wake whoever waits for what became of leases that have ended."""
    for moved in moves:
        lease = moved.move.lease
        wake.freed(lease.lane)
        if moved.move.to == "ready":
            wake.ready(lease.lane, moved.rank or 0)
        elif moved.move.to in ("done", "dead"):
            wake.ended(lease.id)
        if moved.move.record.outcome is not Outcome.SUCCEEDED:
            wake.session(lease.session)
