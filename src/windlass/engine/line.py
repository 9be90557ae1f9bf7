"""The line of waiting claims: who waits, for how much, and what each can run.

Claims of one capability (tenant, queues, tasks, labels) are a group; a group's slots go round its waiters one by one.
Pure bookkeeping: dispatch.py asks the database and hands out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping
from itertools import chain, zip_longest
from typing import TypeVar
from uuid import UUID

import msgspec

from windlass.engine.demand import Demands
from windlass.errors import WindlassError
from windlass.queue.claim import MAX_CLAIM, Claimed
from windlass.queue.lanes import Lane, LaneName

Item = TypeVar("Item")

LEAST_SLOTS = 16
"""A round asks for so many at first: most wake-ups are for one job. While all are filled it asks for twice as many."""

SHARED_SLOTS = 128
"""A round asks for so many in all where several tenants claim: nobody waits long for the jobs of others."""
MOST_GROUPS = 1000
"""Groups nobody waits in are kept, because they know how much to ask for; but no more than so many."""


class Capability(msgspec.Struct, frozen=True):
    """What a worker can run."""

    tenant: str
    queues: frozenset[str]
    tasks: frozenset[str] | None
    """None: every task."""
    labels: frozenset[str]

    @classmethod
    def of(cls, ask: Ask) -> Capability:
        """Return what the worker that asks can run."""
        return cls(ask.tenant, frozenset(ask.queues), ask.tasks, ask.labels)

    def serves(self, name: LaneName) -> bool:
        """Say whether a worker with this capability can run the jobs of a lane."""
        return (
            name.tenant == self.tenant
            and name.queue in self.queues
            and (self.tasks is None or name.task in self.tasks)
            and (not name.labels or self.labels.issuperset(filter(None, name.labels.split(","))))
        )


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for when it claims."""

    tenant: str
    worker: str
    session: UUID | None = None
    """None: a bare caller; each of its jobs gets a session of its own."""
    count: int = 10
    queues: tuple[str, ...] = ("default",)
    tasks: frozenset[str] | None = None
    labels: frozenset[str] = frozenset()
    wait_s: float = 0.0
    lease_ms: int = 30_000
    """Of a bare caller; a session has its own."""
    lease_asked: bool = True
    """False: a bare caller's jobs are leased for as long as it asked for when it registered, if it did."""


class Handed(msgspec.Struct, frozen=True):
    """A job handed to a worker: with the names of its lane, and the length of its lease."""

    job: Claimed
    lane: LaneName
    lease_ms: int


class Handout(msgspec.Struct, frozen=True):
    """The answer to a claim: jobs, and jobs of the worker's that it is to stop."""

    jobs: list[Handed]
    cancel: list[UUID] = []


