"""What every test may ask for: a clock that stands still, and a migrated, empty database of either kind.

    clock                the tests' clock
    db                   an open database; the test runs once on SQLite and once on PostgreSQL
    sqlite_db            the same, on SQLite only
    postgres_db          the same, on PostgreSQL only
    database_url         the URL of such a database, for a test that opens it itself, perhaps more than once
    sqlite_url, postgres_url
    timely_postgres_url  the same for a test on the database's own clock
    fresh_postgres_url   a PostgreSQL database of the test's own, dropped afterwards

How the server of the run comes about is in `postgres_run.py`, what becomes of its databases in `databases.py`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import uvloop

from tests.clock import TestClock
from tests.cluster import MEMORY, memory_is_free
from tests.databases import (
    PATIENT,
    Emptied,
    KeptDatabases,
    KeptFile,
    Server,
    create,
    create_emptied,
    drop,
    empty,
    make_sqlite_template,
    make_templates,
)
from windlass.db import Database

pytest_plugins = ["tests.postgres_run"]

if memory_is_free():
    # SQLite files of tests need no disk either.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# A database on a busy machine may take long over any one example, so none has a deadline.
# `make test` draws the same examples each time, so that it fails by a change and not by chance; the others explore.
hypothesis.settings.register_profile(
    "dev", max_examples=12, stateful_step_count=30, deadline=None, derandomize=True, database=None
)
hypothesis.settings.register_profile("all", max_examples=100, stateful_step_count=30, deadline=None)
hypothesis.settings.register_profile("long", max_examples=1000, stateful_step_count=50, deadline=None)
hypothesis.settings.load_profile(os.environ.get("WINDLASS_HYPOTHESIS_PROFILE", "dev"))


ON_BOTH = {
    "server": {"test_matrix.py"},
    "client": {"test_verbs.py"},
    "worker": {"test_links.py"},
    "cli": set[str](),
    "bench": set[str](),
}
"""Above the engine a database is only seen through it: there only these files run on both kinds in `make test`.

The engine itself runs there on PostgreSQL, and on SQLite under the tests of the server.
"""

LONGEST = {"test_rel_k20_connection_killed_at_each_commit", "test_the_databases_do_what_the_model_does"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-all` what a database shows again that is not the one in question."""
    for item in items:
        folder, name = item.path.relative_to(Path(__file__).parent).parts[0], item.path.name
        drawn = item.callspec.params if hasattr(item, "callspec") else {}
        kinds = (drawn.get("database_url"), drawn.get("way"))
        again = "postgres" in kinds and (name not in ON_BOTH.get(folder, {name}) or "one_kind" in item.keywords)
        # A file has one who writes at a time: races are between connections of PostgreSQL.
        again |= "sqlite" in kinds and ("races" in item.path.parts or folder == "engine")
        again |= (drawn.get("way"), drawn.get("voice")) in (("postgres", "sync"), ("sqlite", "async"), ("http", "sync"))
        if again:
            item.add_marker(pytest.mark.exhaustive)
    # Whoever gets the longest ones last would be waited for.
    items.sort(key=lambda item: item.name not in LONGEST)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests on the loop of servers and workers."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection() -> None:
    """Let the collector of garbage rest while thousands of tests are collected."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let it pass over them from now on."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def clock() -> TestClock:
    """A clock at noon of 2026-01-01, UTC, that moves only when told."""
    return TestClock()


@pytest.fixture(scope="session")
def worker_database(postgres_server: Server) -> Iterator[Emptied]:
    """The PostgreSQL database of this test worker; its tests use it one after the other."""
    yield from _emptied_database(postgres_server, os.environ.get("PYTEST_XDIST_WORKER", "main"), "template")


@pytest.fixture
def postgres_url(worker_database: Emptied) -> str:
    """The URL of a migrated, empty PostgreSQL database."""
    asyncio.run(empty(worker_database))
    return worker_database.url


@pytest.fixture(scope="session")
def timely_database(postgres_server: Server) -> Iterator[Emptied]:
    """The same for tests on the database's own clock: in the other each of them would make forty days of history."""
    yield from _emptied_database(postgres_server, os.environ.get("PYTEST_XDIST_WORKER", "main") + "_timely", "today")


def _emptied_database(server: Server, name: str, template: str) -> Iterator[Emptied]:
    asyncio.run(make_templates(server))
    made = asyncio.run(create_emptied(server, name, template))
    yield made
    made.kept.close()


@pytest.fixture
def timely_postgres_url(timely_database: Emptied) -> str:
    """The URL of a migrated, empty PostgreSQL database, for servers on its own clock."""
    asyncio.run(empty(timely_database))
    return timely_database.url


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


@pytest.fixture(scope="session")
async def kept_databases(worker_database: Emptied) -> AsyncIterator[KeptDatabases]:
    """Databases on the PostgreSQL of this test worker that stay open from test to test; they wait long for locks."""
    kept = KeptDatabases(worker_database, settings=PATIENT)
    yield kept
    await kept.close()


@pytest.fixture(scope="session")
async def kept_timely(timely_database: Emptied) -> AsyncIterator[KeptDatabases]:
    """The same, on the database's own clock and with the time-outs of service."""
    kept = KeptDatabases(timely_database, on_test_clock=False)
    yield kept
    await kept.close()


@pytest.fixture
def kept_for_url(database_url: str, request: pytest.FixtureRequest) -> KeptDatabases | None:
    """The same; None where the test runs on SQLite, whose file is new for each test."""
    if database_url.startswith("sqlite"):
        return None
    kept: KeptDatabases = request.getfixturevalue("kept_databases")
    return kept


@pytest.fixture(scope="session")
async def kept_file(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KeptFile]:
    """A SQLite file of this test worker that stays open from test to test."""
    kept = KeptFile(sqlite_template, tmp_path_factory.mktemp("kept"))
    yield kept
    await kept.close()


@pytest.fixture
def db(database_url: str, request: pytest.FixtureRequest) -> Database:
    """An open, migrated, empty database on the tests' clock; the test runs once on each kind."""
    kind = "sqlite" if database_url.startswith("sqlite") else "postgres"
    database: Database = request.getfixturevalue(f"{kind}_db")
    return database


@pytest.fixture
async def sqlite_db(kept_file: KeptFile, clock: TestClock) -> Database:
    """The same as `db`, on SQLite only."""
    return await kept_file.opened(clock)


@pytest.fixture
async def postgres_db(postgres_url: str, kept_databases: KeptDatabases, clock: TestClock) -> Database:
    """The same as `db`, on PostgreSQL only."""
    [kept] = await kept_databases.opened(1, clock)
    return kept


@pytest.fixture(autouse=True)
async def nothing_goes_on() -> AsyncIterator[None]:
    """End what a test left running on the loop, which all tests of a process share."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
