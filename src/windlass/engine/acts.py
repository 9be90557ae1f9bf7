"""Acts: what people do to jobs, queues and workers. Each calls its step in `queue/`, then wakes who must know.

They take their turns, a few at a time, so that many of them leave the connections of submit, claim and report alone.
Tenants take turns, too; as they do in lists.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

from windlass.config.settings import Settings
from windlass.db import Database
from windlass.engine.duty import tell
from windlass.engine.fair import Turnstile
from windlass.engine.wake import Wake
from windlass.errors import Conflict, JobFinished, NotFound
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import control, deadletters, lanes, workers
from windlass.queue.control import CANCEL_GRACE_MS, CANCEL_MARGIN_MS, Actor, Cancelled
from windlass.queue.deadletters import Retried
from windlass.queue.erasure import Erased, Wipe, erase_job
from windlass.queue.lanes import LaneName, Lanes
from windlass.queue.moves import Moved
from windlass.queue.submit import Submitted

AT_ONCE = 3
AT_ONCE_EACH = 2
"""Of one tenant: another one finds a turn free, whatever the first one does."""
ROOM_EACH = 200
"""Acts of one tenant that are under way or wait; beyond that it is told to come back."""
LARGE_EACH = 60
"""Lists and large bodies of one tenant that are under way or wait, of one key half of these."""
LARGE_AT_ONCE = 1000
"""Lists and large bodies of all tenants: a body may wait for the database, and others must not wait for it."""
SHOWN_EACH = 200
"""Large items of one tenant that are shown or wait for it, of one key half of these."""
STOPPED_S = 7.0
"""For the last rungs of a worker's ladder, and its report."""

PREPARED_S = 30.0
"""How long an isolated process may take to be up: the time-out of its task runs from then, by its worker's clock."""


def timeout_grace_ms(settings: Settings) -> int:
    """Return how long after its time-out a worker may take to end a task, before the servers do."""
    return round((settings.worker.timeout_grace_seconds + PREPARED_S) * 1000) + stop_margin_ms(settings)


def stop_margin_ms(settings: Settings) -> int:
    """Return how long beyond the grace a worker may take to stop a task: it may hear of it only by a heartbeat."""
    worker = settings.worker
    heartbeat_s = worker.heartbeat_seconds or (worker.lease_seconds or settings.jobs.lease_seconds) / 3
    return round((heartbeat_s + worker.kill_seconds + STOPPED_S) * 1000)


