"""SQLite behind the seam: one server per file, one writer at a time, a clock that never goes back."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.clock import START, TestClock
from tests.db.queries import SQL, names, now, put
from tests.leftovers import nothing_left
from windlass.clock import Clock
from windlass.db import Database, open_database
from windlass.db.migrate import migrate
from windlass.db.open import Role
from windlass.db.sqlite import CEILING_STEP_US, SqliteDatabase
from windlass.errors import Contention, DatabaseLocked, InvalidInput, SetupError
from windlass.queue.claim import Group, Want, claim
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.submit import submit
from windlass.queue.workers import Beat, Held, NewSession, heartbeat, register

HOLDER = """
import asyncio, sys
from windlass.db import open_database

async def hold():
    db = await open_database(sys.argv[1])
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(hold())
"""


@asynccontextmanager
async def opened(url: str, *, clock: Clock | None = None, role: Role = "server") -> AsyncIterator[Database]:
    """Open a database for a block."""
    db = await open_database(url, clock=clock, role=role)
    try:
        yield db
    finally:
        await db.close()


@contextmanager
def held_by_another(url: str) -> Iterator[subprocess.Popen[str]]:
    """Let another process have the server's role; it is killed at the end of the block, if not before."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, url], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "held\n" == process.stdout.readline()
            yield process
        finally:
            process.kill()


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be nobody for a block, where we are root, to whom every file is open."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder below which nobody, too, can look."""
    parents = [parent for parent in (tmp_path, *tmp_path.parents) if parent.stat().st_uid == os.geteuid()]
    modes = [(parent, parent.stat().st_mode) for parent in parents if parent.stat().st_mode & 0o005 != 0o005]
    for parent, mode in modes:
        parent.chmod(mode | 0o005)
    yield tmp_path
    for parent, mode in modes:
        parent.chmod(mode)


def path_of(url: str) -> Path:
    """Return the file of a URL."""
    return Path(url.removeprefix("sqlite:///").partition("?")[0])


def files_in(folder: Path) -> set[str]:
    """Return the names of the files in a folder."""
    return {path.name for path in folder.iterdir()}


async def test_a_second_server_is_refused(sqlite_url: str) -> None:
    """One process has the server's role on a file; a second is told which process, and what to do instead."""
    async with opened(sqlite_url):
        with pytest.raises(DatabaseLocked, match=rf"process {os.getpid()}\).*Stop that one first.*PostgreSQL") as error:
            await open_database(sqlite_url)

    assert str(path_of(sqlite_url)) in str(error.value)
    assert 4 == error.value.exit_code


async def test_the_role_is_free_after_close(sqlite_url: str) -> None:
    """Closing gives the role back, also after a refused rival."""
    async with opened(sqlite_url):
        with pytest.raises(DatabaseLocked):
            await open_database(sqlite_url)

    async with opened(sqlite_url) as db:
        await put(db, "x")


async def test_clients_may_open_beside_the_server(sqlite_url: str) -> None:
    """Programs in the client's role read and write under SQLite's own locks, before, beside and after a server."""
    async with (
        opened(sqlite_url, role="client") as early,
        opened(sqlite_url) as server,
        opened(sqlite_url, role="client") as late,
    ):
        for number, db in enumerate((early, server, late)):
            await put(db, f"{number}")

        assert [["0", "1", "2"]] * 3 == [await names(db) for db in (early, server, late)]


async def test_a_killed_server_gives_its_role_back(sqlite_url: str) -> None:
    """Another process is named by its number; killed with SIGKILL it blocks nobody."""
    with held_by_another(sqlite_url) as holder:
        with pytest.raises(DatabaseLocked, match=rf"process {holder.pid}\)"):
            await open_database(sqlite_url)
        holder.send_signal(signal.SIGKILL)
        holder.wait()

        async with opened(sqlite_url) as db:
            await put(db, "x")


