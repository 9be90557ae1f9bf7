"""The driver's side of HTTP: keep-alive connections that cost little, so that the cores are left to the server.

A request is bytes made beforehand, an answer is its status and body; one request is under way on a connection at a
time. No client of the product is in here: what is measured is the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import httptools
import msgspec

from windlass.errors import WindlassError

ANSWER_S = 60.0
"""How long an answer may take before the benchmark gives up."""


class Answered(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    body: bytes

    def good(self) -> bytes:
        """Return the body; WindlassError if the server refused."""
        if self.status >= 300:
            raise WindlassError(f"The server answered {self.status}: {self.body[:300].decode(errors='replace')}")
        return self.body


def post(path: str, body: bytes) -> bytes:
    """Return the bytes of a POST."""
    kind = f"content-type: application/json\r\ncontent-length: {len(body)}"
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{kind}\r\n\r\n".encode() + body


def get(path: str) -> bytes:
    """Return the bytes of a GET."""
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._answer: asyncio.Future[Answered] | None = None
        self._transport: asyncio.Transport | None = None

    async def ask(self, request: bytes) -> Answered:
        """Send a request and return its answer."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        # uvloop's transports have the verbs, but not the class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read a piece of an answer."""
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(WindlassError("The server closed the connection before it answered."))

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Hand the answer over."""
        body = b"".join(self._parts)
        self._parts.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answered(self._parser.get_status_code(), body))


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Connection]]:
    """Open so many connections to this machine's `port`, and close them afterwards."""
    loop = asyncio.get_running_loop()
    opened: list[Connection] = []
    try:
        for _ in range(count):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
            opened.append(connection)
        yield opened
    finally:
        for connection in opened:
            connection.close()
