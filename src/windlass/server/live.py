"""Live: what happens to a tenant's jobs, as a stream of server-sent events.

Each event is told at least once, in order of time, and has its time as id: who comes back with `Last-Event-ID`, or
`?since=`, goes on from there and may hear the last few seconds again. A transaction may commit after a later one, so
each look begins some seconds before the last event, and what was told already is left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime, timedelta

import msgspec

from windlass.errors import InvalidInput, Unavailable
from windlass.queue.newjob import check_instant
from windlass.queue.recent import EVENTS, MAX_EVENTS, JobEvent, events_since
from windlass.queue.recurring import read_clock
from windlass.server.call import Call, Reply
from windlass.wire.live import EventsQuery, StreamedEvent

OVERLAP = timedelta(seconds=5)
MOMENT = timedelta(microseconds=1)
QUIET_LOOKS = 15
"""After so many looks without an event a comment is sent, so that proxies keep the connection."""


async def events(call: Call) -> Reply:
    """Stream what happens to jobs, from now or from `since` on."""
    asked: EventsQuery = call.query
    since = asked.since or _last_event(call.headers.get("last-event-id")) or await read_clock(call.engine.db)
    check_instant("since", since)
    call.engine.changes.check_room()
    return Reply(200, _stream(call, asked, since), media_type=b"text/event-stream")


def _last_event(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise InvalidInput("Last-Event-ID", "it is not a time of ours. Send the id of the last event.") from None


async def _stream(call: Call, asked: EventsQuery, since: datetime) -> AsyncGenerator[bytes, None]:
    looks = _Looks(since)
    quiet = 0
    until_s = call.engine.outside.monotonic() + (asked.seconds or float("inf"))
    with call.engine.changes.stream():
        yield b": windlass\n\n"
        while True:
            fresh = await looks.fresh(call)
            shown = [_encoded(call, event) for event in fresh if _asked_for(event, asked)]
            quiet = 0 if shown else quiet + 1
            if shown:
                yield b"".join(shown)
            elif quiet >= QUIET_LOOKS:
                quiet = 0
                yield b": quiet\n\n"
            left_s = until_s - call.engine.outside.monotonic()
            if left_s <= 0 or (not looks.behind and not await call.engine.changes.wait(left_s)):
                return


class _Looks:
    """What a stream has told, and where its next look begins."""

    def __init__(self, since: datetime) -> None:
        self._first = self._latest = since
        self._told: dict[JobEvent, datetime] = {}
        self._limit = EVENTS
        self.behind = False
        """Whether there is more to tell at once."""

    async def fresh(self, call: Call) -> list[JobEvent]:
        """Return the events that were not told yet; an empty list also while the database is away."""
        begin = max(self._first, self._latest - OVERLAP)
        try:
            found = await events_since(call.engine.db, call.tenant, since=begin, limit=self._limit)
        except Unavailable:
            self.behind = False
            return []
        fresh = [event for event in found if event not in self._told]
        full = len(found) >= self._limit
        self.behind = full
        if full and not fresh:
            # More than a look holds lies in the overlap: look further, and in the end go on without it.
            if self._limit < MAX_EVENTS:
                self._limit = min(self._limit * 4, MAX_EVENTS)
            else:
                self._first = self._latest = found[-1].happened_at + MOMENT
        elif not full:
            self._limit = EVENTS
        for event in fresh:
            self._told[event] = event.happened_at
            self._latest = max(self._latest, event.happened_at)
        self._told = {event: at for event, at in self._told.items() if at >= self._latest - OVERLAP}
        return fresh


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
