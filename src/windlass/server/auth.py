"""Who calls, and what the key allows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from windlass.errors import Forbidden


class Principal(msgspec.Struct, frozen=True):
    """Who calls."""

    key_id: str | None
    name: str
    tenant: str | None
    scopes: frozenset[str]
    queues: frozenset[str] | None = None


class Gate(Protocol):
    """Lets callers in by their key."""

    async def admit(self, headers: Mapping[str, str], query_names: Collection[str], address: str) -> Principal:
        """Return who calls; Unauthorized, TooMany or Unavailable otherwise."""


def require(principal: Principal, scope: str) -> None:
    """Return if the principal has the scope; Forbidden otherwise."""
    if scope not in principal.scopes and "admin" not in principal.scopes:
        raise Forbidden(f"This key lacks the scope {scope}. Use a key that has it.")
