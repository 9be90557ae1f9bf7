"""Which certificates a client of ours trusts."""

from __future__ import annotations

import ssl
from functools import cache


def trusted_for(url: str) -> ssl.SSLContext | bool:
    """Return `verify` for a client of this URL: the machine's certificates, or False where plain HTTP has none."""
    # Reading the machine's certificates takes 35 ms, as long as some commands take for all the rest.
    return False if url.lower().startswith("http:") else _of_this_machine()


@cache
def _of_this_machine() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()
