"""Jobs, for users: submit, look, wait, cancel, change, pause, retry, replay, erase.

With `schedule`, or by the id of one, some of it is about schedules: recurring.py.
"""

from __future__ import annotations

from functools import partial

import msgspec

from windlass.errors import InvalidInput, JobFinished, NotFound, TooMany, Unavailable, WindlassError
from windlass.job import State
from windlass.queue import checkpoints, erasure, explain, history
from windlass.queue import recurring as both
from windlass.queue.views import LAST_RUN, fitting
from windlass.queue.workers import MAX_INT
from windlass.server import recurring
from windlass.server.accepted import end_of_pause
from windlass.server.call import Call, Reply
from windlass.server.newjobs import new_jobs, payload_text
from windlass.server.shown import (
    in_turns,
    redacted,
    room_to_show,
    shown_apart,
    shown_attempt,
    shown_event,
    shown_job,
    shown_submit,
)
from windlass.wire import jobs as wire
from windlass.wire import people
from windlass.wire.base import Because, Pages, PauseRequest
from windlass.wire.vocabulary import states_named


async def submit(call: Call) -> Reply:
    """Store a job, or answer with the one that its key named before."""
    asked: wire.JobRequest = call.body
    header = call.headers.get("idempotency-key")
    if header is not None:
        if asked.idempotency_key not in (None, header):
            raise InvalidInput("idempotency_key", "it differs from the header Idempotency-Key. Give one of them.")
        asked = msgspec.structs.replace(asked, idempotency_key=header)
    if asked.schedule is not None:
        return await recurring.submit(call, asked)
    [answer] = await call.engine.submit(await new_jobs(call, [asked], listed=False))
    return Reply(200 if answer.duplicate else 201, shown_submit(call, answer))


async def submit_batch(call: Call) -> wire.Batch:
    """Store all jobs of the request, or none."""
    asked: wire.BatchRequest = call.body
    answers = await call.engine.submit(await new_jobs(call, asked.jobs, listed=True))
    return wire.Batch(jobs=[shown_submit(call, answer) for answer in answers])


async def get(call: Call) -> wire.Job:
    """Answer a job, waiting for its end as long as is asked."""
    asked: wire.JobQuery = call.query
    try:
        if asked.wait:
            waiting = call.engine.waits.wait_ended(call.job_id, tenant=call.tenant, wait_s=asked.wait)
            return await _told(call, await call.while_connected(waiting))
        return await _told(call, await call.engine.waits.wait_ended(call.job_id, tenant=call.tenant, wait_s=0.0))
    except NotFound:
        schedule = await recurring.get(call, wait_s=asked.wait)
        return await shown_apart(call, schedule, partial(shown_job, reasons=await _reasons(call, schedule)))


async def find(call: Call) -> wire.JobList:
    """Answer a page of jobs, newest first."""
    asked: wire.JobsQuery = call.query
    if asked.id_end is not None:
        return await _ending(call, asked, asked.id_end)
    where = _filter(call, asked)
    if where is None:
        return wire.JobList(jobs=[], total=0, total_is_estimate=False, page=asked.page, next_cursor=None)
    schedules = asked.include == "schedules" or (asked.include is None and call.vocabulary == "c")
    return await list_jobs(call, where, asked, page=asked.page, schedules=schedules)


async def _ending(call: Call, asked: wire.JobsQuery, end: str) -> wire.JobList:
    """Answer the jobs whose id ends so and that meet the other conditions, all on the first page."""
    where = _filter(call, asked)
    ids = [] if where is None else await history.ending_in(call.engine.db, end, tenant=call.tenant)
    keys: list[history.Key] = []
    for job_id in ids:
        if where is not None and asked.page == 1 and (asked.cursor is None or job_id < asked.cursor):
            one = msgspec.structs.replace(where, id=job_id)
            keys += (await history.find_keys(call.engine.db, one, limit=1)).found
    shown = keys[: asked.limit]
    shown = shown[: fitting(await history.sizes(call.engine.db, shown))]
    jobs, count = ([], 0) if where is None else await history.read(call.engine.db, where, shown)
    return wire.JobList(
        jobs=[job async for job in in_turns(call, jobs, shown_job)],
        total=len(keys),
        total_is_estimate=False,
        page=asked.page,
        next_cursor=keys[count - 1].id if count < len(keys) else None,
    )


async def stuck(call: Call) -> wire.StuckLanes:
    """Answer the tasks whose jobs nobody is handed."""
    found = await explain.stuck_lanes(call.engine.db, call.tenant, give_way=call.pace().give_way)
    return wire.StuckLanes(
        complete=found.complete,
        tasks=[
            wire.StuckLane(
                queue=lane.queue,
                task=lane.task,
                labels=[label for label in lane.labels.split(",") if label],
                code=lane.reason.code,
                detail=lane.reason.detail,
            )
            for lane in found.lanes
        ],
    )


