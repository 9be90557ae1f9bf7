"""Logs: what the attempts of a job wrote, page by page, or as a stream of server-sent events until the job has ended.

Each line of a stream has its place as id: who comes back with `Last-Event-ID`, or `?after=`, goes on from there.
A stream looks again as soon as lines come in on this server, and once a second for those that another one took.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

import msgspec

from windlass.engine.changes import GATHER_S
from windlass.errors import TooMany, Unavailable
from windlass.queue import history
from windlass.queue import logs as step
from windlass.server.call import Call, Reply
from windlass.server.live import QUIET_S, opened
from windlass.wire import trail as wire

LOOK_S = 1.0
START = (0, 0, 0)


async def find(call: Call) -> wire.LogPage | Reply:
    """Answer lines of a job, or the stream of them."""
    asked: wire.LogsQuery = call.query
    await history.get(call.engine.db, call.job_id, tenant=call.tenant)
    after = asked.after or (call.headers.get("last-event-id") if asked.follow else None)
    begin = START if after is None else step.parse_place(after)
    if asked.follow:
        return await opened(_stream(call, asked, begin))
    async with call.engine.acts.list_turn(call.tenant, call.principal.key_id):
        page = await step.read(call.engine.db, call.job_id, attempt=asked.attempt, after=begin, limit=asked.limit)
    return wire.LogPage(
        lines=[_shown(written) for written in page.lines],
        next_cursor=None if page.following is None else _cursor(page.following),
        dropped=page.dropped,
    )


async def _stream(call: Call, asked: wire.LogsQuery, place: tuple[int, int, int]) -> AsyncGenerator[bytes, None]:
    changes = call.engine.changes
    sent_s = call.engine.outside.monotonic()
    key = call.principal.key_id
    with (
        call.waiting.place(call.tenant, key),
        changes.streams.place(call.tenant, key),
        call.engine.trail.following(call.job_id) as grown,
    ):
        yield b""
        yield b": windlass\n\n"
        while not call.engine.draining:
            grown.clear()  # before the look, which may miss what is kept from now on
            try:
                async with changes.turn(call.tenant):
                    # Before the lines: what an attempt wrote is kept before its end is.
                    ended = call.job_id not in await history.live(call.engine.db, [call.job_id])
                    page = await step.read(call.engine.db, call.job_id, attempt=asked.attempt, after=place)
            except (TooMany, Unavailable):
                await _next_look(grown)
                continue
            place = page.last
            if page.lines:
                sent_s = call.engine.outside.monotonic()
                yield b"".join(_encoded(written) for written in page.lines)
            if page.following is not None:
                continue
            if ended:
                yield b"event: end\ndata: {}\n\n"
                return
            if call.engine.outside.monotonic() - sent_s >= QUIET_S:
                sent_s = call.engine.outside.monotonic()
                yield b": quiet\n\n"
            await _next_look(grown)
            await call.engine.outside.pause(GATHER_S)


async def _next_look(grown: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_S):
            await grown.wait()


def _shown(written: step.Written) -> wire.ShownLine:
    line = written.line
    return wire.ShownLine(
        attempt=written.attempt,
        fence=written.fence,
        seq=written.seq,
        at=line.at,
        stream=line.stream,
        level=line.level,
        text=line.text,
    )


def _encoded(written: step.Written) -> bytes:
    mark = _cursor((written.fence, written.seq, written.index + 1)).encode()
    return b"id: " + mark + b"\nevent: line\ndata: " + msgspec.json.encode(_shown(written)) + b"\n\n"


def _cursor(place: tuple[int, int, int]) -> str:
    return ".".join(map(str, place))
