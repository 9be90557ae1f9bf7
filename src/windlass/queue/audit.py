"""Audit: what people did by hand: who, when, from where, to what, and what it was before and after.

Entries are added and never changed; only retention removes them. Given an open transaction, `record` joins it, so that
an act and its entry are written together or not at all. A tenant reads its own entries; those of acts above all tenants
have an empty tenant and are read without one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import InvalidInput
from windlass.ids import Ids
from windlass.queue import views
from windlass.queue.history import MAX_PAGE
from windlass.queue.newjob import MAX_NAME, check_json, storable

SQL = load(__file__)

MAX_SHOWN = 16_384
"""Characters kept of what was and what became."""
MAX_FIELD = 1024
"""Characters kept of who, from where, what and why: a record must not fail because of what a caller wrote."""
_NEWEST = UUID(int=2**128 - 1)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One act to record; `None` means absent."""

    action: str
    """A noun and a verb: `job.cancel`."""
    subject: str
    """What it was done to: an id or a name."""
    tenant: str = ""
    """Empty: the act was above all tenants."""
    actor: str | None = None
    """The name of a key, which anybody may choose, with its id behind, which nobody may."""
    address: str | None = None
    request_id: str | None = None
    reason: str | None = None
    was: str | None = None
    """JSON text; too long a one is cut, and then stands as a string under `cut`."""
    became: str | None = None


class Recorded(Entry, frozen=True, kw_only=True):
    """An entry as it was written."""

    id: UUID
    happened_at: datetime


class AuditPage(msgspec.Struct, frozen=True):
    """Some entries, newest first; `next_cursor` is None when there are no more."""

    entries: list[Recorded]
    next_cursor: UUID | None


async def record(db: Statements, ids: Ids, entry: Entry) -> UUID:
    """Write an entry and return its id; InvalidInput if what was or became is not JSON."""
    if not 1 <= len(entry.action) <= MAX_NAME:
        raise InvalidInput("action", f"{len(entry.action)} characters; 1 to {MAX_NAME} are accepted.")
    entry_id = ids.new()
    await db.fetch(
        SQL.record,
        id=entry_id,
        tenant=entry.tenant,
        actor=_cut(entry.actor),
        address=_cut(entry.address),
        request=_cut(entry.request_id),
        action=entry.action,
        subject=_cut(entry.subject),
        reason=_cut(entry.reason),
        was=_cut_json("was", entry.was),
        became=_cut_json("became", entry.became),
    )
    return entry_id


async def list_entries(
    db: Statements,
    tenant: str | None = None,
    *,
    limit: int = 100,
    cursor: UUID | None = None,
    action: str | None = None,
    subject: str | None = None,
) -> AuditPage:
    """Return up to `limit` entries of a tenant, or of all, newest first, from below `cursor` on, as many as fit."""
    limit = max(1, min(limit, MAX_PAGE))
    among: dict[str, Any] = {"cursor": cursor or _NEWEST, "action": action, "subject": subject}
    among |= {"limit": limit + 1, "most": views.LIST_BYTES}
    if tenant is None:
        rows = await db.fetch(SQL.list_of_all, **among)
    else:
        rows = await db.fetch(SQL.list_of_tenant, tenant=tenant, **among)
    entries = [_recorded_from_row(row) for row in rows[:limit]]
    return AuditPage(entries, entries[-1].id if rows and rows[0]["found"] > len(entries) else None)


def _recorded_from_row(row: Row) -> Recorded:
    columns = {name: value for name, value in row.items() if name != "found"}
    # Not a UUID of ours, so its column is read under a name that does not say so.
    columns["request_id"] = columns.pop("request")
    return Recorded(**columns)


def _cut(text: str | None) -> str | None:
    return storable(None if text is None else text[:MAX_FIELD])


def _cut_json(field: str, text: str | None) -> str | None:
    if text is None:
        return None
    if len(text) > MAX_SHOWN:
        return msgspec.json.encode({"cut": storable(text[:MAX_SHOWN])}).decode()
    check_json(field, text)
    return text
