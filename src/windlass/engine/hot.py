"""Which lanes are believed to hold ready jobs, and from which rank on; the same by queue.

Wake-ups add lanes, a look at all heads sets them anew, a claim that finds nothing takes them out.
A stamp tells whether a lane was woken after a statement began: then what that statement saw of it is old.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from windlass.db import Database
from windlass.queue.claim import Claimed
from windlass.queue.lanes import Lane, Lanes

Item = TypeVar("Item")

MOST_LOOKED = 10_000
"""Lanes and queue names that are looked at in one go for all claims: 2 ms, where each has 32 labels 15 ms."""
PORTION = 500
"""Lanes of a look that are taken over in one go."""
RANK_MARGIN = 1000
"""In milliseconds of due time: how far below the last rank taken a lane is still looked at."""


class _Hot(msgspec.Struct, gc=False):
    hint: int
    stamp: int


class HotLanes:
    """Numbers of lanes, each with its low-water rank and the stamp of its last wake-up."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Hot] = {}
        self._stamp = 0
        self.changed: set[int] = set()
        """The lanes that came or went since they were sorted last."""

    def __contains__(self, number: int) -> bool:
        return number in self._lanes

    def hint(self, number: int) -> int:
        """Return the rank below which nothing is expected in a lane."""
        return self._lanes[number].hint

    def stamps(self, numbers: Iterable[int]) -> dict[int, int]:
        """Return when each of these lanes was woken last."""
        return {number: self._lanes[number].stamp for number in numbers}

    def woken(self, number: int, rank: int) -> None:
        """Believe that a lane has a job of this rank."""
        self._stamp += 1
        hot = self._lanes.get(number)
        if hot is None:
            self._lanes[number] = _Hot(rank, self._stamp)
            self.changed.add(number)
        else:
            hot.hint = min(hot.hint, rank)
            hot.stamp = self._stamp

    def look(self) -> int:
        """Begin a look at all heads, and return its stamp."""
        self._stamp += 1
        return self._stamp

    def looked(self, heads: Iterable[tuple[int, int]], *, stamp: int) -> None:
        """Believe what a look found; lanes woken since it began stay as they are."""
        for number, rank in heads:
            hot = self._lanes.get(number)
            if hot is None:
                self._lanes[number] = _Hot(rank, stamp)
                self.changed.add(number)
            elif hot.stamp < stamp:
                hot.hint, hot.stamp = rank, stamp

    def unseen(self, stamp: int) -> dict[int, int]:
        """Return the lanes that a look has not found, and their stamps."""
        return {number: hot.stamp for number, hot in self._lanes.items() if hot.stamp < stamp}

    def taken(self, jobs: Iterable[Claimed], stamps: dict[int, int]) -> None:
        """Raise the low-water ranks to what was taken; a lane woken meanwhile keeps its own."""
        for job in jobs:
            hot = self._lanes.get(job.lane)
            if hot is not None and hot.stamp == stamps.get(job.lane):
                hot.hint = max(hot.hint, job.rank - RANK_MARGIN)

    def empty(self, stamps: Iterable[tuple[int, int]]) -> None:
        """Believe that lanes are empty in which nothing was found, unless they were woken meanwhile."""
        for number, stamp in stamps:
            hot = self._lanes.get(number)
            if hot is not None and hot.stamp == stamp:
                del self._lanes[number]
                self.changed.add(number)


class HotQueues:
    """The hot lanes by tenant and queue, each with the number of its arrival: those that came last stand last."""

    def __init__(self, hot: HotLanes, lanes: Lanes) -> None:
        self._hot = hot
        self._lanes = lanes
        self._by_queue: dict[tuple[str, str], dict[int, tuple[int, Lane]]] = {}
        self._placed: dict[int, Lane] = {}
        self._unknown: set[int] = set()
        self._arrivals = 0

    async def learn(self, db: Database) -> None:
        """Read the names of lanes that others have made."""
        self._sort()
        if self._unknown:
            await self._lanes.learn(db, self._unknown)
            self._hot.changed |= self._unknown

    async def look(self, heads: Iterable[tuple[Lane, int]], *, stamp: int) -> None:
        """Take over what a look found that began at `stamp`, in portions: others have their turn between them."""
        async for found in _portions(heads):
            self._lanes.remember(lane for lane, _ in found)
            self._hot.looked(((lane.id, rank) for lane, rank in found), stamp=stamp)
            self._hot.changed.update(lane.id for lane, _ in found if self._placed.get(lane.id) != lane)
            self._sort()
        async for gone in _portions(self._hot.unseen(stamp).items()):
            self._hot.empty(gone)
            self._sort()

    @property
    def arrivals(self) -> int:
        """How many lanes have come so far."""
        self._sort()
        return self._arrivals

    def of(self, tenant: str, queues: Iterable[str], *, after: int = 0) -> list[Lane]:
        """Return the lanes of these queues that came after so many others, however many others there are."""
        self._sort()
        found = []
        for queue in queues:
            for arrival, lane in reversed(self._by_queue.get((tenant, queue), {}).values()):
                if arrival <= after:
                    break
                found.append(lane)
        return found

    def _sort(self) -> None:
        if not self._hot.changed:
            return
        changed, self._hot.changed = self._hot.changed, set()
        self._unknown -= changed
        for number in changed:
            if old := self._placed.pop(number, None):
                queue = (old.name.tenant, old.name.queue)
                del self._by_queue[queue][number]
                if not self._by_queue[queue]:
                    del self._by_queue[queue]
            if number not in self._hot:
                continue
            lane = self._lanes.get(number)
            if lane is None:
                self._unknown.add(number)
            else:
                self._arrivals += 1
                self._placed[number] = lane
                lanes = self._by_queue.setdefault((lane.name.tenant, lane.name.queue), {})
                lanes[number] = (self._arrivals, lane)


async def _portions(items: Iterable[Item]) -> AsyncIterator[Sequence[Item]]:
    left = iter(items)
    while portion := list(islice(left, PORTION)):
        yield portion
        await asyncio.sleep(0)
