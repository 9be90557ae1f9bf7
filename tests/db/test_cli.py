"""`windlass migrate` and `windlass check` as people call them: exit codes, messages, and nothing more than asked."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.databases import Emptied, Server, connected, drop
from windlass.cli import cli
from windlass.db import Database, open_database
from windlass.db.migrate import known_migrations
from windlass.queue.check import INVARIANTS

NAMES = [f"{migration.number:04d}_{migration.name}" for migration in known_migrations()]
NOWHERE = "postgresql://postgres@127.0.0.1:1/jobs"


def windlass(*arguments: str) -> Result:
    """Run a command and return what it answered."""
    return CliRunner().invoke(cli, list(arguments))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    """Open a database beside whoever has it."""
    db = await open_database(url, role="client")
    try:
        yield db
    finally:
        await db.close()


def run(url: str, statement: str) -> None:
    """Run a statement on the database, in which `%` stands for the schema."""

    async def run_it() -> None:
        async with opened(url) as db:
            await db.run(statement.replace("%", "windlass." if db.dialect == "postgres" else "") + ";\n")

    asyncio.run(run_it())


@pytest.fixture
def empty_postgres_url(postgres_server: Server, worker_database: Emptied) -> Iterator[str]:
    """The URL of a PostgreSQL database in which nothing is."""
    name = f"{worker_database.name}_cli"

    async def make() -> None:
        async with connected(postgres_server.url) as connection:
            await connection.execute(f'CREATE DATABASE "{postgres_server.prefix}_{name}" TEMPLATE template0')

    asyncio.run(make())
    yield postgres_server.url_of(name)
    asyncio.run(drop(postgres_server, name))


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> str:
    """The URL of a file that is not there yet."""
    return f"sqlite:///{tmp_path}/new.db?synchronous=off"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database of either kind."""
    url: str = request.getfixturevalue(f"empty_{request.param}_url")
    return url


@pytest.fixture(params=["sqlite_url", pytest.param("fresh_postgres_url", marks=pytest.mark.postgres)])
def own_url(request: pytest.FixtureRequest) -> str:
    """The URL of a migrated database of the test's own, whose record of migrations it may forge."""
    url: str = request.getfixturevalue(request.param)
    return url


def test_migrate_makes_the_schema(empty_url: str) -> None:
    """It names each migration it applies and exits with 0; again, it says that there is nothing to do."""
    first, second = windlass("migrate", "--database", empty_url), windlass("migrate", "--database", empty_url)

    *applied, last = first.stdout.splitlines()
    current = r"he schema of \S+ is current \((SQLite|PostgreSQL) [\d.]+\)\."
    assert (0, [f"Applied {name}" for name in NAMES]) == (first.exit_code, applied)
    assert re.fullmatch(f"T{current}", last)
    assert 0 == second.exit_code
    assert re.fullmatch(f"Nothing to apply: t{current}\n", second.stdout)


def test_a_dry_run_changes_nothing(empty_postgres_url: str) -> None:
    """It says what would be applied, every time, because nothing is."""
    for _ in range(2):
        answer = windlass("migrate", "--dry-run", "--database", empty_postgres_url)

        *lines, last = answer.stdout.splitlines()
        assert (0, [f"Would apply {name}" for name in NAMES]) == (answer.exit_code, lines)
        assert last.startswith("Nothing was written to postgresql://")


def test_a_dry_run_of_a_current_schema(database_url: str) -> None:
    """Nothing missing is said in the same words as without --dry-run."""
    answer = windlass("migrate", "--dry-run", "--database", database_url)

    assert 0 == answer.exit_code
    assert answer.stdout.startswith("Nothing to apply: the schema of ")


def test_a_dry_run_makes_no_file(tmp_path: Path) -> None:
    """On SQLite a file that is not there stays so."""
    answer = windlass("migrate", "--dry-run", "--database", f"sqlite:///{tmp_path}/typo.db")

    assert 1 == answer.exit_code
    assert "typo.db" in answer.stderr
    assert [] == list(tmp_path.iterdir())


def test_a_newer_schema_is_refused(own_url: str) -> None:
    """A database of a newer version is exit code 1, for both commands, with what to do."""
    run(own_url, "UPDATE %migration SET number = number + 7000")

    for command in ("migrate", "check"):
        answer = windlass(command, "--database", own_url)

        assert 1 == answer.exit_code
        assert re.match(r"Error: The database has migration 7001, which this version .* Use the version", answer.stderr)
        assert "" == answer.stdout


def test_an_altered_schema_is_refused(own_url: str) -> None:
    """A migration that was applied with other content is exit code 1."""
    run(own_url, "UPDATE %migration SET checksum = 'x'")

    answer = windlass("migrate", "--database", own_url)

    assert 1 == answer.exit_code
    assert "was applied with other content" in answer.stderr


def test_check_needs_a_schema(empty_postgres_url: str) -> None:
    """An empty database is exit code 1 and names the command to run first."""
    answer = windlass("check", "--database", empty_postgres_url)

    assert 1 == answer.exit_code
    assert re.search(r"lacks 0001_first.* Run `windlass migrate` first\.", answer.stderr)


