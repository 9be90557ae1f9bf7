"""An engine that runs, on the database of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from windlass.config import Settings
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.ids import Ids


@pytest.fixture
async def engine(db: Database) -> AsyncIterator[Engine]:
    """A running engine; the test runs once on each kind of database."""
    made = Engine(db, Settings(), name="scheduler_test_1", ids=Ids(), outside=Outside())
    async with made.running():
        yield made
