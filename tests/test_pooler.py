"""The pooler stub keeps transactions whole and session state nowhere."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.databases import cancelled_in_its_sleep
from tests.pooler import PROTOCOL_VERSION, TransactionPooler, message, text
from tests.proxy import read_message

Connect = Callable[..., Awaitable["asyncpg.Connection[Any]"]]
# What asyncpg raises for a connection that broke, depending on where it was just then.
BROKEN = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)
PID = "SELECT pg_backend_pid()"


@pytest.fixture
def size() -> int:
    """How many server connections the pooler has; a test may say otherwise."""
    return 3


@pytest.fixture
async def pooler(fresh_postgres_url: str, size: int) -> AsyncIterator[TransactionPooler]:
    """A pooler before the test's database."""
    target = urlsplit(fresh_postgres_url)
    async with TransactionPooler(target.hostname or "", target.port or 5432, size) as pooler:
        yield pooler


@pytest.fixture
async def connect(pooler: TransactionPooler, fresh_postgres_url: str) -> AsyncIterator[Connect]:
    """Open a connection through the pooler as Windlass does behind one, without a statement cache."""
    url = urlsplit(fresh_postgres_url)
    dsn = pooler.dsn(url.path[1:], url.username or "postgres")
    async with AsyncExitStack() as stack:

        async def connect(**options: Any) -> "asyncpg.Connection[Any]":
            connection: asyncpg.Connection[Any] = await asyncpg.connect(dsn, **{"statement_cache_size": 0} | options)
            stack.callback(connection.terminate)
            return connection

        yield connect


async def test_each_transaction_gets_another_connection(pooler: TransactionPooler, connect: Connect) -> None:
    """A client goes round all the server connections, one a transaction."""
    connection = await connect()

    pids = [await connection.fetchval(PID) for _ in range(6)]

    assert 3 == len(set(pids[:3]))
    assert pids[:3] == pids[3:]
    assert (6, 5) == (pooler.transactions, pooler.switches)


async def test_a_transaction_stays_on_its_connection(pooler: TransactionPooler, connect: Connect) -> None:
    """From BEGIN to COMMIT a client keeps the connection, however many statements it sends."""
    connection = await connect()

    async with connection.transaction():
        pids = {await connection.fetchval(PID) for _ in range(4)}

    assert 1 == len(pids)
    assert (1, 0) == (pooler.transactions, pooler.switches)


async def test_arguments_need_no_transaction(connect: Connect) -> None:
    """A statement with arguments is one exchange up to its Sync, so it is never torn."""
    connection = await connect()
    await connection.execute("CREATE TABLE t (id int)")

    await connection.execute("INSERT INTO t VALUES ($1)", 1)
    await connection.executemany("INSERT INTO t VALUES ($1)", [(2,), (3,)])
    async with connection.transaction():
        await connection.execute("INSERT INTO t VALUES ($1)", 4)

    assert [1, 2, 3, 4] == await connection.fetchval("SELECT array_agg(id ORDER BY id) FROM t WHERE id > $1", 0)


async def test_a_failed_transaction_is_kept_until_rollback(connect: Connect) -> None:
    """An error inside a transaction does not give the connection back."""
    connection = await connect()
    other = await connect()
    transaction = connection.transaction()
    await transaction.start()
    pid = await connection.fetchval(PID)

    with pytest.raises(asyncpg.DivisionByZeroError):
        await connection.execute("SELECT 1 / 0")
    during = {await other.fetchval(PID) for _ in range(4)}
    await transaction.rollback()

    assert pid not in during
    assert pid in {await other.fetchval(PID) for _ in range(3)}


async def test_a_setting_is_lost(connect: Connect) -> None:
    """SET holds for the session of one connection; SET LOCAL holds where it should."""
    connection = await connect()

    await connection.execute("SET statement_timeout = '7s'")

    assert "7s" != await connection.fetchval("SHOW statement_timeout")
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = '8s'")
        assert "8s" == await connection.fetchval("SHOW statement_timeout")


async def test_a_prepared_statement_is_lost(connect: Connect) -> None:
    """A name given with PREPARE is unknown to the next connection."""
    connection = await connect()

    await connection.execute("PREPARE one AS SELECT 1")

    with pytest.raises(asyncpg.InvalidSQLStatementNameError):
        await connection.execute("EXECUTE one")


