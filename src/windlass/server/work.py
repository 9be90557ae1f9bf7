"""Jobs, for workers: claim, heartbeat for one job, complete, fail, release, snooze, and reports by the list.

Every word about a lease names worker and fence. A report is applied once: said again it gets the same answer, a stale
one is 409 and its worker must stop, an unknown one, or another worker's, is 404.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw

from windlass.clock import system_clock
from windlass.engine.line import Ask, Handed, Handout
from windlass.errors import Forbidden, InvalidInput, NotFound, StaleFence
from windlass.job import Outcome, State
from windlass.queue import report as step
from windlass.queue.newjob import MAX_DELAY_MS, check_instant
from windlass.queue.report import Report, Status
from windlass.queue.workers import NewSession, find_lease
from windlass.server.call import Call, Reply
from windlass.server.newjobs import result_text, span_ms
from windlass.wire import work as wire

ANSWER_BYTES = 8 << 20
"""Of payloads in the answer to one claim; what is beyond goes back at once, as if it had not been claimed."""
_OUTCOMES: dict[str, Literal[Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED]] = {
    "failed": Outcome.FAILED,
    "timed_out": Outcome.TIMED_OUT,
    "cancelled": Outcome.CANCELLED,
    "canceled": Outcome.CANCELLED,
}


async def claim(call: Call) -> Reply:
    """Hand jobs to a worker, waiting for them as long as it asks; 204 when none came."""
    asked: wire.ClaimRequest = call.body
    ask = _ask(call, asked)

    async def give_back(handout: Handout) -> None:
        await call.engine.undo([handed.job for handed in handout.jobs])

    async def work() -> Handout:
        try:
            return await call.engine.claim(ask)
        except NotFound:
            if ask.session is None:
                raise
            await call.engine.register(
                NewSession(id=ask.session, worker=ask.worker, tenant=ask.tenant, lease_ms=ask.lease_ms)
            )
            return await call.engine.claim(ask)

    handout = await (call.while_connected(work(), give_back) if ask.wait_s else work())
    if not handout.jobs and not handout.cancel:
        return Reply(204)
    handout, beyond = _fitting(handout)
    await call.engine.undo([handed.job for handed in beyond])
    return Reply(200, wire.Claim(jobs=[_claimed(call, handed) for handed in handout.jobs], cancel=handout.cancel))


def _ask(call: Call, asked: wire.ClaimRequest) -> Ask:
    can = asked.capabilities or wire.Capabilities()
    tasks = asked.tasks if asked.tasks is not None else can.tasks
    lease_s = asked.lease_seconds or call.settings.jobs.lease_seconds
    return Ask(
        tenant=call.tenant,
        worker=asked.worker_id,
        session=asked.session,
        count=asked.count,
        queues=tuple(sorted({call.allow_queue(queue) for queue in asked.queues})),
        tasks=None if tasks is None else frozenset(tasks),
        labels=frozenset((*asked.labels, *can.labels)),
        wait_s=asked.wait,
        lease_ms=round(lease_s * 1000),
    )


def _fitting(handout: Handout) -> tuple[Handout, list[Handed]]:
    """Return what fits into one answer, the first job always, and the jobs that do not."""
    size = 0
    for index, handed in enumerate(handout.jobs):
        size += len(handed.job.payload)
        if size > ANSWER_BYTES and index:
            return Handout(handout.jobs[:index], handout.cancel), handout.jobs[index:]
    return handout, []


def _claimed(call: Call, handed: Handed) -> wire.ClaimedJob:
    job = handed.job
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
        headers=None if job.headers is None else Raw(job.headers),
        tags=None if job.tags is None else Raw(job.tags),
        tenant=call.tenant,
        queue=handed.lane.queue,
        labels=[label for label in handed.lane.labels.split(",") if label],
    )


async def heartbeat(call: Call) -> wire.JobBeat:
    """Renew the lease of one job."""
    asked: wire.JobBeatRequest = call.body
    beat = await call.engine.beat_job(
        call.job_id,
        worker=asked.worker_id,
        fence=asked.fence,
        session=asked.session,
        tenant=call.tenant,
        started=asked.started,
    )
    return wire.JobBeat(cancel=beat.cancel, lease_seconds=beat.lease_ms / 1000, drain=beat.draining)


async def complete(call: Call) -> wire.Completed:
    """Record that the task has succeeded."""
    asked: wire.CompleteRequest = call.body
    entry = wire.CompleteEntry(
        job_id=call.job_id, result=asked.result, metrics=asked.metrics, duration_seconds=asked.duration_seconds
    )
    answer = await _report_one(call, entry, asked)
    return wire.Completed(status="completed", already_applied=answer.status is Status.ALREADY)


async def fail(call: Call) -> wire.Ended:
    """Record that the task has failed, timed out, or was stopped."""
    asked: wire.FailRequest = call.body
    entry = wire.FailEntry(
        job_id=call.job_id,
        error_message=asked.error_message,
        error_type=asked.error_type,
        traceback=asked.traceback,
        retryable=asked.retryable,
        outcome=asked.outcome,
        metrics=asked.metrics,
        duration_seconds=asked.duration_seconds,
    )
    return _ended("failed", await _report_one(call, entry, asked))


async def release(call: Call) -> wire.Ended:
    """Take a job back from its worker."""
    asked: wire.ReleaseRequest = call.body
    entry = wire.ReleaseEntry(
        job_id=call.job_id, reason=asked.reason, error_message=asked.error_message, started=asked.started
    )
    return _ended("released", await _report_one(call, entry, asked))


async def snooze(call: Call) -> wire.Ended:
    """Take a job back and hand it out again later."""
    asked: wire.SnoozeRequest = call.body
    entry = wire.SnoozeEntry(job_id=call.job_id, delay=asked.delay, until=asked.until, reason=asked.reason)
    return _ended("snoozed", await _report_one(call, entry, asked))


async def report(call: Call) -> wire.Answers:
    """Record how attempts ended; what became of each, in order."""
    asked: wire.ReportRequest = call.body
    reports = []
    for index, entry in enumerate(asked.reports):
        named = wire.LeaseBody(worker_id=asked.worker_id, fence=entry.fence, session=entry.session or asked.session)
        try:
            reports.append(await _report(call, entry, named))
        except InvalidInput as problem:
            raise problem.at(index) from None
    if foreign := await call.foreign_jobs([entry.job_id for entry in asked.reports]):
        raise Forbidden(f"Job {min(foreign)} is in a queue that this key is not for. Leave it out.")
    answers = await call.engine.report(reports)
    return wire.Answers(
        answers=[
            wire.Answer(
                job_id=entry.job_id, status=answer.status.value, state=answer.state, next_run_at=answer.next_run_at
            )
            for entry, answer in zip(asked.reports, answers, strict=True)
        ]
    )


async def _report_one(call: Call, entry: wire.Entry, named: wire.LeaseBody) -> step.Answer:
    [answer] = await call.engine.report([await _report(call, entry, named)])
    if answer.status is Status.UNKNOWN:
        raise NotFound(f"There is no job {entry.job_id}.")
    if answer.status is Status.STALE:
        raise StaleFence(
            f"Report refused for job {entry.job_id}: fence {named.fence} is stale. "
            "Stop this attempt; its result is not recorded."
        )
    return answer


async def _report(call: Call, entry: wire.Entry, named: wire.LeaseBody) -> Report:
    fence = await _current_fence(call, entry, named) if named.fence is UNSET else named.fence
    lease: dict[str, Any] = {
        "job_id": entry.job_id,
        "fence": fence,
        "worker": named.worker_id,
        "session": named.session,
        "tenant": call.tenant,
    }
    match entry:
        case wire.CompleteEntry():
            return step.Complete(
                **lease,
                result=result_text(call, entry.result),
                metrics=_metrics(entry.metrics),
                duration_ms=_milliseconds(entry.duration_seconds),
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
                duration_ms=_milliseconds(entry.duration_seconds),
            )
        case wire.ReleaseEntry():
            return step.Release(**lease, reason=entry.reason, error=entry.error_message, started=entry.started)
        case wire.SnoozeEntry():
            return step.Snooze(**lease, delay_ms=_delay_ms(entry), reason=entry.reason)


def _delay_ms(entry: wire.SnoozeEntry) -> int:
    """Return how long a job is put off; a time that has passed is now, one beyond a century is in a century."""
    if (entry.delay is None) == (entry.until is None):
        raise InvalidInput("delay", "one of delay and until is needed, and only one.")
    if entry.until is None:
        return span_ms("delay", entry.delay) or 0
    check_instant("until", entry.until)
    wait_ms = math.ceil((entry.until - system_clock()).total_seconds() * 1000)
    return max(0, min(wait_ms, MAX_DELAY_MS))


async def _current_fence(call: Call, entry: wire.Entry, named: wire.LeaseBody) -> int:
    """Return the fence of the lease that the worker has now, where a server is told to take reports without one."""
    if not call.settings.api.allow_unfenced:
        raise InvalidInput("fence", "it is required: the fence that the claim gave.")
    lease = await find_lease(call.engine.db, entry.job_id, tenant=call.tenant)
    if lease is None or lease.worker != named.worker_id:
        raise NotFound(f"There is no job {entry.job_id}.")
    call.engine.meters.unfenced_reports.inc()
    return lease.fence


def _metrics(metrics: dict[str, int | float | str] | None) -> str | None:
    return None if metrics is None else msgspec.json.encode(metrics).decode()


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else math.ceil(seconds * 1000)


def _ended(status: Literal["failed", "released", "snoozed"], answer: step.Answer) -> wire.Ended:
    return wire.Ended(
        status=status,
        state=answer.state or State.QUEUED,
        next_run_at=answer.next_run_at,
        already_applied=answer.status is Status.ALREADY,
    )
