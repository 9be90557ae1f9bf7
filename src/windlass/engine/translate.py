"""Between the words of the wire and those of the queue, for everything a worker says and is told. Pure.

Whatever carries a worker's words, HTTP (server/work.py) or a call in the same process, they are turned here, so that
both mean the same. Who may speak is decided before, by the door; which lease is meant, after, by the statements.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from windlass.clock import system_clock
from windlass.config import Settings
from windlass.durations import parse_duration
from windlass.engine.line import Ask, Handed, Handout
from windlass.errors import InvalidInput, PayloadTooLarge
from windlass.job import Outcome
from windlass.queue import report as step
from windlass.queue.checkpoints import Kept, Note
from windlass.queue.logs import Chunk, Line
from windlass.queue.newjob import check_instant
from windlass.queue.report import Report
from windlass.queue.workers import MAX_INT, Beat, Held, NewSession
from windlass.wire import trail
from windlass.wire import work as wire
from windlass.wire.base import Span, Started
from windlass.wire.trail import LogChunk

ANSWER_BYTES = 8 << 20
"""Of the answer to one claim; what is beyond goes back at once, as if it had not been claimed."""
FIELDS_BYTES = 512
"""Of a job in an answer, without its texts and names."""
_OUTCOMES: dict[str, Literal[Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED]] = {
    "failed": Outcome.FAILED,
    "timed_out": Outcome.TIMED_OUT,
    "cancelled": Outcome.CANCELLED,
    "canceled": Outcome.CANCELLED,
}


def session_of(asked: wire.RegisterRequest, session: UUID, *, tenant: str, settings: Settings) -> NewSession:
    """Return the session that a worker opens."""
    return NewSession(
        id=session,
        worker=asked.worker_id,
        tenant=tenant,
        lease_ms=_lease_ms(asked.lease_seconds, settings),
        capacity=asked.max_threads,
        host=asked.host,
        pid=asked.pid,
        version=asked.version,
        build=asked.build,
        region=asked.region,
        labels=_joined(asked.labels),
        tasks=_joined(asked.tasks),
        queues=_joined(asked.queues),
    )


def registered(session: NewSession) -> wire.Registered:
    """Return what a worker is told of its session."""
    lease_s = session.lease_ms / 1000
    return wire.Registered(
        worker_id=session.worker,
        session=session.id,
        start_id=start_id(session.id),
        lease_seconds=lease_s,
        heartbeat_seconds=lease_s / 3,
    )


def start_id(session: UUID) -> UUID:
    """Return what tells one start of a worker from another; the session itself is a secret of its worker."""
    return UUID(bytes=hashlib.blake2b(session.bytes, digest_size=16, person=b"windlass.start").digest())


def beat_of(asked: wire.BeatRequest, session: UUID, *, tenant: str) -> Beat:
    """Return the heartbeat of a session."""
    held = None
    if asked.held is not None:
        held = [held_of(job.job_id, job.fence, job.started) for job in asked.held]
    return Beat(
        session=session,
        held=held,
        busy=asked.busy_threads,
        skew_ms=skew_ms(asked),
        tenant=tenant,
        completed=asked.completed,
        failed=asked.failed,
        draining=asked.draining,
    )


def held_of(job_id: UUID, fence: int, started: Started) -> Held:
    """Return a lease that a heartbeat names, with how long ago its body began."""
    return Held(job_id, fence, started is not False, 0 if isinstance(started, bool) else round(started * 1000))


def skew_ms(asked: wire.BeatRequest) -> int | None:
    """Return how far the worker's clock is ahead of ours; it is only shown."""
    if asked.timestamp is None:
        return None
    check_instant("timestamp", asked.timestamp)
    ahead_ms = round((asked.timestamp - system_clock()).total_seconds() * 1000)
    return max(-MAX_INT, min(ahead_ms, MAX_INT))


def ask_of(asked: wire.ClaimRequest, *, tenant: str, settings: Settings) -> Ask:
    """Return what a claim asks for."""
    can = asked.capabilities or wire.Capabilities()
    tasks = asked.tasks if asked.tasks is not None else can.tasks
    return Ask(
        tenant=tenant,
        worker=asked.worker_id,
        session=asked.session,
        count=asked.count,
        queues=tuple(sorted(set(asked.queues))),
        tasks=None if tasks is None else frozenset(tasks),
        labels=frozenset((*asked.labels, *_labels(can.labels), *_labels(can.others))),
        wait_s=asked.wait,
        lease_ms=_lease_ms(asked.lease_seconds, settings),
        lease_asked=asked.lease_seconds is not None,
    )


