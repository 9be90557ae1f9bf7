"""What is looked at before something is stored and needs more than its own words: signatures, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from windlass.engine import planned
from windlass.engine.translate import span_ms
from windlass.errors import Forbidden, InvalidInput, WindlassError
from windlass.queue.defaults import OPEN
from windlass.queue.newjob import NewJob, check_instant
from windlass.queue.recurring import read_clock
from windlass.queue.schedule import NewSchedule, check_payload
from windlass.server.call import Call
from windlass.server.thinking import each_of
from windlass.wire.base import PauseRequest


async def accept(
    call: Call,
    schedules: Sequence[NewSchedule],
    *,
    fires: bool = True,
    refused: dict[str, WindlassError] | None = None,
) -> Sequence[NewSchedule]:
    """Return the schedules as the caller may have them, if they can make jobs.

    Forbidden for a queue that its key is not for; InvalidInput names the argument, or why none would ever be made.
    Where `refused` is given, those that cannot be accepted go there by their names, and the others are returned.
    """
    made, pace = [], call.pace()
    for schedule in schedules:
        made.append(schedule.job(schedule.id))
        await pace.give_way()
    jobs = await call.engine.signatures.fill(made)
    problems = await each_of(call)(_payload_problem, schedules, counted=False)
    accepted = []
    for index, (schedule, job) in enumerate(zip(schedules, jobs, strict=True)):
        await pace.give_way()
        try:
            if (problem := problems[index]) is not None:
                raise problem
            accepted.append(await _accepted(call, schedule, job))
        except (Forbidden, InvalidInput) as problem:
            if refused is None:
                raise _indexed(problem, index if len(schedules) > 1 else None) from None
            refused[schedule.name] = problem
    if fires:
        now = await read_clock(call.engine.db)
        await each_of(call)(lambda pair: _check_fires(*pair, now), list(enumerate(accepted)))
    return accepted


async def _accepted(call: Call, schedule: NewSchedule, job: NewJob) -> NewSchedule:
    await call.engine.signatures.check([job])
    return schedule if call.principal.queues is None else _settled(call, schedule, job.queue)


def _payload_problem(schedule: NewSchedule) -> InvalidInput | None:
    try:
        check_payload(schedule)
    except InvalidInput as problem:
        return problem
    return None


def _indexed(problem: Forbidden | InvalidInput, index: int | None) -> Forbidden | InvalidInput:
    """Return the problem with the index of its schedule in the request."""
    if isinstance(problem, InvalidInput):
        return problem if index is None else problem.at(index)
    problem.index = index
    return problem


def _settled(call: Call, schedule: NewSchedule, queue: str) -> NewSchedule:
    """Return the schedule with the queue that it has now, so that no task can send its jobs elsewhere later."""
    call.allow_queue(queue)
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


def _check_fires(index: int, schedule: NewSchedule, now: datetime) -> None:
    try:
        planned.check_fires(schedule, now=now)
    except InvalidInput as problem:
        raise problem.at(index) from None
