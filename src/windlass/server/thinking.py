"""How a request computes times: beside the event loop, in turns with the requests of other tenants, within its budget.

A slot may lie decades ahead. The thread, the turns and the budget are in engine/computing.py; here a request gets its
own budget, and its work ends when its caller leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from windlass.engine import planned
from windlass.queue.schedule import NewSchedule
from windlass.queue.schedulewrites import Each
from windlass.server.call import Call
from windlass.wire.schedules import ShownSlot

ENOUGH_S = 0.5
"""For the slots of one answer; where that is not enough there are fewer."""
Item = TypeVar("Item")
Value = TypeVar("Value")


def each_of(call: Call, limit_s: float | None = None) -> Each:
    """Return what computes times for a request; all its work has one budget, the usual one or `limit_s`."""

    async def each(
        work: Callable[[Item], Value], items: Sequence[Item], *, field: str = "cron", counted: bool = True
    ) -> list[Value]:
        return await call.while_connected(call.budget.each(work, items, field=field, limit_s=limit_s, counted=counted))

    return each


async def think(call: Call, work: Callable[[], Value]) -> Value:
    """Return what `work` returns, one item of what a request computes."""
    [value] = await each_of(call)(lambda _: work(), [None])
    return value


async def slots_after(
    call: Call, schedule: NewSchedule, instant: datetime, *, base_at: datetime, count: int
) -> list[ShownSlot]:
    """Return the next `count` slots later than an instant, or as many as are found in time."""
    found: list[ShownSlot] = []

    def find(number: int) -> None:
        if len(found) == number:
            after = found[-1].slot_at if found else instant
            found.extend(planned.slots_after(schedule, after, base_at=base_at, count=1))

    await call.while_connected(call.budget.each(find, range(count), enough_s=ENOUGH_S))
    return found
