"""Words: what attempts tell by the way, with a heartbeat or a report, kept as far as it can be.

A heartbeat renews leases and a report ends them: neither is ever refused for a note or a line that came with it. What
cannot be kept is left out by itself, logged, and told to the worker. The rest goes to trail.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import UNSET

from windlass import log
from windlass.engine.engine import Engine
from windlass.engine.fair import Pace
from windlass.engine.translate import chunk_of, note_of
from windlass.errors import InvalidInput, WindlassError
from windlass.queue.checkpoints import Note, check_note
from windlass.queue.logs import Chunk
from windlass.queue.newjob import check_instant
from windlass.wire import trail
from windlass.wire import work as wire

_FIELDS: tuple[Literal["progress", "checkpoint"], ...] = ("progress", "checkpoint")


async def keep(
    engine: Engine,
    named: wire.LeaseBody,
    *,
    tenant: str,
    logs: Iterable[trail.LogChunk] = (),
    notes: Iterable[trail.Note] = (),
    must: bool = False,
) -> list[trail.Refused]:
    """Keep what can be kept of these words; return what was not. Raises only with `must`: where a server cannot now."""
    refused: list[trail.Refused] = []
    chunks, pace = [], Pace(engine.loop_turns, tenant, engine.outside.monotonic)
    for chunk in logs:
        chunks.append(_chunk(chunk, named, refused, tenant=tenant))
        await pace.give_way()
    kept = []
    for note in notes:
        kept.append(_note(engine, note, named, refused=refused, tenant=tenant))
        await pace.give_way()
    try:
        await engine.trail.keep(chunks, kept)
    except WindlassError as error:
        if must and not isinstance(error, InvalidInput):
            raise
        jobs = {chunk.job_id for chunk in chunks} | {note.job_id for note in kept}
        refused += [trail.Refused(job_id=job_id, field="logs", detail=str(error)) for job_id in sorted(jobs)]
    for word in refused:
        log.event("trail.refused", job=word.job_id, worker=named.worker_id, field=word.field, reason=word.detail)
    return refused


def _chunk(told: trail.LogChunk, named: wire.LeaseBody, refused: list[trail.Refused], *, tenant: str) -> Chunk:
    """Return a chunk without the lines that cannot be kept; these count as dropped."""
    chunk = chunk_of(told, named, tenant=tenant)
    lines = []
    for line in chunk.lines:
        try:
            check_instant("logs", line.at)
            lines.append(line)
        except InvalidInput as error:
            refused.append(trail.Refused(job_id=told.job_id, field="logs", detail=str(error)))
    return msgspec.structs.replace(chunk, lines=lines, dropped=chunk.dropped + len(chunk.lines) - len(lines))


def _note(
    engine: Engine, told: trail.Note, named: wire.LeaseBody, *, refused: list[trail.Refused], tenant: str
) -> Note:
    """Return a note without what cannot be kept."""
    try:
        check_note(note := note_of(told, named, tenant=tenant, settings=engine.settings))
    except InvalidInput:
        return _cleaned(engine, told, named, refused=refused, tenant=tenant)
    return note


def _cleaned(
    engine: Engine, told: trail.Note, named: wire.LeaseBody, *, refused: list[trail.Refused], tenant: str
) -> Note:
    """Return a note without the fields that cannot be kept, which are refused one by one."""
    for field in _FIELDS:
        try:
            other = {name: UNSET for name in _FIELDS if name != field}
            check_note(note_of(msgspec.structs.replace(told, **other), named, tenant=tenant, settings=engine.settings))
        except InvalidInput as error:
            refused.append(trail.Refused(job_id=told.job_id, field=field, detail=str(error)))
            told = msgspec.structs.replace(told, **{field: UNSET})
    return note_of(told, named, tenant=tenant, settings=engine.settings)
