"""Trusted: the database as the holder of a duty sees it, while its lease can be trusted and not a moment longer.

A process can be stopped for longer than its lease and go on in the middle of a duty (loops.py). So whether the lease
can still be trusted is asked before every statement, before a transaction begins, and again before it commits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any

from windlass.db import Capabilities, Database, Query, Row, Statements
from windlass.db.base import Dialect

Check = Callable[[], None]
"""Raises DutyLost when the lease is over, or can no longer be trusted."""


class Trusted:
    """The verbs of a real database, each refused with DutyLost once `check` raises it."""

    def __init__(self, db: Database, check: Check, *, term: int = 0) -> None:
        self._db = db
        self._check = check
        self.term = term
        """Of the duty; 0 where every server does every duty."""
        self.dialect: Dialect = db.dialect
        self.capabilities: Capabilities = db.capabilities

    def check(self) -> None:
        """Raise DutyLost unless the lease can be trusted now."""
        self._check()

    def together(self, others: Iterable[Trusted]) -> Trusted:
        """Return the same view for several duties at once, trusted while each of their leases can be."""
        checks = [self._check, *(other._check for other in others)]

        def check() -> None:
            for each in checks:
                each()

        return Trusted(self._db, check, term=self.term)

    def now(self) -> datetime:
        """Return the time by the database's clock."""
        return self._db.now()

    async def read_clock(self) -> None:
        """Read the database's clock."""
        await self._db.read_clock()

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query; what it wrote is rolled back if the lease cannot be trusted when it would commit."""
        if query.writes:
            async with self.transaction() as statements:
                return await statements.fetch(query, **parameters)
        self._check()
        return await self._db.fetch(query, **parameters)

    async def run(self, script: str) -> None:
        """Run a script in a transaction of its own."""
        async with self.transaction() as statements:
            await statements.run(script)

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        """Open a transaction; it is rolled back if the lease cannot be trusted when it would commit."""
        self._check()
        async with self._db.transaction(tracked=tracked) as statements:
            yield _TrustedTransaction(statements, self._check)
            self._check()

    async def maintain(self, statement: str) -> None:
        """Run one statement outside any transaction."""
        self._check()
        await self._db.maintain(statement)

    async def empty_log(self) -> bool:
        """Empty SQLite's write-ahead log."""
        self._check()
        return await self._db.empty_log()

    async def notify(self, channel: str, payload: str) -> None:
        """Send a hint, which is harmless at any time."""
        await self._db.notify(channel, payload)

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listen for hints."""
        return self._db.listen(channel)

    async def version(self) -> str:
        """Return the database's name and version."""
        return await self._db.version()

    async def close(self) -> None:
        """Leave the database open: it is the server's."""


class _TrustedTransaction:
    def __init__(self, statements: Statements, check: Check) -> None:
        self._statements = statements
        self._check = check
        self.dialect: Dialect = statements.dialect
        self.capabilities: Capabilities = statements.capabilities

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query in this transaction."""
        self._check()
        return await self._statements.fetch(query, **parameters)

    async def run(self, script: str) -> None:
        """Run a script of statements without parameters."""
        self._check()
        await self._statements.run(script)

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        """Join this transaction."""
        yield self
