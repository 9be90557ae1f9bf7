"""What is shown of a job, of an attempt and of a schedule, under all the names that callers know their figures by.

Secrets are hidden by their names in arguments, headers and metrics, and in the texts of errors, traces and reasons as
in the log. A result is shown as it was reported: its reader asked for it, and a changed one would be a wrong one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import Raw

from windlass.engine import planned
from windlass.job import Outcome, failure_text
from windlass.queue import history
from windlass.queue.checkpoints import Kept
from windlass.queue.defaults import sources
from windlass.queue.explain import Reason
from windlass.queue.queues import Pause
from windlass.queue.schedule import NewSchedule, differences
from windlass.queue.schedules import Schedule
from windlass.queue.submit import Submitted
from windlass.server.call import Call
from windlass.wire import jobs as wire
from windlass.wire import people as wire_people
from windlass.wire import schedules as wire_schedules

Item = TypeVar("Item")
Shown = TypeVar("Shown")

TURN_BYTES = 16 << 10
"""Of texts shown in one go on the event loop: redacting them takes some 10 ms at worst, 1 ms as a rule."""
ITEM_BYTES = 2 << 10
"""What showing an item costs besides its texts, in bytes of text."""
ADDED_BYTES = 4 << 10
"""What an act may add to the texts of what it is done to: a reason, and names."""
PIECE_BYTES = 256 << 10
"""Of texts shown in one turn of the thread, which takes some 60 ms at worst. One item may be beyond it."""
_apart = ThreadPoolExecutor(1, thread_name_prefix="windlass-redaction")
"""One thread, in which tenants take turns: more would only take the interpreter from the event loop more often."""
_MILLISECOND = timedelta(milliseconds=1)
_AS_IT_IS = (
    *("id", "task", "tenant", "queue", "state", "paused", "tags", "priority", "attempt", "max_attempts", "max_lost"),
    *("fence", "lost", "releases", "run", "idempotency_key", "unique_key", "flow_id", "parent_id", "schedule_id"),
    *("created_at", "scheduled_at", "next_run_at", "queued_at", "claimed_at", "heartbeat_at", "lease_expires_at"),
    *("started_at", "finished_at", "error_type", "held", "source"),
)
"""Columns of a job that are shown under their own names."""


async def in_turns(call: Call, items: Iterable[Item], show: Callable[[Call, Item], Shown]) -> AsyncIterator[Shown]:
    """Yield items as they are shown; others get their turn in between, and large ones are shown by a thread.

    Raises TooMany or Unavailable if there is no room, or no turn, for large ones.
    """
    is_first = True
    for is_large, piece in _pieces(items):
        if is_large:
            async with call.engine.acts.showing.turn(call.tenant, call.principal.key_id):
                done = await _by_thread(call, piece, show)
        else:
            if not is_first:
                await call.give_way()
            done = _all(call, piece, show)
        is_first = False
        for one in done:
            yield one


async def shown_apart(
    call: Call,
    item: Item,
    show: Callable[[Call, Item], Shown],
    *,
    beside: object = None,
    acted: bool = False,
) -> Shown:
    """Return an item as it is shown, by a thread if it is large together with what is shown `beside` it.

    Raises TooMany or Unavailable if there is no room, or no turn, for a large one; never if the call has `acted` on it.
    """
    if not _is_large((item, beside)):
        return show(call, item)
    showing = call.engine.acts.showing
    async with showing.sure_turn(call.tenant) if acted else showing.turn(call.tenant, call.principal.key_id):
        [shown] = await _by_thread(call, [item], show)
    return shown


@contextmanager
def room_to_show(call: Call, item: object, beside_bytes: int = 0) -> Iterator[None]:
    """Keep room for an item that is shown after an act on it: so the call is refused before it acts, not after.

    Raises TooMany if there is no room for one that is, or may become, large together with what is shown beside it.
    """
    is_large = _texts(item) + beside_bytes + ADDED_BYTES > TURN_BYTES
    with call.engine.acts.showing.place(call.tenant, call.principal.key_id) if is_large else nullcontext():
        yield


def _pieces(items: Iterable[Item]) -> Iterator[tuple[bool, list[Item]]]:
    """Yield the items in pieces: small ones for one turn on the event loop, or large ones for one of the thread."""
    piece: list[Item] = []
    size, is_large = 0, False
    for item in items:
        weight = ITEM_BYTES + _texts(item)
        was_large, is_large = is_large, weight > TURN_BYTES
        if piece and (is_large != was_large or size + weight > (PIECE_BYTES if is_large else TURN_BYTES)):
            yield was_large, piece
            piece, size = [], 0
        piece.append(item)
        size += weight
    if piece:
        yield is_large, piece


async def _by_thread(call: Call, items: Sequence[Item], show: Callable[[Call, Item], Shown]) -> list[Shown]:
    return await asyncio.get_running_loop().run_in_executor(_apart, _all, call, items, show)


def _all(call: Call, items: Sequence[Item], show: Callable[[Call, Item], Shown]) -> list[Shown]:
    return [show(call, item) for item in items]


def _is_large(item: object) -> bool:
    return _texts(item) > TURN_BYTES


def _texts(item: Any) -> int:
    """Return how many characters the texts of a struct have, and those in it."""
    if isinstance(item, str):
        return len(item)
    if isinstance(item, msgspec.Struct):
        item = msgspec.structs.astuple(item)
    return sum(map(_texts, item)) if isinstance(item, list | tuple) else 0


def shown_job(
    call: Call, job: history.Job, kept: Kept | None = None, *, reasons: Sequence[Reason] | None = None
) -> wire.Job:
    """Return a job as it is shown to this caller, with what is kept of its attempts and why it waits."""
    error = call.hidden(job.error)
    return wire.Job(
        **{name: getattr(job, name) for name in _AS_IT_IS},
        progress=redacted(call, kept.progress) if kept else None,
        checkpoint=redacted(call, kept.checkpoint) if kept else None,
        name=job.task,
        tenant_id=job.tenant,
        status=call.word(job.state),
        payload=redacted(call, job.payload) or Raw(b"null"),
        headers=redacted(call, job.headers),
        labels=[label for label in job.labels.split(",") if label],
        attempt_number=job.attempt,
        attempts=job.attempt,
        retry_count=max(job.attempt - 1, 0),
        max_retries=job.max_attempts - 1,
        timeout_seconds=job.timeout_s,
        max_execution_time=job.timeout_s,
        retry_policy=_raw(job.retry),
        run_id=_run_id(job.id, job.fence),
        definition_id=job.schedule_id,
        updated_at=_latest(job.created_at, job.claimed_at, job.started_at, job.finished_at),
        run_at=job.next_run_at,
        executed_at=job.next_run_at or job.started_at,
        start_deadline=job.start_by,
        defaults=sources(job.defaults),
        worker_id=job.worker,
        claimed_by=job.worker,
        lease_owner=job.worker,
        completed_at=job.finished_at,
        execution_time_ms=_span_ms(job.started_at, job.finished_at),
        lateness_ms=_span_ms(job.scheduled_at, job.started_at),
        result=_raw(job.result),
        metrics=redacted(call, job.metrics),
        error_message=error,
        failure_reason=failure_text(job.error_type, error),
        reason=call.hidden(job.reason),
        waiting=None
        if reasons is None
        else [wire.Waiting(code=reason.code, detail=call.redactor.text(reason.detail)) for reason in reasons],
    )


def shown_submit(call: Call, answer: Submitted) -> wire.Submitted:
    """Return what became of a submitted job as it is shown."""
    return wire.Submitted(
        id=answer.id,
        status=None if answer.state is None else call.word(answer.state),
        state=answer.state,
        next_run_at=answer.next_run_at,
        duplicate=answer.duplicate,
    )


def shown_schedule(call: Call, schedule: Schedule, *, arguments: bool = True) -> wire_schedules.Schedule:
    """Return a schedule as it is shown to this caller, with its payload and headers or without."""
    given = call.engine.signatures.known_of(schedule.definition.tenant, schedule.definition.task)
    null = Raw(b"null")
    shown = planned.shown(schedule, given=given, hide=lambda text: redacted(call, text) or null if arguments else null)
    return msgspec.structs.replace(shown, pause=shown_pause(call, schedule.pause))


async def shown_differences(call: Call, was: NewSchedule, becomes: NewSchedule) -> list[wire_schedules.Difference]:
    """Return the settings that differ as they are shown."""
    found = differences(was, becomes)
    texts = [text for _, *both in found for text in both]
    shown = [text async for text in in_turns(call, texts, redacted)]
    return [
        wire_schedules.Difference(field=field, was=before, becomes=after)
        for (field, _, _), before, after in zip(found, shown[::2], shown[1::2], strict=True)
    ]


def shown_pause(call: Call, pause: Pause | None) -> wire_people.Pause | None:
    """Return a pause as it is shown; None if there is none."""
    if pause is None:
        return None
    reason = call.hidden(pause.reason)
    return wire_people.Pause(
        of=pause.of, reason=reason, actor=pause.actor, paused_at=pause.paused_at, until=pause.resume_at
    )


def shown_event(call: Call, event: history.Event) -> wire.Event:
    """Return something that happened as it is shown."""
    detail = call.hidden(event.detail)
    return wire.Event(
        happened_at=event.happened_at, kind=event.kind, worker_id=event.worker, actor=event.actor, detail=detail
    )


def shown_attempt(call: Call, attempt: history.Attempt) -> wire.Attempt:
    """Return an ended attempt as it is shown."""
    outcome = Outcome(attempt.outcome).name.lower()
    run_id = f"{attempt.job_id}.{attempt.fence}"
    return wire.Attempt(
        id=run_id,
        run_id=run_id,
        job_id=attempt.job_id,
        run=attempt.run,
        attempt=attempt.attempt,
        attempt_number=attempt.attempt,
        fence=attempt.fence,
        outcome=outcome,
        status=outcome,
        worker_id=attempt.worker,
        queued_at=attempt.queued_at,
        claimed_at=attempt.claimed_at,
        started_at=attempt.started_at,
        finished_at=attempt.finished_at,
        completed_at=attempt.finished_at,
        execution_time_ms=_span_ms(attempt.started_at, attempt.finished_at),
        next_run_at=attempt.next_run_at,
        output=_raw(attempt.result),
        metrics=redacted(call, attempt.metrics),
        error_type=attempt.error_type,
        error_message=call.hidden(attempt.error),
        traceback=call.hidden(attempt.traceback),
        reason=call.hidden(attempt.reason),
    )


def redacted(call: Call, text: str | None) -> Raw | None:
    """Return arguments, headers or metrics without secrets; as they were received where there are none."""
    if text is None:
        return None
    value = msgspec.json.decode(text)
    hidden = call.redactor.value(value)
    return Raw(text) if hidden == value else Raw(msgspec.json.encode(hidden))


def _raw(text: str | None) -> Raw | None:
    return None if text is None else Raw(text)


def _run_id(job_id: UUID, fence: int) -> str | None:
    return f"{job_id}.{fence}" if fence else None


def _span_ms(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else max(0, (end - start) // _MILLISECOND)


def _latest(first: datetime, *others: datetime | None) -> datetime:
    return max((first, *(instant for instant in others if instant is not None)))
