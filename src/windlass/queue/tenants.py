"""Tenants: whose jobs, queues, workers and keys these are.

A tenant comes by `create`, or by the first submit that names it (lanes.py). One that has jobs, live or finished, or
keys that may be used cannot be deleted. Deleting, making lanes and making keys (keys.py) meet on the tenant's row, so
that none of them misses what another has written.

A deleted tenant leaves its lanes behind, plain and empty: a lane's number never changes, every server remembers it, and
a submit that began before may still put its job there. That job is not lost; it runs, and is found by its id.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import AlreadyExists, Conflict, NotFound
from windlass.queue.history import MAX_PAGE
from windlass.queue.lanes import SQL as LANES
from windlass.queue.lanes import STRICT_PRIORITY_MS, Lanes
from windlass.queue.newjob import check_name

SQL = load(__file__)

DEFAULT = "default"
MOST_COUNTED = 1000
"""What a refused delete counts up to; beyond it the exact number would cost more than it tells."""


class TenantPause(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing of a tenant is handed out."""

    reason: str | None
    actor: str | None
    paused_at: datetime
    resume_at: datetime | None


class Tenant(msgspec.Struct, frozen=True):
    """A tenant as it can be looked up."""

    name: str
    created_at: datetime
    pause: TenantPause | None = None


class TenantPage(msgspec.Struct, frozen=True):
    """Some tenants by name; `next_cursor` is None when there are no more."""

    tenants: list[Tenant]
    next_cursor: str | None


async def create(db: Statements, name: str) -> Tenant:
    """Make a tenant and return it; AlreadyExists if there is one of this name."""
    check_name("tenant", name)
    rows = await db.fetch(SQL.create_tenant, tenant=name)
    if not rows:
        raise AlreadyExists(f"There is a tenant {name} already. Use it, or choose another name.")
    return Tenant(rows[0]["name"], rows[0]["created_at"])


async def get(db: Statements, name: str) -> Tenant:
    """Return the tenant; NotFound if there is none of this name."""
    rows = await db.fetch(SQL.get_tenant, tenant=name)
    if not rows:
        raise _unknown(name)
    return _tenant_from_row(rows[0])


async def list_tenants(db: Statements, *, limit: int = 100, cursor: str | None = None) -> TenantPage:
    """Return up to `limit` tenants by name, from above `cursor` on."""
    limit = max(1, min(limit, MAX_PAGE))
    rows = await db.fetch(SQL.list_tenants, limit=limit + 1, cursor=cursor or "")
    tenants = [_tenant_from_row(row) for row in rows[:limit]]
    return TenantPage(tenants, tenants[-1].name if len(rows) > limit else None)


async def delete(db: Statements, lanes: Lanes, name: str) -> None:
    """Remove a tenant that has nothing left; Conflict says what it still has, NotFound if it is unknown."""
    if name == DEFAULT:
        raise Conflict(f"Tenant {DEFAULT} cannot be deleted: it is the one of callers that name none.")
    async with db.transaction() as transaction:
        if not await transaction.fetch(LANES.lock_tenant, tenant=name):
            raise _unknown(name)
        # In the next statement: what a rival made while its lock was waited for is seen now.
        [held] = await transaction.fetch(SQL.count_held, tenant=name, most=MOST_COUNTED + 1)
        if any(held.values()):
            raise Conflict(
                f"Tenant {name} cannot be deleted: it has {_shown(held['live'])} live jobs, "
                f"{_shown(held['finished'])} finished jobs, {_shown(held['schedules'])} schedules and "
                f"{_shown(held['keys'])} keys. "
                "Delete the schedules, cancel the jobs, wait until retention has removed them, and revoke the keys."
            )
        await transaction.fetch(SQL.reset_lanes, tenant=name, credit_ms=STRICT_PRIORITY_MS)
        for query in (SQL.drop_pauses, SQL.drop_keys, SQL.drop_tenant):
            await transaction.fetch(query, tenant=name)
    lanes.forget(name)


def _shown(count: int) -> str:
    return str(count) if count <= MOST_COUNTED else f"more than {MOST_COUNTED}"


def _unknown(name: str) -> NotFound:
    return NotFound(f"There is no tenant {name}.")


def _tenant_from_row(row: Row) -> Tenant:
    if row["paused_at"] is None:
        return Tenant(row["name"], row["created_at"])
    pause = TenantPause(
        reason=row["reason"], actor=row["actor"], paused_at=row["paused_at"], resume_at=row["resume_at"]
    )
    return Tenant(row["name"], row["created_at"], pause)
