"""Workers: sessions live as long as they are heard.

A session is one start of one worker process; it is the one identity of a holder of leases and carries their length.
One heartbeat renews the session and with it every lease it holds; jobs are not touched.
The beat tells which jobs it holds and which have begun. What it does not name and is older than a lost claim answer
can be, is given back: so a claim whose answer got lost repairs itself.
A bare caller has one session per job claimed, so a beat for one job never keeps another alive; presence.py tells that
it lives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import Conflict
from windlass.ids import Ids
from windlass.job import Flag
from windlass.queue import moves
from windlass.queue.claim import MAX_CLAIM, Claimed
from windlass.queue.moves import Lease, LeaseName, Moved
from windlass.queue.newjob import MAX_DELAY_MS, MAX_TEXT, check_name, check_range, check_text, storable

SQL = load(__file__)

UNLISTED_MS = 15_000
"""A lease its worker does not name is given back after this: longer than a claim may be under way (10 s)."""
TIMEOUT_GRACE_MS = 30_000
"""How long after its time-out a job's worker may still report it, before the server ends the attempt."""
MAX_LEASE_MS = 86_400_000
MAX_INT = 2**31 - 1
NAMED_AT_ONCE = 1000
"""Leases that are looked at in one transaction: a heartbeat may name ten thousand, and others write in between."""
MAX_COUNTED = 1_000_000
"""How many jobs one beat may add to the counts of its session."""


class SessionState(IntEnum):
    """Whether a session may hold leases; the numbers are stored."""

    ALIVE = 0
    DEAD = 1
    """It was not heard for its lease, or its process died."""
    STOPPED = 2
    """It left by its own wish, or was removed."""


LeaseKey = tuple[UUID, int, UUID]
"""A lease: job, fence and session."""

Claiming = Callable[[Statements, Sequence[UUID]], Awaitable[list[Claimed]]]
"""Claims for the sessions given, free or under limits."""


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself when it registers."""

    id: UUID
    worker: str
    tenant: str = "default"
    lease_ms: int = 30_000
    capacity: int = 1
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    build: str | None = None
    region: str | None = None
    labels: str | None = None
    tasks: str | None = None
    queues: str | None = None


class BareSession(msgspec.Struct, frozen=True):
    """The session of one job that a bare caller may get."""

    id: UUID
    worker: str
    tenant: str
    lease_ms: int


class Session(msgspec.Struct, frozen=True):
    """A session as it is stored: whose it is, and whether it may hold leases."""

    id: UUID
    worker: str
    tenant: str
    lease_ms: int
    alive: bool
    draining: bool
    bare: bool
    """Of one job: not one to claim with."""
    is_presence: bool
    """Of a caller that keeps none so far: not one to claim with before it is opened."""
    silent_s: float
    """Since its last heartbeat."""
    kept: bool
    """Whether retries are kept for it, which it may claim back (claim.py)."""


class HeldLease(msgspec.Struct, frozen=True):
    """Who has a job at this moment."""

    job_id: UUID
    fence: int
    session: UUID
    worker: str
    lease_ms: int
    bare: bool
    cancelling: bool


class Held(msgspec.Struct, frozen=True):
    """A lease that a worker names in its heartbeat."""

    job_id: UUID
    fence: int
    started: bool = False
    ran_ms: int = 0
    """How long ago it began, when the heartbeat was sent."""


class Beat(msgspec.Struct, frozen=True):
    """One session's heartbeat. `held` is everything it holds, unless `whole` is false: then nothing is given back.

    With `held` None it does not say: nothing is given back, and it is told of all its jobs that are to be cancelled.
    """

    session: UUID
    held: Sequence[Held] | None = None
    busy: int | None = None
    skew_ms: int | None = None
    tenant: str = "default"
    whole: bool = True
    completed: int | None = None
    """Jobs completed since the beat before; added to the session's count. None: it does not say."""
    failed: int | None = None
    draining: bool = False
    """It finishes what it holds and claims no more; once said, it stays so."""
    presence: bool = False
    """The sign of life of a caller that keeps no session; it renews nothing that holds leases."""
    lease_ms: int = 0
    """Of a presence: how long it is to last at least, where its caller has not asked for a length."""
    heard_at: float | None = None
    """When it came, by the caller's elapsed time; None: just now. What it holds began so long before that."""


