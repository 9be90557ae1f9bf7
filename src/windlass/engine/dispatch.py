"""Dispatch: all claims that wait on this server are answered by one statement.

A claim waits at the server until work appears (long poll). Claims of the same capability stand in one line; a round
takes the lanes that are believed to hold ready jobs, gives each to one line that can run it, and claims for all lines
together. Slots go round the waiting workers one by one, so nobody takes all. Limited queues are claimed by a second
loop on a connection of its own: a queue's lock never keeps the others waiting.

Which lanes hold work is told by wake-ups (wake.py) and found by a slow look at the heads of all lanes, so a lost
wake-up costs a moment, never a job. With each lane goes a low-water rank, below which nothing is expected: dead index
entries are not walked again and again. It is lowered by every wake-up and set anew by every look.

A client that has hung up when its jobs come gives them back at once, without using an attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

from windlass.db import Database, Statements
from windlass.engine.hands import Hands, Return, finish
from windlass.engine.hot import HotLanes
from windlass.engine.line import Ask, Handed, Handout, Line, Waiter
from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.errors import Unavailable, WindlassError
from windlass.ids import Ids
from windlass.queue import workers
from windlass.queue.claim import Claimed, Group, Want, claim, heads
from windlass.queue.lanes import Lane, LaneName, Lanes
from windlass.queue.limits import Limited, claim_limited

LOOK_S = 1.0
"""How often the heads of all lanes are looked at while somebody waits."""
LOOK_WITHOUT_NOTIFY_S = 0.2
LOOK_SHARE = 20
"""A look may take one part in so many of the time."""
PASS_S = 10.0
"""A pass over the lanes takes no longer: a database that fell silent must not keep everybody waiting."""
HASTY_S = 10.0
"""How long a caller that does not wait may wait for the database."""
STOP_S = 5.0
"""How long a stopping server waits for claims that are under way."""
FRESH_LOOK_S = 0.1
"""A worker that begins to wait is content with a look that is not older than this."""
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
        self._line = Line()
        self._hot = HotLanes()
        self._round_count = 0
        self._looked_at = float("-inf")
        self._look_at = float("-inf")
        self._look_again = False
        self._bells = (asyncio.Event(), asyncio.Event())
        self._over = False
        self._full: set[tuple[str, str]] = set()
        """Limited queues that have no room: (tenant, queue)."""
        wake.on_ready.append(self._ready)
        wake.on_freed.append(self._freed)
        wake.on_stop.append(self._line.stop)
        wake.on_all.append(self._look_soon)

    @property
    def waiting_count(self) -> int:
        """How many claims wait."""
        return len(self._line)

    async def claim(self, ask: Ask) -> Handout:
        """Return jobs, and jobs of the session to stop, as soon as there are some; nothing after the wait asked for."""
        if self._over:
            return Handout([])
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
            tasks.create_task(self._serve_limited(), name="dispatch-limited")

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

    def _freed(self, lane: int) -> None:
        """Ask a limited queue again: the room is the queue's, whichever of its lanes made it."""
        known = self._lanes.get(lane)
        if known is None:
            self._full.clear()
        else:
            self._full.discard((known.name.tenant, known.name.queue))
        self._bells[1].set()

    def _look_soon(self) -> None:
        self._look_again = True
        self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            bell.set()

    async def _serve_free(self) -> None:
        while True:
            await self._bell(self._bells[0])
            try:
                async with asyncio.timeout(PASS_S):
                    await self._look_if_due()
                    while await self._free_round():
                        pass
                self._line.served_free(lambda group: not self._has(group, limited=1))
            except TimeoutError:
                self._line.refuse(Unavailable(f"The database did not answer for {PASS_S:g} s. Try again."))
            except WindlassError as error:
                self._line.refuse(error)
            except Exception as error:
                logger.exception("A claim failed.")
                self._line.refuse(Unavailable(f"The claim failed: {type(error).__name__}. Try again."))
            finally:
                self._hands.answer_laden()

    async def _bell(self, bell: asyncio.Event) -> None:
        """Wait for the bell, but while somebody waits no longer than until the next look."""
        left_s = max(self._look_at - self._outside.monotonic(), 0.0) if len(self._line) else None
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await bell.wait()
        bell.clear()

    async def _look_if_due(self) -> None:
        """Look at the heads of all lanes: in due time, however often the bell rings, and for those who wait for it."""
        started = self._outside.monotonic()
        due = self._look_again or bool(self._line.discontent) or started >= self._look_at
        if not len(self._line) or not due:
            return
        self._look_again = False
        discontent = list(self._line.discontent)
        stamp = self._hot.stamp
        found = await heads(self._db)
        self._lanes.remember(lane for lane, _ in found)
        self._hot.looked(((lane.id, rank) for lane, rank in found), stamp=stamp)
        self._full.clear()
        self._looked_at = started
        cost_s = self._outside.monotonic() - started
        period_s = LOOK_S if self._db.capabilities.notify else LOOK_WITHOUT_NOTIFY_S
        # Servers that were started together need not look together.
        self._look_at = started + max(period_s * (0.9 + 0.2 * self._outside.chance()), LOOK_SHARE * cost_s)
        self._line.pacify(discontent)
        self._bells[1].set()

    async def _free_round(self) -> bool:
        """Claim once for all lines that can run something; return whether another round may find more."""
        await self._lanes.learn(self._db, self._hot)
        wanted = self._wanted()
        if not wanted:
            return False
        stamps = self._hot.stamps(number for _, numbers, _ in wanted for number in numbers)
        groups = [
            Group([Want(number, hint=self._hot.hint(number)) for number in numbers], [slot for slot, _ in slots])
            for _, numbers, slots in wanted
        ]
        slots = [pair for _, _, slots in wanted for pair in slots]
        jobs = await self._hands.claimed(slots, lambda db, _: claim(db, groups))
        self._hot.taken(jobs, stamps)
        full = self._hands.hand_out([(numbers, slots) for _, numbers, slots in wanted], jobs)
        if not jobs:
            self._hot.empty(stamps)
        for number, (group, _, taken) in enumerate(wanted):
            filled = full[number] == len(taken)
            # As long as all slots are filled and it can ask for more, nobody goes with less than there is.
            if not filled or group.grown:
                finish((None, waiter) for waiter in group.waiters)
            group.grow(filled)
        self._round_count += 1
        if len(jobs) < len(slots):
            await self._hands.dismiss_dead(slots)
        return True

    def _wanted(self) -> list[tuple[Line.Group, list[int], list[tuple[UUID, Waiter]]]]:
        """Return the lines to serve now: each with its lanes and its slots; a lane goes to one line, in turn."""
        free = [lane for lane in map(self._lanes.get, self._hot) if lane is not None and not lane.limited]
        taken: set[int] = set()
        wanted = []
        for group in self._line.groups(self._round_count):
            lanes = [lane for lane in free if lane.id not in taken and group.serves(lane)]
            if not lanes:
                continue
            slots = group.slots(self._ids.new, share=0.5 if self._has(group, limited=1) else 1.0)
            if slots:
                lanes.sort(key=lambda lane: self._hot.hint(lane.id))
                numbers = [lane.id for lane in lanes[:MOST_LANES]]
                taken.update(numbers)
                wanted.append((group, numbers, slots))
        return wanted

    def _has(self, group: Line.Group, *, limited: int) -> bool:
        """Say whether there are limited, or free, lanes with work for a group."""
        lanes = map(self._lanes.get, self._hot)
        return any(lane is not None and lane.limited == limited and group.serves(lane) for lane in lanes)

    async def _serve_limited(self) -> None:
        while True:
            await self._bells[1].wait()
            self._bells[1].clear()
            content = self._line.hasty_and_content()
            try:
                await self._lanes.learn(self._db, self._hot)
                for lanes in self._limited_queues():
                    await self._limited_pass(lanes)
            except WindlassError as error:
                # The other loop tells the waiting when the database is away.
                logger.debug("A claim from limited queues failed: %s", error)
            self._line.served_limited(content)
            if content:
                self._bells[0].set()

    async def _limited_pass(self, lanes: list[Lane]) -> None:
        """Serve one limited queue; whatever becomes of it, the others and those who wait go on."""
        try:
            async with asyncio.timeout(PASS_S):
                await self._limited_round(lanes)
        except (WindlassError, TimeoutError) as error:
            # A rival has its lock, and is claiming: it is asked again at the next look, or when a job of it ends.
            self._full.add((lanes[0].name.tenant, lanes[0].name.queue))
            logger.debug("A claim from a limited queue failed: %s", error)
        except Exception:
            logger.exception("A claim from a limited queue failed.")
        finally:
            self._hands.answer_laden()

    def _limited_queues(self) -> list[list[Lane]]:
        """Return the lanes of each limited queue that is believed to have ready jobs."""
        queues: dict[tuple[str, str], list[Lane]] = {}
        for lane in map(self._lanes.get, self._hot):
            if lane is not None and lane.limited and (lane.name.tenant, lane.name.queue) not in self._full:
                queues.setdefault((lane.name.tenant, lane.name.queue), []).append(lane)
        return list(queues.values())

    async def _limited_round(self, lanes: list[Lane]) -> None:
        """Claim from one limited queue, for each line that can run some of it, as long as it has room."""
        name = lanes[0].name.of_queue
        own = (await self._lanes.resolve(self._db, [name]))[name]
        for group in self._line.groups(self._round_count):
            numbers = [lane.id for lane in lanes if group.serves(lane) and lane.id in self._hot]
            share = 0.5 if self._has(group, limited=0) else 1.0
            slots = group.slots(self._ids.new, share=share, empty_handed=True) if numbers else []
            if not slots:
                continue
            stamps = self._hot.stamps(numbers)
            claiming = _FromLimited(own.id, numbers, slots)
            jobs = await self._hands.claimed(slots, claiming)
            self._hands.hand_out([(numbers, slots)], jobs)
            finish(slots)
            if claiming.answer.full:
                self._full.add((name.tenant, name.queue))
                if claiming.answer.again_s is not None:
                    self._again_in(claiming.answer.again_s, name)
                return
            if len(jobs) < len(slots):
                self._hot.empty(stamps)
                await self._hands.dismiss_dead(slots)

    def _again_in(self, pause_s: float, name: LaneName) -> None:
        """Ask a queue with a rate again when its next job may start."""

        def ask() -> None:
            self._full.discard((name.tenant, name.queue))
            self._bells[1].set()

        asyncio.get_running_loop().call_later(min(max(pause_s, 0.001), LOOK_S), ask)


class _FromLimited:
    """A claim from a limited queue, which keeps what it was told of the queue's room."""

    def __init__(self, queue: int, numbers: Sequence[int], slots: Sequence[tuple[UUID, Waiter]]) -> None:
        self._queue = queue
        self._numbers = numbers
        self._slots = [slot for slot, _ in slots]
        self.answer = Limited([])

    async def __call__(self, db: Statements, _: Sequence[UUID]) -> list[Claimed]:
        self.answer = await claim_limited(db, self._queue, self._numbers, self._slots)
        return self.answer.jobs
