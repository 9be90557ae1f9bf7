"""Stats: what people ask of the whole: minutes rolled up, the overview, the health of the storage.

Each closed minute is counted into `stat`, by tenant and queue, from the history that ended in it; the last few are
counted again, because a transaction may commit after its minute has closed. Counts of a minute only grow, so two
servers may do this at once. Windows are sums of minutes, with those not yet settled read from history itself.
What waits and runs at this moment is counted by depths.py; history goes by retention.py.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from windlass.db import Statements, load
from windlass.job import State
from windlass.queue.depths import Depth as Depth
from windlass.queue.depths import Wait as Wait
from windlass.queue.depths import depths as depths
from windlass.queue.depths import longest_waits as longest_waits
from windlass.queue.newjob import check_instant

SQL = load(__file__)

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LATE = 3 * MINUTE
"""How long after its minute a transaction may commit and still be counted."""
CHUNK = 60 * MINUTE
AHEAD = 2 * MINUTE
"""An end may lie ahead of the clock that reads it, where the clock was set back meanwhile."""
HEARD_MS = 60_000
RECENT_MS = 600_000
"""How far back the running time of attempts is looked at."""
MAX_SERIES = 50_000
MAX_LEASES = 10_000
IN_PROGRESS = frozenset({State.ASSIGNED, State.RUNNING, State.CANCELLING})


class Rolled(msgspec.Struct, frozen=True):
    """What one run counted: how many minutes, into how many rows, until when."""

    minutes: int
    rows: int
    until: datetime


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """What ended in a minute, in a queue. `failed` and `lost` are attempts, `dead`, `cancelled` and `expired` jobs."""

    minute_at: datetime
    queue: str
    succeeded: int
    failed: int
    lost: int
    dead: int
    cancelled: int
    expired: int
    claimed: int
    """Attempts that ended, whatever their end; the waits and runs are theirs."""
    wait_ms: int
    run_ms: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The whole in ten figures. Where `…_is_estimate` there are at least so many."""

    pending: int
    in_progress: int
    completed_24h: int
    failed_24h: int
    """Jobs gone dead."""
    active_workers: int
    average_wait_s: float
    """From `queued_at` to claimed, of the attempts that ended in the last hour and those claimed in it that still run.

    So a job does not wait before it is due, nor a retry before the end of its delay.
    """
    scheduled: int
    blocked: int
    sleeping: int
    dead_letter_jobs: int
    pending_is_estimate: bool
    others_are_estimates: bool


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the oldest snapshot; what it cannot be told is None."""

    pid: int
    application: str | None
    state: str | None
    age_s: float | None
    query_started_at: datetime | None


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """The health of the storage; None where the database has no such thing or does not tell."""

    dead_rows: dict[str, int] | None
    oldest_snapshot: Snapshot | None
    wal_bytes: int | None


class _Sums(msgspec.Struct):
    succeeded: int = 0
    dead: int = 0
    claimed: int = 0
    wait_ms: int = 0


async def roll_up(db: Statements, *, chunk: timedelta = CHUNK) -> Rolled:
    """Count the closed minutes since the last run, and the last few again; a first run begins a day back."""
    [row] = await db.fetch(SQL.rolled)
    until = _minute_of(row["now_at"])
    begin = until - DAY if row["rolled_at"] is None else row["rolled_at"] - LATE
    minutes = rows = 0
    while begin < until:
        end = min(begin + chunk, until)
        counted = await db.fetch(SQL.ended, tenant=None, since=begin, until=end)
        if counted:
            await db.fetch(SQL.keep, minutes=[tuple(dict(found).values()) for found in counted])
        # Not before the counts are kept: a run that breaks off between is done again.
        await db.fetch(SQL.mark_rolled, until=end)
        minutes += (end - begin) // MINUTE
        rows += len(counted)
        begin = end
    return Rolled(minutes, rows, until)


async def overview(db: Statements, tenant: str | None) -> Overview:
    """Return what waits, runs and ended, of one tenant or of all."""
    found = await depths(db, tenant)
    jobs = dict.fromkeys(State, 0)
    for depth in found:
        jobs[depth.state] += depth.jobs
    estimated = {depth.state for depth in found if not depth.exact}
    [row] = await db.fetch(SQL.rolled)
    day = await _window(db, tenant, row["now_at"], row["rolled_at"], span=DAY)
    hour = await _window(db, tenant, row["now_at"], row["rolled_at"], span=HOUR)
    [leased] = await db.fetch(SQL.leased_waits, tenant=tenant, since=row["now_at"] - HOUR, most=MAX_LEASES)
    [active] = await db.fetch(SQL.active_workers, tenant=tenant, heard_ms=HEARD_MS)
    claimed = hour.claimed + leased["claimed"]
    return Overview(
        pending=jobs[State.QUEUED],
        in_progress=sum(jobs[state] for state in IN_PROGRESS),
        completed_24h=day.succeeded,
        failed_24h=day.dead,
        active_workers=active["workers"],
        average_wait_s=(hour.wait_ms + leased["wait_ms"]) / 1000 / claimed if claimed else 0.0,
        scheduled=jobs[State.SCHEDULED],
        blocked=jobs[State.BLOCKED],
        sleeping=jobs[State.SLEEPING],
        dead_letter_jobs=jobs[State.DEAD],
        pending_is_estimate=State.QUEUED in estimated,
        others_are_estimates=bool(estimated - {State.QUEUED}),
    )


async def series(
    db: Statements, *, tenant: str, since: datetime, until: datetime, queue: str | None = None, limit: int = MAX_SERIES
) -> list[Minute]:
    """Return the minutes in which something ended, oldest first, of one queue or of all; those rolled up so far."""
    check_instant("since", since)
    check_instant("until", until)
    limit = max(1, min(limit, MAX_SERIES))
    rows = await db.fetch(SQL.series, tenant=tenant, queue=queue, since=since, until=until, limit=limit)
    return [Minute(**row) for row in rows]


async def mean_run_s(db: Statements) -> float | None:
    """Return how long an attempt ran in the mean of the last minutes that are rolled up; None if none ended in them."""
    [row] = await db.fetch(SQL.mean_run, span_ms=RECENT_MS)
    return row["run_ms"] / row["ended"] / 1000 if row["ended"] else None


async def active_workers(db: Statements, tenant: str | None = None) -> int:
    """Return how many registered workers, idle ones too, were heard within a minute and do not drain."""
    [row] = await db.fetch(SQL.active_workers, tenant=tenant, heard_ms=HEARD_MS)
    return int(row["workers"])


async def storage(db: Statements) -> Storage:
    """Return what tells whether the storage is well: rows to vacuum and who keeps them, or the size of the log."""
    dead_rows = {row["name"]: row["dead_rows"] for row in await db.fetch(SQL.dead_rows)}
    snapshots = [
        Snapshot(
            pid=row["pid"],
            application=row["application_name"] or None,
            state=row["state"],
            age_s=row["age_s"],
            query_started_at=row["query_started_at"],
        )
        for row in await db.fetch(SQL.oldest_snapshot)
    ]
    files = [Path(f"{row['file']}-wal") for row in await db.fetch(SQL.file)]
    return Storage(
        dead_rows=dead_rows or None,
        oldest_snapshot=snapshots[0] if snapshots else None,
        wal_bytes=sum(file.stat().st_size for file in files if file.exists()) if files else None,
    )


async def _window(
    db: Statements, tenant: str | None, now: datetime, rolled_at: datetime | None, *, span: timedelta
) -> _Sums:
    """Sum up what ended in the last `span`: whole minutes that have settled from `stat`, the rest from history.

    Of history at most an hour and a minute is read: where rolling up is further behind, the gap counts as empty.
    """
    since = now - span
    settled = max(since, _minute_of(now - HOUR), (rolled_at or since) - LATE)
    if settled > since:
        first = min(_minute_of(since + MINUTE), settled)
        spans = [(since, first), (settled, now + AHEAD)]
    else:
        first, spans = settled, [(since, now + AHEAD)]
    sums = _Sums()
    rows = [row for a, b in spans if a < b for row in await db.fetch(SQL.ended, tenant=tenant, since=a, until=b)]
    rows += await db.fetch(SQL.sum_minutes, tenant=tenant, since=first, until=settled)
    for row in rows:
        for name in sums.__struct_fields__:
            setattr(sums, name, getattr(sums, name) + row[name])
    return sums


def _minute_of(instant: datetime) -> datetime:
    return instant.replace(second=0, microsecond=0)
