"""Plans: hot statements read what they hand out and no more, however much lies beside, analysed or not.

A plan that depends on statistics is a plan that one day sorts the whole backlog; these statements have one each.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.databases import Emptied, connected, drop
from tests.db.filled import (
    COUNT,
    DEAD_SESSIONS,
    DONE,
    DUE,
    LANES,
    LEASED,
    LEASES_PER_SESSION,
    PASSED,
    READY,
    SESSION,
    SESSIONS,
    TIMED,
    analyse,
    copy_filled,
    made,
)
from tests.db.plans import Node, Plan, explained, hot, reading, whole
from windlass.db import Query, open_database
from windlass.queue import claim, deadlines, history, limits, looks, moves, report, rescue, timers, workers
from windlass.queue.workers import Beat, NewSession, heartbeat, register

HOT_TABLES = ("queue", "job", "timer")
GENERIC, CUSTOM = "force_generic_plan", "force_custom_plan"
_numbers = itertools.count(1)

INLINE = claim.INLINE_BYTES


@pytest.fixture(scope="module", params=["never analysed", pytest.param("analysed", marks=pytest.mark.exhaustive)])
def url(request: pytest.FixtureRequest, worker_database: Emptied) -> Iterator[str]:
    """The URL of a filled database, whose planner knows its tables or does not."""
    name = f"{worker_database.name}_plans_{next(_numbers)}"
    filled = asyncio.run(copy_filled(worker_database.server, name))
    if request.param == "analysed":
        asyncio.run(analyse(filled))
    yield filled
    asyncio.run(drop(worker_database.server, name))


def leases(count: int, *more: Any) -> list[tuple[Any, ...]]:
    """Return (job, fence) of leases scattered over lanes and sessions, with further columns."""
    return [(made(LEASED, n), 1, *more) for n in range(1, COUNT, COUNT // count)][:count]


def wants(lanes: int, count: int) -> list[tuple[int, int, int, int, int]]:
    """Return what a claim of `count` jobs from the first lanes asks for."""
    return [(lane, count, 0, count, claim.OPEN_HINT) for lane in range(1, lanes + 1)]


def joins(plan: Plan) -> set[str]:
    """Return the kinds of joins in a plan."""
    kinds = {"Nested Loop", "Hash Join", "Merge Join", "Hash", "Append", "Merge Append", "Gather"}
    return {node["Node Type"] for node in plan.nodes() if not is_look_into_job(node)} & kinds


def is_look_into_job(node: Node) -> bool:
    """Say whether a node is the partitions of `job`, of which one is looked into."""
    return node["Node Type"] == "Append" and {whole(part.get("Relation Name", "")) for part in node["Plans"]} == {"job"}


def nested(node: Node) -> list[Node]:
    """Return the scans below nested loops, the outermost first."""
    if node["Node Type"] != "Nested Loop":
        return [node]
    outer, inner = node["Plans"]
    return [*nested(outer), inner]


def looks_into_job(plan: Plan) -> int:
    """Return how many times a partition of `job` was looked into."""
    looks = [node["Actual Loops"] for node in plan.nodes() if whole(node.get("Relation Name", "")) == "job"]
    assert len(looks) > 1  # there are several, and most were left out
    return sum(looks)


def assert_bounded(plan: Plan, rows: int) -> None:
    """Expect a plan that scans hot tables by index only and in which no node handled more rows than these."""
    assert plan.kinds(*HOT_TABLES) <= {"Index Scan", "Index Only Scan", "Tid Scan"}
    assert rows >= plan.most_rows(), [n for n in plan.nodes() if n["Actual Rows"] * n["Actual Loops"] > rows]


@pytest.mark.parametrize("mode", [GENERIC, CUSTOM])
@pytest.mark.parametrize(("lanes", "count"), [(1, 1), (1, 100), (1, 1000), (LANES, 100), (LANES, 1)])
async def test_a_claim_reads_the_heads_it_needs(url: str, lanes: int, count: int, mode: str) -> None:
    """A claim of n reads n heads of each lane by `queue_ready`, filters nothing away and sorts only the heads."""
    async with hot(url, plan_cache_mode=mode) as connection:
        slots = [made(SESSION, DEAD_SESSIONS + 1)] * count
        plan = await explained(
            connection, claim.SQL.claim, wants=wants(lanes, count), slots=slots, queue=None, inline=INLINE
        )

    assert count == plan.root["Actual Rows"]
    # Numbering the heads of a lane looks one row ahead, but on newer versions of PostgreSQL.
    assert plan.read("queue")["queue_ready"] in (lanes * count, lanes * (count + 1))
    assert plan.most_rows_per_loop("queue_ready") in (count, count + 1)
    assert {"queue_ready", "Tid Scan"} == set(plan.read("queue"))
    assert {"job_pkey": count} == plan.read("job")
    assert count == looks_into_job(plan)
    assert 0 == plan.removed()
    assert_bounded(plan, max(lanes * (count + 1), LANES))


async def test_a_claim_of_nothing_reads_nothing(url: str) -> None:
    """A lane in which nothing is ready costs one look at the index, whatever lies beside in other places."""
    async with hot(url) as connection:
        asked = {
            "wants": [(1, 100, 0, 100, 2**60)],
            "slots": [made(SESSION, 100)] * 100,
            "queue": None,
            "inline": INLINE,
        }
        plan = await explained(connection, claim.SQL.claim, **asked)

    assert 0 == plan.root["Actual Rows"]
    assert 0 == plan.read("queue").total()
    assert plan.blocks() < 50


async def test_a_hint_saves_the_entries_below(url: str) -> None:
    """With a low-water mark the scan begins there."""
    hint = COUNT // 2
    async with hot(url) as connection:
        asked = {"wants": [(1, 10, 0, 10, hint)], "slots": [made(SESSION, 100)] * 10, "queue": None, "inline": INLINE}
        plan = await explained(connection, claim.SQL.claim, **asked)

    assert plan.read("queue")["queue_ready"] in (10, 10 + 1)


@pytest.mark.parametrize("limit", [1, 500, 2000])
async def test_promotion_reads_what_is_due(url: str, limit: int) -> None:
    """Promoting n timers reads n of them by `timer_due`, among forty thousand."""
    assert limit < DUE
    async with hot(url) as connection:
        plan = await explained(connection, timers.SQL.promote, limit=limit)

    assert {"timer_due": limit, "timer_pkey": limit} == plan.read("timer")
    assert {"job_pkey": limit} == plan.read("job")
    assert limit == looks_into_job(plan)
    assert 0 == plan.removed()
    assert_bounded(plan, max(limit, LANES + 1))


LOOK: dict[str, Any] = {"shards": [0], "foreign": [], "without": [], "whole": 1}


async def test_the_next_timer_is_one_look(url: str) -> None:
    """When the next timer is due is the first entry of `timer_due`."""
    async with reading(url) as connection:
        plan = await explained(connection, looks.SQL.look, **LOOK)

    assert {"timer_due": 1} == plan.read("timer")


async def test_the_next_deadline_is_looked_for_among_leases(url: str) -> None:
    """What waits is not read to see when the next lease is overdue or the next start deadline passes."""
    async with reading(url) as connection:
        plan = await explained(connection, looks.SQL.look, **LOOK)

    assert 1 == plan.read("queue")["queue_start_by"]
    assert COUNT + 1 == plan.read("queue").total()


MOVE = (0, 0, 0, 0)
END = (1, 0, 0, "null", None, None, None, None, None, "worker", None, 1, 0, 0)


@pytest.mark.parametrize(
    ("query", "parameter", "more"),
    [
        (moves.SQL.lease_to_ready, "moves", MOVE),
        (moves.SQL.lease_to_timer, "moves", (*MOVE, 1000, None, 1)),
        (moves.SQL.lease_to_end, "moves", END),
        (moves.SQL.lock_leases, "leases", (None, None, None)),
        (moves.SQL.lock_free_leases, "leases", (None, None, None)),
    ],
    ids=lambda value: value.name if isinstance(value, Query) else "",
)
async def test_the_end_of_a_lease_is_found_by_its_key(
    url: str, query: Query, parameter: str, more: tuple[Any, ...]
) -> None:
    """However a lease ends, its rows are read by primary key, each once."""
    async with hot(url) as connection:
        plan = await explained(connection, query, **{parameter: leases(100, *more)})

    assert {"queue_pkey"} == set(plan.read("queue"))
    assert set(plan.read("job")) <= {"job_pkey"}
    assert_bounded(plan, 200)


def completions(count: int) -> list[tuple[Any, ...]]:
    """Return what a report of success for scattered leases hands to the statement."""
    numbers = range(1, COUNT, COUNT // count)
    named = zip(numbers, leases(count), strict=False)
    return [
        (job_id, fence, "default", f"worker{1 + n % SESSIONS}", None, "null", None, None)
        for n, (job_id, fence) in named
    ]


BATCHES = pytest.mark.parametrize("count", [1, 500, 1000])


@BATCHES
async def test_completing_is_by_key(url: str, count: int) -> None:
    """Completing n jobs looks n of them up in `queue` and `session` by key, and not in `job`; it is never squared."""
    async with hot(url) as connection:
        plan = await explained(connection, report.SQL.complete, items=completions(count))

    assert count == plan.root["Actual Rows"]
    assert {"queue_pkey": count} == plan.read("queue")
    assert {} == plan.read("job")
    assert {"session_pkey": count} == plan.read("session")
    assert_bounded(plan, 2 * count)


@BATCHES
async def test_completing_locks_by_ascending_id(url: str, count: int) -> None:
    """The one lock order of a completion is that of its plan: sorted items, each looked up in `queue`, one by one."""
    async with hot(url) as connection:
        plan = await explained(connection, report.SQL.complete, items=completions(count)[::-1])

    assert {"Nested Loop"} == joins(plan)
    [items] = [node for node in plan.nodes() if node.get("Subplan Name") == "CTE i"]
    [delete] = [node for node in plan.nodes() if node.get("Subplan Name") == "CTE q"]
    assert ("Sort", ["r.id"]) == (items["Node Type"], items["Sort Key"])
    assert ("ModifyTable", "queue") == (delete["Node Type"], delete["Relation Name"])
    # Nested loops keep the order of their outermost scan, and the row is locked when it reaches the top.
    first, *lookups = nested(delete["Plans"][0])
    assert ("CTE Scan", "i") == (first["Node Type"], first["CTE Name"])
    assert "queue_pkey" == lookups[0]["Index Name"]
    assert {(1, count)} == {(node["Actual Rows"], node["Actual Loops"]) for node in lookups}


SMALL = """
INSERT INTO windlass.lane (id, tenant, queue, task, labels, key, paused, limited, credit_ms, fifo)
VALUES (1, 'default', 'small', 'task', '', '', 0, 0, 1, 0);
INSERT INTO windlass.session (id, worker, tenant, state, lease_ms, expires_at, heartbeat_at, started_at, capacity, busy,
                              bare, draining)
