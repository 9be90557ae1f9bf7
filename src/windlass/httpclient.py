"""What our HTTP clients share: the certificates they trust, and the error for a connection that is reset at once."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import httpx2


class AsyncClient(httpx2.AsyncClient):
    """httpx2's client, whose every failure of a connection is an HTTPError under uvloop too."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; ConnectError also where the connection was reset as soon as it was made."""
        try:
            return await super().send(request, **options)
        except AttributeError as error:
            # uvloop has no socket for a connection that has gone, and anyio asks that None for its peer: before
            # anything is sent, since later the socket that was there first is remembered.
            raise httpx2.ConnectError("connection reset as soon as it was made", request=request) from error


def trusted_for(url: str) -> ssl.SSLContext | bool:
    """Return `verify` for a client of this URL: the machine's certificates, or False where plain HTTP has none."""
    # Reading the machine's certificates takes 35 ms, as long as some commands take for all the rest.
    return False if url.lower().startswith("http:") else _of_this_machine()


@cache
def _of_this_machine() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