class BeatAnswer(msgspec.Struct, frozen=True):
    """What the session must know: whether it lives, which of its jobs to stop, which are no longer its own."""

    alive: bool
    cancel: list[UUID]
    lost: list[UUID]
    released: list[UUID]
    """Leases it did not name and that went back to the queue."""
    draining: bool = False
    lease_ms: int = 0
    late_ms: list[int] = []
    """Of each first attempt whose start it told first: from due to the start."""


class _Found(msgspec.Struct):
    """The leases of some sessions, as the database has them."""

    own: dict[LeaseKey, int] = {}
    """Those that are really theirs, with their flags."""
    late_ms: dict[UUID, list[int]] = {}
    """Of first attempts whose start was told just now, by session: from due to the start."""
    stopped: dict[UUID, list[UUID]] = {}
    """Jobs to be cancelled of sessions that do not say what they hold."""
    returned: set[tuple[UUID, UUID]] = set()
    """Jobs that were given back, with their sessions."""


async def register(db: Statements, session: NewSession) -> bool:
    """Open a session; its lease runs from now. Saying it again is harmless; Conflict if the session has ended.

    Return whether it was not known before.
    """
    check_session(session)
    is_known = bool(await find_sessions(db, [session.id]))
    if not await db.fetch(SQL.register, **msgspec.structs.asdict(session)):
        raise ended_session(session.id)
    return not is_known


async def open_session(db: Statements, session: UUID, *, worker: str, tenant: str, lease_ms: int) -> None:
    """Open a session that a call names, as its worker has registered; Conflict if it has ended or is another's."""
    check_bare(BareSession(session, worker, tenant, lease_ms))
    if not await db.fetch(SQL.open_session, id=session, worker=worker, tenant=tenant, lease_ms=lease_ms):
        raise ended_session(session)


async def heartbeat(
    db: Statements, beats: Sequence[Beat], *, timeout_grace_ms: int = TIMEOUT_GRACE_MS, elapsed_s: float = 0.0
) -> list[BeatAnswer]:
    """Renew sessions and reconcile what they hold; answers in order. Not alive: stop all jobs, open a new session.

    `elapsed_s` is the present instant of the clock that tells when beats came.
    """
    for beat in beats:
        check_range("busy", beat.busy, 0, MAX_INT)
        check_range("skew_ms", beat.skew_ms, -MAX_INT, MAX_INT)
        check_range("completed", beat.completed, 0, MAX_COUNTED)
        check_range("failed", beat.failed, 0, MAX_COUNTED)
        for held in beat.held or ():
            check_range("fence", held.fence, 1, MAX_INT)
            check_range("started", held.ran_ms, 0, MAX_DELAY_MS)
    is_long = sum(len(beat.held or ()) for beat in beats) > NAMED_AT_ONCE
    if is_long:
        # Its leases live on meanwhile. Its counts come with what is done last: what a rival prevents is run again.
        uncounted = [msgspec.structs.replace(beat, completed=None, failed=None) for beat in beats]
        found = await _begun(db, _heard(beats, await _renewed(db, uncounted)), timeout_grace_ms, elapsed_s)
    async with db.transaction() as transaction:
        alive = await _renewed(transaction, beats)
        heard = _heard(beats, alive)
        if not is_long:
            found = await _begun(transaction, heard, timeout_grace_ms, elapsed_s)
        await _give_back(transaction, heard, found)
    return [_answer(beat, alive, found) for beat in beats]


async def _renewed(db: Statements, beats: Sequence[Beat]) -> dict[tuple[UUID, str], Row]:
    """Renew the sessions of beats; return those that are alive, by id and tenant."""
    return {(row["id"], row["tenant"]): row for row in await db.fetch(SQL.renew, beats=_renewals(beats))}


def _heard(beats: Sequence[Beat], alive: Mapping[tuple[UUID, str], Row]) -> list[Beat]:
    return [beat for beat in beats if (beat.session, beat.tenant) in alive]


