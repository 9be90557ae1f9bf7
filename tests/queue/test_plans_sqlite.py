"""Plans on SQLite: hot statements search by index, and their cost does not grow with what lies beside."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clock import START
from tests.db.filled import BLOCKED, DONE, LEASED, READY, SESSION, TIMED, made
from windlass.clock import to_us
from windlass.db import Query
from windlass.db.sqlite_connection import SqliteConnection
from windlass.queue import claim, deadlines, history, limits, looks, moves, report, rescue, retention, timers, workers

NOW = to_us(START)
DAY = 86_400_000_000
LANES, SESSIONS = 10, 100
HOT = re.compile(r"SCAN (queue|q|x|job|j|timer|t|done)\b(?! USING INDEX queue_(leased|running))")
PLACES = {READY: 0, LEASED: 1, BLOCKED: 2}
OLD = 50
"""How many rows of history are past retention; of the attempts as many again, written late."""

INLINE = claim.INLINE_BYTES


def filled(template: Path, path: Path, count: int) -> SqliteConnection:
    """Return a connection to a copy of the template with `count` rows in each place, over ten lanes."""
    shutil.copyfile(template, path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous=OFF")
    db.execute("BEGIN")
    db.executemany(
        "INSERT INTO lane (id, tenant, queue, task, labels, key, paused, limited, credit_ms, fifo) "
        "VALUES (?, 'default', 'q', ?, '', '', 0, 0, 1, 0)",
        [(n, f"task{n}" if n else "") for n in range(LANES + 1)],
    )
    db.executemany(
        "INSERT INTO session (id, worker, tenant, state, lease_ms, expires_at, heartbeat_at, started_at, "
        "capacity, busy, bare, draining) "
        "VALUES (?, 'w', 'default', ?, 30000, ?, 0, 0, 1, 1, 0, 0)",
        [(str(made(SESSION, n)), 1 if n == 1 else 0, NOW + 10**9) for n in range(SESSIONS)],
    )
    db.executemany(
        "INSERT INTO job (id, lane, task, payload, priority, max_attempts, max_lost, timeout_s, run, run_at, "
        "created_at) VALUES (?, ?, 'task1', 'null', 0, 3, 5, 60, 1, 0, 0)",
        [(str(made(kind, n)), 1 + n % LANES) for kind in (*PLACES, TIMED, DONE) for n in range(count)],
    )
    db.executemany(
        "INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, session, claimed_at, "
        "start_by, pending, flags) "
        "VALUES (?, ?, ?, ?, 1, 1, 0, 0, 0, ?, ?, ?, 0, 0)",
        [
            (
                str(made(kind, n)),
                1 + n % LANES,
                n,
                place,
                str(made(SESSION, n % SESSIONS)) if place == 1 else None,
                0 if place == 1 else None,
                NOW + (1 if n >= 50 else -1) * 10**6 if place == 2 else None,
            )
            for kind, place in PLACES.items()
            for n in range(count)
        ],
    )
    db.executemany(
        "INSERT INTO timer (id, due_at, lane, attempt, fence, lost, releases, flags, reason) "
        "VALUES (?, ?, 1, 0, 0, 0, 0, 0, 0)",
        [(str(made(TIMED, n)), NOW + (n - 100) * 10**6) for n in range(count)],
    )
    fill_history(db, count)
    db.execute("COMMIT")
    return SqliteConnection(db)


def fill_history(db: sqlite3.Connection, count: int) -> None:
    """Put `count` rows into each table of history, the first of them two days old."""
    times = [(n, NOW - (2 * DAY if n < OLD else 0)) for n in range(count)]
    ended, values = "lane, attempt, fence, lost, releases", "?, 1, 1, 0, 0"
    for table, more, value in (("done", "", ""), ("dead", ", held", ", 0")):
        db.executemany(
            f"INSERT INTO {table} (id, {ended}, outcome, finished_at{more}) VALUES (?, {values}, 0, ?{value})",
            [(str(made(DONE, n)), 1 + n % LANES, at) for n, at in times],
        )
    db.executemany("INSERT INTO event (job_id, happened_at, kind) VALUES (?, ?, 'paused')", times)
    late = [(count + n, NOW - 2 * DAY, None) for n in range(OLD)]
    db.executemany(
        "INSERT INTO attempt (job_id, run, attempt, fence, lane, outcome, finished_at, next_run_at) "
        "VALUES (?, 1, 1, 1, 1, 1, ?, ?)",
        [(str(n), at, after) for n, at, after in [*((n, at, at) for n, at in times), *late]],
    )


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


def leases(*more: Any) -> list[tuple[Any, ...]]:
    """Return (job, fence) of 100 leases, with further columns."""
    return [(made(LEASED, n * 7), 1, *more) for n in range(100)]


WANTS = [(lane, 100, 0, 100, claim.OPEN_HINT) for lane in range(1, LANES + 1)]
MOVE = (0, 0, 0, 0)
END = (1, 0, 0, "null", None, None, None, None, None, "w", None, 1, 0, 0)
Case = tuple[Query, dict[str, Any], str]
CASES: list[Case] = [
    (
        claim.SQL.claim,
        {"wants": WANTS, "slots": [made(SESSION, 5)] * 100, "queue": None, "inline": INLINE},
        "queue_ready (lane=? AND rank>?)",
    ),
    (timers.SQL.promote, {"limit": 100}, "timer_due (due_at<?)"),
    (looks.SQL.look, {"shards": [0], "foreign": [], "without": [], "whole": 0}, "timer_due"),
    (
        report.SQL.complete,
        {"items": leases("default", "w", None, "null", None, None)},
        "SEARCH q USING PRIMARY KEY (id=?)",
    ),
    (moves.SQL.lease_to_ready, {"moves": leases(*MOVE)}, "SEARCH queue USING PRIMARY KEY (id=?)"),
    (moves.SQL.lease_to_timer, {"moves": leases(*MOVE, 1000, None, 1)}, "SEARCH q USING PRIMARY KEY (id=?)"),
    (moves.SQL.lease_to_end, {"moves": leases(*END)}, "SEARCH q USING PRIMARY KEY (id=?)"),
    (moves.SQL.lock_leases, {"leases": leases(None, None, None)}, "SEARCH q USING PRIMARY KEY (id=?)"),
    (workers.SQL.held, {"named": leases(made(SESSION, 3))}, "SEARCH q USING PRIMARY KEY (id=?)"),
    (workers.SQL.start, {"begun": leases(made(SESSION, 3), 5), "grace_ms": 1}, "SEARCH queue USING PRIMARY KEY (id=?)"),
    (
        workers.SQL.renew,
        {"beats": [(made(SESSION, 3), "default", 1, None, 0, 0, 0, 0, 0)]},
        "SEARCH session USING INDEX sqlite_autoindex_session_1 (id=?)",
    ),
    (history.SQL.get, {"id": made(TIMED, 5), "tenant": "default"}, "SEARCH t USING PRIMARY KEY (id=?)"),
    (deadlines.SQL.expire, {"limit": 50}, "queue_start_by (start_by>? AND start_by<?)"),
]
# What these read grows with the leases of the sessions or of the queue, which are few; never with what waits.
BY_LEASES: list[Case] = [
    (workers.SQL.old_leases, {"sessions": [made(SESSION, 4)], "older_ms": 1}, "queue_leased (session=?)"),
    (workers.SQL.cancelled, {"sessions": [made(SESSION, 4)]}, "queue_leased (session=?)"),
    (rescue.SQL.orphans, {"limit": 100}, "queue_leased (session=?)"),
    (limits.SQL.count_running, {"queue": 0}, "queue_running (lane=?)"),
    (deadlines.SQL.overdue, {"limit": 100}, "queue_leased"),
]


# History is read from its oldest row on, in the order in which it was written: a scan, but a short one.
SWEEPS: list[Case] = [
    (retention.SQL.forget_done, {"limit": 100, "age_ms": 86_400_000}, "SCAN done"),
    (retention.SQL.forget_events, {"limit": 100, "age_ms": 86_400_000}, "SCAN event"),
    (retention.SQL.forget_attempts, {"limit": 100, "age_ms": 86_400_000}, "INDEX attempt_ended (finished_at<?)"),
    (retention.SQL.forget_dead, {"limit": 100, "age_ms": 86_400_000}, "dead_finished (lane=? AND finished_at<?)"),
]


@contextmanager
def undone(connection: SqliteConnection) -> Iterator[None]:
    """Undo whatever the block does."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.roll_back()


