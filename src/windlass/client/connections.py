"""Connections of the application's own: one statement run in its transaction, whatever library it uses.

A connection is known by the module of its class, so that no library is imported that the application does not have:
asyncpg, psycopg (sync and async), SQLAlchemy (connections and sessions, sync and async), Django, and every other
driver with a DB-API 2.0 module. Nothing is begun, committed or rolled back here.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from windlass.errors import InvalidInput

_PARAMETER = re.compile(r":([a-z]+)")
_POSTGRES = frozenset({"asyncpg", "psycopg", "psycopg2", "pg8000"})
_STYLES = {"asyncpg": "dollar", "psycopg": "pyformat", "django": "format"}
"""How parameters are written, where the module does not say so itself."""

Bound = tuple[str, Any]
"""A statement as a driver wants it, and its parameters."""


class Driver(msgspec.Struct, frozen=True):
    """What is known of a connection: the library, how it writes parameters, and whether PostgreSQL is behind it."""

    library: str
    style: str
    is_postgres: bool


def driver_of(connection: Any) -> Driver:
    """Return what is known of a connection; InvalidInput if it is none that we know."""
    for kind in type(connection).__mro__:
        library = kind.__module__.split(".")[0]
        if library == "sqlalchemy":
            return Driver(library, "named", _dialect_of(connection) == "postgresql")
        style = _STYLES.get(library) or getattr(sys.modules.get(library), "paramstyle", None)
        if style is not None:
            vendor = getattr(connection, "vendor", None)
            return Driver(library, style, library in _POSTGRES or vendor == "postgresql")
    kind = type(connection)
    raise InvalidInput(
        "connection",
        f"{kind.__module__}.{kind.__qualname__} is no connection that is known here. Pass one of asyncpg, psycopg, "
        "SQLAlchemy (a session too), Django, or of a driver with a DB-API 2.0 module.",
    )


def bind(statement: str, style: str, values: Mapping[str, Any]) -> Bound:
    """Return a statement with its `:name` parameters written in another style, and the values in that order."""
    names: list[str] = []

    def written(match: re.Match[str]) -> str:
        names.append(match[1])
        return _WRITTEN[style].format(name=match[1], number=len(names))

    text = _PARAMETER.sub(written, statement)
    if style in ("named", "pyformat"):
        return text, {name: values[name] for name in names}
    return text, [values[name] for name in names]


_WRITTEN = {
    "qmark": "?",
    "format": "%s",
    "pyformat": "%({name})s",
    "named": ":{name}",
    "numeric": ":{number}",
    "dollar": "${number}",
}


def run(connection: Any, statement: str, *, values: Mapping[str, Any], read: Callable[[Any], Any]) -> Any:
    """Run a statement in the connection's transaction and return what `read` makes of its first row, or an awaitable.

    Whether it is awaitable follows from the connection. A statement that returns no rows is read as None.
    """
    driver = driver_of(connection)
    text, bound = bind(statement, driver.style, values)
    if driver.library == "asyncpg":
        return _awaited(connection.fetchrow(text, *bound), read)
    if driver.library == "sqlalchemy":
        text = sys.modules["sqlalchemy"].text(text)
    if driver.library in ("sqlalchemy", "psycopg"):
        result = connection.execute(text, bound)
        return _fetched(result, read) if inspect.isawaitable(result) else read(_row(result))
    cursor = connection.cursor()
    try:
        cursor.execute(text, bound)
        return read(cursor.fetchone() if cursor.description is not None else None)
    finally:
        cursor.close()


def first(row: Any) -> Any:
    """Return the first column of a row, whatever rows look like there."""
    if isinstance(row, Mapping):
        return next(iter(row.values()))
    return row[0] if isinstance(row, Sequence) or hasattr(row, "__getitem__") else row.id


def sqlstate_of(error: BaseException) -> str | None:
    """Return PostgreSQL's code of an error, whichever library raised it."""
    inner = getattr(error, "orig", None) or error
    state = getattr(inner, "sqlstate", None) or getattr(inner, "pgcode", None)
    return state or sqlstate_of(inner.__cause__) if inner.__cause__ is not None else state


async def _awaited(row: Awaitable[Any], read: Callable[[Any], Any]) -> Any:
    return read(await row)


async def _fetched(result: Awaitable[Any], read: Callable[[Any], Any]) -> Any:
    made = await result
    if not _has_rows(made):
        return read(None)
    row = made.fetchone()
    return read(await row if inspect.isawaitable(row) else row)


def _row(result: Any) -> Any:
    return result.fetchone() if _has_rows(result) else None


def _has_rows(result: Any) -> bool:
    """Say so of a result of SQLAlchemy or a cursor of psycopg."""
    return bool(result.returns_rows if hasattr(result, "returns_rows") else result.description is not None)


def _dialect_of(connection: Any) -> str:
    bound = connection if hasattr(connection, "dialect") else connection.get_bind()
    return str(bound.dialect.name)
