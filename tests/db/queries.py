"""Queries of the tests' own, on a table that takes every kind of value: ids, instants, text and NULL."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from tests.sqltext import parse
from windlass.db import Statements

SQL = parse(
    """
-- name: put
-- Store keys.
-- both
INSERT INTO dedup (scope, key, job_id, content_hash, expires_at)
SELECT i.scope, i.key, i.job_id, i.content_hash, i.expires_at
  FROM rows(:keys, scope text, key text, job_id uuid, content_hash text, expires_at timestamptz) AS i

-- name: keys
-- Read keys back.
-- both
SELECT key, job_id, content_hash, expires_at FROM dedup WHERE scope = :scope ORDER BY key

-- name: lock
-- Read keys and keep them.
-- postgres
SELECT key FROM dedup WHERE scope = :scope FOR UPDATE
-- sqlite
SELECT key FROM dedup WHERE scope = :scope

-- name: stamp
-- Write the present instant.
-- both
UPDATE dedup SET expires_at = :now WHERE scope = :scope RETURNING expires_at

-- name: echo
-- Return the values that were passed.
-- postgres
SELECT CAST(:id AS uuid) AS id, CAST(:at AS timestamptz) AS happened_at, CAST(:text AS text) AS text,
       CAST(:number AS bigint) AS number
-- sqlite
SELECT :id AS id, :at AS happened_at, :text AS text, :number AS number

-- name: echo_lists
-- Return lists, element by element.
-- postgres
SELECT i.id, i.text, i.number
  FROM unnest(CAST(:ids AS uuid[]), CAST(:texts AS text[]), CAST(:numbers AS bigint[])) AS i(id, text, number)
-- sqlite
SELECT i.value AS id, t.value AS text, n.value AS number
  FROM json_each(:ids) AS i JOIN json_each(:texts) AS t ON t.key = i.key JOIN json_each(:numbers) AS n ON n.key = i.key
 ORDER BY i.key

-- name: echo_rows
-- Return rows as they were passed.
-- both
SELECT i.id, i.text, i.number FROM rows(:items, id uuid, text text, number bigint) AS i

-- name: clock
-- The database's clock.
-- both
SELECT :now AS clock_at

-- name: broken
-- Always fails when run.
-- both
SELECT * FROM no_such_table WHERE id = :id
""",
    origin="queries.py",
)

Key = tuple[str, str, UUID, str, datetime | None]


def key(name: str, *, scope: str = "a", text: str = "", at: datetime | None = None) -> Key:
    """Return a row for `put`."""
    return (scope, name, UUID(int=0x7000 << 64 | 0b10 << 62 | abs(hash(name)) % 2**60), text, at)


async def put(db: Statements, *names: str) -> None:
    """Store keys with these names."""
    await db.fetch(SQL["put"], keys=[key(name) for name in names])


async def names(db: Statements) -> list[str]:
    """Return the names of the keys that are there."""
    return [row["key"] for row in await db.fetch(SQL["keys"], scope="a")]


async def now(db: Statements) -> datetime:
    """Return the database's clock."""
    [row] = await db.fetch(SQL["clock"])
    instant: datetime = row["clock_at"]
    return instant
