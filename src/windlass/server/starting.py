"""Before the database answers: the server lives, and is not ready.

Everything but the question whether it lives is answered 503, with a time to come back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_NOT_YET = msgspec.json.encode(
    {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "The server has started and waits for its database. Try again.",
        "code": "unavailable",
        "errors": [],
    }
)


class Starting:
    """An application that passes requests on once there is one to pass them to."""

    def __init__(self) -> None:
        self._app: App | None = None

    def open(self, app: App) -> None:
        """From now on the application answers."""
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if self._app is not None:
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        alive = scope["path"] == "/healthz"
        body = b'{"status":"starting"}' if alive else _NOT_YET
        kind = b"application/json" if alive else b"application/problem+json"
        length = str(len(body)).encode()
        headers = [(b"content-type", kind), (b"content-length", length), (b"cache-control", b"no-store")]
        if not alive:
            headers.append((b"retry-after", b"1"))
        await send({"type": "http.response.start", "status": 200 if alive else 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})
