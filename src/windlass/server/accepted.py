"""What is looked at before a schedule is stored and needs more than its own words: signatures, and the time."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine import planned
from windlass.errors import InvalidInput
from windlass.queue.recurring import read_clock
from windlass.queue.schedule import NewSchedule
from windlass.server.call import Call


async def accept(call: Call, schedules: Sequence[NewSchedule], *, fires: bool = True) -> None:
    """Return if the schedules can make jobs; InvalidInput names the argument, or why none would ever be made."""
    await call.engine.signatures.check([schedule.job(schedule.id) for schedule in schedules])
    if not fires:
        return
    now = await read_clock(call.engine.db)
    for index, schedule in enumerate(schedules):
        try:
            planned.check_fires(schedule, now=now)
        except InvalidInput as problem:
            raise problem.at(index) from None
