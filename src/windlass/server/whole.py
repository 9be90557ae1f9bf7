"""The whole: the status of the queue, the list of attempts, and the figures for Prometheus."""

from __future__ import annotations

from uuid import UUID

import msgspec

from windlass.clock import from_us, to_us
from windlass.job import Outcome
from windlass.queue import stats
from windlass.queue.attempts import AttemptCursor, AttemptFilter, find_attempts
from windlass.queue.attempts import ListedAttempt as Listed
from windlass.queue.workers import MAX_INT
from windlass.server.call import Call, Reply
from windlass.server.shown import in_turns, shown_attempt
from windlass.wire import people as wire
from windlass.wire.jobs import AttemptPage, AttemptsQuery, ListedAttempt

METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

_OUTCOMES = {"STALE": "LOST", "CANCELED": "CANCELLED"}
"""Other words for outcomes."""


async def status(call: Call) -> wire.Overview:
    """Answer what waits, runs and ended; of one's tenant, or of all from above them."""
    found = await stats.overview(call.engine.db, call.named_tenant)
    figures = msgspec.structs.asdict(found)
    return wire.Overview(average_wait_seconds=figures.pop("average_wait_s"), **figures)


async def attempts(call: Call) -> AttemptPage:
    """Answer a page of ended attempts, newest first."""
    asked: AttemptsQuery = call.query
    outcome = None
    if asked.outcome is not None:
        outcome = Outcome[_OUTCOMES.get(asked.outcome.upper(), asked.outcome.upper())]
    where = AttemptFilter(
        tenant=call.tenant,
        schedule_id=asked.schedule_id,
        task=asked.task,
        worker=asked.worker_id,
        outcome=outcome,
        since=asked.since,
        until=asked.until,
    )
    page = await find_attempts(call.engine.db, where, limit=asked.limit, cursor=_cursor(asked.cursor))
    return AttemptPage(
        attempts=[attempt async for attempt in in_turns(call, page.attempts, _shown)],
        next_cursor=None if page.next_cursor is None else _text(page.next_cursor),
    )


def _shown(call: Call, listed: Listed) -> ListedAttempt:
    shown = msgspec.structs.asdict(shown_attempt(call, listed.attempt))
    return ListedAttempt(**shown, queue=listed.queue, task=listed.task)


async def metrics(call: Call) -> Reply:
    """Answer the figures of this server and of the whole, for Prometheus; they are of all tenants."""
    call.require_no_tenant()
    return Reply(200, await call.engine.gauges.page(), media_type=METRICS_TYPE)


def _text(cursor: AttemptCursor) -> str:
    return f"{to_us(cursor.finished_at)}_{cursor.job_id}_{cursor.fence}"


def _cursor(text: str | None) -> AttemptCursor | None:
    if text is None:
        return None
    us, job_id, fence = text.split("_")
    return AttemptCursor(from_us(int(us)), UUID(job_id), min(int(fence), MAX_INT))
