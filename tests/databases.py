"""Databases for tests, on the server of the run: a template migrated once, and copies of it.

`empty` is for a test that wants a clean database in its midst, as the model does for each of its examples.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.clock import START, TestClock
from tests.kept import Kept
from windlass.clock import Clock
from windlass.db import Database, open_database, postgres, postgres_pool
from windlass.db.migrate import migrate
from windlass.db.postgres import PostgresDatabase
from windlass.db.sqlite import SqliteDatabase

# All relations of the schema, and those of them that are emptied: partitions are, through their parents.
RELATIONS = """
SELECT c.relname AS name, c.relispartition AND NOT coalesce(i.inhdetachpending, false) AS attached,
       pg_get_expr(c.relpartbound, c.oid) AS bounds,
       c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> 'migration' AS emptied
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
 WHERE n.nspname = 'windlass' AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'i', 'I')
 ORDER BY c.relname
"""

SEQUENCES = """
SELECT format('windlass.%I', sequencename) AS name, coalesce(last_value, start_value) AS value,
       last_value IS NOT NULL AS is_called
  FROM pg_sequences WHERE schemaname = 'windlass'
"""

# Connections that an earlier test left in the midst of something, perhaps with locks.
BUSY = """
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
"""

PARTITION = re.compile(r"[a-z_]+_([0-9]{8}|old)")

SLEEPING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"

OPEN = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"

OPEN_LONG = {"idle_in_transaction_session_timeout": "60s"}
"""For a test that holds a transaction: on a machine that stalls, longer than a server of the product may."""
PATIENT = {**OPEN_LONG, "lock_timeout": "20s"}
"""For a test that also lets another wait for it, and does not mean the time-out."""
CONNECT_S = 60.0


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server and the prefix of the names that this test run uses on it."""

    url: str
    prefix: str

    def url_of(self, name: str) -> str:
        """Return the URL of this run's database `name`."""
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{self.prefix}_{name}"))


@dataclass(frozen=True)
class Emptied:
    """A database that is emptied before each test: how it looked when new."""

    server: Server
    name: str
    template: str
    relations: dict[str, tuple[bool, str | None]]  # by name, whether it is attached to another, and its bounds there
    tables: list[str]
    seeds: dict[str, str]  # the rows that migrating leaves in a table, as JSON
    sequences: list[tuple[str, int, bool]]
    kept: Kept

    @property
    def url(self) -> str:
        """Where it is."""
        return self.server.url_of(self.name)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Open a plain connection, not through the product."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


async def cancelled_in_its_sleep(connection: asyncpg.Connection[Any], url: str) -> bool:
    """Cancel a statement of the connection while it runs in the database at `url`; say whether that ended it.

    A server takes no notice of a cancel that comes before the statement does.
    """
    sleeping = asyncio.create_task(connection.execute("SELECT pg_sleep(600)"))
    async with asyncio.timeout(60), connected(url) as looking:
        while not await looking.fetchval(SLEEPING):
            pass
        sleeping.cancel()
        await asyncio.wait([sleeping])
    return sleeping.cancelled()


async def open_with(settings: Mapping[str, str], url: str, **options: Any) -> Database:
    """Open a database whose writing connections differ from those in service by these settings of PostgreSQL.

    Connecting may take longer, too.
    """
    with patch.dict(postgres.HOT_SETTINGS, settings), patch.object(postgres_pool, "CONNECT_TIMEOUT_S", CONNECT_S):
        return await open_database(url, **options)


@asynccontextmanager
async def opened(url: str, settings: Mapping[str, str] | None = None) -> AsyncIterator[Database]:
    """Open a database for a block, as in service: on its own clock."""
    db = await open_with(settings or {}, url)
    try:
        yield db
    finally:
        await db.close()


async def migrated(url: str, clock: Clock | None) -> None:
    """Migrate the database at `url`; its days of history lie around this time, or around today."""
    db = await open_with(PATIENT, url, clock=clock)
    try:
        await migrate(db)
    finally:
        await db.close()


TEMPLATES: Mapping[str, Clock | None] = {"template": lambda: START, "today": None}
"""What databases are copied from: one with days of history around the start of the tests' clock, one around today."""


