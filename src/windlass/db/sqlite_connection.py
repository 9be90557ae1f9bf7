"""One SQLite connection: parameters in, rows out.

Used by one thread at a time. Lists of rows arrive in temporary tables, kept in memory, one per shape.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from threading import Event, Thread
from typing import Any
from uuid import UUID

import msgspec
from asyncpg.pgproto import pgproto

from windlass.clock import from_us, to_us
from windlass.db.base import Row
from windlass.db.sqlfile import Query, RowsParameter

INTERRUPT_S = 0.02
KEPT_ROWS = 10
"""Rows that stay in a temporary table until its next use; more of them would keep their memory."""

_json = msgspec.json.Encoder(enc_hook=lambda value: _stored(value)).encode


def damage(message: str) -> sqlite3.DatabaseError:
    """Return the error that SQLite raises for a page that cannot be right."""
    error = sqlite3.DatabaseError(message)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _without_text(error: sqlite3.DatabaseError) -> sqlite3.DatabaseError:
    """Return damage for a text that is not UTF-8, as nobody can write it; the driver's own words quote the text."""
    return damage("a text is not UTF-8") if "not decode to UTF-8" in str(error) else error


class SqliteConnection:
    """A connection with what it has prepared: temporary tables, and how each query's columns are read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tables: set[str] = set()
        self._readers: dict[tuple[str, ...], list[tuple[int, Callable[[Any], Any]]]] = {}

    def execute(self, statement: str) -> list[Any]:
        """Run one statement without parameters."""
        try:
            return self._connection.execute(statement).fetchall()
        except sqlite3.OperationalError as error:
            raise _without_text(error) from None

    def run(self, script: str) -> None:
        """Run the statements of `script` one by one, in the transaction that is open."""
        statement = ""
        for line in script.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                self._connection.execute(statement)
                statement = ""

    def maintain(self, statement: str) -> None:
        """Run one statement to its end, outside any transaction."""
        # `execute` takes one step of a statement without columns, by which incremental_vacuum(n) frees one page.
        self._connection.executescript(statement)

    def check(self, *, most_s: float) -> None:
        """Raise SQLITE_CORRUPT if the root of a table or index is damaged, or a page that is read in so many seconds.

        What was not read by then counts as good.
        """
        self._check_roots()
        if not most_s:
            return
        is_over = Event()
        watch = Thread(target=self._interrupt, args=(is_over, most_s), daemon=True)
        watch.start()
        try:
            [(found,)] = self.execute("PRAGMA quick_check(1)")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            found = "ok"
        finally:
            is_over.set()
            watch.join()
        if found != "ok":
            raise damage(" ".join(found.split()))

    def _check_roots(self) -> None:
        for kind, table, name, made in self.execute(
            "SELECT type, tbl_name, name, sql FROM sqlite_master WHERE rootpage"
        ):
            table, name = (text.replace('"', '""') for text in (table, name))
            # All columns, which no index has; of an index only rows that are in it.
            statement = f'SELECT * FROM "{table}" NOT INDEXED LIMIT 1'
            if kind == "index":
                where = (made or "").partition(" WHERE ")[2] or "true"
                statement = f'SELECT 1 FROM "{table}" INDEXED BY "{name}" WHERE {where} LIMIT 1'
            try:
                self.execute(statement)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # an application's index, written in another way
                    raise

    def _interrupt(self, is_over: Event, after_s: float) -> None:
        # Again and again: SQLite forgets an interrupt that comes before the statement has begun.
        while not is_over.wait(after_s):
            self._connection.interrupt()
            after_s = INTERRUPT_S

    def empty_log(self, *, wait_ms: int) -> bool:
        """Copy the write-ahead log into the file and cut it to nothing; False if a reader needs it for so long."""
        [[usual_ms]] = self.execute("PRAGMA busy_timeout")
        self.execute(f"PRAGMA busy_timeout={wait_ms}")
        try:
            [(is_busy, _, _)] = self.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.execute(f"PRAGMA busy_timeout={usual_ms}")
        return not is_busy

    def fetch(self, query: Query, parameters: dict[str, Any], now_us: int) -> list[Row]:
        """Run the statements of `query`; return the rows of the last that returns any."""
        if parameters.keys() != query.parameters:
            raise TypeError(f"{query.name} takes {sorted(query.parameters)}, got {sorted(parameters)}")
        statements, lists = query.sqlite
        for rows in lists:
            self._fill(rows, parameters[rows.name])
        names = {rows.name for rows in lists}
        bound = {name: _stored(value) for name, value in parameters.items() if name not in names}
        bound["now"] = now_us
        found: list[Row] = []
        try:
            for statement in statements:
                cursor = self._connection.execute(statement, bound)
                if cursor.description is not None:
                    found = self._rows(cursor)
            for rows in lists:
                if len(parameters[rows.name]) > KEPT_ROWS:
                    self._connection.execute(f"DELETE FROM temp.{rows.table}")
        except sqlite3.OperationalError as error:
            raise _without_text(error) from None
        return found

    def roll_back(self) -> None:
        """Undo the open transaction, if there still is one."""
        # Temporary tables made inside it are gone with it.
        self._tables.clear()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def _fill(self, rows: RowsParameter, values: list[tuple[Any, ...]]) -> None:
        if rows.table not in self._tables:
            self._connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {rows.table} ({', '.join(rows.columns)})")
            self._tables.add(rows.table)
        # One that was there before a transaction that was rolled back still has the rows of its last use.
        self._connection.execute(f"DELETE FROM temp.{rows.table}")
        marks = ", ".join("?" * len(rows.columns))
        self._connection.executemany(
            f"INSERT INTO temp.{rows.table} VALUES ({marks})",
            [[v if type(v) in _PLAIN else _stored(v) for v in row] for row in values],
        )

    def _rows(self, cursor: sqlite3.Cursor) -> list[Row]:
        names = tuple(column[0] for column in cursor.description)
        readers = self._readers.get(names)
        if readers is None:
            found = [(index, _reader_of(name)) for index, name in enumerate(names)]
            readers = self._readers[names] = [(index, read) for index, read in found if read is not None]
        rows: list[Row] = []
        for stored in cursor:
            values = list(stored)
            for index, read in readers:
                if values[index] is not None:
                    values[index] = read(values[index])
            rows.append(dict(zip(names, values, strict=True)))
        return rows


_PLAIN = frozenset((int, str, float, bytes, type(None)))
# Rows of one batch have many instants in common.
_instant = lru_cache(maxsize=1024)(from_us)


def _stored(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return to_us(value)
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, bool | IntEnum):
        return int(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list | tuple):
        return _json([_stored(element) for element in value]).decode()
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"Cannot store {type(value).__name__}")


def _reader_of(column: str) -> Callable[[Any], Any] | None:
    if column.endswith("_at") or column == "start_by":
        return _instant
    if column == "id" or column.endswith("_id") or column == "session":
        # A subclass of UUID written in C, which PostgreSQL's rows have too: to read one is nine times as fast.
        reader: Callable[[Any], Any] = pgproto.UUID
        return reader
    return None
