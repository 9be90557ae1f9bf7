"""The files of a SQLite database: nobody else may read them, a damaged or lost one is refused in words."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from threading import Semaphore
from typing import Any, cast

import pytest

from tests.db.queries import names, put
from windlass.config import Settings
from windlass.config.address import Address, address_file, read_address, write_address
from windlass.config.settings import Database as DatabaseSettings
from windlass.db import files, open_database
from windlass.db.migrate import migrate
from windlass.db.sqlite_connection import SqliteConnection
from windlass.engine.outside import Outside
from windlass.engine.storage import storage
from windlass.errors import Damaged, SetupError

PAGE = 4096


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make files as a process with this umask does."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode_of(path: Path) -> str:
    """Return the permissions of a file, in octal."""
    return oct(stat.S_IMODE(path.stat().st_mode))


def spoil(file: Path, table: str = "dedup") -> None:
    """Overwrite the page at the root of a table."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        [[page]] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table]).fetchall()
    with file.open("r+b") as opened:
        opened.seek((page - 1) * PAGE)
        opened.write(b"\xa5" * PAGE)


@pytest.mark.usefixtures("umask")
async def test_only_their_owner_may_read_the_files(tmp_path: Path) -> None:
    """M6: the database, its log, its shared memory, the lock and the address are 0600, whatever the umask."""
    file = tmp_path / "jobs.db"
    db = await open_database(f"sqlite:///{file}")
    await migrate(db)
    write_address(address_file(file), Address(url="http://127.0.0.1:1", pid=os.getpid(), version="1"))

    modes = {end: mode_of(tmp_path / f"jobs.db{end}") for end in ("", "-wal", "-shm", ".lock", ".address")}

    await db.close()
    assert dict.fromkeys(["", "-wal", "-shm", ".lock", ".address"], "0o600") == modes


ENDS = ("", "-wal", "-shm", ".lock", ".address")


def left_by_an_older_version(template: Path, file: Path, mode: int) -> None:
    """Put a database there that was not closed in order, with an address: all its files have this mode."""
    shutil.copyfile(template, file)
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version=1")
        for end in ("-wal", "-shm"):
            shutil.copyfile(f"{file}{end}", f"{file}{end}.kept")
    for end in ("-wal", "-shm"):
        Path(f"{file}{end}.kept").rename(f"{file}{end}")
    for end in (".lock", ".address"):
        Path(f"{file}{end}").touch()
    for end in ENDS:
        Path(f"{file}{end}").chmod(mode)


@pytest.mark.parametrize(("mode", "becomes"), [(0o600, 0o600), (0o640, 0o640), (0o644, 0o600), (0o666, 0o600)])
async def test_files_that_everybody_could_read_are_closed(
    sqlite_template: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, becomes: int
) -> None:
    """M6: an older version left them so, by the umask; one line says it. What a group alone may read is on purpose."""
    file = tmp_path / "jobs.db"
    left_by_an_older_version(sqlite_template, file, mode)

    db = await open_database(f"sqlite:///{file}")
    modes = {mode_of(Path(f"{file}{end}")) for end in ENDS}
    await db.close()

    told = [str(record.msg) for record in caplog.records if record.levelno == logging.WARNING]
    assert {oct(becomes)} == modes
    assert int(mode != becomes) == len(told)
    assert mode == becomes or f"{file} and its jobs" in told[0]


