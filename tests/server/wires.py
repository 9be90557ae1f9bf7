"""A server with the protocol and a small application, and connections to it that speak in bytes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from windlass.server.app import PIECE_BYTES
from windlass.server.protocol import Protocol
from windlass.server.tls import Certificates, TlsListener

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
LARGE = 16 << 20
"""More bytes than the buffers of a connection take."""
Answer = tuple[int, dict[str, str], bytes]


class App:
    """An application that answers at once, reads a body, or waits until it is told to go on."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer 200, by the path's own way."""
        if scope["path"] == "/wait":
            self.entered.set()
            await self.go_on.wait()
        if scope["path"] == "/read":
            while (message := await receive()).get("more_body"):
                pass
            if message["type"] == "http.disconnect":
                return
        if scope["path"] in ("/large", "/stream"):
            more = scope["path"] == "/stream"
            headers = [] if more else [(b"content-length", str(LARGE).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            piece = b"x" * PIECE_BYTES
            for _ in range(LARGE // PIECE_BYTES - 1):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": piece, "more_body": more})
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


class Wire:
    """A connection that speaks in bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Send bytes, though nobody may read them."""
        self.writer.write(data)
        await self.writer.drain()

    def stop_reading(self) -> None:
        """Take no more of what comes."""
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    def go_on_reading(self) -> None:
        """Take what comes."""
        cast(asyncio.Transport, self.writer.transport).resume_reading()

    @property
    def state(self) -> int:
        """The state of its connection, as the system numbers them."""
        connection: socket.socket = self.writer.transport.get_extra_info("socket")
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]

    async def answer(self) -> Answer:
        """Read one answer: status, headers, body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        return int(head[0].split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def end(self) -> bytes:
        """Read what comes until the connection has ended."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


class Serving:
    """A server on a port of its own."""

    def __init__(self, app: App, port: int, state: ServerState) -> None:
        self.app, self.port, self.state = app, port, state
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        """Pieces of bytes that a connection has been given."""
        self.lost = asyncio.Event()
        """Set when a connection has ended."""
        self.wires: list[Wire] = []

    async def connect(self, tls: ssl.SSLContext | None = None, *, received_bytes: int | None = None) -> Wire:
        """Open a connection; the system takes only so many bytes of answers for it, if told so."""
        connection = socket.socket()
        if received_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.port))
        name = None if tls is None else "127.0.0.1"
        self.wires.append(Wire(*await asyncio.open_connection(sock=connection, ssl=tls, server_hostname=name)))
        return self.wires[-1]

    async def ask(self, data: bytes) -> Answer:
        """Send bytes over a new connection and return the answer."""
        wire = await self.connect()
        await wire.send(data)
        return await wire.answer()

    async def end(self) -> None:
        """End all connections and wait until their requests have ended."""
        self.app.go_on.set()
        for connection in list(self.state.connections):
            connection.shutdown()
            if isinstance(connection, Protocol):
                connection.transport.abort()
        await asyncio.gather(*self.state.tasks)
        for wire in self.wires:
            wire.writer.transport.abort()
            await wire.end()


@asynccontextmanager
async def serving(
    kind: type[Protocol] = Protocol,
    *,
    cap: int | None = None,
    certificates: Certificates | None = None,
    encrypted: type[TlsListener] = TlsListener,
    door: Any = None,
    sent_bytes: int | None = None,
) -> AsyncIterator[Serving]:
    """Serve with a protocol, over TLS where there are certificates, another application where there is a door.

    The system takes only `sent_bytes` of an answer, if told so.
    """
    app = App()
    config = uvicorn.Config(
        door or app, http=kind, ws="none", lifespan="off", log_config=None, access_log=False, limit_concurrency=cap
    )
    config.load()
    state = ServerState()

    class Seen(kind):  # type: ignore[misc,valid-type]
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            server.received.put_nowait(data)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            server.lost.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        if sent_bytes is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sent_bytes)
        server = Serving(app, listening.getsockname()[1], state)

        def make() -> Protocol:
            return cast(Protocol, Seen(config, state, {}))

        listener: Any
        if certificates is None:
            listener = await asyncio.get_running_loop().create_server(make, sock=listening)
        else:
            listener = encrypted(listening, certificates, make)
        try:
            yield server
        finally:
            listener.close()
            await server.end()
