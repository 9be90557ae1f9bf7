"""/readyz tells the truth: a server whose database takes no write is not ready, and asking costs next to nothing."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import asyncpg
import httpx2
import pytest

from tests.clock import TestClock
from tests.engine.test_dispatch import until
from tests.queue.steps import Steps
from tests.server.frame import KeyRing, bearer
from windlass.config import Settings
from windlass.config.address import sqlite_file
from windlass.db import Database, Query, Row, files, open_database
from windlass.db.sqlite import SqliteDatabase
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.errors import Contention, Damaged, Unavailable
from windlass.queue.duties import touch_server
from windlass.server import admin
from windlass.server.admin import LOCKED, Lobby
from windlass.server.app import create_app


class Asked:
    """A database that counts what it is asked, and fails where a test says so."""

    def __init__(self, db: Any = None) -> None:
        self._db = db
        self.failure: Exception | None = None
        self.failures: list[Exception] = []
        """Of the next writes."""
        self.read_failure: BaseException | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.write_count = self.read_count = 0

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Ask."""
        if not query.writes:
            self.read_count += 1
            if self.read_failure is not None:
                raise self.read_failure
            return []
        self.write_count += 1
        await self.answers.wait()
        if failure := self.failures.pop() if self.failures else self.failure:
            raise failure
        return []


class Clock:
    """Elapsed seconds, as a test says."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return them."""
        return self.now_s


def lobby_on(db: object, clock: Clock) -> Lobby:
    """Return what answers /readyz on a database."""
    engine = SimpleNamespace(db=db, id=UUID(int=1), draining=False, outside=Outside(monotonic=clock))
    return Lobby(cast(Any, engine), ())


async def test_a_sqlite_file_that_takes_no_write_is_not_ready(sqlite_db: Database) -> None:
    """L1: reads go on and no write can succeed: not ready; ready again with the first write that succeeds."""
    clock = Clock()
    lobby = lobby_on(sqlite_db, clock)
    told = [await lobby.reasons()]

    for value in ("ON", "OFF"):
        await sqlite_db.maintain(f"PRAGMA query_only={value}")
        clock.now_s += 2
        told.append(await lobby.reasons())

    assert [[], ["The database takes no writes."], []] == told


async def test_a_read_only_postgres_is_not_ready(fresh_postgres_url: str) -> None:
    """L1: a standby, or a database that was made read-only: not ready."""
    connection = await asyncpg.connect(fresh_postgres_url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    await connection.close()
    db = await open_database(fresh_postgres_url, role="client")

    told = await lobby_on(db, Clock()).reasons()

    await db.close()
    assert ["The database takes no writes."] == told


@pytest.mark.one_kind
@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Unavailable("The disk is full."), ["The database takes no writes."]),
        (Damaged("A page is."), ["The database is damaged."]),
        (Contention("Busy."), [LOCKED]),
        (ZeroDivisionError("Ours."), ["The database takes no writes."]),
        (OSError("No such file: /srv/jobs.db"), ["The database takes no writes."]),
    ],
)
async def test_a_failed_write_is_told_without_the_databases_words(failure: Exception, told: list[str]) -> None:
    """Anybody may ask, so the reason is ours, whatever went wrong."""
    db = Asked()
    db.failure = failure

    assert told == await lobby_on(db, Clock()).reasons()


@pytest.mark.one_kind
async def test_a_conflict_that_passes_is_no_reason() -> None:
    """A write that was refused for a rival's sake is tried once more; only a lock that lasts is told."""
    db = Asked()
    db.failures = [Contention("Deadlock.")]

    assert [] == await lobby_on(db, Clock()).reasons()
    assert 2 == db.write_count


@pytest.mark.one_kind
@pytest.mark.parametrize("failure", [KeyError("name"), OSError("Away."), asyncio.CancelledError()])
async def test_a_read_that_fails_in_another_way_is_no_fault(failure: BaseException) -> None:
    """The answer is 503 with a reason, never 500."""
    db = Asked()
    db.read_failure = failure

    told = await lobby_on(db, Clock()).reasons()

    assert told in (["The database does not answer."], ["The database has not answered yet."])


