"""Firing: the duties that fire schedules, each for its part of them.

All schedules lie in 16 shards, divided among the duties `fire-0`, `fire-1`, … Those that this server holds look and
fire together: whichever comes first looks for all of them, and one transaction has the slots of all, so that several
duties on one server cost no more than one. A shard whose lease ends is left out from then on; what is under way for it
is not committed (trusted.py). Slots are fired when they are due and never ahead: an idle look is one small query, and
it is repeated when the next slot is due, after `schedules.tick_seconds` at the latest. A schedule that cannot be fired,
as its zone is unknown to this machine, is left out for two minutes. What is decided stands in queue/slots.py, how it is
written in queue/firing.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from uuid import UUID

from windlass.config import Settings
from windlass.db import Database
from windlass.engine import journal
from windlass.engine.acts import stop_margin_ms
from windlass.engine.duty import Duty, Ran
from windlass.engine.looks import Looks
from windlass.engine.meters import Meters
from windlass.engine.outside import Outside
from windlass.engine.trusted import Trusted
from windlass.engine.wake import Wake
from windlass.engine.zones import Zones, installed_rules
from windlass.errors import DutyLost
from windlass.ids import Ids
from windlass.job import Place, State
from windlass.queue import firing, following, workers
from windlass.queue.defaults import Given
from windlass.queue.firing import Fired
from windlass.queue.lanes import Lanes
from windlass.queue.schedule import SHARDS

FIRE = "fire"
GATHER_S = 0.05
"""Between two looks, so that slots due at nearly the same time come into one transaction."""
LEFT_OUT_S = 120.0
"""After so long a schedule that could not be fired is tried again."""
MOST_LEFT_OUT = 10_000
STOPS_TOLD = 50
"""So many workers are told at once to stop a job that was replaced; others hear it with their next heartbeat."""

logger = logging.getLogger("windlass")

FIRING = "fire-"
"""How the names of the firing duties begin."""


class Firing:
    """The firing duties of one server, which share their looks."""

    def __init__(
        self,
        lanes: Lanes,
        ids: Ids,
        looks: Looks,
        *,
        settings: Settings,
        wake: Wake,
        meters: Meters,
        outside: Outside,
        given: Given,
    ) -> None:
        self._lanes = lanes
        self._looks = looks
        self._ids = ids
        self._settings = settings.schedules
        self._wake = wake
        self._meters = meters
        self._given = given
        self._monotonic = outside.monotonic
        self._cpu_s = outside.cpu_s
        self._margin_ms = stop_margin_ms(settings)
        self._views: dict[int, Trusted] = {}
        """The database as the holder of each duty sees it; a lost one refuses."""
        self._looking = False
        self._next_s = float("-inf")
        """When there is something to do next, by the monotonic clock."""
        self._noticed = looks.noticed
        self._zones = Zones(installed_rules())
        self._begun: Trusted | None = None
        """The holding of the first duty under which the zone rules were compared."""
        self._after: UUID | None = None
        """The schedule after which the next look at waiting jobs begins."""
        self._left_out: dict[UUID, float] = {}
        """Schedules that could not be fired, and until when they are left out, the earliest first."""

    @property
    def duties(self) -> list[Duty]:
        """The duties, for the loops that hold them."""
        settings = self._settings
        return [
            Duty(f"{FIRING}{number}", partial(self._run, number), settings.tick_seconds, settings.batch, self._looks)
            for number in range(settings.shards)
        ]

    async def _run(self, number: int, db: Database, most: int) -> Ran:
        """Look for all duties that are held here, unless one of them has just done it."""
        view = db if isinstance(db, Trusted) else Trusted(db, lambda: None)
        if self._views.get(number) is not view or self._noticed is not self._looks.noticed:
            self._views[number] = view
            self._noticed = self._looks.noticed
            self._next_s = float("-inf")
        if self._looking:
            return Ran(0)
        if (wait_s := self._next_s - self._monotonic()) > 0:
            return Ran(0, wait_s)
        self._looking = True
        try:
            terms, together = self._held(view)
            ran = await self._look(together, terms, most)
            return await self._renew(together, ran)
        except DutyLost:
            view.check()
            # The lease of another duty is over. Its shards are left out from now on.
            return Ran(0, 0.0)
        finally:
            self._looking = False

    def _held(self, view: Trusted) -> tuple[dict[int, int], Trusted]:
        """Return the shards that may be fired now, with their terms, and the database while all of them may be."""
        trusted: dict[int, Trusted] = {}
        for number, other in self._views.items():
            try:
                other.check()
            except DutyLost:
                continue
            trusted[number] = other
        self._views = trusted
        parts = self._settings.shards
        terms = {shard: trusted[shard % parts].term for shard in range(SHARDS) if shard % parts in trusted}
        return terms, view.together(trusted.values())

    async def _look(self, db: Database, terms: Mapping[int, int], most: int) -> Ran:
        began_s = self._monotonic()
        looks = self._looks
        if looks.shards != terms.keys():
            looks.shards = set(terms)
            looks.acted(FIRE)
        looks.without = without = self._forgive()
        rest_s = await looks.rest_s(FIRE, db)
        items, full = 0, False
        if rest_s <= 0:
            looks.acted(FIRE)
            fired = await firing.fire(
                db,
                self._lanes,
                self._ids,
                shards=terms.keys(),
                limit=most,
                term=terms,
                margin_ms=self._margin_ms,
                without=without,
                given=self._given,
                cpu_s=self._cpu_s,
            )
            self._leave_out(fired.failed)
            items, full = fired.decided, fired.full
            await self._tell(db, fired)
        if looks.behind:
            looks.acted(FIRE)
            rest_s = min(rest_s, self._settings.tick_seconds)
            gone = await self._follow(db, terms)
            items += gone
            full = full or (gone > 0 and self._after is not None)
        # What came in the meantime is seen by the next look, a moment after this one.
        self._next_s = began_s + (0.0 if full else max(rest_s, GATHER_S))
        return Ran(items, max(self._next_s - self._monotonic(), 0.0))

    def _forgive(self) -> list[UUID]:
        """Return who is left out, without those whose time is over."""
        now_s = self._monotonic()
        self._left_out = {schedule_id: until_s for schedule_id, until_s in self._left_out.items() if until_s > now_s}
        self._meters.left_out.set(len(self._left_out))
        return list(self._left_out)

    def _leave_out(self, failed: Iterable[UUID]) -> None:
        until_s = self._monotonic() + LEFT_OUT_S
        for schedule_id in failed:
            self._left_out[schedule_id] = until_s
            if len(self._left_out) > MOST_LEFT_OUT:
                del self._left_out[next(iter(self._left_out))]
        self._meters.left_out.set(len(self._left_out))

    async def _renew(self, db: Database, ran: Ran) -> Ran:
        """Look at a chunk of schedules if the rules of zones have changed; who has the first duty does it for all."""
        first = self._views.get(0)
        if first is None:
            return ran
        if self._begun is not first:
            await self._zones.begin(db)
            self._begun = first
        if not self._zones.busy:
            return ran
        moved = await self._zones.go_on(db, self._cpu_s)
        self._next_s = min(self._next_s, self._monotonic() + GATHER_S)
        return Ran(ran.items + moved, max(self._next_s - self._monotonic(), 0.0))

    async def _tell(self, db: Database, fired: Fired) -> None:
        """Wake whoever waits for what was done; it is committed, and nothing here can undo it."""
        try:
            journal.fired(fired)
            self._meters.fired(fired)
            for lane, rank in fired.ready.items():
                self._wake.ready(lane, rank)
            stopping = [(tenant, job.id) for tenant, job in fired.cancelled if job.state is State.CANCELLING]
            for _, job in fired.cancelled:
                if job.state is State.CANCELLED:
                    self._wake.ended(job.id)
            for tenant, job_id in stopping[:STOPS_TOLD]:
                if lease := await workers.find_lease(db, job_id, tenant=tenant):
                    self._wake.stop(lease.session, job_id)
        except DutyLost:
            raise
        except Exception:
            logger.exception("What was fired could not be told to everybody.")

    async def _follow(self, db: Database, terms: Mapping[int, int]) -> int:
        followed = await following.follow(db, shards=terms.keys(), after=self._after)
        self._after = followed.after
        for job in followed.jobs:
            if job.place == Place.READY:
                self._wake.ready(job.lane, job.rank)
        return len(followed.jobs)
