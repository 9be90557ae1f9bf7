"""A whole server on a port, in a thread of its own, for tests that must come over the network."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from windlass.config import Settings
from windlass.db import open_database
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.ids import Ids
from windlass.queue.keys import bootstrap
from windlass.server.app import create_app
from windlass.server.auth import Gate
from windlass.server.protocol import Protocol


@contextmanager
def serving(database_url: str, token: str) -> Iterator[str]:
    """Serve a database with keys required, `token` being an admin's; give the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    ready = threading.Event()
    stop: list[tuple[asyncio.AbstractEventLoop, uvicorn.Server]] = []

    async def serve() -> None:
        db = await open_database(database_url)
        await bootstrap(db, token)
        engine = Engine(db, Settings(), name="scheduler_test_1", ids=Ids(), outside=Outside())
        async with engine.running():
            app = create_app(engine, engine.settings, Gate(db, keys_required=True))
            options = uvicorn.Config(app, http=Protocol, ws="none", lifespan="off", log_config=None, access_log=False)
            server = uvicorn.Server(options)
            stop.append((asyncio.get_running_loop(), server))
            ready.set()
            await server.serve(sockets=[listener])
        await db.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="server")
    thread.start()
    try:
        assert ready.wait(20), "The server did not start."
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        loop, server = stop[0]
        loop.call_soon_threadsafe(setattr, server, "should_exit", True)
        thread.join(20)
        listener.close()
