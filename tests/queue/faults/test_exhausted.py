"""Nothing left: no free connection, no room on the disk. Callers are told, nothing is half stored, and it goes on."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.clock import TestClock
from tests.databases import OPEN_LONG, connected, open_with
from tests.db.queries import now
from tests.db.test_postgres import BACKENDS
from tests.db.test_sqlite import path_of
from tests.queue.races.conftest import staged
from tests.queue.races.stage import Stage
from tests.queue.races.test_reports import say_it
from tests.queue.steps import Steps
from windlass.db import Database, postgres_pool
from windlass.errors import CommitAborted, Unavailable
from windlass.queue.check import check
from windlass.queue.report import Status

CONNECTIONS = 2
READERS = 3
CALLERS = 20
BIG = f'"{"x" * 200_000}"'
NO_ROOM_FOR = """
CREATE FUNCTION windlass.no_room() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
CREATE {trigger} no_room {when} INSERT ON {table} {how} EXECUTE FUNCTION windlass.no_room()
"""
ROOM = "DROP FUNCTION windlass.no_room CASCADE"


@asynccontextmanager
async def few(url: str, clock: TestClock) -> AsyncIterator[Steps]:
    """Open a database with few connections for a block."""
    db = await open_with(OPEN_LONG, url, clock=clock, connections=CONNECTIONS)
    try:
        yield Steps(db, clock)
        assert [] == await check(db)
    finally:
        await db.close()


@asynccontextmanager
async def all_taken(db: Database) -> AsyncIterator[None]:
    """Hold every writing connection in an open transaction for a block."""
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            await stack.enter_async_context(db.transaction())
        yield


async def test_rel_x26_pool_exhausted(
    fresh_postgres_url: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers that get no connection are told so; reads go on; nothing is stored, leaked or lost by it."""
    async with few(fresh_postgres_url, clock) as steps:
        ann = await steps.worker()
        lease = await steps.lease(ann)
        # Readers, of which there are some left, must be able to connect within it.
        monkeypatch.setattr(postgres_pool, "CONNECT_TIMEOUT_S", 2.0)
        before = await steps.dump()
        async with all_taken(steps.db):
            calls = [(steps.submit_one(), steps.claim(ann), steps.beat(ann), steps.complete(lease)) for _ in range(5)]
            told = await asyncio.gather(*(call for four in calls for call in four), return_exceptions=True)
            assert before == await steps.dump()
        monkeypatch.undo()

        assert {Unavailable} == {type(answer) for answer in told}
        assert {"All 2 connections were in use for 2 s. Try again."} == {str(answer) for answer in told}
        ids = await asyncio.gather(*(steps.submit_one() for _ in range(CALLERS)))
        assert CALLERS == len(set(ids))
        assert Status.APPLIED is (await steps.complete(lease)).status
        async with connected(fresh_postgres_url) as connection:
            assert CONNECTIONS + READERS >= await connection.fetchval(BACKENDS)


async def test_rel_x26_callers_wait_for_a_connection(postgres_url: str, clock: TestClock) -> None:
    """While all connections are taken callers wait; one that leaves takes nothing along, the others are served."""
    async with few(postgres_url, clock) as steps:
        await steps.submit_one()
        async with all_taken(steps.db):
            calls = [asyncio.create_task(steps.submit_one()) for _ in range(CALLERS)]
            await steps.dump()
            assert not any(call.done() for call in calls)
            for call in calls[::2]:
                call.cancel()
        told = await asyncio.gather(*calls, return_exceptions=True)

        assert {asyncio.CancelledError} == {type(answer) for answer in told[::2]}
        assert CALLERS / 2 == len(set(told[1::2]))
        async with all_taken(steps.db):
            pass


async def test_rel_x26_postgres_disk_full(fresh_postgres_url: str, clock: TestClock) -> None:
    """No room for a row: the whole request is rolled back and told why; with room the same is stored."""
    async with few(fresh_postgres_url, clock) as steps, connected(fresh_postgres_url) as admin:
        ann = await steps.worker()
        lease = await steps.lease(ann)
        jobs = [steps.job(payload=f'"{n}"', idempotency_key=f"{n}") for n in range(3)]
        before = await steps.dump()
        one_of_them = "FOR EACH ROW WHEN (NEW.payload = '\"2\"')"
        await admin.execute(NO_ROOM_FOR.format(trigger="TRIGGER", when="BEFORE", table="windlass.job", how=one_of_them))

        with pytest.raises(Unavailable, match=r"no room.*No space left on device") as told:
            await steps.submit(*jobs)

        assert Unavailable is type(told.value)
        assert before == await steps.dump()
        await admin.execute(ROOM)
        for_each = "FOR EACH STATEMENT"
        await admin.execute(NO_ROOM_FOR.format(trigger="TRIGGER", when="BEFORE", table="windlass.done", how=for_each))
        with pytest.raises(Unavailable, match=r"no room.*No space left on device"):
            await steps.complete(lease)
        assert before == await steps.dump()
        await admin.execute(ROOM)
        assert [job.id for job in jobs] == [answer.id for answer in await steps.submit(*jobs)]
        assert Status.APPLIED is (await steps.complete(lease)).status


