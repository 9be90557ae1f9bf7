"""Migrations: from nothing to the schema, once, one at a time, whole or not at all; an unknown schema is refused."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.databases import Server, connected
from tests.db.setup_process import TWO, stop_between_files
from tests.queue.races.pausing import Pausing
from tests.sqltext import parse
from windlass.db import Database, open_database
from windlass.db import migrate as migrating
from windlass.db.migrate import Migration, check_schema, ensure_schema, known_migrations, migrate, read_migration
from windlass.errors import SchemaMismatch

TABLES = parse(
    """
-- name: tables
-- The names of all tables and views.
-- postgres
SELECT c.relname AS name FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'windlass' AND c.relkind IN ('r', 'p', 'v') ORDER BY 1
-- sqlite
SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY 1

-- name: versions
-- What was applied.
-- both
SELECT number, checksum, applied_at FROM migration ORDER BY number

-- name: alter
-- Forge the record of a migration.
-- both
UPDATE migration SET checksum = :checksum, number = number + :shift
""",
    origin="test_migrate.py",
)
KNOWN = known_migrations()
SECOND = TWO[-1]
BROKEN = read_migration(
    9001,
    "broken",
    "-- postgres\nCREATE TABLE windlass.half (id int);\nCREATE TABLE windlass.half (id int);\n"
    "-- sqlite\nCREATE TABLE half (id INT);\nCREATE TABLE half (id INT);\n",
)
# On PostgreSQL a rival holds the lock for longer than a statement of the hot path would wait.
SLOW = read_migration(
    9002,
    "slow",
    "-- postgres\nSELECT pg_sleep(1.5);\nCREATE TABLE windlass.slow (id int);\n"
    "-- sqlite\nCREATE TABLE slow (id INT);\n",
)


@pytest.fixture
def empty_postgres_url(postgres_server: Server) -> Iterator[str]:
    """The URL of a PostgreSQL database in which nothing is."""
    name = f"{postgres_server.prefix}_empty_{id(object())}"

    async def run(statement: str) -> None:
        async with connected(postgres_server.url) as connection:
            await connection.execute(statement)

    asyncio.run(run(f'CREATE DATABASE "{name}" TEMPLATE template0'))
    yield postgres_server.url_of(name.removeprefix(f"{postgres_server.prefix}_"))
    asyncio.run(run(f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> str:
    """The URL of an empty file."""
    (tmp_path / "empty.db").touch()
    return f"sqlite:///{tmp_path}/empty.db?synchronous=off"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database of either kind."""
    url: str = request.getfixturevalue(f"empty_{request.param}_url")
    return url


@pytest.fixture
async def new(empty_url: str) -> AsyncIterator[Database]:
    """An open, empty database of either kind."""
    db = await open_database(empty_url)
    yield db
    await db.close()


async def tables(db: Database) -> list[str]:
    """Return the names of tables and views, without partitions and what SQLite keeps for itself."""
    rows = await db.fetch(TABLES["tables"])
    return [row["name"] for row in rows if not row["name"][-8:].isdigit() and not row["name"].startswith("sqlite_")]


async def applied(db: Database) -> list[int]:
    """Return the numbers of the migrations that were applied."""
    return [row["number"] for row in await db.fetch(TABLES["versions"])]


async def forge(db: Database, *, checksum: str, shift: int = 0) -> None:
    """Write other things about the migrations than are true."""
    await db.fetch(TABLES["alter"], checksum=checksum, shift=shift)


async def test_a_fresh_database_gets_the_schema(new: Database) -> None:
    """Migrating an empty database applies everything, in order, and writes it down with checksums."""
    done = await migrate(new)

    assert KNOWN == done
    assert [m.number for m in KNOWN] == await applied(new)
    assert [m.checksum for m in KNOWN] == [row["checksum"] for row in await new.fetch(TABLES["versions"])]
    assert {"job", "queue", "timer", "done", "dead", "attempt", "session", "jobs"} <= set(await tables(new))
    await check_schema(new)