def plan_of(connection: SqliteConnection, query: Query, parameters: dict[str, Any]) -> str:
    """Return the plans of all statements of a query, a line for each step."""
    statements, lists = query.sqlite
    lines = []
    for rows in lists:
        connection._fill(rows, parameters[rows.name])
    values = dict.fromkeys([*query.parameters, "now"])
    for statement in statements:
        if statement.startswith("CREATE TEMP TABLE"):
            connection.execute(statement)
        else:
            lines += connection._connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    return "\n".join(str(line[3]) for line in lines)


def steps_of(connection: SqliteConnection, query: Query, parameters: dict[str, Any]) -> int:
    """Run a query and return how many steps of its machine SQLite took, in hundreds."""
    count = 0

    def counted() -> int:
        nonlocal count
        count += 1
        return 0

    set_handler: Callable[..., None] = connection._connection.set_progress_handler
    set_handler(counted, 100)
    try:
        connection.fetch(query, parameters, NOW)
    finally:
        set_handler(None, 0)
    return count


def named(value: object) -> str:
    """Name a case by its query."""
    return value.name if isinstance(value, Query) else ""


@pytest.mark.parametrize(("query", "parameters", "search"), CASES + BY_LEASES, ids=named)
def test_hot_statements_search_by_index(
    query: Query, parameters: dict[str, Any], search: str, large: SqliteConnection
) -> None:
    """Each hot statement searches its index and scans no table of jobs."""
    with undone(large):
        plan = plan_of(large, query, parameters)

    assert search in plan, plan
    assert not HOT.search(plan.replace("timer USING COVERING INDEX timer_due", "")), plan