async def test_rel_x26_postgres_disk_full_at_commit(fresh_postgres_url: str, clock: TestClock) -> None:
    """No room at COMMIT: a submit is told that nothing was written, and nothing was."""
    async with few(fresh_postgres_url, clock) as steps, connected(fresh_postgres_url) as admin:
        await steps.submit_one()
        job = steps.job(idempotency_key="key")
        before = await steps.dump()
        late = "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
        await admin.execute(
            NO_ROOM_FOR.format(trigger="CONSTRAINT TRIGGER", when="AFTER", table="windlass.job", how=late)
        )

        with pytest.raises(CommitAborted, match="nothing was written"):
            await steps.submit(job)

        assert before == await steps.dump()
        await admin.execute(ROOM)
        assert job.id == (await steps.submit(job))[0].id


async def test_rel_x26_sqlite_disk_full(sqlite_stage: Stage, sqlite_url: str) -> None:
    """A file that cannot grow: what does not fit is refused as a whole, what fits is stored; with room all is."""
    stage = sqlite_stage
    steps = Steps(stage.db, stage.clock)
    scene = await stage.leased()
    jobs = [stage.job(scene.queue, payload=payload) for payload in ("1", "2", BIG)]
    before = await steps.dump()
    with sqlite3.connect(path_of(sqlite_url)) as connection:
        [(pages,)] = connection.execute("PRAGMA page_count")
    connection.close()
    await stage.db.maintain(f"PRAGMA max_page_count={pages + 5}")

    for _ in range(2):
        with pytest.raises(Unavailable, match=r"cannot be written: database or disk is full\. Try again"):
            await steps.submit(*jobs)
        with pytest.raises(Unavailable, match="disk is full"):
            await say_it(stage.db, scene.complete(result=BIG))
        assert before == await steps.dump()
    small = await steps.submit(*jobs[:2])  # what fits is stored, though the file is nearly full

    await stage.db.maintain("PRAGMA max_page_count=1000000")
    big = await steps.submit(jobs[2])
    assert [job.id for job in jobs] == [answer.id for answer in (*small, *big)]
    assert Status.APPLIED is (await say_it(stage.db, scene.complete(result=BIG))).status
    await stage.sound()


@contextmanager
def no_room(url: str) -> Iterator[None]:
    """Let no file grow beyond the log that the database at `url` has, for a block."""
    log = Path(f"{path_of(url)}-wal")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@pytest.fixture
def whole_url(sqlite_url: str) -> str:
    """The same as `sqlite_url`, with commits flushed as in service."""
    return f"sqlite:///{path_of(sqlite_url)}"


async def test_rel_x26_sqlite_disk_full_at_commit(whole_url: str, clock: TestClock) -> None:
    """The log cannot grow when a transaction ends: it is Unavailable and undone; with room it is done."""
    async with staged(whole_url, clock) as stage:
        steps = Steps(stage.db, clock)
        scene = await stage.leased()
        before = await steps.dump()
        job = stage.job(scene.queue, idempotency_key="key")
        with no_room(whole_url):
            for _ in range(2):
                with pytest.raises(Unavailable, match=r"cannot be written: .*disk"):
                    await steps.submit(job)
                with pytest.raises(Unavailable, match=r"cannot be written: .*disk"):
                    await say_it(stage.db, scene.complete())
            assert before == await steps.dump()

        assert job.id == (await steps.submit(job))[0].id
        assert Status.APPLIED is (await say_it(stage.db, scene.complete())).status
        await stage.sound()


async def test_rel_x26_clock_after_a_full_disk(whole_url: str, clock: TestClock) -> None:
    """A ceiling of the clock that did not get onto the disk does not count: the clock stays above all that did."""
    async with staged(whole_url, clock) as stage:
        scene = await stage.leased()
        clock.advance(minutes=1)
        with no_room(whole_url), pytest.raises(Unavailable):
            await say_it(stage.db, scene.complete())
        await say_it(stage.db, scene.complete())
        finished_at = (await stage.get(scene.id)).finished_at

    clock.advance(hours=-1)
    async with staged(whole_url, clock) as later:
        assert finished_at is not None
        assert finished_at <= await now(later.db)
