"""Beside the slots that simply fire (slots.py): those that wait, are left out, are edited, paused or backfilled.

What is always true of them: a slot has one job at most, and each is decided once, run or recorded with the reason.
Where runs must not overlap none do; a schedule that is edited without another trigger loses no slot; a backfill makes
one job of each slot of its range.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import httpx2

from tests.proofs.fleet import Fleet
from tests.proofs.load import pause
from tests.proofs.processes import started
from tests.proofs.slotkinds import BATCH_PATH, RUN_QUEUE, Kind, asked_of
from tests.proofs.takeover import PATIENCE_S
from tests.proofs.verdict import Line
from tests.proofs.witness import Connection
from windlass.httpclient import AsyncClient

RUN = {"queue": RUN_QUEUE, "task": "while_slot"}
FIRING = (
    Kind("queue-all", {"every": 5, "overlap": "queue_all", **RUN}, lambda since, _: since % 5 == 0, 10),
    Kind("edited", {"every": 2}, lambda since, _: since % 2 == 0, 10),
)
"""Each slot has one job."""
DECIDED = (
    Kind("left-out", {"every": 1, "overlap": "skip", **RUN}, lambda since, _: True, 10),
    Kind("paused", {"every": 2}, lambda since, _: since % 2 == 0, 10),
)
"""Each slot has one job or a reason why not."""
KINDS = (*FIRING, *DECIDED)
BACKFILLED = "backfilled"
BACKFILLED_COUNT = 100
EARLIER_S = 300
"""How long before the first slot of the others its range begins."""
EDIT_S = 0.3
ANSWER_S = 2.0
RESUMES = 100
LAST_S = 4
"""How old the last slot may be that was decided, at the end."""
RANGE = f"""
SELECT j.slot_at, count(*) AS count FROM windlass.job AS j JOIN windlass.schedule s ON s.id = j.schedule_id
 WHERE s.name = '{BACKFILLED}' GROUP BY 1
"""
COUNTED = """
SELECT s.name, max(r.slot_at) AS last_at, sum(r.slot_count) AS count,
       coalesce(sum(r.slot_count) FILTER (WHERE r.job_id IS NULL), 0) AS without
  FROM windlass.schedule_runs r JOIN windlass.schedule s ON s.id = r.schedule_id
 WHERE s.name LIKE 'left-out-%' OR s.name LIKE 'paused-%' GROUP BY 1
"""
JOBS = """
SELECT s.name, j.slot_at, count(*) AS count FROM windlass.job AS j JOIN windlass.schedule s ON s.id = j.schedule_id
 WHERE s.name LIKE 'left-out-%' OR s.name LIKE 'paused-%' GROUP BY 1, 2
"""
# A claim is dated by the beginning of its transaction, which may be some milliseconds before its statement.
TOGETHER = """
WITH ended AS (
    SELECT j.schedule_id, j.slot_at, d.claimed_at, d.finished_at FROM windlass.done d
      JOIN windlass.job j ON j.id = ANY(ARRAY[d.id]))
SELECT s.name, b.slot_at FROM ended a JOIN windlass.schedule s ON s.id = a.schedule_id
  JOIN ended b ON b.schedule_id = a.schedule_id AND b.slot_at > a.slot_at
 WHERE (s.name LIKE 'queue-all-%' OR s.name LIKE 'left-out-%') AND b.claimed_at < a.finished_at - interval '100 ms'
