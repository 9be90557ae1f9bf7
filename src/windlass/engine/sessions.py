"""Sessions as this server knows them: whose a session is, and that every call is a sign of life of its worker.

A worker's claim names its session; whose it is and how long its leases are is looked up once in a while, not at every
claim. Whether it still lives is decided by the claim statement itself, not here.
A claim or report of a session that has sent no heartbeat for half its lease is stored as one.
A bare caller keeps no session: each of its jobs has one. So that it is listed among the workers all the same, every
call that names it renews its presence (queue/presence.py).
Nobody waits for a sign of life: it goes with the next flush of heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec

from windlass.db import Database
from windlass.engine.batch import Batcher
from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.errors import NotFound, WindlassError
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import presence, workers
from windlass.queue.report import Answer, Fail, Report
from windlass.queue.workers import BareSession, Beat, BeatAnswer, Session

KEPT_S = 2.0
"""How long a session that was looked up is believed."""
MOST_KNOWN = 20_000
COUNTS_S = 2.0
"""How long after its last beat a bare caller beats again, if it has ended attempts: sooner than to stay alive."""
PRESENCE_S = 10.0
"""How long after its last beat a bare caller beats again, at most: those heard within a minute are active."""

Name = tuple[str, str]
"""A worker: tenant and name."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of a bare caller says of the caller."""

    lease_ms: int = 0
    """How long the caller is to be alive after this call, at least."""
    is_heartbeat: bool = False
    """It is stored, however short ago the last call was."""
    busy: int | None = None
    skew_ms: int | None = None
    completed: int | None = None
    failed: int | None = None


CALLED = Told()
"""A call that says nothing more."""


class _Known(msgspec.Struct):
    session: Session
    looked_at: float
    heard_at: float
    """By a heartbeat, as far as this server knows."""


class Present(msgspec.Struct):
    """The presence of a bare caller, as this server knows it."""

    session: UUID
    lease_ms: int
    lease_asked: bool
    """The caller asked for the length when it registered."""
    draining: bool
    heard_at: float = float("-inf")
    told_ms: int = 0
    """The longest that its calls have asked for."""


class _Counts(msgspec.Struct):
    completed: int = 0
    failed: int = 0


