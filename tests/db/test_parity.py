"""Schema parity: both databases, migrated from empty, have the same tables, columns, keys, indexes and views.

Differences by design stand in the lists below, each with its reason.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from tests.clock import TestClock
from windlass.db import Database, Query, load, open_database

# The PostgreSQL type of a column, and how SQLite stores the same.
STORED_AS = {
    "uuid": "TEXT",
    "text": "TEXT",
    "smallint": "INTEGER",
    "integer": "INTEGER",
    "bigint": "INTEGER",
    "timestamp with time zone": "INTEGER",
    "double precision": "REAL",
    "bytea": "BLOB",
}
ONLY_SQLITE = {"clock"}  # PostgreSQL has a clock of its own, with a function that tests can move
PARTITIONED = {"done", "attempt", "event", "log"}
SHORT_TEXTS = {"id", "name", "kind", "scope", "key", "content_hash", "version", "address", "actor", "reason", "server"}
SHORT_TEXTS |= {"holder", "metadata", "session", "tenant", "queue", "checksum", "erasing"}
"""Of at most some hundred characters, as are all that end in `_id`."""

SQL = load(__file__)


class Index(NamedTuple):
    """An index, as far as both databases must agree."""

    columns: str
    unique: bool
    primary: bool
    predicate: str


@pytest.fixture
async def pair(sqlite_url: str, postgres_url: str, clock: TestClock) -> Any:
    """A SQLite and a PostgreSQL database, both migrated."""
    sqlite, postgres = await open_database(sqlite_url, clock=clock), await open_database(postgres_url, clock=clock)
    yield sqlite, postgres
    await sqlite.close()
    await postgres.close()


Pair = tuple[Database, Database]


async def relations(db: Database, kind: str) -> set[str]:
    """Return the names of the tables, or of the views."""
    return {row["name"] for row in await db.fetch(SQL.tables) if row["kind"] == kind}


def normal(predicate: str) -> str:
    """Return a predicate as both write it: no outer or needless brackets, single blanks."""
    return re.sub(r"\s+", " ", re.sub(r"[()]", " ", predicate)).strip()


async def indexes(db: Database, table: str) -> dict[str, Index]:
    """Return the indexes of a table: by name where the migration gave one, else by their columns."""
    found = {}
    for row in await db.fetch(SQL.indexes, relation=table):
        index = Index(row["columns"], bool(row["single"]), bool(row["first"]), normal(row["predicate"]))
        found[index.columns if index.unique else row["name"]] = index
    return found


async def test_the_same_tables_and_views(pair: Pair) -> None:
    """Each table and view of one database is in the other, but for those listed."""
    sqlite, postgres = pair

    assert await relations(postgres, "table") | ONLY_SQLITE == await relations(sqlite, "table")
    assert await relations(postgres, "view") == await relations(sqlite, "view")


async def test_the_same_columns(pair: Pair) -> None:
    """The columns of each table have the same names, order and nullability, and types that map onto each other."""
    sqlite, postgres = pair
    for table in sorted(await relations(postgres, "table")):
        ours = [
            (r["name"], STORED_AS[r["kind"]], r["required"]) for r in await postgres.fetch(SQL.columns, relation=table)
        ]
        theirs = [(r["name"], r["kind"], r["required"]) for r in await sqlite.fetch(SQL.columns, relation=table)]

        assert ours == theirs, table


async def test_the_same_keys_and_indexes(pair: Pair) -> None:
    """Primary keys, unique keys and indexes have the same columns and the same partial predicates."""
    sqlite, postgres = pair
    compared = 0
    for table in sorted(await relations(postgres, "table")):
        ours, theirs = await indexes(postgres, table), await indexes(sqlite, table)

        assert ours == theirs, table
        compared += len(ours)
    assert compared > 20


async def test_only_tables_of_short_rows_have_no_rowid(sqlite_url: str, clock: TestClock) -> None:
    """Without rowids SQLite reads each row whole that it compares a key with: eight lists over long rows took 9 s."""
    db = await open_database(sqlite_url, clock=clock)
    tables = [row["name"] for row in await db.fetch(SQL.without_rowid)]

    long = {
        f"{table}.{column['name']}"
        for table in tables
        for column in await db.fetch(SQL.columns, relation=table)
        if column["kind"] in ("TEXT", "BLOB") and column["name"].removesuffix("_id") == column["name"]
    }

    assert "queue" in tables
    assert set() == {name for name in long if name.partition(".")[2] not in SHORT_TEXTS}
    await db.close()


async def test_every_hot_table_has_a_primary_key(pair: Pair) -> None:
    """A row is found by its key; only history, which lies in day partitions, has none."""
    for db in pair:
        for table in await relations(db, "table") - PARTITIONED - ONLY_SQLITE:
            assert any(index.primary for index in (await indexes(db, table)).values()), table


async def test_every_index_of_the_queue_is_partial(pair: Pair) -> None:
    """A place pays for its own index only, and for those of limits and start deadlines where it has them."""
    for db in pair:
        found = {name: index.predicate for name, index in (await indexes(db, "queue")).items() if not index.primary}

        assert {
            "queue_ready": "place = 0",
            "queue_leased": "place = 1",
            "queue_running": "place = 1 AND flags >= 256",
            "queue_start_by": "place <> 1 AND start_by IS NOT NULL",
            "queue_waiting": "place >= 2",
        } == found


async def test_heartbeats_change_no_indexed_column(pair: Pair) -> None:
    """Nothing that a heartbeat writes stands in an index of `session`, or its updates would not be HOT."""
    for db in pair:
        indexed = {column for index in (await indexes(db, "session")).values() for column in index.columns.split(", ")}

        assert set() == indexed & {"expires_at", "heartbeat_at", "busy", "skew_ms", "completed", "failed"}


async def test_the_same_columns_of_views(pair: Pair) -> None:
    """Views show the same columns in the same order."""
    sqlite, postgres = pair
    for view in sorted(await relations(postgres, "view")):
        names = [[r["name"] for r in await db.fetch(SQL.columns, relation=view)] for db in (postgres, sqlite)]

        assert names[0] == names[1], view


async def test_every_table_and_view_answers(pair: Pair) -> None:
    """Plain SQL reads each table and view on both databases."""
    for db in pair:
        for name in await relations(db, "view") | await relations(db, "table"):
            schema = "windlass." if db.dialect == "postgres" else ""
            query = Query(name, "Read all.", f"SELECT * FROM {schema}{name}", f"SELECT * FROM {schema}{name}")

            assert isinstance(await db.fetch(query), list)