"""


class Edits:
    """Edits, pauses and resumes, one after the other, through servers that come and go."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self.done_count = self.silent_count = 0
        self.refused: list[str] = []

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Edit beside the block; what is paused is resumed when it has ended."""
        over = asyncio.Event()
        task = asyncio.create_task(self._go_on(over))
        try:
            yield
        finally:
            over.set()
            await task
        for number in range(DECIDED[1].count):
            for _ in range(RESUMES):
                if await self._said("POST", f"paused-{number}/resume", {}):
                    break
                await pause(asyncio.Event(), EDIT_S)

    def line(self) -> Line:
        """Return how many were made."""
        told = f"{self.done_count} edits, pauses and resumes, {self.silent_count} not answered"
        return Line("schedules are edited meanwhile", told, self.refused or ["none"] * (not self.done_count))

    async def _go_on(self, over: asyncio.Event) -> None:
        for turn in itertools.count():
            if over.is_set():
                return
            number = turn // 2 % FIRING[1].count
            await self._said("PATCH", f"edited-{number}", {"priority": turn % 5 + 1})
            await self._said("POST", f"paused-{number}/{'resume' if turn % 2 else 'pause'}", {})
            await pause(over, EDIT_S)

    async def _said(self, method: str, path: str, body: dict[str, object]) -> bool:
        self._urls = [*self._urls[1:], self._urls[0]]
        try:
            async with AsyncClient(base_url=self._urls[0], timeout=ANSWER_S) as client:
                answer = await client.request(method, f"/api/v1/schedules/{path}", json=body)
        except httpx2.TransportError:
            self.silent_count += 1
            return False
        if answer.status_code >= 500:
            self.silent_count += 1
            return False
        if answer.status_code >= 400:
            self.refused.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
        self.done_count += 1
        return True


@asynccontextmanager
async def worked(fleet: Fleet) -> AsyncIterator[None]:
    """Run jobs of the schedules whose runs must end for the next to begin, for a block."""
    arguments = ["worker", "tests.proofs.slotapp:app", "--url", fleet.urls[-1], "--queue", RUN_QUEUE]
    async with started(*arguments, "--log-format", "text") as worker:
        await worker.said("is ready")
        yield


async def made(fleet: Fleet, first_at: datetime) -> None:
    """Make the schedules, and begin the backfill."""
    begin_at = first_at - timedelta(seconds=EARLIER_S)
    # Paused: nothing but the backfill makes jobs of it.
    past = {**asked_of(Kind(BACKFILLED, {"every": 1, **RUN}, lambda since, _: True), begin_at), "enabled": False}
    asked = [{**asked_of(kind, first_at), "name": f"{kind.name}-{n}"} for kind in KINDS for n in range(kind.count)]
    half = timedelta(seconds=0.5)
    span = {"since": begin_at - half, "until": begin_at + timedelta(seconds=BACKFILLED_COUNT) - half}
    async with httpx2.AsyncClient(base_url=fleet.urls[0], timeout=PATIENCE_S) as client:
        answer = await client.post(BATCH_PATH, json={"schedules": [*asked, past]})
        assert answer.status_code == 201, answer.text
        body = {name: at.isoformat() for name, at in span.items()} | {"concurrency": 2}
        answer = await client.post(f"/api/v1/schedules/{BACKFILLED}/backfill", json=body)
        assert answer.status_code == 202, answer.text


async def backfilled(connection: Connection) -> None:
    """Wait until the backfill has made all its jobs."""
    for _ in range(6000):
        if not await connection.fetchval("SELECT count(*) FROM windlass.backfill WHERE state = 0"):
            return
        await connection.execute("SELECT pg_sleep(0.1)")
    raise AssertionError("The backfill does not end.")


async def judged(connection: Connection, *, first_at: datetime, until_at: datetime) -> list[Line]:
    """Compare what was decided with arithmetic."""
    begin_at = first_at - timedelta(seconds=EARLIER_S)
    expected = {begin_at + timedelta(seconds=since) for since in range(BACKFILLED_COUNT)}
    ranged = {row["slot_at"]: row["count"] for row in await connection.fetch(RANGE)}
    wrong = sorted(f"{slot:%H:%M:%S}" for slot in expected ^ ranged.keys() | {s for s, n in ranged.items() if n > 1})
    rows = await connection.fetch(COUNTED)
    lost = [said for row in rows if (said := _not_counted(row, first_at=first_at, until_at=until_at)) is not None]
    doubled = [
        f"{row['name']} {row['slot_at']}: {row['count']}" for row in await connection.fetch(JOBS) if row["count"] > 1
    ]
    together = [f"{row['name']} {row['slot_at']}" for row in await connection.fetch(TOGETHER)]
    total, without = (sum(int(row[name]) for row in rows) for name in ("count", "without"))
    silent = ["nothing was left out, or paused"] * (not without) + ["some were never decided"] * (len(rows) != 20)
    return [
        Line("every slot is decided once", f"{total} slots, {without} of them with a reason", [*lost, *silent]),
        Line("a slot has one job at most", f"{len(doubled)} with two", doubled),
        Line("runs that must not overlap do not", f"{len(together)} beside another", together),
        Line("a backfill makes one job of each slot", f"{len(ranged)} of {len(expected)}", wrong),
    ]


def _not_counted(row: dict[str, object], *, first_at: datetime, until_at: datetime) -> str | None:
    name, last_at, count = str(row["name"]), row["last_at"], int(str(row["count"]))
    assert isinstance(last_at, datetime)
    [kind] = [kind for kind in DECIDED if name.startswith(kind.name)]
    seconds = int((last_at - first_at).total_seconds())
    expected = sum(kind.is_slot(since, 0) for since in range(seconds + 1))
    if count == expected and last_at >= until_at - timedelta(seconds=LAST_S):
        return None
    return f"{name}: {count} of {expected} slots are decided, the last {last_at:%H:%M:%S}"
