"""Looks: when each duty has something to do next, told by one statement for all of them.

An idle server asks it twice a second (engine/looks.py). What is due is then done by the step itself, whose own
statements decide again: timers.py, rescue.py, deadlines.py, firing.py, watches.py, backfills.py, outbox.py.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.queue.rescue import PULSE_S, PULSES_PER_LEASE
from windlass.queue.schedule import SHARDS

SQL = load(__file__)

WHOLE = ("rescue", "deadlines")
"""The duties whose next instant is found only by a whole look."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """By duty, the instant at which it has something to do next; a duty that has nothing to do is not named."""

    now_at: datetime
    at: dict[str, datetime]
    lapse_at: datetime | None
    """When the first session lapses; rescue is due earlier, to leave its pulse."""
    pulse_s: float
    """How often rescue leaves its pulse: often enough for the shortest lease."""
    foreign_at: datetime | None
    """When the next slot of the other shards is due."""
    behind: bool
    """Whether jobs wait for the run before them."""

    def left_s(self, duty: str) -> float | None:
        """Return in how many seconds the duty has something to do, none or fewer if it has now; None: never."""
        return (self.at[duty] - self.now_at).total_seconds() if duty in self.at else None


async def look(
    db: Statements,
    *,
    shards: Collection[int] = range(SHARDS),
    foreign: Collection[int] = (),
    without: Collection[UUID] = (),
    whole: bool = True,
) -> Look:
    """Return when there is something to do; of schedules in these shards, but for those that are left out.

    Without `whole`, which reads every session and every lease, nothing is told of rescue and of time-outs.
    """
    [row] = await db.fetch(
        SQL.look, shards=sorted(shards), foreign=sorted(foreign), without=sorted(without), whole=int(whole)
    )
    pulse_s = PULSE_S if row["lease_ms"] is None else min(PULSE_S, row["lease_ms"] / 1000 / PULSES_PER_LEASE)
    deadlines = [row[name] for name in ("overdue_at", "start_by", "resume_at") if row[name] is not None]
    at = {
        "promote": row["promote_at"],
        "rescue": _rescue_at(row, pulse_s),
        "deadlines": min(deadlines, default=None),
        "fire": row["fire_at"],
        "watch": row["watch_at"],
        "backfill": row["backfill_at"],
        "relay": row["relay_at"],
    }
    return Look(
        now_at=row["now_at"],
        at={duty: instant for duty, instant in at.items() if instant is not None},
        lapse_at=row["expires_at"],
        pulse_s=pulse_s,
        foreign_at=row["foreign_at"],
        behind=bool(row["behind"]),
    )


def _rescue_at(row: Row, pulse_s: float) -> datetime:
    """Return when the first session lapses or a pulse is to be left."""
    now_at: datetime = row["now_at"]
    if row["beat_at"] is None:
        return now_at
    pulse_at: datetime = row["beat_at"] + timedelta(seconds=pulse_s)
    return pulse_at if row["expires_at"] is None else min(pulse_at, row["expires_at"])