async def list_jobs(
    call: Call, where: history.Filter, asked: Pages, *, page: int = 1, schedules: bool = False
) -> wire.JobList:
    """Return a page of jobs, with schedules among them if so asked; its number counts from the cursor on."""
    step = both if schedules else history
    total = await step.count(call.engine.db, where)
    found = history.Page([], asked.cursor)
    # Pages before it are passed over by their ids, in one look where no filter matches too little.
    ahead = (page - 1) * asked.limit
    for _ in range(page - 1):
        if ahead > 0:
            passed = await step.find_keys(call.engine.db, where, limit=ahead, cursor=found.next_cursor)
            ahead -= len(passed.found)
            found = history.Page([], passed.next_cursor)
            if found.next_cursor is None:
                break
    if page == 1 or found.next_cursor is not None:
        found = await step.find(call.engine.db, where, limit=asked.limit, cursor=found.next_cursor)
    jobs = [job async for job in in_turns(call, found.jobs, shown_job)]
    return wire.JobList(
        jobs=jobs,
        # Jobs come in between the count and the page.
        total=max(total.jobs, len(jobs)),
        total_is_estimate=not total.exact,
        page=page,
        next_cursor=found.next_cursor,
    )


def _filter(call: Call, asked: wire.JobsQuery) -> history.Filter | None:
    """Return which jobs are asked for; None: conditions that no job can meet together."""
    states = frozenset(State)
    stale = False
    for names in filter(None, (asked.status, asked.state)):
        named, lost = states_named(names, call.vocabulary)
        stale = stale or lost
        states &= named or states
    queue = call.one_queue(asked.queue)
    if not states or (asked.task and asked.name and asked.task != asked.name):
        return None
    return history.Filter(
        tenant=call.tenant,
        states=frozenset() if states == frozenset(State) else states,
        stale=stale,
        queue=queue,
        named_queue=call.principal.queues is not None,
        task=asked.task or asked.name,
        worker=asked.worker_id,
        idempotency_key=asked.key,
        tag=asked.tag,
        schedule_id=asked.schedule_id,
        flow_id=asked.flow_id,
        created_after=asked.created_after,
        created_before=asked.created_before,
    )


async def cancel(call: Call) -> Reply:
    """Cancel a job: 200 when it is cancelled, 202 while its worker still stops it."""
    request: wire.CancelRequest | None = call.body
    reason = call.query.reason if request is None else request.reason
    force = request is not None and request.force
    grace_ms = None if force else round(call.settings.worker.cancel_grace_seconds * 1000)
    [answer] = await call.engine.acts.cancel(
        [call.job_id], tenant=call.tenant, actor=call.actor(reason), grace_ms=grace_ms
    )
    if isinstance(answer, NotFound):
        state = await recurring.cancel(call, call.actor(reason))
    elif isinstance(answer, JobFinished):
        raise answer
    else:
        state = answer.state
    if state is State.CANCELLING and call.query.wait:
        waiting = call.engine.waits.wait_ended(call.job_id, tenant=call.tenant, wait_s=call.query.wait)
        state = (await call.while_connected(waiting)).state
        if state not in (State.CANCELLING, State.CANCELLED):
            raise JobFinished(f"Job {call.job_id} has ended before it could be cancelled: it is {state}.")
    shown = wire.Cancelled(id=call.job_id, status=call.word(state), state=state)
    return Reply(200 if state is State.CANCELLED else 202, shown)


async def change(call: Call) -> wire.Job:
    """Change priority, queue or due time of a job that waits."""
    asked: wire.ChangeRequest = call.body
    if asked.priority is None and asked.queue is None and asked.run_at is None:
        raise InvalidInput("body", "it changes nothing. Give priority, queue or run_at.")
    # Of a job that is not this tenant's nothing is read.
    kept = {} if call.was is None else await checkpoints.sizes(call.engine.db, [call.job_id])
    with room_to_show(call, call.was, kept.get(call.job_id, 0)):
        await call.engine.acts.change(
            call.job_id,
            tenant=call.tenant,
            actor=call.actor(asked.reason),
            priority=asked.priority,
            queue=None if asked.queue is None else call.allow_queue(asked.queue),
            run_at=asked.run_at,
        )
        job = await call.engine.waits.wait_ended(call.job_id, tenant=call.tenant, wait_s=0.0)
        return await _with_trail(call, job, acted=True)


async def pause(call: Call) -> wire.Moved:
    """Keep a job from being claimed."""
    asked: PauseRequest = call.body
    actor = call.actor(asked.reason)
    until = await end_of_pause(call, asked)
    try:
        state = await call.engine.acts.pause_job(call.job_id, tenant=call.tenant, actor=actor, until=until)
    except NotFound:
        state = await recurring.pause(call, actor, until=until)
    return wire.Moved(id=call.job_id, status=call.word(state), state=state, paused=True)


async def resume(call: Call) -> wire.Moved:
    """Let a paused job go on."""
    asked: Because = call.body
    actor = call.actor(asked.reason)
    try:
        state = await call.engine.acts.resume_job(call.job_id, tenant=call.tenant, actor=actor)
    except NotFound:
        state = await recurring.resume(call, actor)
    return wire.Moved(id=call.job_id, status=call.word(state), state=state)