class Acts:
    """The acts of people, on one server."""

    def __init__(self, db: Database, known: Lanes, ids: Ids, *, wake: Wake, margin_ms: int = CANCEL_MARGIN_MS) -> None:
        self._db = db
        self._margin_ms = margin_ms
        self._lanes = known
        self._ids = ids
        self._wake = wake
        self.wipe = Wipe()
        self.large = Turnstile("large requests", at_once=LARGE_AT_ONCE, at_once_each=AT_ONCE_EACH, room_each=LARGE_EACH)
        self._lists = Turnstile("lists", at_once=AT_ONCE, at_once_each=AT_ONCE_EACH, room_each=LARGE_EACH)
        self.showing = Turnstile("large items to show", at_once=1, at_once_each=1, room_each=SHOWN_EACH)
        self.explaining = Turnstile("looks", at_once=AT_ONCE, at_once_each=AT_ONCE_EACH, room_each=ROOM_EACH)
        self.turn = Turnstile("acts", at_once=AT_ONCE, at_once_each=AT_ONCE_EACH, room_each=ROOM_EACH).turn

    @asynccontextmanager
    async def list_turn(self, tenant: str, key: str | None) -> AsyncIterator[None]:
        """Run a list when it is this tenant's turn, and when a connection that reads is free for it."""
        async with self.large.turn(tenant, key), self._lists.turn(tenant):
            yield

    async def cancel(
        self, ids: Sequence[UUID], *, tenant: str, actor: Actor, grace_ms: int | None = CANCEL_GRACE_MS
    ) -> list[Cancelled | JobFinished | NotFound]:
        """Cancel jobs; answers in order: cancelled, cancelling, or why not. No grace: do not wait for their workers."""
        margin_ms = CANCEL_MARGIN_MS if grace_ms is None else self._margin_ms
        async with self.turn(tenant):
            answers = await control.cancel(
                self._db, ids, tenant=tenant, actor=actor, grace_ms=grace_ms or 0, margin_ms=margin_ms
            )
            for answer in answers:
                if not isinstance(answer, Cancelled) or answer.already:
                    continue
                if answer.state is State.CANCELLED:
                    self._wake.ended(answer.id)
                elif lease := await workers.find_lease(self._db, answer.id, tenant=tenant):
                    self._wake.stop(lease.session, answer.id)
        return answers

    async def pause_job(self, job_id: UUID, *, tenant: str, actor: Actor, until: datetime | None = None) -> State:
        """Keep a job from being claimed; return its state."""
        async with self.turn(tenant):
            return await control.pause_job(self._db, job_id, tenant=tenant, actor=actor, until=until)

    async def resume_job(self, job_id: UUID, *, tenant: str, actor: Actor) -> State:
        """Let a paused job go on; return its state."""
        async with self.turn(tenant):
            state = await control.resume_job(self._db, job_id, tenant=tenant, actor=actor)
        self._wake.look()
        return state

    async def pause_queue(self, queue: LaneName, *, actor: Actor, until: datetime | None = None) -> None:
        """Hand out nothing from a queue."""
        async with self.turn(queue.tenant):
            await control.pause_queue(self._db, self._lanes, queue, actor=actor, until=until)

    async def resume_queue(self, queue: LaneName) -> bool:
        """Hand out from a queue again; False if it was not paused."""
        async with self.turn(queue.tenant):
            resumed = await control.resume_queue(self._db, queue)
        self._wake.look()
        return resumed

    async def pause_tenant(self, tenant: str, *, actor: Actor, until: datetime | None = None) -> None:
        """Hand out nothing of a tenant."""
        async with self.turn(tenant):
            await control.pause_tenant(self._db, tenant, actor=actor, until=until)

    async def resume_tenant(self, tenant: str) -> bool:
        """Hand out a tenant's jobs again; False if it was not paused."""
        async with self.turn(tenant):
            resumed = await control.resume_tenant(self._db, tenant)
        self._wake.look()
        return resumed

    async def configure_queue(
        self,
        queue: LaneName,
        *,
        credit_ms: int = lanes.STRICT_PRIORITY_MS,
        fifo: bool = False,
        max_running: int | None = None,
        rate_per_s: float | None = None,
        burst: int | None = None,
    ) -> None:
        """Set how a queue ranks and limits its jobs, making it if need be."""
        async with self.turn(queue.tenant):
            await lanes.configure(
                self._db,
                queue,
                credit_ms=credit_ms,
                fifo=fifo,
                max_running=max_running,
                rate_per_s=rate_per_s,
                burst=burst,
            )
        self._wake.look()

    async def change(
        self,
        job_id: UUID,
        *,
        tenant: str,
        actor: Actor,
        priority: int | None = None,
        queue: str | None = None,
        run_at: datetime | None = None,
    ) -> State:
        """Change priority, queue or due time of a job that waits; return its state."""
        async with self.turn(tenant):
            state = await control.change(
                self._db, self._lanes, job_id, tenant=tenant, actor=actor, priority=priority, queue=queue, run_at=run_at
            )
        self._wake.look()
        return state

    async def retry(
        self, ids: Sequence[UUID], *, tenant: str, actor: Actor, payload: str | None = None
    ) -> list[Retried | Conflict | NotFound]:
        """Run dead, cancelled or expired jobs again; answers in order."""
        async with self.turn(tenant):
            answers = await deadletters.retry(self._db, ids, tenant=tenant, actor=actor, payload=payload)
        for answer in answers:
            if isinstance(answer, Retried):
                self._wake.ready(answer.lane, answer.rank)
        return answers

    async def replay(self, job_id: UUID, *, tenant: str, actor: Actor, payload: str | None = None) -> Submitted:
        """Submit a finished job once more, as a new one."""
        async with self.turn(tenant):
            stored = await deadletters.replay(
                self._db, self._lanes, self._ids, job_id, tenant=tenant, actor=actor, payload=payload
            )
        if stored.lane is not None and stored.rank is not None:
            self._wake.ready(stored.lane, stored.rank)
        return stored

    async def purge(self, ids: Sequence[UUID], *, tenant: str) -> list[UUID]:
        """Remove dead jobs for good; return those that were removed."""
        async with self.turn(tenant):
            return await deadletters.purge(self._db, ids, tenant=tenant)

    async def erase(self, job_id: UUID, *, tenant: str, actor: Actor) -> tuple[Erased, bool]:
        """Remove the content of a job that has ended; also return whether it is out of the database's files."""
        async with self.turn(tenant):
            self.wipe.is_owed = True  # also if we are cancelled after the commit
            erased = await erase_job(self._db, job_id, tenant=tenant, actor=actor)
            return erased, await self.wipe.run(self._db)

    async def drain(self, *, tenant: str, worker: str) -> int:
        """Tell the sessions of a worker to finish and claim no more; return how many live."""
        async with self.turn(tenant):
            told = await workers.drain(self._db, tenant=tenant, worker=worker)
        for session in told:
            self._wake.session(session)
        return len(told)

    async def close(self, session: UUID, *, tenant: str, reason: str) -> list[Moved]:
        """End a session; what it holds goes back. Return where it went."""
        async with self.turn(tenant):
            moved = await workers.close(self._db, session, tenant=tenant, reason=reason)
        self._wake.session(session)
        tell(self._wake, moved)
        return moved

    async def lose(self, session: UUID, *, tenant: str, chance: Callable[[], float]) -> list[Moved]:
        """End a session whose process died; return where its leases went."""
        async with self.turn(tenant):
            moved = await workers.lose(self._db, session, tenant=tenant, reason="Its worker died.", chance=chance)
        self._wake.session(session)
        tell(self._wake, moved)
        return moved
