"""Sessions as this server knows them: whose a session is, and that nameless callers are alive.

A worker's claim names its session; whose it is and how long its leases are is looked up once in a while, not at every
claim. Whether it still lives is decided by the claim statement itself, not here.
A bare caller keeps no session: each of its jobs has one. So that it is listed among the workers all the same, every
call that names it is its sign of life, kept in a session of its own that never holds a job.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec

from windlass.db import Database
from windlass.engine.batch import Batcher
from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.errors import Conflict, NotFound, WindlassError
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import workers
from windlass.queue.report import Answer, Fail, Report
from windlass.queue.workers import Beat, BeatAnswer, NewSession, Session

KEPT_S = 2.0
"""How long a session that was looked up is believed."""
MOST_KNOWN = 20_000
COUNTS_S = 2.0
"""How long after its last beat a bare caller beats again, if it has ended attempts: sooner than to stay alive."""


class _Presence(msgspec.Struct):
    session: UUID
    heard_at: float
    draining: bool = False


class _Counts(msgspec.Struct):
    completed: int = 0
    failed: int = 0


class Sessions:
    """A short memory of sessions, and the presence of bare callers."""

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
        self._known: dict[UUID, tuple[float, Session]] = {}
        self._present: dict[tuple[str, str], _Presence] = {}
        self._counts: dict[tuple[str, str], _Counts] = {}
        self._beating: set[asyncio.Task[None]] = set()
        wake.on_kept.append(self._forget)

    async def find(self, session_id: UUID, *, tenant: str, worker: str) -> Session:
        """Return a live session; NotFound if it is unknown or another's, Conflict if it has ended."""
        now = self._outside.monotonic()
        looked_at, session = self._known.get(session_id, (float("-inf"), None))
        if session is None or now - looked_at > KEPT_S:
            session = (await workers.find_sessions(self._db, [session_id])).get(session_id)
        if session is None or (session.tenant, session.worker) != (tenant, worker) or session.bare:
            raise NotFound(f"There is no session {session_id} of worker {worker}.")
        if not session.alive:
            self._known.pop(session_id, None)
            raise Conflict(f"Session {session_id} has ended. Stop its jobs and register with a new one.")
        if now - looked_at > KEPT_S:
            _make_room(self._known)
            self._known[session_id] = (now, session)
        return session

    def _forget(self, session_id: UUID) -> None:
        """Look the session up anew when it claims next: a retry is kept for it."""
        self._known.pop(session_id, None)

    async def check_worker(self, session_id: UUID, *, tenant: str, worker: str) -> None:
        """Return if a session is this worker's, or unknown; NotFound if it is another's. Whose it is never changes."""
        known = self._known.get(session_id)
        session = known[1] if known else (await workers.find_sessions(self._db, [session_id])).get(session_id)
        if session is None:
            return
        if (session.tenant, session.worker) != (tenant, worker) or session.bare:
            raise NotFound(f"There is no session {session_id} of worker {worker}.")
        if known is None:
            _make_room(self._known)
            self._known[session_id] = (float("-inf"), session)

    def count(self, report: Report, answer: Answer) -> None:
        """Remember, for the worker's next heartbeat, that an attempt of its ended."""
        name = (report.tenant, report.worker)
        if name not in self._counts:
            _make_room(self._counts)
        counts = self._counts.setdefault(name, _Counts())
        counts.completed += answer.state is State.SUCCEEDED
        counts.failed += isinstance(report, Fail)

    def with_counts(self, beat: Beat) -> Beat:
        """Return the beat with what its worker has completed and failed since the last: as it says, or as seen here.

        One that counts itself does so whichever server it speaks to; what was seen here would count it twice.
        """
        known = self._known.get(beat.session)
        counts = None if known is None else self._counts.pop((beat.tenant, known[1].worker), None)
        tells = beat.completed is not None or beat.failed is not None
        return beat if counts is None or tells else _counted(beat, counts)

    async def seen(self, tenant: str, worker: str) -> bool:
        """Take a call of a bare caller as its sign of life; return whether it is told to drain.

        Nobody waits for it: the beat goes with the next flush, and what that tells is known at the next call.
        """
        known = self._present.get((tenant, worker))
        if known is None:
            known = await self._appear(tenant, worker)
        elif self._outside.monotonic() - known.heard_at > self._pause_s(tenant, worker):
            known.heard_at = self._outside.monotonic()
            task = asyncio.create_task(self._beat(tenant, worker, known), name="presence")
            self._beating.add(task)
            task.add_done_callback(self._beating.discard)
        return known.draining

    def _pause_s(self, tenant: str, worker: str) -> float:
        third_s = self._lease_ms / 3000
        return min(third_s, COUNTS_S) if (tenant, worker) in self._counts else third_s

    async def _beat(self, tenant: str, worker: str, known: _Presence) -> None:
        counts = self._counts.pop((tenant, worker), None)
        beat = Beat(session=known.session, tenant=tenant)
        try:
            answer = await self._beats.ask(beat if counts is None else _counted(beat, counts))
        except WindlassError:  # it is heard again at its next call
            known.heard_at = float("-inf")
            self._keep(tenant, worker, counts)
            return
        known.draining = answer.draining
        if not answer.alive:
            self._present.pop((tenant, worker), None)
            self._keep(tenant, worker, counts)

    def _keep(self, tenant: str, worker: str, counts: _Counts | None) -> None:
        """Keep counts that were not stored for the next beat."""
        if counts is not None:
            since = self._counts.setdefault((tenant, worker), _Counts())
            since.completed += counts.completed
            since.failed += counts.failed

    async def _appear(self, tenant: str, worker: str) -> _Presence:
        _make_room(self._present)
        session = await workers.find_presence(self._db, tenant=tenant, worker=worker)
        heard_at = self._outside.monotonic()
        if session is None:
            session = self._ids.new()
            new = NewSession(id=session, worker=worker, tenant=tenant, lease_ms=self._lease_ms, presence=1)
            await workers.register(self._db, new)
        else:
            heard_at = float("-inf")
        known = self._present[tenant, worker] = _Presence(session, heard_at)
        return known


def _make_room(known: dict[Any, Any]) -> None:
    """Forget the oldest when there are too many: who is still there is met again."""
    while len(known) >= MOST_KNOWN:
        del known[next(iter(known))]


def _counted(beat: Beat, counts: _Counts) -> Beat:
    return msgspec.structs.replace(beat, completed=counts.completed, failed=counts.failed)
