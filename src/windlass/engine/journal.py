"""What the engine writes to the log: a line for each batch when all went well, a line for each job when it did not.

Under load one line tells of many jobs, so that the log never costs more than the work; idle, it is a line per job.
Where there is a line for each of many jobs they are written in portions, and requests are served in between. Who tells
of them waits until all are written: so none is lost at a stop, and no more wait to be written than are being told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from windlass import log
from windlass.engine.line import Ask, Handed
from windlass.errors import WindlassError
from windlass.job import Outcome, failure_text
from windlass.queue.firing import Fired
from windlass.queue.moves import Moved
from windlass.queue.newjob import NewJob
from windlass.queue.report import Answer, Complete, Report, Status
from windlass.queue.submit import Submitted
from windlass.queue.workers import NewSession

NAMED = 5
"""How many jobs, workers and tenants a line names; beyond that it only counts the jobs."""
TOLD_AT_ONCE = 20
"""Jobs whose lines are written in one go: 1 ms as a rule, 10 ms with errors that take longest to redact."""

_RETRIED = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST})

Told = TypeVar("Told")

logger = logging.getLogger("windlass")


@contextmanager
def after_commit(line: str) -> Iterator[None]:
    """Let nothing that is said of it undo what was committed: who asked gets the answer."""
    try:
        yield
    except Exception:
        logger.exception("What was done by %s could not be told to everybody.", line)


def submitted(requests: Sequence[Sequence[NewJob]], answers: Sequence[list[Submitted] | WindlassError]) -> None:
    """Tell of the jobs that one flush has stored."""
    stored = [
        (job, answer)
        for request, answered in zip(requests, answers, strict=True)
        if not isinstance(answered, WindlassError)
        for job, answer in zip(request, answered, strict=True)
        if not answer.duplicate
    ]
    if stored:
        _several(
            "jobs.submitted",
            [job.id for job, _ in stored],
            tenant=sorted({job.tenant for job, _ in stored}),
            queue=sorted({job.queue for job, _ in stored}),
        )


def fired(batch: Fired) -> None:
    """Tell what became of the slots of one batch."""
    if batch.counts:
        counts: dict[str, Any] = {decision.word: count for decision, count in sorted(batch.counts.items())}
        log.event("schedule.fired", jobs=batch.made, late_s=round(batch.late_s, 3), **counts)
    for tenant, schedule, job, ahead in batch.waiting:
        log.event("job.waiting", job=str(job), tenant=tenant, schedule=str(schedule), jobs_ahead=ahead)


def claimed(ask: Ask, jobs: Sequence[Handed]) -> None:
    """Tell what a worker was handed."""
    _several("jobs.claimed", [handed.job.id for handed in jobs], tenant=ask.tenant, worker=ask.worker)


async def reported(reports: Sequence[Report], answers: Sequence[Answer]) -> None:
    """Tell how the attempts of one flush ended."""
    done: list[tuple[Complete, Answer]] = []
    others: list[tuple[Report, Answer]] = []
    for report, answer in zip(reports, answers, strict=True):
        if answer.status is Status.APPLIED and isinstance(report, Complete):
            done.append((report, answer))
        elif answer.status is Status.STALE or answer.moved is not None:
            others.append((report, answer))
    async for report, answer in _in_portions(others):
        if answer.status is Status.STALE:
            log.event(
                "report.stale",
                job=str(report.job_id),
                fence=report.fence,
                worker=report.worker,
                tenant=report.tenant,
            )
        elif answer.moved is not None:
            _ended(answer.moved)
    if done:
        named = done[:NAMED]
        _several(
            "job.completed",
            [report.job_id for report, _ in done],
            tenant=sorted({report.tenant for report, _ in done})[:NAMED],
            worker=sorted({report.worker for report, _ in done})[:NAMED],
            attempt=[answer.attempt for _, answer in named],
            waited_ms=[answer.waited_ms for _, answer in named],
            run_ms=[answer.run_ms for _, answer in named],
            metrics=[_metrics(report.metrics) for report, _ in named] if any(r.metrics for r, _ in named) else None,
        )


async def moved(moves: Sequence[Moved]) -> None:
    """Tell of leases that duties have ended: lost, timed out, revoked, or finished in a task's own transaction."""
    async for done in _in_portions(moves):
        _ended(done)


def registered(session: NewSession) -> None:
    """Tell of a worker that has come."""
    log.event(
        "worker.registered",
        worker=session.worker,
        tenant=session.tenant,
        threads=session.capacity,
        version=session.version,
        host=session.host,
    )


async def _in_portions(items: Sequence[Told]) -> AsyncIterator[Told]:
    """Yield what is told of one by one; requests are served after every few of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % TOLD_AT_ONCE == 0:
            await asyncio.sleep(0)


def _ended(done: Moved) -> None:
    move, lease, record = done.move, done.move.lease, done.move.record
    named: dict[str, Any] = {"job": str(lease.id), "worker": lease.worker, "tenant": lease.tenant}
    held = {**named, "fence": lease.fence, "attempt": lease.attempt}
    if record.outcome is Outcome.SUCCEEDED:
        waited_s = ((lease.started_at or lease.claimed_at) - lease.queued_at).total_seconds()
        log.event("job.completed", **held, waited_ms=round(waited_s * 1000), metrics=_metrics(record.metrics))
    elif record.outcome is Outcome.LOST:
        lost_count = lease.lost + 1
        beat_at = lease.heartbeat_at
        log.event("job.lost", **held, last_heartbeat_at=beat_at, claimed_at=lease.claimed_at, lost=lost_count)
    elif record.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
        message = failure_text(record.error_type, record.error)
        log.event("job.failed", **held, outcome=record.outcome.name.lower(), message=message)
    elif record.outcome is Outcome.RELEASED:
        log.event("job.released", **held, reason=record.reason)
    elif record.outcome is Outcome.SNOOZED:
        log.event("job.snoozed", **held, next_run_at=done.next_run_at, reason=record.reason)
    if move.to == "dead":
        log.event("job.dead", **named, attempt=move.attempt, reason=record.reason)
    elif move.to != "done" and record.outcome in _RETRIED:
        delay_s = move.delay_ms / 1000
        log.event("job.retrying", **named, attempt=move.attempt + 1, delay_s=delay_s, next_run_at=done.next_run_at)


def _metrics(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _several(name: str, ids: Sequence[UUID], **fields: Any) -> None:
    shown = str(ids[0]) if len(ids) == 1 else [str(job_id) for job_id in ids[:NAMED]]
    log.event(name, count=len(ids), job=shown, **{key: _lone(value) for key, value in fields.items()})


def _lone(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value