async def test_a_second_run_does_nothing(new: Database) -> None:
    """Migrating again finds nothing to do and touches nothing."""
    await migrate(new)
    before = await new.fetch(TABLES["versions"])

    assert [] == await migrate(new)

    assert [dict(row) for row in before] == [dict(row) for row in await new.fetch(TABLES["versions"])]


async def test_a_newer_version_applies_the_rest(new: Database) -> None:
    """What is applied stays; only what is missing is run."""
    await migrate(new)

    assert [SECOND] == await migrate(new, known=[*KNOWN, SECOND])

    assert "more" in await tables(new)


async def test_a_dry_run_changes_nothing(new: Database) -> None:
    """It tells what would be applied, on an empty database and on an older one, and leaves both as they are."""
    on_empty = await migrate(new, dry_run=True)
    nothing = await tables(new)
    await migrate(new)

    assert KNOWN == on_empty
    assert [] == nothing
    assert [SECOND] == await migrate(new, dry_run=True, known=[*KNOWN, SECOND])
    assert "more" not in await tables(new)
    assert [] == await migrate(new, dry_run=True)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_altered_content_is_refused(new: Database, dry_run: bool) -> None:
    """A migration applied with other content is never guessed at: the number and what to do are named."""
    await migrate(new)
    await forge(new, checksum="0" * 64)

    with pytest.raises(SchemaMismatch, match=r"Migration 0001_first was applied with other content\. Restore"):
        await migrate(new, dry_run=dry_run)
    with pytest.raises(SchemaMismatch, match="was applied with other content"):
        await check_schema(new)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_unknown_schema_is_refused(new: Database, dry_run: bool) -> None:
    """A database migrated by a newer version is refused, by migrate and by whoever opens it."""
    await migrate(new, known=[*KNOWN, SECOND])

    with pytest.raises(SchemaMismatch, match=r"has migration 9000, which this version .* does not know\. Use"):
        await migrate(new, dry_run=dry_run)
    with pytest.raises(SchemaMismatch, match="9000") as error:
        await check_schema(new)

    assert 1 == error.value.exit_code


async def test_a_missing_schema_says_what_to_run(new: Database) -> None:
    """An empty database is not the schema: `windlass migrate` is named, and which migrations are missing."""
    with pytest.raises(SchemaMismatch, match=r"lacks 0001_first.*Run `windlass migrate` first"):
        await check_schema(new)

    assert [] == await tables(new)


async def test_an_older_installation_is_left_alone(new: Database) -> None:
    """One that was set up by an older version is not migrated by whoever opens it: `windlass migrate` is named."""
    await migrate(new)

    with (
        patch.object(migrating, "known_migrations", lambda: [*KNOWN, SECOND]),
        pytest.raises(SchemaMismatch, match=r"lacks 9000_more\. Run `windlass migrate` first"),
    ):
        await ensure_schema(new)

    assert [m.number for m in KNOWN] == await applied(new)


async def test_a_set_up_that_is_under_way_is_waited_for(empty_url: str) -> None:
    """A server that starts while another is between two files of the first set-up waits, and finds all of it."""
    async with AsyncExitStack() as stack:
        first, second = [Pausing(await open_database(empty_url, role="client")) for _ in range(2)]
        for db in (first, second):
            stack.push_async_callback(db.close)
        setting_up = asyncio.create_task(migrate(first, known=TWO))
        between = await stop_between_files(first)

        waiting = asyncio.create_task(ensure_schema(second))
        while not waiting.done():
            if second.entering or second.inside:
                break
            await asyncio.sleep(0)
        between.release()
        ended = await asyncio.gather(setting_up, waiting, return_exceptions=True)

        assert TWO == ended[0]
        assert "9000" in str(ended[1])  # it waited, and found both: one that this program does not know
        assert [m.number for m in TWO] == await applied(second)