async def make_templates(server: Server) -> None:
    """Make and migrate the templates, unless another test worker has."""
    async with connected(server.url) as connection:
        await connection.execute("SELECT pg_advisory_lock(hashtext($1))", server.prefix)
        for template, clock in TEMPLATES.items():
            name = f"{server.prefix}_{template}"
            if await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
                continue
            await connection.execute(f'CREATE DATABASE "{server.prefix}_raw" TEMPLATE template0')
            await migrated(server.url_of("raw"), clock)
            # It gets its name when it is whole, so a worker never copies half a template.
            await connection.execute(f'ALTER DATABASE "{server.prefix}_raw" RENAME TO "{name}"')


async def create(server: Server, name: str, template: str = "template") -> None:
    """Make the database `name` from a template."""
    async with connected(server.url) as connection:
        await connection.execute(f'CREATE DATABASE "{server.prefix}_{name}" TEMPLATE "{server.prefix}_{template}"')


async def drop(server: Server, name: str) -> None:
    """Remove the database `name`, whoever is connected to it."""
    async with connected(server.url) as connection:
        await connection.execute(f'DROP DATABASE IF EXISTS "{server.prefix}_{name}" WITH (FORCE)')


async def drop_all(server: Server) -> None:
    """Remove every database of this run; only needed on a server that stays."""
    async with connected(server.url) as connection:
        names = await connection.fetch(
            "SELECT datname FROM pg_database WHERE starts_with(datname, $1)", f"{server.prefix}_"
        )
        for row in names:
            await connection.execute(f'DROP DATABASE "{row["datname"]}" WITH (FORCE)')


async def create_emptied(server: Server, name: str, template: str = "template") -> Emptied:
    """Make the database `name` from a template and remember how it looks."""
    await create(server, name, template)
    async with connected(server.url_of(name)) as connection:
        relations = await connection.fetch(RELATIONS)
        tables = [row["name"] for row in relations if row["emptied"]]
        seeds: dict[str, str] = {}
        for table in tables:
            rows = await connection.fetchval(f'SELECT json_agg(t) FROM windlass."{table}" t')
            if rows is not None:
                seeds[table] = rows
        sequences = [tuple(row) for row in await connection.fetch(SEQUENCES)]
    seen = dict(map(_seen, relations))
    return Emptied(server, name, template, seen, tables, seeds, sequences, Kept(server.url_of(name)))


async def empty(database: Emptied) -> None:
    """Bring a database back to how it was when new; made anew if tables came or went, other than partitions."""
    if not _emptied(database):
        database.kept.close()
        await drop(database.server, database.name)
        await create(database.server, database.name, database.template)


def _emptied(database: Emptied) -> bool:
    kept = database.kept
    kept.rows(BUSY)
    if _differences(database):
        _repair_partitions(database)
        if _differences(database):
            return False
    if database.tables:
        # One statement, so that foreign keys are looked at when all rows are gone. TRUNCATE would be far slower.
        deletes = ", ".join(f'd{n} AS (DELETE FROM windlass."{table}")' for n, table in enumerate(database.tables))
        kept.rows(f"WITH {deletes} SELECT")
    for table, rows in database.seeds.items():
        kept.rows(
            f'INSERT INTO windlass."{table}" OVERRIDING SYSTEM VALUE '
            f'SELECT * FROM json_populate_recordset(NULL::windlass."{table}", $1::text::json)',
            [rows],
        )
    for sequence in database.sequences:
        kept.rows("SELECT setval($1::text::regclass, $2::bigint, $3::bool)", sequence)
    return True


def _seen(row: Mapping[str, Any]) -> tuple[str, tuple[bool, str | None]]:
    return row["name"], (row["attached"], row["bounds"])


def _differences(database: Emptied) -> set[str]:
    found = dict(map(_seen, database.kept.rows(RELATIONS)))
    return {name for name, _ in found.items() ^ database.relations.items()}


def _repair_partitions(database: Emptied) -> None:
    """Drop the partitions that a test made, and make those that it dropped: far faster than a new database."""
    names = sorted(filter(PARTITION.fullmatch, _differences(database)))
    for name in names:
        database.kept.rows(f"DROP TABLE IF EXISTS windlass.{name}")
    for name in names:
        if (seen := database.relations.get(name)) is None:
            continue
        table = name.rpartition("_")[0]
        database.kept.rows(f"CREATE TABLE windlass.{name} (LIKE windlass.{table})")
        database.kept.rows(f"ALTER TABLE windlass.{table} ATTACH PARTITION windlass.{name} {seen[1]}")


