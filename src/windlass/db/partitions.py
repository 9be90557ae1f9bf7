"""Day partitions of history, on PostgreSQL: made ahead, dropped when old. Days are of UTC. Those of jobs: spans.py.

A partition is built as a table of its own and then attached, which does not block those who write to the others;
an old one is detached concurrently and then dropped. Both can be interrupted anywhere and are finished by the next run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta

from windlass.db.base import Database, Row, Statements
from windlass.db.spans import reach
from windlass.db.sqlfile import SCHEMA, load
from windlass.errors import Contention

SQL = load(__file__)

PARTITIONED = ("done", "attempt", "event", "log", "schedule_runs")
DAYS_AHEAD = 7
"""How many days history can be written for without anybody making more; `windlass check` warns at two."""
_NAME = re.compile(r"(done|attempt|event|log|schedule_runs)_(\d{8})")


async def make_partitions(db: Database, *, days_ahead: int = DAYS_AHEAD) -> list[str]:
    """Make the missing partitions from yesterday until `days_ahead` days ahead; return their names."""
    today = (await _now(db)).date()
    attached = {row["name"] for row in await db.fetch(SQL.partitions) if row["attached"]}
    made = []
    for offset in range(-1, days_ahead + 1):
        for table in PARTITIONED:
            day = today + timedelta(days=offset)
            name = f"{table}_{day:%Y%m%d}"
            if name not in attached and await _make(db, table, name, day):
                made.append(name)
    return made


async def can_be_written(db: Database, *, days_ahead: int) -> bool:
    """Say whether jobs and every table of history have their partitions from today until `days_ahead` days ahead."""
    today = (await _now(db)).date()
    attached = {row["name"] for row in await db.fetch(SQL.partitions) if row["attached"]}
    days = [today + timedelta(days=offset) for offset in range(days_ahead + 1)]
    if await reach(db) <= days[-1]:
        return False
    return attached.issuperset(f"{table}_{day:%Y%m%d}" for table in PARTITIONED for day in days)


async def make_days(db: Statements, table: str, instants: Iterable[datetime]) -> None:
    """Make the partitions of `table` for days long gone, where one is missing; a later run drops them again."""
    days = {instant.astimezone(UTC).date() for instant in instants}
    if not days or not db.capabilities.partitions:
        return
    attached = {row["name"] for row in await db.fetch(SQL.partitions) if _is_whole(row)}
    for day in sorted(days):
        name = f"{table}_{day:%Y%m%d}"
        if name not in attached:
            await _make(db, table, name, day)


async def drop_partitions(
    db: Database, *, days: int, keep: Mapping[str, datetime | None] | None = None
) -> dict[str, int]:
    """Drop the partitions whose whole day ended more than `days` days ago; return their names and estimated rows.

    Of the tables in `keep` those stay that hold anything from the instant on.
    """
    before = await _now(db) - timedelta(days=days)
    kept = keep or {}
    dropped = {}
    for row in await db.fetch(SQL.partitions):
        match = _NAME.fullmatch(row["name"])
        if match is None or _end(match[2]) > min(before, kept.get(match[1]) or before):
            continue
        table = f"{SCHEMA}.{match[1]}"
        try:
            if row["attached"]:
                how = "FINALIZE" if row["pending"] else "CONCURRENTLY"
                await db.maintain(f"ALTER TABLE {table} DETACH PARTITION {SCHEMA}.{row['name']} {how}")
            await db.maintain(f"DROP TABLE {SCHEMA}.{row['name']}")
        except Contention:  # another server is dropping it; if that one fails, the next run goes on
            continue
        dropped[row["name"]] = int(row["row_estimate"])
    return dropped


async def _now(db: Database) -> datetime:
    [row] = await db.fetch(SQL.clock)
    instant: datetime = row["clock_at"]
    return instant.astimezone(UTC)


async def _make(db: Statements, table: str, name: str, day: date) -> bool:
    """Make one partition; False if another server has made it meanwhile."""
    bounds = f"FROM ('{day} 00:00:00+00') TO ('{day + timedelta(days=1)} 00:00:00+00')"
    async with db.transaction() as transaction:
        # A rival waits here; what it has made is read in the next statement.
        await transaction.fetch(SQL.lock_partitions)
        found = [row for row in await transaction.fetch(SQL.partitions) if row["name"] == name]
        if found and _is_whole(found[0]):
            return False
        if (
            found and found[0]["pending"]
        ):  # its removal was interrupted: nothing can be written to it before that is over
            await transaction.run(f"ALTER TABLE {SCHEMA}.{table} DETACH PARTITION {SCHEMA}.{name} FINALIZE;")
        await transaction.run(
            # Left over from a run that was interrupted, or detached and not dropped: it holds nothing anybody reads.
            f"CREATE TABLE IF NOT EXISTS {SCHEMA}.{name} (LIKE {SCHEMA}.{table});"
            f"ALTER TABLE {SCHEMA}.{table} ATTACH PARTITION {SCHEMA}.{name} FOR VALUES {bounds};"
        )
    return True


def _is_whole(row: Row) -> bool:
    return bool(row["attached"] and not row["pending"])


def _end(day: str) -> datetime:
    return datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC) + timedelta(days=1)
