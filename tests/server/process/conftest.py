"""What tests of real server processes may ask for.

launch        a function that starts `windlass` with arguments; its process is gone when the test ends
own_cluster   a PostgreSQL that these tests may stop and start
own_url       the URL of an empty database in it
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests import cluster
from tests.cluster import Cluster
from tests.databases import connected
from tests.proofs.processes import ServerProcess, started

Launch = Callable[..., Awaitable[ServerProcess]]


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[Launch]:
    """Start `windlass` with these arguments, in an empty folder; its process is gone when the test ends."""
    async with AsyncExitStack() as stack:

        async def start(
            *arguments: str, files: int | None = None, nohup: bool = False, **settings: str
        ) -> ServerProcess:
            named = {f"WINDLASS_{name.upper()}": value for name, value in settings.items()}
            return await stack.enter_async_context(
                started(*arguments, settings=named, cwd=tmp_path, files=files, nohup=nohup)
            )

        yield start


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A PostgreSQL that these tests may stop and start."""
    binaries = cluster.find()
    if binaries is None:
        pytest.skip("no binaries on this machine to run a PostgreSQL with")
    with cluster.running(binaries) as running:
        yield running


@pytest.fixture
def own_url(own_cluster: Cluster, _own_numbers: Iterator[int]) -> str:
    """The URL of an empty database."""
    name = f"own_{next(_own_numbers)}"
    asyncio.run(_create(own_cluster.url, name))
    return urlunsplit(urlsplit(own_cluster.url)._replace(path=f"/{name}"))


@pytest.fixture(scope="session")
def _own_numbers() -> Iterator[int]:
    return itertools.count(1)


async def _create(url: str, name: str) -> None:
    async with connected(url) as connection:
        await connection.execute(f'CREATE DATABASE "{name}"')
