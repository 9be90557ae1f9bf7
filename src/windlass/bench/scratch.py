"""Scratch: a database made for a benchmark and removed afterwards; the one pointed at is never written to."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg

from windlass.db import Database, open_database
from windlass.db.migrate import migrate
from windlass.errors import InvalidInput, SetupError

DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}

# Vacuum and analyze must not come in between: the statements are to be good on tables never analysed.
_TABLES = """
SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname IN ('windlass', 'public') AND c.relkind = 'r'
"""

# The spans of jobs that a database has which is a month old.
_OLDER = (
    "ALTER TABLE windlass.job DETACH PARTITION windlass.job_old",
    """
    DO $$
    DECLARE bound text; first text := 'MINVALUE'; until timestamptz; ms bigint; spans CONSTANT int := 8;
    BEGIN
        SELECT date_trunc('day', now()) - interval '1 day' INTO until;
        FOR n IN REVERSE spans..0 LOOP
            ms := CAST(extract(epoch FROM until - n * interval '4 days') * 1000 AS bigint);
            bound := quote_literal(lpad(to_hex(ms), 12, '0') || repeat('0', 20));
            EXECUTE CASE WHEN n = spans THEN 'ALTER TABLE windlass.job ATTACH PARTITION windlass.job_old'
                         ELSE format('CREATE TABLE windlass.job_month_%s PARTITION OF windlass.job', n) END
                    || format(' FOR VALUES FROM (%s) TO (%s)', first, bound);
            first := bound;
        END LOOP;
    END $$
    """,
)


def is_postgres(url: str) -> bool:
    """Say which kind of database a URL names; InvalidInput if neither."""
    scheme = urlsplit(url).scheme
    if scheme not in ("postgresql", "postgres", "sqlite"):
        raise InvalidInput("--database", f"{url} is neither postgresql://… nor sqlite:///….")
    return scheme != "sqlite"


@asynccontextmanager
async def scratch(url: str) -> AsyncIterator[str]:
    """Yield the URL of an empty database on the same server, or in the same folder."""
    if is_postgres(url):
        async with _scratch_postgres(url) as made:
            yield made
    else:
        file = Path(unquote(urlsplit(url).path).removeprefix("/"))
        with tempfile.TemporaryDirectory(prefix="windlass-bench-", dir=file.parent) as folder:
            yield f"sqlite:///{folder}/bench.db"


@asynccontextmanager
async def _scratch_postgres(url: str) -> AsyncIterator[str]:
    parts = urlsplit(url)
    options = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name != "pooler"])
    server = urlunsplit(parts._replace(query=options))
    name = f"windlass_bench_{secrets.token_hex(6)}"
    try:
        await execute(server, f"CREATE DATABASE {name} TEMPLATE template0")
    except asyncpg.InsufficientPrivilegeError as error:
        raise SetupError(
            f"Cannot make the scratch database {name} on {parts.hostname}: {error}. "
            "Give a user who may create databases (ALTER ROLE … CREATEDB)."
        ) from error
    except (OSError, asyncpg.PostgresError) as error:
        raise SetupError(f"Cannot reach {parts.hostname}: {error}. Check --database.") from error
    try:
        yield urlunsplit(parts._replace(path=f"/{name}", query=options))
    finally:
        await execute(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@asynccontextmanager
async def connected(url: str, **settings: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Open a plain connection by the driver alone."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url, server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


async def execute(url: str, *statements: str) -> None:
    """Run statements one by one on a connection of their own."""
    async with connected(url) as connection:
        for statement in statements:
            await connection.execute(statement)


@asynccontextmanager
async def migrated(url: str, *, connections: int) -> AsyncIterator[Database]:
    """Open the scratch database with our schema in it, and nobody tidying up behind us."""
    db = await open_database(url, connections=connections)
    try:
        await migrate(db)
        if db.dialect == "postgres":
            await execute(url, *_OLDER)
            await leave_alone(url)
        yield db
    finally:
        await db.close()


async def leave_alone(url: str) -> None:
    """Switch autovacuum and autoanalyze off for every table of a scratch database."""
    async with connected(url) as connection:
        for row in await connection.fetch(_TABLES):
            await connection.execute(f"ALTER TABLE {row['name']} SET (autovacuum_enabled = off)")


async def undurable(url: str) -> list[str]:
    """Return the settings of a server that make it faster than it may be in production."""
    async with connected(url) as connection:
        found = {name: await connection.fetchval(f"SHOW {name}") for name in DURABLE}
    return [f"{name}={value}" for name, value in found.items() if value != DURABLE[name]]
