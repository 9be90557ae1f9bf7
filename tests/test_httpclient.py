"""What our HTTP clients do beyond httpx2: a connection reset at once is told as such, and a cancel leaves none open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import uuid4

import pytest
import uvloop

from tests.proxy import reset
from tests.worker.running import until
from windlass import App
from windlass.client.tries import ServerDown
from windlass.config import Settings
from windlass.config.settings import Server
from windlass.errors import Unavailable
from windlass.httpclient import AsyncClient
from windlass.worker.httplink import HttpLink


@pytest.fixture
async def resetting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Yield the URL of a server that resets all connections, each of which is handed on when it is gone."""
    connect = uvloop.Loop.create_connection

    async def connect_and_lose(loop: Any, *arguments: Any, **options: Any) -> Any:
        made: Any = await connect(loop, *arguments, **options)
        while not made[0].is_closing():  # noqa: ASYNC110 — another protocol has the event
            await asyncio.sleep(0)
        return made

    monkeypatch.setattr(uvloop.Loop, "create_connection", connect_and_lose)
    server = await asyncio.start_server(lambda _, writer: reset(writer.transport), "127.0.0.1")
    async with server:
        yield "http://{}:{}".format(*server.sockets[0].getsockname())


async def test_a_worker_asks_again(resetting: str) -> None:
    """Its link says Unavailable, which every caller of it waits out."""
    link = HttpLink(Settings(server=Server(url=resetting)))

    [answer] = await asyncio.gather(link.close("w", session=uuid4()), return_exceptions=True)

    await link.aclose()
    assert Unavailable is type(answer)
    assert "reset as soon as it was made" in str(answer)


async def test_a_program_knows_that_nothing_was_sent(resetting: str) -> None:
    """A submit without a key may be repeated."""
    async with App(url=resetting, patience=0) as app:
        with pytest.raises(ServerDown, match="reset as soon as it was made"):
            await app.aenqueue("t")


class Leaving:
    """A server that answers each connection once, ends them all when told, and knows which ends the client closed."""

    def __init__(self) -> None:
        self.ends = asyncio.Event()
        self.connections: list[asyncio.Task[Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer when all three are there, so that each needs a connection of its own."""
        task = asyncio.current_task()
        assert task is not None
        self.connections.append(task)
        await reader.readuntil(b"\r\n\r\n")
        await until(lambda: len(self.connections) >= 3)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await self.ends.wait()
        writer.write_eof()
        try:
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("what", ["request", "close"])
async def test_a_cancel_leaves_no_connection_open(what: str, turns: int) -> None:
    """A server has gone: the next request closes the connections to it, all of them, whenever it is cancelled."""
    leaving = Leaving()
    server = await asyncio.start_server(leaving.serve, "127.0.0.1")
    client = AsyncClient(base_url="http://{}:{}".format(*server.sockets[0].getsockname()), verify=False)
    await asyncio.gather(*(client.get("/") for _ in range(3)))
    first = list(leaving.connections)
    leaving.ends.set()
    pool = cast(Any, client)._transport._pool
    await until(lambda: all(connection.has_expired() for connection in pool.connections))

    task: asyncio.Task[Any] = asyncio.create_task(client.get("/") if what == "request" else client.aclose())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await client.aclose()

    _, left = await asyncio.wait(first, timeout=5)
    for connection in leaving.connections:
        connection.cancel()
    await asyncio.gather(*leaving.connections, return_exceptions=True)
    server.close()
    assert task.cancelled() or what == "close"
    assert set() == left
