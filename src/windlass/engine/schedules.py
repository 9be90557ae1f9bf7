"""What people do to schedules. Each act calls its step in `queue/`, then wakes who must know.

They take their turns with the other acts of people (acts.py). Firing looks for what is due by itself (firing.py): a
schedule that was made, changed or resumed is seen at its next look.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import datetime
from functools import partial
from uuid import UUID

from windlass.db import Database
from windlass.engine.batch import MUCH
from windlass.engine.computing import Computing
from windlass.engine.wake import Wake
from windlass.ids import Ids
from windlass.queue import backfills, declared, recurring, scheduledits, schedules
from windlass.queue.backfills import Backfill
from windlass.queue.control import Actor
from windlass.queue.declared import Reconciled
from windlass.queue.defaults import Given, nothing_given
from windlass.queue.lanes import Lanes
from windlass.queue.schedule import NewSchedule, Reach
from windlass.queue.scheduledits import Deleted
from windlass.queue.schedules import Schedule, Stored
from windlass.queue.schedulewrites import Each, in_thread
from windlass.queue.submit import Submitted

TenantTurn = Callable[[str], AbstractAsyncContextManager[None]]
"""Waits until it is a tenant's turn, and holds it."""


class Schedules:
    """The acts of people on schedules, on one server.

    Where `reach` can be given, a stored schedule beyond it is Forbidden. Where `each` can be given, times are computed
    by it, before the turn to write is waited for.
    """

    def __init__(
        self,
        db: Database,
        lanes: Lanes,
        ids: Ids,
        *,
        wake: Wake,
        turn: TenantTurn,
        large: TenantTurn,
        given: Given = nothing_given,
        keep_days: int = 0,
    ) -> None:
        self._db = db
        self._lanes = lanes
        self._ids = ids
        self._wake = wake
        self._turn = turn
        self._large = large
        self._given = given
        self._keep_days = keep_days
        self.computing = Computing()

    @asynccontextmanager
    async def _turn_for(self, tenant: str, count: int) -> AsyncIterator[None]:
        """Wait for the turn of an act on so many schedules."""
        async with self._turn(tenant), self._large(tenant) if count > MUCH else nullcontext():
            yield

    async def create(
        self,
        asked: Sequence[NewSchedule],
        *,
        replace: bool = False,
        skip: bool = False,
        reach: Reach | None = None,
        each: Each = in_thread,
    ) -> list[Stored]:
        """Store schedules, all or none; NameTaken if a name is another's, unless they replace it or are left out."""
        turn = partial(self._turn_for, asked[0].tenant if asked else "", len(asked))
        return await schedules.create(self._db, asked, replace=replace, skip=skip, reach=reach, each=each, turn=turn)

    async def edit(
        self,
        schedule_id: UUID,
        definition: NewSchedule,
        *,
        tenant: str,
        actor: Actor,
        version: int | None = None,
        reach: Reach | None = None,
    ) -> Schedule:
        """Give a schedule another definition; Conflict if it is not of this version any more."""
        async with self._turn(tenant):
            return await scheduledits.edit(
                self._db, schedule_id, definition, tenant=tenant, actor=actor, version=version, reach=reach
            )

    async def pause(
        self,
        schedule_id: UUID,
        *,
        tenant: str,
        actor: Actor,
        until: datetime | None = None,
        reach: Reach | None = None,
    ) -> Schedule:
        """Let a schedule make no jobs."""
        async with self._turn(tenant):
            return await scheduledits.pause(self._db, schedule_id, tenant=tenant, actor=actor, until=until, reach=reach)

    async def resume(self, schedule_id: UUID, *, tenant: str, actor: Actor, reach: Reach | None = None) -> Schedule:
        """Let a schedule make jobs again, from its next slot on."""
        async with self._turn(tenant):
            return await scheduledits.resume(self._db, schedule_id, tenant=tenant, actor=actor, reach=reach)

    async def delete(
        self,
        schedule_id: UUID,
        *,
        tenant: str,
        actor: Actor,
        purge: bool = False,
        reach: Reach | None = None,
    ) -> Deleted:
        """Remove a schedule and cancel its jobs that no worker has; with `purge` its history goes too."""
        async with self._turn(tenant):
            deleted = await scheduledits.delete(
                self._db, schedule_id, tenant=tenant, actor=actor, purge=purge, reach=reach
            )
        self._ended(deleted.cancelled)
        return deleted

    async def cancel(self, schedule_id: UUID, *, tenant: str, actor: Actor, reach: Reach | None = None) -> Deleted:
        """Remove a schedule that is known as a job: under its id a cancelled job is left."""
        async with self._turn(tenant):
            deleted = await recurring.cancel(
                self._db,
                self._lanes,
                schedule_id,
                tenant=tenant,
                actor=actor,
                reach=reach,
                given=self._given,
            )
        self._ended(deleted.cancelled)
        return deleted

    async def run_now(
        self,
        schedule_id: UUID,
        *,
        tenant: str,
        actor: Actor,
        payload: str | None = None,
        reach: Reach | None = None,
    ) -> Submitted:
        """Make a job of a schedule now, beside its series."""
        async with self._turn(tenant):
            stored = await scheduledits.run_now(
                self._db,
                self._lanes,
                self._ids,
                schedule_id,
                tenant=tenant,
                actor=actor,
                payload=payload,
                reach=reach,
                given=self._given,
            )
        if stored.lane is not None and stored.rank is not None:
            self._wake.ready(stored.lane, stored.rank)
        return stored

    async def declare(
        self,
        owner: str,
        asked: Sequence[NewSchedule],
        *,
        tenant: str,
        actor: Actor,
        dry_run: bool = False,
        reach: Reach | None = None,
        keep: frozenset[str] = frozenset(),
        may_pause: bool = True,
        skip_refused: bool = False,
        each: Each = in_thread,
    ) -> Reconciled:
        """Make the schedules of an application those given, besides those to keep; return what that changed."""
        done = await declared.declare(
            self._db,
            owner,
            asked,
            tenant=tenant,
            actor=actor,
            dry_run=dry_run,
            reach=reach,
            keep=keep,
            may_pause=may_pause,
            skip_refused=skip_refused,
            each=each,
            turn=partial(self._turn_for, tenant, len(asked)),
        )
        self._ended(done.cancelled)
        return done

    async def backfill(
        self,
        schedule: Schedule,
        *,
        since: datetime,
        until: datetime,
        concurrency: int,
        actor: Actor,
        each: Each = in_thread,
    ) -> Backfill:
        """Begin to run the slots of a past range; the duty for it looks by itself."""
        return await backfills.start(
            self._db,
            self._ids,
            schedule,
            since=since,
            until=until,
            concurrency=concurrency,
            keep_days=self._keep_days,
            actor=actor,
            each=each,
            turn=partial(self._turn, schedule.definition.tenant),
        )

    async def stop_backfill(self, backfill_id: UUID, *, tenant: str, actor: Actor) -> Backfill:
        """Let a backfill make no more jobs, and cancel those that no worker has."""
        async with self._turn(tenant):
            stopped = await backfills.stop(self._db, backfill_id, tenant=tenant, actor=actor)
        self._ended(stopped.cancelled)
        return stopped.backfill

    def _ended(self, ids: Iterable[UUID]) -> None:
        for job_id in ids:
            self._wake.ended(job_id)