async def test_another_users_file_is_told_and_left_as_it_is(
    sqlite_template: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M6: one warning names the file and the command that takes the permissions away."""
    file = tmp_path / "jobs.db"
    left_by_an_older_version(sqlite_template, file, 0o644)
    monkeypatch.setattr(files, "own_uid", lambda: file.stat().st_uid + 1)

    db = await open_database(f"sqlite:///{file}")
    modes = {mode_of(Path(f"{file}{end}")) for end in ENDS}
    await db.close()

    told = [str(record.msg) for record in caplog.records if record.levelno == logging.WARNING]
    assert {"0o644"} == modes
    assert 1 == len(told)
    assert f"chmod 600 {file}" in told[0]


def test_an_address_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    """M6: callers send their key to what the address says, so only its owner may be able to change it."""
    path = tmp_path / "jobs.db.address"
    written = Address(url="http://127.0.0.1:1", pid=os.getpid(), version="1")
    write_address(path, written)

    believed = {}
    for mode in (0o600, 0o644, 0o620, 0o602):
        path.chmod(mode)
        believed[mode] = read_address(path)

    assert {0o600: written, 0o644: written, 0o620: None, 0o602: None} == believed


def test_an_address_is_not_written_into_a_file_that_lies_there(tmp_path: Path) -> None:
    """M6: another's file, or a link, under the name of the unfinished address is replaced, never written to."""
    path, other = tmp_path / "jobs.db.address", tmp_path / "other"
    other.write_bytes(b"untouched")
    (tmp_path / f"jobs.db.address.{os.getpid()}").symlink_to(other)

    write_address(path, Address(url="http://127.0.0.1:1", pid=os.getpid(), version="1"))

    assert b"untouched" == other.read_bytes()
    assert not path.is_symlink()


async def test_a_damaged_file_is_refused_at_start(sqlite_template: Path, tmp_path: Path) -> None:
    """L1: SetupError names the file and the repair; not a byte of it changes."""
    file = tmp_path / "jobs.db"
    shutil.copyfile(sqlite_template, file)
    spoil(file)
    content = file.read_bytes()

    with pytest.raises(SetupError, match=r"Cannot open .*jobs\.db: it is damaged.*\.recover"):
        await open_database(f"sqlite:///{file}")

    assert content == file.read_bytes()


async def test_a_file_damaged_while_it_is_open_takes_no_more_writes(
    sqlite_template: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """L1: whoever meets the damage gets Damaged, 503; one log line names file and repair; nothing is written after."""
    file = tmp_path / "jobs.db"
    shutil.copyfile(sqlite_template, file)
    db = await open_database(f"sqlite:///{file}")
    spoil(file)

    for _ in range(2):
        with pytest.raises(Damaged, match="damaged"):
            await names(db)
    with pytest.raises(Damaged, match="no more writes"):
        await put(db, "x")
    with pytest.raises(Damaged, match="no more writes"):
        async with db.transaction():
            raise AssertionError

    await db.close()
    told = [str(record.msg) for record in caplog.records if "database.damaged" in str(record.msg)]
    assert 503 == Damaged.status
    assert 1 == len(told)
    assert str(file) in told[0]
    assert ".recover" in told[0]


@pytest.mark.parametrize("name", ["dedup", "audit", "queue_ready", "done_finished"])
async def test_the_roots_of_a_file_of_any_size_are_looked_at(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """L1: of a file that cannot be read whole in time, the first page of every table and index is."""
    file = tmp_path / "jobs.db"
    shutil.copyfile(sqlite_template, file)
    spoil(file, name)
    monkeypatch.setattr(files, "CHECK_S", 0)

    with pytest.raises(SetupError, match=r"Cannot open .*jobs\.db: it is damaged.*\.recover"):
        await open_database(f"sqlite:///{file}")


def test_the_check_of_a_file_ends_in_time() -> None:
    """L1: what was not read by then counts as good; an interrupt that came before SQLite began is said again."""

    class Slow:
        """A connection whose check goes on until it is interrupted for the second time."""

        def __init__(self) -> None:
            self.interrupts = Semaphore(0)

        def execute(self, statement: str) -> sqlite3.Cursor:
            if "quick_check" not in statement:
                return sqlite3.connect(":memory:").execute(statement)
            for _ in range(2):
                assert self.interrupts.acquire(timeout=5)
            error = sqlite3.OperationalError("interrupted")
            error.sqlite_errorcode = sqlite3.SQLITE_INTERRUPT
            raise error

        def interrupt(self) -> None:
            self.interrupts.release()

    SqliteConnection(cast(Any, Slow())).check(most_s=0.001)


async def test_a_server_does_not_wait_for_a_damaged_file(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1: damage that is met only when the schema is read ends the start."""

    async def pause(seconds: float) -> None:
        raise AssertionError(f"waits {seconds} s")

    file = tmp_path / "jobs.db"
    shutil.copyfile(sqlite_template, file)
    spoil(file, "migration")
    monkeypatch.setattr(SqliteConnection, "check", lambda *_, **__: None)
    settings = Settings(database=DatabaseSettings(url=f"sqlite:///{file}"))

    with pytest.raises(Damaged, match="damaged"):
        await storage(settings, outside=Outside(pause=pause))


@pytest.mark.parametrize("role", ["server", "client"])
async def test_a_file_cut_to_nothing_is_not_taken_as_new(tmp_path: Path, role: str) -> None:
    """L1: where a server had a database, an empty file in its place is refused, and stays as it is."""
    file = tmp_path / "jobs.db"
    db = await open_database(f"sqlite:///{file}")
    await migrate(db)
    await db.close()
    file.write_bytes(b"")

    with pytest.raises(SetupError, match=r"jobs\.db: it is empty, and a database was there.*remove .*jobs\.db\.lock"):
        await open_database(f"sqlite:///{file}", role=role)  # type: ignore[arg-type]

    assert 0 == file.stat().st_size


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "removed"])
@pytest.mark.parametrize("role", ["server", "client"])
async def test_a_log_without_its_file_is_kept(tmp_path: Path, is_there: bool, role: str) -> None:
    """L1: SQLite removes the log beside an empty file; the jobs in it may be the last ones, so it is refused before."""
    file, wal = tmp_path / "jobs.db", tmp_path / "jobs.db-wal"
    wal.write_bytes(b"frames")
    if is_there:
        file.touch()

    with pytest.raises(SetupError, match=r"jobs\.db.*jobs\.db-wal"):
        await open_database(f"sqlite:///{file}", role=role)  # type: ignore[arg-type]

    assert b"frames" == wal.read_bytes()


async def test_a_removed_file_is_made_anew(tmp_path: Path) -> None:
    """Whoever removes the database begins anew; the lock that is left does not stand in the way."""
    file = tmp_path / "jobs.db"
    for _ in range(2):
        db = await open_database(f"sqlite:///{file}")
        await migrate(db)
        assert [] == await names(db)
        await db.close()
        file.unlink()
