"""The proxy cuts and holds at the COMMIT, and nowhere else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.databases import cancelled_in_its_sleep
from tests.pooler import message, text
from tests.proxy import CuttingProxy, is_commit

# What asyncpg raises for a connection that broke, depending on where it was just then.
BROKEN = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)
INSERT = "INSERT INTO t VALUES ($1)"


@pytest.fixture
async def proxy(fresh_postgres_url: str) -> AsyncIterator[CuttingProxy]:
    """A proxy before the test's database."""
    target = urlsplit(fresh_postgres_url)
    async with CuttingProxy(target.hostname or "", target.port or 5432) as proxy:
        yield proxy


@pytest.fixture
def url(proxy: CuttingProxy, fresh_postgres_url: str) -> str:
    """The test's database, through the proxy."""
    parts = urlsplit(fresh_postgres_url)
    return parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}")).geturl()


@pytest.fixture
async def direct(fresh_postgres_url: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection past the proxy, with the table the tests write to."""
    async with connected(fresh_postgres_url) as connection:
        await connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        yield connection


@asynccontextmanager
async def connected(url: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """Open a connection and drop it at the end, broken or not."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


async def insert(url: str, number: int) -> None:
    """Write one row in a transaction of its own, on a connection of its own."""
    async with connected(url) as connection, connection.transaction():
        await connection.execute(INSERT, number)


async def numbers(direct: "asyncpg.Connection[Any]") -> list[int]:
    """Return what is committed."""
    return [row["id"] for row in await direct.fetch("SELECT id FROM t ORDER BY id")]


async def test_unarmed_it_passes_everything(url: str, direct: "asyncpg.Connection[Any]") -> None:
    """Without an order the proxy is not there."""
    await insert(url, 1)

    assert [1] == await numbers(direct)


async def test_cut_before_commit(proxy: CuttingProxy, url: str, direct: "asyncpg.Connection[Any]") -> None:
    """The client sees its connection break, and nothing was written."""
    proxy.cut_before_commit()

    with pytest.raises(BROKEN):
        await insert(url, 1)
    await proxy.fired.wait()

    assert [] == await numbers(direct)


async def test_cut_before_commit_fires_after_rollback(
    proxy: CuttingProxy, url: str, direct: "asyncpg.Connection[Any]"
) -> None:
    """When `fired` is set the server has let go of the transaction's locks."""
    await insert(url, 1)
    proxy.cut_before_commit()

    async with connected(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("DELETE FROM t")
        with pytest.raises(BROKEN):
            await transaction.commit()
    await proxy.fired.wait()

    assert 1 == await direct.fetchval("SELECT id FROM t FOR UPDATE NOWAIT")


async def test_cut_after_commit(proxy: CuttingProxy, url: str, direct: "asyncpg.Connection[Any]") -> None:
    """The client sees its connection break, but the row is written."""
    proxy.cut_after_commit()

    with pytest.raises(BROKEN):
        await insert(url, 1)
    await proxy.fired.wait()

    assert [1] == await numbers(direct)


async def test_hold_commit(proxy: CuttingProxy, url: str, direct: "asyncpg.Connection[Any]") -> None:
    """A held COMMIT has not happened; once released it does, and the client hears of it."""
    proxy.hold_commit()

    inserting = asyncio.create_task(insert(url, 1))
    await proxy.fired.wait()
    assert [] == await numbers(direct)
    assert not inserting.done()
    proxy.release()
    await inserting

    assert [1] == await numbers(direct)


async def test_a_held_commit_outlives_its_client(
    proxy: CuttingProxy, url: str, direct: "asyncpg.Connection[Any]"
) -> None:
    """A COMMIT on its way arrives even when the client that sent it has gone."""
    proxy.hold_commit()
    inserting = asyncio.create_task(insert(url, 1))
    await proxy.fired.wait()

    inserting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await inserting
    proxy.release()

    # The same key waits for the transaction that wrote it, then yields to it.
    assert "INSERT 0 0" == await direct.execute("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING")
    assert [1] == await numbers(direct)


@pytest.mark.parametrize("order", ["cut_before_commit", "cut_after_commit", "hold_commit"])
async def test_an_order_holds_for_one_commit(
    proxy: CuttingProxy, url: str, direct: "asyncpg.Connection[Any]", order: str
) -> None:
    """Once fired the proxy passes all later commits, on new connections too."""
    getattr(proxy, order)()
    first = asyncio.create_task(insert(url, 1))
    await proxy.fired.wait()

    await insert(url, 2)
    await insert(url, 3)

    proxy.release()
    await asyncio.wait([first])
    assert (order == "hold_commit") == (first.exception() is None)
    assert [2, 3] == [number for number in await numbers(direct) if number > 1]


async def test_only_a_commit_fires(proxy: CuttingProxy, url: str) -> None:
    """Statements and rollbacks pass while the proxy waits for a COMMIT."""
    proxy.cut_before_commit()

    async with connected(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        assert "COMMIT" == await connection.fetchval("SELECT 'COMMIT'")
        await transaction.rollback()

    assert not proxy.fired.is_set()


async def test_cut_all(proxy: CuttingProxy, url: str, direct: "asyncpg.Connection[Any]") -> None:
    """Every connection breaks, one whose COMMIT is held too; new ones pass."""
    proxy.hold_commit()
    inserting = asyncio.create_task(insert(url, 1))
    await proxy.fired.wait()
    async with connected(url) as idle:
        proxy.cut_all()

        with pytest.raises(BROKEN):
            await idle.execute("SELECT 1")
    with pytest.raises(BROKEN):
        await inserting

    await insert(url, 2)
    assert [2] == await numbers(direct)


async def test_a_running_statement_can_be_cancelled(url: str, fresh_postgres_url: str) -> None:
    """A cancel request passes, although it is no session."""
    async with connected(url) as connection:
        assert await cancelled_in_its_sleep(connection, fresh_postgres_url)
        assert 1 == await connection.fetchval("SELECT 1")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (message(b"Q", text("COMMIT;")), True),
        (message(b"Q", text("commit")), True),
        (message(b"Q", text(" COMMIT ; ")), True),
        (message(b"Q", text("COMMIT PREPARED 'x'")), False),
        (message(b"Q", text("ROLLBACK;")), False),
        (message(b"P", text("COMMIT")), False),
    ],
)
def test_is_commit(sent: bytes, expected: bool) -> None:
    """A commit is a simple query that says so and no more."""
    assert expected is is_commit(sent)


async def test_nothing_is_left_behind(fresh_postgres_url: str, direct: "asyncpg.Connection[Any]") -> None:
    """On exit tasks end, sockets close and the port is free, even with a COMMIT held."""
    parts = urlsplit(fresh_postgres_url)
    before = asyncio.all_tasks()
    async with CuttingProxy(parts.hostname or "", parts.port or 5432) as proxy:
        proxy.hold_commit()
        inserting = asyncio.create_task(insert(proxy.dsn(parts.path[1:], parts.username or "postgres"), 1))
        await proxy.fired.wait()

    with pytest.raises(BROKEN):
        await inserting
    assert before == asyncio.all_tasks()
    with pytest.raises(OSError):
        await asyncio.open_connection(proxy.host, proxy.port)
