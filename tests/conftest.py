"""What every test may ask for: a clock that stands still, and a migrated, empty database of either kind.

    clock                the tests' clock
    db                   an open database; the test runs once on SQLite and once on PostgreSQL
    sqlite_db            the same, on SQLite only
    postgres_db          the same, on PostgreSQL only
    database_url         the URL of such a database, for a test that opens it itself, perhaps more than once
    sqlite_url, postgres_url
    fresh_postgres_url   a PostgreSQL database of the test's own, dropped afterwards

How the server of the run comes about is in `postgres_run.py`, what becomes of its databases in `databases.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.clock import TestClock
from tests.databases import (
    Emptied,
    Server,
    create,
    create_emptied,
    drop,
    empty,
    make_sqlite_template,
    make_template,
)
from windlass.db import Database, open_database

pytest_plugins = ["tests.postgres_run"]

# A database on a busy machine may take long over any one example, so none has a deadline.
hypothesis.settings.register_profile("dev", max_examples=50, stateful_step_count=30, deadline=None)
hypothesis.settings.register_profile("long", max_examples=500, stateful_step_count=50, deadline=None)
hypothesis.settings.load_profile(os.environ.get("WINDLASS_HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture
def clock() -> TestClock:
    """A clock at noon of 2026-01-01, UTC, that moves only when told."""
    return TestClock()


@pytest.fixture(scope="session")
def worker_database(postgres_server: Server) -> Iterator[Emptied]:
    """The PostgreSQL database of this test worker; its tests use it one after the other."""
    asyncio.run(make_template(postgres_server))
    made = asyncio.run(create_emptied(postgres_server, os.environ.get("PYTEST_XDIST_WORKER", "main")))
    yield made
    made.kept.close()


@pytest.fixture
def postgres_url(worker_database: Emptied) -> str:
    """The URL of a migrated, empty PostgreSQL database."""
    asyncio.run(empty(worker_database))
    return worker_database.url


@pytest.fixture
def fresh_postgres_url(worker_database: Emptied, _numbers: Iterator[int]) -> Iterator[str]:
    """The URL of a migrated PostgreSQL database made for this test, which may change its schema or settings."""
    name = f"{worker_database.name}_{next(_numbers)}"
    asyncio.run(create(worker_database.server, name))
    yield worker_database.server.url_of(name)
    asyncio.run(drop(worker_database.server, name))


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied and not opened."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    make_sqlite_template(path)
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """The URL of a migrated, empty SQLite file."""
    path = tmp_path / "windlass.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}?synchronous=off"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a migrated, empty database; the test runs once on each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
async def db(database_url: str, clock: TestClock) -> AsyncIterator[Database]:
    """An open, migrated, empty database on the tests' clock; the test runs once on each kind."""
    database = await open_database(database_url, clock=clock)
    yield database
    await database.close()


@pytest.fixture
async def sqlite_db(sqlite_url: str, clock: TestClock) -> AsyncIterator[Database]:
    """The same as `db`, on SQLite only."""
    database = await open_database(sqlite_url, clock=clock)
    yield database
    await database.close()


@pytest.fixture
async def postgres_db(postgres_url: str, clock: TestClock) -> AsyncIterator[Database]:
    """The same as `db`, on PostgreSQL only."""
    database = await open_database(postgres_url, clock=clock)
    yield database
    await database.close()
