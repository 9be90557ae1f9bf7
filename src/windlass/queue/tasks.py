"""Tasks: which arguments they take, as their workers publish it when they register.

Two builds of a worker may publish different signatures of one task; each counts for a day after it was published last,
so that a payload for the old or the new one is taken while both are about. Submits are checked against them in memory
(engine/signatures.py); what nobody publishes any more is swept by retention.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from itertools import groupby

import msgspec

from windlass.db import Statements, load
from windlass.queue.newjob import check_json, check_name

SQL = load(__file__)

VALID_MS = 24 * 3600 * 1000
MAX_PAGE = 500
MAX_SIGNATURE = 65_536


class Published(msgspec.Struct, frozen=True):
    """A signature that counts, and how long ago it was told."""

    tenant: str
    name: str
    fingerprint: str
    signature: str
    age_s: float


class Listed(msgspec.Struct, frozen=True):
    """A task with its signatures, the newest first."""

    name: str
    signatures: list[str]
    seen_at: datetime


class Page(msgspec.Struct, frozen=True):
    """Some tasks by name; `next_cursor` is None when there are no more."""

    tasks: list[Listed]
    next_cursor: str | None


async def publish(db: Statements, tenant: str, signatures: Mapping[str, str]) -> None:
    """Keep the signatures of tasks, JSON texts by name; saying them again makes them count for another day."""
    check_name("tenant", tenant)
    for name, text in signatures.items():
        check_name("signatures", name)
        check_json("signatures", text, longest=MAX_SIGNATURE)
    rows = [(tenant, name, fingerprint(text), text) for name, text in sorted(signatures.items())]
    if rows:
        await db.fetch(SQL.publish, tasks=rows)


async def recent(db: Statements, *, age_ms: int = VALID_MS) -> list[Published]:
    """Return what was published within an age, of all tenants, the oldest first."""
    return [Published(**dict(row)) for row in await db.fetch(SQL.recent, age_ms=age_ms)]


async def list_tasks(db: Statements, tenant: str, *, limit: int = 100, cursor: str | None = None) -> Page:
    """Return up to `limit` tasks by name, from above `cursor` on."""
    limit = max(1, min(limit, MAX_PAGE))
    rows = await db.fetch(SQL.list_tasks, tenant=tenant, limit=limit + 1, cursor=cursor or "")
    found = []
    for name, group in groupby(rows, key=lambda row: row["name"]):
        told = list(group)
        found.append(Listed(name, [row["signature"] for row in told], told[0]["seen_at"]))
    return Page(found[:limit], found[limit - 1].name if len(found) > limit else None)


def fingerprint(signature: str) -> str:
    """Return what tells one signature from another."""
    return hashlib.sha256(signature.encode()).hexdigest()[:32]
