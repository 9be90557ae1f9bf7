"""Looks: the quick duties of a server share one look, and the servers share who looks often."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from tests.clock import TestClock
from tests.engine.loops_world import Line, World
from tests.queue.planned import planned
from tests.queue.steps import Steps
from windlass.db import Database
from windlass.engine.duty import Duty, Ran
from windlass.engine.looks import FAR_S, Looks
from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.queue import schedules
from windlass.queue.cron import Every


@dataclass
class Servers:
    """What the loops of a server say: which duties are its own, and how many servers there are."""

    held: list[str] = field(default_factory=list)
    live_count: int = 2


class Shared:
    """Two servers that hear each other: one holds `promote` and looks for both, the other is told."""

    def __init__(self, db: Database, clock: TestClock) -> None:
        self.steps = Steps(db, clock)
        self.line = Line(db)
        self.told: list[float] = []
        self.watcher = self._looks(["promote"])
        self.other = self._looks(["rescue", "relay", "fire-0"])

    def _looks(self, held: list[str]) -> Looks:
        made = Looks(period_s=0.5, monotonic=lambda: self.steps.clock.now().timestamp())
        wake = Wake(self.steps.db, server=uuid4(), outside=Outside())
        wake.due = lambda: self.told.append(0.0)  # type: ignore[method-assign]
        made.connect(Servers(held), wake, notifies=True)
        return made

    async def rest_s(self, looks: Looks, duty: str, **passed: Any) -> float:
        """Let time pass and ask."""
        self.steps.clock.advance(**passed) if passed else None
        return await looks.rest_s(duty, self.line)

    def asked(self) -> int:
        """Return how many looks there were since the last time this was asked."""
        count = self.line.asked.count("look")
        self.line.asked.clear()
        return count


@pytest.fixture
async def shared(db: Database, clock: TestClock) -> Shared:
    """Two servers."""
    clock.advance(minutes=1)
    return Shared(db, clock)


async def test_duties_that_ask_together_share_one_look(shared: Shared) -> None:
    """U8: whoever comes first looks, for all of them, and again when the half second is over."""
    duties = ("promote", "deadlines", "relay", "watch", "backfill", "fire")

    rests = await asyncio.gather(*(shared.watcher.rest_s(duty, shared.line) for duty in duties))
    later = [await shared.rest_s(shared.watcher, duty) for duty in duties]

    assert ([0.5] * 12, 1) == ([round(rest_s, 3) for rest_s in [*rests, *later]], shared.asked())
    assert 0.5 == round(await shared.rest_s(shared.watcher, "relay", seconds=0.5), 3)
    assert 1 == shared.asked()


async def test_a_duty_rests_until_it_has_something_to_do(shared: Shared) -> None:
    """U9: what is due in 0.2 s is done then, not after the half second."""
    await shared.steps.submit_one(delay_ms=200)

    rests = [
        await shared.rest_s(shared.watcher, "promote"),
        await shared.rest_s(shared.watcher, "promote", seconds=0.15),
        await shared.rest_s(shared.watcher, "promote", seconds=0.05),
    ]

    assert [0.2, 0.05, 0.0] == [round(rest_s, 3) for rest_s in rests]
    assert 1 == shared.asked()


async def test_after_it_has_acted_a_duty_looks_again(shared: Shared) -> None:
    """What was due is done; when the next thing is due is not known before the next look."""
    await shared.steps.submit_one(delay_ms=100)
    await shared.steps.submit_one(delay_ms=300)
    await shared.rest_s(shared.watcher, "promote")
    await shared.steps.advance(0.1)
    due = await shared.rest_s(shared.watcher, "promote")

    shared.watcher.acted("promote")

    assert (0.0, 0.2) == (due, round(await shared.rest_s(shared.watcher, "promote"), 3))
    assert 2 == shared.asked()


async def test_a_server_for_which_another_looks_asks_seldom(shared: Shared) -> None:
    """U8: with LISTEN a further server looks every two seconds; it looks at once when it gets `promote` itself."""
    looks = []
    for _ in range(8):
        await shared.rest_s(shared.other, "relay", seconds=0.5)
        looks.append(shared.asked())

    assert 2 == sum(looks)
    shared.other._held = lambda: ["promote"]
    assert 0.5 == round(await shared.rest_s(shared.other, "relay"), 3)


async def test_others_are_told_once_of_what_is_due_soon(shared: Shared) -> None:
    """U9: a slot of theirs within two seconds is told when it is seen first; what is ours, or far, is told nobody."""
    await shared.steps.submit_one(delay_ms=900)
    far = planned(shared.steps, "far", trigger=Every(60))
    await schedules.create(shared.steps.db, [far])
    before = []
    for _ in range(3):
        await shared.rest_s(shared.watcher, "promote", seconds=0.5)
        before.append(len(shared.told))
    await shared.rest_s(shared.watcher, "promote", seconds=60 - 1.5 - FAR_S + 0.1)
    for _ in range(3):
        await shared.rest_s(shared.watcher, "promote", seconds=0.5)

    assert ([0, 0, 0], 1) == (before, len(shared.told))


async def test_a_duty_that_is_told_runs_at_once(world: World) -> None:
    """U9: a server that rests for two seconds looks as soon as it hears that something is due."""
    looks = Looks(period_s=0.5, monotonic=lambda: world.now_s)
    runs: list[float] = []

    async def run(db: Database, most: int) -> Ran:
        runs.append(world.now_s)
        return Ran(0, 100.0)

    world.server(Duty("relay", run, 0.5, 1, looks))
    await world.pass_s(3)

    looks.notice()
    await world.settle()

    assert [1000.0, 1003.0] == runs
