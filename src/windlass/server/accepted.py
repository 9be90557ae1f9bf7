"""What is looked at before something is stored and needs more than its own words: signatures, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from windlass.engine import planned
from windlass.engine.translate import span_ms
from windlass.errors import InvalidInput
from windlass.queue.newjob import check_instant
from windlass.queue.recurring import read_clock
from windlass.queue.schedule import NewSchedule
from windlass.server.call import Call
from windlass.server.thinking import think
from windlass.wire.base import PauseRequest


async def accept(call: Call, schedules: Sequence[NewSchedule], *, fires: bool = True) -> None:
    """Return if the schedules can make jobs; InvalidInput names the argument, or why none would ever be made."""
    jobs = await call.engine.signatures.fill([schedule.job(schedule.id) for schedule in schedules])
    await call.engine.signatures.check(jobs)
    if not fires:
        return
    now = await read_clock(call.engine.db)
    await think(lambda: _check_fire(schedules, now))


async def end_of_pause(call: Call, asked: PauseRequest) -> datetime | None:
    """Return when a pause ends; InvalidInput if that has passed, so that nothing would be paused."""
    until = asked.until
    check_instant("until", until)
    if until is None and asked.duration is None:
        return None
    now = await read_clock(call.engine.db)
    if until is None:
        return now + timedelta(milliseconds=span_ms("duration", asked.duration) or 0)
    if asked.duration is not None:
        raise InvalidInput("duration", "until is given too. Give one of them.")
    if until <= now:
        raise InvalidInput("until", f"{until.isoformat()} has passed. Give a later time, or none.")
    return until


def _check_fire(schedules: Sequence[NewSchedule], now: datetime) -> None:
    for index, schedule in enumerate(schedules):
        try:
            planned.check_fires(schedule, now=now)
        except InvalidInput as problem:
            raise problem.at(index) from None
