"""Logs: the lines that an attempt wrote, kept in compressed chunks, a day's together.

Only the holder of a lease adds to its attempt's log; late lines of a lease that is gone are dropped without a word.
The same chunk said twice is kept once: writers of a job's log are let in one by one, by a lock of their own, and look
in the next statement. A log has a bound for each attempt; what is beyond is counted and not kept.
Days are dropped by retention.py. What is secret is hidden before it comes here (engine/trail.py).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import InvalidInput
from windlass.queue.newjob import check_instant

SQL = load(__file__)

MAX_LINE = 16_384
MAX_BYTES = 16 << 20
"""Of one attempt, before they are compressed."""
MAX_PAGE = 1000
PAGE_BYTES = 1 << 20
"""Of lines in one page; a page has one chunk at least."""
CHUNKS = 20
"""Read at a time."""
LARGE = 65_536
"""Bytes that are compressed, or unpacked, on a thread, so that nobody waits for them."""
_LEVEL = 3


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One line, as it is stored: a JSON array of these fields."""

    at: datetime
    text: str
    stream: str = "log"
    level: str | None = None


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one attempt, in order, told by the holder of its lease."""

    job_id: UUID
    fence: int
    worker: str
    session: UUID | None = None
    tenant: str = "default"
    seq: int
    lines: Sequence[Line]
    dropped: int = 0
    """Lines left out after these, because there were too many."""


class Written(msgspec.Struct, frozen=True):
    """A line of a job's log with its place in it."""

    attempt: int
    fence: int
    seq: int
    index: int
    """In its chunk, from 0."""
    line: Line


class Page(msgspec.Struct, frozen=True):
    """Some lines of a job's log, and where the next page begins; None: there are no more yet."""

    lines: list[Written]
    dropped: int
    """Lines that were left out of what the page covers."""
    following: tuple[int, int, int] | None
    """Fence, seq and index."""
    last: tuple[int, int, int]
    """Where the next line will stand."""


async def keep(db: Statements, chunks: Sequence[Chunk]) -> set[UUID]:
    """Keep lines of those who hold their leases; return the jobs whose log has grown."""
    for chunk in chunks:
        for line in chunk.lines:
            check_instant("logs", line.at)
    if not chunks:
        return set()
    packed = [await _packed(chunk) for chunk in chunks]
    async with db.transaction() as transaction:
        held = {row["number"]: row for row in await transaction.fetch(SQL.lock_writers, leases=_leases(chunks))}
        rows = _rows(chunks, packed, held)
        grown = await transaction.fetch(SQL.keep, chunks=rows, most=MAX_BYTES) if rows else []
    return {row["job_id"] for row in grown}


async def held(db: Statements, chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks whose leases are held now as they name them: those of others are not worth a look."""
    numbers = {row["number"] for row in await db.fetch(SQL.held, leases=_leases(chunks))} if chunks else set()
    return [chunk for number, chunk in enumerate(chunks) if number in numbers]


async def read(
    db: Statements,
    job_id: UUID,
    *,
    attempt: int | None = None,
    after: tuple[int, int, int] = (0, 0, 0),
    limit: int = MAX_PAGE,
) -> Page:
    """Return up to `limit` lines of a job from a place on, in order; of one attempt if it is named."""
    lines: list[Written] = []
    fence, seq, index = after
    dropped, size = 0, 0
    while True:
        rows = await db.fetch(
            SQL.read, id=job_id, fence=fence, seq=seq, attempt=attempt, limit=CHUNKS, most=max(0, PAGE_BYTES - size)
        )
        for row in rows:
            first = index if (row["fence"], row["seq"]) == (fence, seq) else 0
            chunk = await _unpacked(bytes(row["lines"]), row["bytes"])
            for place, line in enumerate(chunk[first:], first):
                if len(lines) >= limit or size > PAGE_BYTES:
                    following = (row["fence"], row["seq"], place)
                    return Page(lines, dropped, following, following)
                lines.append(Written(row["attempt"], row["fence"], row["seq"], place, line))
                size += len(line.text)
            dropped += row["dropped"]
            fence, seq, index = row["fence"], row["seq"] + 1, 0
        if not rows or (rows[0]["found"] < CHUNKS and len(rows) == rows[0]["found"]):
            return Page(lines, dropped, None, (fence, seq, index))


def clean(text: str) -> str:
    """Return a line that every database and terminal takes: controls become pictures of themselves."""
    return text[:MAX_LINE].translate(_PICTURES).encode("utf-8", "replace").decode()


def parse_place(text: str) -> tuple[int, int, int]:
    """Return the place after which a page begins: `fence.seq` of a whole chunk, or `fence.seq.index`."""
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) < 11 for part in parts):
        raise InvalidInput("after", "it is no place in a log. Send next_cursor of the page before.")
    fence, seq, *index = (min(int(part), 2**31 - 2) for part in parts)
    return (fence, seq, index[0]) if index else (fence, seq + 1, 0)


async def _packed(chunk: Chunk) -> tuple[bytes, int]:
    """Return the lines compressed, and how long they were."""
    text = msgspec.json.encode(chunk.lines)
    if len(text) < LARGE:
        return zlib.compress(text, _LEVEL), len(text)
    return await asyncio.to_thread(zlib.compress, text, _LEVEL), len(text)


def _leases(chunks: Sequence[Chunk]) -> list[tuple[object, ...]]:
    rows = ((n, c.job_id, c.fence, c.session, c.worker, c.tenant) for n, c in enumerate(chunks))
    return sorted(rows, key=lambda row: row[1:3])


async def _unpacked(packed: bytes, size: int) -> list[Line]:
    if not packed:
        return []
    return _lines(packed) if size < LARGE else await asyncio.to_thread(_lines, packed)


def _lines(packed: bytes) -> list[Line]:
    return msgspec.json.decode(zlib.decompress(packed), type=list[Line])


def _rows(
    chunks: Sequence[Chunk], packed: Sequence[tuple[bytes, int]], held: dict[int, Row]
) -> list[tuple[object, ...]]:
    """Return what is to be stored, each chunk of an attempt once and in order."""
    rows: list[tuple[object, ...]] = []
    seen: set[tuple[UUID, int, int]] = set()
    before: dict[tuple[UUID, int], int] = {}
    for number in sorted(held, key=lambda n: (chunks[n].job_id, chunks[n].seq, n)):
        chunk, (lines, size) = chunks[number], packed[number]
        attempt = (chunk.job_id, chunk.fence)
        if (*attempt, chunk.seq) in seen:
            continue
        seen.add((*attempt, chunk.seq))
        found = held[number]
        told = before.get(attempt, 0)
        rows.append(
            (
                *attempt,
                chunk.seq,
                found["attempt"],
                found["claimed_at"],
                lines,
                size,
                told,
                chunk.dropped,
                len(chunk.lines),
            )
        )
        before[attempt] = told + size
    return rows


_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