async def retry(call: Call) -> wire.Moved:
    """Run a dead, cancelled or expired job again, under its own id."""
    asked: wire.RetryRequest = call.body
    payload = payload_text(call, asked.payload)
    [answer] = await call.engine.acts.retry(
        [call.job_id], tenant=call.tenant, actor=call.actor(asked.reason), payload=payload
    )
    if isinstance(answer, WindlassError):
        raise answer
    return wire.Moved(id=answer.id, status=call.word(State.QUEUED), state=State.QUEUED)


async def replay(call: Call) -> wire.Submitted:
    """Submit a finished job once more, as a new one."""
    asked: wire.RetryRequest = call.body
    payload = payload_text(call, asked.payload)
    answer = await call.engine.acts.replay(
        call.job_id, tenant=call.tenant, actor=call.actor(asked.reason), payload=payload
    )
    call.became = {"replayed_as": answer.id}
    return shown_submit(call, answer)


async def erase(call: Call) -> Reply:
    """Remove the content of a job that has ended; saying it again is harmless. 202: it is still in SQLite's log."""
    asked: Because = call.body
    done, is_wiped = await call.engine.acts.erase(call.job_id, tenant=call.tenant, actor=call.actor(asked.reason))
    call.acted, call.became = not done.already, {"erased_at": done.erased_at}
    shown = people.ErasedJob(id=done.id, erased_at=done.erased_at, waits=not is_wiped)
    return Reply(200 if is_wiped else 202, shown)


async def attempts(call: Call) -> wire.AttemptList:
    """Answer ended attempts of a job, oldest first."""
    asked: wire.AttemptsOfJobQuery = call.query
    after = history.BEFORE_ALL if asked.cursor is None else _attempt_place(asked.cursor)
    try:
        found = await history.attempts(call.engine.db, call.job_id, tenant=call.tenant, after=after, limit=asked.limit)
    except NotFound:
        found = await recurring.attempts(call)
    return wire.AttemptList(
        attempts=[attempt async for attempt in in_turns(call, found.items, shown_attempt)],
        next_cursor=_attempt_cursor(found.next_cursor),
    )


def _attempt_cursor(place: history.AttemptPlace | None) -> str | None:
    return None if place is None else "_".join(map(str, place))


def _attempt_place(cursor: str) -> history.AttemptPlace:
    """Return the place that a cursor names; of a fence alone the last place."""
    fence, run, unclaimed = (*map(int, cursor.split("_")), LAST_RUN, 1)[:3]
    return history.AttemptPlace(min(fence, MAX_INT), min(run, LAST_RUN), unclaimed)


async def events(call: Call) -> wire.EventList:
    """Answer what happened to a job, in order."""
    asked: wire.OfJobQuery = call.query
    db, skip = call.engine.db, asked.cursor or 0
    try:
        found = await history.timeline(db, call.job_id, tenant=call.tenant, skip=skip, limit=asked.limit)
    except NotFound:
        found = await recurring.events(call)
    return wire.EventList(
        events=[event async for event in in_turns(call, found.items, shown_event)], next_cursor=found.next_cursor
    )


async def report(call: Call) -> wire.JobReport:
    """Answer everything about a job: its end, its story, what it waited for."""
    found = await history.report(call.engine.db, call.job_id, tenant=call.tenant)
    return wire.JobReport(
        id=found.job.id,
        status=call.word(found.job.state),
        state=found.job.state,
        outcome=found.outcome,
        waits=wire.Waits(**msgspec.structs.asdict(found.waits)),
        timeline=[event async for event in in_turns(call, found.timeline.items, shown_event)],
        timeline_cursor=found.timeline.next_cursor,
        attempts=[attempt async for attempt in in_turns(call, found.attempts.items, shown_attempt)],
        attempts_cursor=_attempt_cursor(found.attempts.next_cursor),
        metrics=await shown_apart(call, found.metrics, redacted),
    )


async def _with_trail(
    call: Call, job: history.Job, reasons: list[explain.Reason] | None = None, *, acted: bool = False
) -> wire.Job:
    found = await checkpoints.find(call.engine.db, [job.id]) if job.fence else {}
    kept = found.get(job.id)
    show = partial(shown_job, kept=kept, reasons=reasons)
    shown = await shown_apart(call, job, show, beside=kept, acted=acted)
    if job.reason != erasure.ERASED:
        return shown
    erased = await erasure.erased_among(call.engine.db, [job.id])
    return msgspec.structs.replace(shown, erased_at=erased.get(job.id))


async def _told(call: Call, job: history.Job) -> wire.Job:
    return await _with_trail(call, job, await _reasons(call, job))


async def _reasons(call: Call, job: history.Job) -> list[explain.Reason] | None:
    """Return why a job waits; None if so many ask that there was no turn to look: the job is shown all the same."""
    if job.state not in explain.WAITING:
        return []
    try:
        async with call.engine.acts.explaining.turn(call.tenant, call.principal.key_id):
            return await explain.reasons(call.engine.db, job, give_way=call.pace().give_way)
    except (TooMany, Unavailable):
        return None
