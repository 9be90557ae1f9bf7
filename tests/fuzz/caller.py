"""A caller that sends bytes: connections that stay open, and as little work for each request as can be.

What is sent need not be a request of HTTP. What comes back is read as HTTP, and every answer is looked at: its status,
the time it took beyond the wait that was asked for, and whether a refusal is a problem.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

LATE_S = 1.0
"""By which an answer may be later than the wait that was asked for."""
GIVEN_UP_S = 30.0
SENT_PER_S = 8 << 20
"""Bytes that a caller may take a second to send: a body of 8 MiB is not answered before it has come."""
PART_S = 120.0
"""A part ends after so long, whatever is left of it: that is a fault then."""
HEAD_LIMIT = 1 << 20
PROBLEM = b"content-type: application/problem+json"
MOST_FAULTS = 200


class Request(msgspec.Struct, frozen=True):
    """Bytes to send, what they are, and how long they ask the server to wait."""

    data: bytes
    name: str
    wait_s: float = 0.0


class Answer(msgspec.Struct, frozen=True):
    """An answer: its status, its head in lower case, how many bytes followed, whether the connection goes on."""

    status: int
    head: bytes
    size: int
    goes_on: bool


class Tally(msgspec.Struct):
    """What a part of the run came to."""

    sent: int = 0
    statuses: Counter[int] = msgspec.field(default_factory=Counter)
    late_s: float = 0.0
    latest: str = ""
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    allowed: frozenset[int] = frozenset()
    """Statuses of 500 and above that this part provokes."""

    def keep(self, name: str, answer: Answer, late_s: float) -> None:
        """Count an answer; what is wrong with it is a fault."""
        self.statuses[answer.status] += 1
        if late_s > self.late_s:
            self.late_s, self.latest = late_s, name
        if answer.status >= 500 and answer.status not in self.allowed:
            self.fault(f"{answer.status} to {name}")
        if answer.status >= 400 and answer.size and PROBLEM not in answer.head:
            self.fault(f"{answer.status} without a problem to {name}")
        if answer.status in self.allowed and b"retry-after:" not in answer.head:
            self.fault(f"{answer.status} without Retry-After to {name}")
        if late_s > LATE_S:
            self.fault(f"an answer beyond its wait by more than {LATE_S:g} s: {name}")

    def fault(self, text: str) -> None:
        """Remember a fault, and how often there was one like it; of very many kinds, the first ones."""
        if text[:300] in self.faults or len(self.faults) < MOST_FAULTS:
            self.faults[text[:300]] += 1


class Caller:
    """One connection, opened again where the server has closed it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, request: Request, tally: Tally) -> Answer | None:
        """Send a request and count its answer; None if there was none, which is a fault."""
        tally.sent += 1
        begun_s = time.monotonic()
        try:
            async with asyncio.timeout(GIVEN_UP_S + request.wait_s):
                answer = await self._answer(request.data)
        except TimeoutError:
            await self.close()
            tally.fault(f"no answer within {GIVEN_UP_S:g} s: {request.name}")
            return None
        except (OSError, EOFError, ValueError) as error:
            await self.close()
            tally.fault(f"{type(error).__name__} in place of an answer: {request.name}")
            return None
        sending_s = len(request.data) / SENT_PER_S
        tally.keep(request.name, answer, time.monotonic() - begun_s - request.wait_s - sending_s)
        if not answer.goes_on:
            await self.close()
        return answer

    async def _answer(self, data: bytes) -> Answer:
        opened_now = self._streams is None
        for first in (True, False):
            if self._streams is None:
                self._streams = await asyncio.open_connection(*self._address, limit=HEAD_LIMIT)
            reader, writer = self._streams
            try:
                writer.write(data)
                # The server may answer, and close, before it has taken all.
                with suppress(OSError):
                    await writer.drain()
                return await read_answer(reader, bodiless=data.startswith(b"HEAD "))
            except (OSError, EOFError):
                await self.close()
                # An idle connection may be closed at the moment that it is used; a new one may not.
                if opened_now or not first:
                    raise
        raise EOFError

    async def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def read_answer(reader: asyncio.StreamReader, *, bodiless: bool = False) -> Answer:
    """Read one answer, and what is told before it.

    EOFError if the connection ends before the answer does, ValueError if it is none.
    """
    head = b"http/1.1 100 "
    while head.startswith(b"http/1.1 1"):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 ") or not head[9:12].isdigit():
        raise ValueError(head[:100])
    status = int(head[9:12])
    goes_on = b"\r\nconnection: close\r\n" not in head
    if b"\r\ntransfer-encoding: chunked\r\n" in head:
        return Answer(status, head, await _read_chunks(reader), goes_on)
    _, length, after = head.partition(b"\r\ncontent-length: ")
    size = int(after[: after.index(b"\r\n")]) if length and not bodiless else 0
    left = size
    while left:
        piece = await reader.read(min(left, 1 << 20))
        if not piece:
            raise EOFError
        left -= len(piece)
    return Answer(status, head, size, goes_on)


async def _read_chunks(reader: asyncio.StreamReader) -> int:
    size = 0
    while length := int((await reader.readuntil(b"\r\n"))[:-2], 16):
        await reader.readexactly(length + 2)
        size += length
    await reader.readexactly(2)
    return size


async def call_all(
    requests: Iterable[Request], address: tuple[str, int], tally: Tally, *, callers: int, limit_s: float = PART_S
) -> None:
    """Send all requests over so many connections, each as soon as the one before it is answered; stop after so long."""
    waiting: Iterator[Request] = iter(requests)
    end_s = time.monotonic() + limit_s

    async def take() -> None:
        caller = Caller(*address)
        for request in waiting:
            await caller.call(request, tally)
            if time.monotonic() > end_s:
                break
        await caller.close()

    await asyncio.gather(*(take() for _ in range(callers)))
    if unsent := sum(1 for _ in waiting):
        tally.fault(f"{unsent} requests were not sent within {limit_s:g} s")