async def test_a_sqlite_file_that_another_program_has_locked_is_not_ready(sqlite_db: SqliteDatabase) -> None:
    """L1: while somebody holds the lock no write can succeed; ready again when it is given back."""
    clock = Clock()
    lobby = lobby_on(sqlite_db, clock)
    await sqlite_db.maintain("PRAGMA busy_timeout=50")
    rival = sqlite3.connect(sqlite_db.path, isolation_level=None)
    told = [await lobby.reasons()]

    for statement in ("BEGIN IMMEDIATE", "ROLLBACK"):
        rival.execute(statement)
        clock.now_s += 2
        told.append(await lobby.reasons())

    rival.close()
    assert [[], [LOCKED], []] == told


@pytest.mark.parametrize("table", ["server", "queue", "job"])
async def test_a_postgres_table_that_another_program_has_locked_is_not_ready(
    fresh_postgres_url: str, table: str
) -> None:
    """L1: while somebody locks a table that every submit and claim writes; ready again when it is given back."""
    db = await open_database(fresh_postgres_url, role="client")
    clock = Clock()
    lobby = lobby_on(db, clock)
    rival = await asyncpg.connect(fresh_postgres_url)
    told = [await lobby.reasons()]

    transaction = rival.transaction()
    await transaction.start()
    await rival.execute(f"LOCK TABLE windlass.{table} IN EXCLUSIVE MODE")
    clock.now_s += 2
    told.append(await lobby.reasons())
    await transaction.rollback()
    clock.now_s += 2
    told.append(await lobby.reasons())

    await rival.close()
    await db.close()
    assert [[], [LOCKED], []] == told


