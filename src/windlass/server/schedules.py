"""Schedules: make, show, edit, pause and delete them, look at the slots to come, run one by hand.

In a path a schedule stands by its id or by its name. What is asked for is turned into what is stored, and found wrong,
in engine/planned.py. What became of the slots is in runs.py, past ones are run by backfills.py; a schedule that was
asked for in the words of a job is in recurring.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

import msgspec

from windlass.engine import planned
from windlass.errors import Conflict, InvalidInput, InvalidSchedule, NameTaken, NotFound, WindlassError
from windlass.queue import schedules as step
from windlass.queue.cursor import same_times
from windlass.queue.newjob import check_instant
from windlass.queue.recurring import read_clock
from windlass.queue.schedule import NewSchedule, check_rules
from windlass.queue.schedulewrites import keep_within
from windlass.server.accepted import accept, end_of_pause
from windlass.server.acted import tell_changes
from windlass.server.auth import require
from windlass.server.call import Call, Reply
from windlass.server.enabling import keep_pause, may_declare, may_pause, may_pause_all, resume_enabled
from windlass.server.newjobs import payload_text
from windlass.server.shown import (
    in_turns,
    room_to_show,
    shown_apart,
    shown_differences,
    shown_schedule,
    shown_submit,
)
from windlass.server.thinking import each_of, slots_after, think
from windlass.wire import schedules as wire
from windlass.wire.base import Because, PauseRequest
from windlass.wire.jobs import Submitted

SHOWN_SLOTS = 5
"""Of a change that is only looked at."""
TRIES = 5
AUDITED_NAMES = 50
"""Of a list that was stored, so many are told in the audit."""


async def create(call: Call) -> Reply:
    """Store a schedule: 201, 200 if it has replaced the one of its name or if nothing was to be stored."""
    asked: wire.ScheduleRequest = call.body
    [definition] = await accept(call, await _plan_all(call, [asked]))
    if asked.dry_run:
        return Reply(200, await _would_be(call, asked, definition))
    was = None
    if asked.replace_existing:
        await may_pause_all(call, [asked], [definition])
        was = await _of_name(call, definition)
    with room_to_show(call, definition):
        made = await call.engine.schedules.create(
            [definition], replace=asked.replace_existing, reach=call.reach, each=each_of(call)
        )
        [stored] = await resume_enabled(call, [asked], made, tenants=[definition.tenant])
        call.subject, call.audit_tenant = str(stored.id), definition.tenant
        now = await step.get(call.engine.db, stored.id, tenant=definition.tenant)
        if was is not None and stored.replaced:
            tell_changes(call, was, now)
        shown = await shown_apart(call, now, shown_schedule, acted=True)
    return Reply(200 if stored.replaced else 201, shown)


async def create_batch(call: Call) -> wire.StoredSchedules:
    """Store all schedules of the request, or none; those whose names are taken may be left out."""
    asked: wire.SchedulesRequest = call.body
    replace = asked.replace_existing or all(schedule.replace_existing for schedule in asked.schedules)
    if replace and asked.skip_existing:
        raise InvalidInput("skip_existing", "it stands beside replace_existing. Give one of them.")
    for index, schedule in enumerate(asked.schedules):
        if schedule.dry_run or (schedule.replace_existing and not replace):
            field = "dry_run" if schedule.dry_run else "replace_existing"
            problem = "in a list it is for all or for none. Leave it out, or send this one by itself."
            raise InvalidSchedule(field, problem, index=index)
    definitions = await accept(call, await _plan_all(call, asked.schedules))
    if replace:
        await may_pause_all(call, asked.schedules, definitions)
    made = await call.engine.schedules.create(
        definitions, replace=replace, skip=asked.skip_existing, reach=call.reach, each=each_of(call)
    )
    tenants = [definition.tenant for definition in definitions]
    stored = await resume_enabled(call, asked.schedules, made, tenants=tenants) if replace else made
    names = [one.name for one in stored[:AUDITED_NAMES]]
    call.became = {"count": len(stored), "replaced": sum(one.replaced for one in stored), "names": names}
    return wire.StoredSchedules(
        schedules=[
            wire.StoredSchedule(id=one.id, name=one.name, next_run_at=one.next_at, replaced=one.replaced)
            for one in stored
        ]
    )


async def declare(call: Call) -> wire.Declared:
    """Make the schedules of an application those that it declares."""
    asked: wire.DeclareRequest = call.body
    if both := {schedule.name for schedule in asked.schedules}.intersection(asked.keep):
        raise InvalidInput("keep", f"{min(both)!r} is among the schedules too. Name it in one of them.")
    may_declare(call, asked.owner)
    refused: dict[str, WindlassError] | None = {} if asked.skip_refused else None
    wanted = await _plan_all(call, asked.schedules, owner=asked.owner, named=False, refused=refused)
    definitions = await accept(call, wanted, fires=False, refused=refused)
    done = await call.engine.schedules.declare(
        asked.owner,
        definitions,
        tenant=call.tenant,
        actor=call.actor(),
        dry_run=asked.dry_run,
        reach=call.reach,
        keep=frozenset([*asked.keep, *(refused or ())]),
        may_pause="operate" in call.principal.scopes,
        skip_refused=asked.skip_refused,
        each=each_of(call),
    )
    if asked.dry_run and done.declared.removed:
        require(call.principal, "read")  # these are names that the request does not have
    problems = (refused or {}) | done.refused
    shown = wire.Declared(
        **msgspec.structs.asdict(done.declared),
        refused=[
            wire.RefusedSchedule(name=request.name, reason=_reason(problems[request.name]))
            for request in asked.schedules
            if request.name in problems
        ],
    )
    call.acted = not asked.dry_run and bool(shown.added or shown.changed or shown.removed)
    call.subject, call.became = asked.owner, msgspec.to_builtins(shown)
    return shown


def _reason(problem: WindlassError) -> str:
    return f"{problem.field}: {problem.problem}" if isinstance(problem, InvalidInput) else str(problem)


async def find(call: Call) -> wire.ScheduleList:
    """Answer a page of schedules by name."""
    asked: wire.SchedulesQuery = call.query
    page = await step.find(
        call.engine.db,
        call.tenant,
        limit=asked.limit,
        cursor=asked.cursor,
        task=asked.task,
        queue=call.one_queue(asked.queue),
        named_queue=call.principal.queues is not None,
        owner=asked.owner,
        paused=asked.paused,
        prefix=asked.prefix,
    )
    return wire.ScheduleList(
        schedules=[schedule async for schedule in in_turns(call, page.schedules, shown_schedule)],
        next_cursor=page.next_cursor,
    )


async def get(call: Call) -> wire.Schedule:
    """Answer a schedule."""
    return await shown_apart(call, await call.schedule(), shown_schedule)


async def replace(call: Call) -> wire.Schedule | wire.ScheduleChange:
    """Give a schedule exactly these settings."""
    asked: wire.ScheduleReplacement = call.body

    def becomes(was: step.Schedule) -> NewSchedule:
        definition = _plan(call, asked, was.id, owner=was.definition.owner, named=False)
        return keep_pause(asked, definition, was.definition)

    return await _edit(call, asked, becomes)


async def change(call: Call) -> wire.Schedule | wire.ScheduleChange:
    """Change some settings of a schedule."""
    asked: wire.SchedulePatch = call.body

    def becomes(was: step.Schedule) -> NewSchedule:
        return planned.patched(was.definition, asked, call.settings)

    return await _edit(call, asked, becomes)


async def _edit(
    call: Call,
    asked: wire.ScheduleReplacement | wire.SchedulePatch,
    becomes_of: Callable[[step.Schedule], NewSchedule],
) -> wire.Schedule | wire.ScheduleChange:
    """Give a schedule what it becomes of the version that was read; who names no version looks again after a rival."""
    for tries_left in reversed(range(TRIES)):
        was = await call.schedule()
        keep_within(call.reach, [was.definition])  # it may have moved while the body came
        becomes = await think(call, partial(becomes_of, was))
        may_pause(call, was.definition, becomes)
        [becomes] = await accept(call, [becomes], fires=not same_times(was.definition, becomes))
        if asked.dry_run:
            return await _difference(call, becomes, was)
        with room_to_show(call, becomes):
            try:
                edited = await call.engine.schedules.edit(
                    was.id,
                    becomes,
                    tenant=call.tenant,
                    actor=call.actor(asked.reason),
                    version=asked.version or was.version,
                    reach=call.reach,
                )
            except NameTaken:
                raise
            except Conflict:
                if asked.version is not None or not tries_left:
                    raise
            else:
                tell_changes(call, was, edited)
                return await shown_apart(call, edited, shown_schedule, acted=True)
    raise AssertionError("unreachable")


async def delete(call: Call) -> Reply:
    """Remove a schedule; its jobs that have not begun are cancelled."""
    asked: wire.DeleteQuery = call.query
    schedule = await call.schedule()
    deleted = await call.engine.schedules.delete(
        schedule.id,
        tenant=call.tenant,
        actor=call.actor(asked.reason),
        purge=asked.purge,
        reach=call.reach,
    )
    call.became = {"deleted": True, "purged": asked.purge, "cancelled": len(deleted.cancelled)}
    return Reply(204)


async def run(call: Call) -> Submitted:
    """Make a job now, beside the series."""
    asked: wire.RunRequest = call.body
    schedule = await call.schedule()
    payload = payload_text(call, asked.payload)
    if payload is not None:
        changed = msgspec.structs.replace(schedule.definition, payload=payload)
        await call.engine.signatures.check([changed.job(schedule.id)])
    stored = await call.engine.schedules.run_now(
        schedule.id,
        tenant=call.tenant,
        actor=call.actor(asked.reason),
        payload=payload,
        reach=call.reach,
    )
    call.became = {"job_id": stored.id}
    return shown_submit(call, stored)


async def pause(call: Call) -> wire.Schedule:
    """Let a schedule make no jobs; those it has made go on."""
    asked: PauseRequest = call.body
    schedule = await call.schedule()
    with room_to_show(call, schedule):
        paused = await call.engine.schedules.pause(
            schedule.id,
            tenant=call.tenant,
            actor=call.actor(asked.reason),
            until=await end_of_pause(call, asked),
            reach=call.reach,
        )
        return await shown_apart(call, paused, shown_schedule, acted=True)


async def resume(call: Call) -> wire.Schedule:
    """Let a schedule make jobs again, from its next slot on."""
    asked: Because = call.body
    schedule = await call.schedule()
    with room_to_show(call, schedule):
        resumed = await call.engine.schedules.resume(
            schedule.id, tenant=call.tenant, actor=call.actor(asked.reason), reach=call.reach
        )
        return await shown_apart(call, resumed, shown_schedule, acted=True)


async def preview(call: Call) -> wire.Preview:
    """Answer the slots of a schedule that are to come."""
    asked: wire.PreviewQuery = call.query
    schedule = await call.schedule()
    return await _preview(call, schedule.definition, asked, base_at=schedule.base_at)


async def preview_trigger(call: Call) -> wire.Preview:
    """Answer the slots of a trigger that is not stored."""
    asked: wire.PreviewRequest = call.body
    definition = await think(call, lambda: planned.previewed(asked, schedule_id=UUID(int=0)))
    return await _preview(call, definition, asked)


async def _preview(
    call: Call,
    schedule: NewSchedule,
    asked: wire.PreviewQuery | wire.PreviewRequest,
    *,
    base_at: datetime | None = None,
) -> wire.Preview:
    check_instant("after", asked.after)
    now = await read_clock(call.engine.db)
    after = asked.after or now
    return wire.Preview(
        words=planned.described(schedule.trigger),
        timezone=schedule.zone,
        slots=await slots_after(call, schedule, after, base_at=base_at or now, count=asked.count),
    )


def _plan(
    call: Call,
    asked: wire.ScheduleRequest,
    schedule_id: UUID,
    *,
    owner: str | None = None,
    named: bool = True,
) -> NewSchedule:
    """Return the schedule that is asked for; InvalidInput if this caller may not have it like that.

    Its payload is looked through by `accept`.
    Its tenant may be `named` in the body, as that of a job may, or must be the one that the request is about.
    """
    tenant = call.tenant if asked.tenant is None else call.name_tenant(asked.tenant)
    if tenant != call.tenant and not named:
        raise InvalidInput("tenant", f"{tenant!r} is not the tenant of this request. Name it in the query instead.")
    return planned.new_schedule(
        asked, call.settings, schedule_id=schedule_id, tenant=tenant, owner=owner, check=check_rules
    )


async def _plan_all(
    call: Call,
    asked: Sequence[wire.ScheduleRequest],
    *,
    owner: str | None = None,
    named: bool = True,
    refused: dict[str, WindlassError] | None = None,
) -> list[NewSchedule]:
    """Return the schedules that are asked for; InvalidInput names the index among several, unless it is `refused`."""

    def plan(item: tuple[int, wire.ScheduleRequest, UUID]) -> NewSchedule | None:
        index, request, schedule_id = item
        try:
            return _plan(call, request, schedule_id, owner=owner, named=named)
        except InvalidInput as problem:
            if refused is None:
                raise (problem.at(index) if in_list else problem) from None
            refused[request.name] = problem
            return None

    in_list = not isinstance(call.body, wire.ScheduleRequest)
    # Ids are made here: their maker is for one thread.
    items, pace = [], call.pace()
    for index, request in enumerate(asked):
        items.append((index, request, call.engine.ids.new()))
        await pace.give_way()
    return [schedule for schedule in await each_of(call)(plan, items) if schedule is not None]


async def _of_name(call: Call, definition: NewSchedule) -> step.Schedule | None:
    """Return the schedule that has the name of this one, if there is one."""
    with contextlib.suppress(NotFound):
        return await step.get(call.engine.db, definition.name, tenant=definition.tenant)
    return None


async def _would_be(call: Call, asked: wire.ScheduleRequest, becomes: NewSchedule) -> wire.ScheduleChange:
    """Return what storing a schedule would change; NameTaken if it would be refused."""
    was = await _of_name(call, becomes)
    if was is None:
        return await _difference(call, becomes)
    if not asked.replace_existing:
        raise step.name_taken(becomes.name)
    keep_within(call.reach, [was.definition])
    becomes = keep_pause(asked, becomes, was.definition)
    may_pause(call, was.definition, becomes)
    owner = was.definition.owner
    return await _difference(call, msgspec.structs.replace(becomes, id=was.id, owner=owner), was)


async def _difference(call: Call, becomes: NewSchedule, was: step.Schedule | None = None) -> wire.ScheduleChange:
    call.acted = False
    if was is not None:
        require(call.principal, "read")  # what it is now is told
    now = await read_clock(call.engine.db)
    base_at = now if was is None else was.base_at
    return wire.ScheduleChange(
        name=becomes.name,
        exists=was is not None,
        differences=[] if was is None else await shown_differences(call, was.definition, becomes),
        slots=await slots_after(call, becomes, now, base_at=base_at, count=SHOWN_SLOTS),
    )