async def _begun(db: Statements, beats: Sequence[Beat], grace_ms: int, elapsed_s: float) -> _Found:
    """Note which leases have begun, and find those that are really their sessions' own."""
    named, ran_ms = _named(beats), _ran_ms(beats, elapsed_s)
    found = _Found()
    for start in range(0, len(named), NAMED_AT_ONCE):
        portion = named[start : start + NAMED_AT_ONCE]
        async with db.transaction() as transaction:
            if begun := [(*name, ran_ms[name]) for name in portion if name in ran_ms]:
                for row in await transaction.fetch(SQL.start, begun=begun, grace_ms=grace_ms):
                    if row["attempt"] == 1:
                        found.late_ms.setdefault(row["session"], []).append(row["late_ms"])
            found.own |= await _own(transaction, portion)
    return found


async def _give_back(db: Statements, beats: Sequence[Beat], found: _Found) -> None:
    """Give back the leases that their sessions do not name; of sessions that name none find what is to be cancelled."""
    found.stopped = await _cancelled(db, {beat.session for beat in beats if beat.held is None})
    listing = [beat.session for beat in beats if beat.held is not None and beat.whole]
    old = await db.fetch(SQL.old_leases, sessions=listing, older_ms=UNLISTED_MS)
    unlisted = {(row["id"], row["fence"], row["session"]) for row in old}.difference(_keys(beats))
    # One that is locked is being reported at this moment.
    leases = await moves.lock(db, [LeaseName(*name) for name in sorted(unlisted)], skip_locked=True)
    given_back = await moves.apply(db, [moves.give_back(lease, "Not held by its worker.") for lease in leases])
    found.returned = {(moved.move.lease.id, moved.move.lease.session) for moved in given_back.values()}


async def look(db: Statements, beats: Sequence[Beat]) -> list[BeatAnswer]:
    """Return what sessions must know, as a heartbeat would tell it; nothing is renewed or given back."""
    found = (await find_sessions(db, [beat.session for beat in beats])).values()
    alive: dict[tuple[UUID, str], Row] = {
        (session.id, session.tenant): {"draining": session.draining, "lease_ms": session.lease_ms}
        for session in found
        if session.alive
    }
    own = await _own(db, _named(beats))
    stopped = await _cancelled(db, {beat.session for beat in beats if beat.held is None})
    return [_answer(beat, alive, _Found(own=own, stopped=stopped)) for beat in beats]


async def close(db: Statements, session: UUID, *, tenant: str, reason: str) -> list[Moved]:
    """End a session by its worker's wish; what it holds goes back without using an attempt. Return where it went."""
    async with db.transaction() as transaction:
        leases = await _ended(transaction, session, tenant, SessionState.STOPPED)
        moved = await moves.apply(transaction, [moves.release(lease, storable(reason)) for lease in leases])
    return list(moved.values())


async def lose(db: Statements, session: UUID, *, tenant: str, reason: str, chance: Callable[[], float]) -> list[Moved]:
    """End a session whose process died: what it had begun is lost, the rest goes back; return where its leases went."""
    async with db.transaction() as transaction:
        leases = await _ended(transaction, session, tenant, SessionState.DEAD)
        decided = [
            moves.release(lease, storable(reason)) if lease.started_at is None else moves.lose(lease, chance=chance())
            for lease in leases
        ]
        moved = await moves.apply(transaction, decided)
    return list(moved.values())


async def _ended(db: Statements, session: UUID, tenant: str, state: SessionState) -> list[Lease]:
    """End a session if it lives, and return what it still holds, locked."""
    await db.fetch(SQL.close, session=session, tenant=tenant, state=int(state))
    # Also those claimed after this transaction began.
    found = await db.fetch(SQL.old_leases, sessions=[session], older_ms=-MAX_LEASE_MS)
    return await moves.lock(db, [LeaseName(row["id"], row["fence"], session, tenant=tenant) for row in found])


async def drain(db: Statements, *, tenant: str, worker: str) -> list[UUID]:
    """Tell the sessions of a worker to finish what they hold and claim no more; return those that live."""
    return [row["id"] for row in await db.fetch(SQL.drain, tenant=tenant, worker=worker)]


