"""Plans made early: a connection plans its statements while its tables are small, and keeps these plans as they fill.

A queue is empty most of its life, also when its statistics are taken. So no plan may rest on a table being small: each
row is searched for by a key, even where reading the whole table would be cheapest today.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.databases import Emptied, connected, create, drop
from tests.db.plans import Connection, Node, Plan, hot, whole
from windlass.db import Query, open_database
from windlass.ids import Ids
from windlass.queue import (
    backfills,
    checkpoints,
    claim,
    control,
    deadletters,
    deadlines,
    declared,
    firing,
    following,
    limits,
    logs,
    looks,
    moves,
    outbox,
    report,
    rescue,
    scheduledits,
    schedules,
    schedulewrites,
    submit,
    timers,
    watches,
    workers,
    zonerules,
)
from windlass.queue.claim import Group, Want
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob

MODULES = (
    backfills,
    checkpoints,
    claim,
    control,
    deadletters,
    deadlines,
    declared,
    firing,
    following,
    limits,
    looks,
    logs,
    moves,
    outbox,
    report,
    rescue,
    scheduledits,
    schedules,
    schedulewrites,
    submit,
    timers,
    watches,
    workers,
    zonerules,
)
GROWING = (
    "queue",
    "job",
    "timer",
    "done",
    "dead",
    "attempt",
    "event",
    "session",
    "dedup",
    "outbox",
    "checkpoint",
    "log",
    "backfill_job",
    "backfill",
    "schedule_watch",
    "schedule",
    "schedule_next",
    "schedule_wait",
    "schedule_runs",
    "schedule_watch",
)

WHOLE = {
    "beat_pulse": "session_live",
    "declare_dead": "session_live",
    "drain": "session_live",
    "orphans": "session_ended",
    "forget_ended": "session_ended",
    "overdue": "queue_leased",
    "count_leased": "queue_leased",
    "mark_leases": "queue_leased",
    "all_marked": "queue_leased",
    "heads": "queue_ready",
    "missing_count": "schedule_watch_missing",
    "look": "timer_due session_live queue_leased queue_start_by outbox_due backfill_open schedule_watch_due "
    "schedule_behind",
}
"""What is meant to be read from its beginning: a small index, or one with a limit."""
BY_LANE = {"claim": "queue_ready", "count_running": "queue_running"}
"""What is meant to be read lane by lane."""
_numbers = itertools.count(1)


SOME = [pytest.param(count, marks=pytest.mark.exhaustive) for count in (0, 4)]


@pytest.fixture(scope="module", params=["never analysed", *SOME, 40])
def url(request: pytest.FixtureRequest, worker_database: Emptied) -> Iterator[str]:
    """The URL of a database with so few jobs, half of them leased, whose tables were then vacuumed and analysed."""
    name = f"{worker_database.name}_early_{next(_numbers)}"
    asyncio.run(create(worker_database.server, name))
    made = worker_database.server.url_of(name)
    if request.param != "never analysed":
        asyncio.run(analysed_with(made, request.param))
    yield made
    asyncio.run(drop(worker_database.server, name))


async def analysed_with(url: str, jobs: int) -> None:
    """Store some jobs, lease half of them, and let the database count what it has."""
    db = await open_database(url)
    ids, lanes = Ids(db.now), Lanes()
    session = uuid4()
    await workers.register(db, workers.NewSession(id=session, worker="w"))
    for number in range(jobs):
        await submit.submit(db, lanes, [NewJob(id=ids.new(), task="t", unique_key=str(number))])
    served = await lanes.serving(db, "default", ["default"], tasks=None, labels=[])
    await claim.claim(db, [Group([Want(lane.id) for lane in served], [session] * (jobs // 2))])
    await db.close()
    async with connected(url) as connection:
        await connection.execute("VACUUM ANALYZE")


@pytest.fixture(scope="module")
async def connection(url: str) -> AsyncIterator[Connection]:
    """A connection as those that write have."""
    async with hot(url) as opened:
        yield opened


def queries() -> list[Query]:
    """Return every query that runs where jobs are written."""
    return [query for module in MODULES for query in module.SQL]


def scans(plan: Plan) -> Iterator[Node]:
    """Yield the scans of tables that grow."""
    for node in plan.nodes():
        table = whole(str(node.get("Relation Name", ""))).rstrip("_0123456789")
        if table in GROWING and node["Node Type"] != "ModifyTable":
            yield node


async def generic_plan(connection: Connection, query: Query) -> Plan:
    """Return the plan that a connection would keep, whatever the parameters."""
    text, slots = query.postgres
    prepared = await connection.prepare(text)
    arguments = f"({', '.join('NULL' for _ in slots)})" if slots else ""
    answer: Any = await connection.fetchval(f'EXPLAIN (FORMAT JSON) EXECUTE "{prepared.get_name()}"{arguments}')
    return Plan(json.loads(answer)[0]["Plan"])


@pytest.mark.parametrize("query", queries(), ids=lambda query: query.name)
async def test_a_plan_made_early_searches_by_key(connection: Connection, query: Query) -> None:
    """Every scan of a table that grows has a condition on its index, and on a lane only where lanes are asked for."""
    plan = await generic_plan(connection, query)

    for scan in scans(plan):
        index, condition = scan.get("Index Name"), scan.get("Index Cond") or scan.get("TID Cond")
        if condition is None:
            assert index in WHOLE.get(query.name, "").split(), scan
        elif "(lane = " in condition:
            assert BY_LANE.get(query.name) == index, scan
