"""What tests of the Python API may ask for.

served   a server of an empty database, in a thread of the test
app      an application that speaks with it over HTTP, and once with each kind of database itself, beside it
voice    a function that calls a verb of a handle: blocking, in a thread, and once as its async twin
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.client.serving import Served
from windlass import App

Voice = Callable[..., Awaitable[Any]]


@pytest.fixture(params=["http", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def way(request: pytest.FixtureRequest) -> str:
    """How the application reaches its server: over HTTP, or by a database of its kind."""
    found: str = request.param
    return found


@pytest.fixture
def served(request: pytest.FixtureRequest, way: str) -> Iterator[Served]:
    """A server of an empty database."""
    server = Served(request.getfixturevalue("timely_postgres_url" if way == "postgres" else "sqlite_url"))
    yield server
    server.close()


@pytest.fixture
async def app(way: str, served: Served) -> AsyncIterator[App]:
    """An application that speaks with the server, or with its database beside it."""
    made = App(url=served.url) if way == "http" else App(database=served.settings.database.url)
    yield made
    await made.aclose()


@pytest.fixture(params=["sync", "async"])
def voice(request: pytest.FixtureRequest) -> Voice:
    """Return a function that calls a verb of something, in the one shell or the other."""

    async def say(what: Any, verb: str, *args: Any, **kwargs: Any) -> Any:
        if request.param == "async":
            return await getattr(what, f"a{verb}")(*args, **kwargs)
        return await asyncio.to_thread(getattr(what, verb), *args, **kwargs)

    return say
