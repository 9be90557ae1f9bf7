"""Fairness by tenant: a queue in which tenants take turns, a turnstile that admits callers in that order, and caps.

Each tenant has a line of its own. The next item comes from the tenant that has been served least, measured by the cost
of its items (start-time fair queueing). A tenant with a thousand large requests therefore delays a tenant with one
small request by one item at most. A tenant that was away gains nothing by it: its line begins at the present.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Container, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from heapq import heappop, heappush
from typing import Generic, TypeVar

from windlass.engine.outside import Outside
from windlass.errors import TooMany, Unavailable

Item = TypeVar("Item")

PATIENCE_S = 5.0
"""How long a caller waits to be admitted before it is told to come back."""
TURN_S = 0.002
"""How long a request is computed before others get their turn on the event loop: an answer takes some twenty rounds."""
RECENT_S = 10.0
"""A tenant that has called within this time may call again in a moment."""
WRITER_REST = 2
"""How many times as long as a large write took the writer is left to others after it."""
MOST_REST_S = 0.5
"""But no longer than this: its tenant's next large write waits, and may be a heartbeat."""
MOST_REST_OF_ALL_S = 0.125
"""Of that so long the large writes of other tenants wait, too; else several of them would take the writer for good."""
MOST_LARGE_WRITES = 10_000
MOST_REMEMBERED = 1000
"""Tenants without a line whose past use is remembered."""


class FairQueue(Generic[Item]):
    """Items in the order in which they are served."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[tuple[Item, float]]] = {}
        self._heads: list[tuple[float, int, str]] = []
        """A heap with one entry for each tenant that has a line: the use at which it is next, and a tie-breaker."""
        self._used: dict[str, float] = {}
        self._now = 0.0
        """The use at which the latest item was served."""
        self._order = itertools.count()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waiting(self, tenant: str) -> int:
        """Return how many items of a tenant wait."""
        return len(self._lines.get(tenant, ()))

    def push(self, tenant: str, item: Item, cost: float = 1.0) -> None:
        """Add an item to the end of its tenant's line."""
        if tenant not in self._lines:
            self._lines[tenant] = deque()
            heappush(self._heads, (max(self._used.get(tenant, 0.0), self._now), next(self._order), tenant))
        self._lines[tenant].append((item, cost))
        self._count += 1

    def peek(self) -> Item | None:
        """Return the item that is next; None if nothing waits."""
        return self._lines[self._heads[0][2]][0][0] if self._heads else None

    def pop(self, without: Container[str] = ()) -> Item | None:
        """Take the next item of a tenant that is not in `without`; None if there is none."""
        passed: list[tuple[float, int, str]] = []
        try:
            while self._heads:
                head = heappop(self._heads)
                if head[2] not in without:
                    return self._take(head[2], head[0])
                passed.append(head)
            return None
        finally:
            for head in passed:
                heappush(self._heads, head)

    def _take(self, tenant: str, used: float) -> Item:
        line = self._lines[tenant]
        item, cost = line.popleft()
        self._count -= 1
        self._now = max(self._now, used)
        self._used.pop(tenant, None)  # so that the tenant served longest ago stands first
        self._used[tenant] = used + cost
        if line:
            heappush(self._heads, (used + cost, next(self._order), tenant))
        else:
            del self._lines[tenant]
            while len(self._used) > len(self._lines) + MOST_REMEMBERED:
                del self._used[next(iter(self._used))]
        return item


