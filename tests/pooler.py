"""A stub of a transaction-mode PostgreSQL pooler, such as pgbouncer with `pool_mode=transaction`, only less kind.

A client holds a server connection from its first message until ReadyForQuery says that no transaction is open.
Its next message goes to the connection that has been idle longest, so whatever it left in the session is missing there.
Like pgbouncer it sets the few startup parameters it tracks on whichever connection the client gets, and refuses others.
Only trust authentication is spoken; COPY works where it is a simple query, as in asyncpg.
"""

import asyncio
import contextlib
import itertools
import struct
from collections.abc import Collection
from dataclasses import dataclass, field

from tests.proxy import ANSWERED, CANCEL_REQUEST, READY_FOR_QUERY, Relay, read_message, read_startup

PROTOCOL_VERSION = 3 << 16
# Startup parameters carried from connection to connection, by their names in lower case, as the server spells them.
TRACKED = {name.lower(): name for name in ("application_name", "DateStyle", "standard_conforming_strings", "TimeZone")}
# Every server connection speaks UTF-8, so client_encoding is accepted and not carried.
ACCEPTED = TRACKED.keys() | {"user", "database", "client_encoding"}
# Parse, Bind, Describe, Execute, Close, Flush: they leave an exchange open until the next Sync.
EXTENDED = (b"P", b"B", b"D", b"E", b"C", b"H")
COPYING = (b"d", b"c", b"f")


@dataclass(eq=False)
class Server:
    """A connection to PostgreSQL and the client that holds it now."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    # Process id and secret, as a cancel request wants them.
    key: bytes = b""
    parameters: dict[str, str] = field(default_factory=dict)
    tracked: dict[str, str] = field(default_factory=dict)
    client: "Client | None" = None
    # ReadyForQuery still to come: for the client's messages, and before those for the pooler's own.
    outstanding_count: int = 0
    own_count: int = 0
    unsynced: bool = False
    lost: bool = False


@dataclass(eq=False)
class Pool:
    """The server connections of one user and database; None stands for one that is not open yet."""

    user: str
    database: str
    idle: asyncio.Queue[Server | None]
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Client:
    """A connection from a client and the server connection it holds, if any."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pool: Pool
    tracked: dict[str, str]
    server: Server | None = None
    last: Server | None = None
    waiting: bool = False