class KeptDatabases:
    """Databases as servers open them, on the PostgreSQL database of a test worker, kept open from test to test.

    Opening one takes far longer than most tests take: two connections, and every statement planned anew.
    """

    def __init__(
        self, database: Emptied, *, on_test_clock: bool = True, settings: Mapping[str, str] | None = None
    ) -> None:
        self._database = database
        self._settings = settings or {}
        self._opened: list[Database] = []
        self._clock = TestClock()
        self._read_clock = (lambda: self._clock()) if on_test_clock else None

    async def opened(self, count: int, clock: TestClock | None = None) -> Sequence[Database]:
        """Return `count` open databases on this clock; all are opened anew if a test has ended a connection of them."""
        self._clock = clock or self._clock
        still = {row["pid"] for row in self._database.kept.rows(OPEN)}
        if not all(still.issuperset(_backends(db)) for db in self._opened):
            await self.close()
        while len(self._opened) < count:
            self._opened.append(await open_with(self._settings, self._database.url, clock=self._read_clock))
        return self._opened[:count]

    async def close(self) -> None:
        """Close them all."""
        while self._opened:
            await self._opened.pop().close()


def _backends(db: Database) -> Iterator[int]:
    """Return the numbers of the server's processes behind the connections of a database."""
    assert isinstance(db, PostgresDatabase)
    pools: list[Any] = [pool for pool in (db._hot, db._read) if pool is not None]
    for pool in pools:
        for holder in pool._holders:
            if holder._con is not None:
                yield holder._con.get_server_pid()


class KeptFile:
    """A SQLite database as a server opens it, kept open from test to test and brought back to how it was when new.

    A file opened anew has its schema read and each of its statements prepared anew, in every test.
    """

    def __init__(self, template: Path, folder: Path) -> None:
        self._template = template
        self._folder = folder
        self._numbers = itertools.count(1)
        self._clock = TestClock()
        self._database: SqliteDatabase | None = None
        self._beside: sqlite3.Connection
        self._new: tuple[int, int]  # the version of its schema and the ceiling of its clock

    async def opened(self, clock: TestClock) -> Database:
        """Return it, empty, on this clock; another file where a test has closed this one or changed its schema."""
        self._clock = clock
        if self._database is None or not self._emptied(self._database):
            await self.close()
            self._database = await self._open()
        self._database._now_us = self._database._ceiling_us = self._new[1]
        return self._database

    async def close(self) -> None:
        """Close it."""
        if self._database is not None:
            self._beside.close()
            await self._database.close()
            self._database = None

    async def _open(self) -> SqliteDatabase:
        path = self._folder / f"{next(self._numbers)}.db"
        shutil.copyfile(self._template, path)
        database = await open_database(f"sqlite:///{path}?synchronous=off", clock=lambda: self._clock())
        assert isinstance(database, SqliteDatabase)
        self._beside = sqlite3.connect(path, isolation_level=None, timeout=0)
        self._beside.execute("ATTACH ? AS template", [str(self._template)])
        self._new = (self._schema(), database._ceiling_us)
        return database

    def _emptied(self, database: SqliteDatabase) -> bool:
        if database._writer_thread._shutdown or self._schema() != self._new[0]:
            return False
        try:
            self._beside.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:  # a test has left a transaction open
            return False
        for (table,) in self._beside.execute("SELECT name FROM template.sqlite_master WHERE type = 'table'").fetchall():
            self._beside.execute(f"DELETE FROM main.{table}")
            self._beside.execute(f"INSERT INTO main.{table} SELECT * FROM template.{table}")
        self._beside.execute("COMMIT")
        return True

    def _schema(self) -> int:
        version: int = self._beside.execute("PRAGMA main.schema_version").fetchone()[0]
        return version


def make_sqlite_template(path: Path) -> None:
    """Make a migrated SQLite file; a test copies it."""
    asyncio.run(migrated(f"sqlite:///{path}?synchronous=off", lambda: START))