class Sessions:
    """A short memory of sessions, and the signs of life of workers."""

    def __init__(
        self,
        db: Database,
        ids: Ids,
        wake: Wake,
        *,
        beats: Batcher[Beat, BeatAnswer],
        lease_ms: int,
        outside: Outside,
    ) -> None:
        self._db = db
        self._ids = ids
        self._beats = beats
        self._lease_ms = lease_ms
        self._outside = outside
        self._known: dict[UUID, _Known] = {}
        self._present: dict[Name, Present] = {}
        self._counts: dict[Name, _Counts] = {}
        self._meeting: set[Name] = set()
        self._beating: set[asyncio.Task[None]] = set()
        wake.on_kept.append(self._forget)

    async def find(self, session_id: UUID, *, tenant: str, worker: str) -> Session:
        """Return a live session that claims; NotFound if it is unknown or another worker's, Conflict if it has ended.

        Another tenant's is like one that has ended.
        """
        known = self._known.get(session_id)
        if known is None or self._outside.monotonic() - known.looked_at > KEPT_S:
            known = await self._look_up(session_id)
        if known is not None and known.session.tenant != tenant:
            raise workers.ended_session(session_id)
        if known is None or _is_foreign(known.session, tenant, worker) or known.session.is_presence:
            raise NotFound(f"There is no session {session_id} of worker {worker}.")
        if not known.session.alive:
            self._known.pop(session_id, None)
            raise workers.ended_session(session_id)
        if self._is_silent(known):
            self._spawn(self._renew(known))
        return known.session

    def _forget(self, session_id: UUID) -> None:
        """Look the session up anew when it claims next: a retry is kept for it."""
        self._known.pop(session_id, None)

    async def check_worker(self, session_id: UUID, *, tenant: str, worker: str) -> None:
        """Raise NotFound if a session belongs to another worker; an unknown one passes. Its worker never changes.

        Another tenant's is like one that has ended: Conflict.
        """
        known = self._known.get(session_id) or await self._look_up(session_id)
        if known is not None and known.session.tenant != tenant:
            raise workers.ended_session(session_id)
        if known is not None and _is_foreign(known.session, tenant, worker):
            raise NotFound(f"There is no session {session_id} of worker {worker}.")

    def count(self, report: Report, answer: Answer) -> None:
        """Remember, for the worker's next heartbeat, that an attempt of its ended."""
        name = (report.tenant, report.worker)
        if name not in self._counts:
            _make_room(self._counts)
        counts = self._counts.setdefault(name, _Counts())
        counts.completed += answer.state is State.SUCCEEDED
        counts.failed += isinstance(report, Fail)

    def heartbeat(self, beat: Beat) -> Beat:
        """Return the beat with what its worker has completed and failed since the last: as it says, or as seen here.

        One that counts itself does so whichever server it speaks to; what was seen here would count it twice.
        """
        known = self._known.get(beat.session)
        if known is None:
            return beat
        known.heard_at = self._outside.monotonic()
        counts = self._counts.pop((beat.tenant, known.session.worker), None)
        return beat if _tells_counts(beat) else _counted(beat, counts)

    async def seen(self, tenant: str, worker: str, told: Told = CALLED) -> Present:
        """Take a call of a bare caller as its sign of life; return its presence, as it was known before the call."""
        known = self._present.get((tenant, worker)) or await self._appear((tenant, worker), told.lease_ms)
        self._touch((tenant, worker), known, told)
        return known

    def registered(self, tenant: str, worker: str) -> None:
        """Note that a worker has a new presence."""
        self._present.pop((tenant, worker), None)

    def reported(self, reports: Sequence[Report]) -> None:
        """Take reports as signs of life of the workers that they name."""
        for tenant, worker, session in {(item.tenant, item.worker, item.session) for item in reports}:
            name = (tenant, worker)
            known = None if session is None else self._known.get(session)
            present = self._present.get(name)
            if known is None and present is not None:
                self._touch(name, present, CALLED)
            elif (known is None or self._is_silent(known)) and name not in self._meeting:
                self._meeting.add(name)
                self._spawn(self._meet(name, session))

    async def idle(self) -> None:
        """Return when the signs of life of all calls so far are stored, or could not be."""
        while self._beating:
            await asyncio.wait(self._beating)

    def _touch(self, name: Name, known: Present, told: Told) -> None:
        now = self._outside.monotonic()
        due = now - known.heard_at > self._pause_s(name, known)
        if due or told.is_heartbeat or told.lease_ms > known.told_ms:
            known.heard_at, known.told_ms = now, max(known.told_ms, told.lease_ms)
            self._spawn(self._beat(name, known, told))

    async def _meet(self, name: Name, session_id: UUID | None) -> None:
        """Renew the session that a report names, or else the presence of its worker; an ended session is over."""
        try:
            found = None if session_id is None else await self._look_up(session_id)
            if session_id is None or (found is not None and found.session.bare):
                await self.seen(*name)
            elif found is None or _is_foreign(found.session, *name):
                return  # a report keeps alive nothing but its own worker
            elif found.session.alive and self._is_silent(found):
                await self._renew(found)
        except WindlassError:  # it is heard again at its next call
            return
        finally:
            self._meeting.discard(name)

    async def _look_up(self, session_id: UUID) -> _Known | None:
        session = (await workers.find_sessions(self._db, [session_id])).get(session_id)
        if session is None:
            return None
        now = self._outside.monotonic()
        known = _Known(session, now, now - session.silent_s)
        if not session.bare and not session.is_presence:  # a presence may be a session the next time
            _make_room(self._known)
            self._known[session_id] = known
        return known

    def _is_silent(self, known: _Known) -> bool:
        return self._outside.monotonic() - known.heard_at > known.session.lease_ms / 2000

    async def _renew(self, known: _Known) -> None:
        session = known.session
        known.heard_at = self._outside.monotonic()
        counts = self._counts.pop((session.tenant, session.worker), None)
        answer = await self._ask(
            (session.tenant, session.worker), Beat(session=session.id, tenant=session.tenant), counts
        )
        if answer is None or not answer.alive:
            self._known.pop(session.id, None)

    def _pause_s(self, name: Name, known: Present) -> float:
        third_s = min(known.lease_ms / 3000, PRESENCE_S)
        return min(third_s, COUNTS_S) if name in self._counts else third_s

    async def _beat(self, name: Name, known: Present, told: Told) -> None:
        counts = self._counts.pop(name, None)
        beat = Beat(
            session=known.session,
            tenant=name[0],
            presence=True,
            lease_ms=told.lease_ms,
            busy=told.busy,
            skew_ms=told.skew_ms,
            completed=told.completed,
            failed=told.failed,
        )
        answer = await self._ask(name, beat, counts)
        if answer is None:
            known.heard_at = float("-inf")
        elif answer.alive:
            known.draining, known.lease_ms = answer.draining, answer.lease_ms
        elif self._present.get(name) is known:
            # It had lapsed, or its worker has registered anew: this call is the sign of life of the next one.
            del self._present[name]
            with suppress(WindlassError):
                await self._appear(name, told.lease_ms)

    async def _ask(self, name: Name, beat: Beat, counts: _Counts | None) -> BeatAnswer | None:
        """Store a beat with the counts of its worker; None if it could not be. Counts that were not stored are kept."""
        answer = None
        tells = _tells_counts(beat)
        with suppress(WindlassError):  # the worker is heard again at its next call
            answer = await self._beats.ask(beat if tells else _counted(beat, counts))
        if counts is not None and not tells and (answer is None or not answer.alive):
            since = self._counts.setdefault(name, _Counts())
            since.completed += counts.completed
            since.failed += counts.failed
        return answer

    async def _appear(self, name: Name, lease_ms: int) -> Present:
        _make_room(self._present)
        tenant, worker = name
        caller = BareSession(self._ids.new(), worker, tenant, max(lease_ms, self._lease_ms))
        found = await presence.appear(self._db, caller)
        known = self._present[name] = Present(found.id, found.lease_ms, found.lease_asked, found.draining)
        return known

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="sign of life")
        self._beating.add(task)
        task.add_done_callback(self._beating.discard)


def _is_foreign(session: Session, tenant: str, worker: str) -> bool:
    return (session.tenant, session.worker) != (tenant, worker) or session.bare


def _make_room(known: dict[Any, Any]) -> None:
    """Forget the oldest when there are too many: who is still there is met again."""
    while len(known) >= MOST_KNOWN:
        del known[next(iter(known))]


def _tells_counts(beat: Beat) -> bool:
    return beat.completed is not None or beat.failed is not None


def _counted(beat: Beat, counts: _Counts | None) -> Beat:
    return beat if counts is None else msgspec.structs.replace(beat, completed=counts.completed, failed=counts.failed)
