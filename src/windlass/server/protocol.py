"""The protocol: bytes of a connection before they are a request.

The parser has no limits of its own, so they stand here: how large the head of a request may be, how long it may take,
and how many connections there are. What is no request is answered as a problem like every other error, and written to
no log: who sends rubbish must not fill it. At the cap the connection that has waited longest without a request makes
room; only where all are at work is the newcomer told to come back.

The body of a request has its own limits in bodies.py; what happens to a whole request is in app.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from windlass.errors import HeadTooLarge, MalformedRequest, SlowHead, Unavailable, WindlassError
from windlass.server.problems import problem_of

HEAD_BYTES = 64 << 10
"""Of a request's first line and headers."""
HEAD_COUNT = 200
"""Headers of a request."""
HEAD_S = 10.0
"""From the opening of a connection, or the first byte of a later request, to the end of its head."""
LINGER_S = 1.0
"""After a refusal what still comes is read and dropped, or the caller would see a reset instead of the answer."""

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_waiting: WeakKeyDictionary[ServerState, dict[Protocol, None]] = WeakKeyDictionary()


class Protocol(HttpToolsProtocol):
    """One connection: uvicorn's, with limits, and with answers that are ours."""

    head_s = HEAD_S
    linger_s = LINGER_S

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._cap = self.limit_concurrency
        self.limit_concurrency = None
        self._door = self.app
        self._waiting = _waiting.setdefault(server_state, {})
        """The connections without a request under way, the oldest first."""
        self._in_head = False
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, and make room if there are too many connections."""
        super().connection_made(transport)
        self._waiting[self] = None
        self._timer = self.loop.call_later(self.head_s, self._late)
        if self._cap is not None and len(self.connections) > self._cap:
            oldest = next(iter(self._waiting))
            if oldest is not self:
                oldest.make_room()

    def make_room(self) -> None:
        """End a connection without a request, at once."""
        self._waiting.pop(self, None)
        self.connections.discard(self)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._waiting.pop(self, None)
        self._stop_timer()
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
            # No other protocol is spoken here: the request is answered as if it had not asked.
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
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_BYTES or len(self.headers) > HEAD_COUNT:
            raise _too_large()
        self._waiting.pop(self, None)
        full = self._cap is not None and (len(self.connections) > self._cap or len(self.tasks) >= self._cap)
        self.app = _at_cap if full else self._door
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for one."""
        super().on_response_complete()
        if not self._busy and not self.transport.is_closing():
            self._waiting[self] = None

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
            if not self.cycle.more_body:
                self.cycle.keep_alive = False
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


async def _at_cap(_scope: Any, _receive: Any, send: Send) -> None:
    """Answer that there are as many requests as this server takes."""
    reply = problem_of(Unavailable("This server has as many connections as it takes. Try again, or ask another."))
    headers = [
        (b"content-type", reply.media_type),
        (b"content-length", str(len(reply.content)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.content})