def _labels(capabilities: Sequence[str] | Mapping[str, wire.Capability]) -> Iterator[str]:
    """Return the labels that capabilities stand for: `gpu` of one that is true, `region=eu` of one that has a value."""
    if not isinstance(capabilities, Mapping):
        yield from capabilities
        return
    for name, value in capabilities.items():
        if isinstance(value, tuple):
            yield from (f"{name}={part}" for part in value if isinstance(part, str | int | float))
        elif isinstance(value, wire.Inner) or value is True:
            yield name
        elif value is not None and value is not False:
            yield f"{name}={value}"


def next_ask(asked: wire.ReportRequest, *, tenant: str) -> Ask | None:
    """Return what a worker asks for with its reports: what is there at once; None if it asks for nothing."""
    if asked.claim is None:
        return None
    if asked.session is None:
        raise InvalidInput("claim", "it needs a session. Register, and name the session; or ask by /jobs/claim.")
    return Ask(
        tenant=tenant,
        worker=asked.worker_id,
        session=asked.session,
        count=asked.claim.count,
        queues=tuple(sorted(set(asked.claim.queues))),
        tasks=None if asked.claim.tasks is None else frozenset(asked.claim.tasks),
        labels=frozenset(asked.claim.labels),
    )


def fitting(handout: Handout, kept_sizes: Mapping[UUID, int], *, most: int) -> tuple[Handout, list[Handed], int]:
    """Return what fits into an answer of `most` bytes, the first job always; the jobs that do not; and its bytes."""
    size, most = 0, min(most, ANSWER_BYTES)
    for index, handed in enumerate(handout.jobs):
        job, lane = handed.job, handed.lane
        names = len(lane.queue) + len(job.task) + len(lane.labels) + len(job.tags or "")
        own = FIELDS_BYTES + names + job.size + kept_sizes.get(job.id, 0)
        if size + own > most and index:
            return Handout(handout.jobs[:index], handout.cancel), handout.jobs[index:], size
        size += own
    return handout, [], size


def claimed_job(handed: Handed, kept: Kept | None) -> wire.ClaimedJob:
    """Return a job as its worker is told of it, with what its attempts left behind."""
    job = handed.job
    checkpoint = None if kept is None or kept.checkpoint is None else Raw(kept.checkpoint)
    return wire.ClaimedJob(
        id=job.id,
        task=job.task,
        definition_id=job.schedule_id,
        schedule_id=job.schedule_id,
        run_id=f"{job.id}.{job.fence}",
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        fence=job.fence,
        session=job.session,
        priority=job.priority,
        scheduled_at=job.scheduled_at,
        max_execution_time=job.timeout_s,
        lease_seconds=handed.lease_ms / 1000,
        payload=Raw(job.payload),
        checkpoint=wire.NULL if checkpoint is None else checkpoint,
        headers=wire.NULL if job.headers is None else Raw(job.headers),
        tags=wire.NULL if job.tags is None else Raw(job.tags),
        tenant=handed.lane.tenant,
        queue=handed.lane.queue,
        labels=[label for label in handed.lane.labels.split(",") if label],
    )


def reports_of(asked: wire.ReportRequest, *, tenant: str, settings: Settings) -> list[Report]:
    """Return the reports of a list; InvalidInput names the first that is wrong, or that lacks its fence."""
    reports = []
    for index, entry in enumerate(asked.reports):
        named = wire.LeaseBody(worker_id=asked.worker_id, fence=entry.fence, session=entry.session or asked.session)
        try:
            reports.append(report_of(entry, named, tenant=tenant, settings=settings))
        except InvalidInput as problem:
            raise problem.at(index) from None
    return reports


