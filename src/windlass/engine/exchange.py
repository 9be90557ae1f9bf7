"""Exchange: what a worker with a session says and asks, in the words of the wire, whatever carries them.

The door (server/work.py, server/workers.py) and a worker in the same process call the same functions here. The words
are turned in translate.py; what is done is done by the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol
from uuid import UUID

import msgspec

from windlass.engine import words
from windlass.engine.engine import Engine
from windlass.engine.line import Ask, Handout
from windlass.engine.sessions import Told
from windlass.engine.translate import (
    ANSWER_BYTES,
    answer_of,
    beat_of,
    beaten_notes,
    claimed_job,
    fitting,
    held_of,
    next_ask,
    registered,
    session_of,
)
from windlass.errors import Conflict, NotFound, WindlassError
from windlass.job import Flag
from windlass.queue import checkpoints
from windlass.queue.checkpoints import Kept
from windlass.queue.report import Report
from windlass.queue.workers import Beat, BeatAnswer, ended_session, find_lease, find_sessions, open_session
from windlass.wire import work as wire
from windlass.wire.trail import LogChunk, Note


async def register(engine: Engine, asked: wire.RegisterRequest, *, tenant: str) -> wire.Registered:
    """Open a session, or say the same again; Conflict if it has ended or is another worker's.

    A worker that names none is noted under its name alone, and gets one that it may name from then on.
    """
    session = session_of(asked, asked.session or engine.ids.new(), tenant=tenant, settings=engine.settings)
    await engine.signatures.texts(tenant, asked.signatures)  # what can never be published opens no session
    if asked.session is None:
        await engine.register_presence(session, lease_asked=asked.lease_seconds is not None)
    else:
        await engine.register(session)
    await engine.signatures.publish(tenant, asked.signatures, session=session.id)
    return registered(session)


async def heartbeat(engine: Engine, asked: wire.BeatRequest, *, session: UUID, tenant: str) -> wire.Beat:
    """Renew a session and all its leases; Conflict if it has ended, NotFound if it is another worker's.

    With `wait` the answer comes when there is something to tell, or after that time. It is renewed only at first.
    """
    beat = beat_of(asked, session, tenant=tenant)
    await engine.loop_turns.wait(tenant)  # it may name ten thousand jobs
    if not asked.wait:
        return await _beaten(engine, asked, await _renewed(engine, beat, asked.worker_id), tenant=tenant)
    with engine.session_waits.waiting(beat) as waiter:
        answer = await _renewed(engine, beat, asked.worker_id)
        told = await _beaten(engine, asked, answer, tenant=tenant)
        if waiter.is_news(answer):
            return told
        news = await engine.session_waits.news(waiter, asked.wait)
    if news is None:
        return told
    if not news.alive:
        raise ended_session(session)
    return msgspec.structs.replace(told, cancel=news.cancel, lost=news.lost, drain=news.draining)


async def _renewed(engine: Engine, beat: Beat, worker: str) -> BeatAnswer:
    session, tenant = beat.session, beat.tenant
    answer = await engine.heartbeat(beat, worker=worker)
    if not answer.alive:
        # Not known here yet, or ended; opening it tells which, by Conflict.
        lease_ms = round(engine.settings.jobs.lease_seconds * 1000)
        await open_session(engine.db, session, worker=worker, tenant=tenant, lease_ms=lease_ms)
        answer = await engine.heartbeat(beat, worker=worker)
        if not answer.alive:
            raise ended_session(session)
    await engine.signatures.heard(tenant, session)
    return answer


async def _beaten(engine: Engine, asked: wire.BeatRequest, answer: BeatAnswer, *, tenant: str) -> wire.Beat:
    """Return the answer to a heartbeat, after what it tells of its jobs was kept; of those it has lost nothing is."""
    named = wire.LeaseBody(worker_id=asked.worker_id, session=asked.session)
    lost = set(answer.lost)
    notes = [note for note in beaten_notes(asked) if note.job_id not in lost]
    return wire.Beat(
        cancel=answer.cancel,
        lost=answer.lost,
        released=answer.released,
        drain=answer.draining,
        refused=await words.keep(engine, named, tenant=tenant, notes=notes),
    )


class JobBeat(msgspec.Struct, frozen=True):
    """The answer to a heartbeat for one job."""

    cancel: bool
    lease_ms: int
    draining: bool
    fence: int
    session: UUID


async def beat_job(engine: Engine, job_id: UUID, held: wire.JobBeatRequest, *, tenant: str) -> JobBeat:
    """Renew the lease of one job; NotFound if the worker has it not, Conflict for another fence or session."""
    worker = held.worker_id
    lease = await find_lease(engine.db, job_id, tenant=tenant)
    if lease is None or lease.worker != worker:
        raise NotFound(f"Worker {worker} does not hold job {job_id}.")
    if held.fence not in (None, lease.fence) or held.session not in (None, lease.session):
        raise Conflict(f"The lease of job {job_id} is another one now (fence {lease.fence}). Stop this attempt.")
    # Of a bare caller this is its only word: it tells the start too.
    named = held_of(job_id, lease.fence, True if lease.bare and held.started is False else held.started)
    answer = await engine.heartbeat(Beat(session=lease.session, held=[named], tenant=tenant, whole=False))
    draining = answer.draining
    if lease.bare:
        draining = (await engine.seen(tenant, worker, Told(lease_ms=lease.lease_ms))).draining
    if not answer.alive or job_id in answer.lost:
        raise Conflict(f"The lease of job {job_id} has ended. Stop this attempt; its result is not recorded.")
    return JobBeat(job_id in answer.cancel, lease.lease_ms, draining, fence=lease.fence, session=lease.session)


async def close(engine: Engine, worker: str, *, session: UUID, tenant: str, lost: bool, reason: str) -> None:
    """End a session of a worker; what it holds goes back, or is lost with its process. NotFound if it is another's."""
    found = (await find_sessions(engine.db, [session])).get(session)
    if found is None or (found.tenant, found.worker) != (tenant, worker):
        raise NotFound(f"There is no session {session} of worker {worker}.")
    if lost:
        moved = await engine.acts.lose(session, tenant=tenant, chance=engine.outside.chance)
    else:
        moved = await engine.acts.close(session, tenant=tenant, reason=reason)
    await engine.moved(moved)


