"""What tests of real worker processes may ask for: `installation`, a server that serves, and a gate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster import free_port
from tests.worker.process.installation import Installation, installed


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Installation]:
    """An installation whose server is not started yet."""
    async with installed(tmp_path) as made:
        yield made


@pytest.fixture
async def installation(bare: Installation) -> Installation:
    """An installation whose server serves."""
    await bare.start_server()
    return bare


@pytest.fixture
def unused_port() -> int:
    """A port that nobody listens on."""
    return free_port()