def report_of(entry: wire.Entry, named: wire.LeaseBody, *, tenant: str, settings: Settings) -> Report:
    """Return one report, about the lease that `named` names."""
    if isinstance(named.fence, UnsetType):
        raise InvalidInput("fence", "it is required: the fence that the claim gave.")
    lease: dict[str, Any] = {
        "job_id": entry.job_id,
        "fence": named.fence,
        "worker": named.worker_id,
        "session": named.session,
        "tenant": tenant,
        "duration_ms": _milliseconds(entry.duration_seconds),
    }
    longest = settings.jobs.max_result_bytes
    match entry:
        case wire.CompleteEntry():
            return step.Complete(
                **lease,
                result=json_text("result", entry.result, longest=longest),
                metrics=_metrics(entry.metrics, entry.duration_seconds),
            )
        case wire.FailEntry():
            return step.Fail(
                **lease,
                outcome=_OUTCOMES[entry.outcome.lower()],
                error=entry.error_message,
                error_type=entry.error_type,
                traceback=entry.traceback,
                retryable=entry.retryable,
                metrics=_metrics(entry.metrics),
            )
        case wire.ReleaseEntry():
            return step.Release(
                **lease,
                reason=entry.reason,
                error=entry.error_message,
                started=entry.started,
                checkpoint=json_text("checkpoint", entry.checkpoint, longest=longest),
            )
        case wire.SnoozeEntry():
            if (entry.delay is None) == (entry.until is None):
                raise InvalidInput("delay", "one of delay and until is needed, and only one.")
            return step.Snooze(
                **lease,
                delay_ms=span_ms("delay", entry.delay) or 0,
                until=entry.until,
                reason=entry.reason,
                checkpoint=json_text("checkpoint", entry.checkpoint, longest=longest),
            )


def chunk_of(chunk: LogChunk, named: wire.LeaseBody, *, tenant: str) -> Chunk:
    """Return lines of an attempt as they are kept."""
    return Chunk(
        job_id=chunk.job_id,
        fence=chunk.fence,
        worker=named.worker_id,
        session=named.session,
        tenant=tenant,
        seq=chunk.seq,
        lines=[Line(line.at, line.text, line.stream, line.level) for line in chunk.lines],
        dropped=chunk.dropped,
    )


def note_of(told: trail.Note, named: wire.LeaseBody, *, tenant: str, settings: Settings) -> Note:
    """Return what an attempt tells of itself as it is kept; PayloadTooLarge past the limit for results."""
    longest = settings.jobs.max_result_bytes
    return Note(
        job_id=told.job_id,
        fence=told.fence,
        worker=named.worker_id,
        session=named.session,
        tenant=tenant,
        progress=json_text("progress", told.progress, longest=longest),
        checkpoint=json_text("checkpoint", told.checkpoint, longest=longest),
    )


def beaten_notes(asked: wire.BeatRequest) -> list[trail.Note]:
    """Return what a heartbeat tells of the jobs that it names."""
    return [
        trail.Note(job_id=job.job_id, fence=job.fence, progress=job.progress)
        for job in asked.held or ()
        if job.progress is not UNSET
    ]


def answer_of(job_id: UUID, answer: step.Answer) -> wire.Answer:
    """Return what a worker is told of one report of a list."""
    return wire.Answer(job_id=job_id, status=answer.status.value, state=answer.state, next_run_at=answer.next_run_at)


def json_text(field: str, raw: Raw | UnsetType, *, longest: int) -> str | None:
    """Return JSON as it was received, None if there is none; PayloadTooLarge past `longest` bytes."""
    if isinstance(raw, UnsetType):
        return None
    text = bytes(raw)
    if len(text) > longest:
        raise PayloadTooLarge(
            field, f"{len(text)} bytes, more than {longest}. Store the data elsewhere and pass its address."
        )
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise InvalidInput(field, "it is not UTF-8.") from None


def span_ms(field: str, span: Span | None) -> int | None:
    """Return a span in whole milliseconds, none shorter than what was said."""
    return None if span is None else math.ceil(parse_duration(span, field) * 1000)


def _lease_ms(lease_s: float | None, settings: Settings) -> int:
    return round((lease_s or settings.jobs.lease_seconds) * 1000)


def _metrics(metrics: dict[str, int | float | str] | None, duration_s: float | None = None) -> str | None:
    """Return the metrics of an attempt as they are kept; with its duration, where that is one of them (R1)."""
    if duration_s is not None:
        metrics = {"duration_seconds": duration_s, **(metrics or {})}
    return None if metrics is None else msgspec.json.encode(metrics).decode()


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else math.ceil(seconds * 1000)


def _joined(names: tuple[str, ...]) -> str | None:
    return ",".join(names) or None