SELECT gen_random_uuid(), 'worker' || n, 'default', 0, 30000, now(), now(), now(), 9, 9, 0, 0
  FROM generate_series(1, {sessions}) AS n;
INSERT INTO windlass.queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, session, claimed_at,
                            pending, flags)
SELECT gen_random_uuid(), 1, n, 1, 1, 1, 0, 0, now(), (SELECT min(CAST(id AS text)) FROM windlass.session)::uuid, now(),
       0, 0
  FROM generate_series(1, {leases}) AS n;
"""


@pytest.mark.parametrize("analyse", ["never analysed", "analysed"])
@pytest.mark.parametrize(("sessions", "leases"), [(0, 0), (1, 5), (1, 100), (10, 1000)])
async def test_completing_locks_by_ascending_id_in_small_tables(
    fresh_postgres_url: str, sessions: int, leases: int, analyse: str
) -> None:
    """Where little is leased another plan would be cheaper; it must not be taken, for its locks."""
    async with connected(fresh_postgres_url) as connection:
        await connection.execute(SMALL.format(sessions=sessions, leases=leases))
        if analyse == "analysed":
            await connection.execute("VACUUM ANALYZE")
    async with hot(fresh_postgres_url) as connection:
        plan = await explained(connection, report.SQL.complete, items=completions(1000))

    [delete] = [node for node in plan.nodes() if node.get("Subplan Name") == "CTE q"]
    first, *_ = nested(delete["Plans"][0])
    assert {"Nested Loop"} == joins(plan)
    assert ("CTE Scan", "i") == (first["Node Type"], first["CTE Name"])


async def test_completing_frees_keys_by_key(url: str) -> None:
    """The unique keys of a thousand jobs that end are found by job and removed by key, beside forty thousand."""
    items = completions(1000)
    async with hot(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE windlass.queue SET flags = 4 WHERE id = ANY($1)", [item[0] for item in items])
        await connection.execute(
            "INSERT INTO windlass.dedup (scope, key, job_id, content_hash)"
            " SELECT 'default/unique', CAST(id AS text), id, '' FROM windlass.queue WHERE place = 1"
        )
        plan = await explained(connection, report.SQL.complete, items=items)
        await transaction.rollback()

    assert {"dedup_job": 1000, "dedup_pkey": 1000} == plan.read("dedup")
    assert {"Nested Loop"} == joins(plan)
    assert_bounded(plan, 2000)


LOCKERS: dict[Query, Callable[[int], dict[str, Any]]] = {
    moves.SQL.lock_leases: lambda count: {"leases": leases(count, None, None, None)[::-1]},
    moves.SQL.lock_free_leases: lambda count: {"leases": leases(count, None, None, None)[::-1]},
    workers.SQL.start: lambda count: {"begun": begun(count)[::-1], "grace_ms": 1},
}


def begun(count: int) -> list[tuple[Any, ...]]:
    """Return scattered leases, each with the session that holds it, and how long ago it began."""
    numbers = range(1, COUNT, COUNT // count)
    return [
        (job_id, 1, made(SESSION, 1 + n % SESSIONS), 5) for n, (job_id, _) in zip(numbers, leases(count), strict=False)
    ]


@BATCHES
@pytest.mark.parametrize("query", LOCKERS, ids=lambda query: query.name)
async def test_leases_are_locked_by_ascending_id(url: str, query: Query, count: int) -> None:
    """Leases are looked up by key, each once, then sorted by id, and locked in that order."""
    async with hot(url) as connection:
        plan = await explained(connection, query, **LOCKERS[query](count))

    [lock] = [node for node in plan.nodes() if node["Node Type"] == "LockRows"]
    [sort] = lock["Plans"]
    assert ("Sort", 1) == (sort["Node Type"], len(sort["Sort Key"]))
    assert "i.id" == sort["Sort Key"][0]
    assert {"Nested Loop"} == joins(plan)
    first, *lookups = nested(sort["Plans"][0])
    assert "Function Scan" == first["Node Type"]
    assert "queue_pkey" == lookups[0]["Index Name"]
    assert {(1, count)} == {(node["Actual Rows"], node["Actual Loops"]) for node in lookups}
    assert {"queue_pkey"} == set(plan.read("queue"))
    assert count == lock["Actual Rows"]
    assert_bounded(plan, 2 * count)


async def test_unlisted_leases_are_found_by_session(url: str) -> None:
    """The leases of sessions are read by `queue_leased`, those of other sessions are not."""
    sessions = [made(SESSION, n) for n in (7, 70, 700)]
    async with hot(url) as connection:
        plan = await explained(connection, workers.SQL.old_leases, sessions=sessions, older_ms=15_000)

    assert {"queue_leased": len(sessions) * LEASES_PER_SESSION} == plan.read("queue")
    assert_bounded(plan, len(sessions) * LEASES_PER_SESSION)


async def test_cancelled_leases_are_found_by_session(url: str) -> None:
    """The leases of sessions that do not say what they hold are read by `queue_leased`, nobody else's."""
    sessions = [made(SESSION, n) for n in (7, 70, 700)]
    async with hot(url) as connection:
        plan = await explained(connection, workers.SQL.cancelled, sessions=sessions)

    assert {"queue_leased": len(sessions) * LEASES_PER_SESSION} == plan.read("queue")
    assert_bounded(plan, len(sessions) * LEASES_PER_SESSION)


