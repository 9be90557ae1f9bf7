"""The seam: a handful of verbs that both databases have.

Steps of `queue/` call `fetch` with a named query; PostgreSQL and SQLite each run their own text of it.
A query by itself is a transaction by itself. `transaction()` makes several one; inside it the same verbs are used,
and a step that opens a transaction of its own joins the one it is given.

What Python passes and gets, and what is stored:

    Python      PostgreSQL      SQLite                  columns
    UUID        uuid            TEXT, 36, lower case    id, *_id, session
    datetime    timestamptz     INTEGER, microseconds   *_at, start_by
    int         smallint … bigint  INTEGER              spans end in _s or _ms
    str         text            TEXT                    JSON is text, kept as received
    list        an array        JSON, for json_each     parameters only
    rows        arrays          a temporary table       parameters only, written `rows(:items, id uuid, …) AS i`
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from windlass.db.sqlfile import Query

Row = Mapping[str, Any]
Dialect = Literal["postgres", "sqlite"]


class Capabilities(msgspec.Struct, frozen=True):
    """What a database can do beyond the verbs; a statement with a second form asks here."""

    notify: bool
    partitions: bool
    commit_status: bool
    claims: bool
    """Whether jobs may be claimed here: not by a program beside the server of a SQLite file."""
    one_writer: bool = False
    """Whether all that writes goes one after another."""
    commits: bool = True
    """Whether a transaction opened here commits by itself: not inside one that is open already."""

    def inside(self) -> Capabilities:
        """What is left of them inside a transaction."""
        return msgspec.structs.replace(self, commits=False)


class Statements(Protocol):
    """What steps of `queue/` are given: a database, or a transaction open on one."""

    @property
    def dialect(self) -> Dialect:
        """Which text of a query runs here."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this database can do beyond the verbs."""
        ...

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run `query` and return its rows; an empty list when it returns none."""
        ...

    async def run(self, script: str) -> None:
        """Run a script of statements without parameters, in a transaction: migrations only."""
        ...

    def transaction(self, *, tracked: bool = False) -> AbstractAsyncContextManager[Statements]:
        """Open a transaction, or join the one already open; committed when the block ends, rolled back on error.

        If the connection breaks at COMMIT, a tracked one asks the database afterwards what became of it:
        the block then ends well, or raises CommitAborted; an untracked one raises CommitUnknown.
        """
        ...


class Database(Statements, Protocol):
    """An open database."""

    def now(self) -> datetime:
        """Return the time by the database's clock, without asking it: as it was last read, gone on since."""
        ...

    async def read_clock(self) -> None:
        """Read the database's clock for `now`; nothing to do where it is a clock of this process."""
        ...

    async def maintain(self, statement: str) -> None:
        """Run one statement outside any transaction: VACUUM, DETACH PARTITION CONCURRENTLY."""
        ...

    async def empty_log(self) -> bool:
        """Leave nothing in SQLite's write-ahead log; False if readers hold that off. PostgreSQL keeps its own log."""
        ...

    async def notify(self, channel: str, payload: str) -> None:
        """Send a hint to every listener; nothing where there is no NOTIFY."""
        ...

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Yield the hints sent on `channel`; it ends when the connection does."""
        ...

    async def version(self) -> str:
        """Return the database's name and version, for people."""
        ...

    async def close(self) -> None:
        """Give back every connection, thread and lock."""
        ...
