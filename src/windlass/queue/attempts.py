"""Attempts: the ended attempts of all jobs of a tenant, newest first, by filters and in pages.

They are read by the time they ended, lane by lane, a minute first and then longer spans: so a page costs about what it
shows, and a filter that matches little is looked for in a bounded time; then a short page says where to go on.
First it is found where they lie and how long their texts are; then those are read that fit into one answer.
Those of one job are in history.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.job import Outcome
from windlass.queue import views
from windlass.queue.newjob import check_instant, check_range
from windlass.queue.views import Attempt, attempt_from_row

SQL = load(__file__)

MAX_PAGE = 500
FIRST_SPAN = timedelta(minutes=1)
LONGEST_SPAN = timedelta(days=10)
MAX_SPANS = 12
"""How many spans one page looks back, each four times as long as the one before: two months."""
AHEAD = timedelta(minutes=2)
"""An end may lie ahead of the clock that reads it, where the clock was set back meanwhile."""
MICROSECOND = timedelta(microseconds=1)
LAST_FENCE = 2**31 - 1
LAST_ID = UUID(int=2**128 - 1)


class AttemptFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempts to list: all conditions together; None means any."""

    tenant: str
    schedule_id: UUID | None = None
    task: str | None = None
    worker: str | None = None
    outcome: Outcome | None = None
    since: datetime | None = None
    until: datetime | None = None


class AttemptCursor(msgspec.Struct, frozen=True):
    """Where a page begins: below this attempt."""

    finished_at: datetime
    job_id: UUID
    fence: int


class ListedAttempt(msgspec.Struct, frozen=True):
    """An ended attempt, with the queue and the task of its job."""

    attempt: Attempt
    queue: str
    task: str


class AttemptPage(msgspec.Struct, frozen=True):
    """A page of attempts, newest first, and where the next one begins; None on the last."""

    attempts: list[ListedAttempt]
    next_cursor: AttemptCursor | None


async def find_attempts(
    db: Statements, where: AttemptFilter, *, limit: int = 100, cursor: AttemptCursor | None = None
) -> AttemptPage:
    """Return up to `limit` ended attempts that match, newest first, from below `cursor` on, as many as fit.

    A page with a cursor may be short or empty where the filters match little in two months.
    """
    check_instant("since", where.since)
    check_instant("until", where.until)
    if cursor is not None:
        check_instant("cursor", cursor.finished_at)
        check_range("cursor", cursor.fence, 0, LAST_FENCE)
    limit = max(1, min(limit, MAX_PAGE))
    [times] = await db.fetch(SQL.oldest_end, tenant=where.tenant)
    if times["oldest_at"] is None:
        return AttemptPage([], None)
    since = times["oldest_at"] if where.since is None else max(where.since, times["oldest_at"])
    below = cursor or AttemptCursor((where.until or times["now_at"] + AHEAD) - MICROSECOND, LAST_ID, LAST_FENCE)
    found: list[Row] = []
    for number in range(MAX_SPANS):
        begin = max(since, below.finished_at - min(FIRST_SPAN * 4**number, LONGEST_SPAN))
        found += await _between(db, where, begin, below, limit=limit + 1 - len(found))
        fit = views.fitting(row["bytes"] for row in found[:limit])
        if fit < len(found):
            last = found[fit - 1]
            return AttemptPage(
                await _read(db, found[:fit]), AttemptCursor(last["finished_at"], last["job_id"], last["fence"])
            )
        below = AttemptCursor(begin - MICROSECOND, LAST_ID, LAST_FENCE)
        if below.finished_at < since:
            return AttemptPage(await _read(db, found), None)
    return AttemptPage(await _read(db, found), below)


async def _read(db: Statements, found: Sequence[Row]) -> list[ListedAttempt]:
    """Return the attempts that were found, in order; without those whose job has been run again since."""
    keys = [(row["place"], row["job_id"], row["fence"], row["finished_at"]) for row in found]
    rows = await db.fetch(SQL.of_page, keys=keys) if keys else []
    read = {(row["job_id"], row["fence"]): attempt_from_row(row) for row in rows}
    return [
        ListedAttempt(read[row["job_id"], row["fence"]], row["queue"], row["task"])
        for row in found
        if (row["job_id"], row["fence"]) in read
    ]


async def _between(
    db: Statements, where: AttemptFilter, since: datetime, below: AttemptCursor, *, limit: int
) -> list[Row]:
    return await db.fetch(
        SQL.ended_between,
        tenant=where.tenant,
        schedule_id=where.schedule_id,
        task=where.task,
        worker=where.worker,
        outcome=None if where.outcome is None else int(where.outcome),
        since=since,
        until=below.finished_at,
        job_id=below.job_id,
        fence=below.fence,
        limit=limit,
    )
