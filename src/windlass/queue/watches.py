"""Watches: the dead-man's switch of schedules whose runs must have succeeded in time.

Of each schedule with `expect_within` one row says which slot is expected, and by when its run must have succeeded.
It is written when the schedule is (schedules.py), and read here: what is due is looked at, told once if the run has not
succeeded, and then the next slot is expected. Nothing of it depends on firing (firing.py), so that it also tells when
nobody fires. A run that succeeds late, or one made by hand, ends what was told.
After a time in which nobody looked only the newest slot that is due is judged: one telling, however many were missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.queue.control import SQL as CONTROL
from windlass.queue.cron import Series, series
from windlass.queue.newjob import storable
from windlass.queue.schedule import Decision, trigger_from

SQL = load(__file__)

LOOK_BATCH = 200
AT_ONCE = 10
"""Of more schedules than this the times are computed in a thread beside."""
NEWEST = 5
"""Of the jobs made since a run is missing so many are looked at, whether one has succeeded."""
MOST_MISSING = 10_000
SLACK = timedelta(days=1)
"""How far the clock may have gone back between the making of a job and its end."""
AGAIN = timedelta(minutes=1)
"""A run that is missing is looked at again after this, and more seldom as time goes by."""
AGAIN_AT_MOST = timedelta(days=1)

Expected = tuple[UUID, datetime | None, datetime | None]
"""A schedule, the slot that is expected of it (None: nothing), and by when its run must have succeeded."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is missing, or one that has succeeded after it was told to be missing."""

    kind: Literal["run.missing", "run.recovered"]
    schedule_id: UUID
    tenant: str
    name: str
    slot_at: datetime
    reason: str
    """What was found."""


class Looked(msgspec.Struct, frozen=True):
    """What one look has told, and how many schedules it looked at."""

    told: list[Told]
    count: int


