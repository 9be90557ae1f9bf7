"""PostgreSQL behind the seam: breaks, rivals and hints, and nothing left behind."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from tests.clock import TestClock
from tests.databases import OPEN_LONG, connected, open_with, opened
from tests.db.queries import SQL, names, now, put
from tests.kept import NAME
from tests.leftovers import nothing_left
from tests.pooler import TransactionPooler
from tests.proxy import CuttingProxy
from windlass.db import Database, open_database
from windlass.db.postgres import HOT_SETTINGS, READ_SETTINGS
from windlass.db.postgres_pool import CONNECT_TIMEOUT_S, acquired
from windlass.errors import (
    AlreadyExists,
    CommitAborted,
    CommitUnknown,
    Contention,
    InvalidInput,
    SetupError,
    Unavailable,
)

PATIENCE_S = 60
ACTIVITY = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
WAITING = f"{ACTIVITY} AND wait_event_type = 'Lock'"
BACKENDS = f"{ACTIVITY} AND backend_type = 'client backend' AND application_name <> '{NAME}'"
END_OTHERS = ACTIVITY.replace("count(*)", "count(pg_terminate_backend(pid, 5000))")


def at_port(url: str, port: int) -> str:
    """Return `url` with another port."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{port}")).geturl()


async def until(url: str, query: str, wanted: int) -> None:
    """Ask the server until `query` gives the number wanted."""
    async with asyncio.timeout(PATIENCE_S), connected(url) as connection:
        while await connection.fetchval(query) != wanted:
            pass


@pytest.fixture
async def proxy(timely_postgres_url: str) -> AsyncIterator[CuttingProxy]:
    """A proxy before the database, that cuts connections at COMMIT."""
    target = urlsplit(timely_postgres_url)
    async with CuttingProxy(target.hostname or "", target.port or 5432) as proxy:
        yield proxy


@pytest.fixture
async def cut_db(proxy: CuttingProxy, timely_postgres_url: str) -> AsyncIterator[Database]:
    """The database behind the proxy."""
    async with opened(at_port(timely_postgres_url, proxy.port)) as db:
        yield db


async def write(db: Database, name: str, *, tracked: bool) -> None:
    """Store a key in a transaction."""
    async with db.transaction(tracked=tracked) as transaction:
        await put(transaction, name)


async def test_an_unreachable_database_is_unavailable() -> None:
    """Nobody listening is Unavailable, and the message says who did not answer."""
    with pytest.raises(Unavailable, match=r"does not answer.*127\.0\.0\.1") as error:
        await open_database("postgresql://postgres@127.0.0.1:1/jobs")

    assert 5 == error.value.exit_code


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:70000/x",
        "postgresql://127.0.0.1:abc/x",
        "postgresql://a,b:5432,c:99999/x",
        "postgresql://[::1/x",
        "postgresql://127.0.0.1/x?pooler=session",
        "postgresql://127.0.0.1/%00",
        "mysql://me:secret@127.0.0.1/x",
        "127.0.0.1",
        "",
    ],
)
async def test_a_bad_url_is_invalid_input(url: str) -> None:
    """What is no URL of a database is refused before connecting, and its password is not repeated."""
    with pytest.raises(InvalidInput, match=r"^database\.url: ") as error:
        await open_database(url)

    assert "secret" not in str(error.value)


async def test_a_database_that_is_not_there_is_a_setup_error(timely_postgres_url: str) -> None:
    """Waiting does not help a wrong name or option: it is SetupError, with what to check."""
    for wrong in (f"{timely_postgres_url}_absent", f"{timely_postgres_url}?sslmode=bogus"):
        with pytest.raises(SetupError, match=r"Cannot open the database: .*(does not exist|sslmode).*Check its URL"):
            await open_database(wrong)


