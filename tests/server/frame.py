"""What tests of the frame need: a gate with four keys, a small table of routes, and a client without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2

from windlass.clock import system_clock
from windlass.config import Settings
from windlass.engine.acts import Acts
from windlass.engine.fair import LoopTurns, Recent
from windlass.engine.meters import Meters
from windlass.engine.outside import Outside
from windlass.errors import Unauthorized
from windlass.ids import Ids
from windlass.queue.keys import SCOPES as ALL_SCOPES
from windlass.server.app import Door, create_app
from windlass.server.auth import Principal
from windlass.server.route import Route

SCOPES: dict[str, frozenset[str]] = {
    "reader": frozenset({"read"}),
    "producer": frozenset({"submit", "read"}),
    "worker": frozenset({"work"}),
    "submitter": frozenset({"submit"}),
    "operator": frozenset({"operate", "read"}),
    "admin": ALL_SCOPES,
}


class KeyRing:
    """A gate whose keys are called by role and tenant: `reader.a`; `root` has no tenant, `revoked` is no key.

    `worker.a@mail` is limited to a queue, `reader.a@mail,post` to two.
    """

    def __init__(self) -> None:
        self.revoked: set[str] = set()
        self.asked = asyncio.Event()

    async def admit(self, headers: Mapping[str, str], query_names: Collection[str], address: str) -> Principal:
        """Return who the key is for; Unauthorized for every other text."""
        token = headers.get("authorization", "").removeprefix("Bearer ")
        role, _, tenant = token.partition(".")
        tenant, _, queues = tenant.partition("@")
        if token == "root":
            return Principal("root", "root", None, ALL_SCOPES, None)
        if role not in SCOPES or not tenant or {"key", "api_key", "token"} & set(query_names):
            raise Unauthorized("A key is needed. Send it as Authorization: Bearer.")
        return Principal(token, token, tenant, SCOPES[role], frozenset(queues.split(",")) if queues else None)

    async def still_good(self, principal: Principal) -> bool:
        """Say whether the key has not been revoked."""
        self.asked.set()
        return principal.key_id not in self.revoked


class Idle:
    """What the frame itself needs of an engine."""

    draining = False
    name = "scheduler_test_1"

    def __init__(self) -> None:
        self.outside = Outside()
        self.meters = Meters()
        self.loop_turns = LoopTurns()
        self.recent = Recent(self.outside.monotonic)
        self.acts = Acts(*(cast(Any, None),) * 2, Ids(system_clock), wake=cast(Any, None))


def bearer(key: str) -> dict[str, str]:
    """Return the header that carries a key."""
    return {"Authorization": f"Bearer {key}"}


def make_door(
    routes: Sequence[Route], *, engine: Any = None, body_seconds: float = 10.0, connections: int = 25
) -> Door:
    """Return an application of these routes alone, with the keys of KeyRing; ten calls of a key may wait."""
    return create_app(
        cast(Any, engine or Idle()),
        Settings(),
        cast(Any, KeyRing()),
        routes=routes,
        body_seconds=body_seconds,
        connections=connections,
    )


@asynccontextmanager
async def client_of(door: Door, key: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """Give a client that calls the application in this process."""
    transport = httpx2.ASGITransport(app=cast(Any, door))
    headers = bearer(key) if key else {}
    async with httpx2.AsyncClient(transport=transport, base_url="http://windlass.test", headers=headers) as client:
        yield client