@pytest.mark.parametrize("limit", [10, 500])
async def test_orphans_are_found_by_ended_sessions(url: str, limit: int) -> None:
    """Rescue reads the ended sessions by `session_ended` and their leases by `queue_leased`, no others."""
    async with hot(url) as connection:
        plan = await explained(connection, rescue.SQL.orphans, limit=limit)

    assert {"session_ended": DEAD_SESSIONS} == plan.read("session")
    assert {"queue_leased": DEAD_SESSIONS * min(limit, LEASES_PER_SESSION)} == plan.read("queue")
    assert_bounded(plan, DEAD_SESSIONS * LEASES_PER_SESSION)


async def test_the_silent_are_sought_among_the_living(url: str) -> None:
    """Who may have fallen silent is read by `session_live`: sessions that have ended cost nothing."""
    async with hot(url) as connection:
        plan = await explained(connection, rescue.SQL.declare_dead, tolerance=1 / 3)

    assert {"session_live"} == set(plan.read("session"))
    assert plan.read("session").total() <= SESSIONS - DEAD_SESSIONS


@pytest.mark.parametrize("limit", [10, 500])
async def test_expiry_reads_passed_deadlines(url: str, limit: int) -> None:
    """Waiting jobs past their start deadline are found by `queue_start_by`; those with one ahead are not read."""
    async with hot(url) as connection:
        plan = await explained(connection, deadlines.SQL.expire, limit=limit)

    assert min(limit, PASSED) == plan.root["Actual Rows"]
    assert plan.read("queue")["queue_start_by"] <= PASSED
    assert {"queue_start_by", "queue_pkey"} == set(plan.read("queue"))
    assert_bounded(plan, PASSED)