class Waiter:
    """One claim that waits for its answer."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.capability = Capability.of(ask)
        self.jobs: list[Handed] = []
        self.stops: list[UUID] = []
        """Jobs its session is to stop."""
        self.reserved = 0
        """Slots that a statement under way may fill."""
        self.content = False
        """Whether a look at the lanes was made since it came, or lately enough."""
        self.last = False
        """It goes with what it has as soon as nothing is being claimed for it."""
        self.hasty = False
        """It does not wait: it is answered as soon as the lanes were looked at and both loops have served it."""
        self.free_done = False
        self.since = 0
        """How many visits to limited queues had begun when the lanes were looked at for it."""
        self.unvisited: list[str] | None = None
        """If it is hasty: limited queues to be visited before its answer. None: the free loop has not served it yet."""
        self.answer: asyncio.Future[Handout] = asyncio.get_running_loop().create_future()

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.answer.done()

    @property
    def room(self) -> int:
        """How many more jobs it can take."""
        return 0 if self.answer.done() or self.last else self.ask.count - len(self.jobs) - self.reserved

    def finish(self) -> None:
        """Answer with the jobs it has."""
        if not self.answer.done():
            self.answer.set_result(Handout(self.jobs, self.stops))

    def refuse(self, error: WindlassError) -> None:
        """Answer with an error; with its jobs, if it has some already."""
        if self.jobs:
            self.finish()
        elif not self.answer.done():
            self.answer.set_exception(error)


class Line:
    """Everybody who waits, by capability."""

    class Group:
        """The waiters of one capability, in the order they came."""

        def __init__(self, capability: Capability) -> None:
            self.capability = capability
            self.waiters: dict[Waiter, None] = {}
            self.has_free = False
            """Whether free lanes held work for it when it was looked at last."""
            self.limited: set[str] = set()
            """The limited queues that are believed to hold work for it."""
            self.seen = -1
            """How many lanes had come when it was looked at last."""
            self._appetite = LEAST_SLOTS

        @property
        def grown(self) -> bool:
            """Whether it asks for as many as one statement may take."""
            return self._appetite >= MAX_CLAIM

        @property
        def tenant(self) -> str:
            """The tenant of its workers."""
            return self.capability.tenant

        def serves(self, lane: Lane) -> bool:
            """Say whether its workers can run the jobs of a lane."""
            return self.capability.serves(lane.name)

        def slots(
            self, new_id: Callable[[], UUID], *, share: float, empty_handed: bool = False, most: int = MAX_CLAIM
        ) -> list[tuple[UUID, Waiter]]:
            """Return up to `most` slots to fill, one for each waiter in turn; a `share` of what each can take.

            `empty_handed`: only for those who have no job yet, so that nobody who has one waits for more.
            """
            waiters = [waiter for waiter in self.waiters if not (empty_handed and waiter.jobs)]
            rooms = [(waiter, room) for waiter in waiters if (room := _part(waiter.room, share)) > 0]
            slots: list[tuple[UUID, Waiter]] = []
            turn = 0
            most = min(most, self._appetite)
            while rooms and len(slots) < most:
                for waiter, _ in rooms[: most - len(slots)]:
                    slots.append((waiter.ask.session or new_id(), waiter))
                turn += 1
                rooms = [(waiter, room) for waiter, room in rooms if room > turn]
            return slots

        def grow(self, filled: bool) -> None:
            """Ask for more after a round in which every slot was filled, for less after one that was short."""
            self._appetite = min(self._appetite * 2, MAX_CLAIM) if filled else max(self._appetite // 2, LEAST_SLOTS)

    def __init__(self) -> None:
        self._groups: dict[Capability, Line.Group] = {}
        self.demands = Demands()
        self._by_session: dict[UUID, set[Waiter]] = {}
        self._count = 0
        self.discontent: set[Waiter] = set()
        """Those who wait for a look at the lanes."""
        self._hasty: set[Waiter] = set()

    def __len__(self) -> int:
        return self._count

    def join(self, waiter: Waiter) -> None:
        """Let a waiter stand at the end of its group."""
        group = self._groups.get(waiter.capability)
        if group is None:
            if len(self._groups) >= MOST_GROUPS:
                self._groups = {capability: known for capability, known in self._groups.items() if known.waiters}
            group = self._groups[waiter.capability] = Line.Group(waiter.capability)
        if not group.waiters:
            self.demands.join(group)
        group.waiters[waiter] = None
        self._count += 1
        if not waiter.content:
            self.discontent.add(waiter)
        if waiter.hasty:
            self._hasty.add(waiter)
        if waiter.ask.session is not None:
            self._by_session.setdefault(waiter.ask.session, set()).add(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Take a waiter out."""
        group = self._groups.get(waiter.capability)
        if group is None or waiter not in group.waiters:
            return
        del group.waiters[waiter]
        if not group.waiters:
            self.demands.leave(group)
        self._count -= 1
        self.discontent.discard(waiter)
        self._hasty.discard(waiter)
        if waiter.ask.session is not None:
            waiters = self._by_session[waiter.ask.session]
            waiters.discard(waiter)
            if not waiters:
                del self._by_session[waiter.ask.session]

    def all(self) -> list[Waiter]:
        """Return everybody who waits."""
        return list(chain.from_iterable(group.waiters for group in self._groups.values()))

    def groups(self, turns: Turns) -> list[Group]:
        """Return the groups, one of each tenant after another, beginning with others at each turn."""
        tenants: dict[str, list[Line.Group]] = {}
        for group in self._groups.values():
            if group.waiters:
                tenants.setdefault(group.tenant, []).append(group)
        return turns.order(tenants)

    def pacify(self, waiters: Iterable[Waiter]) -> None:
        """Note that a look was made for these."""
        for waiter in waiters:
            waiter.content, waiter.since = True, self.demands.visits
            self.discontent.discard(waiter)

    def served_free(self, groups: Container[Group]) -> bool:
        """Answer the waiters of these groups that do not wait: the free lanes hold nothing more for them.

        Return whether one of them waits for a limited queue still.
        """
        left = False
        for waiter in self._hasty_and_content():
            # If it is reserved, then all of it by the other loop: this one had no chance yet.
            if self._groups[waiter.capability] in groups and not waiter.reserved:
                waiter.free_done = True
                left |= not self._finish_hasty(waiter)
        return left

    def served_limited(self) -> bool:
        """Answer those who do not wait, after visits to limited queues, and those whose time is over.

        Return whether one who does not wait waits for the free lanes still.
        """
        for waiter in self.all():
            if waiter.last and not waiter.reserved:
                waiter.finish()
        hasty = self._hasty_and_content()
        for waiter in hasty:
            if waiter.free_done and not waiter.reserved:
                self._finish_hasty(waiter)
        return any(not waiter.free_done for waiter in hasty)

    def _finish_hasty(self, waiter: Waiter) -> bool:
        """Answer who does not wait, if the limited queues that hold work for it were visited since the look for it."""
        group = self._groups[waiter.capability]
        if waiter.unvisited is None:
            waiter.unvisited = list(group.limited)
        # One after the other, for a pass visits few: to look at all of them after each pass would hold the event loop.
        while waiter.unvisited and self.demands.visited_since(group, waiter.unvisited[-1], waiter.since):
            waiter.unvisited.pop()
        if waiter.unvisited:
            return False
        waiter.finish()
        return True

    def _hasty_and_content(self) -> list[Waiter]:
        """Return the waiters that asked for an immediate answer, have been looked for, and have no answer yet."""
        return [waiter for waiter in self._hasty if waiter.content and not waiter.gone]

    def refuse(self, error: WindlassError) -> None:
        """Answer everybody with an error; the database is away."""
        for waiter in self.all():
            if not waiter.reserved:
                waiter.refuse(error)

    def recall(self, session: UUID) -> None:
        """Answer a session that waits, so that it asks again."""
        for waiter in self._by_session.get(session, ()):
            waiter.last = True
            if not waiter.reserved:
                waiter.finish()

    def stop(self, session: UUID, job_id: UUID) -> bool:
        """Tell a session that waits to stop one of its jobs; False if it does not wait."""
        waiters = self._by_session.get(session, ())
        for waiter in waiters:
            waiter.stops.append(job_id)
            waiter.last = True
            if not waiter.reserved:
                waiter.finish()
        return bool(waiters)


