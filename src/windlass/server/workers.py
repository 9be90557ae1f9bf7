"""Workers: register, heartbeat, and what people see and do: lists, drain, removal."""

from __future__ import annotations

from uuid import UUID

import msgspec

from windlass.engine import exchange, words
from windlass.engine.sessions import Told
from windlass.engine.translate import beaten_notes, skew_ms, start_id
from windlass.errors import Conflict, Forbidden, InvalidInput, NotFound
from windlass.queue import fleet, presence
from windlass.server.call import Call, Reply
from windlass.wire import people as wire_people
from windlass.wire import work as wire
from windlass.wire.work import MOST_BARE


async def register(call: Call) -> wire.Registered:
    """Open a session for a worker; saying it again is harmless."""
    asked: wire.RegisterRequest = call.body
    for signature in asked.signatures.values():
        if signature.defaults.queue is not None:
            call.allow_queue(signature.defaults.queue)
    await call.allow_sessions(asked.session)
    return await exchange.register(call.engine, asked, tenant=call.tenant)


async def heartbeat(call: Call) -> wire.Beat:
    """Renew a session and all its leases; of a caller without session, its sign of life and its one job."""
    asked: wire.BeatRequest = call.body
    session = asked.session
    if session is None:
        return await _bare_heartbeat(call, asked)
    await call.allow_sessions(session)
    if asked.wait and not call.waiting.has_room(call.tenant, call.principal.key_id):
        # A session is renewed all the same; its worker hears of news by the next heartbeat.
        asked = msgspec.structs.replace(asked, wait=0)
    work = exchange.heartbeat(call.engine, asked, session=session, tenant=call.tenant)
    return await (call.while_connected(work) if asked.wait else work)


async def _bare_heartbeat(call: Call, asked: wire.BeatRequest) -> wire.Beat:
    if len(asked.held or ()) > MOST_BARE:
        raise InvalidInput("held", f"more than {MOST_BARE} jobs without a session. Register, and name the session.")
    # The form of item workers, who beat once a minute.
    is_item_form = asked.current_page_id is not None or asked.timestamp is not None
    told = Told(
        is_heartbeat=True,
        lease_ms=presence.SLOW_MS if is_item_form else 0,
        busy=asked.busy_threads,
        skew_ms=skew_ms(asked),
        completed=asked.completed,
        failed=asked.failed,
    )
    caller = await call.engine.seen(call.tenant, asked.worker_id, told)
    cancel: list[UUID] = []
    lost: list[UUID] = []
    named = {
        job.job_id: wire.JobBeatRequest(worker_id=asked.worker_id, fence=job.fence, started=job.started)
        for job in asked.held or ()
    }
    if asked.current_page_id is not None:
        named[asked.current_page_id] = wire.JobBeatRequest(worker_id=asked.worker_id, started=True)
    foreign = await call.foreign_jobs(list(named))
    lost += foreign
    for job_id, job in named.items():
        if job_id in foreign:
            continue
        try:
            beat = await exchange.beat_job(call.engine, job_id, job, tenant=call.tenant)
            if beat.cancel:
                cancel.append(job_id)
        except (NotFound, Conflict):
            lost.append(job_id)
    notes = [note for note in beaten_notes(asked) if note.job_id not in foreign]
    named_by = wire.LeaseBody(worker_id=asked.worker_id)
    refused = await words.keep(call.engine, named_by, tenant=call.tenant, notes=notes)
    return wire.Beat(cancel=cancel, lost=lost, released=[], drain=caller.draining, refused=refused)


async def find(call: Call) -> wire_people.WorkerList:
    """Answer a page of workers by name."""
    asked: wire_people.WorkersQuery = call.query
    status = None if asked.status is None else fleet.Status(asked.status)
    page = await fleet.list_workers(call.engine.db, call.tenant, status=status, limit=asked.limit, cursor=asked.cursor)
    return wire_people.WorkerList(workers=[_shown(worker) for worker in page.workers], next_cursor=page.next_cursor)


async def statuses(call: Call) -> wire_people.WorkerStatuses:
    """Answer how the workers are, in the words of item workers."""
    page = await fleet.list_workers(call.engine.db, call.tenant, limit=fleet.MAX_PAGE, with_texts=False)
    return wire_people.WorkerStatuses(
        workers=[
            wire_people.WorkerStatus(
                id=worker.worker,
                status="active" if call.vocabulary == "d" and worker.status == "idle" else worker.status.value,
                last_heartbeat=worker.heartbeat_at,
                current_page=worker.current_jobs[0] if worker.current_jobs else None,
                pages_completed=worker.completed,
                pages_failed=worker.failed,
            )
            for worker in page.workers
        ]
    )


async def get(call: Call) -> wire_people.Worker:
    """Answer a worker."""
    return _shown(await fleet.get_worker(call.engine.db, call.tenant, call.path))


async def drain(call: Call) -> wire_people.Draining:
    """Tell a worker to finish what it has and claim no more."""
    worker = await fleet.get_worker(call.engine.db, call.tenant, call.path)
    sessions = await call.engine.acts.drain(tenant=call.tenant, worker=worker.worker)
    return wire_people.Draining(worker_id=worker.worker, sessions=sessions)


async def close(call: Call) -> Reply:
    """End a worker's session; what it holds goes back to the queue."""
    asked: wire_people.CloseQuery = call.query
    if asked.session is None and ("operate" not in call.principal.scopes or call.principal.queues is not None):
        raise Forbidden(
            "A key of scope work, or limited to queues, ends a session only by its id. "
            "Send ?session=, or use a key of operate for all queues."
        )
    await call.allow_sessions(asked.session)
    worker = await fleet.get_worker(call.engine.db, call.tenant, call.path)
    session = asked.session or worker.session
    await exchange.close(
        call.engine,
        worker.worker,
        session=session,
        tenant=call.tenant,
        lost=asked.lost,
        reason="Its worker was removed.",
    )
    return Reply(204)


def _shown(worker: fleet.Worker) -> wire_people.Worker:
    return wire_people.Worker(
        id=worker.worker,
        worker_id=worker.worker,
        start_id=start_id(worker.session),
        status=worker.status.value,
        last_heartbeat_at=worker.heartbeat_at,
        expires_at=worker.expires_at,
        started_at=worker.started_at,
        ended_at=worker.ended_at,
        lease_seconds=worker.lease_ms / 1000,
        total_threads=worker.total_threads,
        busy_threads=worker.busy_threads,
        available_threads=worker.available_threads,
        current_jobs=worker.current_jobs,
        jobs_completed=worker.completed,
        jobs_failed=worker.failed,
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        build=worker.build,
        region=worker.region,
        labels=_split(worker.labels),
        tasks=_split(worker.tasks),
        queues=_split(worker.queues),
        skew_ms=worker.skew_ms,
    )


def _split(names: str | None) -> list[str]:
    return names.split(",") if names else []