async def test_a_client_may_submit_but_not_claim(sqlite_url: str, clock: TestClock) -> None:
    """Beside the server a program submits and reads; a claim is refused with what to do, and changes nothing."""
    async with opened(sqlite_url, clock=clock, role="client") as db:
        [submitted] = await submit(db, Lanes(), [NewJob(id=UUID(int=7 << 76), task="t")])
        assert submitted.lane is not None

        with pytest.raises(SetupError, match="may not claim"):
            await claim(db, [Group([Want(submitted.lane)], [UUID(int=1)])])

    stored = sqlite3.connect(path_of(sqlite_url))
    assert [(0, 0)] == stored.execute("SELECT place, fence FROM queue").fetchall()
    stored.close()


async def test_commits_are_durable(sqlite_url: str) -> None:
    """The file is in WAL mode and every commit is flushed, unless the URL says that it need not be."""

    async def settings(url: str) -> tuple[Any, Any]:
        async with opened(url) as db:
            writer = db._writer  # type: ignore[attr-defined]
            return writer.execute("PRAGMA journal_mode")[0][0], writer.execute("PRAGMA synchronous")[0][0]

    full, off = 2, 0
    assert ("wal", full) == await settings(f"sqlite:///{path_of(sqlite_url)}")
    assert ("wal", full) == await settings(f"sqlite:///{path_of(sqlite_url)}?synchronous=full")
    assert ("wal", off) == await settings(sqlite_url)


async def test_an_old_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite before 3.38 lacks what the statements need: SetupError with both versions, and no file is made."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.37.2")

    with pytest.raises(SetupError, match=r"SQLite 3\.37\.2 is too old, 3\.38 or newer is needed"):
        await open_database(f"sqlite:///{tmp_path}/jobs.db")

    assert set() == files_in(tmp_path)


@pytest.mark.parametrize("role", ["server", "client"])
@pytest.mark.parametrize(
    "content", [b"This is a letter, not a database.\n" * 100, b"SQLite format 3\x00" + b"\xff" * 5000]
)
async def test_another_file_is_left_alone(tmp_path: Path, content: bytes, role: Role) -> None:
    """A file that is no database is SetupError that names it, and not a byte of it changes."""
    file = tmp_path / "letter.txt"
    file.write_bytes(content)

    with pytest.raises(SetupError, match=r"Cannot open .*letter\.txt: "):
        await open_database(f"sqlite:///{file}", role=role)

    assert content == file.read_bytes()


@pytest.mark.parametrize("role", ["server", "client"])
async def test_a_missing_folder_is_named(tmp_path: Path, role: Role) -> None:
    """A path that cannot be is SetupError that names it, and nothing is made."""
    with pytest.raises(SetupError, match=r"Cannot open .*absent/jobs\.db: .*Check the path"):
        await open_database(f"sqlite:///{tmp_path}/absent/jobs.db", role=role)

    assert set() == files_in(tmp_path)


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A folder in place of the file is SetupError."""
    (tmp_path / "jobs.db").mkdir()

    with pytest.raises(SetupError, match=r"Cannot open .*jobs\.db"):
        await open_database(f"sqlite:///{tmp_path}/jobs.db")


async def test_a_client_makes_no_file(tmp_path: Path) -> None:
    """A typing error in a client's URL leaves no empty file behind."""
    with pytest.raises(SetupError, match=r"Cannot open .*typo\.db"):
        await open_database(f"sqlite:///{tmp_path}/typo.db", role="client")

    assert set() == files_in(tmp_path)


@pytest.mark.parametrize("role", ["server", "client"])
async def test_a_file_that_cannot_be_written_is_named(sqlite_template: Path, open_folder: Path, role: Role) -> None:
    """A file or folder without leave to write is SetupError that names it."""
    file = open_folder / "readonly.db"
    shutil.copyfile(sqlite_template, file)
    (open_folder / "readonly.db.lock").touch(0o666)
    (open_folder / "readonly.db.lock").chmod(0o666)
    file.chmod(0o444)

    with unprivileged(), pytest.raises(SetupError, match=r"Cannot open .*readonly\.db: "):
        await open_database(f"sqlite:///{file}", role=role)


