"""Which lanes are believed to hold ready jobs, and from which rank on; the same by queue.

Wake-ups add lanes, a look at all heads sets them anew, a claim that finds nothing takes them out.
A stamp tells whether a lane was woken after a statement began: then what that statement saw of it is old.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from windlass.db import Database
from windlass.queue.claim import Claimed
from windlass.queue.lanes import Lane, Lanes

RANK_MARGIN = 1000
"""In milliseconds of due time: how far below the last rank taken a lane is still looked at."""


class _Hot(msgspec.Struct):
    hint: int
    stamp: int


class HotLanes:
    """Numbers of lanes, each with its low-water rank and the stamp of its last wake-up."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Hot] = {}
        self._stamp = 0
        self.version = 0
        """Rises when a lane comes or goes."""

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._lanes))

    def __contains__(self, number: int) -> bool:
        return number in self._lanes

    @property
    def stamp(self) -> int:
        """The stamp of the last wake-up of all."""
        return self._stamp

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
            self.version += 1
        else:
            hot.hint = min(hot.hint, rank)
            hot.stamp = self._stamp

    def looked(self, heads: Iterable[tuple[int, int]], *, stamp: int) -> None:
        """Believe what a look at all heads found that began at `stamp`; lanes woken since then stay."""
        woken = {number: hot for number, hot in self._lanes.items() if hot.stamp > stamp}
        self._lanes = {number: _Hot(rank, stamp) for number, rank in heads} | woken
        self.version += 1

    def taken(self, jobs: Iterable[Claimed], stamps: dict[int, int]) -> None:
        """Raise the low-water ranks to what was taken; a lane woken meanwhile keeps its own."""
        for job in jobs:
            hot = self._lanes.get(job.lane)
            if hot is not None and hot.stamp == stamps.get(job.lane):
                hot.hint = max(hot.hint, job.rank - RANK_MARGIN)

    def empty(self, stamps: dict[int, int]) -> None:
        """Believe that lanes are empty in which nothing was found, unless they were woken meanwhile."""
        for number, stamp in stamps.items():
            hot = self._lanes.get(number)
            if hot is not None and hot.stamp == stamp:
                del self._lanes[number]
                self.version += 1


class HotQueues:
    """The hot lanes by tenant and queue, sorted anew when some came or went."""

    def __init__(self, hot: HotLanes, lanes: Lanes) -> None:
        self._hot = hot
        self._lanes = lanes
        self._by_queue: dict[tuple[str, str], list[Lane]] = {}
        self._unknown: list[int] = []
        self._sorted = -1
        """The version of the hot lanes that was sorted."""

    async def learn(self, db: Database) -> None:
        """Read the names of lanes that others have made."""
        self._sort()
        if self._unknown:
            await self._lanes.learn(db, self._unknown)
            self._sorted = -1

    def of(self, tenant: str, queues: Iterable[str]) -> list[Lane]:
        """Return the lanes of these queues, however many others there are."""
        self._sort()
        found = (self._by_queue.get((tenant, queue), ()) for queue in queues)
        return [lane for lanes in found for lane in lanes]

    def limited(self) -> Iterator[tuple[tuple[str, str], list[Lane]]]:
        """Yield each limited queue, as tenant and name, with its lanes."""
        self._sort()
        for queue, found in self._by_queue.items():
            if lanes := [lane for lane in found if lane.limited]:
                yield queue, lanes

    def _sort(self) -> None:
        if self._sorted == self._hot.version:
            return
        self._sorted = self._hot.version
        self._by_queue, self._unknown = {}, []
        for number in self._hot:
            lane = self._lanes.get(number)
            if lane is None:
                self._unknown.append(number)
            else:
                self._by_queue.setdefault((lane.name.tenant, lane.name.queue), []).append(lane)
