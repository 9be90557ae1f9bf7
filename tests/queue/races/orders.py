"""Play two steps against each other in every order of their statements.

The first step is held at each of its marks in turn (pausing.py): before each query and before each commit. There the
second runs to its end, or until it waits for a lock that the first has. Then the first goes on. The last order is the
first step whole and then the second; afterwards the two change roles, unless they are the same.

A step of several transactions has orders beyond these: both are under way, each held once. `crossed` plays one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tests.queue.races.pausing import Pausing
from tests.queue.races.stage import PATIENCE_S, Stage
from windlass.db import Database
from windlass.errors import WindlassError

S = TypeVar("S")
L = TypeVar("L")
R = TypeVar("R")


class Race(Generic[S, L, R]):
    """What is raced: how a scene is made, the two steps, and what must hold afterwards."""

    def __init__(
        self,
        prepare: Callable[[], Awaitable[S]],
        left: Callable[[Database, S], Awaitable[L]],
        right: Callable[[Database, S], Awaitable[R]],
        judge: Callable[[S, L | WindlassError, R | WindlassError], Awaitable[None]],
    ) -> None:
        self.prepare = prepare
        self.left = left
        self.right = right
        self.judge = judge

    async def in_every_order(self, stage: Stage) -> int:
        """Play all orders; return how many there were."""
        played = 0
        for left_first in (True,) if self.left == self.right else (True, False):
            number, held = 0, True
            while held:
                held = await self._play(stage, left_first=left_first, number=number)
                number += 1
            played += number
        return played

    async def crossed(self, stage: Stage, *, left: int, right: str) -> None:
        """Stop the left step after `left` commits, then the right one before `right`; end the left, then the right.

        The left one ends, or waits for what the right one has until that ends.
        """
        scene = await self.prepare()
        one, other = Pausing(stage.servers[0]), Pausing(stage.servers[-1])
        first_point, second_point = one.hold_after_commits(left), other.hold_before(right)
        first = asyncio.ensure_future(self.left(one, scene))
        async with asyncio.timeout(PATIENCE_S):
            await first_point.reached.wait()
            second = asyncio.ensure_future(self.right(other, scene))
            await second_point.reached.wait()
            first_point.release()
            await stage.until_parked(first, other, one)
            second_point.release()
            of_left, of_right = await first, await second
        try:
            await self.judge(scene, of_left, of_right)
            await stage.sound()
        except AssertionError as wrong:
            wrong.add_note(f"left held after {left} commits: {one.trail}; right held before {right}: {other.trail}")
            raise

    async def _play(self, stage: Stage, *, left_first: bool, number: int) -> bool:
        """Play one order: the first step is held at its mark `number`; return whether it has such a mark."""
        scene = await self.prepare()
        left, right = Pausing(stage.servers[0]), Pausing(stage.servers[-1])
        leader, follower = (left, right) if left_first else (right, left)

        async def lead() -> L | R:
            return await (self.left(left, scene) if left_first else self.right(right, scene))

        async def follow() -> L | R:
            return await (self.right(right, scene) if left_first else self.left(left, scene))

        point = leader.hold_at(number)
        first = asyncio.create_task(lead())
        reached = asyncio.create_task(point.reached.wait())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait([first, reached], return_when=asyncio.FIRST_COMPLETED)
                held = point.reached.is_set()
                second = asyncio.create_task(follow())
                if held:
                    await stage.until_parked(second, leader, follower)
                point.release()
                answers = await asyncio.gather(first, second, return_exceptions=True)
        finally:
            reached.cancel()
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, WindlassError):
                raise answer
        try:
            of_left, of_right = answers if left_first else reversed(answers)
            await self.judge(scene, of_left, of_right)  # type: ignore[arg-type]
            await stage.sound()
        except AssertionError as wrong:
            where = f"{leader.trail[number]} ({number})" if held else "nowhere"
            wrong.add_note(f"{'left' if left_first else 'right'} held before {where}: {leader.trail}; {follower.trail}")
            wrong.add_note(f"answers: {answers}")
            raise
        return held
