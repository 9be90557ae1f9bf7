"""Following: a job that waits for the run before it is let go when that run is over.

Firing makes such jobs under the overlap policies `queue_one` and `queue_all`: blocked, with a row in `schedule_wait`
(firing.py). Here the first of them becomes ready, and is then the run that the next one waits for. A compare-and-set on
the schedule's row decides among rivals; a job that was cancelled while it waited is just forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.queue.schedule import SHARDS

SQL = load(__file__)

FOLLOW_BATCH = 1000
WAITS_READ = 20
"""How many waiting jobs of a schedule are looked at: more than one only where some have ended."""
FIRST_ID = UUID(int=0)


class Ready(msgspec.Struct, frozen=True):
    """A job that was let go, and where it stands, so that claimers can be woken."""

    id: UUID
    lane: int
    rank: int
    place: int


class Followed(msgspec.Struct, frozen=True):
    """Jobs that were let go, and the schedule after which the next look begins; None: at the beginning."""

    jobs: list[Ready]
    after: UUID | None


async def follow(
    db: Statements, *, shards: Collection[int] = range(SHARDS), after: UUID | None = None, limit: int | None = None
) -> Followed:
    """Let the next job go in schedules whose run before it is over, looking at `limit` of those that have some.

    Jobs that ended while they waited are forgotten, also where the run before still goes on.
    """
    limit = limit or FOLLOW_BATCH
    rows = await db.fetch(SQL.behind, shards=sorted(shards), after=after or FIRST_ID, limit=limit, read=WAITS_READ)
    following = rows[-1]["id"] if len(rows) >= limit else None
    found = [(row["id"], row["live_job_id"]) for row in rows if row["live"] is None or row["ended"]]
    if not found:
        return Followed([], following)
    async with db.transaction(tracked=True) as transaction:
        locked = {row["id"]: row for row in await transaction.fetch(SQL.lock_behind, followed=found)}
        let_go = await _go_on(transaction, locked) if locked else []
    return Followed([Ready(row["id"], row["lane"], row["rank"], row["place"]) for row in let_go], following)


async def forget(transaction: Statements, ended: Sequence[tuple[UUID, datetime, UUID]]) -> None:
    """Forget jobs (schedule, slot, job) that ended while they waited: they are to live again, and not to wait."""
    schedule_ids = sorted({schedule_id for schedule_id, _, _ in ended})
    if not schedule_ids or not await transaction.fetch(SQL.lock_waited, schedule_ids=schedule_ids):
        return
    dropped = Counter(row["schedule_id"] for row in await transaction.fetch(SQL.drop_ended, waits=list(ended)))
    if dropped:
        await transaction.fetch(SQL.fewer, counts=sorted(dropped.items()))


async def _go_on(transaction: Statements, locked: Mapping[UUID, Row]) -> list[Row]:
    """Let the first living job go where the run before is over; return these jobs."""
    # In a statement after the lock: what was decided before it is seen.
    waits = await transaction.fetch(SQL.waits, schedule_ids=sorted(locked), limit=WAITS_READ)
    first = {
        row["schedule_id"]: row["job_id"]
        for row in reversed(waits)
        if row["live"] is not None and locked[row["schedule_id"]]["live"] is None
    }
    let_go = await transaction.fetch(SQL.let_go, ids=sorted(first.values())) if first else []
    gone = {row["id"] for row in let_go}
    dropped = [(row["schedule_id"], row["slot_at"]) for row in waits if row["live"] is None or row["job_id"] in gone]
    if dropped:
        await transaction.fetch(SQL.drop_wait, waits=dropped)
    read, fewer = Counter(row["schedule_id"] for row in waits), Counter(schedule_id for schedule_id, _ in dropped)
    cursors = [
        (
            schedule_id,
            first[schedule_id] if first.get(schedule_id) in gone else None,
            # Where all that wait have been read their number is known anew.
            (read[schedule_id] if read[schedule_id] < WAITS_READ else row["waiting_count"]) - fewer[schedule_id],
        )
        for schedule_id, row in locked.items()
    ]
    await transaction.fetch(SQL.followed, cursors=cursors)
    return let_go