def test_a_healthy_database_passes(database_url: str) -> None:
    """All invariants hold: exit code 0 and one line."""
    windlass("migrate", "--database", database_url)
    answer = windlass("check", "--database", database_url)

    assert (0, f"All {len(INVARIANTS)} invariants of {database_url} hold.\n") == (answer.exit_code, answer.stdout)


def test_what_the_check_advises_helps(postgres_url: str) -> None:
    """A database whose days have run out is exit code 1, with the command that makes them; then all is well."""
    first = windlass("check", "--database", postgres_url)
    windlass("migrate", "--database", postgres_url)
    second = windlass("check", "--database", postgres_url)

    assert (1, 0) == (first.exit_code, second.exit_code)
    assert all("Run `windlass migrate` or start a server" in line for line in first.stdout.splitlines())


def test_each_violation_is_a_line(database_url: str) -> None:
    """Violations are lines on standard output, their number goes to standard error, and the exit code is 1."""
    windlass("migrate", "--database", database_url)
    queued_at = "0" if database_url.startswith("sqlite") else "now()"
    first, second = "019b7680-0000-7000-8000-000000000001", "019b7680-0000-7000-8000-000000000002"
    for job_id in (first, second):
        run(
            database_url,
            "INSERT INTO %queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, pending, flags) "
            f"VALUES ('{job_id}', 999, 0, 0, 0, 0, 0, 0, {queued_at}, 0, 0)",
        )

    answer = windlass("check", "--database", database_url)

    assert 1 == answer.exit_code
    assert {
        f"i21_one_place: {first}: in queue without a job",
        f"i21_one_place: {second}: in queue without a job",
        f"references: {first}: in queue, of no lane",
        f"references: {second}: in queue, of no lane",
    } == set(answer.stdout.splitlines())
    assert answer.stderr.startswith("4 violations")


def test_check_runs_beside_a_server(sqlite_url: str) -> None:
    """It only reads, so it needs no role of its own; migrating beside a server is exit code 4."""

    async def beside() -> tuple[Result, Result, Result]:
        server = await open_database(sqlite_url)
        try:
            return (
                await asyncio.to_thread(windlass, "check", "--database", sqlite_url),
                await asyncio.to_thread(windlass, "migrate", "--dry-run", "--database", sqlite_url),
                await asyncio.to_thread(windlass, "migrate", "--database", sqlite_url),
            )
        finally:
            await server.close()

    check, dry_run, migrate = asyncio.run(beside())

    assert (0, 0, 4) == (check.exit_code, dry_run.exit_code, migrate.exit_code)
    assert "another server has it open" in migrate.stderr


@pytest.mark.parametrize("command", ["migrate", "check"])
def test_an_unreachable_database_is_exit_code_5(command: str) -> None:
    """Trying again later may help: that is what 5 says."""
    answer = windlass(command, "--database", NOWHERE)

    assert 5 == answer.exit_code
    assert answer.stderr.startswith("Error: The database does not answer: ")


@pytest.mark.parametrize("command", ["migrate", "check"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["--database", "mysql://localhost/x"],
        ["--database", ""],
        ["--database", "postgresql://localhost:70000/x"],
        ["--database", "sqlite:///"],
        ["--no-such-option"],
        ["extra"],
    ],
    ids=str,
)
def test_wrong_usage_is_exit_code_2(command: str, arguments: list[str]) -> None:
    """What cannot work with any database is wrong usage, told on standard error."""
    answer = windlass(command, *arguments)

    assert 2 == answer.exit_code
    assert "" == answer.stdout
    assert answer.stderr


def test_the_database_may_come_from_the_environment(sqlite_url: str) -> None:
    """WINDLASS_DATABASE_URL stands for --database; the option wins."""
    environment = {"WINDLASS_DATABASE_URL": sqlite_url}

    told = CliRunner().invoke(cli, ["check"], env=environment)
    overruled = CliRunner().invoke(cli, ["check", "--database", NOWHERE], env=environment)

    assert (0, 5) == (told.exit_code, overruled.exit_code)


def test_the_installed_command(sqlite_url: str) -> None:
    """As a process of its own it answers the same, with its exit code and no traceback."""
    command = [str(Path(sys.executable).parent / "windlass")]

    good = subprocess.run([*command, "check", "--database", sqlite_url], capture_output=True, text=True, check=False)
    bad = subprocess.run([*command, "check", "--database", NOWHERE], capture_output=True, text=True, check=False)

    assert (0, 5) == (good.returncode, bad.returncode)
    assert f"invariants of {sqlite_url} hold" in good.stdout
    assert re.fullmatch(r"Error: The database does not answer: .*\n", bad.stderr)


def test_help_names_the_exit_codes() -> None:
    """Who scripts it finds the codes in --help."""
    answer = windlass("--help")

    assert 0 == answer.exit_code
    assert "Exit codes: 0 done, 1 failed, 2 wrong usage" in answer.stdout