async def claim_bare(
    db: Statements, ids: Ids, claiming: Claiming, *, count: int, worker: str, tenant: str, lease_ms: int
) -> list[Claimed]:
    """Claim for a caller that keeps no session: each job gets one of its own, made and dropped in this transaction."""
    check_range("count", count, 1, MAX_CLAIM)
    sessions = [BareSession(ids.new(), worker, tenant, lease_ms) for _ in range(count)]
    return await claim_for_bare(db, sessions, claiming)


async def claim_for_bare(db: Statements, sessions: Sequence[BareSession], claiming: Claiming) -> list[Claimed]:
    """Open sessions, claim for them, and drop those that got nothing; all in one transaction."""
    for session in {(s.worker, s.tenant, s.lease_ms): s for s in sessions}.values():
        check_bare(session)
    async with db.transaction() as transaction:
        rows = [msgspec.structs.astuple(session) for session in sessions]
        await transaction.fetch(SQL.register_bare, sessions=rows)
        jobs = await claiming(transaction, [session.id for session in sessions])
        unused = {session.id for session in sessions} - {job.session for job in jobs}
        await transaction.fetch(SQL.forget, sessions=sorted(unused))
    return jobs


async def find_sessions(db: Statements, ids: Sequence[UUID]) -> dict[UUID, Session]:
    """Return the sessions that exist among `ids`, alive or ended."""
    rows = await db.fetch(SQL.find_sessions, ids=sorted(set(ids)))
    return {
        row["id"]: Session(
            id=row["id"],
            worker=row["worker"],
            tenant=row["tenant"],
            lease_ms=row["lease_ms"],
            alive=row["state"] == SessionState.ALIVE,
            draining=bool(row["draining"]),
            bare=bool(row["bare"]),
            is_presence=bool(row["presence"]),
            silent_s=row["silent_s"],
            kept=bool(row["kept"]),
        )
        for row in rows
    }


async def find_lease(db: Statements, job_id: UUID, *, tenant: str) -> HeldLease | None:
    """Return who has the job now; None if nobody has, or it is not this tenant's."""
    for row in await db.fetch(SQL.find_lease, id=job_id, tenant=tenant):
        return HeldLease(
            job_id=row["id"],
            fence=row["fence"],
            session=row["session"],
            worker=row["worker"],
            lease_ms=row["lease_ms"],
            bare=bool(row["bare"]),
            cancelling=bool(row["flags"] & Flag.CANCEL),
        )
    return None


async def forget_ended(db: Statements, *, keep_ms: int, keep_bare_ms: int, limit: int = 1000) -> int:
    """Remove sessions that ended long ago and hold nothing, `limit` at a time; return how many.

    Never at once: a claim that saw one alive may commit later, and rescue must find its lease.
    """
    total = 0
    while True:
        removed = len(await db.fetch(SQL.forget_ended, keep_ms=keep_ms, keep_bare_ms=keep_bare_ms, limit=limit))
        total += removed
        if removed < limit:
            return total


def _keys(beats: Sequence[Beat]) -> set[LeaseKey]:
    return {(held.job_id, held.fence, beat.session) for beat in beats for held in beat.held or ()}


def _named(beats: Sequence[Beat]) -> list[LeaseKey]:
    return sorted(_keys(beats), key=_order)


def _order(name: LeaseKey) -> tuple[int, int, int]:
    """Return what leases are sorted by: ten thousand ids, compared by themselves, would hold the event loop."""
    return name[0].int, name[1], name[2].int


async def _own(db: Statements, named: Sequence[LeaseKey]) -> dict[LeaseKey, int]:
    """Return which of the named leases their sessions really have, with their flags."""
    if not named:
        return {}
    own = {(row["id"], row["fence"], row["session"]): row["flags"] for row in await db.fetch(SQL.held, named=named)}
    if missing := [name for name in named if name not in own]:
        # The relay has ended what an application finished in its own transaction (outbox.py).
        ended = await db.fetch(SQL.succeeded, named=missing)
        own |= {(row["id"], row["fence"], row["session"]): 0 for row in ended}
    return own


async def _cancelled(db: Statements, sessions: set[UUID]) -> dict[UUID, list[UUID]]:
    found: dict[UUID, list[UUID]] = {}
    if sessions:
        for row in await db.fetch(SQL.cancelled, sessions=sorted(sessions)):
            found.setdefault(row["session"], []).append(row["id"])
    return found


