"""A server resets a connection as soon as it is made: workers and programs take it for a server that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import uvloop

from tests.proxy import reset
from windlass import App
from windlass.client.tries import ServerDown
from windlass.config import Settings
from windlass.config.settings import Server
from windlass.errors import Unavailable
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
