"""Duties: who does the work that no caller asks for, such as promoting what is due and rescuing what is lost.

Each duty has a lease of its own, so duties spread over the servers. One conditional statement takes it when nobody has
it; its holder renews it by holder and term, and stops when that finds no row (engine/loops.py). The holder is random
for each start of a process: two servers of one name are never taken for each other.
The term rises with every taking and is never reset. Two holders at once do no harm, because every write of a duty is
guarded by what it writes to; the lease only saves work. Claim, submit and report need no holder of anything.
Servers say here that they live, so that each can tell what its share of the duties is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import Contention, NotFound

SQL = load(__file__)

GRACE_MS = 1000
"""How long a successor has to take a duty that was handed to it, before anybody may."""


class Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the holders of a duty have done so far; kept from one to the next."""

    last_run_at: datetime | None = None
    progress_at: datetime | None = None
    """When a run last ended without an error."""
    duration_ms: int | None = None
    """Of the last run."""
    items: int = 0
    errors: int = 0
    note: str | None = None
    """What the last run has to tell others, as JSON."""
    handed_by: UUID | None = None
    """The server that handed the duty over, until its successor has done something."""


class Taken(msgspec.Struct, frozen=True):
    """A duty that was won: its term, when that began, and what the holders before have done."""

    term: int
    acquired_at: datetime
    metadata: Metadata


class Held(msgspec.Struct, frozen=True):
    """A duty as its holder names it; metadata is left as it was where there is none."""

    name: str
    term: int
    metadata: Metadata | None = None


class Alive(msgspec.Struct, frozen=True):
    """What a server learns by its heartbeat: the other servers that live, and the duties as they stand, by name."""

    others: list[UUID]
    duties: dict[str, Duty]


class Duty(msgspec.Struct, frozen=True, kw_only=True):
    """A duty as it stands: `held_by` is the server that has it, None when it is free."""

    name: str
    held_by: str | None
    holder: UUID | None
    term: int
    acquired_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    held_for_s: float | None
    heartbeat_age_s: float
    expires_in_s: float
    """Below zero when the lease is over."""
    progress_age_s: float | None
    """Since a run last ended without an error; None when none ever did."""
    metadata: Metadata


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server as it was last heard."""

    id: UUID
    name: str
    version: str
    address: str | None
    started_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    live: bool


async def take(
    db: Statements, names: Sequence[str], *, holder: UUID, server: str, lease_ms: int
) -> Mapping[str, Taken]:
    """Take those of the duties that nobody has or that were handed over; return them by name, none beside rivals."""
    try:
        rows = await db.fetch(SQL.take, names=sorted(names), holder=holder, server=server, lease_ms=lease_ms)
    except Contention:  # somebody has a row locked: whoever that is gets it, or the next round does
        return {}
    return {row["name"]: Taken(row["term"], row["acquired_at"], _metadata(row["metadata"])) for row in rows}


async def renew(db: Statements, held: Sequence[Held], *, holder: UUID, lease_ms: int) -> dict[str, datetime]:
    """Prolong the leases; return by name when, without those that are no longer the holder's in that term."""
    rows = await db.fetch(SQL.renew, held=_rows(held), holder=holder, lease_ms=lease_ms)
    return {row["name"]: row["heartbeat_at"] for row in rows}


async def resign(
    db: Statements, held: Sequence[Held], *, holder: UUID, successors: Mapping[str, UUID] | None = None
) -> set[str]:
    """Give up the leases, each to its successor, else to anybody; return those that were the holder's."""
    rows = [(*row, (successors or {}).get(each.name)) for each, row in zip(held, _rows(held), strict=True)]
    return {row["name"] for row in await db.fetch(SQL.resign, held=rows, holder=holder, grace_ms=GRACE_MS)}


async def release(db: Statements, name: str) -> Duty:
    """Take a duty from whoever has it and return it, free; NotFound if nobody ever had it."""
    rows = await db.fetch(SQL.release, name=name)
    if not rows:
        raise NotFound(f"There is no duty {name!r}: no server has ever taken it. List the duties to see their names.")
    return _duty(rows[0])


async def list_duties(db: Statements) -> list[Duty]:
    """Return every duty that was ever taken, by name."""
    return [_duty(row) for row in await db.fetch(SQL.duties)]


async def beat_server(
    db: Statements, server_id: UUID, *, name: str, version: str, address: str | None, lease_ms: int
) -> Alive:
    """Say that a server lives; return who else does, and the duties."""
    rows = await db.fetch(SQL.beat_server, id=server_id, name=name, version=version, address=address, lease_ms=lease_ms)
    others = [UUID(other) for other in rows[0]["others"].split()]
    return Alive(others, {row["name"]: _duty(row) for row in rows if row["name"] is not None})


async def touch_server(db: Statements, server_id: UUID) -> None:
    """Write that a server was heard, to see whether a write succeeds; its lease stays as it is."""
    await db.fetch(SQL.touch_server, id=server_id)


async def close_server(db: Statements, server_id: UUID) -> None:
    """Say that a server has ended; it is listed for a day."""
    await db.fetch(SQL.close_server, id=server_id)


async def list_servers(db: Statements) -> list[Server]:
    """Return the servers heard within a day, the living first."""
    found = [dict(row) for row in await db.fetch(SQL.servers)]
    return [Server(live=row["expires_at"] > row.pop("now_at"), **row) for row in found]


def _rows(held: Sequence[Held]) -> list[tuple[object, ...]]:
    return [(h.name, h.term, None if h.metadata is None else msgspec.json.encode(h.metadata).decode()) for h in held]


def _duty(row: Row) -> Duty:
    now_at: datetime = row["now_at"]
    metadata = _metadata(row["metadata"])
    held = row["expires_at"] > now_at and row["holder_id"] is not None
    progress_at = metadata.progress_at
    return Duty(
        name=row["name"],
        held_by=row["server"] if held else None,
        holder=row["holder_id"],
        term=row["term"],
        acquired_at=row["acquired_at"],
        heartbeat_at=row["heartbeat_at"],
        expires_at=row["expires_at"],
        held_for_s=(now_at - row["acquired_at"]).total_seconds() if held else None,
        heartbeat_age_s=(now_at - row["heartbeat_at"]).total_seconds(),
        expires_in_s=(row["expires_at"] - now_at).total_seconds(),
        progress_age_s=None if progress_at is None else (now_at - progress_at).total_seconds(),
        metadata=metadata,
    )


def _metadata(text: str) -> Metadata:
    try:
        return msgspec.json.decode(text, type=Metadata)
    except msgspec.DecodeError:  # another version's, or altered by hand: only what it tells is lost
        return Metadata()
