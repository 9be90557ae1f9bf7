"""Spans: the partitions of `job` on PostgreSQL, each for a span of time, by the time that ids tell.

There are about ten, for a statement that joins `job` opens them all: a span is the retention divided by eight, a day at
least. They are made a week ahead. One that is past the retention goes, and jobs in it that live, are dead or ended in
the kept days go into the span before it, which then reaches as far: the oldest, `job_old`, reaches back for ever.
A span with very many such jobs stays, and takes in what is left of those after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from uuid import UUID

import msgspec

from windlass.clock import from_us, to_us
from windlass.db.base import Database, Statements
from windlass.db.sqlfile import SCHEMA, load
from windlass.errors import Contention, Unavailable
from windlass.ids import ms_of

SQL = load(__file__)

DAYS_AHEAD = 8
"""An id may tell a time a week ahead (queue/outbox.py)."""
SPANS = 8
"""Into so many spans the retention is divided."""
KEPT_DAYS = 30
"""Where history is kept for ever a span is half as long as it is old, and so long at least: twenty years have 18."""
MOST_STRAGGLERS, MOST_BYTES = 100_000, 64 << 20
"""So many jobs are moved in the transaction that everybody waits for, and so long may their texts be together."""
_SHORTLY = "SET LOCAL lock_timeout = '300ms'; SET LOCAL statement_timeout = '2s';"
"""While somebody has the lock on `job`, or asks for it, everybody else waits, heartbeats too."""


class Span(msgspec.Struct, frozen=True):
    """One partition of `job`: it reaches from the end of the one before it up to an id."""

    name: str
    until_id: UUID
    row_estimate: int

    @property
    def until_day(self) -> date:
        """The first day that is not in it."""
        return from_us(ms_of(self.until_id) * 1000).date()


class Dropped(msgspec.Struct, frozen=True):
    """The result of a removal of old spans."""

    row_estimates: dict[str, int]
    """Of the spans that are gone."""
    kept_until_id: UUID
    """Jobs with smaller ids were kept longer than their span, or lie in one that stayed."""


def span_days(retention_days: int) -> int:
    """Return how many days a span is long where history is kept for so many days; 0 where for ever: by its age."""
    return -(-retention_days // SPANS)


async def make_spans(db: Database, *, days: int | None = None, days_ahead: int = DAYS_AHEAD) -> list[str]:
    """Make the missing spans until `days_ahead` days ahead; return their names.

    Each has so many `days`, or as many as those lately made; 0 stands for history that is kept for ever.
    """
    today = db.now().astimezone(UTC).date()
    made: list[str] = []
    while await reach(db) < today + timedelta(days=days_ahead):
        async with db.transaction() as transaction:
            # A rival waits here; what it has made is read in the next statement.
            await transaction.fetch(SQL.lock_spans)
            *_, last = found = await _spans(transaction)
            first_day = last.until_day
            if first_day >= today + timedelta(days=days_ahead):
                break
            if days is None:  # the last one may be long, for a time without servers
                length = min(span.until_day - before.until_day for before, span in pairwise(found[-4:]))
            else:
                length = timedelta(days=days or max(KEPT_DAYS, (today - found[0].until_day).days // 2))
            # If nobody has made any for long, one span is for all that time.
            next_day = max(first_day + length, today)
            name = f"job_{first_day:%Y%m%d}"
            bounds = _bounds(last.until_id, _first_id(next_day))
            await transaction.run(
                f"CREATE TABLE {SCHEMA}.{name} (LIKE {SCHEMA}.job) WITH (vacuum_truncate = off);"
                f"ALTER TABLE {SCHEMA}.job ATTACH PARTITION {SCHEMA}.{name} {bounds};"
            )
        made.append(name)
    return made


async def reach(db: Database) -> date:
    """Return the first day on which no job can be submitted."""
    return (await _spans(db))[-1].until_day


async def drop_spans(db: Database, *, days: int) -> Dropped:
    """Drop the spans that ended more than `days` days ago; what others keep locked is left to the next run."""
    before = _first_id(db.now().astimezone(UTC).date() - timedelta(days=days))
    dropped: dict[str, int] = {}
    since: UUID | None = None
    into, *others = await _spans(db)
    for span in others:
        if span.until_id > before:
            break
        [found] = await db.fetch(SQL.stragglers, since=into.until_id, until=span.until_id, most=MOST_STRAGGLERS + 1)
        try:
            if found["jobs"] > MOST_STRAGGLERS or found["bytes"] > MOST_BYTES:
                raise Unavailable("It has too many stragglers.")
            await _merge(db, into, span, since=since)
        except Contention:
            break
        except Unavailable:  # too many, or it took too long
            since, into = into.until_id, span
        else:
            into = msgspec.structs.replace(into, until_id=span.until_id)
            dropped[span.name] = span.row_estimate
    return Dropped(dropped, into.until_id)


async def _merge(db: Database, into: Span, span: Span, *, since: UUID | None) -> None:
    """Move the stragglers of a span into the one before it, which begins at `since`, and drop the span."""
    table, old = f"{SCHEMA}.{into.name}", f"{SCHEMA}.{span.name}"
    # With a constraint that says the same, nobody has to wait while the rows are compared with the new bounds.
    begins = "" if since is None else f"id >= '{since}' AND "
    async with db.transaction() as transaction:
        await transaction.run(_SHORTLY)
        await transaction.fetch(SQL.lock_spans)
        await _check_unchanged(transaction, into, span)
        await transaction.run(
            f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS reaches;"
            f"ALTER TABLE {table} ADD CONSTRAINT reaches CHECK ({begins}id < '{span.until_id}') NOT VALID;"
        )
    await db.maintain(f"ALTER TABLE {table} VALIDATE CONSTRAINT reaches")
    places = " UNION ALL ".join(
        f"SELECT id FROM {SCHEMA}.{place} WHERE id >= '{into.until_id}' AND id < '{span.until_id}'"
        for place in ("queue", "timer", "dead", "done")
    )
    async with db.transaction() as transaction:
        await transaction.run(_SHORTLY)
        await transaction.fetch(SQL.close_job)
        await _check_unchanged(transaction, into, span)
        await transaction.run(
            f"ALTER TABLE {SCHEMA}.job DETACH PARTITION {table};"
            f"INSERT INTO {table} SELECT j.* FROM ({places}) x JOIN {old} j ON j.id = ANY(ARRAY[x.id]);"
            f"DROP TABLE {old};"
            f"ALTER TABLE {SCHEMA}.job ATTACH PARTITION {table} {_bounds(since, span.until_id)};"
            f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS reaches;"
        )


async def _check_unchanged(transaction: Statements, *spans: Span) -> None:
    """Contention if a rival has changed the partitions since they were read: what was read is of no use then."""
    found = {(span.name, span.until_id) for span in await _spans(transaction)}
    if not found.issuperset((span.name, span.until_id) for span in spans):
        raise Contention("A rival has changed the partitions of job meanwhile. Running it again is safe.")


async def _spans(db: Statements) -> Sequence[Span]:
    return [Span(row["name"], row["until_id"], row["row_estimate"]) for row in await db.fetch(SQL.spans)]


def _bounds(since: UUID | None, until: UUID) -> str:
    begin = "MINVALUE" if since is None else f"'{since}'"
    return f"FOR VALUES FROM ({begin}) TO ('{until}')"


def _first_id(day: date) -> UUID:
    """Return the id below all that tell this day or a later one."""
    return UUID(int=to_us(datetime.combine(day, time(), tzinfo=UTC)) // 1000 << 80)
