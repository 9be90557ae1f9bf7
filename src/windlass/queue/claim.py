"""Claim: hand ready jobs to workers, under a lease.

A claim moves a job's place from ready to leased, counts an attempt and raises its fence.
Until the worker's session ends no other worker can have the job.
A worker that lives sends heartbeats (workers.py); one that dies lets its session lapse (rescue.py).
Every later write for the job names the fence, so a worker that comes back late is refused (report.py).

One statement serves many waiting workers and lanes at once. Lanes asked for together are a group: the workers of one
capability that wait at one queue. Order within the queue: the heads of its lanes merged by rank, then id.
A paused lane hands out nothing, and a limited one only what limits.py has counted: the statement itself looks, so that
a server that has not heard of a new limit cannot exceed it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from operator import attrgetter
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import SetupError, WindlassError
from windlass.queue.lanes import Lane, lane_from_row

SQL = load(__file__)

OPEN_HINT = -(2**63)
"""No low-water mark: ranks may be negative."""
MAX_CLAIM = 1000
READ_SHARES, READ_LEAST, READ_AGAIN = 2, 8, 4
"""Of several lanes each is read so many times its share of the slots, and so many jobs at least; if that was not
enough, so many times as many in the next look."""
INLINE_BYTES = 16 << 10
"""Payloads and headers up to this size come with the claim, longer ones by a query of their own."""
MOST_BYTES = 8 << 20
"""Of payloads and headers that one claim takes, shared by its tenants; one job of each tenant in any case."""
UNDO_S = 2.0
"""How long a claim whose texts cannot be read tries to give its jobs back; after that they wait for their lease."""


class Want(msgspec.Struct, frozen=True):
    """One lane asked for, from rank `hint` on."""

    lane: int
    hint: int = OPEN_HINT


class Group(msgspec.Struct, frozen=True):
    """Lanes to take from, merged by rank, and the session of each slot to fill, in the order of filling."""

    wants: Sequence[Want]
    slots: Sequence[UUID]
    tenant: str = ""
    """The tenant of the lanes. A claim for several tenants gives each of them the same share of its bytes."""


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A job with its lease: everything that its worker is told; the fields as claim.sql returns them."""

    id: UUID
    lane: int
    rank: int
    attempt: int
    fence: int
    session: UUID
    task: str
    payload: str
    headers: str | None
    tags: str | None
    priority: int
    timeout_s: int | None
    max_attempts: int
    run: int
    scheduled_at: datetime
    created_at: datetime
    claimed_at: datetime
    schedule_id: UUID | None
    flow_id: UUID | None
    parent_id: UUID | None
    flags: int = 0
    size: int = 0
    """Bytes of payload and headers."""


