"""A year of retention, by a clock that moves a day at a time: what is needed outlives its partitions, which are few.

    python -m tests.proofs year [--faults DAYS]

Each day jobs are submitted, done, put off by a year, left waiting, and die; some of the dead run again weeks later, and
some of those that wait are cancelled. Once nobody serves for six weeks. History is kept 7, 30 and 365 days and for
ever. Each day the sweep runs, `check` must be content, and every job that lives, is dead, or ended in the kept days
must be there with its content; those that ended long before must be gone.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import datetime, timedelta
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from tests.ahead import make_ahead
from tests.clock import TestClock
from tests.cluster import Cluster
from tests.databases import connected
from tests.proofs.verdict import Line
from tests.queue.steps import ANN, Steps
from windlass.db import Database, Query, open_database
from windlass.db.migrate import migrate
from windlass.job import FINAL_STATES, State
from windlass.queue import deadletters, history
from windlass.queue.check import check
from windlass.queue.claim import Claimed
from windlass.queue.retention import sweep

DAYS = 365
KEPT = (7, 30, 365, 0)
MOST_SPANS = 20
SUBMITTED_A_DAY = 6
GAP_DAY, GAP_DAYS = 200, 42
PAYLOAD = '"of a job"'
SPANS = Query(
    "spans",
    "Partitions of job.",
    "SELECT count(*) AS spans FROM pg_inherits WHERE inhparent = 'windlass.job'::regclass",
    "",
)
STORED = Query("stored", "Rows of job.", "SELECT count(*) AS jobs FROM windlass.job", "")


async def prove(cluster: Cluster, *, days: int = DAYS) -> list[Line]:
    """Let the year go by with each retention; return what was found."""
    lines = []
    for kept in KEPT:
        url = urlunsplit(urlsplit(cluster.url)._replace(path=f"/year_{kept}"))
        async with connected(cluster.url) as connection:
            await connection.execute(f"CREATE DATABASE year_{kept}")
        clock = TestClock()
        db = await open_database(url, clock=clock)
        try:
            await migrate(db)
            lines.append(await Year(db, clock, kept).passes(days))
        finally:
            await db.close()
    return lines


class Year:
    """Jobs of many days, and what must have become of each."""

    def __init__(self, db: Database, clock: TestClock, kept_days: int) -> None:
        self.db = db
        self.clock = clock
        self.kept_days = kept_days
        self.steps = Steps(db, clock)
        self.chance = random.Random(kept_days)
        self.needed: dict[UUID, State] = {}
        """Jobs that live or are dead."""
        self.ended: dict[UUID, tuple[State, datetime]] = {}
        self.against: list[str] = []
        self.most_spans = 0

    async def passes(self, days: int) -> Line:
        """Live through so many days; return what was found."""
        began_s = time.monotonic()
        for day in range(days):
            await self._day(day)
            if day == GAP_DAY:
                self.clock.advance(days=GAP_DAYS)
                await make_ahead(self.db)
            if len(self.against) > MOST_SPANS:
                break
        [stored] = await self.db.fetch(STORED)
        states = ", ".join(f"{count} {state}" for state, count in Counter(self.needed.values()).items())
        detail = (
            f"{days} days in {time.monotonic() - began_s:.0f} s, at most {self.most_spans} partitions; "
            f"at the end {stored['jobs']} rows: {states}, and {len(self.ended)} that ended lately"
        )
        return Line(f"history kept {self.kept_days or 'for ever'}", detail, self.against)

    async def _day(self, day: int) -> None:
        self.clock.advance(days=1)
        await sweep(self.db, days=self.kept_days)
        await self._work()
        [row] = await self.db.fetch(SPANS)
        self.most_spans = max(self.most_spans, row["spans"])
        if row["spans"] > MOST_SPANS:
            self.against.append(f"day {day}: {row['spans']} partitions")
        self.against += [f"day {day}: {violation}" for violation in await check(self.db)]
        await self._look(day)

    async def _work(self) -> None:
        worker = await self.steps.worker(f"of-{self.clock.now():%Y%m%d}")
        for number in range(SUBMITTED_A_DAY):
            job = self.steps.job("t")
            job = self.steps.job(
                "t", payload=PAYLOAD.format(job.id), delay_ms=365 * 86_400_000 if number == 0 else None
            )
            [told] = await self.steps.submit(job)
            assert told.state is not None
            self.needed[told.id] = told.state
            if number > 1:
                await self._end(await self.steps.claim_one(worker), dies=number == 2)
        if self.chance.random() < 0.3:
            await self._come_back()
        if self.chance.random() < 0.7:
            waiting = [job_id for job_id, state in self.needed.items() if state is State.QUEUED]
            chosen = self.chance.choice(waiting)
            await self.steps.cancel(chosen)
            del self.needed[chosen]
            self.ended[chosen] = State.CANCELLED, self.clock.now()

    async def _end(self, lease: Claimed, *, dies: bool) -> None:
        if dies:
            await self.steps.fail(lease, retryable=False)
            self.needed[lease.id] = State.DEAD
        else:
            await self.steps.complete(lease)
            del self.needed[lease.id]
            self.ended[lease.id] = State.SUCCEEDED, self.clock.now()

    async def _come_back(self) -> None:
        dead = [job_id for job_id, state in self.needed.items() if state is State.DEAD]
        chosen = self.chance.choice(dead)
        await deadletters.retry(self.db, [chosen], tenant="default", actor=ANN)
        self.needed[chosen] = State.QUEUED

    async def _look(self, day: int) -> None:
        kept_since = self.clock.now() - timedelta(days=self.kept_days or 10_000)
        asked = self.chance.sample(sorted(self.needed), min(20, len(self.needed)))
        recent = [job_id for job_id, (_, at) in self.ended.items() if at > kept_since]
        for job_id in [*asked, *self.chance.sample(recent, min(10, len(recent)))]:
            state = self.needed.get(job_id) or self.ended[job_id][0]
            job = await history.get(self.db, job_id, tenant="default")
            if (job.state, job.payload) != (state, PAYLOAD):
                self.against.append(f"day {day}: {job_id} is {job.state}, not {state}: {job.payload}")
        live = await history.live(self.db, list(self.needed))
        lost = {job_id for job_id, state in self.needed.items() if state not in FINAL_STATES} ^ live
        self.against += [f"day {day}: {job_id} is live, or not, as it should not be" for job_id in lost]
        # A day of history goes when it is over, a day of grace for the zone.
        gone = [job_id for job_id, (_, at) in self.ended.items() if at < kept_since - timedelta(days=1)]
        for job_id in gone[-3:]:
            found = await history.find(self.db, history.Filter(tenant="default", id=job_id))
            self.against += [f"day {day}: {job_id} is past the retention, and there" for _ in found.jobs]
        for job_id in gone[:-3]:
            del self.ended[job_id]
