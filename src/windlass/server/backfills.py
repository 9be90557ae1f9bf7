"""The past of schedules: what happened to them and to their slots, and running those of a range afterwards."""

from __future__ import annotations

import msgspec

from windlass.engine.computing import RANGE_S
from windlass.errors import Forbidden
from windlass.queue import backfills as step
from windlass.queue.history import Event, events_of
from windlass.queue.runs import Run, find_runs
from windlass.queue.schedule import Decision
from windlass.queue.schedules import get as get_schedule
from windlass.queue.schedulewrites import keep_within
from windlass.server.call import Call
from windlass.server.shown import in_turns, shown_event
from windlass.server.thinking import each_of
from windlass.wire import schedules as wire
from windlass.wire.base import Because
from windlass.wire.jobs import EventList, OfJobQuery


async def runs(call: Call) -> wire.RunPage:
    """Answer a page of the slots of a schedule, newest first."""
    asked: wire.RunsQuery = call.query
    schedule = await call.schedule()
    page = await find_runs(
        call.engine.db,
        schedule.id,
        tenant=call.tenant,
        limit=asked.limit,
        cursor=asked.cursor,
        decision=None if asked.decision is None else Decision[asked.decision.upper()],
        since=asked.since,
        until=asked.until,
    )
    return wire.RunPage(runs=[run async for run in in_turns(call, page.runs, _shown_run)], next_cursor=page.next_cursor)


async def events(call: Call) -> EventList:
    """Answer what happened to a schedule itself, in order: what people did to it, and which runs were missing."""
    asked: OfJobQuery = call.query
    schedule = await call.schedule()
    made = [] if asked.cursor else [Event(schedule.created_at, "submitted", None, None)]
    told = await events_of(call.engine.db, schedule.id, skip=asked.cursor or 0, limit=asked.limit)
    events = [event async for event in in_turns(call, (*made, *told.items), shown_event)]
    return EventList(events=events, next_cursor=told.next_cursor)


async def start(call: Call) -> wire.Backfill:
    """Begin to run the slots of a past range."""
    asked: wire.BackfillRequest = call.body
    schedule = await call.schedule()
    keep_within(call.reach, [schedule.definition])  # it may have moved while the body came
    begun = await call.engine.schedules.backfill(
        schedule,
        since=asked.since,
        until=asked.until,
        concurrency=asked.concurrency,
        actor=call.actor(asked.reason),
        each=each_of(call, RANGE_S),
    )
    call.became = {"backfill": begun.id, "since": begun.since_at, "until": begun.until_at}
    return _shown(begun)


async def find(call: Call) -> wire.BackfillList:
    """Answer the backfills of a schedule, newest first."""
    schedule = await call.schedule()
    found = await step.find(call.engine.db, schedule.id, tenant=call.tenant)
    return wire.BackfillList(backfills=[_shown(backfill) for backfill in found])


async def get(call: Call) -> wire.Backfill:
    """Answer a backfill, and how far it is."""
    return _shown(await _found(call))


async def stop(call: Call) -> wire.Backfill:
    """Let a backfill make no more jobs; those that have not begun are cancelled."""
    asked: Because = call.body
    call.was = _shown(await _found(call))
    return _shown(
        await call.engine.schedules.stop_backfill(call.job_id, tenant=call.tenant, actor=call.actor(asked.reason))
    )


async def _found(call: Call) -> step.Backfill:
    """Return the backfill in the path; Forbidden if its schedule is for a queue that the caller's key is not for."""
    found = await step.get(call.engine.db, call.job_id, tenant=call.tenant)
    if call.principal.queues is not None:
        schedule = await get_schedule(call.engine.db, found.schedule_id, tenant=call.tenant)
        if not await call.may_touch(schedule.definition):
            raise Forbidden(f"Backfill {call.path} is not for a queue of this key. Use another key.")
    return found


def _shown(backfill: step.Backfill) -> wire.Backfill:
    return wire.Backfill(
        id=backfill.id,
        schedule_id=backfill.schedule_id,
        since=backfill.since_at,
        until=backfill.until_at,
        concurrency=backfill.concurrency,
        status=backfill.status,
        made=backfill.made_count,
        known=backfill.known_count,
        reached=max(backfill.since_at, backfill.cursor_at),
        created_at=backfill.created_at,
        ended_at=backfill.ended_at,
    )


def _shown_run(call: Call, run: Run) -> wire.Run:
    return wire.Run(
        schedule_id=run.schedule_id,
        slot_at=run.slot_at,
        scheduled_at=run.slot_at,
        decision=msgspec.convert(run.decision.word, wire.DecisionName),
        reason=call.hidden(run.reason),
        slots=run.slot_count,
        first_slot_at=run.first_at,
        decided_at=run.decided_at,
        job_id=run.job_id,
        status=run.state,
        executed_at=run.started_at,
        finished_at=run.finished_at,
        execution_time_ms=run.run_ms,
        lateness_ms=run.late_ms,
        attempt=run.attempt,
        worker_id=run.worker,
        error_message=call.hidden(run.error),
    )
