"""The floor: one table and the raw driver, the least work that can be called a queue.

One row per job. A claim is one `UPDATE … RETURNING` over `id IN (SELECT … LIMIT n FOR UPDATE SKIP LOCKED)`, as most
queues on a database write it; the tuned one picks in a MATERIALIZED CTE, which the planner cannot turn into a join over
the whole table. A completion is one DELETE, which keeps nothing, or one UPDATE, which keeps the finished job and its
result, as our history does. No fence, no lanes, no sessions, no checks.
It has the same driver, durability, ids, payload and number of connections as we have.
On SQLite all work goes through one writer thread, as it must in a program that also listens.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from time import time_ns
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg

from windlass.bench.rivals import JOBS_PER_MS, PAYLOAD, RESULT, START_MS, Rival, Taken
from windlass.bench.scratch import connected, execute, is_postgres, leave_alone
from windlass.clock import system_clock
from windlass.ids import Ids

_POSTGRES_TABLE = """
CREATE TABLE floor (id uuid PRIMARY KEY, rank bigint NOT NULL, place smallint NOT NULL, attempt smallint NOT NULL,
                    payload text NOT NULL, claimed_at timestamptz, result text, finished_at timestamptz);
CREATE INDEX floor_ready ON floor (rank, id) WHERE place = 0;
"""
_POSTGRES_FILL = f"""
INSERT INTO floor (id, rank, place, attempt, payload)
SELECT CAST(lpad(to_hex({START_MS} + n / {JOBS_PER_MS}), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0') AS uuid),
       {START_MS} + n / {JOBS_PER_MS}, 0, 0, $3
  FROM generate_series($1::bigint, $2::bigint) AS n
"""
_POSTGRES_SUBMIT = """
INSERT INTO floor (id, rank, place, attempt, payload)
SELECT i.id, CAST(extract(epoch FROM now()) * 1000 AS bigint), 0, 0, i.payload
  FROM unnest($1::uuid[], $2::text[]) AS i(id, payload)
"""
_POSTGRES_CLAIM = """
UPDATE floor SET place = 1, attempt = attempt + 1, claimed_at = now()
 WHERE id IN (SELECT id FROM floor WHERE place = 0 ORDER BY rank, id LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING id, attempt, payload
"""
_POSTGRES_TUNED_CLAIM = """
WITH pick AS MATERIALIZED (
    SELECT id FROM floor WHERE place = 0 ORDER BY rank, id LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE floor SET place = 1, attempt = attempt + 1, claimed_at = now() FROM pick WHERE floor.id = pick.id
RETURNING floor.id, floor.attempt, floor.payload
"""
_POSTGRES_COMPLETE = """
UPDATE floor SET place = 2, result = i.result, finished_at = now()
  FROM unnest($1::uuid[], $2::text[]) AS i(id, result) WHERE floor.id = i.id AND floor.place = 1
"""
_POSTGRES_DELETE = "DELETE FROM floor WHERE id = ANY($1::uuid[]) AND place = 1"

_SQLITE_TABLE = """
CREATE TABLE floor (id TEXT PRIMARY KEY, rank INTEGER NOT NULL, place INTEGER NOT NULL, attempt INTEGER NOT NULL,
                    payload TEXT NOT NULL, claimed_at INTEGER, result TEXT, finished_at INTEGER);
CREATE INDEX floor_ready ON floor (rank, id) WHERE place = 0;
"""
_SQLITE_FILL = f"""
WITH RECURSIVE s(n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM s WHERE n < ?2)
INSERT INTO floor (id, rank, place, attempt, payload)
SELECT printf('%08x-%04x-7000-8000-%012x', ({START_MS} + n / {JOBS_PER_MS}) >> 16,
              ({START_MS} + n / {JOBS_PER_MS}) & 65535, n), {START_MS} + n / {JOBS_PER_MS}, 0, 0, ?3 FROM s
"""
_SQLITE_SUBMIT = "INSERT INTO floor (id, rank, place, attempt, payload) VALUES (?, ?, 0, 0, ?)"
_SQLITE_CLAIM = """
UPDATE floor SET place = 1, attempt = attempt + 1, claimed_at = unixepoch()
 WHERE id IN (SELECT id FROM floor WHERE place = 0 ORDER BY rank, id LIMIT ?) RETURNING id, attempt, payload
"""
_SQLITE_COMPLETE = """
UPDATE floor SET place = 2, result = ?2, finished_at = unixepoch()
 WHERE id IN (SELECT value FROM json_each(?1)) AND place = 1
"""
_SQLITE_DELETE = "DELETE FROM floor WHERE id IN (SELECT value FROM json_each(?)) AND place = 1"


class Floor(Rival, Protocol):
    """What both floors are."""

    keeps: bool
    """Whether a completion keeps the finished job and its result."""
    tuned: bool
    """Whether a claim on PostgreSQL is written so that it has one possible plan."""


@asynccontextmanager
async def open_floor(url: str) -> AsyncIterator[Floor]:
    """Make the floor's table in the scratch database `url`; on PostgreSQL with two connections."""
    if is_postgres(url):
        await execute(url, _POSTGRES_TABLE)
        await leave_alone(url)
        async with connected(url, jit="off") as claiming, connected(url, jit="off") as completing:
            yield PostgresFloor(claiming, completing)
    else:
        floor = SqliteFloor(Path(urlsplit(url).path.removeprefix("/")).with_name("floor.db"))
        try:
            yield floor
        finally:
            floor.close()


class PostgresFloor:
    """asyncpg and one table."""

    keeps = False
    tuned = False

    def __init__(self, claiming: asyncpg.Connection[Any], completing: asyncpg.Connection[Any]) -> None:
        self._claiming = claiming
        self._completing = completing
        self._ids = Ids(system_clock)
        self._filled = 0

    async def clear(self) -> None:
        """Empty the table."""
        await self._claiming.execute("TRUNCATE floor")

    async def fill(self, count: int) -> None:
        """Add ready jobs, made by the server."""
        await self._claiming.execute(_POSTGRES_FILL, self._filled + 1, self._filled + count, PAYLOAD)
        self._filled += count

    async def submit(self, batch: int) -> None:
        """Insert a batch."""
        ids = [self._ids.new() for _ in range(batch)]
        await self._claiming.execute(_POSTGRES_SUBMIT, ids, [PAYLOAD] * batch)

    async def claim(self, batch: int) -> Taken:
        """Take a batch and return its ids."""
        statement = _POSTGRES_TUNED_CLAIM if self.tuned else _POSTGRES_CLAIM
        return [row["id"] for row in await self._claiming.fetch(statement, batch)]

    async def complete(self, taken: Taken) -> None:
        """Mark a batch as finished, or delete it."""
        if self.keeps:
            await self._completing.execute(_POSTGRES_COMPLETE, taken, [RESULT] * len(taken))
        else:
            await self._completing.execute(_POSTGRES_DELETE, taken)


class SqliteFloor:
    """sqlite3 and one table, by one writer thread."""

    keeps = False
    tuned = False

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(_SQLITE_TABLE)
        self._ids = Ids(system_clock)
        self._filled = 0

    def close(self) -> None:
        """End the thread and close the file."""
        self._thread.shutdown()
        self._connection.close()

    async def clear(self) -> None:
        """Empty the table."""
        await self._in_thread(lambda: self._connection.execute("DELETE FROM floor"))

    async def fill(self, count: int) -> None:
        """Add ready jobs, made by the database."""
        bounds = (self._filled + 1, self._filled + count, PAYLOAD)
        await self._in_thread(lambda: self._connection.execute(_SQLITE_FILL, bounds))
        self._filled += count

    async def submit(self, batch: int) -> None:
        """Insert a batch in one transaction."""
        rank = time_ns() // 1_000_000
        rows = [(str(self._ids.new()), rank, PAYLOAD) for _ in range(batch)]

        def insert() -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_SQLITE_SUBMIT, rows)
            self._connection.execute("COMMIT")

        await self._in_thread(insert)

    async def claim(self, batch: int) -> Taken:
        """Take a batch and return its ids."""
        rows = await self._in_thread(lambda: self._connection.execute(_SQLITE_CLAIM, (batch,)).fetchall())
        return [row[0] for row in rows]

    async def complete(self, taken: Taken) -> None:
        """Mark a batch as finished, or delete it."""
        listed = '["' + '","'.join(taken) + '"]'
        statement, values = (_SQLITE_COMPLETE, (listed, RESULT)) if self.keeps else (_SQLITE_DELETE, (listed,))
        await self._in_thread(lambda: self._connection.execute(statement, values))

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
