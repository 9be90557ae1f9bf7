"""SQLite, by the standard library: one writer thread, readers beside it.

The writer takes `BEGIN IMMEDIATE` transactions one after the other; that takes the place of row locks.
WAL with `synchronous=FULL`: what was committed survives a power cut.
One process at a time has the server's role on a file, by an operating-system lock on a file beside it, which a killed
process gives back (files.py); programs in the client's role submit and read under SQLite's own locks.
When a page turns out to be damaged, reads go on where they can, and nothing is written any more.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from threading import local
from typing import IO, Any, TypeVar

from windlass import log
from windlass.clock import Clock, from_us, system_clock, to_us
from windlass.db import files
from windlass.db.base import Capabilities, Dialect, Row, Statements
from windlass.db.sqlfile import Query
from windlass.db.sqlite_connection import SqliteConnection
from windlass.errors import AlreadyExists, Contention, Damaged, InvalidInput, SetupError, Unavailable

T = TypeVar("T")

OLDEST_VERSION = (3, 38, 0)
READERS = 3
CACHE_KIB = 8_192
"""Pages that the writer keeps in memory; with the default of 2 MiB a claim reads its rows from the file again."""
READ_CACHE_KIB = 2_048
"""Pages that each reader keeps: lists read most rows once, and the system keeps the file's pages too."""
CHECKPOINT_PAGES = 8000
"""After so many pages (32 MiB) the log is copied into the file; by default large batches would pay for it."""
LOG_WAIT_MS = 50
"""How long the writer waits for readers when the log is to be emptied; our own are done by then."""
CEILING_STEP_US = 1_000_000
"""How far ahead the clock's ceiling is written, so that only one transaction a second pays for it."""

