"""What is looked at before something is stored and needs more than its own words: signatures, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from windlass.engine import planned
from windlass.engine.translate import span_ms
from windlass.errors import Forbidden, InvalidInput
from windlass.queue.defaults import OPEN
from windlass.queue.newjob import check_instant
from windlass.queue.recurring import read_clock
from windlass.queue.schedule import NewSchedule
from windlass.server.call import Call
from windlass.server.thinking import think
from windlass.wire.base import PauseRequest


async def accept(call: Call, schedules: Sequence[NewSchedule], *, fires: bool = True) -> Sequence[NewSchedule]:
    """Return the schedules as the caller may have them, if they can make jobs.

    Forbidden for a queue that its key is not for; InvalidInput names the argument, or why none would ever be made.
    """
    jobs = await call.engine.signatures.fill([schedule.job(schedule.id) for schedule in schedules])
    if call.principal.queues is not None:
        pairs = enumerate(zip(schedules, jobs, strict=True))
        schedules = [_settled(call, schedule, job.queue, index) for index, (schedule, job) in pairs]
    await call.engine.signatures.check(jobs)
    if fires:
        now = await read_clock(call.engine.db)
        await think(lambda: _check_fire(schedules, now))
    return schedules


def _settled(call: Call, schedule: NewSchedule, queue: str, index: int) -> NewSchedule:
    """Return the schedule with the queue that it has now, so that no task can send its jobs elsewhere later."""
    try:
        call.allow_queue(queue)
    except Forbidden as problem:
        problem.index = index
        raise
    return msgspec.structs.replace(schedule, queue=queue, defaults=schedule.defaults & ~OPEN["queue"])


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
