"""Holding: one duty in the hands of this server, from its taking to its end.

It knows until when its lease can be trusted, does the work batch by batch, and keeps what was done for the renewals
that carry it to the table. Taking, renewing and giving up are decided in loops.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from windlass import log
from windlass.db import Database
from windlass.engine.duty import Duty, Ran
from windlass.engine.trusted import Trusted
from windlass.errors import DutyLost, WindlassError
from windlass.queue.duties import Held, Metadata, Taken

AFTER_ERROR_S = 1.0
LONGEST_WATCH_S = 3600.0
"""A lease that never ends is looked at all the same, because nothing sleeps for ever."""


class Time(msgspec.Struct, frozen=True):
    """How a server measures time and waits; neither has to do with the clock that decides leases."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


class Holding:
    """A duty that this server does: in which term, since when, until when, and what was done."""

    def __init__(self, duty: Duty, time: Time, *, until_s: float, taken: Taken | None = None) -> None:
        self.duty = duty
        self.term = taken.term if taken else 0
        self.until_s = until_s
        """Up to this instant of the monotonic clock the lease can be trusted."""
        self.since_s = time.monotonic()
        self.handed_by = taken.metadata.handed_by if taken else None
        self.over = False
        self.task: asyncio.Task[None] | None = None
        self._time = time
        self._metadata = taken.metadata if taken else Metadata()
        self._known_at, self._known_s = taken.acquired_at if taken else None, self.since_s
        """An instant of the database's clock, and of ours when we heard it."""
        self._rest_s = _first_rest_s(duty, taken)

    @property
    def named(self) -> Held:
        """The duty as its renewals name it."""
        return Held(self.duty.name, self.term, self._metadata)

    def handed_over(self, by: UUID) -> Held:
        """Return the duty as it is given up: its successor is told by whom."""
        return Held(self.duty.name, self.term, msgspec.structs.replace(self._metadata, handed_by=by))

    def renewed(self, at: datetime, *, until_s: float) -> None:
        """Note that the lease was prolonged, `at` by the database's clock."""
        self.until_s = until_s
        self._known_at, self._known_s = at, self._time.monotonic()

    def check(self) -> None:
        """Raise DutyLost unless this server may act for the duty now."""
        if self.over or self._time.monotonic() >= self.until_s:
            raise DutyLost(
                f"Duty {self.duty.name!r} is not this server's any more (term {self.term}). Nothing is written."
            )

    async def do(self, db: Database, *, most: int) -> None:
        """Work until the lease is over; whatever happens then, nothing more is written."""
        if self.duty.looks is not None:
            self.duty.looks.renew()
        work = asyncio.create_task(self._work(Trusted(db, self.check, term=self.term), most))
        watch = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.over = True
            work.cancel()
            watch.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)

    async def _watch(self) -> None:
        while (left_s := self.until_s - self._time.monotonic()) > 0:
            await self._time.sleep(min(left_s, LONGEST_WATCH_S))

    async def _work(self, db: Database, most: int) -> None:
        while True:
            await self._rest()
            began_s = self._time.monotonic()
            try:
                self.check()  # the process may have been stopped while it slept
                ran = await self.duty.run(db, most)
            except DutyLost:
                return
            except WindlassError as error:
                log.event("duty.failed", duty=self.duty.name, term=self.term, message=str(error))
                self._note(None, began_s)
            except Exception as error:
                log.event("duty.failed", duty=self.duty.name, term=self.term, error=error)
                self._note(None, began_s)
            else:
                self._note(ran, began_s)

    async def _rest(self) -> None:
        """Sleep until the next run, or until this server is told that there is something to do."""
        if self.duty.looks is None:
            await self._time.sleep(self._rest_s)
            return
        waits = [
            asyncio.ensure_future(self._time.sleep(self._rest_s)),
            asyncio.ensure_future(self.duty.looks.noticed.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _note(self, ran: Ran | None, began_s: float) -> None:
        """Keep what a run did; without `ran` it failed."""
        now_s = self._time.monotonic()
        now_at = None if self._known_at is None else self._known_at + timedelta(seconds=now_s - self._known_s)
        before = self._metadata
        self._metadata = Metadata(
            last_run_at=now_at,
            progress_at=now_at if ran else before.progress_at,
            duration_ms=round((now_s - began_s) * 1000),
            items=before.items + (ran.items if ran else 0),
            errors=before.errors + (0 if ran else 1),
            note=ran.note if ran and ran.note is not None else before.note,
        )
        if ran is None:
            self._rest_s = AFTER_ERROR_S
        else:
            self._rest_s = self.duty.period_s if ran.next_s is None else ran.next_s


def _first_rest_s(duty: Duty, taken: Taken | None) -> float:
    """Return how long the first run has to wait: a duty keeps its pace when its holder changes."""
    if taken is None or duty.looks is not None or taken.metadata.progress_at is None:
        return 0.0
    passed_s = (taken.acquired_at - taken.metadata.progress_at).total_seconds()
    return min(max(duty.period_s - passed_s, 0.0), duty.period_s)