async def claim(db: Statements, groups: Sequence[Group], *, queue: int | None = None) -> list[Claimed]:
    """Return jobs now leased to the sessions of the groups' slots, best first; an empty list when nothing is ready.

    A lane counts in the first group that names it. Lanes of limited queues give nothing, unless `queue` is the own
    row of theirs: then the caller has counted under its lock.
    Fewer jobs than slots: nothing more was ready, a rival took what we saw, or their texts are as long as may be.
    """
    _check_role(db)
    tenants: dict[int, str] = {}
    jobs: list[Claimed] = []
    open_groups: list[_OpenGroup] = []
    for group in groups:
        lanes = list({want.lane: want for want in group.wants if want.lane not in tenants}.values())
        if lanes and group.slots:
            tenants.update((want.lane, group.tenant) for want in lanes)
            size = len(group.slots)
            read = size if len(lanes) == 1 else max(READ_LEAST, READ_SHARES * size // len(lanes))
            open_groups.append(_OpenGroup(lanes, list(group.slots), read))
    async with _taken_back(db, jobs):
        while open_groups:
            wants: list[tuple[int, int, int, int, int]] = []
            slots: list[UUID] = []
            for one in open_groups:
                size = len(one.slots)
                wants += ((want.lane, min(one.read, size), len(slots), size, want.hint) for want in one.wants)
                slots += one.slots
            try:
                found = await db.fetch(SQL.claim, wants=wants, slots=slots, queue=queue, inline=INLINE_BYTES)
            except WindlassError:
                if jobs and db.capabilities.commits:
                    break  # what an earlier look has claimed is handed out
                raise
            jobs += map(_claimed, found)
            open_groups = [more for one in open_groups if (more := one.after(found)) is not None]
        return await _with_texts(db, jobs, tenants)


class _OpenGroup(msgspec.Struct, frozen=True):
    """A group with slots to fill, and how many jobs of each of its lanes are read for them."""

    wants: Sequence[Want]
    slots: list[UUID]
    read: int

    def after(self, found: Sequence[Row]) -> _OpenGroup | None:
        """Return what is to be asked again: a lane gave all that was read of it, so more of it may follow."""
        if self.read >= len(self.slots):
            return None
        lanes = {want.lane for want in self.wants}
        given = Counter(row["lane"] for row in found if row["lane"] in lanes)
        if self.read not in given.values():
            return None
        filled = Counter(row["session"] for row in found if row["lane"] in lanes)
        left: list[UUID] = []
        for session in self.slots:
            if filled[session]:
                filled[session] -= 1
            else:
                left.append(session)
        return _OpenGroup(self.wants, left, self.read * READ_AGAIN) if left else None


async def kept_for(db: Statements, session: UUID) -> dict[tuple[UUID, int], int]:
    """Return the retries that are kept for a session, as (job, fence) with their lanes."""
    return {(row["id"], row["fence"]): row["lane"] for row in await db.fetch(SQL.kept, session=session)}


async def claim_back(
    db: Statements, leases: Sequence[tuple[UUID, int]], *, session: UUID, tenant: str
) -> list[Claimed]:
    """Lease (job, fence) pairs again that this session failed and that are kept for it; return those it got."""
    _check_role(db)
    if not leases:
        return []
    rows = await db.fetch(SQL.claim_back, leases=sorted(leases), session=session, tenant=tenant, inline=INLINE_BYTES)
    jobs = list(map(_claimed, rows))
    async with _taken_back(db, jobs):
        return await _with_texts(db, jobs, {})


@asynccontextmanager
async def _taken_back(db: Statements, jobs: Sequence[Claimed]) -> AsyncIterator[None]:
    """Make the jobs ready again if the block fails: their claim may be committed by then, and nobody is told of it."""
    try:
        yield
    except BaseException:
        if not db.capabilities.commits:
            raise  # its transaction is undone as a whole, and takes no statement any more
        # Bounded, because the time of the claim may be over: a silent database must not hold its caller once more.
        with suppress(WindlassError, TimeoutError):
            async with asyncio.timeout(UNDO_S):
                await undo(db, jobs)
        raise


async def _with_texts(db: Statements, claimed: Sequence[Claimed], tenants: Mapping[int, str]) -> list[Claimed]:
    """Return the jobs in claim order, each with its texts; those whose texts are too much are ready again."""
    # RETURNING gives rows in update order; the promise is claim order.
    jobs = sorted(claimed, key=_claim_order)
    if max((job.size for job in jobs), default=0) <= INLINE_BYTES and sum(job.size for job in jobs) <= MOST_BYTES:
        return jobs
    is_much = sum(job.size for job in jobs) > MOST_BYTES
    share = MOST_BYTES // (len(set(tenants.values()) or {""}) if is_much else 1)
    fits: list[Claimed] = []
    beyond: list[Claimed] = []
    sizes: Counter[str | None] = Counter()
    for job in jobs:
        tenant = tenants.get(job.lane)
        is_first = not sizes[tenant]
        # Counted also where the job is left out: nothing behind it is taken, so the order is kept.
        sizes[tenant] += job.size
        (fits if is_first or sizes[tenant] <= share else beyond).append(job)
    await undo(db, beyond)
    long = sorted(job.id for job in fits if job.size > INLINE_BYTES)
    texts = {row["id"]: row for row in await db.fetch(SQL.texts, ids=long)}
    # A job that has ended in between has no texts here, and no lease.
    return [
        msgspec.structs.replace(job, payload=texts[job.id]["payload"], headers=texts[job.id]["headers"])
        if job.id in texts
        else job
        for job in fits
        if job.id in texts or job.size <= INLINE_BYTES
    ]


async def undo(db: Statements, jobs: Sequence[Claimed]) -> list[Claimed]:
    """Make jobs ready again that were claimed and that no worker was told of; return those that are.

    It is as if they had not been claimed, but for their fence: nobody had them, so nobody gave them back.
    """
    if not jobs:
        return []
    leases = [(job.id, job.fence, job.session) for job in sorted(jobs, key=attrgetter("id"))]
    undone = {row["id"] for row in await db.fetch(SQL.undo, leases=leases)}
    return [job for job in jobs if job.id in undone]


async def heads(db: Statements) -> Iterator[tuple[Lane, int]]:
    """Return every open lane that has ready jobs, with the rank of its first one; made one by one, as they are read."""
    return ((lane_from_row(row), row["rank"]) for row in await db.fetch(SQL.heads))


def _check_role(db: Statements) -> None:
    if not db.capabilities.claims:
        raise SetupError("This program shares the SQLite file with its server and may not claim. Use the server's API.")


_claim_order = attrgetter("rank", "id")


def _claimed(row: Row) -> Claimed:
    # By position: a thousand rows by name cost more than the rest of a claim on this side.
    return Claimed(*row.values())
