"""Loops: which duties this server does, and their doing.

Every heartbeat a server says that it lives, renews all its duties in one statement and takes free ones in another.
It trusts a lease from the moment the request was sent, less a margin, never from the answer: past that, or when a
renewal finds no row, the duty's task is cancelled, and whatever it still sends is refused by its view of the database
(trusted.py). A server that ends hands its duties over in the same way.
With several servers alive none keeps more than its share: what is beyond it is handed to the servers that hold the
fewest, by name, so that no duty lacks a holder meanwhile. One that lost a duty leaves it to the others for a while.
What the duties are stands in duty.py, their leases in queue/duties.py.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from windlass import log
from windlass.db import Database
from windlass.engine.duty import Duty, Waking
from windlass.engine.holding import Holding, Time
from windlass.errors import Unavailable, WindlassError
from windlass.queue import duties as leases
from windlass.queue.report import Chance
from windlass.shards import grouped

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

MARGIN = 1 / 6
"""What part of a lease is not trusted: for the time between looking at the clock and writing."""
SHARED_BATCH = 100
"""How much a server takes at once where all of them run every duty."""
KEEP_S = 600.0
"""How long a server keeps more than its share after nobody else wanted it."""
END_S = 0.5
"""How long a duty's task may take to end before its lease is given up all the same: it can write nothing any more."""
LEAST_REST_S = 0.01
GIVEN_UP = "given up"


class LoopSettings(Protocol):
    """How duties are led: the settings of section `duties`."""

    @property
    def mode(self) -> str:
        """`lease`: one server for each duty; `all` or `steal`: every server does every duty."""

    @property
    def heartbeat_seconds(self) -> float:
        """How often leases are renewed."""

    @property
    def lease_seconds(self) -> float:
        """How long a duty is held without being renewed."""

    @property
    def standby_seconds(self) -> float:
        """How long after an expiry, at most, another takes the duty; and the wait after an error."""

    @property
    def rotate_seconds(self) -> float:
        """After so long a duty is passed on; 0: never."""