async def test_a_statement_cache_breaks(connect: Connect) -> None:
    """Asyncpg's cache of named statements fails at the second use, which is why it is off behind a pooler."""
    connection = await connect(statement_cache_size=100)

    await connection.fetchval("SELECT $1::int", 1)

    with pytest.raises(asyncpg.InvalidSQLStatementNameError):
        await connection.fetchval("SELECT $1::int", 2)


async def test_a_temporary_table_is_lost(connect: Connect) -> None:
    """A temporary table is not there on the next connection."""
    connection = await connect()

    await connection.execute("CREATE TEMPORARY TABLE t (id int)")

    with pytest.raises(asyncpg.UndefinedTableError):
        await connection.execute("INSERT INTO t VALUES (1)")


async def test_listening_is_lost(connect: Connect) -> None:
    """After LISTEN the next connection listens to nothing."""
    connection = await connect()

    await connection.execute("LISTEN jobs")

    assert [] == await connection.fetch("SELECT pg_listening_channels()")


@pytest.mark.parametrize("size", [1])
async def test_clients_queue_for_a_busy_connection(connect: Connect) -> None:
    """When every connection is held, a statement waits for the first that is given back."""
    connection = await connect()
    other = await connect()
    async with connection.transaction():
        pid = await connection.fetchval(PID)
        waiting = asyncio.create_task(other.fetchval(PID))
        await connection.execute("SELECT 1")
        assert not waiting.done()

    assert pid == await waiting


@pytest.mark.parametrize("size", [1])
async def test_a_connection_left_in_a_transaction_is_replaced(connect: Connect) -> None:
    """A client that goes inside a transaction takes the server connection with it, and the work is rolled back."""
    connection = await connect()
    other = await connect()
    await connection.execute("CREATE TABLE t (id int)")
    await connection.execute("BEGIN")
    await connection.execute("INSERT INTO t VALUES (1)")
    pid = await connection.fetchval(PID)

    connection.terminate()

    assert pid != await other.fetchval(PID)
    assert 0 == await other.fetchval("SELECT count(*) FROM t")


async def test_lost_connections_are_replaced(fresh_postgres_url: str, connect: Connect) -> None:
    """Connections the server closed while they were idle are opened anew when their turn comes."""
    connection = await connect()
    pids = [await connection.fetchval(PID) for _ in range(3)]
    direct: asyncpg.Connection[Any] = await asyncpg.connect(fresh_postgres_url)

    await direct.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest($1::int[]) AS pid", pids)
    await direct.close()

    assert set(pids).isdisjoint([await connection.fetchval(PID) for _ in range(3)])


async def test_other_startup_parameters_are_refused(pooler: TransactionPooler, connect: Connect) -> None:
    """A startup parameter the pooler does not track ends the connection, as it does with pgbouncer."""
    with pytest.raises(asyncpg.ProtocolViolationError, match="unsupported startup parameter: search_path"):
        await connect(server_settings={"search_path": "windlass"})

    assert "windlass" == pooler.seen_startup_parameters["search_path"]


async def test_ignored_startup_parameters_are_dropped(pooler: TransactionPooler, connect: Connect) -> None:
    """A startup parameter the pooler is told to ignore is accepted and has no effect."""
    pooler.ignored_startup_parameters = frozenset({"search_path"})

    connection = await connect(server_settings={"search_path": "windlass"})

    assert "windlass" != await connection.fetchval("SHOW search_path")


async def test_tracked_startup_parameters_follow_the_client(connect: Connect) -> None:
    """Time zone and application name hold on every connection a client gets, and for that client alone."""
    connection = await connect(server_settings={"timezone": "Asia/Kathmandu", "application_name": "it's \\ here"})
    other = await connect()

    zones = {await connection.fetchval("SHOW TimeZone") for _ in range(4)}
    names = {await connection.fetchval("SHOW application_name") for _ in range(4)}

    assert {"Asia/Kathmandu"} == zones
    assert {"it's \\ here"} == names
    assert {""} == {await other.fetchval("SHOW application_name") for _ in range(3)}


async def test_a_database_that_is_not_there_is_reported(pooler: TransactionPooler) -> None:
    """The server's own refusal reaches the client."""
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(pooler.dsn("no_such_database"))


