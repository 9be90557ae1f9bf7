"""Answers that nobody reads: they count in the budget until they are taken, whoever asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.server.conftest import Papers
from tests.server.frame import make_door
from tests.server.test_frame import route
from tests.server.wires import Serving, Wire, serving
from windlass.server.app import Door
from windlass.server.bodies import SMALL_BYTES, BodyBudget
from windlass.server.call import Call, Message, Reply
from windlass.server.protocol import Protocol
from windlass.server.tls import Certificates

PATIENCE_S = 10.0
LEAST = 4096
"""Bytes that the system takes of an answer, about: the rest waits in the server."""


FOR_TLS = 600_000
"""Bytes that are more than a client reads in advance with TLS, and less than TLS buffers by itself."""


class Watched:
    """The door, which tells how each answer begins."""

    def __init__(self, size: int) -> None:
        async def large(_call: Call) -> Reply:
            return Reply(200, b" " * size)

        async def small(_call: Call) -> Reply:
            return Reply(200, b" " * 1000)

        routes = [route("GET", "/large", large), route("GET", "/small", small), route("POST", "/large", large)]
        self.door: Door = make_door([*routes, route("GET", "/docs", large, scopes=())])
        # A key has a quarter: room for two.
        self.door._answers = BodyBudget(8 * size, 25)
        self.begun: asyncio.Queue[int] = asyncio.Queue()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer as the door does."""

        async def told(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                self.begun.put_nowait(message["status"])

        await self.door(scope, receive, told)


class Caller:
    """Asks over connections of its own, of which it reads nothing until it is told to."""

    def __init__(self, watched: Watched, server: Serving, papers: Papers | None) -> None:
        self.watched, self.server = watched, server
        self._tls = None if papers is None else papers.client()
        self.wires: list[Wire] = []

    @property
    def used(self) -> int:
        """How many bytes of answers are under way."""
        return self.watched.door._answers.used

    async def ask(self, key: str, path: str = "/api/v1/large", method: str = "GET") -> int:
        """Ask for an answer and return its status; what can be sent of it has been sent then."""
        wire = await self.connect()
        await self.send(wire, key, path, method)
        return await self.watched.begun.get()

    async def connect(self) -> Wire:
        """Open a connection of which nothing is read."""
        wire = await self.server.connect(self._tls, received_bytes=LEAST)
        wire.stop_reading()
        self.wires.append(wire)
        return wire

    async def send(self, wire: Wire, key: str, path: str, method: str = "GET") -> None:
        """Send a request."""
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        await wire.send(f"{method} {path} HTTP/1.1\r\n{authorization}\r\n".encode())


@asynccontextmanager
async def calling(size: int, papers: Papers | None = None, **more: Any) -> AsyncIterator[Caller]:
    """Serve answers of a size over connections that take next to nothing."""
    certificates = None if papers is None else Certificates(str(papers.cert), str(papers.key), now=0.0)
    watched = Watched(size)
    async with serving(Protocol, certificates=certificates, door=watched, sent_bytes=LEAST, **more) as server:
        yield Caller(watched, server, papers)


@pytest.mark.parametrize(
    ("size", "encrypted"), [(3 * SMALL_BYTES, False), (900_000, False), (FOR_TLS, True)], ids=["some", "many", "TLS"]
)
async def test_rel_s8_an_answer_counts_until_it_is_taken(size: int, encrypted: bool, papers: Papers) -> None:
    """S8: with two answers of a key that nobody reads its third is 503; a small one is not, nor is another tenant's."""
    async with calling(size, papers if encrypted else None) as caller, asyncio.timeout(PATIENCE_S):
        statuses = [await caller.ask(key) for key in ("reader.a", "reader.a", "reader.a", "reader.b")]
        statuses.append(await caller.ask("reader.a", "/api/v1/small"))
        under_way = caller.used
        sizes = []
        for wire in caller.wires:
            await caller.send(wire, "reader.a", "/api/v1/small")
            wire.go_on_reading()
            sizes.append(len((await wire.answer())[2]))
            sizes.append(len((await wire.answer())[2]))

        assert [200, 200, 503, 200, 200] == statuses
        assert 3 * size == under_way
        assert [size, 1000, size, 1000, size, 1000] == sizes[:4] + sizes[6:8]
        assert 0 == caller.used


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_rel_s8_answers_without_a_key_count_together(encrypted: bool, papers: Papers) -> None:
    """S8: the document and its page are large and open; all callers of them have the share of one key."""
    async with calling(FOR_TLS, papers if encrypted else None) as caller, asyncio.timeout(PATIENCE_S):
        statuses = [await caller.ask("", "/docs") for _ in range(3)]
        statuses.append(await caller.ask("reader.a"))

        assert [200, 200, 503, 200] == statuses


async def test_rel_s8_answers_to_acts_and_of_readers_that_went_count_no_more() -> None:
    """S8: what was done is told, and not counted; the answer of a reader that has gone is given back."""
    async with calling(300_000) as caller:
        statuses = [await caller.ask("reader.a", method=method) for method in ("GET", "POST", "POST", "POST")]
        under_way = caller.used
        for wire in caller.wires:
            wire.writer.transport.abort()
        await asyncio.gather(*caller.server.state.tasks)

        assert [200] * 4 == statuses
        assert 300_000 == under_way
        assert 0 == caller.used


async def test_rel_t9_an_answer_that_is_handed_over_makes_room() -> None:
    """T9: at the cap of connections a reader that has only to take the rest of its answer locks nobody out."""
    async with calling(100_000, cap=3) as caller, asyncio.timeout(PATIENCE_S):
        statuses = [await caller.ask(key) for key in ("reader.a", "reader.b", "reader.c")]
        wire = await caller.connect()
        await caller.server.lost.wait()
        for _ in range(20):  # nothing but our own steps is waited for
            await asyncio.sleep(0)
        await caller.send(wire, "reader.d", "/api/v1/large")
        statuses.append(await caller.watched.begun.get())

        assert [200] * 4 == statuses
