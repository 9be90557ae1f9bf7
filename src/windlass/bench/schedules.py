"""`windlass bench schedules`: ten million schedules, and those that are due, beside peers of the same run.

`load`: how long an import takes and what it needs on disk; `start`: what a server needs to begin, with few schedules
and with all of them; `minutes`: so many due in every minute while workers really run them; `herd`: many due in one
second, and what others feel who submit plain jobs to the same server then. Slots that fired are compared with those
that should have, one by one.
"""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from windlass.bench.http import Goal, percentile
from windlass.bench.httpclient import Connection, connections
from windlass.bench.httpload import submit_one
from windlass.bench.httpserver import Served, windlass_server
from windlass.bench.schedulefill import MINUTE, Batch, fill
from windlass.bench.schedulepeers import PEERS, herd_s
from windlass.bench.scratch import connected, scratch
from windlass.bench.wholecost import Costs, postmaster
from windlass.bench.wholeplay import playing
from windlass.db import open_database
from windlass.db.migrate import migrate
from windlass.errors import SetupError

PARTS = ("load", "start", "minutes", "herd")
PROCESSES = 2
RUNNERS = 2
SLOTS = 500
LOAD_RATE = 2_000
"""Schedules a second, at the least, that are loaded before they are due."""
STUCK_S = 120.0
LOOK_S = 0.02
BESIDE_S = 0.02
"""Between two jobs that somebody else submits."""
# By shard, so that the index is probed and not read from end to end: looking must not cost what is measured.
_DUE = """
SELECT EXISTS (SELECT 1 FROM generate_series(0, 15) AS s(shard) CROSS JOIN LATERAL (
       SELECT 1 FROM windlass.schedule_next n WHERE n.shard = s.shard AND n.next_at = $1 LIMIT 1) AS x)
"""
_BYTES = """
SELECT pg_total_relation_size('windlass.schedule') + pg_total_relation_size('windlass.schedule_next')
"""
_FINISHED = "SELECT count(*) FROM windlass.done WHERE slot_at >= $1"
_MADE = "SELECT count(*), count(DISTINCT schedule_id) FROM windlass.job WHERE slot_at = $1"
_LATE = """
SELECT percentile_disc(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - slot_at)),
       percentile_disc(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM created_at - slot_at)),
       count(*), count(DISTINCT (schedule_id, slot_at)) FROM windlass.done WHERE slot_at >= $1
"""
# Number n of the minute's schedules is due at second n of every minute: its slots by arithmetic, not by ours.
_EXPECTED = """
SELECT s.id, CAST($1 AS timestamptz) + make_interval(secs => mod(n.n % 60 - CAST($2 AS int) + 60, 60) + 60 * m)
  FROM windlass.schedule s CROSS JOIN LATERAL (SELECT CAST(substr(s.name, 8) AS int) AS n) AS n
 CROSS JOIN generate_series(0, CAST($3 AS int) - 1) AS m WHERE s.name LIKE 'minute-%'
"""
_FIRED = "SELECT schedule_id, slot_at FROM windlass.done WHERE slot_at >= CAST($1 AS timestamptz)"
_MISSED = f"SELECT count(*) FROM ({_EXPECTED} EXCEPT {_FIRED}) AS x"
_UNASKED = f"SELECT count(*) FROM ({_FIRED} EXCEPT {_EXPECTED}) AS x "


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, where, and how much."""

    postgres: str
    parts: tuple[str, ...] = PARTS
    schedules: int = 10_000_000
    few: int = 10_000
    per_minute: int = 100_000
    minutes: int = 3
    herds: tuple[int, ...] = (10_000, 100_000)
    peers: bool = False
    peer_schedules: int = 10_000
    settle_s: float = 15.0
    """Before what is to be measured begins."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the result."""

    part: str
    name: str
    value: float | None
    """None: not available."""
    unit: str
    goal: Goal | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None if there is none."""
        return None if self.goal is None or self.value is None else self.goal.met(self.value)

    def as_json(self) -> dict[str, Any]:
        """Return what stands in the file."""
        return msgspec.structs.asdict(self) | {"goal": None if self.goal is None else self.goal.at, "met": self.met}


Note = Callable[[str], None]


async def measure(plan: Plan, note: Note) -> list[Reading]:
    """Return every reading; `note` is told what is being done."""
    readings: list[Reading] = []
    async with scratch(plan.postgres) as url:
        db = await open_database(url, connections=1)
        await migrate(db)
        await db.close()
        readings += await _loaded(plan, url, note)
        async with windlass_server(url) as served:
            if "minutes" in plan.parts:
                readings += await _minutes(plan, url, served, note)
            if "herd" in plan.parts:
                for count in plan.herds:
                    readings += await _herd(plan, url, served, count=count, note=note)
    if plan.peers:
        readings += await _peers(plan, note)
    return readings


async def _loaded(plan: Plan, url: str, note: Note) -> list[Reading]:
    readings = []
    for first, count in ((0, min(plan.few, plan.schedules)), (plan.few, plan.schedules - plan.few)):
        if count <= 0 or not {"load", "start"} & set(plan.parts):
            continue
        began = time.monotonic()
        batch = Batch(kind="background", first=first, count=count)
        await fill(url, batch, processes=PROCESSES, said=_counting(note, count))
        took_s = time.monotonic() - began
        there = first + count
        async with connected(url) as connection:
            size = await connection.fetchval(_BYTES)
        readings += [
            Reading(part="load", name=f"{count:,} schedules loaded", value=took_s, unit="s"),
            Reading(part="load", name=f"{count:,} schedules loaded", value=count / took_s, unit="schedules/s"),
            Reading(part="load", name=f"{there:,} on disk", value=float(size) / 1e6, unit="MB", note="with indexes"),
            Reading(part="load", name=f"{there:,} on disk, each", value=float(size) / there, unit="B"),
        ]
        if "start" in plan.parts:
            note(f"a server starts beside {there:,} schedules")
            began = time.monotonic()
            async with windlass_server(url) as served:
                ready_s = time.monotonic() - began
                await asyncio.sleep(plan.settle_s)
                memory = served.memory_mb()
            readings += [
                Reading(part="start", name=f"ready beside {there:,} schedules", value=ready_s, unit="s"),
                Reading(part="start", name=f"memory beside {there:,} schedules", value=memory, unit="MB"),
            ]
    return readings


def _counting(note: Note, most: int) -> Callable[[int], None]:
    return lambda count: note(f"{count:,} of {most:,} schedules loaded")


async def _minutes(plan: Plan, url: str, served: Served, note: Note) -> list[Reading]:
    expected = plan.per_minute * plan.minutes
    begin_at = _soon(plan, plan.per_minute)
    note(f"{plan.per_minute:,} schedules that are due every minute are loaded")
    batch = Batch(kind="minute", count=plan.per_minute, at=begin_at, minutes=plan.minutes)
    await fill(url, batch, processes=PROCESSES, said=lambda _: None)
    async with _fleet(served) as fleet, connected(url) as connection:
        await _until(begin_at)
        costs = Costs({"server": [served.pid], "workers": [fleet], "database": await _database(url)})
        note(f"{plan.minutes} minutes of {plan.per_minute:,} due in each")
        await _until(begin_at + timedelta(seconds=MINUTE * plan.minutes))
        await _finished(connection, begin_at, expected)
        per_run = costs.us_per_job(expected)
        started, enqueued, count, distinct = await _row(connection, _LATE, begin_at)
        bounds = (begin_at, begin_at.second, plan.minutes)
        missed, unasked = [await connection.fetchval(query, *bounds) for query in (_MISSED, _UNASKED)]
    per = f"{plan.per_minute:,} a minute"
    goals = {1: Goal(1.0, at_most=True)}
    readings = [
        Reading(
            part="minutes",
            name=f"{per}: {what}, {kind}",
            value=float(late[place]),
            unit="s",
            goal=goals.get(place) if late is started else None,
        )
        for what, late in (("slot to start", started), ("slot to queued", enqueued))
        for place, kind in enumerate(("median", "99th percentile", "greatest"))
    ]
    none = Goal(0, at_most=True)
    readings += [
        Reading(part="minutes", name=f"{per}: slots run", value=float(count), unit="jobs", goal=Goal(expected)),
        Reading(part="minutes", name=f"{per}: slots missed", value=float(missed), unit="slots", goal=none),
        Reading(part="minutes", name=f"{per}: slots doubled", value=float(count - distinct), unit="slots", goal=none),
        Reading(part="minutes", name=f"{per}: slots nobody asked for", value=float(unasked), unit="slots", goal=none),
        Reading(part="minutes", name=f"{per}: memory of the server", value=served.memory_mb(), unit="MB"),
    ]
    return readings + [
        Reading(part="minutes", name=f"{per}: CPU of {user} for one run", value=used, unit="µs")
        for user, used in per_run.items()
    ]


async def _herd(plan: Plan, url: str, served: Served, *, count: int, note: Note) -> list[Reading]:
    at = _soon(plan, count)
    note(f"{count:,} schedules due in the same second are loaded")
    await fill(url, Batch(kind="herd", count=count, first=count, at=at), processes=PROCESSES, said=lambda _: None)
    async with connected(url) as connection:
        await _until(at - timedelta(seconds=1))
        costs = Costs({"server": [served.pid], "database": await _database(url)})
        note(f"{count:,} due in the same second")
        await _until(at)
        async with _others(served) as others_ms:
            await _fired(connection, at, count=count)
            took_s = (datetime.now(UTC) - at).total_seconds()
        per_fire = costs.us_per_job(count)
        made, distinct = await _row(connection, _MADE, at)
    goal, others_goal = (Goal(2.0, at_most=True), Goal(250, at_most=True)) if count <= 10_000 else (None, None)
    what = f"{count:,} due at once"
    others = f"{what}: others' submit, 99th percentile"
    none = Goal(0, at_most=True)
    return [
        Reading(part="herd", name=f"{what}: all queued after", value=took_s, unit="s", goal=goal),
        Reading(part="herd", name=others, value=percentile(others_ms, 0.99), unit="ms", goal=others_goal),
        Reading(part="herd", name=f"{what}: jobs made", value=float(made), unit="jobs", goal=Goal(count)),
        Reading(part="herd", name=f"{what}: doubled", value=float(made - distinct), unit="jobs", goal=none),
        *(
            Reading(part="herd", name=f"{what}: CPU of {user} for one fire", value=used, unit="µs")
            for user, used in per_fire.items()
        ),
        Reading(part="herd", name=f"{what}: memory of the server", value=served.memory_mb(), unit="MB"),
    ]


async def _fired(connection: asyncpg.Connection[Any], at: datetime, *, count: int) -> None:
    until_s = time.monotonic() + STUCK_S
    while await connection.fetchval(_DUE, at):
        if time.monotonic() > until_s:
            raise SetupError(f"Of {count:,} schedules some were not fired within {STUCK_S:g} s.")
        await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def _others(served: Served) -> AsyncIterator[list[float]]:
    """Submit plain jobs beside the block; when it has ended the list has how long each took, in ms."""
    times: list[float] = []
    over = asyncio.Event()
    async with connections(served.port, 1) as [connection], asyncio.TaskGroup() as group:
        group.create_task(_submit_on(connection, times, over))
        try:
            yield times
        finally:
            over.set()


async def _submit_on(connection: Connection, times: list[float], over: asyncio.Event) -> None:
    request = submit_one("beside")
    # One that waits for the answer before it has waited since it was to be sent.
    planned_s = time.perf_counter()
    while not over.is_set():
        (await connection.ask(request)).good()
        times.append((time.perf_counter() - planned_s) * 1000)
        planned_s += BESIDE_S
        await asyncio.sleep(max(0.0, planned_s - time.perf_counter()))


async def _peers(plan: Plan, note: Note) -> list[Reading]:
    readings = []
    for peer in PEERS:
        note(f"{peer.name}: {plan.peer_schedules:,} due at once")
        name = f"{peer.name}: {plan.peer_schedules:,} due at once"
        try:
            took_s: float | None = await herd_s(peer, plan.peer_schedules, postgres=plan.postgres)
            said = peer.note
        except SetupError as error:
            took_s, said = None, str(error)
        readings.append(Reading(part="peers", name=name, value=took_s, unit="s", note=said))
    return readings


@asynccontextmanager
async def _fleet(served: Served) -> AsyncIterator[int]:
    command = [sys.executable, "-m", "windlass", "worker", "windlass.bench.wholeapp:app", "--log-format", "json"]
    command += ["--url", f"http://127.0.0.1:{served.port}", "--processes", str(RUNNERS), "--threads", str(SLOTS)]
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        async with playing(command, name="windlass worker", folder=folder, ours=True) as player:
            yield player.pid


async def _finished(connection: asyncpg.Connection[Any], since: datetime, expected: int) -> None:
    before, moved_s = -1, time.monotonic()
    while (now := await connection.fetchval(_FINISHED, since)) < expected:
        if now > before:
            before, moved_s = now, time.monotonic()
        elif time.monotonic() > moved_s + STUCK_S:
            return  # what is missing is told by the readings
        await asyncio.sleep(1)


async def _row(connection: asyncpg.Connection[Any], query: str, *parameters: object) -> Any:
    row = await connection.fetchrow(query, *parameters)
    assert row is not None
    return row


async def _database(url: str) -> list[int]:
    found = await postmaster(url)
    return [] if found is None else [found]


def _soon(plan: Plan, count: int) -> datetime:
    """Return a whole second at which so many schedules will be in."""
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=math.ceil(plan.settle_s + count / LOAD_RATE))


async def _until(at: datetime) -> None:
    await asyncio.sleep(max(0.0, (at - datetime.now(UTC)).total_seconds()))