_PRIMARY = 0xFF
"""The bits of an error code that name the condition; those above say where it was met."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNAVAILABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


class SqliteDatabase:
    """One file: a writer thread and a few reader threads."""

    dialect: Dialect = "sqlite"

    def __init__(self, path: Path, clock: Clock, lock: IO[str] | None, synchronous: str) -> None:
        self.path = path
        self.capabilities = Capabilities(
            notify=False, partitions=False, commit_status=False, claims=lock is not None, one_writer=True
        )
        self._clock = clock
        self._lock = lock
        self._synchronous = synchronous
        self._is_open = self._is_damaged = False
        self._now_us = 0
        self._ceiling_us = 0
        self._writer_thread = ThreadPoolExecutor(1, thread_name_prefix="windlass-writer")
        self._reader_threads = ThreadPoolExecutor(READERS, thread_name_prefix="windlass-reader")
        self._turn = asyncio.Lock()
        self._writer: SqliteConnection
        self._readers: list[SqliteConnection] = []
        self._thread = local()

    @classmethod
    async def open(cls, path: str, *, clock: Clock | None, role: str, synchronous: str) -> SqliteDatabase:
        """Return the database at `path`, made if need be; SetupError or DatabaseLocked with what to do."""
        if sqlite3.sqlite_version_info < OLDEST_VERSION:
            raise SetupError(
                f"Cannot open {path}: SQLite {sqlite3.sqlite_version} is too old, 3.38 or newer is needed. "
                "Use PostgreSQL (--database) or a newer Python."
            )
        if synchronous not in ("full", "off"):
            raise SetupError(f"Cannot open {path}: synchronous={synchronous} is not known; write full or off.")
        file = Path(path)
        files.check_is_kept(file)
        lock = files.lock_server_role(file) if role == "server" else None
        database = cls(file, clock or system_clock, lock, synchronous)
        try:
            await database._on_writer(database._start)
        except Damaged as error:
            await database.close()
            raise SetupError(
                f"Cannot open {path}: it is damaged, or no SQLite database ({error.__cause__}). {files.REPAIR}"
            ) from error
        except BaseException:
            await database.close()
            raise
        database._is_open = True
        return database

    def _start(self) -> None:
        # Only a server makes the file: a client's typing error must not leave an empty one behind.
        if self._lock is not None:
            files.make_private(self.path)
            files.close_to_others(self.path)
        self._writer = SqliteConnection(self._connect())
        if self._lock is not None:
            self._writer.check(most_s=files.CHECK_S)
        # Only in a file that has no page yet; there, what retention frees can be given back (freepages.py).
        self._writer.execute("PRAGMA auto_vacuum=INCREMENTAL")
        self._writer.execute(f"PRAGMA synchronous={self._synchronous}")
        self._writer.execute("PRAGMA journal_mode=WAL")
        # What is deleted is overwritten, also in pages that become free: FAST would leave those to their next user,
        # who may fill half of one. Small jobs cost nothing more; of 20 KB each, half as much again is written.
        self._writer.execute("PRAGMA secure_delete=ON")
        if self._writer.execute("SELECT 1 FROM sqlite_master WHERE name = 'clock'"):
            self._ceiling_us = self._writer.execute("SELECT ceiling_us FROM clock")[0][0]
            # Instants up to the ceiling may have been written before a restart; the clock never goes below them.
            # The ceiling lies ahead of the time told, so a client that began there would be ahead of its server.
            if self._lock is not None:
                self._now_us = self._ceiling_us
        if self._lock is not None:
            files.remember_made(self._lock)

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                timeout=10,
                check_same_thread=False,
                cached_statements=256,
            )
            connection.execute("PRAGMA temp_store=MEMORY")
            # What is deleted from a temporary table leaves memory at the next commit: else it keeps its pages for ever.
            connection.execute("PRAGMA temp.auto_vacuum=FULL")
            cache_kib = CACHE_KIB if mode == "rw" else READ_CACHE_KIB
            connection.execute(f"PRAGMA cache_size=-{cache_kib}")
            connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        except sqlite3.DatabaseError as error:
            if connection is not None:
                connection.close()
            if _code_of(error) in _DAMAGED:
                raise
            raise SetupError(f"Cannot open {self.path}: {error}. Check the path and its permissions.") from error
        return connection

    def now(self) -> datetime:
        """Return the time, never below one that was written."""
        return from_us(max(self._now_us, to_us(self._clock())))

    async def read_clock(self) -> None:
        """Do nothing: the clock of a file is that of the process that writes."""

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query: by the writer in a transaction of its own if it writes, else by a reader."""
        if not query.writes:
            return await self._on_reader(lambda reader: reader.fetch(query, parameters, self._tick()))
        async with self._turn_to_write():
            return await self._on_writer(lambda: self._write(query, parameters))

    async def run(self, script: str) -> None:
        """Run a script in a transaction of its own."""
        async with self.transaction() as statements:
            await statements.run(script)

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        """Open a transaction by the writer; nobody else writes until it ends; the fate of a local COMMIT is known."""
        async with self._turn_to_write():
            try:
                yield SqliteTransaction(self, await self._on_writer(self._begin))
                await self._on_writer(self._commit)
            except BaseException:
                # Also when cancelled while the writer was beginning, or when it could not commit: it rolls back after.
                await asyncio.shield(self._on_writer(self._writer.roll_back))
                raise

    async def maintain(self, statement: str) -> None:
        """Run one statement by the writer, outside any transaction."""
        async with self._turn_to_write():
            await self._on_writer(lambda: self._writer.maintain(statement))

    async def empty_log(self) -> bool:
        """Copy the write-ahead log into the file and cut it to nothing; False if readers hold that off."""
        async with self._turn_to_write():
            return await self._on_writer(lambda: self._writer.empty_log(wait_ms=LOG_WAIT_MS))

    @asynccontextmanager
    async def _turn_to_write(self) -> AsyncIterator[None]:
        """Wait for the writer; Damaged where a write could spoil what can still be read."""
        async with self._turn:
            if self._is_damaged:
                raise Damaged("The database is damaged and takes no more writes. The server's log says how to mend it.")
            yield

    async def notify(self, channel: str, payload: str) -> None:
        """Nobody listens on SQLite: all work of a file is in one server process."""

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[AsyncIterator[str]]:
        """Yield nothing, ever."""
        yield _nothing()

    async def version(self) -> str:
        """Return for example `SQLite 3.40.1`."""
        return f"SQLite {sqlite3.sqlite_version}"

    async def close(self) -> None:
        """Close every connection, end the threads, give the server's role back."""
        async with self._turn:
            self._reader_threads.shutdown(wait=True)
            for reader in self._readers:
                reader.close()
            if hasattr(self, "_writer"):
                await self._on_writer(self._writer.close)
            self._writer_thread.shutdown(wait=True)
            if self._lock is not None:
                self._lock.close()

    def _tick(self) -> int:
        """Return the present instant, never below one returned before, also over restarts."""
        self._now_us = max(self._now_us, to_us(self._clock()))
        return self._now_us

    def _begin(self) -> int:
        self._writer.execute("BEGIN IMMEDIATE")
        return self._tick()

    def _commit(self) -> None:
        ceiling_us = self._ceiling_us
        if self._now_us > ceiling_us and self._writer.execute("SELECT 1 FROM sqlite_master WHERE name = 'clock'"):
            ceiling_us = self._now_us + CEILING_STEP_US
            self._writer.execute(f"UPDATE clock SET ceiling_us = max(ceiling_us, {ceiling_us})")
        self._writer.execute("COMMIT")
        # Not before: a ceiling that was not committed, as on a full disk, protects nothing.
        self._ceiling_us = ceiling_us

    def _write(self, query: Query, parameters: dict[str, Any]) -> list[Row]:
        now_us = self._begin()
        try:
            rows = self._writer.fetch(query, parameters, now_us)
            self._commit()
        except BaseException:
            self._writer.roll_back()
            raise
        return rows

    async def _on_writer(self, work: Callable[[], T]) -> T:
        return await self._in_thread(self._writer_thread, work)

    async def _on_reader(self, work: Callable[[SqliteConnection], T]) -> T:
        return await self._in_thread(self._reader_threads, lambda: work(self._reader()))

    async def _in_thread(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        except sqlite3.DatabaseError as error:
            raised = _translated(error)
            if isinstance(raised, Damaged) and self._is_open and not self._is_damaged:
                self._is_damaged = True
                log.event("database.damaged", file=str(self.path), message=str(error), repair=files.REPAIR)
            raise raised from error
        except (OverflowError, UnicodeEncodeError) as error:  # a number beyond 64 bits, half of a surrogate pair
            raise InvalidInput("value", f"the database cannot take it: {error}.") from error

    def _reader(self) -> SqliteConnection:
        reader: SqliteConnection | None = getattr(self._thread, "reader", None)
        if reader is None:
            reader = self._thread.reader = SqliteConnection(self._connect("ro"))
            self._readers.append(reader)
        return reader


class SqliteTransaction:
    """The verbs, inside the transaction that the writer has open."""

    dialect: Dialect = "sqlite"

    def __init__(self, database: SqliteDatabase, now_us: int) -> None:
        self._database = database
        self._now_us = now_us
        self.capabilities = database.capabilities.inside()

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query in this transaction; its `:now` is the transaction's begin, as on PostgreSQL."""
        writer = self._database._writer
        return await self._database._on_writer(lambda: writer.fetch(query, parameters, self._now_us))

    async def run(self, script: str) -> None:
        """Run a script of statements without parameters."""
        await self._database._on_writer(lambda: self._database._writer.run(script))

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        """Join this transaction."""
        yield self


def _code_of(error: sqlite3.DatabaseError) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY


def _translated(error: sqlite3.DatabaseError) -> Exception:
    """Return what callers of the seam see; the error itself where it is a fault of ours."""
    code = _code_of(error)
    if code in _DAMAGED:
        return Damaged(f"The database is damaged: {error}. The server's log says how to mend it.")
    if isinstance(error, sqlite3.IntegrityError):
        if error.sqlite_errorcode in (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE):
            return AlreadyExists(f"It is stored already: {error}.")
        if code == sqlite3.SQLITE_MISMATCH:
            return InvalidInput("value", f"the database cannot take it: {error}.")
    if code in _BUSY:
        return Contention(f"The SQLite file is busy: {error}. Running it again is safe.")
    if code in _UNAVAILABLE:
        return Unavailable(f"The SQLite file cannot be written: {error}. Try again when it can.")
    return error


async def _nothing() -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield ""