async def test_a_set_up_that_was_killed_leaves_nothing(empty_url: str) -> None:
    """A process killed between two files of the first set-up leaves an empty database, which the next one sets up."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.db.setup_process", empty_url, stdout=PIPE
    )
    try:
        assert process.stdout is not None
        assert b"between\n" == await process.stdout.readline()
    finally:
        process.kill()
        await process.wait()
    db = await open_database(empty_url)
    try:
        assert [] == await tables(db)
        await ensure_schema(db)

        assert [m.number for m in KNOWN] == await applied(db)
    finally:
        await db.close()


async def test_a_failure_in_the_first_set_up_leaves_nothing(new: Database) -> None:
    """The first set-up is whole or not at all: when one of its files fails, none stays."""
    with pytest.raises(Exception, match="half"):
        await migrate(new, known=[*KNOWN, BROKEN])

    assert [] == await tables(new)


async def test_a_failure_half_way_leaves_nothing(new: Database) -> None:
    """A migration that fails is undone as a whole; those before it stay, and it can be run again."""
    await migrate(new)
    with pytest.raises(Exception, match="half"):
        await migrate(new, known=[*KNOWN, SECOND, BROKEN])

    assert [*(m.number for m in KNOWN), 9000] == await applied(new)
    assert "half" not in await tables(new)
    mended = Migration(9001, "broken", BROKEN.checksum, SECOND_TIME)
    assert [mended] == await migrate(new, known=[*KNOWN, SECOND, mended])


SECOND_TIME = {"postgres": "CREATE TABLE windlass.half (id int);\n", "sqlite": "CREATE TABLE half (id INT);\n"}


@pytest.mark.parametrize("known", [KNOWN, [*KNOWN, SLOW]], ids=["quick", "slow"])
async def test_of_many_migrators_one_applies(empty_url: str, known: list[Migration]) -> None:
    """Several that start at once on an empty database: each migration is applied once, the others wait for it."""
    async with AsyncExitStack() as stack:
        migrators = []
        for _ in range(3):
            db = await open_database(empty_url, role="client")
            stack.push_async_callback(db.close)
            migrators.append(db)

        results = await asyncio.gather(*(migrate(db, known=known) for db in migrators))

        assert [m.number for m in known] == sorted(m.number for done in results for m in done)
        assert [m.number for m in known] == await applied(migrators[0])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CREATE TABLE a (b int);",
        "-- postgres\nSELECT 1;",
        "-- sqlite\nSELECT 1;",
        "-- postgres\nSELECT 1;\n-- sqlite\n",
    ],
)
def test_a_migration_needs_both_dialects(text: str) -> None:
    """A file without a text for one of them is refused when it is read."""
    with pytest.raises(SchemaMismatch, match=r"0007_x needs `-- both`, or `-- postgres` and `-- sqlite`"):
        read_migration(7, "x", text)


def test_the_parts_of_a_migration_keep_their_order() -> None:
    """What stands for both is in both scripts, where it stands, and read for SQLite."""
    table = "CREATE TABLE windlass.a (id uuid\n) WITHOUT ROWID WITH (fillfactor = 50);"

    scripts = read_migration(1, "x", f"-- both\n{table}\n-- sqlite\nB;\n-- postgres\nC;\n-- both\nD;\n").scripts

    assert scripts == {
        "postgres": "\nCREATE TABLE windlass.a (id uuid\n) WITH (fillfactor = 50);\n\nC;\n\nD;\n",
        "sqlite": "\nCREATE TABLE a (id TEXT\n) STRICT, WITHOUT ROWID;\n\nB;\n\nD;\n",
    }


def test_migrations_are_numbered_without_gaps() -> None:
    """Numbers rise by one from 1, so that two branches with the same number meet in a merge."""
    assert list(range(1, len(KNOWN) + 1)) == [migration.number for migration in KNOWN]


def test_the_checksum_covers_the_whole_file() -> None:
    """A change anywhere, also in a comment or in the other dialect, is another checksum."""
    text = "-- a\n-- postgres\nSELECT 1;\n-- sqlite\nSELECT 1;\n"
    variants: list[Any] = [
        text,
        text.replace("-- a", "-- b"),
        text.replace("SELECT 1;\n-- s", "SELECT 2;\n-- s"),
        text + " ",
    ]

    assert len(variants) == len({read_migration(1, "x", variant).checksum for variant in variants})