@pytest.mark.parametrize("value", ["normal", "0", "FULL; DROP TABLE job"])
async def test_an_unknown_option_is_refused(tmp_path: Path, value: str) -> None:
    """`synchronous` is full or off, nothing between."""
    with pytest.raises(SetupError, match="is not known; write full or off"):
        await open_database(f"sqlite:///{tmp_path}/jobs.db?synchronous={value}")

    assert set() == files_in(tmp_path)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://host/jobs.db"])
async def test_a_url_must_name_a_file(url: str) -> None:
    """A URL without a file, or with a host, is refused with an example."""
    with pytest.raises(Exception, match=r"names no file; write sqlite:///windlass\.db"):
        await open_database(url)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://u:hunter2@host/jobs.db",
        "postgresql://u:hunter2",
        "postgresql://u:hunter2/x@host/d",
        "postgresql://u:hunter2℀@host/d",
        "postgresql://u:hunter2@[host/d",
    ],
)
async def test_rel_t17_a_url_that_cannot_be_opened_keeps_its_password(url: str) -> None:
    """What is told about a URL is never a part of it that may be a password."""
    with pytest.raises(InvalidInput) as caught:
        await open_database(url)

    assert "hunter2" not in str(caught.value)


async def test_odd_file_names_work(tmp_path: Path, sqlite_template: Path) -> None:
    """Blanks, percent signs, question marks and hashes in a path are quoted as in any URL."""
    shutil.copyfile(sqlite_template, tmp_path / "a b%?#é.db")

    async with opened(f"sqlite:///{tmp_path}/a%20b%25%3F%23%C3%A9.db") as db:
        await put(db, "x")

    assert "a b%?#é.db" in files_in(tmp_path)


async def test_the_clock_never_goes_back(sqlite_db: Database, clock: TestClock) -> None:
    """When the wall clock steps back, :now stands still until it has caught up."""
    clock.advance(minutes=10)
    await put(sqlite_db, "x")
    latest = await now(sqlite_db)

    clock.advance(minutes=-5)
    behind = [await now(sqlite_db)]
    async with sqlite_db.transaction() as transaction:
        behind.append(await now(transaction))
    clock.advance(minutes=6)

    assert [latest, latest] == behind
    assert START + timedelta(minutes=11) == await now(sqlite_db)


async def test_the_clock_never_goes_back_over_restarts(sqlite_url: str, clock: TestClock) -> None:
    """A restarted server begins at or after every instant written before, however its machine's clock was set."""
    clock.advance(hours=1)
    written = []
    async with opened(sqlite_url, clock=clock) as db:
        await put(db, "x")
        for _ in range(20):
            clock.advance(0.3)
            [row] = await db.fetch(SQL["stamp"], scope="a")
            written.append(row["expires_at"])

    clock.advance(hours=-2)
    async with opened(sqlite_url, clock=clock) as db:
        after = await now(db)

    assert sorted(written) == written
    assert written[-1] <= after <= written[-1] + timedelta(microseconds=CEILING_STEP_US)


async def test_two_transactions_come_one_after_the_other(sqlite_db: Database) -> None:
    """The second transaction begins when the first has ended, and sees all of it."""
    order: list[str] = []

    async def write(name: str) -> None:
        async with sqlite_db.transaction() as transaction:
            order.append(f"{name} begins")
            seen = await names(transaction)
            for _ in range(10):
                await asyncio.sleep(0)
            await put(transaction, f"{name}{len(seen)}")
            order.append(f"{name} ends")

    await asyncio.gather(write("a"), write("b"))

    assert ["a begins", "a ends", "b begins", "b ends"] == order
    assert ["a0", "b1"] == await names(sqlite_db)


async def test_readers_do_not_wait_for_the_writer(sqlite_db: Database) -> None:
    """Reads beside an open transaction answer at once with what is committed."""
    async with sqlite_db.transaction() as transaction:
        await put(transaction, "x")
        beside = await asyncio.gather(*(names(sqlite_db) for _ in range(10)))

    assert [[]] * 10 == beside