class Refused(ConnectionError):
    """The client cannot be served; `answer` is the ErrorResponse that says why."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(answer)
        self.answer = answer


class TransactionPooler(Relay):
    """Shares `size` server connections per user and database among any number of clients, by transaction."""

    def __init__(
        self, host: str, port: int, size: int = 3, *, ignored_startup_parameters: Collection[str] = ()
    ) -> None:
        super().__init__(host, port)
        self.size = size
        self.ignored_startup_parameters = frozenset(name.lower() for name in ignored_startup_parameters)
        # By name as the client wrote it; of several clients the last one's value.
        self.seen_startup_parameters: dict[str, str] = {}
        # Times a client gave its server connection back, and times it got another than the one before.
        self.transactions = 0
        self.switches = 0
        self._pools: dict[tuple[str, str], Pool] = {}
        self._clients: dict[bytes, Client] = {}
        self._keys = itertools.count(1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        code, packet = await read_startup(reader, writer)
        if code == CANCEL_REQUEST:
            await self._cancel(packet[8:])
            return
        try:
            await self._attend(self._admit(packet, reader, writer))
        except Refused as refused:
            writer.write(refused.answer)

    async def _attend(self, client: Client) -> None:
        key = struct.pack("!ii", next(self._keys), 0)
        self._clients[key] = client
        try:
            await self._welcome(client, key)
            await self._pass_requests(client)
        finally:
            del self._clients[key]
            if client.server is not None:
                # Closed, so that it is replaced: the session may be inside a transaction.
                client.server.writer.close()
                self._give_back(client.server)

    def _admit(self, packet: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Client:
        texts = [text.decode() for text in packet[8:].split(b"\0")]
        given = {name: value for name, value in zip(texts[::2], texts[1::2], strict=False) if name}
        self.seen_startup_parameters |= given
        for name in given:
            if name.lower() not in ACCEPTED | self.ignored_startup_parameters:
                raise Refused(fatal("08P01", f"unsupported startup parameter: {name}"))
        user, database = given["user"], given.get("database", given["user"])
        if (user, database) not in self._pools:
            idle: asyncio.Queue[Server | None] = asyncio.Queue()
            for _ in range(self.size):
                idle.put_nowait(None)
            self._pools[user, database] = Pool(user, database, idle)
        tracked = {TRACKED[name.lower()]: value for name, value in given.items() if name.lower() in TRACKED}
        return Client(reader, writer, self._pools[user, database], tracked)

    async def _welcome(self, client: Client, key: bytes) -> None:
        pool = client.pool
        if not pool.parameters:
            server = await self._take(client)
            pool.parameters = dict(server.parameters)
            pool.idle.put_nowait(server)
        client.writer.write(message(b"R", struct.pack("!i", 0)))
        for name, value in (pool.parameters | client.tracked).items():
            client.writer.write(message(b"S", text(name) + text(value)))
        client.writer.write(message(b"K", key) + message(READY_FOR_QUERY, b"I"))

    async def _pass_requests(self, client: Client) -> None:
        while True:
            kind, request = await read_message(client.reader)
            if kind == b"X":
                return
            server = client.server
            if server is None:
                if kind in COPYING:
                    # The rest of a COPY that failed; a server drops it too.
                    continue
                server = await self._hold(client)
            server.outstanding_count += kind in ANSWERED
            server.unsynced = kind in EXTENDED
            server.writer.write(request)
            await server.writer.drain()

    async def _pass_answers(self, server: Server) -> None:
        try:
            while True:
                kind, answer = await read_message(server.reader)
                if server.own_count:
                    self._hear(server, kind, answer)
                elif kind == READY_FOR_QUERY:
                    self._ready(server, answer)
                elif server.client is not None:
                    # A notification or notice that comes while nobody holds the connection is lost.
                    server.client.writer.write(answer)
                    await server.client.writer.drain()
        finally:
            server.lost = True
            if server.client is not None:
                server.client.writer.close()

    def _hear(self, server: Server, kind: bytes, answer: bytes) -> None:
        """Take an answer to the pooler's own query; a client whose parameters are refused is dropped."""
        if kind == READY_FOR_QUERY:
            server.own_count -= 1
        elif kind == b"E" and server.client is not None:
            server.client.writer.write(answer)
            server.client.writer.close()

    def _ready(self, server: Server, answer: bytes) -> None:
        client = server.client
        server.outstanding_count -= 1
        if answer[5:] == b"I" and server.outstanding_count == 0 and not server.unsynced:
            # Before the client hears of it: its next message must not find the connection still held.
            self.transactions += 1
            self._give_back(server)
        if client is not None:
            client.writer.write(answer)

    async def _hold(self, client: Client) -> Server:
        """Return a server connection that is now the client's, with its tracked parameters set."""
        server = await self._take(client)
        self.switches += client.last is not None and client.last is not server
        client.server = client.last = server
        server.client = client
        if server.tracked != client.tracked:
            changes = [f"RESET {name}" for name in server.tracked.keys() - client.tracked.keys()]
            changes += [f"SET {name} = {quoted(value)}" for name, value in client.tracked.items()]
            server.writer.write(message(b"Q", text("; ".join(changes))))
            server.own_count += 1
            server.tracked = client.tracked
        return server

    def _give_back(self, server: Server) -> None:
        client, server.client = server.client, None
        if client is not None:
            client.server = None
            client.pool.idle.put_nowait(server)

    async def _take(self, client: Client) -> Server:
        """Return the connection of the client's pool idle longest, after a wait if none is; a lost one is replaced."""
        client.waiting = True
        server = await client.pool.idle.get()
        client.waiting = False
        try:
            if client.writer.is_closing() or client.reader.at_eof():
                raise ConnectionResetError("the client left while it waited")
            if server is None or server.lost or server.writer.is_closing():
                return await self._open(client.pool)
        except BaseException:
            client.pool.idle.put_nowait(server)
            raise
        return server

    async def _open(self, pool: Pool) -> Server:
        reader, writer = await self._dial()
        server = Server(reader, writer)
        try:
            pairs = ("user", pool.user, "database", pool.database, "client_encoding", "UTF8", "")
            startup = struct.pack("!i", PROTOCOL_VERSION) + b"".join(map(text, pairs))
            writer.write(struct.pack("!i", len(startup) + 4) + startup)
            kind = b""
            while kind != READY_FOR_QUERY:
                kind, answer = await read_message(reader)
                if kind == b"E":
                    raise Refused(answer)
                if kind == b"R" and answer[5:] != struct.pack("!i", 0):
                    raise Refused(fatal("28000", "the pooler stub knows trust authentication only"))
                if kind == b"S":
                    name, value = answer[5:-1].decode().split("\0")
                    server.parameters[name] = value
                if kind == b"K":
                    server.key = answer[5:]
        except BaseException:
            writer.close()
            raise
        self._spawn(self._pass_answers(server), writer)
        return server

    async def _cancel(self, key: bytes) -> None:
        """Cancel what the client of `key` runs; one that waits for a connection is dropped, as pgbouncer does."""
        client = self._clients.get(key)
        if client is None:
            return
        if client.waiting:
            client.writer.close()
            return
        reader, writer = await self._dial()
        with contextlib.closing(writer):
            # Looked up after the wait: by now another client may hold the connection.
            if client.server is not None:
                writer.write(struct.pack("!ii", 16, CANCEL_REQUEST) + client.server.key)
                await reader.read()


def message(kind: bytes, body: bytes) -> bytes:
    """Return a protocol message of type `kind`."""
    return kind + struct.pack("!i", len(body) + 4) + body


def text(value: str) -> bytes:
    """Return a string as the protocol wants it, ended by a zero."""
    return value.encode() + b"\0"


def quoted(value: str) -> str:
    """Return an SQL literal that means the same whatever `standard_conforming_strings` is."""
    return "E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def fatal(code: str, reason: str) -> bytes:
    """Return an ErrorResponse that ends the connection."""
    return message(b"E", b"".join(map(text, ("SFATAL", "VFATAL", f"C{code}", f"M{reason}", ""))))