class Turnstile:
    """Admits a few callers at once; tenants that wait take turns."""

    def __init__(
        self, what: str, *, at_once: int, at_once_each: int, room_each: int, patience_s: float = PATIENCE_S
    ) -> None:
        """`at_once` callers are admitted, of one tenant `at_once_each`.

        Of one tenant `room_each` callers may be inside or wait, of one key half of these.
        """
        self._what = what
        self._at_once = at_once
        self._at_once_each = at_once_each
        self._room_each = room_each
        self._patience_s = patience_s
        self._waiting: FairQueue[tuple[str, asyncio.Future[None]]] = FairQueue()
        self._inside: Counter[str] = Counter()
        self._full: set[str] = set()
        """The tenants that have as many callers inside as they may."""
        self._inside_count = 0
        self._room: Counter[tuple[str, str | None]] = Counter()
        """Callers inside or waiting, by tenant and by key."""

    @asynccontextmanager
    async def turn(self, tenant: str, key: str | None = None) -> AsyncIterator[None]:
        """Run the block when it is this tenant's turn.

        Raises TooMany if the tenant or the key has too many callers here, Unavailable if the wait was too long.
        """
        with self.place(tenant, key):
            async with self.sure_turn(tenant, self._patience_s):
                yield

    @contextmanager
    def place(self, tenant: str, key: str | None = None) -> Iterator[None]:
        """Count a caller within the block. Raises TooMany if the tenant or the key has too many callers here."""
        self._check_room(tenant, key)
        parties = {(tenant, None), (tenant, key)}
        self._room.update(parties)
        try:
            yield
        finally:
            for party in parties:
                self._room[party] -= 1
                if not self._room[party]:
                    del self._room[party]

    @asynccontextmanager
    async def sure_turn(self, tenant: str, patience_s: float | None = None) -> AsyncIterator[None]:
        """Run the block when it is this tenant's turn, however many callers wait.

        Raises Unavailable if the wait was longer than `patience_s`, if given.
        """
        await self._enter(tenant, patience_s)
        try:
            yield
        finally:
            self._leave(tenant)

    def _check_room(self, tenant: str, key: str | None) -> None:
        if self._room[tenant, None] >= self._room_each:
            raise TooMany(f"{self._room_each} {self._what} of tenant {tenant} are under way here. Try again later.")
        if key is not None and self._room[tenant, key] >= self._room_each // 2:
            raise TooMany(f"{self._room_each // 2} {self._what} of this key are under way here. Try again later.")

    async def _enter(self, tenant: str, patience_s: float | None) -> None:
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push(tenant, (tenant, admitted))
        self._admit()
        if admitted.done():
            return
        try:
            async with asyncio.timeout(patience_s):
                await admitted
        except TimeoutError:
            self._give_up(tenant, admitted)
            raise Unavailable(f"Other {self._what} took all turns for {patience_s:g} s. Try again.") from None
        except BaseException:
            self._give_up(tenant, admitted)
            raise

    def _give_up(self, tenant: str, admitted: asyncio.Future[None]) -> None:
        if admitted.cancelled():
            return  # it stays in its line, and is passed over there
        # It was admitted at the very moment at which it gave up.
        self._leave(tenant)

    def _admit(self) -> None:
        while self._inside_count < self._at_once and (next_caller := self._waiting.pop(self._full)) is not None:
            tenant, admitted = next_caller
            if admitted.done():
                continue
            self._inside_count += 1
            self._inside[tenant] += 1
            if self._inside[tenant] >= self._at_once_each:
                self._full.add(tenant)
            admitted.set_result(None)

    def _leave(self, tenant: str) -> None:
        self._inside_count -= 1
        self._inside[tenant] -= 1
        self._full.discard(tenant)
        if not self._inside[tenant]:
            del self._inside[tenant]
        self._admit()


class LoopTurns:
    """Shares the event loop: in each of its rounds one request computes for a while, and tenants take turns.

    So whatever the number of requests that compute, a short one waits for one of them in each round.
    """

    def __init__(self) -> None:
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._is_scheduled = False

    async def wait(self, tenant: str) -> None:
        """Return when it is the tenant's turn: the caller computes for `TURN_S` at most, then waits again."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.push(tenant, turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._give, loop)
        await turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        while (turn := self._waiting.pop()) is not None:
            if not turn.done():  # else its caller has left
                turn.set_result(None)
                break
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            loop.call_soon(self._give, loop)


class Pace:
    """Cuts what one request computes on the event loop into turns."""

    def __init__(self, turns: LoopTurns, tenant: str, monotonic: Callable[[], float]) -> None:
        self._turns = turns
        self._tenant = tenant
        self._monotonic = monotonic
        self._since_s = monotonic()

    async def give_way(self) -> None:
        """Return at once, or at the tenant's next turn if this one has lasted long enough."""
        if self._monotonic() - self._since_s >= TURN_S:
            await self._turns.wait(self._tenant)
            self._since_s = self._monotonic()


