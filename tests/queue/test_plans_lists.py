"""Plans of what people ask: counts, lists and statistics read a bounded number of rows, however much lies beside.

On PostgreSQL among forty thousand rows in every place; until these are analysed a lane may be read whole, for the
planner believes it short, but never a table for each lane. On SQLite twenty times as many rows cost no more.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.clock import START
from tests.databases import Emptied, drop
from tests.db.filled import COUNT, LANES, SESSION, SESSIONS, analyse, copy_filled, made
from tests.db.plans import Plan, explained, hot, reading
from tests.queue.test_plans_sqlite import filled, named, steps_of, undone
from windlass.db import Query, union
from windlass.db.sqlite_connection import SqliteConnection
from windlass.queue import attempts, depths, explain, fleet, history, queues, recent, retention, stats, workers
from windlass.queue.history import NEWEST

_numbers = itertools.count(1)
ALL = list(range(1, LANES + 1))
MOST = 50
DONE = ["cancelled", "expired", "succeeded"]
JUST_BEFORE = START - timedelta(seconds=1)
SPAN: dict[str, Any] = {"since": START - timedelta(minutes=4), "until": START}
ENDS: dict[str, Any] = {
    "worker": None,
    "outcome": None,
    "schedule_id": None,
    "task": None,
    "fence": 1,
    "job_id": NEWEST,
}

OWN: dict[str, Any] = {"tenant": "default", "floor": NEWEST, "examined": MOST, "limit": 9}

Case = tuple[Query, dict[str, Any], int]
# What each reads at most, of any one table.
CASES: list[Case] = [
    (depths.SQL.ready_and_dead, {"lanes": ALL, "most": MOST}, LANES * MOST),
    (depths.SQL.elsewhere, {"most": MOST}, 2 * MOST),
    (depths.SQL.longest_waits, {"lanes": ALL}, 3 * LANES),
    (stats.SQL.ended, {"tenant": None, **SPAN}, LANES),
    (stats.SQL.leased_waits, {"tenant": "default", "since": START - timedelta(days=1), "most": MOST}, MOST),
    (history.SQL.floor_done, {"cursor": NEWEST, "examined": MOST}, MOST + 20),
    (history.SQL.floor_dead, {"cursor": NEWEST, "examined": MOST}, MOST),
    (history.SQL.floor_queued, {"cursor": NEWEST, "examined": MOST}, MOST + 1),
    (history.SQL.floor_timed, {"cursor": NEWEST, "examined": MOST}, MOST + 1),
    (history.SQL.own_queued, {**OWN, "states": ["queued", "running"], "stale": 0}, 2 * MOST),
    (history.SQL.own_timed, {**OWN, "states": ["scheduled"], "stale": 0}, 2 * MOST),
    (history.SQL.own_done, {**OWN, "states": DONE}, MOST),
    (history.SQL.own_dead, {**OWN, "states": ["dead"]}, MOST),
    (
        union(*[place.own for place in history.PLACES]),
        {**OWN, "states": [*DONE, "dead", "queued", "scheduled"], "stale": 0},
        4 * MOST,
    ),
    (attempts.SQL.ended_between, {"tenant": "default", "limit": MOST, **ENDS, **SPAN, "until": JUST_BEFORE}, LANES),
    (attempts.SQL.oldest_end, {"tenant": "default"}, LANES * 20),
    (fleet.SQL.held_jobs, {"tenant": "default", "workers": ["worker9"], "most": 10}, 150),
    (explain.SQL.capabilities, {"tenant": "default", "limit": MOST, "most": MOST}, SESSIONS + MOST),
    (explain.SQL.ready_lanes, {"tenant": "default", "limit": MOST, "most": MOST}, LANES),
    (workers.SQL.find_sessions, {"ids": [made(SESSION, 9)]}, 1),
    (queues.SQL.list_queues, {"tenant": "default", "queue": None, "cursor": "", "limit": 10}, LANES + 1),
]


@pytest.fixture(scope="module", params=["never analysed", pytest.param("analysed", marks=pytest.mark.exhaustive)])
def url(request: pytest.FixtureRequest, worker_database: Emptied) -> Iterator[str]:
    """The URL of a filled database, whose planner knows its tables or does not."""
    name = f"{worker_database.name}_lists_{next(_numbers)}"
    made_url = asyncio.run(copy_filled(worker_database.server, name))
    if request.param == "analysed":
        asyncio.run(analyse(made_url))
    yield made_url
    asyncio.run(drop(worker_database.server, name))


def read_of(plan: Plan, prefix: str) -> int:
    """Return how many rows of a table, or of all its partitions, were read."""
    tables = {str(node["Relation Name"]) for node in plan.nodes() if "Relation Name" in node}
    return sum(sum(plan.read(table).values()) for table in tables if table.startswith(prefix))


@pytest.mark.parametrize(("query", "parameters", "most"), CASES, ids=named)
async def test_what_people_ask_reads_little(url: str, query: Query, parameters: dict[str, Any], most: int) -> None:
    """P37, P41: no table gives more rows than the caps allow, and none that grows is read whole."""
    async with reading(url) as connection:
        plan = await explained(connection, query, **parameters)
        if not await connection.fetchval("SELECT count(*) FROM pg_stats WHERE tablename = 'queue'"):
            most = max(most, COUNT)

    for table in ("queue", "timer", "job", "done", "dead", "attempt", "session"):
        assert most >= read_of(plan, table), table


async def test_a_page_of_ends_stops_at_its_floor(url: str) -> None:
    """P9: of finished jobs those between the floor and the cursor are read, of whichever tenant."""
    async with reading(url) as connection:
        floor: UUID = await connection.fetchval("SELECT id FROM windlass.done ORDER BY id DESC OFFSET 500 LIMIT 1")
        query = history.SQL.list_done.where("queue = :queue")
        values = {"tenant": "acme", "queue": "none", "states": DONE, "limit": 101}
        plan = await explained(connection, query, cursor=NEWEST, floor=floor, **values)

    assert 520 >= read_of(plan, "done")


async def test_a_list_of_workers_reads_sessions_by_name(url: str) -> None:
    """P34: one worker is found by its name among a thousand."""
    async with reading(url) as connection:
        asked = {"tenant": "default", "worker": "worker77", "status": None, "cursor": "", "limit": 1, "most": 9}
        plan = await explained(connection, fleet.SQL.list_workers, with_texts=1, **asked)

    assert 1 == plan.root["Actual Rows"]


@pytest.mark.parametrize("name", ["forget_stats", "forget_audit"])
async def test_a_sweep_begins_with_the_oldest(fresh_postgres_url: str, name: str) -> None:
    """M27: of forty thousand rows a chunk is read, by index."""
    async with hot(fresh_postgres_url) as connection:
        await connection.execute(
            "INSERT INTO windlass.stat SELECT windlass.clock() - n * interval '1 minute', 'default', 'q',"
            " 1, 0, 0, 0, 0, 0, 1, 1, 1 FROM generate_series(1, 20000) n"
        )
        await connection.execute(
            "INSERT INTO windlass.audit (id, happened_at, tenant, action, subject)"
            " SELECT CAST(lpad(to_hex(n), 32, '0') AS uuid),"
            " windlass.clock() - interval '9 days' + n * interval '1 minute', 'default', 'a', 's'"
            " FROM generate_series(1, 20000) n"
        )
        plan = await explained(connection, getattr(retention.SQL, name), limit=MOST, age_ms=86_400_000)

    assert 1 == plan.root["Actual Rows"]
    assert 3 * MOST >= read_of(plan, "stat") + read_of(plan, "audit")


@pytest.fixture(scope="module")
def small(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteConnection]:
    """A database with a thousand rows in each place."""
    connection = filled(sqlite_template, tmp_path_factory.mktemp("plans") / "small.db", 1000)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def large(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteConnection]:
    """A database with twenty times as many."""
    connection = filled(sqlite_template, tmp_path_factory.mktemp("plans") / "large.db", 20_000)
    yield connection
    connection.close()


BY_LEASES = {"held_jobs"}
"""What costs as much as a session holds."""


@pytest.mark.parametrize(("query", "parameters", "_most"), [c for c in CASES if c[0].name not in BY_LEASES], ids=named)
def test_the_cost_does_not_grow(
    query: Query, parameters: dict[str, Any], _most: int, small: SqliteConnection, large: SqliteConnection
) -> None:
    """On SQLite, with twenty times as many rows in every place, what people ask takes no more steps, but for a few."""
    counts = []
    for connection in (small, large):
        with undone(connection):
            counts.append(steps_of(connection, query, parameters))

    assert counts[1] <= counts[0] * 1.2 + 20


def test_recent_events_cost_what_happened_lately(small: SqliteConnection, large: SqliteConnection) -> None:
    """Y2: on SQLite who follows along pays for what was touched, not for what waits or ended before."""
    asked: dict[str, Any] = {
        "tenant": "default",
        "since": START + timedelta(hours=1),
        "limit": MOST,
        "longest": 9,
    }
    counts = []
    for connection in (small, large):
        with undone(connection):
            touched = steps_of(connection, recent.SQL.touched_since, asked | {"first_id": NEWEST, "leases": MOST})
            counts.append(touched + steps_of(connection, recent.SQL.acts_since, asked))

    assert counts[1] <= counts[0] * 1.2 + 20