class Turns:
    """In which order tenants, and what each of them waits for, are served: others come first at each turn.

    A tenant of which not all was served goes on where it was left.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._left_at: dict[str, int] = {}
        """Of tenants of which not all was served: how far they have come."""

    def order(self, of_tenants: Mapping[str, list[Item]]) -> list[Item]:
        """Return the items of all tenants, one of each tenant after another."""
        tenants = _rotated(list(of_tenants), self._turn)
        rows = zip_longest(*(_rotated(of_tenants[name], self._left_at.get(name, self._turn)) for name in tenants))
        return [item for row in rows for item in row if item is not None]

    def served(self, left: Mapping[str, int]) -> None:
        """Begin the next turn; `left` are the tenants of which not all was served, with how many items were."""
        self._left_at = {name: self._left_at.get(name, self._turn) + count for name, count in left.items()}
        self._turn += 1


def shares(tenants: Iterable[str]) -> dict[str, int]:
    """Return how many slots of a round each tenant may have at most."""
    found = set(tenants)
    return dict.fromkeys(found, MAX_CLAIM if len(found) <= 1 else max(1, SHARED_SLOTS // len(found)))


def _rotated(items: list[Item], turn: int) -> list[Item]:
    start = turn % len(items) if items else 0
    return items[start:] + items[:start]


def _part(room: int, share: float) -> int:
    return room if share == 1.0 or room <= 1 else max(1, int(room * share))
