"""Runs: the slots of a schedule, what was decided of each, and what became of its job.

Slots are decided in firing.py, by backfills.py and by hand (scheduledits.py); a row of `schedule_runs` says what was
decided, never how the run ended. That comes from the job, looked up by its id wherever it lies, until retention removes
it. A page costs what it shows: a job did not end in a day before it was made, so older days are not read.
For people who ask by plain SQL the view `schedule_history` tells the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import NotFound
from windlass.job import State, failure_text
from windlass.queue.newjob import EARLIEST, LATEST, check_instant
from windlass.queue.schedule import Decision
from windlass.queue.views import LONGEST_DETAIL

SQL = load(__file__)

MAX_PAGE = 500
EXAMINED = 20_000
"""How many slots are looked at for a page of one decision; then a short page says where to go on."""
SLACK = timedelta(days=1)
"""How far the clock may have gone back between the making of a job and its end."""
SOON = timedelta(days=2)
"""Most jobs end within this after they are made; the others are looked for in every day since."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a schedule, or several passed over together, and what became of its job."""

    schedule_id: UUID
    slot_at: datetime
    """Of several the last."""
    first_at: datetime
    slot_count: int
    decision: Decision
    reason: str | None
    decided_at: datetime
    job_id: UUID | None
    state: State | None
    """Of its job; None: none was made, or it is past retention."""
    started_at: datetime | None
    """When the last attempt began."""
    finished_at: datetime | None
    run_ms: int | None
    """How long the last attempt ran."""
    late_ms: int | None
    """From the slot to the first start; a backfill is late by nature and tells none."""
    attempt: int | None
    worker: str | None
    error: str | None


class RunPage(msgspec.Struct, frozen=True):
    """A page of slots, newest first, and where the next one begins; None on the last."""

    runs: list[Run]
    next_cursor: datetime | None


async def find_runs(
    db: Statements,
    schedule_id: UUID,
    *,
    tenant: str,
    limit: int = 100,
    cursor: datetime | None = None,
    decision: Decision | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> RunPage:
    """Return up to `limit` slots from `since` until before `until`, newest first, from below `cursor` on.

    NotFound if the tenant has no such schedule. A page with a cursor may be short where few slots were decided so.
    """
    for field, instant in (("since", since), ("until", until), ("cursor", cursor)):
        check_instant(field, instant)
    if not await db.fetch(SQL.is_schedule, id=schedule_id, tenant=tenant):
        raise NotFound(f"There is no schedule {schedule_id}.")
    limit = max(1, min(limit, MAX_PAGE))
    below = min(until or LATEST, cursor or LATEST)
    span = {"schedule_id": schedule_id, "since": since or EARLIEST, "below": below}
    rows = await db.fetch(
        SQL.slots,
        **span,
        decision=None if decision is None else int(decision),
        examined=EXAMINED,
        limit=limit + 1,
    )
    page, more = rows[:limit], len(rows) > limit
    runs = await _with_jobs(db, page)
    if more:
        return RunPage(runs, runs[-1].slot_at)
    if decision is None:
        return RunPage(runs, None)
    # Fewer than asked for: all slots were looked at, or as many as one page looks at.
    last = await db.fetch(SQL.last_examined, **span, examined=EXAMINED - 1)
    return RunPage(runs, last[0]["slot_at"] if last else None)


async def _with_jobs(db: Statements, rows: Sequence[Row]) -> list[Run]:
    made = {row["job_id"]: row["decided_at"] for row in rows if row["job_id"] is not None}
    jobs = await _jobs(db, [(job_id, at - SLACK, at + SOON) for job_id, at in made.items()])
    # What ended much later, or is past retention, is looked for in all days since.
    late = [(job_id, at + SOON, LATEST) for job_id, at in made.items() if job_id not in jobs]
    jobs |= await _jobs(db, late)
    again = [(job_id, made[job_id] - SLACK) for job_id, job in jobs.items() if _began_before(job)]
    starts = {row["id"]: row for row in await db.fetch(SQL.starts_of, jobs=again)} if again else {}
    return [_run(row, jobs.get(row["job_id"]), starts.get(row["job_id"])) for row in rows]


async def _jobs(db: Statements, made: Sequence[tuple[UUID, datetime, datetime]]) -> dict[UUID, Row]:
    return {row["id"]: row for row in await db.fetch(SQL.jobs_of, jobs=made, longest=LONGEST_DETAIL)} if made else {}


def _began_before(job: Row) -> bool:
    """Say whether a job may have attempts besides the one it is at, or that ended it."""
    return bool(job["fence"] > 1 or (job["fence"] == 1 and job["started_at"] is None))


def _run(row: Row, job: Row | None, starts: Row | None) -> Run:
    decision = Decision(row["decision"])
    started_at = finished_at = first_at = None
    if job is not None:
        started_at, finished_at = job["started_at"], job["finished_at"]
        first_at = started_at
    if starts is not None:
        started_at = started_at or starts["last_at"]
        first_at = starts["first_at"] or first_at
    late = None if decision is Decision.BACKFILLED or first_at is None else first_at - row["slot_at"]
    ran = None if started_at is None or finished_at is None else finished_at - started_at
    return Run(
        schedule_id=row["schedule_id"],
        slot_at=row["slot_at"],
        first_at=row["first_at"] or row["slot_at"],
        slot_count=row["slot_count"],
        decision=decision,
        reason=row["reason"],
        decided_at=row["decided_at"],
        job_id=row["job_id"],
        state=None if job is None else State(job["state"]),
        started_at=started_at,
        finished_at=finished_at,
        run_ms=_ms(ran),
        late_ms=_ms(late),
        attempt=None if job is None else job["attempt"],
        worker=None if job is None else job["worker"],
        error=None if job is None else failure_text(job["error_type"], job["error"]),
    )


def _ms(span: timedelta | None) -> int | None:
    return None if span is None else max(0, span // timedelta(milliseconds=1))
