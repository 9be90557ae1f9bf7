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
from windlass.client.tries import NotHeard, ServerDown
from windlass.config import Settings
from windlass.config.redact import whole_url as without_password
from windlass.errors import Unavailable

if TYPE_CHECKING:
    import httpx2

    from windlass.embedded import Embedded

CONNECT_S = 5.0
CONNECTIONS = 200
"""Of calls that are answered at once, at one time."""
KEPT_WAITS = 20
"""Connections of calls that waited, kept for the next; how many wait at one time is not bounded."""


class Door(Protocol):
    """One way to a server."""

    where: str
    """For messages: an address, or a database."""
    way: object
    """Equal for two doors that lead the same way."""
    is_found: bool
    """Whether it was found beside a database, and may be found elsewhere next time."""
    is_server: bool
    """Whether a server is behind it, which hands jobs to workers."""

    def send(self, request: Request) -> Answer:
        """Send a request; NotHeard if nobody took it, Unavailable if no answer came."""

    async def asend(self, request: Request) -> Answer:
        """Send a request; NotHeard if nobody took it, Unavailable if no answer came."""

    def close(self) -> None:
        """Let go of everything."""

    async def aclose(self) -> None:
        """Let go of everything."""

    def leave(self) -> None:
        """Let go of everything, soon, without stopping the caller; nobody is at the door any more."""


class HttpDoor:
    """A server by its address."""

    is_server = True

    def __init__(self, url: str, *, key: str | None, is_found: bool = False) -> None:
        self.url = url.rstrip("/")
        self.where = without_password(self.url)
        self.way: object = (self.url, key, is_found)
        self.is_found = is_found
        self._headers = {"content-type": "application/json"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        self._lock = threading.Lock()
        # Calls that wait, and those that do not: a thousand waits must not keep a submit from its server.
        self._clients: dict[bool, httpx2.Client] = {}
        self._in_loops: dict[tuple[asyncio.AbstractEventLoop, bool], httpx2.AsyncClient] = {}

    def send(self, request: Request) -> Answer:
        """Send a request; NotHeard if nobody took it, Unavailable if no answer came."""
        import httpx2

        waits = request.wait_s > 0
        with self._lock:
            client = self._clients.get(waits)
            if client is None:
                client = self._clients[waits] = httpx2.Client(**self._how(waits=waits))
        try:
            return _answer(client.request(request.method, request.path, **_said(request)))
        except httpx2.HTTPError as error:
            raise self._silent(error, request) from error

    async def asend(self, request: Request) -> Answer:
        """Send a request; NotHeard if nobody took it, Unavailable if no answer came."""
        import httpx2

        waits = request.wait_s > 0
        client = self._in_loops.get((asyncio.get_running_loop(), waits)) or self._new_in_loop(waits=waits)
        try:
            return _answer(await client.request(request.method, request.path, **_said(request)))
        except httpx2.HTTPError as error:
            raise self._silent(error, request) from error

    def close(self) -> None:
        """Close the connections of blocking calls; those of an event loop are closed in it, by `aclose`."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of blocking calls, and those of this event loop."""
        self.close()
        loop = asyncio.get_running_loop()
        with self._lock:
            clients = list(filter(None, [self._in_loops.pop((loop, waits), None) for waits in (False, True)]))
        for client in clients:
            await client.aclose()

    def leave(self) -> None:
        """Close all connections, those of event loops in their loops; for a door that nobody is at."""
        self.close()
        with self._lock:
            in_loops, self._in_loops = self._in_loops, {}
        for (loop, _), client in in_loops.items():
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(client.aclose(), loop)

    def _new_in_loop(self, *, waits: bool) -> httpx2.AsyncClient:
        from windlass.httpclient import AsyncClient

        with self._lock:
            # Connections belong to their loop, and what it left behind goes with it.
            self._in_loops = {place: client for place, client in self._in_loops.items() if not place[0].is_closed()}
            client = AsyncClient(**self._how(waits=waits))
            self._in_loops[asyncio.get_running_loop(), waits] = client
        return client

    def _how(self, *, waits: bool) -> dict[str, Any]:
        import httpx2

        from windlass.httpclient import trusted_for

        most, kept = (None, KEPT_WAITS) if waits else (CONNECTIONS, CONNECTIONS)
        return {
            "base_url": f"{self.url}/api/v1",
            "headers": self._headers,
            "limits": httpx2.Limits(max_connections=most, max_keepalive_connections=kept),
            # What was found on this machine is not behind a proxy.
            "trust_env": not self.is_found,
            "verify": trusted_for(self.url),
        }

    def _silent(self, error: httpx2.HTTPError, request: Request) -> Unavailable:
        import httpx2

        why = str(error) or type(error).__name__
        if isinstance(error, httpx2.PoolTimeout):
            return NotHeard(
                f"All {CONNECTIONS} connections of this program to {self.where} were in use for {CONNECT_S:g} s, so "
                "the request was not sent. Make fewer calls at one time, or try again."
            )
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return ServerDown(
                f"No server answers at {self.where}: {why}. Start one with `windlass server`, or set WINDLASS_URL."
            )
        silence = f"No answer came from {self.where}: {why}."
        if request.method == "GET" or request.key is not None:  # what to do about a key is told after the last try
            return Unavailable(silence)
        safely = ", or submit with an idempotency_key and repeat it safely" if request.job_count else ""
        return Unavailable(f"{silence} Whether the request was heard is not known: look before you repeat it{safely}.")


class EmbeddedDoor:
    """An engine inside this program, opened when it is used."""

    is_found = True
    is_server = False

    def __init__(self, settings: Settings) -> None:
        self.where = without_password(settings.database.url)
        self.way: object = settings
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

    def leave(self) -> None:
        """End the engine in a thread of its own: that takes a while."""
        threading.Thread(target=self.close, name="windlass-leave").start()

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

    connect_s = min(CONNECT_S, request.connect_s)
    timeout = httpx2.Timeout(request.answer_s + request.wait_s, connect=connect_s, pool=CONNECT_S)
    return {"params": dict(request.query), "content": request.body, "timeout": timeout}


def _answer(response: httpx2.Response) -> Answer:
    return Answer(response.status_code, response.content, {k.lower(): v for k, v in response.headers.items()})
