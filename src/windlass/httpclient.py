"""The HTTP clients of Windlass: they share trusted certificates, the error of a reset connection, and cancellation."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Any, TypeVar, cast

import anyio
import httpx2

T = TypeVar("T")


class AsyncClient(httpx2.AsyncClient):
    """httpx2's client: a failed connection is an HTTPError under uvloop too, and a cancel leaves none open."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; ConnectError also where the connection was reset as soon as it was made."""
        try:
            return await _cancelled_by_scope(partial(super().send, request, **options))
        except AttributeError as error:
            # uvloop has no socket for a connection that has gone, and anyio asks that None for its peer: before
            # anything is sent, since later the socket that was there first is remembered.
            raise httpx2.ConnectError("connection reset as soon as it was made", request=request) from error

    async def aclose(self) -> None:
        """Close all connections."""
        await _cancelled_by_scope(super().aclose)


async def _cancelled_by_scope(work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` returns; if the caller is cancelled, `work` is cancelled by a scope of anyio.

    Connections that the server has ended are closed one after the other before the next request is sent. httpcore2
    shields that from anyio's cancellation, but not from asyncio's, which leaves all but the first of them open.
    """
    scope, cancelled = anyio.CancelScope(), None

    async def scoped() -> T | None:
        with scope:
            return await work()
        return None

    task = asyncio.create_task(scoped())
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
            scope.cancel()
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # or the loop would tell of an error that nobody asked for
        raise cancelled
    return cast(T, task.result())


def trusted_for(url: str) -> ssl.SSLContext | bool:
    """Return `verify` for a client of this URL: the machine's certificates, or False where plain HTTP has none."""
    # Reading the machine's certificates takes 35 ms, as long as some commands take for all the rest.
    return False if url.lower().startswith("http:") else _of_this_machine()


@cache
def _of_this_machine() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
