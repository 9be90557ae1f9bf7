"""What the engine writes to the log: a line for each batch when all went well, a line for each job when it did not.

Under load one line tells of many jobs, so that the log never costs more than the work; idle, it is a line per job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from windlass import log
from windlass.engine.line import Ask, Handed
from windlass.errors import WindlassError
from windlass.job import Outcome, State
from windlass.queue.firing import Fired
from windlass.queue.moves import Moved
from windlass.queue.newjob import NewJob
from windlass.queue.report import Answer, Complete, Fail, Release, Report, Status
from windlass.queue.submit import Submitted
from windlass.queue.workers import NewSession

NAMED = 5
"""How many jobs a line names; beyond that it only counts them."""

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


def claimed(ask: Ask, jobs: Sequence[Handed]) -> None:
    """Tell what a worker was handed."""
    _several("jobs.claimed", [handed.job.id for handed in jobs], tenant=ask.tenant, worker=ask.worker)


def reported(reports: Sequence[Report], answers: Sequence[Answer]) -> None:
    """Tell how the attempts of one flush ended."""
    done: list[tuple[Complete, Answer]] = []
    for report, answer in zip(reports, answers, strict=True):
        if answer.status is Status.STALE:
            log.event("report.stale", job=str(report.job_id), fence=report.fence, worker=report.worker)
        elif answer.status is Status.APPLIED:
            if isinstance(report, Complete):
                done.append((report, answer))
            else:
                _ended(report, answer)
    if done:
        _several(
            "job.completed",
            [report.job_id for report, _ in done],
            tenant=sorted({report.tenant for report, _ in done}),
            worker=sorted({report.worker for report, _ in done}),
            run_ms=[answer.run_ms for _, answer in done[:NAMED]],
        )


def moved(moves: Iterable[Moved]) -> None:
    """Tell of leases that duties have ended: lost, timed out, revoked, or finished in a task's own transaction."""
    for done in moves:
        move, lease = done.move, done.move.lease
        named: dict[str, Any] = {"job": str(lease.id), "worker": lease.worker, "fence": lease.fence}
        if move.record.outcome is Outcome.SUCCEEDED:
            log.event("job.completed", **named, attempt=lease.attempt)
        elif move.record.outcome is Outcome.LOST:
            log.event("job.lost", **named, attempt=lease.attempt, claimed_at=lease.claimed_at, lost=lease.lost + 1)
        elif move.record.outcome is Outcome.TIMED_OUT:
            log.event("job.failed", **named, message=move.record.error)
        if move.to == "dead":
            log.event("job.dead", job=str(lease.id), reason=move.record.reason)
        elif move.to == "timer":
            log.event("job.retrying", job=str(lease.id), attempt=move.attempt + 1, next_run_at=done.next_run_at)


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


def _ended(report: Report, answer: Answer) -> None:
    named: dict[str, Any] = {"job": str(report.job_id), "worker": report.worker, "tenant": report.tenant}
    if isinstance(report, Fail):
        log.event("job.failed", **named, outcome=report.outcome.name.lower(), message=report.error)
    elif isinstance(report, Release):
        log.event("job.released", **named, reason=report.reason)
    if answer.state is State.DEAD:
        log.event("job.dead", **named)
    elif answer.state is State.SCHEDULED:
        log.event("job.retrying", **named, next_run_at=answer.next_run_at)


def _several(name: str, ids: Sequence[UUID], **fields: Any) -> None:
    shown = str(ids[0]) if len(ids) == 1 else [str(job_id) for job_id in ids[:NAMED]]
    log.event(name, count=len(ids), job=shown, **{key: _lone(value) for key, value in fields.items()})


def _lone(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value
