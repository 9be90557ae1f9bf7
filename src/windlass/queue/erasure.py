"""Erasure: everything of a tenant is removed, or all content of one job that has ended.

Erasing a tenant begins with one transaction (`begin`): the tenant is marked, its keys are removed, and its lanes are
taken from it. From then on nobody who sees the mark can submit to it, claim from it, or make a key, a queue or a
schedule. The rest goes in short transactions (`go_on`), each of which notes how far it came: an erasure that was broken
off goes on where it was. It starts when all transactions that were writing at the mark have ended, so nothing is
written behind its back. When all is gone, only the name is left, for a day: a caller that was let in before must not
bring the tenant back by naming it. It is made again by `tenants.create`.

The order matters. Leases go first: then no report, rescue or time-out can send a job back. What is left only moves
from `timer` to `queue` and from there to its end, and the places are gone through in this order, so once is enough.
Then what is left of jobs whose ends retention has removed is looked for, and the rest is found by its ends.

On SQLite deleted rows are overwritten in the file (db/sqlite.py), but the write-ahead log has them as long as somebody
reads from before. An erasure is done when the log has been emptied (`Wipe`); PostgreSQL does this by its own vacuum.

A job that was erased (`erase_job`) keeps its id, its times and its state; it can be neither retried nor replayed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from windlass.db import Database, Query, Statements, load
from windlass.errors import Conflict, NotFound
from windlass.ids import Ids
from windlass.queue import audit
from windlass.queue.backfills import SQL as BACKFILLS
from windlass.queue.control import Actor, note_events
from windlass.queue.history import get
from windlass.queue.lanes import SQL as LANES
from windlass.queue.lanes import Lanes
from windlass.queue.leftovers import NAMED, remove_named
from windlass.queue.scheduledits import SQL as EDITS
from windlass.queue.schedulewrites import SQL as WRITES

SQL = load(__file__)

CHUNK = 100
"""Jobs and schedules removed in one transaction: each is looked for in every day of history."""
ROWS = 1000
"""Plain rows removed in one transaction, and rows of other tenants that one looks at."""
MOST_BATCHES = 100
"""Transactions of one call; a larger tenant is gone on with by the next."""
ERASED = "Its content was erased."
_FIRST = UUID(int=0)


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """How far the erasure of a tenant is, as its row tells it."""

    actor: str
    """Who asked for it."""
    began_at: datetime
    writers: list[str] | None = None
    """The transactions that were writing after the mark and may not have seen it; None: nobody has looked yet."""
    step: int = 0
    after: UUID = _FIRST
    """The last row that the step has looked at."""
    removed: dict[str, int] = {}
    """How many jobs, schedules and other rows are gone."""
    waits: bool = False
    """Whether one of the writers has yet to end, or a reader of a SQLite file from before."""


class Erased(msgspec.Struct, frozen=True):
    """A job without content, since when, and whether it was so before."""

    id: UUID
    erased_at: datetime
    already: bool = False


class Wipe:
    """Takes the content of erased jobs out of the files of a SQLite database, which one server process has."""

    def __init__(self) -> None:
        self.is_owed = True
        """Whether the log may hold content that was erased: after a start nobody knows."""

    async def run(self, db: Database) -> bool:
        """Return whether the content of all jobs erased before this call is out of the files."""
        self.is_owed, is_done = False, False
        try:
            is_done = await db.empty_log()
        finally:
            self.is_owed = self.is_owed or not is_done
        return is_done


def read(text: str | None) -> Erasure | None:
    """Return the erasure that a tenant's row tells of; None if none is under way."""
    return msgspec.json.decode(text, type=Erasure) if text else None


async def begin(db: Statements, lanes: Lanes, name: str, *, actor: str) -> bool:
    """Mark a tenant, and take keys and lanes from it; False if it was marked before, NotFound if it is unknown."""
    async with db.transaction() as transaction:
        rows = await transaction.fetch(LANES.lock_tenant, tenant=name)
        if not rows or rows[0]["erasing"] == "":
            raise NotFound(f"There is no tenant {name}.")
        if rows[0]["erasing"] is not None:
            return False
        [at] = await transaction.fetch(SQL.clock)
        await transaction.fetch(SQL.retire_lanes, tenant=name)
        await transaction.fetch(SQL.drop_keys, tenant=name)
        await _save(transaction, name, Erasure(actor=actor, began_at=at["now_at"]))
    lanes.forget(name)
    return True