async def test_a_statement_makes_no_task(postgres_db: Database) -> None:
    """A connection is taken and given back at once: each task would be two rounds of a busy event loop."""
    await put(postgres_db, "a")
    loop, made = asyncio.get_running_loop(), list[str]()

    def noted(owner: asyncio.AbstractEventLoop, work: Any, **how: Any) -> asyncio.Task[Any]:
        made.append(str(work))
        return asyncio.Task(work, loop=owner, **how)

    loop.set_task_factory(cast(Any, noted))
    try:
        await put(postgres_db, "b")
        found = await names(postgres_db)
    finally:
        loop.set_task_factory(None)

    assert ([], ["a", "b"]) == (made, found)


async def test_closing_gives_back_every_connection(fresh_postgres_url: str) -> None:
    """After `close` the server has no connection of ours left, listeners included, and we no thread or task."""
    async with nothing_left(), opened(fresh_postgres_url, OPEN_LONG) as db:
        await asyncio.gather(*(put(db, f"{n}") for n in range(20)))
        await db.maintain("ANALYZE windlass.dedup")
        async with db.listen("windlass_wake"):
            await names(db)

    await until(fresh_postgres_url, BACKENDS, 0)


async def test_a_failed_open_leaves_no_connection(fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second pool cannot be made, the first is closed again."""
    monkeypatch.setitem(READ_SETTINGS, "no_such_setting", "1")

    with pytest.raises(Exception, match="no_such_setting"):
        await open_database(fresh_postgres_url)

    await until(fresh_postgres_url, BACKENDS, 0)


async def test_writes_run_with_the_hot_settings(timely_postgres_url: str) -> None:
    """Writing connections plan without sequential and bitmap scans and give up on locks; reading ones cannot write."""
    async with opened(timely_postgres_url) as db, db.transaction() as transaction:
        settings = await transaction._connection.fetch("SELECT name, setting FROM pg_settings")  # type: ignore[attr-defined]

    found = {row["name"]: row["setting"] for row in settings}
    assert {"enable_seqscan": "off", "enable_bitmapscan": "off", "lock_timeout": "1000"}.items() <= found.items()
    assert HOT_SETTINGS.keys() <= found.keys()


async def test_a_hint_reaches_every_listener(timely_postgres_url: str) -> None:
    """What is sent on a channel arrives, in order, at each who listens on it, and on no other channel."""
    async with (
        opened(timely_postgres_url) as db,
        opened(timely_postgres_url) as other,
        db.listen("windlass_wake") as first,
        other.listen("windlass_wake") as second,
        other.listen("windlass_other") as apart,
    ):
        await db.notify("windlass_wake", "7")
        await other.notify("windlass_wake", '{"lane": 8}')
        await db.notify("windlass_other", "9")

        for hints in (first, second):
            assert ["7", '{"lane": 8}'] == [await anext(hints), await anext(hints)]
        assert "9" == await anext(apart)


async def test_a_lost_listener_is_told(timely_postgres_url: str) -> None:
    """When the connection of a listener breaks, its hints end, so that it can begin anew."""
    async with opened(timely_postgres_url) as db, db.listen("windlass_wake") as hints:
        async with connected(timely_postgres_url) as connection:
            await connection.fetchval(END_OTHERS)

        assert [] == [hint async for hint in hints]


async def test_listening_to_a_server_that_is_gone(timely_postgres_url: str) -> None:
    """Listening needs a connection of its own; none to be had is Unavailable."""
    async with opened(timely_postgres_url) as db:
        db._dsn = at_port(timely_postgres_url, 1)  # type: ignore[attr-defined]

        with pytest.raises(Unavailable, match="does not answer"):
            await db.listen("x").__aenter__()


async def test_a_cut_before_commit_is_known_to_be_aborted(cut_db: Database, proxy: CuttingProxy) -> None:
    """The connection breaks before COMMIT arrives: a tracked transaction is told, nothing was written."""
    proxy.cut_before_commit()

    with pytest.raises(CommitAborted, match="nothing was written"):
        await write(cut_db, "x", tracked=True)

    assert [] == await names(cut_db)


async def test_a_cut_after_commit_is_known_to_be_committed(cut_db: Database, proxy: CuttingProxy) -> None:
    """The connection breaks when COMMIT was done: a tracked transaction ends well."""
    proxy.cut_after_commit()

    await write(cut_db, "x", tracked=True)

    assert ["x"] == await names(cut_db)


@pytest.mark.parametrize("cut", [CuttingProxy.cut_before_commit, CuttingProxy.cut_after_commit])
async def test_an_untracked_commit_is_unknown(
    cut_db: Database, proxy: CuttingProxy, cut: Callable[[CuttingProxy], None]
) -> None:
    """Without tracking nobody can tell what became of it, and it says so; the database goes on."""
    cut(proxy)

    with pytest.raises(CommitUnknown, match="not known"):
        await write(cut_db, "x", tracked=False)

    await write(cut_db, "y", tracked=False)
    assert "y" in await names(cut_db)


async def test_a_connection_lost_in_the_midst_is_unavailable(timely_postgres_url: str) -> None:
    """A server that ends our connections is Unavailable, nothing is written, and the next call connects again."""
    async with opened(timely_postgres_url) as db:

        async def lose() -> None:
            async with db.transaction(tracked=True) as transaction:
                await put(transaction, "x")
                async with connected(timely_postgres_url) as connection:
                    await connection.fetchval(END_OTHERS)
                await put(transaction, "y")

        with pytest.raises(Unavailable, match="does not answer"):
            await lose()
        await put(db, "z")

        assert ["z"] == await names(db)


async def test_a_swallowed_error_commits_nothing(postgres_db: Database) -> None:
    """A transaction with a failed statement cannot be committed, and does not pretend to."""

    async def swallow() -> None:
        async with postgres_db.transaction() as transaction:
            await put(transaction, "x")
            with pytest.raises(AlreadyExists):
                await put(transaction, "x")

    with pytest.raises(CommitAborted, match="nothing was written"):
        await swallow()

    assert [] == await names(postgres_db)


async def held_up(db: Database, url: str, then: Callable[[asyncio.Task[list[object]]], Awaitable[None]]) -> None:
    """Let a query wait for a row that a rival has locked, then do `then` with its task."""
    await put(db, "x")
    # Connected before the query waits: it may wait for a second only.
    async with connected(url) as witness, db.transaction() as rival:
        await rival.fetch(SQL["lock"], scope="a")
        waiting = asyncio.create_task(db.fetch(SQL["stamp"], scope="a"))
        while not waiting.done() and await witness.fetchval(WAITING) != 1:
            pass
        await then(waiting)  # type: ignore[arg-type]


async def test_a_task_cancelled_while_it_waits_for_a_lock(postgres_db: Database, postgres_url: str) -> None:
    """Cancelling a query that waits ends it on the server too, and its connection is used again."""

    async def cancel(waiting: asyncio.Task[list[object]]) -> None:
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    await held_up(postgres_db, postgres_url, cancel)

    await until(postgres_url, WAITING, 0)
    assert 1 == len(await postgres_db.fetch(SQL["stamp"], scope="a"))


async def test_a_lock_is_not_waited_for_for_ever(postgres_url: str, clock: TestClock) -> None:
    """A row that a rival keeps is Contention after a second: nothing was written, running it again is safe."""

    async def outlast(waiting: asyncio.Task[list[object]]) -> None:
        with pytest.raises(Contention, match="Running it again is safe"):
            await waiting

    db = await open_with(OPEN_LONG, postgres_url, clock=clock)
    try:
        await held_up(db, postgres_url, outlast)
    finally:
        await db.close()


async def test_a_deadlock_is_contention(postgres_db: Database) -> None:
    """Of two transactions that wait for each other one gets Contention, and the other goes on."""
    await postgres_db.fetch(SQL["put"], keys=[("a", "1", _ID, "", None), ("b", "1", _ID, "", None)])
    locked = asyncio.Barrier(2)

    async def both(first: str, second: str) -> None:
        async with postgres_db.transaction() as transaction:
            await transaction.fetch(SQL["stamp"], scope=first)
            await locked.wait()
            await transaction.fetch(SQL["stamp"], scope=second)

    results = await asyncio.gather(both("a", "b"), both("b", "a"), return_exceptions=True)

    assert {Contention, type(None)} >= {type(result) for result in results}
    assert any(isinstance(result, Contention) for result in results)


async def test_behind_a_transaction_pooler(timely_postgres_url: str, clock: TestClock) -> None:
    """With ?pooler=transaction every verb works though each transaction may get another connection."""
    target = urlsplit(timely_postgres_url)
    async with TransactionPooler(target.hostname or "", target.port or 5432, 2) as pooler:
        db = await open_database(f"{at_port(timely_postgres_url, pooler.port)}?pooler=transaction", clock=clock)
        try:
            for n in range(5):
                await put(db, f"{n}")
                await write(db, f"{n}t", tracked=True)
            async with db.transaction() as transaction:
                shown = await transaction._connection.fetchval("SHOW enable_seqscan")  # type: ignore[attr-defined]

            assert 10 == len(await names(db))
            assert clock.now() == await now(db)
            assert "off" == shown
        finally:
            await db.close()


_ID = "019b7680-1234-7abc-8def-0123456789ab"


async def test_a_user_who_may_not_make_days_is_told(fresh_postgres_url: str) -> None:
    """A server whose user may write rows but make no tables says so, with what to do."""
    name = f"windlass_guest_{secrets.token_hex(4)}"
    parts = urlsplit(fresh_postgres_url)
    guest = urlunsplit(parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port or 5432}"))
    async with connected(fresh_postgres_url) as connection:
        await connection.execute(
            f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA windlass TO {name};"
            f"GRANT ALL ON ALL TABLES IN SCHEMA windlass TO {name}"
        )
        try:
            with pytest.raises(SetupError, match=r"may not do this.*Grant it"):
                await open_database(guest, clock=TestClock(datetime.now(UTC) + timedelta(days=30)))
        finally:
            await connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_a_day_that_is_missing_is_named(postgres_db: Database) -> None:
    """History of a day without a partition cannot be written: not now, and the message says who can mend it."""
    await postgres_db.run("DROP TABLE windlass.event_20260101")

    with pytest.raises(Unavailable, match=r'"event".*2026-01-01.*windlass migrate'):
        await postgres_db.run(
            "INSERT INTO windlass.event (job_id, kind, happened_at) "
            "VALUES (gen_random_uuid(), 'retried', '2026-01-01 12:00:00+00')"
        )


async def test_maintenance_keeps_its_connection(postgres_db: Database, postgres_url: str) -> None:
    """Statements one after another need one connection; one that the server has ended is replaced."""
    ours = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'ANALYZE%'"
    async with connected(postgres_url) as connection:
        for _ in range(3):
            await postgres_db.maintain("ANALYZE windlass.dedup")
        [first] = await connection.fetch(ours)
        await connection.execute("SELECT pg_terminate_backend($1, 10000)", first["pid"])

        await postgres_db.maintain("ANALYZE windlass.dedup")
        [second] = await connection.fetch(ours)

    assert first["pid"] != second["pid"]


async def test_a_fault_of_ours_is_not_the_callers(postgres_db: Database) -> None:
    """A statement that fails whatever it is given is shown as it is."""
    with pytest.raises(asyncpg.DivisionByZeroError):
        await postgres_db.run("SELECT 1 / 0")


class Unheard(asyncpg.Connection):
    """A connection whose server says nothing when it is closed."""

    limits: ClassVar[list[float | None]] = []

    async def close(self, *, timeout: float | None = None) -> None:
        """Note how long the server is waited for, and do as the driver does when that is over."""
        self.limits.append(timeout)
        self.terminate()
        raise TimeoutError


async def test_a_connection_that_the_pool_closes_is_given_back_in_time(postgres_url: str) -> None:
    """After many statements a connection is closed; a server that says nothing to that holds nobody."""
    options: dict[str, Any] = {"min_size": 1, "max_size": 1, "max_queries": 1, "connection_class": Unheard}
    async with asyncpg.create_pool(postgres_url, **options) as pool:
        async with acquired(pool) as connection:
            assert 1 == await connection.fetchval("SELECT 1")

        assert ([CONNECT_TIMEOUT_S], 0) == (Unheard.limits, pool.get_size())
