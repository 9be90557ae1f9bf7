"""Whether the worker is well: `/healthz` on `worker.health_address`, for a platform's probe (K18).

It answers 200 while the claims and heartbeats of every runner advance, else 503 with the reasons. It stands in the
process that runs no user code, so that a task that holds the interpreter cannot hold up the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from windlass import log
from windlass.errors import SetupError

READ_S = 5.0
LONGEST_LINE = 8192
_TEXTS = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


@asynccontextmanager
async def answering(address: str, problems: Callable[[], list[str]]) -> AsyncIterator[int]:
    """Answer probes within the block, at the port that is yielded; SetupError if the address cannot be had."""
    host, _, port = address.rpartition(":")
    try:
        server = await asyncio.start_server(_Door(problems).answer, host, int(port), limit=LONGEST_LINE)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SetupError(
            f"Cannot answer probes on {address}: {reason}. Set worker.health_address to another address."
        ) from error
    async with server:
        yield server.sockets[0].getsockname()[1]


class _Door:
    def __init__(self, problems: Callable[[], list[str]]) -> None:
        self._problems = problems
        self._was_well = True

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close."""
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(READ_S):
                first = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                writer.write(self._response(first))
                await writer.drain()
        writer.close()

    def _response(self, request_line: bytes) -> bytes:
        words = request_line.split()
        path = words[1].split(b"?")[0] if len(words) > 1 else b""
        if path != b"/healthz":
            return _http(404, {"status": "not found", "reasons": ["Ask for /healthz."]})
        reasons = self._problems()
        if bool(reasons) == self._was_well:
            self._was_well = not reasons
            log.event("worker.health", reason="; ".join(reasons) or "well again")
        return _http(503 if reasons else 200, {"status": "failing" if reasons else "ok", "reasons": reasons})


def _http(status: int, said: object) -> bytes:
    body = msgspec.json.encode(said)
    head = (
        f"HTTP/1.1 {status} {_TEXTS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
