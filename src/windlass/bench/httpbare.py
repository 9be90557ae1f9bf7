"""The bare endpoint: what uvicorn, httptools and uvloop cost by themselves, run as a process of its own.

It reads the body, looks at nothing, and answers about 100 bytes of JSON. No routing, no checks, no database.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn
import uvloop

ANSWER = b'{"id":"0197c2aa-0000-7000-8000-000000000000","status":"queued","state":"queued","next_run_at":null}'
HEADERS = [(b"content-length", str(len(ANSWER)).encode()), (b"content-type", b"application/json")]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request alike."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


def main() -> None:
    """Serve until a signal, having told the address as the real server does."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(
        app, loop="none", http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    config.server_header = config.date_header = False
    sys.stderr.write(f"Bare endpoint serves http://127.0.0.1:{listener.getsockname()[1]} (bare).\n")
    sys.stderr.flush()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