class Recent:
    """The tenants that have called lately: those who may call again in a moment, and for whom others leave room."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._called_at: dict[str, float] = {}
        """The latest at the end."""

    def note(self, tenant: str) -> None:
        """Note a call of a tenant."""
        self._called_at.pop(tenant, None)
        self._called_at[tenant] = self._monotonic()

    def tenants(self) -> set[str]:
        """Return the tenants that have called lately."""
        since = self._monotonic() - RECENT_S
        while self._called_at and next(iter(self._called_at.values())) < since:
            del self._called_at[next(iter(self._called_at))]
        return set(self._called_at)


class LargeWrites:
    """The turns of large writes where there is one writer: a small write waits for one of them at most.

    While other tenants call, too, the writer is left to small writes after each large one for twice as long as that
    took: by all tenants up to `MOST_REST_OF_ALL_S`, by its own up to `MOST_REST_S`.
    A line (batch.py) works on one large write at a time: those behind one of a resting tenant wait for that rest, too.
    """

    def __init__(self, recent: Recent, outside: Outside, *, one_writer: bool) -> None:
        self._one_writer = one_writer
        self._recent = recent
        self._outside = outside
        room = MOST_LARGE_WRITES
        self._own = Turnstile("large writes of this tenant", at_once=room, at_once_each=1, room_each=room)
        """The turns of each tenant's writes among themselves, with the rests after them."""
        self._turns = Turnstile("large writes", at_once=1, at_once_each=1, room_each=room)
        self._resting: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Run a large write of a tenant in its turn. Raises Unavailable if the wait was too long."""
        if not self._one_writer:
            yield
            return
        async with AsyncExitStack() as own, AsyncExitStack() as turn:
            await own.enter_async_context(self._own.turn(tenant))
            await turn.enter_async_context(self._turns.turn(tenant))
            begun_s = self._outside.monotonic()
            yield
            if self._recent.tenants() - {tenant} and not self._is_stopped:
                # The turns end after the rest, and the caller is answered before it.
                rest_s = min(WRITER_REST * (self._outside.monotonic() - begun_s), MOST_REST_S)
                task = asyncio.create_task(self._rest(own.pop_all(), turn.pop_all(), rest_s), name="writer-rest")
                self._resting.add(task)
                task.add_done_callback(self._resting.discard)

    async def _rest(self, own: AsyncExitStack, turn: AsyncExitStack, seconds: float) -> None:
        of_all_s = min(seconds, MOST_REST_OF_ALL_S)
        async with own:
            async with turn:
                await self._outside.pause(of_all_s)
            await self._outside.pause(seconds - of_all_s)

    async def stop(self) -> None:
        """End all rests; from now on there are none."""
        self._is_stopped = True
        await asyncio.sleep(0)  # one that is cancelled before it begins would not end its turns
        for task in self._resting:
            task.cancel()
        await asyncio.gather(*self._resting, return_exceptions=True)


class Cap:
    """Counts callers that stay for a while: so many in all, of one tenant and of one key."""

    def __init__(self, what: str, *, most: int, each: int, each_key: int) -> None:
        self._what = what
        self.most = most
        self.each = each
        self.each_key = each_key
        self._counts: Counter[tuple[str | None, str | None]] = Counter()
        """All callers under (None, None), those of a tenant under (tenant, None), those of a key under both."""

    @classmethod
    def of_connections(cls, what: str, count: int) -> Cap:
        """Return a cap for a server that takes `count` connections: no caller, and not all together, can hold all.

        A tenth is left to other calls. A tenant has half, a key two fifths: of 10,000 connections 4,000, which is a
        fleet of two thousand workers whose claims and heartbeats wait.
        """
        shares = (count * 9 // 10, count // 2, count * 2 // 5)
        most, each, each_key = (max(1, share) for share in shares)
        return cls(what, most=most, each=each, each_key=each_key)

    def has_room(self, tenant: str, key: str | None) -> bool:
        """Say whether there is room for another caller."""
        return all(self._counts[party] < most for party, most in self._bounds(tenant, key).items())

    @contextmanager
    def place(self, tenant: str, key: str | None) -> Iterator[None]:
        """Count a caller within the block. Raises TooMany if there is no room for it."""
        parties = self._bounds(tenant, key)
        for party, most in parties.items():
            if self._counts[party] >= most:
                whose = "in all" if party[0] is None else f"of tenant {tenant}" if party[1] is None else "of this key"
                raise TooMany(f"{most} {self._what} {whose} are under way on this server. End some, or wait.")
        self._counts.update(parties.keys())
        try:
            yield
        finally:
            for party in parties:
                self._counts[party] -= 1
                if not self._counts[party]:
                    del self._counts[party]

    def _bounds(self, tenant: str, key: str | None) -> dict[tuple[str | None, str | None], int]:
        # A caller without a key counts for its tenant alone.
        return {(tenant, key): self.each_key, (tenant, None): self.each, (None, None): self.most}
