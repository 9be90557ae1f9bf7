"""Zone rules: when a machine's rules of zones change, the next slots of schedules are computed anew.

A schedule keeps its wall-clock expression and the name of its zone; only when its next slot is due is kept as an
instant, which a country may move by a law. So the holder of the first firing duty compares the version of its rules
with those noted here, and if it is newer looks at all schedules once, a chunk at a time. A slot that is due already
fires as it is (firing.py).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.queue import watches
from windlass.queue.cron import Series, series
from windlass.queue.plans import untimed
from windlass.queue.schedule import trigger_from

SQL = load(__file__)

CHUNK = 1000
FURTHEST = timedelta(days=2)
"""New rules move no slot further: a zone that changes the side of the date line moves by a day."""
LOOK_S = 0.05
"""So long the schedules of one chunk are computed: slots that are due wait meanwhile."""
JUST_BEFORE = timedelta(microseconds=1)
LAST = datetime.max.replace(tzinfo=UTC)
VERSION = re.compile(r"\b((?:19|20)\d\d)\.?([a-z]|\d+)\b")
FIRST_ID = UUID(int=0)


class Renewed(msgspec.Struct, frozen=True):
    """How many schedules of a chunk were moved, and the one after which the next chunk begins; None: that was all."""

    moved: int
    after: UUID | None


async def changed(db: Statements, rules: str) -> bool:
    """Say whether schedules are to be looked at because `rules` are newer than all before; the first ones are noted.

    Rules that were seen before are not new, nor are those of an older version: where servers have different rules and
    take over from each other, slots are not moved back and forth.
    """
    noted = [row["name"] for row in await db.fetch(SQL.rules_noted)]
    if not noted:
        await note(db, rules)
    version = _version(rules)
    older = version is not None and any(version <= seen for name in noted if (seen := _version(name)) is not None)
    return bool(noted) and _name(rules) not in noted and not older


async def note(db: Statements, rules: str) -> None:
    """Remember that all schedules have been looked at with these rules."""
    await db.fetch(SQL.note_rules, name=_name(rules))


async def renew(
    db: Statements, *, after: UUID = FIRST_ID, limit: int = CHUNK, cpu_s: Callable[[], float] = untimed
) -> Renewed:
    """Compute when the next slots of a chunk of schedules are due, and move those whose time is another now.

    What is expected of their runs (watches.py) moves with them.
    """
    rows = await db.fetch(SQL.zoned, after=after, limit=limit)
    # Times that nobody has computed yet take a while: the server has others to answer meanwhile.
    moves, seen = await asyncio.to_thread(_moves, rows, cpu_s)
    moved: list[Row] = []
    if moves:
        async with db.transaction() as transaction:
            moved = await transaction.fetch(SQL.move_zoned, cursors=[move.cursor for move in moves])
            ids = {row["id"] for row in moved}
            await watches.expect(
                transaction, [move.expected for move in moves if move.cursor[0] in ids and move.expected is not None]
            )
    return Renewed(len(moved), rows[seen - 1]["id"] if seen < len(rows) or len(rows) >= limit else None)


class _Move(msgspec.Struct, frozen=True):
    cursor: tuple[UUID, int, datetime, datetime | None]
    """The schedule, its version, when its next slot was due, and when it is."""
    expected: watches.Expected | None
    """None: what is expected of it stays."""


def _moves(rows: Sequence[Row], cpu_s: Callable[[], float]) -> tuple[list[_Move], int]:
    """Return the moves of the first rows, and of how many: as many as can be computed in a short time."""
    moves: list[_Move] = []
    begun_s, seen = cpu_s(), 0
    for seen, row in enumerate(rows, 1):
        if cpu_s() - begun_s >= LOOK_S and seen > 1:
            return moves, seen - 1
        if row["zone"] is not None and row["next_at"] is not None and row["next_at"] > row["now_at"]:
            # One that cannot be computed any more is told of when it is due.
            with suppress(Exception):
                if (move := _move(row)) is not None:
                    moves.append(move)
    return moves, seen


def _move(row: Row) -> _Move | None:
    trigger = trigger_from(row["kind"], row["expression"], row["zone"])
    if trigger is None:
        return None
    slots = series(
        trigger,
        schedule_id=row["id"],
        base_at=row["base_at"],
        start_at=row["start_at"],
        end_at=row["end_at"],
        exclude=() if row["exclude"] is None else msgspec.json.decode(row["exclude"], type=tuple[str, ...]),
        jitter_s=row["jitter_s"],
    )
    offset = timedelta(seconds=slots.offset_s)
    was_at = row["next_at"] - offset
    slot_at = _nearest(slots, was_at, floor=max(row["last_at"] or row["base_at"], row["base_at"]))
    if slot_at == was_at:
        return None
    expected = None
    if row["watched_at"] == was_at:
        since = LAST if slot_at is None else slot_at - JUST_BEFORE
        expected = row["id"], *watches.expected(slots, within_s=row["expect_within_s"], after=since)
    next_at = None if slot_at is None else slot_at + offset
    return _Move((row["id"], row["version"], row["next_at"], next_at), expected)


def _nearest(slots: Series, was_at: datetime, *, floor: datetime) -> datetime | None:
    """Return the slot, later than `floor`, that the slot at `was_at` has become: the nearest one, the earlier of two.

    It may be past, if the new rules put it there: then it is late, and firing decides by the policy of the schedule.
    """
    later = slots.after(was_at - JUST_BEFORE)
    if later == was_at:
        return later
    earlier = slots.last_before(was_at, floor=max(floor, was_at - FURTHEST))
    if earlier is None or later is None:
        return earlier or later
    return earlier if was_at - earlier <= later - was_at else later


def _version(rules: str) -> tuple[int, int] | None:
    """Return year and number of an IANA version, as 2025b, or 2025.2 of the package; None if there is none in it."""
    found = VERSION.search(rules)
    if found is None:
        return None
    letter = found[2]
    return int(found[1]), ord(letter) - ord("a") + 1 if letter.isalpha() else int(letter)


def _name(rules: str) -> str:
    return f"zones:{rules[:100]}"
