"""Tenants: whose jobs, queues, workers and keys these are.

A tenant comes by `create`, or by the first submit that names it (lanes.py). One that has jobs, live or finished, or
keys that may be used cannot be deleted. Deleting, making lanes and making keys (keys.py) meet on the tenant's row, so
that none of them misses what another has written.

A deleted tenant leaves its lanes behind, plain, empty and retired: a lane's number never changes, and every server
remembers it. A submit that sees that its lane is retired makes the lane, and the tenant, again. One that began before
may not have seen it: `delete` first retires the lanes, waits until all transactions that were writing then have ended,
and is refused if one of them has put a job there, or if a lane was taken into use since, also where another delete has
retired it again. Everything else that bears the name goes with the tenant, and entries
of the audit are for those above tenants: the next owner of the name reads nothing of it. A server may believe a key for
a while after its end: a delete, and a create after an erasure, wait until none does.
A retired lane says that the name had a tenant: what has come under the name since is removed (leftovers.py).

A tenant that has jobs or schedules is removed with all of them by erasure.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import msgspec

from windlass.db import Database, Row, Statements, load
from windlass.errors import AlreadyExists, Conflict, Contention, NotFound
from windlass.ids import Ids
from windlass.queue import erasure, keys, leftovers
from windlass.queue.erasure import Erasure
from windlass.queue.history import MAX_PAGE
from windlass.queue.lanes import SQL as LANES
from windlass.queue.lanes import STRICT_PRIORITY_MS, Lanes, refuse_erasing
from windlass.queue.newjob import check_name

SQL = load(__file__)

DEFAULT = "default"
MOST_COUNTED = 1000
"""What a refused delete counts up to; beyond it the exact number would cost more than it tells."""
LOOKS, LOOK_S = 50, 0.1
"""How often and how far apart a delete looks whether transactions from before it have ended."""

Pause = Callable[[float], Awaitable[None]]


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
    erasing: Erasure | None = None


class TenantPage(msgspec.Struct, frozen=True):
    """Some tenants by name; `next_cursor` is None when there are no more."""

    tenants: list[Tenant]
    next_cursor: str | None


async def create(db: Statements, name: str, *, pause: Pause) -> Tenant:
    """Make a tenant and return it; AlreadyExists if there is one of this name.

    The name of one that has just been erased is given again when no server believes a key of the old one any more.
    """
    check_name("tenant", name)
    key_ended_at, left_s = await keys.last_end(db, name)
    if left_s and not await db.fetch(SQL.get_tenant, tenant=name):
        await pause(left_s)
    async with db.transaction() as transaction:
        was = await transaction.fetch(LANES.lock_tenant, tenant=name)
        if was and was[0]["erasing"] == "" and (await keys.last_end(transaction, name))[0] != key_ended_at:
            raise Contention(f"Tenant {name} has been erased this moment. Try again.")
        rows = await transaction.fetch(SQL.create_tenant, tenant=name)
        if rows:
            await leftovers.remove_late(transaction, name, was_there=bool(was))
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


async def delete(db: Statements, lanes: Lanes, ids: Ids, name: str, *, pause: Pause) -> None:
    """Remove a tenant that has nothing left; Conflict says what it still has, NotFound if it is unknown.

    Contention if others are writing for seconds: what they write may be the tenant's, and cannot be seen yet.
    A delete that is broken off leaves a tenant whose queues are listed again when they are next used.
    """
    _refuse_default(name)
    await get(db, name)
    if held := await _refusal(db, name):
        raise held
    key_ended_at, left_s = await keys.last_end(db, name)
    if left_s:
        await pause(left_s)  # who is believed still must not act for the next owner of the name
    # Before the transaction: there may be many minutes, and others wait for the tenant's row.
    await leftovers.remove_rows(db, leftovers.SQL.remove_stats, name)
    number = 2 + ids.new().int % 2**62  # the bits that are random
    async with db.transaction() as transaction:
        await _lock(transaction, name)
        await transaction.fetch(SQL.retire_lanes, tenant=name, delete=number)
    are_over = await _await_writers(db, pause)
    async with db.transaction() as transaction:
        await _lock(transaction, name)
        # In statements after the lock: what a rival made while its lock was waited for is seen now.
        refusal = await _refusal(transaction, name, delete=number) if are_over else _still_writing(name)
        if refusal is None and (await keys.last_end(transaction, name))[0] != key_ended_at:
            refusal = Conflict(f"Tenant {name} was not deleted: a key of it has just ended. Try again.")
        if refusal:
            await transaction.fetch(SQL.use_lanes_again, tenant=name, delete=number)
        else:
            await _drop(transaction, name)
    if refusal:
        raise refusal
    lanes.forget(name)


async def _await_writers(db: Statements, pause: Pause) -> bool:
    """Wait until all transactions have ended that write now; return whether they have."""
    writers: set[str] | None = None
    for _ in range(LOOKS):
        writing = {row["writer"] for row in await db.fetch(erasure.SQL.writers)}
        writers = writing if writers is None else writers & writing
        if not writers:
            return True
        await pause(LOOK_S)
    return False


async def _drop(transaction: Statements, name: str) -> None:
    """Remove a tenant that has nothing left, with what bears its name."""
    await transaction.fetch(SQL.reset_lanes, tenant=name, credit_ms=STRICT_PRIORITY_MS)
    await leftovers.remove_named(transaction, name)
    await transaction.fetch(erasure.SQL.drop_keys, tenant=name)
    await transaction.fetch(SQL.leave_mark, tenant=name, credit_ms=STRICT_PRIORITY_MS)
    await transaction.fetch(SQL.drop_tenant, tenant=name)


async def _lock(transaction: Statements, name: str) -> None:
    rows = await transaction.fetch(LANES.lock_tenant, tenant=name)
    if not rows:
        raise _unknown(name)
    refuse_erasing(name, rows[0]["erasing"])


async def erase(db: Database, lanes: Lanes, ids: Ids, name: str, *, actor: str) -> tuple[bool, Erasure | None]:
    """Remove a tenant with everything it has; Conflict for the one that cannot go, NotFound if it is unknown.

    Return whether it begins with this call, and how far it is; None when all is gone.
    """
    _refuse_default(name)
    begins = await erasure.begin(db, lanes, name, actor=actor)
    return begins, await erasure.go_on(db, ids, name)


def _refuse_default(name: str) -> None:
    if name == DEFAULT:
        raise Conflict(f"Tenant {DEFAULT} cannot be deleted: it is the one of callers that name none.")


async def _refusal(db: Statements, name: str, *, delete: int | None = None) -> Conflict | None:
    """Return why the tenant cannot be deleted, if it cannot.

    Lanes that were used since are a reason too for a `delete` that has retired them under its number.
    """
    [held] = await db.fetch(SQL.count_held, tenant=name, most=MOST_COUNTED + 1)
    if any(held.values()):
        return Conflict(
            f"Tenant {name} cannot be deleted: it has {_shown(held['live'])} live jobs, "
            f"{_shown(held['finished'])} finished jobs, {_shown(held['schedules'])} schedules and "
            f"{_shown(held['keys'])} keys, and {_shown(held['attempts'])} attempts of jobs that are gone. "
            "Delete the schedules, cancel the jobs, wait until retention has removed them, and revoke the keys; "
            "or erase the tenant with all of it."
        )
    if delete is not None and await db.fetch(SQL.lanes_in_use, tenant=name, delete=delete):
        return Conflict(
            f"Tenant {name} was not deleted: a job is just being submitted to it, or somebody else is deleting it. "
            "Try again later."
        )
    return None


def _still_writing(name: str) -> Contention:
    return Contention(
        f"Tenant {name} was not deleted: another transaction has been writing for {LOOKS * LOOK_S:g} s, and what it "
        "writes may be a job of this tenant. Try again when that transaction has ended."
    )


def _shown(count: int) -> str:
    return str(count) if count <= MOST_COUNTED else f"more than {MOST_COUNTED}"


def _unknown(name: str) -> NotFound:
    return NotFound(f"There is no tenant {name}.")


def _tenant_from_row(row: Row) -> Tenant:
    pause = None
    if row["paused_at"] is not None:
        pause = TenantPause(
            reason=row["reason"], actor=row["actor"], paused_at=row["paused_at"], resume_at=row["resume_at"]
        )
    return Tenant(row["name"], row["created_at"], pause, erasure.read(row["erasing"]))