def _ran_ms(beats: Sequence[Beat], elapsed_s: float) -> dict[LeaseKey, int]:
    """Return how long ago each lease that has begun did; of several words the earliest start counts."""
    ran: dict[LeaseKey, int] = {}
    for beat in beats:
        late_ms = 0 if beat.heard_at is None else max(0, round((elapsed_s - beat.heard_at) * 1000))
        for held in beat.held or ():
            if held.started:
                name = (held.job_id, held.fence, beat.session)
                ran[name] = max(held.ran_ms + late_ms, ran.get(name, 0))
    return ran


def _renewals(beats: Sequence[Beat]) -> list[tuple[object, ...]]:
    """Return one row for each session, in one order; of several beats the last word holds, and counts are added."""
    merged: dict[tuple[UUID, str], Beat] = {}
    for beat in beats:
        name = (beat.session, beat.tenant)
        merged[name] = _merged(merged[name], beat) if name in merged else beat
    rows: list[tuple[object, ...]] = []
    for name in sorted(merged):
        beat = merged[name]
        said = (beat.busy, beat.skew_ms, beat.completed or 0, beat.failed or 0)
        rows.append((*name, *said, int(beat.draining), int(beat.presence), beat.lease_ms))
    return rows


def _merged(before: Beat, beat: Beat) -> Beat:
    return msgspec.structs.replace(
        beat,
        busy=before.busy if beat.busy is None else beat.busy,
        skew_ms=before.skew_ms if beat.skew_ms is None else beat.skew_ms,
        completed=(before.completed or 0) + (beat.completed or 0),
        failed=(before.failed or 0) + (beat.failed or 0),
        draining=before.draining or beat.draining,
        # The beat of a session renews it, whatever a call under its worker's name took it for.
        presence=before.presence and beat.presence,
        lease_ms=max(before.lease_ms, beat.lease_ms),
    )


def _answer(beat: Beat, alive: dict[tuple[UUID, str], Row], found: _Found) -> BeatAnswer:
    renewed = alive.get((beat.session, beat.tenant))
    if renewed is None:
        return BeatAnswer(alive=False, cancel=[], lost=[held.job_id for held in beat.held or ()], released=[])
    flags: dict[UUID, int | None] = {}
    for held in beat.held or ():
        # A job may be named twice, under the fence of a report that is under way and under that of a new claim.
        bits = found.own.get((held.job_id, held.fence, beat.session))
        flags[held.job_id] = flags.get(held.job_id) if bits is None else bits
    named = [job_id for job_id, bits in flags.items() if bits is not None and bits & Flag.CANCEL]
    return BeatAnswer(
        alive=True,
        cancel=named if beat.held is not None else found.stopped.get(beat.session, []),
        lost=[job_id for job_id, bits in flags.items() if bits is None],
        released=sorted(job_id for job_id, session in found.returned if session == beat.session),
        draining=bool(renewed["draining"]),
        lease_ms=renewed["lease_ms"],
        late_ms=found.late_ms.pop(beat.session, []),
    )


def check_bare(session: BareSession) -> None:
    """Return if a bare caller may have such a session."""
    check_session(NewSession(id=session.id, worker=session.worker, tenant=session.tenant, lease_ms=session.lease_ms))


def check_session(session: NewSession) -> None:
    """Return if a worker may open such a session."""
    check_name("worker", session.worker)
    check_name("tenant", session.tenant)
    check_range("lease_ms", session.lease_ms, 1, MAX_LEASE_MS)
    check_range("capacity", session.capacity, 0, MAX_INT)
    check_range("pid", session.pid, 0, MAX_INT)
    for field in ("host", "version", "build", "region", "labels", "tasks", "queues"):
        text = getattr(session, field)
        if text:
            check_text(field, text, longest=MAX_TEXT)


def ended_session(session: UUID) -> Conflict:
    """Return what a caller is told of a session that has ended; of another tenant's it is told the same."""
    return Conflict(f"Session {session} has ended, or is another worker's. Stop its jobs and register with a new one.")
