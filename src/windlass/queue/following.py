"""Following: a job that waits for the run before it is let go when that run is over.

Firing makes such jobs under the overlap policies `queue_one` and `queue_all`: blocked, with a row in `schedule_wait`
(firing.py). Here the first of them becomes ready, and is then the run that the next one waits for. A compare-and-set on
the schedule's row decides among rivals; a job that was cancelled while it waited is just forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.queue.schedule import SHARDS

SQL = load(__file__)

FOLLOW_BATCH = 200
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
    db: Statements, *, shards: Collection[int] = range(SHARDS), after: UUID | None = None, limit: int = FOLLOW_BATCH
) -> Followed:
    """Let the next job go in schedules whose run before it is over, looking at `limit` of those that have some."""
    rows = await db.fetch(SQL.behind, after=after or FIRST_ID, limit=limit)
    following = rows[-1]["id"] if len(rows) >= limit else None
    over = [(row["id"], row["live_job_id"]) for row in rows if row["live"] is None and row["id"].int % SHARDS in shards]
    if not over:
        return Followed([], following)
    async with db.transaction(tracked=True) as transaction:
        counts = {row["id"]: row["waiting_count"] for row in await transaction.fetch(SQL.lock_behind, followed=over)}
        # In a statement after the lock: what was decided before it is seen.
        waits = await transaction.fetch(SQL.waits, schedule_ids=sorted(counts), limit=WAITS_READ) if counts else []
        first = {row["schedule_id"]: row["job_id"] for row in reversed(waits) if row["live"] is not None}
        let_go = await transaction.fetch(SQL.let_go, ids=sorted(first.values())) if first else []
        gone = {row["id"] for row in let_go}
        # Dropped is what was let go, and what has been cancelled or has expired while it waited.
        drop = [(row["schedule_id"], row["job_id"]) for row in waits if row["live"] is None or row["job_id"] in gone]
        if drop:
            await transaction.fetch(SQL.drop_wait, waits=drop)
        dropped, read = Counter(schedule_id for schedule_id, _ in drop), Counter(row["schedule_id"] for row in waits)
        cursors = [
            (
                schedule_id,
                first[schedule_id] if first.get(schedule_id) in gone else None,
                # All that wait have been read, or at least so many fewer wait.
                (read[schedule_id] if read[schedule_id] < WAITS_READ else count) - dropped[schedule_id],
            )
            for schedule_id, count in counts.items()
        ]
        if cursors:
            await transaction.fetch(SQL.followed, cursors=cursors)
    return Followed([Ready(row["id"], row["lane"], row["rank"], row["place"]) for row in let_go], following)
