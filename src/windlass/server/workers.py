"""Workers: register, heartbeat, and what people see and do: lists, drain, removal."""

from __future__ import annotations

from uuid import UUID

from windlass.clock import system_clock
from windlass.errors import Conflict, Forbidden, NotFound
from windlass.queue import workers as step
from windlass.queue.workers import MAX_INT, Held, NewSession
from windlass.server.call import Call
from windlass.wire import work as wire


async def register(call: Call) -> wire.Registered:
    """Open a session for a worker; saying it again is harmless."""
    asked: wire.RegisterRequest = call.body
    session = asked.session or call.engine.ids.new()
    lease_s = asked.lease_seconds or call.settings.jobs.lease_seconds
    await call.engine.register(
        NewSession(
            id=session,
            worker=asked.worker_id,
            tenant=call.tenant,
            lease_ms=round(lease_s * 1000),
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
    )
    return wire.Registered(
        worker_id=asked.worker_id, session=session, lease_seconds=lease_s, heartbeat_seconds=lease_s / 3
    )


async def heartbeat(call: Call) -> wire.Beat:
    """Renew a session and all its leases; of a caller without session, its sign of life and its one job."""
    asked: wire.BeatRequest = call.body
    if asked.session is None:
        return await _bare_heartbeat(call, asked)
    held = None
    if asked.held is not None:
        held = [Held(job.job_id, job.fence, job.started) for job in asked.held]
    beat = step.Beat(
        session=asked.session,
        held=held,
        busy=asked.busy_threads,
        skew_ms=_skew_ms(asked),
        tenant=call.tenant,
    )
    answer = await call.engine.heartbeat(beat)
    if not answer.alive:
        # Not known here yet, or ended; registering tells which, by Conflict.
        lease_ms = round(call.settings.jobs.lease_seconds * 1000)
        await call.engine.register(
            NewSession(id=asked.session, worker=asked.worker_id, tenant=call.tenant, lease_ms=lease_ms)
        )
        answer = await call.engine.heartbeat(beat)
        if not answer.alive:
            raise Conflict(f"Session {asked.session} has ended. Stop its jobs and register with a new one.")
    return wire.Beat(cancel=answer.cancel, lost=answer.lost, released=answer.released, drain=answer.draining)


async def _bare_heartbeat(call: Call, asked: wire.BeatRequest) -> wire.Beat:
    draining = await call.engine.seen(call.tenant, asked.worker_id)
    cancel: list[UUID] = []
    lost: list[UUID] = []
    named: list[tuple[UUID, int | None, bool]] = [(job.job_id, job.fence, job.started) for job in asked.held or ()]
    if asked.current_page_id is not None:
        named.append((asked.current_page_id, None, True))
    for job_id, fence, started in named:
        try:
            beat = await call.engine.beat_job(
                job_id, worker=asked.worker_id, fence=fence, session=None, tenant=call.tenant, started=started
            )
            if beat.cancel:
                cancel.append(job_id)
        except (NotFound, Conflict):
            lost.append(job_id)
    return wire.Beat(cancel=cancel, lost=lost, released=[], drain=draining)


def _skew_ms(asked: wire.BeatRequest) -> int | None:
    """Return how far the worker's clock is ahead of ours; it is only shown."""
    if asked.timestamp is None:
        return None
    try:
        ahead_ms = round((asked.timestamp - system_clock()).total_seconds() * 1000)
    except OverflowError:
        return None
    return max(-MAX_INT, min(ahead_ms, MAX_INT))


def _joined(names: tuple[str, ...]) -> str | None:
    return ",".join(names) or None


def check_may_close(call: Call, session: UUID | None) -> None:
    """Return if the caller may end this session: an operator any, a worker one whose id it knows."""
    if session is None and not {"operate", "admin"} & call.principal.scopes:
        raise Forbidden("A key of scope work ends a session only by its id. Send ?session=, or use a key of operate.")
