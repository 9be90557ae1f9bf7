"""Schedules by the routes of jobs: one that is submitted with `schedule`, and what is asked of it by its id.

For callers who know only jobs. It is shown as a job that is scheduled; cancelling it removes the schedule, and its
attempts are those of the jobs that it made. All else is asked of /schedules (schedules.py).
"""

from __future__ import annotations

import contextlib
from datetime import datetime

from windlass.engine import planned
from windlass.engine.recurring import check_same, in_words_of_jobs, schedule_of
from windlass.errors import InvalidInput, KeyReused, NameTaken, NotFound
from windlass.job import State
from windlass.queue import history, recurring, schedules
from windlass.queue.attempts import MAX_PAGE, AttemptFilter, find_attempts
from windlass.queue.control import Actor
from windlass.queue.runs import Run, find_runs
from windlass.queue.schedule import NewSchedule
from windlass.queue.schedulewrites import keep_within
from windlass.queue.views import Attempt, AttemptPlace, Event, Job, Slice
from windlass.server.accepted import accept
from windlass.server.call import Call, Reply
from windlass.server.shown import shown_schedule
from windlass.server.thinking import each_of, think
from windlass.wire import jobs as wire


async def submit(call: Call, asked: wire.JobRequest) -> Reply:
    """Store a schedule, or answer with the one that its key named before."""
    definition = await _planned(call, asked)
    try:
        [stored] = await call.engine.schedules.create([definition], each=each_of(call))
    except NameTaken:
        known = await _asked_before(call, asked, definition)
        if known is None:
            raise
        return Reply(200, _submitted(call, known, duplicate=True))
    made = await schedules.get(call.engine.db, stored.id, tenant=definition.tenant)
    call.action, call.subject, call.audit_tenant = "schedule.create", str(stored.id), definition.tenant
    call.became = shown_schedule(call, made, arguments=False)
    return Reply(201, _submitted(call, recurring.as_job(made)))


async def _planned(call: Call, asked: wire.JobRequest) -> NewSchedule:
    tenant = call.tenant if asked.tenant is None else call.name_tenant(asked.tenant)
    schedule_id, request = schedule_of(asked, call.engine.ids.new(), tenant=tenant)
    try:
        definition = await think(
            call, lambda: planned.new_schedule(request, call.settings, schedule_id=schedule_id, tenant=tenant)
        )
        [accepted] = await accept(call, [definition])
    except InvalidInput as problem:
        raise in_words_of_jobs(problem) from None
    return accepted


async def _asked_before(call: Call, asked: wire.JobRequest, definition: NewSchedule) -> Job | None:
    """Return the schedule that was made by the same request; None if the name is another's."""
    if asked.idempotency_key is None:
        return None
    with contextlib.suppress(NotFound):  # removed since
        found = await schedules.get(call.engine.db, definition.name, tenant=definition.tenant)
        try:
            check_same(asked, definition.id, stored_id=found.id)
        except KeyReused:
            if asked.schedule_name is None:
                raise
            return None
        keep_within(call.reach, [found.definition])
        return recurring.as_job(found)
    return None


def _submitted(call: Call, made: Job, *, duplicate: bool = False) -> wire.Submitted:
    return wire.Submitted(
        id=made.id,
        status=call.word(made.state),
        state=made.state,
        next_run_at=made.next_run_at,
        duplicate=duplicate,
    )


async def get(call: Call, *, wait_s: float = 0.0) -> Job:
    """Return the schedule in the path as a job, after as long as is asked: it does not end by itself."""
    found = await _found(call)
    if not wait_s:
        return found

    async def later() -> Job:
        await call.engine.outside.pause(wait_s)
        return await _found(call)

    return await call.while_connected(later())


async def cancel(call: Call, actor: Actor) -> State:
    """Remove the schedule in the path and cancel its jobs that have not begun; a cancelled job is left under its id."""
    call.was = await _found(call)
    await call.engine.schedules.cancel(call.job_id, tenant=call.tenant, actor=actor, reach=call.reach)
    return State.CANCELLED


async def pause(call: Call, actor: Actor, *, until: datetime | None) -> State:
    """Let the schedule in the path make no jobs."""
    call.was = found = await _found(call)
    await call.engine.schedules.pause(call.job_id, tenant=call.tenant, actor=actor, until=until, reach=call.reach)
    return found.state


async def resume(call: Call, actor: Actor) -> State:
    """Let the schedule in the path make jobs again."""
    call.was = found = await _found(call)
    await call.engine.schedules.resume(call.job_id, tenant=call.tenant, actor=actor, reach=call.reach)
    return found.state


async def attempts(call: Call) -> Slice[Attempt, AttemptPlace]:
    """Return the newest ended attempts of the jobs that the schedule in the path made, oldest first."""
    await _found(call)
    where = AttemptFilter(tenant=call.tenant, schedule_id=call.job_id)
    page = await find_attempts(call.engine.db, where, limit=MAX_PAGE)
    return Slice([listed.attempt for listed in reversed(page.attempts)], None)


async def events(call: Call) -> Slice[Event, int]:
    """Return what happened to the schedule in the path, in order: it was made, and its newest slots were decided."""
    found = await _found(call)
    db = call.engine.db
    page = await find_runs(db, found.id, tenant=call.tenant, limit=MAX_PAGE)
    told = [Event(run.decided_at, run.decision.word, None, run.reason or _job(run)) for run in page.runs]
    made = Event(found.created_at, "submitted", None, None)
    acts = (await history.events_of(db, found.id)).items
    return Slice(sorted([made, *told, *acts], key=lambda event: event.happened_at), None)


def _job(run: Run) -> str | None:
    return None if run.job_id is None else f"Job {run.job_id}."


async def _found(call: Call) -> Job:
    try:
        return await recurring.get(call.engine.db, call.job_id, tenant=call.tenant)
    except NotFound:
        raise NotFound(f"There is no job {call.path}.") from None
