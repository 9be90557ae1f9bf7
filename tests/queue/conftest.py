"""What tests of the queue may ask for besides: `steps`, and a `db` that is proven sound after every test.

A test that breaks rows on purpose is marked `breaks_rows`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.clock import TestClock
from tests.databases import Emptied
from tests.kept import check_at_once, check_kept
from tests.queue.steps import Steps
from windlass.db import Database


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", "breaks_rows: the test leaves rows behind that break an invariant, on purpose")


@pytest.fixture(name="db")
async def sound_db(db: Database, clock: TestClock, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """The `db` of all tests; when the test ends every invariant must hold."""
    # A file made a moment ago has its clock's ceiling a second ahead; from here on both databases tell the same time.
    clock.advance(minutes=1)
    postgres: Emptied | None = request.getfixturevalue("worker_database") if db.dialect == "postgres" else None
    yield db
    if request.node.get_closest_marker("breaks_rows") is None:
        assert [] == (await check_kept(postgres.kept, clock.now()) if postgres else await check_at_once(db))


@pytest.fixture
def steps(db: Database, clock: TestClock) -> Steps:
    """The steps of the queue, with what every call needs filled in."""
    return Steps(db, clock)
