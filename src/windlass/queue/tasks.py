"""Tasks: which arguments they take and which options their jobs have, as workers publish it when they register.

Two builds of a worker may publish different signatures of one task; each counts for a day after it was published last,
so that a payload for the old or the new one is taken while both are about. The options are those of the build whose
worker registered last, as long as it is kept. Submits are checked and filled in from memory (engine/signatures.py);
what nobody publishes any more is swept by retention.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import groupby

import msgspec

from windlass.db import Statements, load
from windlass.errors import InvalidInput
from windlass.queue import views
from windlass.queue.newjob import check_json, check_name

SQL = load(__file__)

VALID_MS = 24 * 3600 * 1000
"""So long a payload is checked against a signature that no worker publishes any more."""
KEPT_MS = 7 * VALID_MS
"""So long such a signature is kept, and its options count."""
MAX_PAGE = 500
MAX_SIGNATURE = 65_536
MAX_BUILDS = 20
"""How many builds of a task are listed, the newest."""
MOST_BUILDS = 2500
"""Signatures that are kept of one tenant: five hundred tasks in five builds."""
MOST_BYTES = 2 << 20
"""Bytes of signatures that are kept of one tenant."""


class Published(msgspec.Struct, frozen=True):
    """A signature that counts, and how long ago it was told."""

    tenant: str
    name: str
    fingerprint: str
    signature: str
    age_s: float
    registered_at: datetime
    """When a worker of this build registered last."""


class Listed(msgspec.Struct, frozen=True):
    """A task with its signatures, the newest build first."""

    name: str
    signatures: list[str]
    seen_at: datetime


class Page(msgspec.Struct, frozen=True):
    """Some tasks by name; `next_cursor` is None when there are no more."""

    tasks: list[Listed]
    next_cursor: str | None


async def publish(db: Statements, tenant: str, signatures: Mapping[str, str]) -> set[str]:
    """Keep the signatures of a worker that registers, JSON texts by name; return those of which something was written.

    Each counts for another day. A tenant that has too many loses those that were told longest ago.
    """
    check_name("tenant", tenant)
    for name, text in signatures.items():
        check_name("signatures", name)
        check_json("signatures", text, longest=MAX_SIGNATURE)
    rows = [(tenant, name, fingerprint(text), text) for name, text in sorted(signatures.items())]
    written = {row["name"] for row in await db.fetch(SQL.publish, tasks=rows)} if rows else set()
    if written:
        await db.fetch(SQL.trim, tenant=tenant, most=MOST_BUILDS, most_bytes=MOST_BYTES)
    return written


def check_size(signatures: Mapping[str, str]) -> None:
    """Return if the signatures of one worker can be kept together; InvalidInput otherwise."""
    size = sum(len(text.encode()) for text in signatures.values())
    if size > MOST_BYTES:
        problem = f"{size} bytes together, more than the {MOST_BYTES} that are kept of a tenant."
        raise InvalidInput("signatures", f"{problem} Let the worker have fewer tasks.")


async def renew(db: Statements, tenant: str, builds: Iterable[tuple[str, str]]) -> None:
    """Let signatures, each by name and fingerprint, count for another day: a worker that has them goes on."""
    await db.fetch(SQL.renew, tasks=[(tenant, *build) for build in sorted(builds)])


async def recent(db: Statements, tenant: str, *, age_ms: int = VALID_MS) -> list[Published]:
    """Return what was published within an age by a tenant, the oldest first."""
    rows = await db.fetch(SQL.recent, tenant=tenant, age_ms=age_ms)
    return [Published(**dict(row)) for row in rows]


async def of_tasks(db: Statements, names: Iterable[tuple[str, str]]) -> list[Published]:
    """Return what was published of tasks, each by tenant and name, the oldest first."""
    return [Published(**dict(row)) for row in await db.fetch(SQL.of_tasks, tasks=sorted(names))]


async def tenant_made(db: Statements, tenant: str) -> float | None:
    """Return how many seconds ago a tenant was made; None if there is none."""
    rows = await db.fetch(SQL.tenant_made, tenant=tenant)
    return rows[0]["age_s"] if rows else None


async def list_tasks(db: Statements, tenant: str, *, limit: int = 100, cursor: str | None = None) -> Page:
    """Return up to `limit` tasks by name, from above `cursor` on, as many as fit; of each its newest builds."""
    limit = max(1, min(limit, MAX_PAGE))
    among = {"tenant": tenant, "limit": limit + 1, "cursor": cursor or ""}
    rows = await db.fetch(SQL.list_tasks, builds=MAX_BUILDS, most=views.LIST_BYTES, **among)
    found = []
    for name, group in groupby(rows, key=lambda row: row["name"]):
        told = list(group)
        seen_at = max(row["seen_at"] for row in told)
        found.append(Listed(name, [row["signature"] for row in told], seen_at))
    found = found[:limit]
    return Page(found, found[-1].name if found and rows[0]["found"] > len(found) else None)


def fingerprint(signature: str) -> str:
    """Return what tells one signature from another."""
    return hashlib.sha256(signature.encode()).hexdigest()[:32]