async def test_while_a_write_has_not_come_back_the_server_is_not_ready(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1: unknown is not ready, however short ago a write succeeded; who asks again meanwhile does not wait again."""
    db, clock = await open_database(database_url, role="client"), Clock()
    lobby = lobby_on(db, clock)
    told = [await lobby.reasons()]

    async with locked(database_url):
        clock.now_s += 1.01
        monkeypatch.setattr(admin, "CALLER_S", 0.01)
        told.append(await lobby.reasons())
        monkeypatch.setattr(admin, "CALLER_S", 60.0)
        clock.now_s += 60
        told.append(await lobby.reasons())
    clock.now_s += 2
    monkeypatch.setattr(admin, "CALLER_S", 600.0)
    while [LOCKED] == (last := await lobby.reasons()):  # of the look that was under way
        clock.now_s += 2

    await db.close()
    assert [[], [LOCKED], [LOCKED], []] == [*told, last]


@asynccontextmanager
async def locked(url: str) -> AsyncIterator[None]:
    """Let another program hold a lock that keeps writes waiting, for a block."""
    if not url.startswith("sqlite"):
        rival = await asyncpg.connect(url)
        async with rival.transaction():
            await rival.execute("LOCK TABLE windlass.server IN EXCLUSIVE MODE")
            yield
        await rival.close()
        return
    with contextlib.closing(sqlite3.connect(sqlite_file(url) or "", isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        yield


class InLine:
    """A database that says when a write has come to it."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.has_come = asyncio.Event()

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Ask."""
        if query.writes:
            self.has_come.set()
        return await self._db.fetch(query, **parameters)


async def test_a_busy_database_is_ready(database_url: str) -> None:
    """The probe's write waits in the line of writes as every other does, and tells nothing else than they would."""
    db = await open_database(database_url, role="client", connections=1)
    in_line = InLine(db)
    lobby = lobby_on(in_line, Clock())

    async with db.transaction():
        before = [asyncio.create_task(touch_server(db, UUID(int=1))) for _ in range(50)]
        asked = [asyncio.create_task(lobby.reasons()) for _ in range(3)]
        await in_line.has_come.wait()
    told = await asyncio.gather(*asked)
    await asyncio.gather(*before)

    await db.close()
    assert [[]] * 3 == told


@pytest.mark.one_kind
async def test_asking_often_writes_once_a_second() -> None:
    """Whoever asks all the time cannot keep the database busy."""
    db, clock = Asked(), Clock()
    lobby = lobby_on(db, clock)

    for _ in range(3):
        for _ in range(50):
            await lobby.reasons()
        clock.now_s += 1.01

    assert (3, 3) == (db.read_count, db.write_count)


@pytest.mark.one_kind
async def test_a_caller_is_told_of_the_look_that_it_waited_for() -> None:
    """Also where another caller begins the next look just when this one ends."""
    db, clock = Asked(), Clock()
    lobby = lobby_on(db, clock)
    db.answers.clear()
    first = asyncio.create_task(lobby.reasons())
    await until(lambda: db.write_count > 0)
    clock.now_s += 1.5
    looking = lobby._looking
    assert looking is not None
    db.answers.set()
    await until(looking.done)
    db.answers.clear()
    second = asyncio.create_task(lobby.reasons())

    assert [] == await first
    db.answers.set()
    assert [] == await second


@pytest.mark.one_kind
async def test_a_write_that_waits_for_its_turn_does_not_hold_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has come back nobody knows, so the server is not ready; it is not followed by more of them."""
    db, clock = Asked(), Clock()
    lobby = lobby_on(db, clock)
    before = await lobby.reasons()
    monkeypatch.setattr(admin, "CALLER_S", 0.0)
    db.answers.clear()
    clock.now_s += 1.01

    waiting = [await lobby.reasons() for _ in range(3)]
    clock.now_s += 5
    waiting.append(await lobby.reasons())
    db.answers.set()
    monkeypatch.setattr(admin, "CALLER_S", 60.0)

    assert [] == before
    assert [[LOCKED]] * 4 == waiting
    assert [] == await lobby.reasons()
    assert 2 == db.write_count


@pytest.mark.one_kind
@pytest.mark.parametrize(("size", "damaged"), [(50, 4096), (4500, 512)], ids=["page", "text"])
async def test_damage_that_a_start_does_not_see_is_told_when_it_is_met(
    sqlite_template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    size: int,
    damaged: int,
) -> None:
    """L1: 503 in words and one log line with the repair, no fault of ours; from then on the server is not ready."""
    file = tmp_path / "jobs.db"
    shutil.copyfile(sqlite_template, file)
    job_id = await with_damage(file, size=size, damaged=damaged)
    monkeypatch.setattr(files, "CHECK_S", 0)
    db = await open_database(f"sqlite:///{file}", clock=TestClock())
    engine = Engine(db, Settings(), name="s", outside=Outside())
    door = create_app(engine, Settings(), cast(Any, KeyRing()))
    transport = httpx2.ASGITransport(app=cast(Any, door))
    base_url = "http://windlass.test/api/v1"
    # Not running: no duty meets the page first.
    async with httpx2.AsyncClient(transport=transport, base_url=base_url, headers=bearer("admin.a")) as client:
        before = await lobby_on(db, Clock()).reasons()
        met = await client.get(f"/jobs/{job_id}")
        refused = await client.post("/jobs", json={"task": "t"})
        ready = await client.get("http://windlass.test/readyz")
    await db.close()

    told = [str(record.msg) for record in caplog.records]
    assert [] == before
    assert [503, 503, 503] == [answer.status_code for answer in (met, refused, ready)]
    assert ["damaged", "damaged"] == [answer.json()["code"] for answer in (met, refused)]
    assert ["The database is damaged."] == ready.json()["reasons"]
    assert 1 == sum("database.damaged" in line and ".recover" in line for line in told)
    assert not any(
        "request.failed" in line or record.exc_info for line, record in zip(told, caplog.records, strict=True)
    )


async def with_damage(file: Path, *, size: int, damaged: int) -> UUID:
    """Leave many ended jobs in a file, and overwrite the bytes around the text of one; return its id."""
    clock = TestClock()
    db = await open_database(f"sqlite:///{file}", clock=clock)
    steps = Steps(db, clock)
    ann, found = await steps.worker(tenant="a"), []
    for number in range(60):
        lease = await steps.lease(ann, tenant="a", payload=f'"{"." * size}n0nce{number:03}{"." * size}"')
        await steps.complete(lease)
        found.append(lease.id)
    await db.close()
    with file.open("r+b") as opened:
        at = opened.read().rindex(b"n0nce030")
        opened.seek(at // damaged * damaged)
        opened.write(b"\xa5" * damaged)
    return found[30]
