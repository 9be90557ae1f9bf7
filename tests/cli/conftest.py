"""What tests of the command line may ask for.

url       a server process, one for each file of tests
hands     a worker of it that does what it is told
windlass  a function that runs a command against it and returns what it answered
queue     a name that no other test has
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.running import Hands, serving
from windlass.cli import cli

Windlass = Callable[..., Result]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server process, one for each file of tests."""
    with serving(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture
def hands(url: str) -> Iterator[Hands]:
    """A worker that does what it is told."""
    made = Hands(url)
    yield made
    made.close()


@pytest.fixture
def queue() -> str:
    """A name that no other test has."""
    return f"q-{uuid.uuid4()}"


@pytest.fixture
def windlass(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Windlass:
    """Return a function that runs a command in an empty folder, against the server."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)

    def run(*arguments: str, given: str | None = None, **environment: str) -> Result:
        return CliRunner().invoke(cli, list(arguments), input=given, env={"WINDLASS_URL": url, **environment})

    return run
