"""The protocol: bytes of a connection before they are a request, and after they are an answer.

The parser has no limits of its own, so they stand here: how large the head of a request may be, how long it may take,
how many requests of a connection wait, and how many connections there are. Bytes that are no request are answered as a
problem like every other error, and are not logged: a sender of rubbish must not fill the log. At the cap the connection
that has waited longest without a request makes room; only where all are at work is the newcomer told to come back. A
reader that takes nothing is dropped, and so is one that takes a whole answer more slowly than a least pace. Streams are
bounded otherwise, in number and in what waits of them (live.py).

No other protocol is spoken here. A request that asks for one is answered as if it had not asked, and is the last of its
connection: the parser does not read its body, so what comes behind it cannot be told from that body.

The body of a request has its own limits in bodies.py; what happens to a whole request is in app.py.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import typing
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from windlass.errors import HeadTooLarge, MalformedRequest, SlowHead, TooMany, Unavailable, WindlassError
from windlass.server.problems import problem_of

HEAD_BYTES = 64 << 10
"""Of a request's first line and headers."""
HEAD_COUNT = 200
"""Headers of a request."""
PIPELINED = 16
"""Requests of a connection that wait for the answers before theirs."""
HEAD_S = 10.0
"""From the opening of a connection, or the first byte of a later request, to the end of its head."""
TAKE_S = 30.0
"""In which a reader must take some of what waits for it."""
LEAST_PACE = 64 << 10
"""Bytes of a whole answer that a reader must take in a second, after the first `TAKE_S`."""
LINGER_S = 1.0
"""After a refusal what still comes is read and dropped, or the caller would see a reset instead of the answer."""

