"""Presence: the sign of life of a caller that keeps no session.

Such a caller has a session for each of its jobs (workers.py), and between jobs it would be nobody. Its presence is a
session that never holds a lease: a worker has one at most, and every call that names the worker renews it.
A worker that registers without a session gets one; the call that names it as a session makes it one, from then on.
How long it lasts: as long as the worker asked for when it registered; else as its calls show.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.queue.workers import BareSession, NewSession, check_bare, check_session

SQL = load(__file__)

ASKED = 2
"""What `presence` says of one whose length its worker has asked for; 1 of the others."""
SLOW_MS = 300_000
"""How long a caller is alive that beats once a minute."""


class Presence(msgspec.Struct, frozen=True):
    """The presence of a worker: its start, and how long after a call it is alive."""

    id: UUID
    lease_ms: int
    lease_asked: bool
    """The worker asked for the length when it registered."""
    draining: bool


async def register(db: Statements, session: NewSession, *, lease_asked: bool) -> None:
    """Note what a worker says of itself that names no session; `session.id` is its new start."""
    check_session(session)
    kind = ASKED if lease_asked else 1
    await db.fetch(SQL.register, presence=kind, **msgspec.structs.asdict(session))


async def appear(db: Statements, caller: BareSession) -> Presence:
    """Return the presence of a caller, made if it has none; it lasts `lease_ms` at least, unless it asked otherwise."""
    check_bare(caller)
    [row] = await db.fetch(SQL.appear, slow_ms=SLOW_MS, **msgspec.structs.asdict(caller))
    return Presence(row["id"], row["lease_ms"], row["presence"] == ASKED, bool(row["draining"]))
