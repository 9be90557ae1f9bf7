"""Migrations: numbered, forward only, both dialects in one file, checksummed, one migrator at a time.

The first set-up is one transaction over all files, so a database is empty or whole, whoever is killed meanwhile; the
servers that start beside it wait for it. Later each file is one transaction, applied only by `windlass migrate`.
A database whose schema this program does not know is refused, never guessed at.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

import msgspec

from windlass.db.base import Database, Statements
from windlass.db.sqlfile import load
from windlass.errors import SchemaMismatch

SQL = load(__file__)

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_DIALECT = re.compile(r"^-- (postgres|sqlite)$", re.MULTILINE)
_INSTALL = {
    "postgres": """
        CREATE SCHEMA IF NOT EXISTS windlass;
        CREATE TABLE IF NOT EXISTS windlass.migration (
            number integer NOT NULL, name text NOT NULL, checksum text NOT NULL, applied_at timestamptz NOT NULL,
            PRIMARY KEY (number));
    """,
    "sqlite": """
        CREATE TABLE IF NOT EXISTS migration (
            number INTEGER NOT NULL, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL,
            PRIMARY KEY (number)) STRICT, WITHOUT ROWID;
    """,
}
_LOCK = {
    # A rival migrator is waited for as long as it takes, and an index may take long to build; but a migration that
    # waits for a table makes everybody behind it wait too, so that is given up soon.
    # The lock is advisory because on an empty database there is no table yet that could be locked.
    "postgres": """
        SET LOCAL statement_timeout = 0;
        SET LOCAL lock_timeout = 0;
        SELECT pg_advisory_xact_lock(hashtext('windlass.migration'));
        SET LOCAL lock_timeout = '1s';
    """,
    "sqlite": "",  # the transaction is the only writer
}


class Migration(msgspec.Struct, frozen=True):
    """One numbered step of the schema."""

    number: int
    name: str
    checksum: str
    scripts: dict[str, str]


def known_migrations() -> list[Migration]:
    """Return the migrations this program has, in order."""
    found = []
    for file in files("windlass.db").joinpath("migrations").iterdir():
        if match := _FILE.fullmatch(file.name):
            found.append(read_migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.number)


def read_migration(number: int, name: str, text: str) -> Migration:
    """Return the migration in `text`; both dialects must stand in it."""
    _, *parts = _DIALECT.split(text)
    scripts = dict(zip(parts[::2], parts[1::2], strict=True))
    if sorted(parts[::2]) != ["postgres", "sqlite"]:
        raise SchemaMismatch(f"Migration {number:04d}_{name} needs `-- postgres` and `-- sqlite`, each once.")
    return Migration(number, name, hashlib.sha256(text.encode()).hexdigest(), scripts)


async def migrate(db: Database, *, dry_run: bool = False, known: list[Migration] | None = None) -> list[Migration]:
    """Apply what is missing and return it; with `dry_run` only return it. Nothing to do: an empty list."""
    known = known_migrations() if known is None else known
    if dry_run:
        return _missing(known, await _applied(db))
    done: list[Migration] = []
    while True:
        async with db.transaction() as transaction:
            # A rival migrator waits here; what it finds afterwards is read in the next statement.
            await transaction.run(_LOCK[db.dialect])
            applied = await _applied(transaction)
            missing = _missing(known, applied)
            if not applied:
                await transaction.run(_INSTALL[db.dialect])
            batch = missing[:1] if applied else missing
            for migration in batch:
                await transaction.run(migration.scripts[db.dialect])
                await transaction.fetch(
                    SQL.record_migration,
                    number=migration.number,
                    name=migration.name,
                    checksum=migration.checksum,
                )
        done += batch
        if len(batch) == len(missing):
            return done


async def ensure_schema(db: Database) -> None:
    """Set up an empty database; SchemaMismatch, with what to do, if another one has not the schema we know."""
    if not await _applied(db):
        await migrate(db)
    await check_schema(db)


async def check_schema(db: Statements) -> None:
    """Return if the schema is the one this program knows; SchemaMismatch, with what to do, if not."""
    missing = _missing(known_migrations(), await _applied(db))
    if missing:
        names = ", ".join(f"{m.number:04d}_{m.name}" for m in missing)
        raise SchemaMismatch(f"The database lacks {names}. Run `windlass migrate` first.")


async def schema_is_current(db: Statements) -> bool:
    """Return whether no migration is missing; SchemaMismatch for a newer or altered schema."""
    return not _missing(known_migrations(), await _applied(db))


async def _applied(db: Statements) -> dict[int, str]:
    if not await db.fetch(SQL.schema_exists):
        return {}
    return {row["number"]: row["checksum"] for row in await db.fetch(SQL.applied_migrations)}


def _missing(known: list[Migration], applied: dict[int, str]) -> list[Migration]:
    by_number = {migration.number: migration for migration in known}
    for number, checksum in sorted(applied.items()):
        if number not in by_number:
            raise SchemaMismatch(
                f"The database has migration {number:04d}, which this version of Windlass does not know. "
                "Use the version that made it, or a newer one."
            )
        if by_number[number].checksum != checksum:
            raise SchemaMismatch(
                f"Migration {number:04d}_{by_number[number].name} was applied with other content. "
                "Restore the released file; a shipped migration never changes."
            )
    return [migration for migration in known if migration.number not in applied]
