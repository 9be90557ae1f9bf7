"""Doors: how a request gets to a server and its answer back, blocking or in an event loop.

Over HTTP, or into an engine inside this program (embedded.py) where no server runs. Which one is used is found out by
find.py; a door makes one try, shell.py makes more of them.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from windlass.client.answers import Answer
from windlass.client.requests import Request
from windlass.client.tries import NotHeard
from windlass.config import Settings
from windlass.config.redact import url as without_password
from windlass.errors import Unavailable

if TYPE_CHECKING:
    import httpx2

    from windlass.embedded import Embedded

CONNECT_S = 5.0
ANSWER_S = 15.0
"""How long an answer may take beyond the time that the server is asked to wait."""
CONNECTIONS = 200


class Door(Protocol):
    """One way to a server."""

    where: str
    """For messages: an address, or a database."""
    is_found: bool
    """Whether it was found beside a database, and may be found elsewhere next time."""

    def send(self, request: Request) -> Answer:
        """Send a request; NotHeard if nobody took it, Unavailable if no answer came."""

    async def asend(self, request: Request) -> Answer:
        """Send a request; NotHeard if nobody took it, Unavailable if no answer came."""

    def close(self) -> None:
        """Let go of everything."""

    async def aclose(self) -> None:
        """Let go of everything."""


class HttpDoor:
    """A server by its address."""

    def __init__(self, url: str, *, key: str | None, is_found: bool = False) -> None:
        self.where = url.rstrip("/")
        self.is_found = is_found
        self._headers = {"content-type": "application/json"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None
        self._in_loops: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}

    def send(self, request: Request) -> Answer:
        """Send a request; NotHeard if nobody took it, Unavailable if no answer came."""
        import httpx2

        with self._lock:
            if self._client is None:
                self._client = httpx2.Client(**self._how())
            client = self._client
        try:
            return _answer(client.request(request.method, request.path, **_said(request)))
        except httpx2.HTTPError as error:
            raise self._silent(error) from error

    async def asend(self, request: Request) -> Answer:
        """Send a request; NotHeard if nobody took it, Unavailable if no answer came."""
        import httpx2

        client = self._in_loops.get(asyncio.get_running_loop()) or self._new_in_loop()
        try:
            return _answer(await client.request(request.method, request.path, **_said(request)))
        except httpx2.HTTPError as error:
            raise self._silent(error) from error

    def close(self) -> None:
        """Close the connections of blocking calls; those of an event loop are closed in it, by `aclose`."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of blocking calls, and those of this event loop."""
        self.close()
        with self._lock:
            client = self._in_loops.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _new_in_loop(self) -> httpx2.AsyncClient:
        import httpx2

        with self._lock:
            # Connections belong to their loop, and what it left behind goes with it.
            self._in_loops = {loop: client for loop, client in self._in_loops.items() if not loop.is_closed()}
            client = self._in_loops[asyncio.get_running_loop()] = httpx2.AsyncClient(**self._how())
        return client

    def _how(self) -> dict[str, Any]:
        import httpx2

        return {
            "base_url": f"{self.where}/api/v1",
            "headers": self._headers,
            "limits": httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            # What was found on this machine is not behind a proxy.
            "trust_env": not self.is_found,
        }

    def _silent(self, error: httpx2.HTTPError) -> Unavailable:
        import httpx2

        unheard = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
        why = str(error) or type(error).__name__
        if unheard:
            return NotHeard(
                f"No server answers at {self.where}: {why}. Start one with `windlass server`, or set WINDLASS_URL."
            )
        return Unavailable(
            f"No answer came from {self.where}: {why}. Whether the request was heard is not known: look before you "
            "repeat it, or submit with an idempotency_key and repeat it safely."
        )


class EmbeddedDoor:
    """An engine inside this program, opened when it is used."""

    is_found = True

    def __init__(self, settings: Settings) -> None:
        self.where = without_password(settings.database.url)
        self._settings = settings
        self._lock = threading.Lock()
        self._engine: Embedded | None = None

    def send(self, request: Request) -> Answer:
        """Have a request answered by the engine's own thread."""
        return Answer(*self._asked(self._opened(), request).result())

    async def asend(self, request: Request) -> Answer:
        """Have a request answered by the engine's own thread, without stopping this loop."""
        engine = self._engine
        if engine is None:
            engine = await asyncio.to_thread(self._opened)
        return Answer(*await asyncio.wrap_future(self._asked(engine, request)))

    def close(self) -> None:
        """End the engine."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    async def aclose(self) -> None:
        """End the engine."""
        await asyncio.to_thread(self.close)

    def _opened(self) -> Embedded:
        from windlass.embedded import Embedded

        with self._lock:
            if self._engine is None:
                try:
                    self._engine = Embedded(self._settings)
                except Unavailable as error:
                    raise NotHeard(str(error)) from error
            return self._engine

    def _asked(self, engine: Embedded, request: Request) -> Future[tuple[int, bytes, dict[str, str]]]:
        return engine.ask(request.method, request.path, query=request.query, body=request.body)


def _said(request: Request) -> dict[str, Any]:
    import httpx2

    timeout = httpx2.Timeout(ANSWER_S + request.wait_s, connect=CONNECT_S)
    return {"params": dict(request.query), "content": request.body, "timeout": timeout}


def _answer(response: httpx2.Response) -> Answer:
    return Answer(response.status_code, response.content, {k.lower(): v for k, v in response.headers.items()})