class Loops:
    """The duties of one server."""

    def __init__(
        self,
        db: Database,
        wake: Waking,
        duties: Iterable[Duty],
        *,
        holder: UUID,
        server: str,
        settings: LoopSettings,
        version: str = "",
        address: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Chance = random.random,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._db = db
        self._wake = wake
        self._duties = {duty.name: duty for duty in duties}
        self._holder = holder
        self._server = server
        self._settings = settings
        self._version = version
        self._address = address
        self._time = Time(monotonic, sleep)
        self._chance = chance
        self._held: dict[str, Holding] = {}
        self._left: dict[str, float] = {}
        """Duties left to others, each until this instant of the monotonic clock."""
        self._dropped: dict[str, int] = {}
        """The terms in which duties were lost, without being given up."""
        self._free_since_s: dict[str, float] = {}
        self._others: list[UUID] = []
        """The other servers that lived at the last heartbeat."""
        self._found: Mapping[str, leases.Duty] = {}
        """The duties as they stood at the last heartbeat."""
        self._gives_at_s = self._keeps_until_s = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()
        self._noticed = asyncio.Event()
        self._stopping = self._running = False
        self._ended = asyncio.Event()

    @property
    def held(self) -> dict[str, int]:
        """The terms of the duties this server does now, by name."""
        return {name: held.term for name, held in self._held.items()}

    @property
    def live_count(self) -> int:
        """How many servers lived at the last heartbeat, this one included."""
        return len(self._others) + 1

    def notice(self) -> None:
        """Look at once whether there is a duty to take: another server has given one up."""
        self._noticed.set()

    async def run(self) -> None:
        """Do duties until stopped; a second call, or one after the stop, returns at once."""
        if self._running or self._stopping:
            return
        self._running = True
        leased = self._settings.mode == "lease"
        try:
            if not leased:
                for duty in self._duties.values():
                    self._start(Holding(duty, self._time, until_s=math.inf), most=min(duty.most, SHARED_BATCH))
            while not self._stopping:
                rest_s = await self._guarded(self._round if leased else self._live)
                await self._rest(self._settings.standby_seconds if rest_s is None else rest_s)
        finally:
            try:
                await self._guarded(self._leave)
            finally:
                self._ended.set()

    async def stop(self) -> None:
        """End all duties and give them up; return when that is done."""
        self._stopping = True
        self._noticed.set()
        if self._running:
            await self._ended.wait()

    async def _guarded(self, step: Callable[[], Coroutine[Any, Any, float]]) -> float | None:
        """Make one step and return how long to rest; None after an error, which ends the step and never the loop."""
        try:
            return await self._within(step(), self._settings.lease_seconds)
        except WindlassError as error:
            log.event("duties.failed", message=str(error))
        except Exception as error:
            log.event("duties.failed", error=error)
        return None

    async def _round(self) -> float:
        # The server before its duties: when their leases are over it must not be counted among the living any more.
        await self._live()
        await self._renew()
        # Ours by the table, and dropped here because we could not trust its lease any more.
        await self._resign(
            [leases.Held(name, term) for name, term in self._dropped.items() if self._is_mine(name, term)]
        )
        if given := self._surplus():
            self._gives_at_s = self._time.monotonic() + self._settings.heartbeat_seconds
            await self._retire(given, given)
        await self._take()
        return self._until_next_s()

    async def _live(self) -> float:
        alive = await leases.beat_server(
            self._db,
            self._holder,
            name=self._server,
            version=self._version,
            address=self._address,
            lease_ms=self._lease_ms,
        )
        self._others, self._found = alive.others, alive.duties
        return self._settings.heartbeat_seconds

    async def _renew(self) -> None:
        held = dict(self._held)
        if not held:
            return
        # Trust counts from here: the answer may take as long as it likes.
        until_s = self._time.monotonic() + self._trust_s
        named = [holding.named for holding in held.values()]
        renewed = await leases.renew(self._db, named, holder=self._holder, lease_ms=self._lease_ms)
        for name, at in renewed.items():
            held.pop(name).renewed(at, until_s=until_s)
        self._drop(held.values(), "another server has it, or it was released")

    async def _take(self) -> None:
        names = self._wanted()
        if not names:
            return
        until_s = self._time.monotonic() + self._trust_s
        taken = await leases.take(self._db, names, holder=self._holder, server=self._server, lease_ms=self._lease_ms)
        for duties, names in grouped(taken, among=self._duties).items():
            log.event("duty.acquired", duty=duties, term=max(taken[name].term for name in names))
        for name, won in taken.items():
            duty = self._duties[name]
            self._start(Holding(duty, self._time, until_s=until_s, taken=won), most=duty.most)

    def _wanted(self) -> list[str]:
        """Return the duties to ask for: those handed to us, free ones up to our share, those that nobody else wants."""
        now_s = self._time.monotonic()
        # There is nobody to leave them to when no other server lives.
        self._left = {name: until_s for name, until_s in self._left.items() if until_s > now_s and self._others}
        # Handed to us, or the answer to its taking was lost.
        mine = [name for name in self._duties if name not in self._held and self._is_mine(name)]
        free = [name for name in self._duties if name not in self._held and name not in mine and self._is_free(name)]
        self._free_since_s = {name: self._free_since_s.get(name, now_s) for name in free}
        free = [name for name in free if name not in self._left]
        # Servers that begin together do not all ask for the same ones.
        free.sort(key=lambda _: self._chance())
        room = max(self._share - len(self._held) - len(mine), 0)
        unwanted = [name for name in free[room:] if now_s - self._free_since_s[name] >= self._leave_s]
        if unwanted:
            self._keeps_until_s = now_s + KEEP_S
        return mine + free[:room] + unwanted

    def _is_mine(self, name: str, dropped: int | None = None) -> bool:
        duty = self._found.get(name)
        if duty is None or duty.holder != self._holder:
            return False
        return duty.term == dropped if dropped else duty.term != self._dropped.get(name)

    def _is_free(self, name: str) -> bool:
        duty = self._found.get(name)
        if duty is None or duty.expires_in_s <= 0:
            return True
        return duty.heartbeat_age_s < -self._settings.lease_seconds  # the database's clock went back

    def _surplus(self) -> dict[Holding, UUID]:
        """Return duties to hand over, each with its successor: those beyond our share, or one whose turn is over."""
        now_s = self._time.monotonic()
        if not self._others or now_s < self._gives_at_s:
            return {}
        # The one held longest first; and none that has just come goes back to where it came from.
        held = sorted(self._held.values(), key=lambda holding: holding.since_s)
        beyond = len(held) - self._share if now_s >= self._keeps_until_s else 0
        given = self._successors(held, beyond, most=self._share)
        rotate_s = self._settings.rotate_seconds
        if given or not held or not 0 < rotate_s <= now_s - held[0].since_s:
            return given
        return self._successors(held[:1], 1)

    def _successors(self, held: Sequence[Holding], count: int, *, most: float = math.inf) -> dict[Holding, UUID]:
        """Return for the first `count` duties that can go the server that holds the fewest, and less than `most`."""
        counts = dict.fromkeys(self._others, 0)
        for duty in self._found.values():
            if duty.holder in counts and duty.expires_in_s > 0:
                counts[duty.holder] += 1
        named: dict[Holding, UUID] = {}
        for holding in held:
            able = [other for other in counts if counts[other] < most and not self._came_from(holding, other)]
            if able and len(named) < count:
                named[holding] = successor = min(able, key=lambda other: (counts[other], self._chance()))
                counts[successor] += 1
        return named

    def _came_from(self, holding: Holding, other: UUID) -> bool:
        """Say whether the other server has just handed us the duty; a server that ends hands it back all the same."""
        lately = self._time.monotonic() - holding.since_s < self._leave_s
        return lately and other == holding.handed_by and not self._stopping

    async def _retire(self, retired: Iterable[Holding], successors: Mapping[Holding, UUID]) -> None:
        """Stop these duties, then hand them over."""
        named = list(retired)
        self._drop(named, GIVEN_UP)
        tasks = [holding.task for holding in named if holding.task]
        if tasks:
            await self._until(asyncio.wait(tasks), END_S)
        to = {holding.duty.name: successor for holding, successor in successors.items()}
        await self._resign([holding.handed_over(self._holder) for holding in named if holding.term], to)

    async def _resign(self, held: Sequence[leases.Held], successors: Mapping[str, UUID] | None = None) -> None:
        if held:
            await leases.resign(self._db, held, holder=self._holder, successors=successors)
            self._wake.duties()

    async def _leave(self) -> float:
        # The server before its duties: whoever hears that they are free must find room for them in its share.
        try:
            await leases.close_server(self._db, self._holder)
        finally:
            held = list(self._held.values())
            await self._retire(held, self._successors(held, len(held)))
            if self._tasks:
                await self._until(asyncio.wait(self._tasks), END_S)
        return 0.0

    def _start(self, holding: Holding, *, most: int) -> None:
        self._held[holding.duty.name] = holding
        holding.task = asyncio.create_task(self._hold(holding, most))
        self._tasks.add(holding.task)
        holding.task.add_done_callback(self._tasks.discard)

    async def _hold(self, holding: Holding, most: int) -> None:
        await holding.do(self._db, most=most)
        # All that end now are told together; those that were renewed together do.
        now_s = self._time.monotonic()
        over = [held for held in self._held.values() if held is holding or held.until_s <= now_s]
        self._drop(over, "its lease could not be renewed in time")

    def _drop(self, lost: Iterable[Holding], why: str) -> None:
        """Stop duties at once, and leave them to others for a while."""
        terms: dict[str, int] = {}
        for holding in lost:
            name = holding.duty.name
            if self._held.get(name) is not holding:
                continue
            del self._held[name]
            holding.over = True
            if holding.task and holding.task is not asyncio.current_task():
                holding.task.cancel()
            self._left[name] = self._time.monotonic() + self._leave_s
            if holding.term:
                terms[name] = holding.term
        if why != GIVEN_UP:
            self._dropped |= terms
        for duties, names in grouped(terms, among=self._duties).items():
            level = log.INFO if why == GIVEN_UP else None
            log.event("duty.lost", level=level, duty=duties, term=max(terms[name] for name in names), why=why)

    def _until_next_s(self) -> float:
        """Return how long to rest: until the next renewal, or before it the end of a lease that might be taken."""
        now_s = self._time.monotonic()
        ends_s = [until_s - now_s for until_s in self._left.values()]
        for name, duty in self._found.items():
            if name in self._duties and name not in self._held and duty.expires_in_s > 0:
                ends_s.append(duty.expires_in_s + self._chance() * self._settings.standby_seconds)
        return max(min([self._settings.heartbeat_seconds, *ends_s]), LEAST_REST_S)

    @property
    def _lease_ms(self) -> int:
        return round(self._settings.lease_seconds * 1000)

    @property
    def _trust_s(self) -> float:
        return self._settings.lease_seconds * (1 - MARGIN)

    @property
    def _leave_s(self) -> float:
        return 2 * self._settings.standby_seconds + self._settings.heartbeat_seconds

    @property
    def _share(self) -> int:
        return math.ceil(len(self._duties) / self.live_count)

    async def _rest(self, seconds: float) -> None:
        await self._until(self._noticed.wait(), seconds)
        self._noticed.clear()

    async def _within(self, step: Coroutine[Any, Any, T], seconds: float) -> T:
        """Return what the step does; Unavailable if it takes longer than so many seconds."""
        task = asyncio.create_task(step)
        # One that is cut off may still fail, when nobody waits for it any more.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            await self._until(asyncio.wait([task]), seconds)
            if not task.done():
                raise Unavailable(f"The database has not answered for {seconds:g} s; it is asked again.")
            return task.result()
        finally:
            task.cancel()

    async def _until(self, event: Coroutine[Any, Any, object], seconds: float) -> None:
        """Return when `event` has come or so many seconds have passed."""
        waits = [asyncio.ensure_future(event), asyncio.ensure_future(self._time.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
