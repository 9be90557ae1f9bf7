"""Open a database by its URL."""

from __future__ import annotations

from typing import Literal
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from windlass.clock import Clock
from windlass.db.base import Database
from windlass.errors import InvalidInput

Role = Literal["server", "client"]


async def open_database(
    url: str, *, clock: Clock | None = None, role: Role = "server", connections: int = 8
) -> Database:
    """Return the database at `url`, open.

    `postgresql://user@host/name`, with `?pooler=transaction` behind a transaction-mode pooler;
    `sqlite:///relative.db` or `sqlite:////absolute.db`, with `?synchronous=off` where losing the file does not matter.
    `clock` replaces the database's own: tests move it. `connections` bounds those that write, on PostgreSQL.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme in ("postgresql", "postgres"):
        from windlass.db.postgres import PostgresDatabase

        pooler = options.pop("pooler", None)
        if pooler not in (None, "transaction"):
            raise InvalidInput("database.url", f"pooler={pooler} is not known; write pooler=transaction.")
        dsn = urlunsplit(parts._replace(query=urlencode(options)))
        return await PostgresDatabase.open(dsn, clock=clock, pooled=pooler is not None, connections=connections)
    if parts.scheme == "sqlite":
        from windlass.db.sqlite import SqliteDatabase

        path = unquote(parts.path).removeprefix("/")
        if not path or parts.netloc:
            raise InvalidInput("database.url", f"{url} names no file; write sqlite:///windlass.db.")
        return await SqliteDatabase.open(path, clock=clock, role=role, synchronous=options.get("synchronous", "full"))
    raise InvalidInput("database.url", f"{url} is neither postgresql://… nor sqlite:///….")
