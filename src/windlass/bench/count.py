"""Count: a database that counts the statements sent to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from windlass.db import Row, Statements
from windlass.db.sqlfile import Query


class CountingStatements:
    """The verbs that steps use, counted, with BEGIN and COMMIT; a statement of its own tells a transaction's number."""

    def __init__(self, inner: Statements, counter: CountingStatements | None = None) -> None:
        self._inner = inner
        self._counter = counter or self
        self.dialect = inner.dialect
        self.capabilities = inner.capabilities
        self.statements = 0

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query; on SQLite it may be several statements, in a transaction if it is by itself."""
        self._counter.statements += 1 if self.dialect == "postgres" else len(query.sqlite[0])
        if self.dialect == "sqlite" and self._counter is self and query.writes:
            self._counter.statements += 2
        return await self._inner.fetch(query, **parameters)

    async def run(self, script: str) -> None:
        """Run a script, which counts as one."""
        self._counter.statements += 1
        await self._inner.run(script)

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        """Open a transaction and count inside it."""
        self._counter.statements += 2
        async with self._inner.transaction(tracked=tracked) as statements:
            yield CountingStatements(statements, self._counter)
