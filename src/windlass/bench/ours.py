"""Our side of every comparison: the steps of `queue/`, called as a server calls them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from random import random
from time import monotonic
from uuid import UUID, uuid4

from windlass.bench.rivals import JOBS_PER_MS, PAYLOAD, RESULT, START_MS, Taken
from windlass.bench.scratch import migrated
from windlass.db import Database, Statements
from windlass.ids import Ids
from windlass.queue.claim import OPEN_HINT, Claimed, Group, Want, claim
from windlass.queue.lanes import LaneName, Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Status, report
from windlass.queue.submit import submit
from windlass.queue.workers import NewSession, register

WORKER = "bench"
REOPEN_S = 1.5
"""How long a low-water hint is used before the lane is read from its bottom again."""

_CLEARED = ("queue", "timer", "job", "done", "attempt", "dedup")
_JOB = "id, lane, task, payload, priority, max_attempts, max_lost, timeout_s, run, run_at, created_at"
_QUEUE = "id, lane, rank, place, attempt, fence, lost, releases, queued_at, pending, flags"
_TIMER = "id, due_at, lane, attempt, fence, lost, releases, flags, reason"
_DONE = (
    "id, lane, attempt, fence, lost, releases, outcome, result, worker, session, queued_at"
    ", claimed_at, started_at, finished_at"
)


class Ours:
    """The queue in a scratch database: one worker with one session, and its lanes."""

    def __init__(self, db: Database, *, session: UUID, lanes: list[int]) -> None:
        self.db = db
        self._steps: Statements = db
        self._lanes = lanes
        self._session = session
        self._names = Lanes()
        self._ids = Ids(db.now)
        self._filled = 0
        self._hint = OPEN_HINT
        self._reopen_at = 0.0
        self.hinted = False
        """Whether claims carry the rank that the last one reached, as a dispatcher's do."""

    def on(self, statements: Statements) -> Ours:
        """Return the same, with its steps on `statements`: a wrapper around its database."""
        other = copy(self)
        other._steps = statements
        return other

    async def clear(self) -> None:
        """Empty every table of jobs."""
        if self.db.dialect == "postgres":
            await self.db.maintain("TRUNCATE " + ", ".join(f"windlass.{table}" for table in _CLEARED))
        else:
            for table in _CLEARED:
                await self.db.maintain(f"DELETE FROM {table}")

    async def fill(self, count: int) -> None:
        """Add ready jobs, made by the database, spread over the lanes."""
        first, last = self._number(count)
        lane = f"{self._lanes[0]} + CAST(n % {len(self._lanes)} AS int)"
        await self._insert("job", _JOB, _job(lane), first, last)
        await self._insert("queue", _QUEUE, f"{{id}}, {lane}, {{ms}}, 0, 0, 0, 0, 0, {{at}}, 0, 0", first, last)

    async def fill_blocked(self, count: int) -> None:
        """Add jobs that wait for others."""
        first, last = self._number(count)
        await self._insert("job", _JOB, _job(self._lanes[0]), first, last)
        await self._insert(
            "queue", _QUEUE, f"{{id}}, {self._lanes[0]}, {{ms}}, 2, 0, 0, 0, 0, {{at}}, 1, 0", first, last
        )

    async def fill_timers(self, count: int) -> None:
        """Add jobs that are due in ten years."""
        first, last = self._number(count)
        await self._insert("job", _JOB, _job(self._lanes[0], run_at="{later}"), first, last)
        await self._insert("timer", _TIMER, f"{{id}}, {{later}}, {self._lanes[0]}, 0, 0, 0, 0, 0, 0", first, last)

    async def fill_done(self, count: int) -> None:
        """Add jobs that ended just now."""
        first, last = self._number(count)
        await self._insert("job", _JOB, _job(self._lanes[0]), first, last)
        ended = f"'{RESULT}', '{WORKER}', '{self._session}', {{at}}, {{now}}, {{now}}, {{now}}"
        await self._insert("done", _DONE, f"{{id}}, {self._lanes[0]}, 1, 1, 0, 0, 0, {ended}", first, last)

    async def submit(self, batch: int) -> None:
        """Submit one request."""
        jobs = [NewJob(id=self._ids.new(), task="bench", payload=PAYLOAD) for _ in range(batch)]
        await submit(self._steps, self._names, jobs)

    async def claim(self, batch: int) -> Taken:
        """Claim for one worker."""
        hint = self._hint if self.hinted and monotonic() < self._reopen_at else OPEN_HINT
        wants = [Want(lane, hint=hint) for lane in self._lanes]
        jobs = await claim(self._steps, [Group(wants, [self._session] * batch)])
        if self.hinted and jobs:
            self._hint = jobs[-1].rank
            if hint == OPEN_HINT:
                self._reopen_at = monotonic() + REOPEN_S
        return jobs

    async def complete(self, taken: Taken) -> None:
        """Report success of every job; each must be applied."""
        answers = await report(self._steps, [_succeeded(job) for job in taken], chance=random)
        assert all(answer.status is Status.APPLIED for answer in answers)

    def _number(self, count: int) -> tuple[int, int]:
        first = self._filled + 1
        self._filled += count
        return first, self._filled

    async def _insert(self, table: str, columns: str, values: str, first: int, last: int) -> None:
        ms = f"({START_MS} + n / {JOBS_PER_MS})"
        if self.db.dialect == "postgres":
            await self.db.maintain(
                f"INSERT INTO windlass.{table} ({columns}) SELECT "
                + _filled_in(values, _POSTGRES_WORDS, ms)
                + f" FROM generate_series(CAST({first} AS bigint), {last}) AS n"
            )
        else:
            await self.db.maintain(
                f"WITH RECURSIVE s(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last}) "
                f"INSERT INTO {table} ({columns}) SELECT " + _filled_in(values, _SQLITE_WORDS, ms) + " FROM s"
            )


_POSTGRES_WORDS = {
    "id": "CAST(lpad(to_hex({ms}), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0') AS uuid)",
    "at": "to_timestamp({ms} / 1000.0)",
    "later": "now() + interval '10 years' + n * interval '1 millisecond'",
    "now": "now()",
}
_SQLITE_WORDS = {
    "id": "printf('%08x-%04x-7000-8000-%012x', {ms} >> 16, {ms} & 65535, n)",
    "at": "{ms} * 1000",
    "later": "(unixepoch() + 315360000) * 1000000 + n * 1000",
    "now": "unixepoch() * 1000000",
}


def _job(lane: int | str, *, run_at: str = "{at}") -> str:
    return f"{{id}}, {lane}, 'bench', '{PAYLOAD}', 0, 3, 5, 3600, 1, {run_at}, {{at}}"


def _filled_in(values: str, words: dict[str, str], ms: str) -> str:
    for word, text in words.items():
        values = values.replace(f"{{{word}}}", text)
    return values.replace("{ms}", ms)


def _succeeded(job: Claimed) -> Complete:
    return Complete(job_id=job.id, fence=job.fence, worker=WORKER, session=job.session, result=RESULT)


@asynccontextmanager
async def open_ours(url: str, *, lanes: int = 1) -> AsyncIterator[Ours]:
    """Migrate the scratch database `url` and register a worker; two connections write."""
    async with migrated(url, connections=2) as db:
        names = [LaneName("default", "default", "bench" if n == 0 else f"bench-{n}") for n in range(lanes)]
        known = await Lanes().resolve(db, names)
        session = uuid4()
        await register(db, NewSession(id=session, worker=WORKER, capacity=1000))
        yield Ours(db, session=session, lanes=sorted(known[name].id for name in names))
