"""The stage on which races are played, once on each kind of database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.clock import TestClock
from tests.databases import OPEN_LONG, PATIENT, Emptied, KeptDatabases, open_with
from tests.kept import Kept
from tests.queue.races.stage import Stage
from windlass.db import Database


@asynccontextmanager
async def staged(
    url: str,
    clock: TestClock,
    *,
    servers: int = 2,
    settings: Mapping[str, str] = PATIENT,
    opened: Sequence[Database] = (),
    kept: Kept | None = None,
) -> AsyncIterator[Stage]:
    """Open a stage on the database at `url`, of as many servers with such settings, or of those that are `opened`.

    A SQLite file has one server. `kept` is a connection to the database on which invariants and waits are looked at.
    """
    # The clock of a SQLite file begins above the ceiling that its template has.
    clock.advance(2)
    async with AsyncExitStack() as stack:
        several = url.startswith("postgres")
        used = [*opened]
        for _ in range(0 if used else servers if several else 1):
            database = await open_with(settings, url, clock=clock)
            stack.push_async_callback(database.close)
            used.append(database)
        if several and kept is None:
            kept = Kept(url)
            stack.callback(kept.close)
        yield Stage(clock, used, kept=kept)


@pytest.fixture
async def stage(
    database_url: str, kept_for_url: KeptDatabases | None, clock: TestClock, request: pytest.FixtureRequest
) -> AsyncIterator[Stage]:
    """Two servers on an empty database; the test runs once on each kind."""
    kept: Kept | None = request.getfixturevalue("worker_database").kept if kept_for_url else None
    opened = await kept_for_url.opened(2, clock) if kept_for_url else ()
    async with staged(database_url, clock, opened=opened, kept=kept) as made:
        yield made


@pytest.fixture
async def postgres_stage(
    postgres_url: str, kept_databases: KeptDatabases, clock: TestClock, worker_database: Emptied
) -> AsyncIterator[Stage]:
    """Three servers on an empty PostgreSQL database."""
    opened = await kept_databases.opened(3, clock)
    async with staged(postgres_url, clock, opened=opened, kept=worker_database.kept) as made:
        yield made


@pytest.fixture
async def hasty_stage(postgres_url: str, clock: TestClock, worker_database: Emptied) -> AsyncIterator[Stage]:
    """Two servers on an empty PostgreSQL database, which wait for a lock as long as in service."""
    async with staged(postgres_url, clock, settings=OPEN_LONG, kept=worker_database.kept) as made:
        yield made


@pytest.fixture
async def sqlite_stage(sqlite_url: str, clock: TestClock) -> AsyncIterator[Stage]:
    """The server of a SQLite file."""
    async with staged(sqlite_url, clock) as made:
        yield made
