"""Zone rules: when a machine's rules of zones change, the next slots of schedules are computed anew.

A schedule keeps its wall-clock expression and the name of its zone; only when its next slot is due is kept as an
instant, which a country may move by a law. So the holder of the first firing duty compares the version of its rules
with the one noted here, and where they differ looks at all schedules once, a chunk at a time. A slot that is due
already fires as it is (firing.py).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.queue.cron import series
from windlass.queue.schedule import trigger_from

SQL = load(__file__)

CHUNK = 1000
FIRST_ID = UUID(int=0)


class Renewed(msgspec.Struct, frozen=True):
    """How many schedules of a chunk were moved, and the one after which the next chunk begins; None: that was all."""

    moved: int
    after: UUID | None


async def changed(db: Statements, rules: str) -> bool:
    """Say whether schedules are to be looked at because `rules` are others than before; the first ones are noted."""
    noted = [row["name"] for row in await db.fetch(SQL.rules_noted)]
    if not noted:
        await note(db, rules)
    return bool(noted) and _name(rules) not in noted


async def note(db: Statements, rules: str) -> None:
    """Remember that all schedules have been looked at with these rules."""
    await db.fetch(SQL.note_rules, name=_name(rules))


async def renew(db: Statements, *, after: UUID = FIRST_ID, limit: int = CHUNK) -> Renewed:
    """Compute when the next slots of a chunk of schedules are due, and move those whose time is another now."""
    rows = await db.fetch(SQL.zoned, after=after, limit=limit)
    cursors = []
    for row in rows:
        if row["zone"] is not None and row["next_at"] is not None and row["next_at"] > row["now_at"]:
            # One that cannot be computed any more is told of when it is due.
            with suppress(Exception):
                if (next_at := _next_at(row)) != row["next_at"]:
                    cursors.append((row["id"], row["version"], row["next_at"], next_at))
    moved = await db.fetch(SQL.move_zoned, cursors=cursors) if cursors else []
    return Renewed(len(moved), rows[-1]["id"] if len(rows) >= limit else None)


def _next_at(row: Row) -> datetime | None:
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
    # A slot may be past and its jitter not yet over.
    passed_at = row["now_at"] - offset
    slot_at = slots.after(passed_at if row["last_at"] is None else max(row["last_at"], passed_at))
    return None if slot_at is None else slot_at + offset


def _name(rules: str) -> str:
    return f"zones:{rules[:100]}"
