"""Stretches: rows that stand for slots passed over together, when a backfill makes up for some of them.

Such a row of `schedule_runs` has the last of its slots, the first and their number (firing.py, scheduledits.py). A slot
that gets its job (backfills.py) has a row of its own from then on: the stretch goes on standing for those that are
left, with their first, last and number, so that no slot is counted twice and none is said to have run that has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.errors import Contention
from windlass.queue.cron import Series

SQL = load(__file__)

_INSTANT = timedelta(microseconds=1)


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Slots passed over together, and which of them are left."""

    first_at: datetime
    slot_at: datetime
    """The last."""
    slot_count: int
    left_from: datetime
    left_until: datetime
    left_count: int
    """None: all of them get their jobs."""


async def touched(
    db: Statements, slots: Series, schedule_id: UUID, *, taken: Sequence[datetime], since: datetime
) -> list[Stretch]:
    """Return the stretches of which slots are `taken`, in order; all from `since` up to these have jobs or get them."""
    if not taken:
        return []
    rows = await db.fetch(SQL.stretches, schedule_id=schedule_id, first=taken[0], last=taken[-1])
    found = []
    for row in rows:
        first_at, slot_at, slot_count = row["first_at"], row["slot_at"], row["slot_count"]
        inside = {slot for slot in taken if first_at <= slot <= slot_at}
        if not inside:
            continue
        owned = inside
        if first_at in inside or slot_at in inside:
            owned = inside | {
                own["slot_at"]
                for own in await db.fetch(SQL.own_rows, schedule_id=schedule_id, first=first_at, last=slot_at)
            }
        left_from = _first_left(slots, first_at, owned)
        left_until = _last_left(slots, slot_at, owned, floor=first_at, since=since)
        left_count = slot_count - len(inside)
        if slot_at in inside and (left_count < 1 or left_from is None or left_until is None or left_from > left_until):
            left_from, left_until, left_count = slot_at, slot_at, 0
        found.append(
            Stretch(
                first_at=first_at,
                slot_at=slot_at,
                slot_count=slot_count,
                # With another trigger since then the numbers may not fit: it stands at least for its own slot.
                left_from=min(left_from or slot_at, slot_at),
                left_until=left_until or slot_at,
                left_count=left_count if slot_at in inside else max(1, left_count),
            )
        )
    return found


async def narrow(transaction: Statements, schedule_id: UUID, stretches: Sequence[Stretch]) -> None:
    """Let stretches stand for what is left of them; Contention if a rival has changed one since it was read.

    What follows in the transaction gives the other slots their jobs, also the one whose row a stretch was.
    """
    for stretch in stretches:
        key = {"schedule_id": schedule_id, "slot_at": stretch.slot_at}
        narrowed = await transaction.fetch(
            SQL.narrow,
            **key,
            first_at=stretch.first_at,
            slot_count=stretch.slot_count,
            left_from=stretch.left_from,
            left=max(1, stretch.left_count),
        )
        if narrowed and stretch.left_count and stretch.left_until != stretch.slot_at:
            narrowed = await transaction.fetch(SQL.move, **key, left_until=stretch.left_until)
        if not narrowed:
            raise Contention(f"A rival makes up for the same slots of schedule {schedule_id}. Try again.")


def _first_left(slots: Series, first_at: datetime, owned: set[datetime]) -> datetime | None:
    found: datetime | None = first_at
    while found is not None and found in owned:
        found = slots.after(found)
    return found


def _last_left(
    slots: Series, slot_at: datetime, owned: set[datetime], *, floor: datetime, since: datetime
) -> datetime | None:
    found: datetime | None = slot_at
    while found is not None and found in owned:
        # Those from `since` on need not be looked at one by one.
        below = min(found, since) if since > floor else found
        found = slots.last_before(below - _INSTANT, floor=floor - _INSTANT)
    return found