NO_LINGER = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time; the other side is told of a reset."""

App = Callable[[Any, Any, Any], Awaitable[None]]


class Idle(typing.Protocol):
    """A connection without a request under way."""

    def make_room(self) -> None:
        """End at once."""
        ...


_waiting: WeakKeyDictionary[ServerState, dict[Idle, None]] = WeakKeyDictionary()


def waiting_at(state: ServerState) -> dict[Idle, None]:
    """Return the connections of a server without a request under way, the oldest first."""
    return _waiting.setdefault(state, {})


def enter(connection: Any, state: ServerState, cap: int | None) -> None:
    """Count a new connection, which has no request yet, and make room if there are too many."""
    waiting = waiting_at(state)
    state.connections.add(connection)
    waiting[connection] = None
    if cap is not None and len(state.connections) > cap:
        oldest = next(iter(waiting))
        if oldest is not connection:
            oldest.make_room()


def leave(connection: Any, state: ServerState) -> None:
    """Count a connection no more."""
    waiting_at(state).pop(connection, None)
    state.connections.discard(connection)


class Protocol(HttpToolsProtocol):
    """One connection: uvicorn's, with limits, and with answers that are ours."""

    head_s = HEAD_S
    take_s = TAKE_S
    linger_s = LINGER_S
    handshake: Idle | None = None
    """What this connection was counted as before."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.cap = self.limit_concurrency
        self.limit_concurrency = None
        self._door = self.app
        self._waiting = waiting_at(server_state)
        self._in_head = False
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False
        """Whether what still comes is dropped."""
        self._running: RequestResponseCycle | None = None
        """The request that is answered now; `cycle` is the last one that came."""
        self._reader_timer: asyncio.TimerHandle | None = None
        self._paced: RequestResponseCycle | None = None
        """The answer that must be taken before `_pace_timer` ends the connection."""
        self._pace_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, and make room if there are too many connections."""
        super().connection_made(transport)
        if self.handshake is not None:
            leave(self.handshake, self.server_state)
            # What TLS has encrypted is in the transport below, which is not seen; what waits for that one is.
            transport.set_write_buffer_limits(high=1)
        enter(self, self.server_state, self.cap)
        self._timer = self.loop.call_later(self.head_s, self._late)

    def make_room(self) -> None:
        """End a connection without a request, at once."""
        leave(self, self.server_state)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; the request under way hears that its caller has gone."""
        leave(self, self.server_state)
        self._stop_timer()
        self._stop_reader_timer()
        self._stop_pace_timer()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Give the parser what came, a bounded piece at a time."""
        self._unset_keepalive_if_required()
        for start in range(0, len(data), HEAD_BYTES):
            if self._refused or self.transport.is_closing():
                return
            self._feed(data if len(data) <= HEAD_BYTES else data[start : start + HEAD_BYTES])
        # Also bytes that begin no request, like those of a body nobody reads any more, must come to an end.
        if self._timer is None and not self._refused and (self._in_head or not self._busy):
            self._timer = self.loop.call_later(self.head_s, self._late)

    def _feed(self, piece: bytes) -> None:
        before = self._in_head
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._refused = True
            self.cycle.keep_alive = False
            return
        except httptools.HttpParserError as error:
            reason = error.__context__
            self._refuse(reason if isinstance(reason, WindlassError) else MalformedRequest())
            return
        if before and self._in_head:
            self._head_bytes += len(piece)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(_too_large())

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """Pass the request on, if its head is not too large and there is room."""
        self._in_head = False
        self._stop_timer()
        if len(self.pipeline) >= PIPELINED:
            raise TooMany(f"More than {PIPELINED} requests wait on this connection. Read their answers first.")
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_BYTES or len(self.headers) > HEAD_COUNT:
            raise _too_large()
        if self.parser.should_upgrade() and _has_body(self.headers):
            raise MalformedRequest("The request asks for another protocol and has a body. Leave Upgrade or it out.")
        self._waiting.pop(self, None)
        full = self.cap is not None and (len(self.connections) > self.cap or len(self.tasks) >= self.cap)
        self.app = _at_cap if full else self._door
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for one."""
        answered = self._running
        super().on_response_complete()
        is_closing = self.transport.is_closing()
        if not self._busy and not is_closing:
            self._waiting[self] = None
        if is_closing:
            self._watch_reader()
        if is_closing or self.flow.write_paused:
            self._watch_pace(answered)
        else:
            self._stop_pace_timer()

    def pause_writing(self) -> None:
        """Wait for the reader, as long as it takes something, and a whole answer in time."""
        super().pause_writing()
        self._watch_reader()
        answer = self._running
        self._watch_pace(answer)
        if answer is None or answer is not self.cycle:
            return
        if answer.chunked_encoding is False and not answer.expected_content_length:
            self._waiting[self] = None  # the whole answer is handed over: only its reader is waited for

    def resume_writing(self) -> None:
        """Go on: the reader has taken something."""
        super().resume_writing()
        self._stop_reader_timer()
        if self._paced is not None and self._paced.response_complete and not self.transport.is_closing():
            self._stop_pace_timer()

    def timeout_keep_alive_handler(self) -> None:
        """End a connection without another request; one with an answer that was never read at once."""
        if self.transport.get_write_buffer_size():
            self._drop()
        super().timeout_keep_alive_handler()

    def _watch_reader(self) -> None:
        self._stop_reader_timer()
        unsent = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(self.take_s, self._look_at_reader, unsent)

    def _look_at_reader(self, unsent: int) -> None:
        """Go on waiting for a reader that has taken something of `unsent` bytes; abort otherwise."""
        self._reader_timer = None
        left = self.transport.get_write_buffer_size()
        if left >= unsent and left:
            self._drop()
        elif left:
            self._watch_reader()

    def _drop(self) -> None:
        """End the connection with what the system still has of its answer: a reader that takes nothing takes no end."""
        if (connection := self.transport.get_extra_info("socket")) is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self.transport.abort()

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def time_for(self, size: int) -> float:
        """Return how many seconds a reader may take over so many bytes."""
        return self.take_s + size / LEAST_PACE

    def _watch_pace(self, answer: RequestResponseCycle | None) -> None:
        """Give an answer its time, from the first moment at which its reader is behind; a stream when it has ended."""
        if answer is None or self._pace_timer is not None:
            return
        if answer.chunked_encoding and not answer.response_complete:
            return
        left = answer.expected_content_length + self.transport.get_write_buffer_size()
        self._paced = answer
        self._pace_timer = self.loop.call_later(self.time_for(left), self._drop)

    def _stop_pace_timer(self) -> None:
        if self._pace_timer is not None:
            self._pace_timer.cancel()
            self._paced = self._pace_timer = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _busy(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _late(self) -> None:
        self._timer = None
        if self._in_head:
            self._refuse(SlowHead(f"The head of the request did not come within {self.head_s:g} s. Send it at once."))
        elif not self._busy:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, problem: WindlassError) -> None:
        """Answer with a problem and read no more; a request before it that is under way gets its own answer first."""
        self._refused = True
        self._stop_timer()
        if self._busy:
            is_whole = not self.cycle.more_body
            if is_whole or self.cycle is not self._running:
                self.cycle.keep_alive = False
                if not is_whole:
                    self.pipeline[0] = (self.cycle, _answering(problem))  # in its turn
                return
            # It is the body of this very request that is malformed: who reads it finds the caller gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        self.transport.write(_written(problem))
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._timer = self.loop.call_later(self.linger_s, self.transport.abort)
        else:
            self.transport.close()


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(
        f"The head of the request is over {HEAD_BYTES} bytes or {HEAD_COUNT} headers. Send less, or use the body."
    )


def _written(problem: WindlassError) -> bytes:
    """Return a whole answer, as it goes over the wire."""
    reply = problem_of(problem)
    headers = {
        b"content-type": reply.media_type,
        b"content-length": str(len(reply.content)).encode(),
        b"x-content-type-options": b"nosniff",
        b"cache-control": b"no-store",
        **dict(reply.headers),
        b"connection": b"close",
    }
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers.items())
    return b"".join((STATUS_LINE[reply.status], lines, b"\r\n", reply.content))


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")) for name, value in headers
    )


def _answering(problem: WindlassError) -> App:
    """Return an application that answers every request with a problem, as the last one of its connection."""
    reply = problem_of(problem)
    headers = [
        (b"content-type", reply.media_type),
        (b"content-length", str(len(reply.content)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
        *reply.headers,
    ]

    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.content})

    return answer


_at_cap = _answering(Unavailable("This server has as many connections as it takes. Try again, or ask another."))
