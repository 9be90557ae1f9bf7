"""Times that take long to find are found in a thread of their own, so that nobody else waits for them.

A slot may lie decades ahead, and each day on the way be looked at. One thread does it for all requests of a server:
four callers with hard questions wait for each other, not the duties of the server for four threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar

from windlass.engine import planned
from windlass.queue.schedule import NewSchedule
from windlass.server.call import Call
from windlass.wire.schedules import ShownSlot

BUDGET_S = 0.5
"""For the slots of one answer; where that is not enough there are fewer."""
_thread = ThreadPoolExecutor(1, "windlass-times")
Value = TypeVar("Value")


async def think(work: Callable[[], Value]) -> Value:
    """Return what `work` returns, which may take some time and awaits nothing."""
    return await asyncio.get_running_loop().run_in_executor(_thread, work)


async def slots_after(
    call: Call, schedule: NewSchedule, instant: datetime, *, base_at: datetime, count: int
) -> list[ShownSlot]:
    """Return the next `count` slots later than an instant, or as many as are found in time."""
    monotonic = call.engine.outside.monotonic

    def find() -> list[ShownSlot]:
        begun = monotonic()
        return planned.slots_after(
            schedule, instant, base_at=base_at, count=count, enough=lambda: monotonic() - begun > BUDGET_S
        )

    return await think(find)
