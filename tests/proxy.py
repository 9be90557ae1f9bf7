"""A TCP proxy before PostgreSQL that cuts or holds a connection at its COMMIT.

The client's side is read message by message, so that the cut falls on the COMMIT and never beside it.
A commit is what asyncpg's Transaction sends: a simple query with the text `COMMIT;`.
`Relay` and the framing functions serve the pooler too (pooler.py).
"""

import asyncio
import contextlib
import functools
import socket
import struct
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Self
from weakref import WeakSet

# Request codes that stand where a startup packet has its protocol version.
CANCEL_REQUEST, SSL_REQUEST, GSS_REQUEST = 80877102, 80877103, 80877104
# Client messages that the server answers with one ReadyForQuery each: Query, Sync, FunctionCall.
ANSWERED = (b"Q", b"S", b"F")
READY_FOR_QUERY = b"Z"
# What a read or a write raises when the peer has left.
GONE = (asyncio.IncompleteReadError, OSError)


async def read_packet(reader: asyncio.StreamReader) -> bytes:
    """Return one packet without a type byte, length included, as sent before a session starts."""
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head) - 4)


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the type byte of the next message and the message as a whole."""
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:]) - 4)


async def read_startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, bytes]:
    """Return the code and the whole of the first packet that is no plea for encryption; those are refused."""
    while True:
        packet = await read_packet(reader)
        code = int.from_bytes(packet[4:8])
        if code not in (SSL_REQUEST, GSS_REQUEST):
            return code, packet
        writer.write(b"N")


def reset(transport: asyncio.WriteTransport) -> None:
    """Close at once with a TCP reset, so that the peer cannot take it for an orderly end."""
    if not transport.is_closing():
        linger_off = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_off)
    transport.abort()


class Relay:
    """A server on a free loopback port in front of another; on exit its tasks and sockets are gone."""

    host = "127.0.0.1"
    port: int

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._tasks: set[asyncio.Task[None]] = set()
        # The event loop holds a transport while it is open; here it need not outlive that.
        self._transports: WeakSet[asyncio.WriteTransport] = WeakSet()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, self.host, 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in list(self._transports):
            transport.abort()
        # An aborted transport closes its socket in the next turn of the loop.
        await asyncio.sleep(0)
        await self._listener.wait_closed()

    def dsn(self, database: str, user: str = "postgres") -> str:
        """Return the address at which clients reach `database` through this server."""
        return f"postgresql://{user}@{self.host}:{self.port}/{database}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it is done; its connection is closed afterwards."""
        raise NotImplementedError

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self._target)
        self._transports.add(writer.transport)
        return reader, writer

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._listener.is_serving():
            # Accepted in the very turn in which the listener closed.
            writer.transport.abort()
            return
        self._transports.add(writer.transport)
        self._spawn(self._serve(reader, writer), writer)

    def _spawn(self, work: Coroutine[None, None, None], writer: asyncio.StreamWriter) -> asyncio.Task[None]:
        """Run `work` until it ends or its peer goes, then close `writer`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._finish, writer))
        return task

    def _finish(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        writer.close()
        # Any other error is a fault of ours, for the event loop to report.
        with contextlib.suppress(asyncio.CancelledError, *GONE):
            task.result()


class Action(Enum):
    """What to do with the next COMMIT."""

    CUT_BEFORE = "cut before"
    CUT_AFTER = "cut after"
    HOLD = "hold"


@dataclass(eq=False)
class Link:
    """One client's pair of connections."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    # Answers still to come, counted in ReadyForQuery.
    outstanding_count: int = 0
    cut: Action | None = None


class CuttingProxy(Relay):
    """Passes everything on, except for the one COMMIT a test arms it for; `fired` tells that it happened."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.fired = asyncio.Event()
        self._released = asyncio.Event()
        self._armed: Action | None = None

    def cut_before_commit(self) -> None:
        """Keep the next COMMIT from the server and close both sides; `fired` once the server has rolled back."""
        self._arm(Action.CUT_BEFORE)

    def cut_after_commit(self) -> None:
        """Let the next COMMIT happen, but reset the client instead of passing the answer; `fired` after that."""
        self._arm(Action.CUT_AFTER)

    def hold_commit(self) -> None:
        """Hold the next COMMIT until `release()`, even when its client has gone meanwhile; `fired` once it is held."""
        self._released.clear()
        self._arm(Action.HOLD)

    def release(self) -> None:
        """Pass on the COMMIT that is held."""
        self._released.set()

    def cut_all(self) -> None:
        """Reset every connection on both sides now; those made later pass."""
        for transport in list(self._transports):
            reset(transport)

    def _arm(self, action: Action) -> None:
        self.fired.clear()
        self._armed = action

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, packet = await read_startup(reader, writer)
        server_reader, server_writer = await self._dial()
        link = Link(writer, server_writer)
        try:
            server_writer.write(packet)
            answers = self._spawn(self._pass_answers(link, server_reader), writer)
            with contextlib.suppress(*GONE):
                await self._pass_requests(link, reader)
            if link.cut is not Action.CUT_AFTER:
                # Closing this half only lets the server finish what was sent; closing both could reset it away.
                with contextlib.suppress(OSError):
                    server_writer.write_eof()
            await asyncio.wait([answers])
            if link.cut is Action.CUT_BEFORE:
                # The server has closed its side, which it does after rolling back.
                self.fired.set()
        finally:
            server_writer.close()

    async def _pass_requests(self, link: Link, reader: asyncio.StreamReader) -> None:
        """Pass the client's messages on until it goes or one of them is the COMMIT to cut at."""
        while link.cut is None:
            kind, message = await read_message(reader)
            action = None
            if is_commit(message):
                action, self._armed = self._armed, None
            if action is Action.HOLD:
                self.fired.set()
                await self._released.wait()
            else:
                link.cut = action
            if link.cut is not Action.CUT_BEFORE:
                link.outstanding_count += kind in ANSWERED
                link.server.write(message)
                await link.server.drain()

    async def _pass_answers(self, link: Link, reader: asyncio.StreamReader) -> None:
        """Pass the server's messages on until it goes or has answered the COMMIT to cut after."""
        while True:
            kind, message = await read_message(reader)
            # The COMMIT was the last request, so the last answer outstanding is its own.
            if link.cut is Action.CUT_AFTER and link.outstanding_count == 1:
                if kind == READY_FOR_QUERY:
                    reset(link.client.transport)
                    self.fired.set()
                    return
                continue
            if kind == READY_FOR_QUERY and link.outstanding_count:
                link.outstanding_count -= 1
            link.client.write(message)
            await link.client.drain()


def is_commit(message: bytes) -> bool:
    """Tell whether a client's message is a simple query that says COMMIT and no more."""
    return message[:1] == b"Q" and message[5:].rstrip(b"\0; \n").strip().upper() == b"COMMIT"
