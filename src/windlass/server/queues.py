"""Queues: list them, set their limits and order, pause and resume them."""

from __future__ import annotations

from windlass.queue import queues as step
from windlass.queue.lanes import STRICT_PRIORITY_MS, LaneName
from windlass.server.accepted import end_of_pause
from windlass.server.call import Call
from windlass.server.shown import in_turns, shown_pause
from windlass.wire import people as wire
from windlass.wire.base import NamePages, PauseRequest


async def find(call: Call) -> wire.QueueList:
    """Answer a page of queues by name."""
    asked: NamePages = call.query
    page = await step.list_queues(call.engine.db, call.tenant, limit=asked.limit, cursor=asked.cursor)
    queues = [queue async for queue in in_turns(call, page.queues, shown_queue)]
    return wire.QueueList(queues=queues, next_cursor=page.next_cursor)


async def get(call: Call) -> wire.Queue:
    """Answer a queue."""
    return shown_queue(call, await step.get_queue(call.engine.db, call.tenant, call.path))


async def put(call: Call) -> wire.Queue:
    """Give a queue exactly these settings, making it if need be."""
    asked: wire.QueueRequest = call.body
    credit_s = asked.priority_credit_seconds
    await call.engine.acts.configure_queue(
        LaneName(call.tenant, call.allow_queue(call.path)),
        credit_ms=STRICT_PRIORITY_MS if credit_s is None else round(credit_s * 1000),
        fifo=asked.order == "fifo",
        max_running=asked.max_running,
        rate_per_s=asked.rate_per_second,
        burst=asked.burst,
    )
    return await get(call)


async def pause(call: Call) -> wire.Queue:
    """Hand out nothing from a queue; what runs goes on."""
    asked: PauseRequest = call.body
    lane = LaneName(call.tenant, call.allow_queue(call.path))
    until = await end_of_pause(call, asked)
    await call.engine.acts.pause_queue(lane, actor=call.actor(asked.reason), until=until)
    return await get(call)


async def resume(call: Call) -> wire.Queue:
    """Hand out from a queue again."""
    await call.engine.acts.resume_queue(LaneName(call.tenant, call.allow_queue(call.path)))
    return await get(call)


def shown_queue(call: Call, queue: step.Queue) -> wire.Queue:
    """Return a queue as it is shown."""
    settings = queue.settings
    strict = settings.credit_ms == STRICT_PRIORITY_MS
    return wire.Queue(
        name=queue.name,
        paused=queue.paused,
        pause=shown_pause(call, queue.pause),
        order=settings.order,
        max_running=settings.max_running,
        rate_per_second=settings.rate_per_s,
        burst=settings.burst,
        priority_credit_seconds=None if strict else settings.credit_ms / 1000,
        pending=queue.pending,
        held=queue.held,
        in_progress=queue.in_progress,
        scheduled=queue.scheduled,
        blocked=queue.blocked,
        sleeping=queue.sleeping,
        dead=queue.dead,
        counts_are_exact=queue.counts_are_exact,
        oldest_queued_seconds=queue.oldest_queued_s,
    )
