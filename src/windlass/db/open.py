"""Open a database by its URL."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from windlass.clock import Clock
from windlass.config.redact import any_form
from windlass.db.base import Database
from windlass.db.migrate import schema_is_current
from windlass.db.partitions import can_be_written, make_partitions
from windlass.db.spans import make_spans
from windlass.errors import Contention, InvalidInput

Role = Literal["server", "client"]

PARTITION_TRIES = 5
_PORT = re.compile(r":([^:\],]*)(?=,|$)")


async def open_database(
    url: str, *, clock: Clock | None = None, role: Role = "server", connections: int = 8, readers: int = 3
) -> Database:
    """Return the database at `url`, open.

    `postgresql://user@host/name`, with `?pooler=transaction` behind a transaction-mode pooler;
    `sqlite:///relative.db` or `sqlite:////absolute.db`, with `?synchronous=off` where losing the file does not matter.
    A schema that is newer than this program, or altered, is refused; one that lacks migrations is not.
    A server finds partitions of history and of jobs ahead of it, however long nobody swept: those missing are made.
    Contention if somebody holds a lock on these all the while, and today or tomorrow is missing.
    `clock` replaces the database's own: tests move it.
    `connections` bounds those that write, `readers` those that read, on PostgreSQL.
    """
    db = await _open(url, clock=clock, role=role, connections=connections, readers=readers)
    try:
        if await schema_is_current(db) and role == "server" and db.capabilities.partitions:
            await _make_days_ahead(db)
    except BaseException:
        await db.close()
        raise
    return db


async def _make_days_ahead(db: Database) -> None:
    for remaining in reversed(range(PARTITION_TRIES)):
        try:
            await make_partitions(db)
            await make_spans(db)
        except Contention:  # other servers open at the same time, or somebody analyses these tables
            # With today and tomorrow there, the sweep has time to make the rest.
            if not remaining and not await can_be_written(db, days_ahead=1):
                raise
        else:
            return


async def _open(url: str, *, clock: Clock | None, role: Role, connections: int, readers: int) -> Database:
    parts = _split(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme in ("postgresql", "postgres"):
        from windlass.db.postgres import PostgresDatabase

        pooler = options.pop("pooler", None)
        if pooler not in (None, "transaction"):
            raise InvalidInput("database.url", f"pooler={pooler} is not known; write pooler=transaction.")
        dsn = urlunsplit(parts._replace(query=urlencode(options)))
        return await PostgresDatabase.open(
            dsn, clock=clock, pooled=pooler is not None, connections=connections, readers=readers
        )
    if parts.scheme == "sqlite":
        from windlass.db.sqlite import SqliteDatabase

        path = unquote(parts.path).removeprefix("/")
        if not path or parts.netloc:
            raise InvalidInput("database.url", f"{any_form(url)} names no file; write sqlite:///windlass.db.")
        return await SqliteDatabase.open(path, clock=clock, role=role, synchronous=options.get("synchronous", "full"))
    raise InvalidInput("database.url", f"{parts.scheme!r} is neither postgresql://… nor sqlite:///….")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may be a password
        raise InvalidInput("database.url", f"{any_form(url)} is no URL that can be read. Check it.") from None
    for port in _PORT.findall(parts.netloc.rpartition("@")[2]):
        if not re.fullmatch(r"\d{1,5}", port, re.ASCII) or int(port) > 65535:
            # It is not shown: where a password has a / that is not written as %2F, it is the password.
            raise InvalidInput("database.url", "its port is not a number up to 65535, or its password has a / ? or #.")
    if "\x00" in unquote(url):
        raise InvalidInput("database.url", "it holds a NUL character.")
    return parts
