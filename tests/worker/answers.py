"""A small HTTP server that answers what a test says: for what is asked of a cloud."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

Asked = tuple[str, str, dict[str, str]]
"""Method, path with query, and headers by their names in small letters."""
Answering = Callable[[Asked], tuple[int, str] | tuple[int, str, dict[str, str]]]


@asynccontextmanager
async def answers(answering: Answering, asked: list[Asked] | None = None) -> AsyncIterator[str]:
    """Serve within the block; yield the URL. What is asked is added to `asked`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while first := (await reader.readline()).decode().split():
                headers = {}
                while name_and_value := (await reader.readline()).decode().strip():
                    name, _, value = name_and_value.partition(":")
                    headers[name.strip().lower()] = value.strip()
                request = (first[0], first[1], headers)
                if asked is not None:
                    asked.append(request)
                status, text, *more = answering(request)
                extra = "".join(f"{name}: {value}\r\n" for given in more for name, value in given.items())
                head = f"HTTP/1.1 {status} So\r\nContent-Length: {len(text.encode())}\r\n{extra}\r\n"
                writer.write(head.encode() + text.encode())
                await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
