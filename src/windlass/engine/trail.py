"""Trail: what attempts leave behind while they run, kept in batches: lines of their logs, progress, checkpoints.

Each word is guarded by its lease (queue/logs.py, queue/checkpoints.py) and harmless when said twice. Secrets are hidden
here as in the log of a server: workers do the same, but theirs may be another's program. That takes time: of much text
only that of leases which are held is looked at, and others get their turn in between.
Who follows a log on this server is told when it grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any
from uuid import UUID

import msgspec

from windlass.config import Settings
from windlass.config.redact import Redactor
from windlass.db import Database
from windlass.engine.batch import Batcher
from windlass.engine.fair import LoopTurns
from windlass.engine.weights import Weight
from windlass.errors import WindlassError
from windlass.queue import checkpoints, logs
from windlass.queue.checkpoints import Note
from windlass.queue.logs import Chunk

TURN_BYTES = 16 << 10
"""Of text in which secrets are looked for in one go on the event loop: some 10 ms at worst."""
NOTES_AT_ONCE = 500
"""Of one request that are kept at a time: a heartbeat may bring ten thousand."""
_BYTES_OF_A_LINE = 40


class Words(msgspec.Struct, frozen=True):
    """What one request tells."""

    chunks: Sequence[Chunk]
    notes: Sequence[Note]


class Trail:
    """Keeps what attempts tell, and tells those who follow."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        *,
        line: Callable[..., Batcher[Words, None]],
        turns: LoopTurns,
        **bounds: Any,
    ) -> None:
        self._db = db
        self._redactor = Redactor(settings.security.redact)
        self._turns = turns
        self.line = line("trail", self._flush, _weight, **bounds)
        self._followers: dict[UUID, set[asyncio.Event]] = {}

    async def keep(self, chunks: Iterable[Chunk], notes: Iterable[Note]) -> None:
        """Keep what the holders of leases tell, and of others nothing."""
        told = list(chunks)
        if sum(map(_size, told)) > TURN_BYTES:
            told = await logs.held(self._db, told)
        shown, rest = await self._shown(told), list(notes)
        while shown or rest:
            await self.line.ask(Words(shown, rest[:NOTES_AT_ONCE]))
            shown, rest = [], rest[NOTES_AT_ONCE:]

    @contextmanager
    def following(self, job_id: UUID) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever this server has kept lines of the job."""
        event = asyncio.Event()
        followers = self._followers.setdefault(job_id, set())
        followers.add(event)
        try:
            yield event
        finally:
            followers.discard(event)
            if not followers and self._followers.get(job_id) is followers:
                del self._followers[job_id]

    async def _flush(self, requests: Sequence[Words]) -> list[WindlassError | None]:
        grown = await logs.keep(self._db, list(chain.from_iterable(words.chunks for words in requests)))
        await checkpoints.keep(self._db, list(chain.from_iterable(words.notes for words in requests)))
        for job_id in grown & self._followers.keys():
            for event in self._followers[job_id]:
                event.set()
        return [None for _ in requests]

    async def _shown(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        shown, size = [], 0
        for chunk in chunks:
            lines = []
            for line in chunk.lines:
                size += len(line.text) + _BYTES_OF_A_LINE
                if size > TURN_BYTES:
                    size = 0
                    await self._turns.wait(chunk.tenant)
                text = logs.clean(self._redactor.text(line.text))
                lines.append(msgspec.structs.replace(line, text=text, level=_clean(line.level)))
            shown.append(msgspec.structs.replace(chunk, lines=lines))
        return shown


def _size(chunk: Chunk) -> int:
    return sum(len(line.text) + _BYTES_OF_A_LINE for line in chunk.lines)


def _clean(level: str | None) -> str | None:
    return None if level is None else logs.clean(level)


def _weight(words: Words) -> Weight:
    size = sum(map(_size, words.chunks))
    size += sum(len(note.progress or "") + len(note.checkpoint or "") for note in words.notes)
    tenant = words.chunks[0].tenant if words.chunks else words.notes[0].tenant
    return Weight(len(words.chunks) + len(words.notes), size, tenant)
