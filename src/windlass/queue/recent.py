"""Recent: what happened lately to all jobs of a tenant, in order of time, for those who follow along.

The timeline of one job (history.py) is a view; over all jobs it would be read whole. So what was touched since an
instant is read by the indexes of time, and its events are told from its columns here, under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.ids import first_id_at
from windlass.job import STATE_OF_OUTCOME, Outcome, failure_text
from windlass.queue.newjob import check_instant
from windlass.queue.views import LONGEST_DETAIL

SQL = load(__file__)

EVENTS = 1000
MAX_EVENTS = 50_000
MAX_LEASES = 10_000
SKEW = timedelta(minutes=10)
"""How far the time that an id tells may be from the submit, but for ids from an outbox, which may be further off."""
ATTEMPT, DONE, DEAD, LEASE, WAITING = range(5)
_Told = tuple[tuple[int, int, str], "JobEvent"]
_DIED = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST})


class JobEvent(msgspec.Struct, frozen=True):
    """One thing that happened to a job."""

    happened_at: datetime
    job_id: UUID
    kind: str
    worker: str | None
    detail: str | None
    actor: str | None = None
    """The person or the part of Windlass that did it, where no worker did."""


class Touched(msgspec.Struct, frozen=True):
    """What was read of a tenant since an instant, up to a limit of each kind."""

    since: datetime
    limit: int
    rows: Sequence[Row]
    acts: Sequence[Row]


async def events_since(db: Statements, tenant: str, *, since: datetime, limit: int = EVENTS) -> list[JobEvent]:
    """Return what happened to a tenant's jobs from `since` on, oldest first, up to `limit`; each at least once.

    A transaction may commit after a later one: ask again from some seconds before the last event, and leave out those
    known already. Who asks for a long time past may miss claims and starts of attempts, never their ends.
    """
    return events_of(await touched_since(db, tenant, since=since, limit=limit))


async def touched_since(db: Statements, tenant: str, *, since: datetime, limit: int = EVENTS) -> Touched:
    """Return what `events_of` turns into the events from `since` on; apart, because much of it takes a while."""
    check_instant("since", since)
    limit = max(1, min(limit, MAX_EVENTS))
    rows = await db.fetch(
        SQL.touched_since,
        tenant=tenant,
        since=since,
        first_id=first_id_at(since, shift=-SKEW),
        leases=MAX_LEASES,
        limit=limit,
        longest=LONGEST_DETAIL,
    )
    acts = await db.fetch(SQL.acts_since, tenant=tenant, since=since, limit=limit, longest=LONGEST_DETAIL)
    return Touched(since, limit, rows, acts)


def events_of(touched: Touched) -> list[JobEvent]:
    """Return the events that were read, oldest first, up to the limit."""
    told = {(event.happened_at, order, event.job_id, event) for row in touched.rows for order, event in _events(row)}
    told |= {(row["happened_at"], (0, 3, row["kind"]), row["job_id"], _act(row)) for row in touched.acts}
    inside = sorted((entry for entry in told if entry[0] >= touched.since), key=lambda entry: entry[:3])
    return [event for *_, event in inside[: touched.limit]]


def _act(row: Row) -> JobEvent:
    return JobEvent(row["happened_at"], row["job_id"], row["kind"], None, row["detail"], row["actor"])


def _events(row: Row) -> Iterator[_Told]:
    """Yield the events that a row tells of, each with what orders it among those of the same instant."""
    kind, job_id, worker = row["kind"], row["job_id"], row["worker"]

    def event(step: int, at: datetime | None, name: str, who: str | None, detail: str | None = None) -> Iterator[_Told]:
        if at is not None:
            told = None if detail is None else detail[:LONGEST_DETAIL]
            yield (row["fence"] if step else 0, step, name), JobEvent(at, job_id, name, who, told)

    yield from event(0, row["created_at"], "submitted", None)
    yield from event(1, row["claimed_at"], "assigned", worker)
    yield from event(2, row["started_at"], "running", worker)
    if row["finished_at"] is None:
        return
    outcome = Outcome(row["outcome"])
    if row["session"] is not None or kind == ATTEMPT:
        detail = failure_text(row["error_type"], row["error"]) or row["reason"]
        yield from event(4, row["finished_at"], outcome.name.lower(), worker, detail)
    if kind == DONE and row["session"] is None:
        yield from event(5, row["finished_at"], STATE_OF_OUTCOME[outcome].value, None, row["reason"])
    if kind == DEAD or (kind == ATTEMPT and row["next_run_at"] is None and outcome in _DIED):
        yield from event(5, row["finished_at"], "dead", None, row["reason"])