@asynccontextmanager
async def wire(pooler: TransactionPooler, url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a session that says what no driver would; a test that waits in vain for an answer ends after 10 s."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(pooler.host, pooler.port)
    pairs = ("user", parts.username or "postgres", "database", parts.path[1:], "")
    startup = struct.pack("!i", PROTOCOL_VERSION) + b"".join(map(text, pairs))
    writer.write(struct.pack("!i", len(startup) + 4) + startup)
    try:
        async with asyncio.timeout(10):
            await kinds_until_ready(reader)
            yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def kinds_until_ready(reader: asyncio.StreamReader) -> bytes:
    """Return the types of the messages up to the next ReadyForQuery."""
    kinds = b""
    while not kinds.endswith(b"Z"):
        kinds += (await read_message(reader))[0]
    return kinds


async def test_a_pipeline_is_not_torn(pooler: TransactionPooler, fresh_postgres_url: str) -> None:
    """A connection is kept while answers are outstanding."""
    query = message(b"Q", text("SELECT 1"))
    async with wire(pooler, fresh_postgres_url) as (reader, writer):
        writer.write(query + query + query)

        assert [b"TDCZ"] * 3 == [await kinds_until_ready(reader) for _ in range(3)]
        assert 1 == pooler.transactions


async def test_an_exchange_without_its_sync_is_not_torn(pooler: TransactionPooler, fresh_postgres_url: str) -> None:
    """A connection is kept when a statement was sent to it behind a query and is not finished."""
    query = message(b"Q", text("SELECT 1"))
    parse = message(b"P", text("") + text("SELECT 2") + bytes(2))
    bind, execute, sync = message(b"B", bytes(8)), message(b"E", bytes(5)), message(b"S", b"")
    async with wire(pooler, fresh_postgres_url) as (reader, writer):
        writer.write(query + parse)
        assert b"TDCZ" == await kinds_until_ready(reader)
        writer.write(bind + execute + sync)

        assert b"12DCZ" == await kinds_until_ready(reader)
        assert 1 == pooler.transactions


@pytest.mark.parametrize("size", [1])
async def test_the_rest_of_a_failed_copy_holds_nothing(
    pooler: TransactionPooler, fresh_postgres_url: str, connect: Connect
) -> None:
    """Copy data that comes after the connection was given back is dropped, as the server would."""
    connection = await connect()
    pid = await connection.fetchval(PID)

    async with wire(pooler, fresh_postgres_url) as (reader, writer):
        writer.write(message(b"d", b"1") + message(b"c", b"") + message(b"X", b""))
        assert b"" == await reader.read()

    assert pid == await connection.fetchval(PID)


async def test_copy_passes(connect: Connect) -> None:
    """COPY works, and one that fails leaves the client usable."""
    connection = await connect()
    await connection.execute("CREATE TABLE t (id int CHECK (id > 0))")

    await connection.copy_records_to_table("t", records=[(1,), (2,)])
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.copy_records_to_table("t", records=[(0,)] * 50_000)

    assert 2 == await connection.fetchval("SELECT count(*) FROM t")


async def test_a_running_statement_can_be_cancelled(connect: Connect, fresh_postgres_url: str) -> None:
    """A cancel request reaches the server connection that the client holds."""
    connection = await connect()

    assert await cancelled_in_its_sleep(connection, fresh_postgres_url)
    assert 1 == await connection.fetchval("SELECT 1")


@pytest.mark.parametrize("size", [1])
async def test_a_waiting_statement_can_be_cancelled(connect: Connect) -> None:
    """A client that gives up while it waits is dropped, and its statement never runs."""
    connection = await connect()
    other = await connect()
    await connection.execute("CREATE TABLE t (id int)")

    async with connection.transaction():
        await connection.execute("SELECT 1")
        with pytest.raises(TimeoutError):
            await other.execute("INSERT INTO t VALUES (1)", timeout=0.05)
        with pytest.raises(BROKEN):
            await other.execute("SELECT 1")

    assert 0 == await connection.fetchval("SELECT count(*) FROM t")


async def test_nothing_is_left_behind(fresh_postgres_url: str) -> None:
    """On exit tasks end, sockets close and the port is free, whatever the clients were doing."""
    url = urlsplit(fresh_postgres_url)
    before = asyncio.all_tasks()
    async with TransactionPooler(url.hostname or "", url.port or 5432, 1) as pooler:
        dsn = pooler.dsn(url.path[1:], url.username or "postgres")
        connection: asyncpg.Connection[Any] = await asyncpg.connect(dsn)
        await connection.execute("BEGIN")
        other: asyncpg.Connection[Any] = await asyncpg.connect(dsn)
        waiting = asyncio.create_task(other.execute("SELECT 1"))

    with pytest.raises(BROKEN):
        await waiting
    assert before == asyncio.all_tasks()
    with pytest.raises(OSError):
        await asyncio.open_connection(pooler.host, pooler.port)
