"""Health, version, the document of the API and its page: what is open to everybody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from windlass import __version__
from windlass.errors import Contention, Damaged, WindlassError
from windlass.queue.duties import touch_server
from windlass.queue.tenants import list_tenants
from windlass.server import openapi, reference
from windlass.server.call import Call, Described, Reply
from windlass.server.route import Route
from windlass.wire.admin import Health, Version

if TYPE_CHECKING:
    from windlass.engine.engine import Engine

LOOKED_S = 1.0
"""How long the database is believed to be as it was: callers of an open route must not be able to keep it busy."""
ANSWER_S = 2.0
"""How long the database may take over a read."""
WRITE_S = 10.0
"""How long it is waited for a write, so that those who ask meanwhile begin no other."""
CALLER_S = 3.0
"""How long a read and a write may take: many times what the line of writes takes under load. Unknown is not ready."""

DAMAGED = "The database is damaged."
LOCKED = "The database takes no writes: another program holds a lock, or too many writes wait."

logger = logging.getLogger("windlass")


def describe(routes: Sequence[Route]) -> Described:
    """Return the OpenAPI document of these routes, and the page of it."""
    document = openapi.document(routes)
    return Described(msgspec.json.encode(document), reference.page(document).encode())


class Lobby:
    """What is open to everybody, on one server."""

    def __init__(self, engine: Engine, routes: Sequence[Route]) -> None:
        self._engine = engine
        self._routes = routes
        self._described: Described | None = None
        self._looked_at = float("-inf")
        self._looking: asyncio.Task[list[str]] | None = None

    async def reasons(self) -> list[str]:
        """Return why this server cannot do its work; an empty list when it can."""
        if self._engine.draining:
            return ["This server is stopping."]
        now = self._engine.outside.monotonic()
        if self._looking is None or (self._looking.done() and now - self._looked_at > LOOKED_S):
            self._looked_at = now
            self._looking = asyncio.create_task(self._ask_database(), name="ready")
        looking = self._looking  # others may begin the next one as soon as this one ends
        await asyncio.wait([looking], timeout=max(0, self._looked_at + CALLER_S - now))
        if not looking.done():
            return [LOCKED]
        return ["The database has not answered yet."] if looking.cancelled() else looking.result()

    async def described(self) -> Described:
        """Return the document and its page; a thread makes them when they are first asked for, which takes a while."""
        if self._described is None:
            self._described = await asyncio.to_thread(describe, self._routes)
        return self._described

    async def _ask_database(self) -> list[str]:
        """Read, then write and commit a little: a full disk, a standby and a locked database answer reads all the same.

        Whatever goes wrong is a reason, so that a probe is never answered 500.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                await list_tenants(self._engine.db, limit=1)
        except Exception as error:
            return [_reason(error, "The database does not answer.")]
        try:
            async with asyncio.timeout(WRITE_S):
                await self._write()
        except (Contention, TimeoutError):
            return [LOCKED]
        except Exception as error:
            return [_reason(error, "The database takes no writes.")]
        return []

    async def _write(self) -> None:
        """Write a little. Raises Contention if somebody else holds a lock, and not only for a moment."""
        with suppress(Contention):
            await touch_server(self._engine.db, self._engine.id)
            return
        await touch_server(self._engine.db, self._engine.id)


def _reason(error: Exception, otherwise: str) -> str:
    """Return the reason in our words; an error that is none of ours goes to the log."""
    if not isinstance(error, WindlassError | TimeoutError):
        logger.warning("The database could not be asked whether it takes writes: %r", error)
    return DAMAGED if isinstance(error, Damaged) else otherwise


async def ready(call: Call) -> Reply:
    """Answer 200 while this server can do its work: its database answers and takes writes, and it is not stopping."""
    reasons = await call.lobby.reasons()
    health = Health(status="unavailable" if reasons else "ok", reasons=reasons)
    return Reply(503 if reasons else 200, health, ((b"retry-after", b"1"),) if reasons else ())


async def alive(_call: Call) -> Health:
    """Answer that this process lives."""
    return Health(status="ok")


async def version(_call: Call) -> Version:
    """Answer what runs here."""
    return Version(version=__version__, api=["v1"])


async def document(call: Call) -> Reply:
    """Answer the OpenAPI document."""
    return Reply(200, (await call.lobby.described()).json)


async def docs(call: Call) -> Reply:
    """Answer the reference page."""
    policy = (b"content-security-policy", reference.POLICY)
    return Reply(200, (await call.lobby.described()).html, (policy,), b"text/html; charset=utf-8")
