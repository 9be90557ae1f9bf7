"""The stage on which races are played, once on each kind of database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.clock import TestClock
from tests.databases import Emptied, connected
from tests.kept import Kept
from tests.queue.races.stage import Stage
from windlass.db import open_database


@asynccontextmanager
async def staged(url: str, clock: TestClock, *, servers: int = 2, kept: Kept | None = None) -> AsyncIterator[Stage]:
    """Open a stage on the database at `url`; `kept` is a connection to it on which invariants are looked at."""
    # The clock of a SQLite file begins above the ceiling that its template has.
    clock.advance(2)
    async with AsyncExitStack() as stack:
        several = url.startswith("postgres")
        opened = []
        for _ in range(servers if several else 1):
            database = await open_database(url, clock=clock)
            stack.push_async_callback(database.close)
            opened.append(database)
        watcher = await stack.enter_async_context(connected(url)) if several else None
        yield Stage(clock, opened, watcher=watcher, kept=kept)


@pytest.fixture
async def stage(database_url: str, clock: TestClock, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """Two servers on an empty database; the test runs once on each kind."""
    several = database_url.startswith("postgres")
    kept: Kept | None = request.getfixturevalue("worker_database").kept if several else None
    async with staged(database_url, clock, kept=kept) as made:
        yield made


@pytest.fixture
async def postgres_stage(postgres_url: str, clock: TestClock, worker_database: Emptied) -> AsyncIterator[Stage]:
    """Three servers on an empty PostgreSQL database."""
    async with staged(postgres_url, clock, servers=3, kept=worker_database.kept) as made:
        yield made


@pytest.fixture
async def sqlite_stage(sqlite_url: str, clock: TestClock) -> AsyncIterator[Stage]:
    """The server of a SQLite file."""
    async with staged(sqlite_url, clock) as made:
        yield made
