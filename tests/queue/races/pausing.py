"""A database that can be held between any two of its statements.

It passes everything on to a real one. Each statement and each commit is a mark on its trail; a test names the mark at
which the step shall wait, lets a rival act, and lets the step go on. A statement that stands by itself is run as the
transaction it is, so that it can be held with its locks taken and not yet committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any

from windlass.db import Database, Query, Row, Statements
from windlass.db.base import Capabilities, Dialect

COMMIT = "commit"


class Point:
    """A mark at which a step waits until it is let go."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._free = asyncio.Event()

    def release(self) -> None:
        """Let the step go on."""
        self._free.set()

    async def pass_by(self) -> None:
        """Tell that the step is here, and wait."""
        self.reached.set()
        await self._free.wait()


class Pausing:
    """The verbs of a real database, each with a mark before it."""

    def __init__(self, inner: Database, *, instead: dict[str, Query] | None = None) -> None:
        self.inner = inner
        self.dialect: Dialect = inner.dialect
        self.capabilities: Capabilities = inner.capabilities
        self.trail: list[str] = []
        """Every mark passed so far: names of queries, and `commit`."""
        self.insides: list[bool] = []
        """Of each mark, whether a transaction was open."""
        self.entering = False
        """Whether it is asking for a transaction and has not got one."""
        self.inside = False
        """Whether it has a transaction open."""
        self._instead = instead or {}
        self._holds: list[tuple[Point, Callable[[int, str], bool]]] = []

    def hold_at(self, number: int) -> Point:
        """Wait at the mark with this number, counted from 0."""
        return self._hold(lambda at, _: at == number)

    def hold_before(self, name: str, *, after: str = "") -> Point:
        """Wait before the next query of this name, or the next `commit`; with `after`, the next behind that query."""
        return self._hold(lambda at, passing: passing == name and (not after or after in self.trail[:at]))

    def hold_after_commits(self, count: int) -> Point:
        """Wait at the first mark after so many commits."""
        return self._hold(lambda at, _: self.trail[:at].count(COMMIT) == count)

    def _hold(self, here: Callable[[int, str], bool]) -> Point:
        point = Point()
        self._holds.append((point, here))
        return point

    async def _mark(self, name: str) -> None:
        number = len(self.trail)
        self.trail.append(name)
        self.insides.append(self.inside)
        for hold in list(self._holds):
            point, here = hold
            if here(number, name):
                self._holds.remove(hold)
                await point.pass_by()

    def now(self) -> datetime:
        """Return the time by the real one's clock."""
        return self.inner.now()

    async def read_clock(self) -> None:
        """Read the real one's clock."""
        await self.inner.read_clock()

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query, with a mark before it; one that writes with another before its commit."""
        if query.writes:
            async with self.transaction() as transaction:
                return await transaction.fetch(query, **parameters)
        await self._mark(query.name)
        return await self.inner.fetch(self._instead.get(query.name, query), **parameters)

    async def run(self, script: str) -> None:
        """Run a script."""
        await self._mark("run")
        await self.inner.run(script)

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        """Open a transaction, with a mark before its commit."""
        self.entering = True
        try:
            async with self.inner.transaction(tracked=tracked) as transaction:
                self.entering, self.inside = False, True
                yield _Transaction(self, transaction)
                await self._mark(COMMIT)
        finally:
            self.entering = self.inside = False

    async def maintain(self, statement: str) -> None:
        """Run one statement outside any transaction."""
        await self._mark("maintain")
        await self.inner.maintain(statement)

    async def empty_log(self) -> bool:
        """Empty the log."""
        await self._mark("empty_log")
        return await self.inner.empty_log()

    async def notify(self, channel: str, payload: str) -> None:
        """Send a hint."""
        await self.inner.notify(channel, payload)

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listen for hints."""
        return self.inner.listen(channel)

    async def version(self) -> str:
        """Return the real one's name and version."""
        return await self.inner.version()

    async def close(self) -> None:
        """Close the real one."""
        await self.inner.close()


class _Transaction:
    def __init__(self, owner: Pausing, inner: Statements) -> None:
        self._owner = owner
        self._inner = inner
        self.dialect = inner.dialect
        self.capabilities = inner.capabilities

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        await self._owner._mark(query.name)
        return await self._inner.fetch(self._owner._instead.get(query.name, query), **parameters)

    async def run(self, script: str) -> None:
        await self._owner._mark("run")
        await self._inner.run(script)

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        yield self
