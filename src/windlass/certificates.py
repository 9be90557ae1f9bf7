"""Whose certificates are believed by who asks a server."""

from __future__ import annotations

import ssl
from functools import cache


def believed(url: str) -> ssl.SSLContext | bool:
    """Return what a client of this URL takes as `verify`; over plain HTTP there is no certificate."""
    # Reading those of this machine takes a process 35 ms, as long as some commands take for all the rest.
    return False if url.lower().startswith("http:") else _machines()


@cache
def _machines() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()