async def test_overdue_leases_are_sought_among_leases(url: str) -> None:
    """Deadlines have no index: leased rows are read by a partial one, waiting rows never."""
    async with hot(url) as connection:
        plan = await explained(connection, deadlines.SQL.overdue, limit=500)

    assert COUNT == plan.read("queue").total()
    assert set(plan.read("queue")) <= {"queue_leased", "queue_running"}


async def test_limits_count_leases_only(url: str) -> None:
    """How many jobs of a queue with limits are leased is counted by `queue_running`, which has no other leases."""
    async with hot(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE windlass.queue SET flags = 256 WHERE place = 1 AND lane = 1")
        plan = await explained(connection, limits.SQL.count_running, queue=0)
        await transaction.rollback()

    assert {"queue_running"} == set(plan.read("queue"))
    assert COUNT // LANES == pytest.approx(plan.read("queue").total(), rel=0.01)  # rows per loop are rounded


async def test_heartbeats_look_up_what_they_name(url: str) -> None:
    """The jobs that a heartbeat names, and those that began, are read by key."""
    named = [(job_id, 1, made(SESSION, 8)) for job_id, _ in leases(100)]
    async with hot(url) as connection:
        held = await explained(connection, workers.SQL.held, named=named)
        begun = await explained(connection, workers.SQL.start, begun=[(*name, 5) for name in named], grace_ms=1)
        renewed = await explained(
            connection,
            workers.SQL.renew,
            beats=[(made(SESSION, n), "default", 1, None, 0, 0, 0, 0, 0) for n in range(10, 110)],
        )

    for plan in (held, begun):
        assert {"queue_pkey"} == set(plan.read("queue"))
        assert_bounded(plan, 200)
    assert {"session_pkey": 100} == renewed.read("session")


@pytest.mark.parametrize(("kind", "table"), [(READY, "queue"), (LEASED, "queue"), (TIMED, "timer")])
async def test_one_job_is_found_by_its_id(url: str, kind: int, table: str) -> None:
    """A job is looked up by index in every place it may lie in, with the settings of those that read."""
    async with reading(url) as connection:
        plan = await explained(connection, history.SQL.get, id=made(kind, 777), tenant="default")

    # Once to see whose it is, and once for the whole.
    assert 1 == plan.root["Actual Rows"]
    assert {f"{table}_pkey": 2} == plan.read(table)
    assert 1 == looks_into_job(plan)
    assert_bounded(plan, LANES + 1)


@pytest.mark.parametrize("kind", [READY, LEASED, TIMED, DONE])
async def test_rel_t5_another_tenants_job_is_looked_up_as_an_unknown_one(url: str, kind: int) -> None:
    """T5: but for its lane nothing of it is read, so that the time of a refusal does not tell that it is there."""
    async with reading(url) as connection:
        foreign = await explained(connection, history.SQL.get, id=made(kind, 777), tenant="acme")
        unknown = await explained(connection, history.SQL.get, id=made(kind, 10 * COUNT), tenant="acme")

    for plan in (foreign, unknown):
        assert 0 == plan.root["Actual Rows"]
        assert 0 == plan.read("job").total() + plan.read("session").total()
    # The leaf of an index is entered either way; beyond it lie the row, and that of its lane.
    assert 6 >= foreign.blocks() - unknown.blocks()


async def renewed(url: str, *, sessions: int, beats: int) -> tuple[int, int]:
    """Renew so many sessions so often; return how many updates there were, and how many of them were HOT."""
    named = [made(SESSION, n) for n in range(sessions)]
    async with connected(url) as connection:
        await connection.execute("ALTER TABLE windlass.session SET (autovacuum_enabled = off)")
    db = await open_database(url)
    for session in named:
        await register(db, NewSession(id=session, worker="w"))
    for _ in range(beats):
        await heartbeat(db, [Beat(session, held=[], busy=1) for session in named])
    await db.close()
    async with asyncio.timeout(10), connected(url) as connection:
        updates, hot_updates = 0, 0
        while updates < sessions * beats:  # statistics are told when a connection ends, a moment later
            [(updates, hot_updates)] = await connection.fetch(
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'session'"
            )
    return updates, hot_updates


async def test_renewals_are_hot(fresh_postgres_url: str) -> None:
    """A heartbeat's update touches no index: all are HOT, also while a snapshot keeps every old version.

    Thirty versions of one session fit into its page, so nothing needs to be pruned.
    """
    async with connected(fresh_postgres_url) as holder:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM windlass.session")
        assert (30, 30) == await renewed(fresh_postgres_url, sessions=1, beats=30)


async def test_renewals_are_pruned(fresh_postgres_url: str) -> None:
    """Old versions make room without any vacuum: of 1,500 renewals of 50 sessions on two pages nearly all are HOT.

    Alone it is all 1,500. A snapshot that somebody holds in this database keeps versions, so that pages fill up: 1,351
    and 905 were seen. Autovacuum, which may look at any other table meanwhile, has one for as long as it
    analyses. An index over a column that beats change would leave none, so the test asks for half.
    """
    updates, hot_updates = await renewed(fresh_postgres_url, sessions=50, beats=30)

    assert 1500 == updates
    assert 750 <= hot_updates
