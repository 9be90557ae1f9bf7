"""Hands: claim for the slots of those who wait, and give each job to who asked for it.

Nobody keeps a job unsaid: whoever has one is answered before the loops (dispatch.py) go on, because a lease that its
worker has not heard of is given back after a while, and would run twice. What comes for a client that has hung up is
undone at once, as if it had never been claimed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine, Iterable, Sequence
from uuid import UUID

from windlass.db import Database, Statements
from windlass.engine.line import Handed, Waiter
from windlass.queue import workers
from windlass.queue.claim import Claimed
from windlass.queue.lanes import Lanes
from windlass.queue.limits import Limited, claim_limited

ROUND_S = 10.0
"""A look or a claim takes no longer: a database that fell silent must not keep everybody waiting."""

Return = Callable[[Sequence[tuple[Claimed, Waiter]]], Coroutine[None, None, None]]
"""Gives back jobs whose claimers have gone."""
Slots = Sequence[tuple[UUID, Waiter]]
"""Whose turn it is: the session of each slot, and who asked for it."""


class Hands:
    """Claims and hands out, for both loops."""

    def __init__(
        self, db: Database, lanes: Lanes, *, give_back: Return, observe: Callable[[Sequence[Handed], int], None]
    ) -> None:
        self._db = db
        self._lanes = lanes
        self._give_back = give_back
        self._observe = observe
        self._laden: set[Waiter] = set()
        """Those who have jobs and are not answered yet."""
        self._returning: set[asyncio.Task[None]] = set()

    async def claimed(self, slots: Slots, claiming: workers.Claiming) -> list[Claimed]:
        """Run one claim for these slots; bare callers get their sessions in the same transaction."""
        for _, waiter in slots:
            waiter.reserved += 1
        bare = [
            workers.BareSession(slot, waiter.ask.worker, waiter.ask.tenant, waiter.ask.lease_ms)
            for slot, waiter in slots
            if waiter.ask.session is None
        ]
        try:
            if bare:
                return await workers.claim_for_bare(self._db, bare, claiming)
            return await claiming(self._db, [])
        finally:
            for _, waiter in slots:
                waiter.reserved -= 1

    def hand_out(self, served: Sequence[tuple[Sequence[int], Slots]], jobs: list[Claimed]) -> list[int]:
        """Give each job to who asked for it; return how many each group got. Those who left give back.

        A session may wait in two groups: the lane tells which of its claims a job is for.
        """
        group_of = {lane: number for number, (lanes, _) in enumerate(served) for lane in lanes}
        waiting: list[dict[UUID, list[Waiter]]] = [{} for _ in served]
        for number, (_, slots) in enumerate(served):
            for slot, waiter in reversed(slots):
                waiting[number].setdefault(slot, []).append(waiter)
        gone: list[tuple[Claimed, Waiter]] = []
        handed: list[Handed] = []
        counts = [0] * len(served)
        for job in jobs:
            number = group_of[job.lane]
            counts[number] += 1
            waiter = waiting[number][job.session].pop()
            lane = self._lanes.get(job.lane)
            if waiter.gone or lane is None:  # the lane of a tenant that is being erased is forgotten
                gone.append((job, waiter))
                continue
            handed.append(Handed(job, lane.name, waiter.ask.lease_ms))
            waiter.jobs.append(handed[-1])
            self._laden.add(waiter)
        if handed:
            self._observe(handed, sum(len(slots) for _, slots in served))
        if gone:
            self.take_back(gone)
        for _, slots in served:
            finish(pair for pair in slots if pair[1].last or len(pair[1].jobs) >= pair[1].ask.count)
        return counts

    def take_back(self, gone: list[tuple[Claimed, Waiter]]) -> None:
        """Give back what was claimed for those who have gone, behind their backs."""
        task = asyncio.create_task(self._give_back(gone), name="give-back")
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def dismiss_dead(self, slots: Slots) -> None:
        """Find sessions that ended while they waited: they take a slot and never a job, before others that could."""
        last = max((n for n, (_, waiter) in enumerate(slots) if waiter.jobs), default=0)
        suspects = {
            waiter.ask.session: waiter
            for _, waiter in slots[: last + 1]
            if waiter.ask.session is not None and not waiter.jobs and not waiter.answer.done()
        }
        found = await workers.find_sessions(self._db, list(suspects)) if suspects else {}
        for session, waiter in suspects.items():
            known = found.get(session)
            if known is None or not known.alive:
                waiter.refuse(workers.ended_session(session))
            elif known.draining:
                waiter.finish()

    @property
    def has_laden(self) -> bool:
        """Whether somebody has jobs and is to get more: a line asks for few at first, and soon for all it may."""
        return any(not waiter.answer.done() for waiter in self._laden)

    def answer_laden(self, but: Container[Waiter] = ()) -> None:
        """Answer everybody who has jobs: a lease that its worker has not heard of is given back after a while.

        `but`: those for whom more is claimed at once.
        """
        finish((None, waiter) for waiter in self._laden if waiter not in but)
        self._laden = {waiter for waiter in self._laden if not waiter.answer.done()}

    async def returned(self) -> None:
        """Return when everything that is being given back is."""
        while self._returning:
            await asyncio.wait(self._returning)


class FromLimited:
    """A claim from a limited queue, which keeps what it was told of the queue's room."""

    def __init__(self, queue: int, numbers: Sequence[int], slots: Sequence[tuple[UUID, Waiter]]) -> None:
        self._queue = queue
        self._numbers = numbers
        self._slots = [slot for slot, _ in slots]
        self.answer = Limited([])

    async def __call__(self, db: Statements, _: Sequence[UUID]) -> list[Claimed]:
        self.answer = await claim_limited(db, self._queue, self._numbers, self._slots)
        return self.answer.jobs


def finish(slots: Iterable[tuple[object, Waiter]]) -> None:
    """Answer those who have jobs or whose time is over, unless more is being claimed for them."""
    for _, waiter in slots:
        if not waiter.reserved and (waiter.jobs or waiter.last):
            waiter.finish()
