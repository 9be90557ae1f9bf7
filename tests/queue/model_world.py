"""The stores side by side: opened once for a run of the machine, emptied for each of its examples."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import asyncpg

from tests.ahead import make_ahead
from tests.clock import START, TestClock
from tests.databases import RELATIONS
from tests.queue.model_rows import TEXT, Dump
from tests.queue.model_store import BESIDE, DUMP, Store
from windlass.db import Database, open_database

T = TypeVar("T")
SORTED_BY = {
    "jobs": ("id",),
    "job": ("id",),
    "queue": ("id",),
    "timer": ("id",),
    "attempts": ("job_id", "run", "fence", "finished_at", "session"),
    "session": ("id",),
    "dedup": ("scope", "key"),
    "pause": ("kind", "tenant", "name"),
    "event": ("job_id", "happened_at", "kind", "reason"),
    "lane": ("tenant", "queue", "task", "labels", "key"),
    "pulse": (),
    "tenant": ("name",),
}


class World:
    """An event loop with a SQLite file and, where there is one, a PostgreSQL database; one clock for all."""

    def __init__(self, folder: Path, sqlite_template: Path, postgres_url: str | None) -> None:
        self.clock = TestClock()
        self.stores: list[Store] = []
        self._folder = folder
        self._template = sqlite_template
        self._postgres_url = postgres_url
        self._runner = asyncio.Runner()
        self._postgres: Database | None = None
        self._connection: asyncpg.Connection[Any] | None = None
        self._cleanup = ""
        self._seeds: dict[str, str] = {}
        self._reader: sqlite3.Connection | None = None
        self._file = folder / "model.db"

    def __enter__(self) -> Self:
        self._runner.__enter__()
        if self._postgres_url:
            self.run(self._open_postgres(self._postgres_url))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._close())
        self._runner.__exit__(kind, value, trace)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end on the world's own event loop."""
        return self._runner.run(work)

    async def _open_postgres(self, url: str) -> None:
        self._postgres = await open_database(url, clock=self.now, connections=2)
        self._connection = await asyncpg.connect(url, server_settings={"search_path": "windlass"})
        tables = [row["name"] for row in await self._connection.fetch(RELATIONS) if row["emptied"]]
        for table in tables:
            rows = await self._connection.fetchval(f'SELECT json_agg(t) FROM "{table}" t')
            if rows is not None:
                self._seeds[table] = rows
        deletes = ", ".join(f'd{number} AS (DELETE FROM "{table}")' for number, table in enumerate(tables))
        self._cleanup = f"WITH {deletes} SELECT"

    def now(self) -> Any:
        """The present instant, also after the clock was put back to its start."""
        return self.clock.now()

    async def begin(self) -> None:
        """Give the next example empty stores and a clock at its start."""
        # The template was migrated at the start; above that by a second SQLite's clock begins.
        self.clock = TestClock(START + timedelta(seconds=1))
        await self._drop_sqlite()
        for suffix in ("", "-wal", "-shm"):
            self._file.with_name(self._file.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(self._template, self._file)
        self.stores = [await self._open_sqlite()]
        if self._postgres is not None and self._connection is not None:
            await self._connection.execute(self._cleanup)
            for table, rows in self._seeds.items():
                await self._connection.execute(
                    f'INSERT INTO "{table}" SELECT * FROM json_populate_recordset(NULL::"{table}", $1::text::json)',
                    rows,
                )
            # Days that an example before this one has dropped.
            await make_ahead(self._postgres)
            self.stores.append(Store("postgres", self._postgres, self._connection))

    async def _open_sqlite(self) -> Store:
        db = await open_database(f"sqlite:///{self._file}?synchronous=off", clock=self.now)
        self._reader = sqlite3.connect(self._file)
        return Store("sqlite", db, self._reader)

    async def _drop_sqlite(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
            await self.stores[0].db.close()

    async def restart(self) -> None:
        """Close and open the SQLite file; servers forget what they had cached."""
        await self._drop_sqlite()
        self.stores[0] = await self._open_sqlite()
        self.stores[1:] = [Store(store.name, store.db, store.reader) for store in self.stores[1:]]

    async def _close(self) -> None:
        await self._drop_sqlite()
        if self._connection is not None and self._postgres is not None:
            await self._connection.close()
            await self._postgres.close()


def difference(expected: Dump, actual: Dump) -> str | None:
    """Return the first thing that a store shows other than the model; None when they agree."""
    for table in DUMP:
        want, got = (sorted(dump[table], key=lambda row: _key(table, row)) for dump in (expected, actual))
        for position in range(max(len(want), len(got))):
            wanted = want[position] if position < len(want) else None
            found = got[position] if position < len(got) else None
            if wanted is None or found is None or _key(table, wanted) != _key(table, found):
                return f"{table}: expected {wanted}, found {found}"
            for column, value in found.items():
                if not _agree(wanted.get(column), value):
                    return f"{table} {_key(table, found)}: {column} should be {wanted.get(column)!r}, is {value!r}"
    return None


def unlike(first: Dump, second: Dump) -> str | None:
    """Return the first row of the views beside that two stores show differently."""
    for view in BESIDE:
        rows = [sorted(dump[view], key=repr) for dump in (first, second)]
        for one, other in zip(*rows, strict=False):
            if one != other:
                return f"{view}: {one} against {other}"
        if len(rows[0]) != len(rows[1]):
            return f"{view}: {len(rows[0])} rows against {len(rows[1])}"
    return None


def _key(table: str, row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{row.get(name)}".rjust(40) for name in SORTED_BY[table])


def _agree(wanted: Any, found: Any) -> bool:
    return bool(wanted == found or (wanted == TEXT and isinstance(found, str) and found))