async def claim(engine: Engine, ask: Ask) -> Handout:
    """Return jobs for a worker, waiting for them as long as it asks; a session that is not known is opened."""
    try:
        return await engine.claim(ask)
    except NotFound:
        if ask.session is None:
            raise
        await open_session(engine.db, ask.session, worker=ask.worker, tenant=ask.tenant, lease_ms=ask.lease_ms)
        return await engine.claim(ask)


class Room(Protocol):
    """The part of a server's memory that answers to a caller may take until they are read."""

    @property
    def left(self) -> int:
        """Return how many bytes one more answer may have."""
        ...

    def hold(self, size: int) -> None:
        """Count an answer; Unavailable if there is no room for it."""
        ...


async def told(engine: Engine, handout: Handout, room: Room | None = None) -> wire.Claim:
    """Return the answer to a claim, with the checkpoints of its jobs; what does not fit into it goes back at once.

    Raises Unavailable if the caller has left so much unread that there is no room for one job: then all go back.
    """
    marked = [handed.job.id for handed in handout.jobs if handed.job.flags & Flag.CHECKPOINT]
    kept: dict[UUID, Kept] = {}
    try:
        sizes = await checkpoints.sizes(engine.db, marked)
        fits, beyond, size = fitting(handout, sizes, most=ANSWER_BYTES if room is None else room.left)
        if room is not None:
            room.hold(size)
        if marked:
            fit = {handed.job.id for handed in fits.jobs}
            kept = await checkpoints.find(engine.db, [job_id for job_id in marked if job_id in fit])
    except WindlassError:
        await engine.undo([handed.job for handed in handout.jobs])
        raise
    if beyond:
        with suppress(WindlassError):  # they come back when nobody is heard of them; the others must be told
            await engine.undo([handed.job for handed in beyond])
    jobs = [claimed_job(handed, kept.get(handed.job.id)) for handed in fits.jobs]
    return wire.Claim(jobs=jobs, cancel=fits.cancel)


async def _begin(engine: Engine, asked: wire.ReportRequest, *, tenant: str) -> None:
    """Mark the attempts as begun that say so with their first lines or notes. A lost lease is told by what follows."""
    said: list[Note | LogChunk] = [*asked.notes, *asked.logs]
    begun = [held_of(word.job_id, word.fence, word.started) for word in said if word.started is not False]
    if begun and asked.session is not None:
        with suppress(WindlassError):
            await engine.heartbeat(
                Beat(session=asked.session, held=begun, tenant=tenant, whole=False), worker=asked.worker_id
            )


async def report(
    engine: Engine, asked: wire.ReportRequest, reports: Sequence[Report], *, tenant: str, room: Room | None = None
) -> wire.Answers:
    """Keep what attempts tell, record how they ended, and hand out what is there at once if more is wanted.

    The reports are those of `asked`, turned. They stand, whatever becomes of the claim, and of the words before them:
    these come first only because a lease that is over takes none.
    """
    ask = next_ask(asked, tenant=tenant)
    named = wire.LeaseBody(worker_id=asked.worker_id, session=asked.session)
    await _begin(engine, asked, tenant=tenant)
    refused = await words.keep(engine, named, tenant=tenant, logs=asked.logs, notes=asked.notes, must=not asked.reports)
    answers = await engine.report(reports) if reports else []
    told_of = [answer_of(item.job_id, answer) for item, answer in zip(reports, answers, strict=True)]
    if ask is None:
        return wire.Answers(answers=told_of, refused=refused)
    try:
        more = await told(engine, await engine.claim(ask), room)
    except WindlassError:  # the worker asks again, by a claim of its own, and is told why
        return wire.Answers(answers=told_of, refused=refused)
    return wire.Answers(answers=told_of, jobs=more.jobs, cancel=more.cancel, refused=refused)