def expected(slots: Series | None, *, within_s: int | None, after: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the first slot later than `after`, and by when its run must have succeeded; None twice: nothing is.

    The time counts from when the slot is due, its jitter included.
    """
    slot_at = None if slots is None or within_s is None else slots.after(after)
    if slots is None or within_s is None or slot_at is None:
        return None, None
    return slot_at, _due(slots, slot_at, within_s)


async def expect(transaction: Statements, rows: Sequence[Expected]) -> None:
    """Expect runs of schedules, in place of what was expected of them; without a slot nothing any more."""
    if wanted := [row for row in rows if row[1] is not None]:
        await transaction.fetch(SQL.expect, expected=sorted(wanted))
    if ended := [row[0] for row in rows if row[1] is None]:
        await transaction.fetch(SQL.expect_nothing, ids=ended)


async def missing_count(db: Statements) -> int:
    """Return how many schedules miss a run, counted up to ten thousand."""
    [row] = await db.fetch(SQL.missing_count, most=MOST_MISSING)
    return int(row["schedules"])


async def look(db: Statements, *, limit: int = LOOK_BATCH) -> Looked:
    """Look at up to `limit` schedules that are due to be looked at; tell each slot whose run is missing once."""
    rows = await db.fetch(SQL.due_watches, limit=limit)
    looks = [_Look(row) for row in rows[:AT_ONCE]]
    if rows[AT_ONCE:]:
        # Times that nobody has computed yet take a while: the server has others to answer meanwhile.
        looks += await asyncio.to_thread(lambda: [_Look(row) for row in rows[AT_ONCE:]])
    if not looks:
        return Looked([], 0)
    await _find(db, [look for look in looks if not look.told_before])
    await _find_again(db, [look for look in looks if look.told_before])
    told = {look.id: look.told() for look in looks}
    ending = [look for look in looks if look.next_at is None]
    async with db.transaction() as transaction:
        moved = await transaction.fetch(
            SQL.go_on, looked=sorted(look.row() for look in looks if look.next_at is not None)
        )
        if ending:
            moved += await transaction.fetch(SQL.end_watch, looked=sorted(look.key for look in ending))
        # Only what this look has moved on: a rival has told the rest, or an edit has changed what is expected.
        said = [found for row in moved if (found := told[row["schedule_id"]]) is not None]
        if said:
            events = [(found.schedule_id, found.kind, None, storable(found.reason)) for found in said]
            await transaction.fetch(CONTROL.note, events=events)
    return Looked(said, len(moved))


class _Look:
    """One schedule being looked at: which slot is judged, and what was found of it."""

    def __init__(self, row: Row) -> None:
        self.id: UUID = row["schedule_id"]
        self._row = row
        self._now: datetime = row["now_at"]
        self._within_s: int = row["expect_within_s"] or 0
        self._series: Series | None = None
        self.slot_at: datetime = row["slot_at"]
        self._following: tuple[datetime, datetime] | None = None
        self.succeeded = False
        self.found = "It has not fired."
        try:
            self._compute(row)
        except Exception as problem:  # a zone that this server does not know any more; it must not stop the others
            self.found = f"Its slots cannot be computed: {problem}"
        self.told_before = row["missing_at"] is not None and self.slot_at == row["slot_at"]

    def _compute(self, row: Row) -> None:
        self._series = _series_of(row)
        self.slot_at = self._newest_due(row["slot_at"])
        self._following = self._after(self.slot_at)
        # Of what nothing is expected any more, nothing is missing.
        self.succeeded = self._series is None

    @property
    def key(self) -> tuple[UUID, datetime, datetime]:
        """What the row must still say for this look to count."""
        return self.id, self._row["slot_at"], self._row["due_at"]

    @property
    def next_at(self) -> tuple[datetime, datetime] | None:
        """The slot to look at next, and when; None: nothing is expected any more."""
        if self.succeeded:
            return self._following
        waited = self._now - (self._row["missing_at"] or self._now)
        again_at = self._now + min(max(waited / 4, AGAIN), AGAIN_AT_MOST)
        return self.slot_at, again_at if self._following is None else min(again_at, self._following[1])

    def row(self) -> tuple[object, ...]:
        """Return what `go_on` takes."""
        assert self.next_at is not None
        return (*self.key, *self.next_at, int(not self.succeeded))

    def told(self) -> Told | None:
        """Return what is to be told; None: as expected, or told before."""
        missing_before = self._row["missing_at"] is not None
        if self.succeeded and not missing_before:
            return None
        if not self.succeeded and self.told_before:
            return None
        return Told(
            kind="run.recovered" if self.succeeded else "run.missing",
            schedule_id=self.id,
            tenant=self._row["tenant"],
            name=self._row["name"],
            slot_at=self.slot_at,
            reason=f"Slot {self.slot_at.isoformat()}: {self.found}",
        )

    def judge(self, row: Row, fate: Row | None) -> None:
        """Take note of what was decided of the slot, and of what became of its job."""
        decision = Decision(row["decision"])
        if row["job_id"] is None:
            self.found = f"It was {decision.word}, without a job. {row['reason'] or ''}".rstrip()
            return
        self.succeeded = fate is not None and fate["fate"] == "succeeded"
        self.found = f"Its job {row['job_id']} {_said(fate)}"

    def _newest_due(self, slot_at: datetime) -> datetime:
        """Return the newest slot whose run must have succeeded by now, from `slot_at` on."""
        following = self._after(slot_at)
        if self._series is None or following is None or following[1] > self._now:
            return slot_at
        until = self._now - timedelta(seconds=self._within_s + self._series.offset_s)
        return self._series.last_before(until, floor=slot_at) or slot_at

    def _after(self, slot_at: datetime) -> tuple[datetime, datetime] | None:
        if self._series is None:
            return None
        following = self._series.after(slot_at)
        return None if following is None else (following, _due(self._series, following, self._within_s))


def _series_of(row: Row) -> Series | None:
    """Return the slots of the schedule in `row`; None if no runs of it are expected."""
    trigger = trigger_from(row["kind"], row["expression"], row["zone"])
    if trigger is None or row["expect_within_s"] is None:
        return None
    return series(
        trigger,
        schedule_id=row["schedule_id"],
        base_at=row["base_at"],
        start_at=row["start_at"],
        end_at=row["end_at"],
        exclude=msgspec.json.decode(row["exclude"], type=list[str]) if row["exclude"] else (),
        jitter_s=row["jitter_s"],
    )


def _due(slots: Series, slot_at: datetime, within_s: int) -> datetime:
    return slot_at + timedelta(seconds=slots.offset_s + within_s)


def _said(fate: Row | None) -> str:
    if fate is None:
        return "is past retention."
    match fate["fate"]:
        case "succeeded":
            return f"succeeded at {fate['fate_at'].isoformat()}."
        case "running":
            return f"runs since {fate['fate_at'].isoformat()}."
        case "sleeping":
            return f"sleeps until {fate['fate_at'].isoformat()}."
        case "waiting":
            return "waits." if fate["fate_at"] is None else f"waits until {fate['fate_at'].isoformat()}."
        case ended:
            return f"is {ended}: {fate['error'] or 'no reason was given.'}"


async def _find(db: Statements, looks: Sequence[_Look]) -> None:
    """Find what became of the slots that are looked at for the first time."""
    if not looks:
        return
    slots = [(look.id, look.slot_at) for look in looks]
    decided = {row["schedule_id"]: row for row in await db.fetch(SQL.decided, slots=slots)}
    if rest := [slot for slot in slots if slot[0] not in decided]:
        decided |= {row["schedule_id"]: row for row in await db.fetch(SQL.passed_over, slots=rest)}
    fates = await _fates(db, list(decided.values()))
    for look in looks:
        if look.id in decided:
            row = decided[look.id]
            look.judge(row, fates.get(row["job_id"]))


async def _find_again(db: Statements, looks: Sequence[_Look]) -> None:
    """Find out whether a run that is missing has succeeded since, or one after it."""
    if not looks:
        return
    slots = [(look.id, look.slot_at) for look in looks]
    made = await db.fetch(SQL.made_since, slots=slots, newest=NEWEST)
    fates = await _fates(db, made)
    succeeded = {row["schedule_id"]: fates[row["job_id"]] for row in made if _is_success(fates.get(row["job_id"]))}
    for look in looks:
        if look.id in succeeded:
            look.succeeded = True
            look.found = f"Job {succeeded[look.id]['id']} succeeded at {succeeded[look.id]['fate_at'].isoformat()}."


def _is_success(fate: Row | None) -> bool:
    return fate is not None and fate["fate"] == "succeeded"


async def _fates(db: Statements, rows: Sequence[Row]) -> dict[UUID, Row]:
    jobs = [row for row in rows if row["job_id"] is not None]
    if not jobs:
        return {}
    since = min(row["decided_at"] for row in jobs) - SLACK
    ids = [row["job_id"] for row in jobs]
    return {row["id"]: row for row in await db.fetch(SQL.fates, ids=ids, since=since)}
