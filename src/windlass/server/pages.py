"""Pages: web pages of others must not act here through the browser of somebody who may.

A browser sends some requests for any page without asking, and a page whose name was made to point here (rebinding) may
even read the answers. Only a server that asks for no key needs this: a page has no key to send. What a browser cannot
be kept from telling is looked at: the name it was told to call, the page's origin, and whether it is of the same one.
Programs that are no browsers send none of these but the name, which is loopback's or the server's own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from windlass.errors import Forbidden

_OWN_SITES = frozenset({"same-origin", "none"})


def refuse_pages(headers: Mapping[str, str], hosts: Collection[str]) -> None:
    """Return if this is no request of another's web page; Forbidden if it is one, or may be."""
    host = headers.get("host")
    if host is not None and not _is_ours(_name(f"//{host}"), hosts):
        raise Forbidden(
            f"This server asks for no key, and is not known as {host[:100]!r}. "
            "Call it by its address, or set server.url to that name, or use keys."
        )
    origin = headers.get("origin")
    foreign = origin is not None and origin.partition("://")[2].lower() != (host or "").lower()
    if foreign or headers.get("sec-fetch-site", "none") not in _OWN_SITES:
        raise Forbidden("This server asks for no key, so web pages of others may not call it. Use keys to allow that.")


def _name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_ours(name: str, hosts: Collection[str]) -> bool:
    """Say whether a name can be trusted to point here: an address cannot be made to point elsewhere."""
    if name == "localhost" or name in hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