async def test_rel_h4_rows_that_were_passed_leave_memory(sqlite_url: str) -> None:
    """H4: what a large request handed over is in no temporary table when it is stored."""
    async with opened(sqlite_url) as db:
        lanes = Lanes()
        jobs = [NewJob(id=UUID(int=n + 1), task="t", payload=f'"{"x" * 5000}"') for n in range(200)]
        await submit(db, lanes, jobs)
        found = await lanes.serving(db, "default", ["default"], tasks=None, labels=[])
        session = UUID(int=1)
        await register(db, NewSession(id=session, worker="w"))
        await heartbeat(db, [Beat(session, [Held(job.id, 1) for job in jobs])])
        claimed = await claim(db, [Group([Want(lane.id) for lane in found], [session] * 200)])
        [[pages]] = db._writer.execute("PRAGMA temp.page_count")  # type: ignore[attr-defined]

    assert 200 == len(claimed)
    assert pages < 60  # of 4 KiB: the tables themselves, and a few rows


async def test_a_cancel_while_the_writer_begins(sqlite_url: str) -> None:
    """A task cancelled while its transaction is being opened leaves none open: the next one begins."""
    begun, go_on = threading.Event(), threading.Event()

    def slow_clock() -> Any:
        if threading.current_thread().name.startswith("windlass-writer") and not begun.is_set():
            begun.set()
            assert go_on.wait(10)
        return START

    async def write() -> None:
        async with db.transaction() as transaction:
            await put(transaction, "x")

    async with opened(sqlite_url, clock=slow_clock) as db:
        task = asyncio.create_task(write())
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(task, return_exceptions=True)

        async with db.transaction() as transaction:
            await put(transaction, "y")
        assert ["y"] == await names(db)


async def test_a_busy_file_is_contention(sqlite_url: str) -> None:
    """A file that another program keeps locked is Contention: nothing was written, running it again is safe."""
    other = sqlite3.connect(path_of(sqlite_url), isolation_level=None)
    async with opened(sqlite_url) as db:
        await db.maintain("PRAGMA busy_timeout=1")
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(Contention, match=r"busy.*Running it again is safe"):
            await put(db, "x")

        other.execute("ROLLBACK")
        await put(db, "y")
        assert ["y"] == await names(db)
    other.close()


async def test_closing_leaves_no_thread_and_no_file_open(sqlite_url: str) -> None:
    """After `close` the threads have ended, no descriptor is left, and the log has gone into the file."""
    async with nothing_left(), opened(sqlite_url) as db:
        await put(db, "x")
        await asyncio.gather(*(names(db) for _ in range(10)))

    assert not path_of(sqlite_url).with_name("windlass.db-wal").exists()


async def test_a_refused_open_leaves_nothing(tmp_path: Path) -> None:
    """An open that fails leaves no thread, descriptor or role behind."""
    (tmp_path / "letter.db").write_bytes(b"no database " * 100)

    async with nothing_left():
        for _ in range(2):
            with pytest.raises(SetupError, match="Cannot open"):
                await open_database(f"sqlite:///{tmp_path}/letter.db")


async def test_a_clients_clock_is_not_ahead_of_its_servers(tmp_path: Path) -> None:
    """I20: the ceiling lies a second ahead of the clock; a client that begins there would write what is to come."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    server = await open_database(url)
    await migrate(server)
    client = await open_database(url, role="client")

    told = [await now(db) for db in (client, server)]

    assert told == sorted(told)
    await client.close()
    await server.close()


async def test_what_is_deleted_is_overwritten_whatever_the_build_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T24: many builds of SQLite have secure_delete on by default, and many have not."""
    connect = SqliteDatabase._connect

    def by_default_off(self: SqliteDatabase, mode: str = "rw") -> sqlite3.Connection:
        connection = connect(self, mode)
        connection.execute("PRAGMA secure_delete=OFF")
        return connection

    monkeypatch.setattr(SqliteDatabase, "_connect", by_default_off)
    db = await open_database(f"sqlite:///{tmp_path}/windlass.db")

    assert isinstance(db, SqliteDatabase)
    writer = db._writer
    assert [(1,)] == [tuple(row) for row in await db._on_writer(lambda: writer.execute("PRAGMA secure_delete"))]
    await db.close()
