"""A server without a port, inside a user's program: a thread with a loop, an engine, and the whole API on it.

Where no server runs, `App` (client/app.py) asks here: the same requests, the same endpoints, the same answers. Jobs are
submitted and read under the database's own locks, beside any server that may run; they are claimed only by who has the
server's role on a SQLite file, so without `claims` this hands out nothing and does no duties.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import weakref
from collections.abc import Mapping, MutableMapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from typing import Any
from urllib.parse import urlencode

from windlass.config import Settings
from windlass.config.address import sqlite_file
from windlass.db import Database, open_database
from windlass.db import migrate as migrations
from windlass.db.files import make_private
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.errors import Unavailable
from windlass.server.app import Door, create_app
from windlass.server.auth import Gate

CONNECTIONS = 3
CLOSE_S = 10.0
LEFT_S = 1.0
Asked = tuple[int, bytes, dict[str, str]]


class Embedded:
    """An engine in a thread of its own; usable from every other thread. It is ended with the program."""

    def __init__(self, settings: Settings, *, claims: bool = False) -> None:
        """Open the database; DatabaseLocked if it is to claim and a server has the file."""
        self._settings = settings
        self._claims = claims
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._door: Door
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._live, name="windlass-embedded", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        except BaseException:
            self.close()
            raise
        # Before the threads of executors are ended, which atexit comes after; and without keeping a closed one alive.
        end = weakref.WeakMethod(self.close)
        getattr(threading, "_register_atexit")(lambda: (close := end()) and close())  # noqa: B009

    def ask(self, method: str, path: str, *, query: Mapping[str, Any], body: bytes | None) -> Future[Asked]:
        """Have a request answered; the future has status, body and headers, and cancels the request with itself."""
        if self._closed:
            raise Unavailable("The engine inside this program was closed. Ask again.")
        asking = _ask(self._door, method, path, query=query, body=body)
        return asyncio.run_coroutine_threadsafe(asking, self._loop)

    def close(self) -> None:
        """End the engine, the thread, and let go of the database."""
        # A forked child has neither the thread nor the right to close what its parent uses.
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result(CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            # A query that was cut off is cancelled by a task of its driver's: its connection is closed with it.
            left = asyncio.all_tasks(self._loop)
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=LEFT_S))
        finally:
            self._loop.close()

    async def _open(self) -> None:
        db = await open_here(self._settings, claims=self._claims)
        self._stack.push_async_callback(db.close)
        name = f"embedded_{socket.gethostname()}_{os.getpid()}"
        engine = Engine(db, self._settings, name=name, outside=Outside())
        await self._stack.enter_async_context(engine.running(claims=self._claims))
        self._door = create_app(engine, self._settings, Gate(db, keys_required=False))


async def open_here(settings: Settings, *, claims: bool = False) -> Database:
    """Return the database, open beside whatever server it has; an empty SQLite file is set up."""
    file = sqlite_file(settings.database.url)
    if file is not None and not claims:
        # A client makes no file by a mistyped name; here nobody else may be there to make it.
        make_private(file)
    db = await open_database(
        settings.database.url,
        role="server" if claims else "client",
        connections=CONNECTIONS,
        readers=settings.database.pool_size,
    )
    try:
        # A PostgreSQL is somebody's to set up: the address may be a mistake, the role may not be allowed to.
        await (migrations.check_schema if file is None else migrations.ensure_schema)(db)
    except BaseException:
        await db.close()
        raise
    return db


async def _ask(door: Door, method: str, path: str, *, query: Mapping[str, Any], body: bytes | None) -> Asked:
    """Call the application as a server of HTTP would."""
    headers = [] if body is None else [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {
        "type": "http",
        "method": method,
        "path": f"/api/v1{path}",
        "query_string": urlencode(query).encode(),
        "headers": headers,
        "client": None,
    }
    heard: list[MutableMapping[str, Any]] = []
    said = [{"type": "http.request", "body": body or b"", "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if said:
            return said.pop()
        await asyncio.Event().wait()  # whoever asks goes by cancelling
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        heard.append(message)

    await door(scope, receive, send)
    status = next(message["status"] for message in heard if message["type"] == "http.response.start")
    sent = {key.decode(): value.decode() for key, value in heard[0]["headers"]}
    return status, b"".join(message.get("body", b"") for message in heard[1:]), sent
