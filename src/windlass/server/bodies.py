"""The body of a request, read within bounds. How it becomes a struct is in decoding.py.

All bodies of a server that are received, decoded or acted on share a budget of bytes. A tenant has half of what other
tenants leave of it, and a key half of what other keys leave of its tenant's half: nobody can have all of it, and there
is some left for whoever comes next. A small body needs none. Answers have a budget like it (app.py).

A body that is still being received holds a connection, however small it is. A key has at most a fifth of the server's
connections for such bodies, a tenant a quarter, all tenants half. Beyond that the body that began first is given up:
a heartbeat always gets in, and a caller that sends slowly loses its place to one that sends at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from windlass.errors import BodyTooLarge, SlowBody, TooMany, Unavailable, WindlassError, WrongMedia
from windlass.server.call import ClientGone, Message, Receive

LONGEST_LENGTH = 18
"""Digits of a length that can be meant: Python refuses to read some thousand."""
BODY_SECONDS = 10.0
"""In which the whole body must have come."""
SMALL_BYTES = 64 << 10
"""Bodies up to this are not counted: a connection buffers as much by itself, and heartbeats must always get in."""
SHARES = (2, 4, 5)
"""The part of the connections that may receive bodies at a time: in all, of a tenant, of a key."""


class BodyBudget:
    """How many bytes of bodies a server has at a time, and whose; and which bodies are still being received."""

    def __init__(self, total: int, connections: int) -> None:
        self.total = total
        self._most = [max(1, connections // share) for share in SHARES]
        self._receiving: dict[tuple[str, ...], dict[BodyShare, None]] = {}
        """The oldest first; by nothing: all; by tenant; by tenant and key."""
        self._used: Counter[tuple[str, ...]] = Counter()
        """By nothing: of all; by tenant; by tenant and key."""

    @property
    def used(self) -> int:
        """How many bytes are under way."""
        return self._used[()]

    @contextmanager
    def share(self, *owner: str) -> Iterator[BodyShare]:
        """Give a request of a tenant and key its share for the block. Where no key is needed all callers are one."""
        share = BodyShare(self, owner)
        try:
            yield share
        finally:
            if share.size:
                self.add(share.owner, -share.size)

    def left(self, owner: tuple[str, ...]) -> int:
        """Return how many bytes more the owner may have: at each step half of what others leave."""
        left = self.total - self.used
        for step in range(1, len(owner) + 1):
            own = self._used[owner[:step]]
            left = (left + own) // 2 - own
        return left

    def add(self, owner: tuple[str, ...], size: int) -> None:
        """Count bytes of an owner, or give them back."""
        for step in range(len(owner) + 1):
            self._used[owner[:step]] += size
            if not self._used[owner[:step]]:
                del self._used[owner[:step]]

    def begin(self, share: BodyShare) -> None:
        """Count a body that is being received; the oldest body of its key, tenant or all is given up if need be."""
        # The key comes first: a body of the same key makes room before one of anybody else does.
        for step in reversed(range(len(share.owner) + 1)):
            receiving = self._receiving.get(share.owner[:step], {})
            if len(receiving) >= self._most[step]:
                oldest = next(iter(receiving))
                self.end(oldest)
                oldest.give_up()
        for step in range(len(share.owner) + 1):
            self._receiving.setdefault(share.owner[:step], {})[share] = None

    def end(self, share: BodyShare) -> None:
        """Count a body no more."""
        for step in range(len(share.owner) + 1):
            receiving = self._receiving.get(share.owner[:step], {})
            receiving.pop(share, None)
            if not receiving:
                self._receiving.pop(share.owner[:step], None)


class BodyShare:
    """What one request has of the budget."""

    def __init__(self, budget: BodyBudget, owner: tuple[str, ...]) -> None:
        self.budget = budget
        self.owner = owner
        self.size = 0
        self.deadline: asyncio.Timeout | None = None
        """When the whole body must have come, while it is being received."""
        self._is_given_up = False

    def give_up(self) -> None:
        """Receive the body no longer."""
        if self.deadline is not None and not self.deadline.expired():
            self._is_given_up = True
            self.deadline.reschedule(0.0)

    def lateness(self, timeout_s: float) -> WindlassError:
        """Return why the body was received no longer: it made room for others, or did not come in time."""
        if self._is_given_up:
            return TooMany("Other bodies of this key or tenant are under way, and this one came slowly. Try again.")
        return SlowBody(f"The body did not come within {timeout_s:g} seconds. Send it at once.")

    @property
    def left(self) -> int:
        """How many bytes it may have."""
        return max(self.size + self.budget.left(self.owner), SMALL_BYTES)

    def hold(self, size: int) -> None:
        """Have room for an answer of this size; Unavailable if there is none.

        It counts for an eighth of the budget at most, half of what a key has: however large it is, it finds room where
        nobody else needs any.
        """
        self.grow_to(min(size, self.budget.total // 8))

    def grow_to(self, size: int) -> None:
        """Have room for a body of this size; Unavailable if there is none."""
        if size <= max(self.size, SMALL_BYTES):
            return
        if size - self.size > self.budget.left(self.owner):
            raise Unavailable(
                f"The bodies and answers under way leave no room for {size} bytes more of this key or tenant. "
                "Try again, send or ask for less at once, or ask another server."
            )
        self.budget.add(self.owner, size - self.size)
        self.size = size


async def read_body(
    receive: Receive, headers: Mapping[str, str], *, limit: int, timeout_s: float, share: BodyShare
) -> bytes:
    """Return the whole body.

    Raises BodyTooLarge as soon as that is known, SlowBody if the body does not come in time, TooMany if it makes room.
    """
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit():
        length = length.lstrip("0") or "0"
        if len(length) > LONGEST_LENGTH or int(length) > limit:
            raise _too_large(limit)
        share.grow_to(int(length))
    try:
        async with asyncio.timeout(timeout_s) as share.deadline:
            share.budget.begin(share)
            message = await receive()
            body = _part(message)
            if message.get("more_body"):
                body = await _read_rest(receive, body, limit, share)
    except TimeoutError:
        raise share.lateness(timeout_s) from None
    finally:
        share.budget.end(share)
    if len(body) > limit:
        raise _too_large(limit)
    return body


async def _read_rest(receive: Receive, first: bytes, limit: int, share: BodyShare) -> bytes:
    parts, size, more = [first], len(first), True
    share.grow_to(size)
    while more:
        message = await receive()
        parts.append(_part(message))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        share.grow_to(size)
        more = message.get("more_body", False)
    return b"".join(parts)


def _part(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGone
    return bytes(message.get("body", b""))


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body has more than {limit} bytes. Send less at once.")


def check_media(headers: Mapping[str, str]) -> None:
    """Return if the body is declared as plain JSON; WrongMedia otherwise."""
    media_type = headers.get("content-type", "")
    kind, _, parameters = media_type.partition(";")
    if kind.strip().lower() != "application/json":
        raise WrongMedia(f"The body is declared as {media_type[:100]!r}. Send application/json.")
    if parameters and parameters.strip().lower().replace('"', "") not in ("charset=utf-8", "charset=utf8"):
        raise WrongMedia(f"The body is declared as {media_type[:100]!r}. JSON is UTF-8; leave the parameter out.")
    if headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        raise WrongMedia("The body is declared as encoded. Send it uncompressed.")
