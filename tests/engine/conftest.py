"""An engine that runs, on the database of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.clock import TestClock
from tests.databases import KeptDatabases, opened
from tests.engine.loops_world import World
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside


@pytest.fixture
async def world(db: Database, clock: TestClock) -> AsyncIterator[World]:
    """A world without servers, ended when the test is."""
    clock.advance(minutes=1)
    made = World(db, clock)
    yield made
    await made.end()


@pytest.fixture
async def engine(db: Database) -> AsyncIterator[Engine]:
    """A running engine; the test runs once on each kind of database."""
    made = Engine(db, Settings(), name="scheduler_test_1", outside=Outside())
    async with made.running():
        yield made


@pytest.fixture
def kept_here(database_url: str, request: pytest.FixtureRequest) -> KeptDatabases | None:
    """Databases that are kept open, on their own clock; None on SQLite."""
    if database_url.startswith("sqlite"):
        return None
    request.getfixturevalue("timely_postgres_url")
    kept: KeptDatabases = request.getfixturevalue("kept_timely")
    return kept


@pytest.fixture
async def timely_db(database_url: str, kept_here: KeptDatabases | None) -> AsyncIterator[Database]:
    """The database of the test, on its own clock."""
    if kept_here is None:
        async with opened(database_url) as db:
            yield db
    else:
        [db] = await kept_here.opened(1)
        yield db


@pytest.fixture
async def timely(timely_db: Database) -> AsyncIterator[Engine]:
    """A running engine on the database's own clock: for rates, which need time to pass."""
    made = Engine(timely_db, Settings(), name="scheduler_test_1", outside=Outside())
    async with made.running():
        yield made
