"""Dispatch: all claims that wait on this server are answered by one statement.

A claim waits at the server until work appears (long poll). Claims of the same capability stand in one line; a round
takes the lanes that are believed to hold ready jobs, gives each to one line that can run it, and claims for all lines
together. Slots go round the waiting workers one by one, so nobody takes all. Limited queues have a loop of their own
(limited.py).

Which lanes hold work is told by wake-ups (wake.py) and found by a slow look at the heads of all lanes, so a lost
wake-up costs a moment, never a job. With each lane goes a low-water rank, below which nothing is expected: dead index
entries are not walked again and again. It is lowered by every wake-up and set anew by every look.

A client that has hung up when its jobs come gives them back at once, without using an attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import nsmallest
from uuid import UUID

from windlass.db import Database
from windlass.engine.fair import Recent
from windlass.engine.hands import ROUND_S, Hands, Return, finish
from windlass.engine.hot import MOST_LOOKED, HotLanes, HotQueues
from windlass.engine.limited import LimitedQueues
from windlass.engine.line import Ask, Handed, Handout, Line, Turns, Waiter, shares
from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.errors import Unavailable, WindlassError
from windlass.ids import Ids
from windlass.queue import workers
from windlass.queue.claim import Group, Want, claim, heads
from windlass.queue.lanes import Lane, Lanes

LOOK_S = 1.0
"""How often the heads of all lanes are looked at while somebody waits."""
LOOK_WITHOUT_NOTIFY_S = 0.2
LOOK_SHARE = 20
"""A look may take one part in so many of the time."""
HASTY_S = 10.0
"""How long a caller that does not wait may wait for the database."""
STOP_S = 5.0
"""How long a stopping server waits for claims that are under way."""
FRESH_LOOK_S = 0.1
"""A worker that begins to wait is content with a look that is not older than this."""
MOST_STOPS = 10_000
"""Sessions whose jobs to stop are remembered; heartbeats tell the others."""
MOST_LANES = 32
"""Lanes asked for in one round, those with the lowest known ranks."""

logger = logging.getLogger("windlass")


class Dispatch:
    """The lines of waiting claims, and the two loops that serve them."""

    def __init__(
        self,
        db: Database,
        lanes: Lanes,
        ids: Ids,
        recent: Recent,
        *,
        wake: Wake,
        give_back: Return,
        outside: Outside,
        observe: Callable[[Sequence[Handed], int], None],
    ) -> None:
        self._db = db
        self._lanes = lanes
        self._ids = ids
        self._hands = Hands(db, lanes, give_back=give_back, observe=observe)
        self._outside = outside
        self._line, self._recent = Line(), recent
        self._hot = HotLanes()
        self._queues = HotQueues(self._hot, lanes)
        self._turns = Turns()
        self._looked_for: set[Line.Group] = set()
        """The groups for which the free loop has looked in this pass."""
        self._looked_at = self._look_at = float("-inf")
        self._look_again = self._over = False
        self._bell = asyncio.Event()
        self._limited = LimitedQueues(
            db,
            lanes,
            ids,
            line=self._line,
            hot=self._hot,
            queues=self._queues,
            hands=self._hands,
            ring_free=self._bell.set,
        )
        self._stops: dict[UUID | None, list[UUID]] = {}
        """Jobs to stop of sessions that did not wait just then: their next claim tells."""
        wake.on_ready.append(self._ready)
        wake.on_freed.append(self._limited.freed)
        wake.on_stop.append(self._stop)
        wake.on_kept.append(self._line.recall)
        wake.on_all.append(self._look_soon)

    @property
    def waiting_count(self) -> int:
        """How many claims wait."""
        return len(self._line)

    async def claim(self, ask: Ask) -> Handout:
        """Return jobs, and jobs of the session to stop, as soon as there are some; nothing after the wait asked for."""
        if self._over:
            return Handout([])
        if ask.session in self._stops:
            return Handout([], self._stops.pop(ask.session))
        if ask.session is None:
            workers.check_bare(workers.BareSession(self._ids.new(), ask.worker, ask.tenant, ask.lease_ms))
        waiter = Waiter(ask)
        waiter.hasty = ask.wait_s <= 0
        # A caller that does not wait is answered from a look that began after it came.
        waiter.content = not waiter.hasty and self._outside.monotonic() - self._looked_at < FRESH_LOOK_S
        self._line.join(waiter)
        self._ring()
        try:
            await asyncio.wait([waiter.answer], timeout=HASTY_S if waiter.hasty else ask.wait_s)
            if not waiter.answer.done() and waiter.reserved:
                # What a statement under way is claiming for it is still its own.
                waiter.last = True
                await asyncio.wait([waiter.answer])
            waiter.finish()
            return waiter.answer.result()
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise
        finally:
            self._line.leave(waiter)

    def _withdraw(self, waiter: Waiter) -> None:
        """Give back what a caller was to get who has gone; what is still being claimed for it comes back later."""
        waiter.answer.cancel()
        if waiter.jobs:
            self._hands.take_back([(handed.job, waiter) for handed in waiter.jobs])

    async def run(self) -> None:
        """Serve both kinds of lanes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._serve_free(), name="dispatch-free")
            tasks.create_task(self._limited.serve(), name="dispatch-limited")

    async def stop(self) -> None:
        """Answer everybody who waits, with what they have, and see that jobs of those who left are given back."""
        self._over = True
        for waiter in self._line.all():
            waiter.last = True
            if not waiter.reserved:
                waiter.finish()
        under_way = [waiter.answer for waiter in self._line.all() if not waiter.answer.done()]
        if under_way:
            await asyncio.wait(under_way, timeout=STOP_S)
        await self._hands.returned()

    def _ready(self, lane: int, rank: int) -> None:
        self._hot.woken(lane, rank)
        self._ring()

    def _stop(self, session: UUID, job_id: UUID) -> None:
        if not self._line.stop(session, job_id):
            while len(self._stops) >= MOST_STOPS:
                del self._stops[next(iter(self._stops))]
            self._stops.setdefault(session, []).append(job_id)

    def _look_soon(self) -> None:
        self._look_again = True
        self._ring()

    def _ring(self) -> None:
        self._bell.set()
        self._limited.ring()

    async def _serve_free(self) -> None:
        while True:
            await self._rung()
            try:
                async with asyncio.timeout(ROUND_S):
                    await self._look_if_due()
                self._looked_for.clear()
                going_on = True
                while going_on:
                    async with asyncio.timeout(ROUND_S):
                        going_on = await self._free_round()
                    # Under steady load there is always another round: looks, and those who do not wait, come between.
                    if self._look_is_due() and not self._hands.has_laden:
                        self._bell.set()
                        break
                if self._line.served_free(self._looked_for):
                    self._limited.ring()
            except TimeoutError:
                self._line.refuse(Unavailable(f"The database did not answer for {ROUND_S:g} s. Try again."))
            except WindlassError as error:
                self._line.refuse(error)
            except Exception as error:
                logger.exception("A claim failed.")
                self._line.refuse(Unavailable(f"The claim failed: {type(error).__name__}. Try again."))
            finally:
                self._hands.answer_laden()

    async def _rung(self) -> None:
        """Wait for the bell, but while somebody waits no longer than until the next look."""
        left_s = max(self._look_at - self._outside.monotonic(), 0.0) if len(self._line) else None
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._bell.wait()
        self._bell.clear()

    async def _look_if_due(self) -> None:
        """Look at the heads of all lanes: in due time, however often the bell rings, and for those who wait for it."""
        started = self._outside.monotonic()
        if not self._look_is_due():
            return
        self._look_again = False
        period_s = LOOK_S if self._db.capabilities.notify else LOOK_WITHOUT_NOTIFY_S
        # Servers that were started together need not look together.
        # Set before the look, so that one that fails is not repeated at once.
        self._look_at = started + period_s * (0.9 + 0.2 * self._outside.chance())
        discontent = list(self._line.discontent)
        stamp = self._hot.look()
        await self._queues.look(await heads(self._db), stamp=stamp)
        self._looked_at = started
        cost_s = self._outside.monotonic() - started
        self._look_at = max(self._look_at, started + LOOK_SHARE * cost_s)
        self._line.pacify(discontent)
        self._limited.looked()

    def _look_is_due(self) -> bool:
        waited_for = self._look_again or bool(self._line.discontent)
        return len(self._line) > 0 and (waited_for or self._outside.monotonic() >= self._look_at)

    async def _free_round(self) -> bool:
        """Claim once for all lines that can run something; return whether another round may find more."""
        await self._queues.learn(self._db)
        waiting = self._line.groups(self._turns)
        wanted = self._wanted(waiting)
        if not wanted:
            await asyncio.sleep(0)
            return not self._looked_for.issuperset(waiting)
        stamps = self._hot.stamps(number for _, numbers, _ in wanted for number in numbers)
        groups = [
            Group(
                [Want(number, hint=self._hot.hint(number)) for number in numbers],
                [slot for slot, _ in slots],
                group.tenant,
            )
            for group, numbers, slots in wanted
        ]
        slots = [pair for _, _, slots in wanted for pair in slots]
        jobs = await self._hands.claimed(slots, lambda db, _: claim(db, groups))
        self._hot.taken(jobs, stamps)
        full = self._hands.hand_out([(numbers, slots) for _, numbers, slots in wanted], jobs)
        if not jobs:
            self._hot.empty(stamps.items())
        for number, (group, _, taken) in enumerate(wanted):
            filled = full[number] == len(taken)
            if not filled:
                self._looked_for.add(group)
            # As long as all slots are filled and it can ask for more, nobody goes with less than there is.
            if not filled or group.grown:
                finish((None, waiter) for waiter in group.waiters)
            group.grow(filled)
        if len(jobs) < len(slots):
            await self._hands.dismiss_dead(slots)
        return True

    def _wanted(self, groups: Sequence[Line.Group]) -> list[tuple[Line.Group, list[int], list[tuple[UUID, Waiter]]]]:
        """Return the lines to serve now: each with its lanes and its slots; a lane goes to one line, in turn."""
        taken: set[int] = set()
        wanted = []
        able = self._able(groups)
        left = shares({group.tenant for group, _ in able} | self._recent.tenants())
        for group, found in able:
            lanes = [lane for lane in found if not lane.limited and lane.id not in taken]
            if not lanes or not left[group.tenant]:
                continue  # others are first: it is looked for when its turn comes
            share = 0.5 if group.limited else 1.0
            slots = group.slots(self._ids.new, share=share, most=left[group.tenant])
            if not slots:
                self._looked_for.add(group)
                continue
            left[group.tenant] -= len(slots)
            numbers = nsmallest(MOST_LANES, (lane.id for lane in lanes), key=self._hot.hint)
            taken.update(numbers)
            wanted.append((group, numbers, slots))
        # Whoever has jobs and no slot now is not kept waiting until the turn comes to it again.
        self._hands.answer_laden({waiter for _, _, slots in wanted for _, waiter in slots})
        return wanted

    def _able(self, groups: Sequence[Line.Group]) -> list[tuple[Line.Group, list[Lane]]]:
        """Return the groups for which free lanes hold work, with their lanes.

        Where there are very many groups and lanes, the rounds after this one look for the rest.
        """
        able, idle, left = [], set(), set()
        looked: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        total, most = 0, max(MOST_LOOKED // max(len({group.tenant for group in groups}), 1), 1)
        for group in groups:
            if looked[group.tenant] >= most or total >= MOST_LOOKED:
                left.add(group.tenant)
                continue
            count, found = self._looked(group)
            looked[group.tenant] += count
            total += count
            counts[group.tenant] += 1
            if group.has_free:
                able.append((group, found))
            else:
                idle.add(group)
        self._looked_for |= idle
        self._turns.served({tenant: counts[tenant] for tenant in left})
        if self._line.served_free(idle):
            self._limited.ring()
        return able

    def _looked(self, group: Line.Group) -> tuple[int, list[Lane]]:
        """Look which lanes hold work for a group; return how many were looked at, and those.

        For a group that had nothing to do only the lanes that have come since then can hold some.
        """
        can = group.capability
        lanes = self._queues.of(can.tenant, can.queues, after=-1 if group.has_free else group.seen)
        found = [lane for lane in lanes if group.serves(lane)]
        group.has_free = not all(lane.limited for lane in found)
        group.seen = self._queues.arrivals
        if self._line.demands.can_run(group, {lane.name.queue for lane in found if lane.limited}):
            self._limited.ring()
        return len(lanes) + len(can.queues), found