async def go_on(db: Database, ids: Ids, name: str, *, batches: int = MOST_BATCHES) -> Erasure | None:
    """Remove more of a marked tenant, in up to so many transactions; return how far it is, None when all is gone."""
    erasure = None
    for _ in range(batches):
        erasure = await _batch(db, ids, name)
        if erasure is not None and erasure.step == len(_STEPS):
            if not await db.empty_log():
                return msgspec.structs.replace(erasure, waits=True)
            await _end(db, ids, name)
            return None
        if erasure is None or erasure.waits:
            break
    return erasure


async def under_way(db: Statements, *, limit: int) -> list[str]:
    """Return the names of tenants that are being erased."""
    return [row["name"] for row in await db.fetch(SQL.under_way, limit=limit)]


async def forget_names(db: Statements, *, age_ms: int, limit: int) -> int:
    """Forget tenants erased longer ago than the age, with what callers let in before have left; return how many."""
    forgotten = 0
    for row in await db.fetch(SQL.ended, age_ms=age_ms, limit=limit):
        async with db.transaction() as transaction:
            # The name may have a new owner by now, who has workers.
            if await transaction.fetch(SQL.lock_ended, tenant=row["name"], age_ms=age_ms):
                await remove_named(transaction, row["name"])
                await transaction.fetch(SQL.forget, tenant=row["name"])
                forgotten += 1
    return forgotten


async def _batch(db: Statements, ids: Ids, name: str) -> Erasure | None:
    async with db.transaction() as transaction:
        rows = await transaction.fetch(LANES.lock_tenant, tenant=name)
        erasure = read(rows[0]["erasing"]) if rows else None
        if erasure is None:
            return None
        if erasure.writers is None or erasure.writers:
            writing = {row["writer"] for row in await transaction.fetch(SQL.writers)}
            writers = sorted(writing if erasure.writers is None else writing.intersection(erasure.writers))
            erasure = msgspec.structs.replace(erasure, writers=writers, waits=bool(writers))
            await _save(transaction, name, erasure)
        if erasure.waits or erasure.step == len(_STEPS):
            return erasure
        kind, step = _STEPS[erasure.step]
        count, after = await step(transaction, name, erasure.after)
        removed = {**erasure.removed, kind: erasure.removed.get(kind, 0) + count}
        if after is not None:
            erasure = msgspec.structs.replace(erasure, removed=removed, after=after)
        else:
            erasure = msgspec.structs.replace(erasure, removed=removed, after=_FIRST, step=erasure.step + 1)
        await _save(transaction, name, erasure)
    return erasure


async def _end(db: Statements, ids: Ids, name: str) -> None:
    """Note that all of a tenant is gone, unless a rival has noted it."""
    async with db.transaction() as transaction:
        rows = await transaction.fetch(LANES.lock_tenant, tenant=name)
        erasure = read(rows[0]["erasing"]) if rows else None
        if erasure is not None:
            await transaction.fetch(SQL.end, tenant=name)
            became = msgspec.json.encode({"began_at": erasure.began_at, "removed": erasure.removed}).decode()
            entry = audit.Entry(action="tenant.erased", subject=name, actor=erasure.actor, became=became)
            await audit.record(transaction, ids, entry)


async def _save(transaction: Statements, name: str, erasure: Erasure) -> None:
    await transaction.fetch(SQL.save, tenant=name, erasing=msgspec.json.encode(erasure).decode())


Done = tuple[int, UUID | None]
"""How many things a step removed, and from where it goes on; None: nothing is left for it."""


async def _schedules(transaction: Statements, name: str, _after: UUID) -> Done:
    """Remove schedules; locked, they fire no more, so their slots come to an end."""
    found = [row["id"] for row in await transaction.fetch(SQL.lock_schedules, tenant=name, limit=CHUNK)]
    await transaction.fetch(WRITES.lock_next, ids=found)
    [runs] = await transaction.fetch(SQL.remove_runs, ids=found, limit=ROWS)
    if runs["removed"] >= ROWS:
        return 0, _FIRST
    await transaction.fetch(BACKFILLS.forget, ids=found)
    await transaction.fetch(EDITS.remove_schedules, ids=found)
    await transaction.fetch(SQL.remove_jobs, ids=found)
    return len(found), _FIRST if len(found) == CHUNK else None


