"""Retention: history is kept for some days, then it goes.

On PostgreSQL whole days are dropped, as partitions, and spans of jobs (db/spans.py); on SQLite rows are deleted in
chunks, oldest first, and the file gives the pages they took back to the disk.
Live jobs are never touched; dead ones only where a number of days is set for them. Statistics by the minute, the
record of what people did and ended backfills go with the history they are of. What became of slots stays while a
backfill has yet to come to them: it must know which have run. Keys whose time is over, pauses
of jobs and schedules that are gone, checkpoints of such jobs, and signatures that no worker publishes any more are
swept here too.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from windlass.db import Database, load
from windlass.db.freepages import give_back
from windlass.db.partitions import drop_partitions, make_partitions
from windlass.db.spans import drop_spans, make_spans, span_days
from windlass.queue import erasure
from windlass.queue.tasks import KEPT_MS

SQL = load(__file__)

CHUNK = 5000
DAY_MS = 86_400_000


class Swept(msgspec.Struct, frozen=True):
    """What one run made and removed."""

    partitions_made: list[str]
    partitions_dropped: dict[str, int]
    """With about how many rows each held, by the statistics of the database."""
    rows: dict[str, int]
    pages_given_back: int
    """To the disk, by the SQLite file."""


async def sweep(db: Database, *, days: int = 30, dead_days: int = 0, chunk: int = CHUNK) -> Swept:
    """Make partitions ahead and remove what is older than `days` (0: keep), dead jobs than `dead_days` (0: keep)."""
    made: list[str] = []
    dropped: dict[str, int] = {}
    rows: dict[str, int] = {}
    if db.capabilities.partitions:
        made = await make_partitions(db) + await make_spans(db, days=span_days(days))
    if days > 0:
        if db.capabilities.partitions:
            [behind] = await db.fetch(SQL.backfilled_from)
            dropped = await drop_partitions(db, days=days, keep={"schedule_runs": behind["slot_at"]})
            spans = await drop_spans(db, days=days)
            dropped |= spans.row_estimates
            rows["forget_jobs"] = await _forget_jobs(db, chunk, spans.kept_until_id)
        else:
            for query in (SQL.forget_done, SQL.forget_attempts, SQL.forget_events, SQL.forget_logs, SQL.forget_runs):
                rows[query.name] = await _in_chunks(db, query.name, chunk, age_ms=days * DAY_MS)
        for name in ("forget_stats", "forget_audit", "forget_backfills"):
            rows[name] = await _in_chunks(db, name, chunk, age_ms=days * DAY_MS)
    if dead_days > 0:
        rows["forget_dead"] = await _in_chunks(db, "forget_dead", chunk, age_ms=dead_days * DAY_MS)
    rows["expire_keys"] = await _in_chunks(db, "expire_keys", chunk)
    rows["forget_checkpoints"] = await _in_chunks(db, "forget_checkpoints", chunk, age_ms=DAY_MS)
    rows["forget_tasks"] = await _in_chunks(db, "forget_tasks", chunk, age_ms=KEPT_MS)
    rows["forget_pauses"] = await _in_chunks(db, "forget_pauses", chunk)
    rows["forget_erased"] = await _in_chunks(db, "forget_erased", chunk)
    rows["forget_names"] = await erasure.forget_names(db, age_ms=DAY_MS, limit=chunk)
    return Swept(made, dropped, rows, await give_back(db))


async def _forget_jobs(db: Database, chunk: int, until: UUID) -> int:
    """Delete jobs that were kept longer than their span, and have no end any more; return how many."""
    total, after = 0, UUID(int=0)
    while True:
        [row] = await db.fetch(SQL.forget_jobs, after=after, until=until, limit=chunk)
        total += int(row["removed"])
        if row["last_id"] is None:
            return total
        after = row["last_id"]


async def _in_chunks(db: Database, name: str, chunk: int, **values: int) -> int:
    """Delete in short transactions, so that nobody waits long; return how many."""
    total = 0
    while True:
        [row] = await db.fetch(getattr(SQL, name), limit=chunk, **values)
        total += int(row["removed"])
        if row["removed"] < chunk:
            return total
