"""Live: what happens to a tenant's jobs, as a stream of server-sent events.

Each event is told at least once, in order of time, and has its time as id: who comes back with `Last-Event-ID`, or
`?since=`, goes on from there and may hear the last few seconds again. All streams of a tenant share one look
(engine/changes.py); one that begins in the past catches up first.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime

import msgspec

from windlass.engine.changes import GATHER_S, OVERLAP, Looks, Told
from windlass.errors import InvalidInput, WindlassError
from windlass.queue.newjob import check_instant
from windlass.queue.recent import JobEvent
from windlass.queue.recurring import read_clock
from windlass.server.call import Call, Reply
from windlass.wire.live import EventsQuery, StreamedEvent

QUIET_S = 15.0
"""After so long without an event a comment is sent, so that proxies keep the connection."""
PIECE_BYTES = 64 << 10
"""A stream is sent in pieces of about this size, which wait in memory while their reader is slow."""
TURN_EVENTS = 50
"""So many events are made into text at a time; then others get their turn."""


async def events(call: Call) -> Reply:
    """Stream what happens to jobs, from now or from `since` on."""
    asked: EventsQuery = call.query
    since = asked.since or _last_event(call.headers.get("last-event-id")) or await read_clock(call.engine.db)
    check_instant("since", since)
    return await opened(_stream(call, asked, since))


async def opened(stream: AsyncGenerator[bytes, None]) -> Reply:
    """Answer with a stream that has found room: its first piece is empty. Raises TooMany if there is none."""
    await anext(stream)
    return Reply(200, stream, media_type=b"text/event-stream")


def _last_event(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise InvalidInput("Last-Event-ID", "it is not a time of ours. Send the id of the last event.") from None


async def _stream(call: Call, asked: EventsQuery, since: datetime) -> AsyncGenerator[bytes, None]:
    changes, outside = call.engine.changes, call.engine.outside
    key = call.principal.key_id
    with (
        call.waiting.place(call.tenant, key),
        changes.streams.place(call.tenant, key),
        changes.following(call.tenant) as follower,
    ):
        yield b""
        yield b": windlass\n\n"
        until_s = outside.monotonic() + (asked.seconds or float("inf"))
        own = Looks(since)
        forget_s = until_s
        sent_s = outside.monotonic()
        while True:
            left_s = until_s - outside.monotonic()
            if own.behind:
                found = await _missed(call, own, left_s)
                forget_s = outside.monotonic() + 2 * OVERLAP.total_seconds()
            elif (heard := await follower.news(left_s)) is None:
                return
            else:
                found = [told for told in heard if told.event.happened_at >= since and told.event not in own]
                if outside.monotonic() > forget_s:
                    own.forget()
            async for piece in _pieces(call, asked, found):
                sent_s = outside.monotonic()
                yield piece
            if outside.monotonic() - sent_s >= QUIET_S:
                sent_s = outside.monotonic()
                yield b": quiet\n\n"
            if until_s <= outside.monotonic() or call.engine.draining:
                return


async def _missed(call: Call, own: Looks, left_s: float) -> list[Told]:
    """Return what a stream that begins in the past has missed; an empty list also while it is not its turn."""
    try:
        return await call.engine.changes.caught_up(call.tenant, own)
    except WindlassError:  # or while the database is away
        own.behind = True
        await call.engine.outside.pause(max(0.0, min(left_s, GATHER_S)))
        return []


async def _pieces(call: Call, asked: EventsQuery, found: list[Told]) -> AsyncIterator[bytes]:
    """Yield events as they are sent, many in a piece; an event is made into text once for all its streams."""
    texts: list[bytes] = []
    size = made = 0
    for told in found:
        if not _asked_for(told.event, asked):
            continue
        if told.text is None:
            told.text = _encoded(call, told.event)
            made += 1
            if made % TURN_EVENTS == 0:
                await call.give_way()
        texts.append(told.text)
        size += len(told.text)
        if size > PIECE_BYTES:
            yield b"".join(texts)
            texts, size = [], 0
    if texts:
        yield b"".join(texts)


def _asked_for(event: JobEvent, asked: EventsQuery) -> bool:
    return (asked.job_id is None or event.job_id == asked.job_id) and (asked.kind is None or event.kind == asked.kind)


def _encoded(call: Call, event: JobEvent) -> bytes:
    shown = StreamedEvent(
        job_id=event.job_id,
        kind=event.kind,
        happened_at=event.happened_at,
        worker_id=event.worker,
        actor=event.actor,
        detail=call.hidden(event.detail),
    )
    moment = msgspec.json.encode(event.happened_at).strip(b'"')
    return b"id: " + moment + b"\nevent: job\ndata: " + msgspec.json.encode(shown) + b"\n\n"