@pytest.mark.parametrize(("query", "parameters", "search"), SWEEPS, ids=named)
def test_a_sweep_removes_what_is_old_and_reads_little_else(
    query: Query, parameters: dict[str, Any], search: str, small: SqliteConnection, large: SqliteConnection
) -> None:
    """Retention takes all that is old, late entries too, and its cost depends on that, not on what it leaves."""
    counts, removed = [], []
    for connection in (small, large):
        with undone(connection):
            assert search in plan_of(connection, query, parameters)
            counts.append(steps_of(connection, query, parameters))
        with undone(connection):
            removed.append(connection.fetch(query, parameters, NOW)[0]["removed"])

    assert [OLD * 2 if query.name == "forget_attempts" else OLD] * 2 == removed
    assert counts[1] <= counts[0] * 1.2 + 20


@pytest.mark.parametrize(("query", "parameters", "_search"), CASES, ids=named)
def test_the_cost_does_not_grow(
    query: Query, parameters: dict[str, Any], _search: str, small: SqliteConnection, large: SqliteConnection
) -> None:
    """With twenty times as many rows in every place a hot statement takes no more steps, but for a few."""
    counts = []
    for connection in (small, large):
        with undone(connection):
            steps_of(connection, query, parameters)  # makes the temporary tables
            counts.append(steps_of(connection, query, parameters))

    assert counts[1] <= counts[0] * 1.2 + 20
