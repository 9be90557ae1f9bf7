"""Jobs, for workers: claim, heartbeat for one job, complete, fail, release, snooze, and reports by the list.

Every word about a lease names worker and fence. A report is applied once: said again it gets the same answer, a stale
one is 409 and its worker must stop, an unknown one, or another worker's, is 404.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET

from windlass.engine import exchange, words
from windlass.engine.line import Handout
from windlass.engine.translate import ask_of, report_of, reports_of
from windlass.errors import Forbidden, NotFound, StaleFence
from windlass.job import State
from windlass.queue import report as step
from windlass.queue.report import Status
from windlass.queue.workers import find_lease
from windlass.server.call import Call, Reply
from windlass.wire import work as wire
from windlass.wire.trail import Note


async def claim(call: Call) -> Reply:
    """Hand jobs to a worker, waiting for them as long as it asks; 204 when none came."""
    asked: wire.ClaimRequest = call.body
    for queue in asked.queues:
        call.allow_queue(queue)
    await call.allow_sessions(asked.session)
    ask = ask_of(asked, tenant=call.tenant, settings=call.settings)

    async def give_back(handout: Handout) -> None:
        await call.engine.undo([handed.job for handed in handout.jobs])

    work = exchange.claim(call.engine, ask)
    handout = await (call.while_connected(work, give_back) if ask.wait_s else work)
    if not handout.jobs and not handout.cancel:
        return Reply(204)
    return Reply(200, await exchange.told(call.engine, handout, call.answer))


async def heartbeat(call: Call) -> wire.JobBeat:
    """Renew the lease of one job."""
    asked: wire.JobBeatRequest = call.body
    if call.principal.queues is not None:
        lease = await find_lease(call.engine.db, call.job_id, tenant=call.tenant)
        await call.allow_sessions(asked.session, None if lease is None else lease.session)
    beat = await exchange.beat_job(call.engine, call.job_id, asked, tenant=call.tenant)
    refused = []
    if asked.progress is not UNSET or asked.checkpoint is not UNSET:
        told = Note(job_id=call.job_id, fence=beat.fence, progress=asked.progress, checkpoint=asked.checkpoint)
        named = wire.LeaseBody(worker_id=asked.worker_id, session=beat.session)
        refused = await words.keep(call.engine, named, tenant=call.tenant, notes=[told])
    return wire.JobBeat(cancel=beat.cancel, lease_seconds=beat.lease_ms / 1000, drain=beat.draining, refused=refused)


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
        job_id=call.job_id,
        reason=asked.reason,
        error_message=asked.error_message,
        started=asked.started,
        checkpoint=asked.checkpoint,
        duration_seconds=asked.duration_seconds,
    )
    return _ended("released", await _report_one(call, entry, asked))


async def snooze(call: Call) -> wire.Ended:
    """Take a job back and hand it out again later."""
    asked: wire.SnoozeRequest = call.body
    entry = wire.SnoozeEntry(
        job_id=call.job_id,
        delay=asked.delay,
        until=asked.until,
        reason=asked.reason,
        checkpoint=asked.checkpoint,
        duration_seconds=asked.duration_seconds,
    )
    return _ended("snoozed", await _report_one(call, entry, asked))


async def report(call: Call) -> wire.Answers:
    """Record how attempts ended, what became of each, in order; and hand out what is there at once, if asked."""
    asked: wire.ReportRequest = call.body
    for queue in () if asked.claim is None else asked.claim.queues:
        call.allow_queue(queue)
    await call.allow_sessions(asked.session, *(entry.session for entry in asked.reports))
    if call.settings.api.allow_unfenced:
        asked = await _fenced(call, asked)
    reports = reports_of(asked, tenant=call.tenant, settings=call.settings)
    if foreign := await call.foreign_jobs([item.job_id for item in (*asked.reports, *asked.logs, *asked.notes)]):
        raise Forbidden(f"Job {min(foreign)} is in a queue that this key is not for. Leave it out.")
    return await exchange.report(call.engine, asked, reports, tenant=call.tenant, room=call.answer)


async def _fenced(call: Call, asked: wire.ReportRequest) -> wire.ReportRequest:
    """Return the reports with the fences that they lack."""
    entries = [
        msgspec.structs.replace(entry, fence=await _current_fence(call, entry, asked.worker_id))
        if entry.fence is UNSET
        else entry
        for entry in asked.reports
    ]
    return msgspec.structs.replace(asked, reports=tuple(entries))


async def _report_one(call: Call, entry: wire.Entry, named: wire.LeaseBody) -> step.Answer:
    await call.allow_sessions(named.session)
    if named.fence is UNSET and call.settings.api.allow_unfenced:
        fence = await _current_fence(call, entry, named.worker_id)
        named = wire.LeaseBody(worker_id=named.worker_id, fence=fence, session=named.session)
    [answer] = await call.engine.report([report_of(entry, named, tenant=call.tenant, settings=call.settings)])
    if answer.status is Status.UNKNOWN:
        raise NotFound(f"There is no job {entry.job_id}.")
    if answer.status is Status.STALE:
        raise StaleFence(
            f"Report refused for job {entry.job_id}: fence {named.fence} is stale. "
            "Stop this attempt; its result is not recorded."
        )
    return answer


async def _current_fence(call: Call, entry: wire.Entry, worker: str) -> int:
    """Return the fence of the lease that the worker has now, where a server is told to take reports without one."""
    lease = await find_lease(call.engine.db, entry.job_id, tenant=call.tenant)
    if lease is None or lease.worker != worker:
        raise NotFound(f"There is no job {entry.job_id}.")
    call.engine.meters.unfenced_reports.inc()
    return lease.fence


def _ended(status: Literal["failed", "released", "snoozed"], answer: step.Answer) -> wire.Ended:
    return wire.Ended(
        status=status,
        state=answer.state or State.QUEUED,
        next_run_at=answer.next_run_at,
        already_applied=answer.status is Status.ALREADY,
    )
