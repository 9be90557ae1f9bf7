"""Looks: one look for all quick duties of a server, and one server that looks for the others.

The duties that this server holds ask here how long there is nothing to do. They share one statement (queue/looks.py),
which is asked again when the next thing is due, after half a second at the latest, or when a duty has done something.
Where servers hear each other, the holder of `promote` looks for all: it tells the others when something of theirs is
due soon, and they look by themselves only every two seconds, in case they were not told.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from windlass.db import Statements
from windlass.engine.wake import Wake
from windlass.queue import looks
from windlass.queue.rescue import PULSE_S
from windlass.queue.schedule import SHARDS

WATCHER = "promote"
"""The duty whose holder looks for all servers."""
FAR_S = 2.0
"""How often a server looks for which another one looks too."""
LEAST_S = 0.001
QUICK = ("promote", "rescue", "deadlines", "fire", "watch", "backfill", "relay")


class Leading(Protocol):
    """What is asked of the loops."""

    @property
    def held(self) -> Collection[str]:
        """The duties that this server does."""

    @property
    def live_count(self) -> int:
        """How many servers live."""


class Looks:
    """When the duties of this server have something to do."""

    def __init__(self, *, period_s: float, monotonic: Callable[[], float]) -> None:
        self._period_s = period_s
        self._monotonic = monotonic
        self.shards: Collection[int] = ()
        """The shards of schedules that this server fires."""
        self.without: Collection[UUID] = ()
        """Schedules that are left out."""
        self.behind = False
        """Whether jobs of its shards wait for the run before them."""
        self.pulse_s = PULSE_S
        """How often rescue is to be awake."""
        self._held: Callable[[], Collection[str]] = lambda: QUICK
        self._others: Callable[[], bool] = lambda: False
        self._tell: Callable[[], None] = lambda: None
        self._due_s: dict[str, float] = {}
        self._stale: set[str] = set()
        self._next_s = -math.inf
        self._was_far = False
        self._looking = asyncio.Lock()
        self._noticed = asyncio.Event()
        self._told: dict[str, datetime] = {}

    @property
    def noticed(self) -> asyncio.Event:
        """Set when this server was told that something is due; another one takes its place then."""
        return self._noticed

    def connect(self, loops: Leading, wake: Wake, *, notifies: bool) -> None:
        """Share the looks with the other servers, which are heard and told through `wake`."""
        self._held = lambda: loops.held
        self._others = lambda: notifies and loops.live_count > 1
        self._tell = wake.due
        wake.on_due.append(self.notice)
        wake.on_all.append(self.notice)

    async def rest_s(self, duty: str, db: Statements) -> float:
        """Return for how many seconds there is nothing to do for a duty; 0 if there is something now."""
        async with self._looking:
            if duty in self._stale or self._monotonic() >= self._next_s or (self._was_far and not self._is_far):
                await self._look(duty, db)
        now_s = self._monotonic()
        due_s = self._due_s.get(duty, math.inf)
        return 0.0 if due_s <= now_s else max(min(due_s, self._next_s) - now_s, LEAST_S)

    def acted(self, duty: str) -> None:
        """Forget when the duty has something to do: it has just done it."""
        self._stale.add(duty)

    def renew(self) -> None:
        """Look before anything is done: what was seen before a duty came may be old."""
        self._stale.update(QUICK)

    def notice(self) -> None:
        """Look at once: something may be due earlier than was known."""
        self.renew()
        noticed, self._noticed = self._noticed, asyncio.Event()
        noticed.set()

    @property
    def _is_far(self) -> bool:
        return self._others() and WATCHER not in self._held()

    async def _look(self, duty: str, db: Statements) -> None:
        began_s, far = self._monotonic(), self._is_far
        whole = began_s >= self._next_s or duty in looks.WHOLE
        watches = self._others() and not far
        foreign = set(range(SHARDS)).difference(self.shards) if watches else ()
        found = await looks.look(db, shards=self.shards, foreign=foreign, without=self.without, whole=whole)
        # From the answer on, not from the question: a step that comes early finds nothing to do.
        now_s = self._monotonic()
        seen = set(QUICK) if whole else set(QUICK).difference(looks.WHOLE)
        for name in seen:
            left_s = found.left_s(name)
            self._due_s[name] = math.inf if left_s is None else now_s + left_s
        self._stale -= seen
        self.behind, self._was_far = found.behind, far
        if whole:
            self.pulse_s = found.pulse_s
            self._next_s = began_s + (max(self._period_s, FAR_S) if far else self._period_s)
        if watches:
            self._tell_others(found)

    def _tell_others(self, found: looks.Look) -> None:
        """Tell the others of what is due soon and not ours, once."""
        held = self._held()
        instants: dict[str, datetime | None] = {name: found.at.get(name) for name in QUICK if name not in held}
        # A pulse is left without being told of; all slots that are ours stand under `fire`.
        instants |= {"rescue": found.lapse_at} if "rescue" not in held else {}
        instants["fire"] = found.foreign_at
        soon = {
            name: at for name, at in instants.items() if at is not None and (at - found.now_at).total_seconds() < FAR_S
        }
        if soon.items() - self._told.items():
            self._tell()
        self._told = soon
