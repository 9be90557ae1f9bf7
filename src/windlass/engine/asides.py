"""Asides: the duties beside firing: backfills and erasures are moved on, and missing runs are told.

They stand on steps that every server may take at once (queue/backfills.py, queue/erasure.py, queue/watches.py); who
holds them is decided in loops.py. Firing itself is in firing.py; none of these waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass import log
from windlass.db import Database
from windlass.engine.duty import Duty, Ran
from windlass.engine.looks import Looks
from windlass.engine.meters import Meters
from windlass.errors import Contention, DutyLost, TooMany, Unavailable, WindlassError
from windlass.ids import Ids
from windlass.queue import backfills, erasure, watches
from windlass.queue.backfills import Advanced, Backfill
from windlass.queue.defaults import Given, nothing_given
from windlass.queue.erasure import Wipe
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.schedule import Decision
from windlass.queue.submit import Submitted

BACKFILL = "backfill"
WATCH = "watch"
LOOK_S = 1.0
ERASE_S = 60.0
WAITS_S = 5.0
"""How often an erasure that waits for others is looked at: each look at a SQLite file holds its writer."""
SOON_S = 0.2
"""How often backfills are looked at while their jobs come and go: nobody tells when one has ended."""
SOON_COUNT = 25
"""So many looks find nothing to do before they come more seldom again."""

Stored = Callable[[Sequence[Sequence[NewJob]], Sequence[list[Submitted] | WindlassError]], None]
"""Told, after the commit, what was stored; it wakes who can run it."""


def aside_duties(lanes: Lanes, ids: Ids, looks: Looks, *, given: Given, stored: Stored, meters: Meters) -> list[Duty]:
    """Return the duties of backfills and of missing runs."""
    return [
        backfill_duty(lanes, ids, looks, given=given, stored=stored, meters=meters),
        watch_duty(looks, meters),
    ]


def erase_duty(ids: Ids, wipe: Wipe) -> Duty:
    """Return the duty that goes on with erasures of tenants and jobs that nobody asks for any more."""

    async def run(db: Database, most: int) -> Ran:
        found = await erasure.under_way(db, limit=most)
        left = [await erasure.go_on(db, ids, name) for name in found]
        if wipe.is_owed and not await wipe.run(db):
            return Ran(len(found), WAITS_S)
        if found and all(each is not None and each.waits for each in left):
            return Ran(len(found), WAITS_S)
        return Ran(len(found), SOON_S if found else None)

    return Duty("erase", run, ERASE_S)


def backfill_duty(
    lanes: Lanes, ids: Ids, looks: Looks, *, given: Given = nothing_given, stored: Stored, meters: Meters
) -> Duty:
    """Return the duty that makes the jobs of backfills."""
    run = _Backfilling(lanes, ids, looks, given, stored, meters).run
    return Duty(BACKFILL, run, LOOK_S, backfills.LOOK_BATCH, looks)


def watch_duty(looks: Looks, meters: Meters) -> Duty:
    """Return the duty that tells which runs are missing."""

    async def run(db: Database, most: int) -> Ran:
        if (rest_s := await looks.rest_s(WATCH, db)) > 0:
            return Ran(0, rest_s)
        looks.acted(WATCH)
        looked = await watches.look(db, limit=most)
        for found in looked.told:
            log.event(
                found.kind,
                schedule=found.name,
                schedule_id=str(found.schedule_id),
                tenant=found.tenant,
                slot_at=found.slot_at,
                message=found.reason,
            )
        meters.runs_missing.inc(sum(found.kind == "run.missing" for found in looked.told))
        # What is due and did not come is being looked at by a rival.
        return Ran(looked.count, 0.0 if looked.count else None)

    return Duty(WATCH, run, LOOK_S, watches.LOOK_BATCH, looks)


class _Backfilling:
    """Goes round the backfills that are under way, a step for each."""

    def __init__(self, lanes: Lanes, ids: Ids, looks: Looks, given: Given, stored: Stored, meters: Meters) -> None:
        self._lanes = lanes
        self._ids = ids
        self._looks = looks
        self._given = given
        self._stored = stored
        self._slots = meters.slots.labels(Decision.BACKFILLED.word)
        self._after = backfills.FIRST_ID
        self._soon_count = 0

    async def run(self, db: Database, most: int) -> Ran:
        """Take one step for up to `most` backfills, those after the ones of the last run."""
        if not self._soon_count and (rest_s := await self._looks.rest_s(BACKFILL, db)) > 0:
            return Ran(0, rest_s)
        self._looks.acted(BACKFILL)
        found = await backfills.under_way(db, after=self._after, limit=most)
        self._after = found[-1].id if len(found) >= most else backfills.FIRST_ID
        steps = []
        for backfill in found:
            try:
                steps.append(await self._advance(db, backfill))
            except Unavailable:
                # If it is only this one, the next run begins behind it.
                self._after = backfill.id
                raise
        count = sum(len(step.jobs) + step.known_count + step.ended for step in steps)
        if not found:
            self._soon_count = 0
        else:
            self._soon_count = SOON_COUNT if count else max(0, self._soon_count - 1)
        # A full round may have left others out.
        if any(step.more for step in steps) or len(found) >= most:
            return Ran(count, 0.0 if count else SOON_S)
        return Ran(count, SOON_S if self._soon_count else None)

    async def _advance(self, db: Database, backfill: Backfill) -> Advanced:
        try:
            step = await backfills.advance(db, self._lanes, self._ids, backfill=backfill, given=self._given)
        except (Contention, TooMany):  # later
            return Advanced()
        except (Unavailable, DutyLost):
            raise
        except Exception as error:
            # One that cannot go on must not stop the others, nor be tried for ever.
            log.event("backfill.failed", backfill=str(backfill.id), error=error)
            return await backfills.give_up(db, backfill, reason=f"It cannot go on: {error}")
        if step.jobs:
            self._slots.inc(len(step.jobs))
            self._stored([step.jobs], [list(step.made)])
        if step.ended:
            log.event("backfill.ended", backfill=str(backfill.id), made=backfill.made_count, known=backfill.known_count)
        return step