async def _leases(transaction: Statements, name: str, _after: UUID) -> Done:
    found = [row["id"] for row in await transaction.fetch(SQL.leased_jobs, tenant=name, limit=CHUNK)]
    return await remove_jobs(transaction, found), _FIRST if len(found) == CHUNK else None


def _walking(query: Query) -> Callable[[Statements, str, UUID], Awaitable[Done]]:
    async def walk(transaction: Statements, name: str, after: UUID) -> Done:
        rows = await transaction.fetch(query, tenant=name, after=after, limit=CHUNK, examined=ROWS)
        found = [row["id"] for row in rows if row["id"] is not None]
        count = await remove_jobs(transaction, found)
        if len(found) == CHUNK:
            return count, found[-1]
        return count, rows[0]["last_id"] if rows[0]["examined"] == ROWS else None

    return walk


async def _history(transaction: Statements, name: str, _after: UUID) -> Done:
    """Remove history, lane by lane."""
    lanes = await transaction.fetch(SQL.next_lane, tenant=name)
    if not lanes:
        return 0, None
    lane = lanes[0]["number"]
    found = [row["id"] for row in await transaction.fetch(SQL.ended_jobs, lane=lane, limit=CHUNK)]
    if len(found) < CHUNK:
        await transaction.fetch(SQL.leave_lane, lane=lane)
    return await remove_jobs(transaction, found), _FIRST


async def _named(transaction: Statements, name: str, _after: UUID) -> Done:
    count = 0
    for query in (*NAMED, SQL.remove_outbox, SQL.empty_audit):
        [row] = await transaction.fetch(query, tenant=name, limit=ROWS)
        count += row["removed"]
        if row["removed"] >= ROWS:
            return count, _FIRST
    return count, None


_STEPS: Sequence[tuple[str, Callable[[Statements, str, UUID], Awaitable[Done]]]] = (
    ("schedules", _schedules),
    ("jobs", _leases),
    ("jobs", _walking(SQL.timed_jobs)),
    ("jobs", _walking(SQL.queued_jobs)),
    ("jobs", _walking(SQL.kept_jobs)),
    ("jobs", _history),
    ("others", _named),
)


async def remove_jobs(transaction: Statements, job_ids: Sequence[UUID]) -> int:
    """Remove all there is of jobs in an open transaction; return how many there were."""
    if not job_ids:
        return 0
    await transaction.fetch(SQL.lock_words, ids=sorted(job_ids))
    await transaction.fetch(SQL.lock_places, ids=sorted(job_ids))
    # In the next statement: a job that was moved while its lock was waited for is found where it is now.
    [row] = await transaction.fetch(SQL.remove_jobs, ids=sorted(job_ids))
    return int(row["removed"])


async def erase_job(db: Statements, job_id: UUID, *, tenant: str, actor: Actor) -> Erased:
    """Remove the content of a job that has ended: arguments, result, errors, log, and the texts of its attempts.

    Raises Conflict if the job has not ended, NotFound if it is unknown. Saying it again is harmless.
    """
    async with db.transaction() as transaction:
        found = await transaction.fetch(SQL.empty_done, id=job_id, tenant=tenant, reason=ERASED)
        found += await transaction.fetch(SQL.empty_dead, id=job_id, tenant=tenant, reason=ERASED)
        if found and (marked := await transaction.fetch(SQL.mark_erased, id=job_id)):
            await transaction.fetch(SQL.lock_words, ids=[job_id])
            await transaction.fetch(SQL.empty_attempts, id=job_id)
            await note_events(transaction, [job_id], "erased", actor)
            return Erased(job_id, marked[0]["erased_at"])
        if found:
            return Erased(job_id, (await erased_among(transaction, [job_id]))[job_id], already=True)
    job = await get(db, job_id, tenant=tenant)
    raise Conflict(f"Cannot erase job {job_id}: it is {job.state}. Cancel it first, or wait for its end.")


async def erased_among(db: Statements, ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """Return which of the jobs were erased, and when."""
    return {row["job_id"]: row["erased_at"] for row in await db.fetch(SQL.erased_among, ids=sorted(set(ids)))}
