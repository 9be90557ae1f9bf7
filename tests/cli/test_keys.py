"""`windlass keys` follows the server that is meant, as every command does, and says where it wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.running import serving
from windlass.cli import cli
from windlass.queue.keys import make_token

ADMIN = make_token()
READER = ("keys", "create", "shop", "--role", "reader")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server that asks for keys: its URL and its database's."""
    folder = tmp_path_factory.mktemp("guarded")
    asks = {"WINDLASS_SECURITY_KEYS_REQUIRED": "true", "WINDLASS_SECURITY_BOOTSTRAP_KEY": ADMIN}
    with serving(folder, settings=asks) as url:
        yield url, f"sqlite:///{folder}/jobs.db"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins in an empty folder, without settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)


def run(*arguments: str, **environment: str) -> Result:
    """Run a command with these settings and no others."""
    return CliRunner().invoke(cli, list(arguments), env=environment)


def names(listed: Result) -> list[str]:
    """Return the names of keys that were listed as JSON."""
    return [json.loads(line)["name"] for line in listed.stdout.splitlines()]


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_a_key_is_made_on_the_server_that_is_named(guarded: tuple[str, str], by: str) -> None:
    """`--url` and WINDLASS_URL lead `keys` to a server, also beside a windlass.db; the answer says which."""
    url, _ = guarded
    assert 0 == run("migrate").exit_code
    flags, named = (["--url", url], {}) if by == "flag" else ([], {"WINDLASS_URL": url})

    made = run(*READER, *flags, WINDLASS_KEY=ADMIN, **named)
    key_id = made.stdout.split("_")[1]
    listed = run("keys", "list", *flags, WINDLASS_KEY=ADMIN, **named)
    revoked = run("keys", "revoke", key_id, *flags, WINDLASS_KEY=ADMIN, **named)

    assert 0 == made.exit_code, made.stderr
    assert f"Made key {key_id} (shop; read; all tenants) on {url}." in made.stderr
    assert f"{key_id}  shop; read; all tenants" in listed.stdout.splitlines()
    assert f"on {url}." in revoked.stdout
    assert [] == names(run("keys", "list", "-o", "json", "--database", "sqlite:///windlass.db"))


def test_the_server_beside_a_file_is_found(guarded: tuple[str, str]) -> None:
    """A server that runs on the SQLite file of the settings is asked, with the admin's key."""
    url, database = guarded

    made = run(*READER, WINDLASS_DATABASE_URL=database, WINDLASS_KEY=ADMIN)

    assert 0 == made.exit_code, made.stderr
    assert f"on {url}." in made.stderr


def test_the_first_key_is_made_beside_a_server_that_asks_for_keys(guarded: tuple[str, str]) -> None:
    """N8: without a key the server refuses and the message names the way; `--database` needs none."""
    _, database = guarded

    refused = run(*READER, WINDLASS_DATABASE_URL=database)
    made = run(*READER, "--database", database)

    assert (1, "") == (refused.exit_code, refused.stdout)
    assert "Set the key of an admin as WINDLASS_KEY" in refused.stderr
    assert f"`--database {database}`" in refused.stderr
    assert 0 == made.exit_code
    assert f" in {database}." in made.stderr


def test_without_a_server_the_database_of_the_settings_is_written_to() -> None:
    """Nobody runs: the key goes into the file, and the answer says so."""
    assert 0 == run("migrate").exit_code

    made, as_json = run(*READER), run(*READER, "-o", "json")

    assert " in sqlite:///windlass.db." in made.stderr
    assert "sqlite:///windlass.db" == json.loads(as_json.stdout)["where"]


@pytest.mark.parametrize("command", [READER, ("keys", "list"), ("keys", "revoke", "k3v7pq2mzx4a"), ("check",)])
def test_no_database_is_made_by_the_way(command: tuple[str, ...]) -> None:
    """A file that is not there stays so, and the message says what makes it."""
    answer = run(*command)

    assert (1, "") == (answer.exit_code, answer.stdout)
    assert "There is no database at sqlite:///windlass.db" in answer.stderr
    assert "windlass migrate" in answer.stderr
    assert [] == list(Path().iterdir())


def test_a_server_and_a_database_cannot_both_be_meant() -> None:
    """Which of them would get the key is not guessed."""
    answer = run(*READER, "--url", "http://127.0.0.1:1", "--database", "sqlite:///x.db")

    assert (2, "") == (answer.exit_code, answer.stdout)
    assert "--url" in answer.stderr
    assert "--database" in answer.stderr


@pytest.mark.parametrize("command", ["check", "migrate"])
def test_a_command_on_a_database_does_not_guess_it_where_a_server_is_named(command: str) -> None:
    """WINDLASS_URL without a database: the file in this folder is not what was meant."""
    answer = run(command, WINDLASS_URL="http://127.0.0.1:1")

    assert (2, "") == (answer.exit_code, answer.stdout)
    assert "http://127.0.0.1:1" in answer.stderr
    assert "--database" in answer.stderr
    assert [] == list(Path().iterdir())


def test_commands_on_a_database_say_which() -> None:
    """`migrate` and `check` end with the database they were about."""
    assert "\nThe schema of sqlite:///windlass.db is current (SQLite" in run("migrate").stdout
    assert "Nothing to apply: the schema of sqlite:///windlass.db is current (SQLite" in run("migrate").stdout
    assert "of sqlite:///windlass.db hold." in run("check").stdout


@pytest.mark.parametrize("command", [("jobs", "list"), ("queues", "list"), ("top",), ("dlq", "list")])
def test_looking_makes_no_database(command: tuple[str, ...]) -> None:
    """Where neither a server runs nor a file is, a look says so instead of showing an empty new database."""
    answer = run(*command)

    assert (5, "") == (answer.exit_code, answer.stdout)
    assert "No server runs here, and there is no sqlite:///windlass.db" in answer.stderr
    assert [] == list(Path().iterdir())


def test_a_job_stored_without_a_server_is_said_to_be() -> None:
    """`submit` where no server runs keeps the job in the file; the id stands alone on stdout."""
    answer = run("submit", "add")

    assert 0 == answer.exit_code
    assert 36 == len(answer.stdout.strip())
    assert "No server runs here: this is kept in sqlite:///windlass.db" in answer.stderr
