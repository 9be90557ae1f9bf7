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
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

from windlass.db import Database
from windlass.engine.fair import Recent
from windlass.engine.hands import FromLimited, Hands, Return, finish
from windlass.engine.hot import HotLanes, HotQueues
from windlass.engine.line import Ask, Handed, Handout, Line, Turns, Waiter, shares
from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.errors import Unavailable, WindlassError
from windlass.ids import Ids
from windlass.queue import workers
from windlass.queue.claim import Group, Want, claim, heads
from windlass.queue.lanes import Lane, LaneName, Lanes

LOOK_S = 1.0
"""How often the heads of all lanes are looked at while somebody waits."""
LOOK_WITHOUT_NOTIFY_S = 0.2
LOOK_SHARE = 20
"""A look may take one part in so many of the time."""
ROUND_S = 10.0
"""A look or a claim takes no longer: a database that fell silent must not keep everybody waiting."""
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
MOST_LOOKED = 20_000
"""Lanes and queue names that are looked at in one round for the claims of a tenant: 2 ms. The next round goes on."""
MOST_LIMITED = 4
"""Claims from limited queues of one tenant that are made in one pass, before those of others get their turn."""

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
        self._turns, self._limited_turns = Turns(), Turns()
        self._looked_for: set[Line.Group] = set()
        """The groups for which the free loop has looked in this pass."""
        self._looked_at = self._look_at = float("-inf")
        self._look_again = self._over = False
        self._bells = (asyncio.Event(), asyncio.Event())
        self._stops: dict[UUID | None, list[UUID]] = {}
        """Jobs to stop of sessions that did not wait just then: their next claim tells."""
        self._freed_count = 0
        self._full: set[tuple[str, str]] = set()
        """Limited queues that have no room: (tenant, queue)."""
        wake.on_ready.append(self._ready)
        wake.on_freed.append(self._freed)
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
        self._freed_count += 1
        known = self._lanes.get(lane)
        if known is None:
            self._full.clear()
        else:
            self._full.discard((known.name.tenant, known.name.queue))
        self._bells[1].set()

    def _stop(self, session: UUID, job_id: UUID) -> None:
        if not self._line.stop(session, job_id):
            while len(self._stops) >= MOST_STOPS:
                del self._stops[next(iter(self._stops))]
            self._stops.setdefault(session, []).append(job_id)

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
                async with asyncio.timeout(ROUND_S):
                    await self._look_if_due()
                self._looked_for.clear()
                going_on = True
                while going_on:
                    async with asyncio.timeout(ROUND_S):
                        going_on = await self._free_round()
                    # Under steady load there is always another round: looks, and those who do not wait, come between.
                    if self._look_is_due() and not self._hands.has_laden:
                        self._bells[0].set()
                        break
                self._line.served_free(self._looked_for)
            except TimeoutError:
                self._line.refuse(Unavailable(f"The database did not answer for {ROUND_S:g} s. Try again."))
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
        if not self._look_is_due():
            return
        self._look_again = False
        period_s = LOOK_S if self._db.capabilities.notify else LOOK_WITHOUT_NOTIFY_S
        # Servers that were started together need not look together.
        # Set before the look, so that one that fails is not repeated at once.
        self._look_at = started + period_s * (0.9 + 0.2 * self._outside.chance())
        discontent = list(self._line.discontent)
        stamp = self._hot.stamp
        found = await heads(self._db)
        self._lanes.remember(lane for lane, _ in found)
        self._hot.looked(((lane.id, rank) for lane, rank in found), stamp=stamp)
        self._full.clear()
        self._looked_at = started
        cost_s = self._outside.monotonic() - started
        self._look_at = max(self._look_at, started + LOOK_SHARE * cost_s)
        self._line.pacify(discontent)
        self._bells[1].set()

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
                group.capability.tenant,
            )
            for group, numbers, slots in wanted
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
        if len(jobs) < len(slots):
            await self._hands.dismiss_dead(slots)
        return True

    def _wanted(self, groups: Sequence[Line.Group]) -> list[tuple[Line.Group, list[int], list[tuple[UUID, Waiter]]]]:
        """Return the lines to serve now: each with its lanes and its slots; a lane goes to one line, in turn."""
        taken: set[int] = set()
        wanted = []
        able = self._able(groups)
        left = shares({group.capability.tenant for group, _ in able} | self._recent.tenants())
        for group, found in able:
            lanes = [lane for lane in found if not lane.limited and lane.id not in taken]
            share = 0.5 if any(lane.limited for lane in found) else 1.0
            slots = group.slots(self._ids.new, share=share, most=left[group.capability.tenant]) if lanes else []
            if slots:
                left[group.capability.tenant] -= len(slots)
                lanes.sort(key=lambda lane: self._hot.hint(lane.id))
                numbers = [lane.id for lane in lanes[:MOST_LANES]]
                taken.update(numbers)
                wanted.append((group, numbers, slots))
        return wanted

    def _able(self, groups: Sequence[Line.Group]) -> list[tuple[Line.Group, list[Lane]]]:
        """Return the groups for which free lanes hold work, with their lanes.

        Where a tenant has very many groups and lanes, the rounds after this one look for the rest.
        """
        able, idle, left = [], set(), set()
        looked: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for group in groups:
            can = group.capability
            if looked[can.tenant] >= MOST_LOOKED:
                left.add(can.tenant)
                continue
            lanes = self._queues.of(can.tenant, can.queues)
            looked[can.tenant] += len(lanes) + len(can.queues)
            counts[can.tenant] += 1
            found = [lane for lane in lanes if group.serves(lane)]
            group.has_free = not all(lane.limited for lane in found)
            had_limited, group.has_limited = group.has_limited, any(lane.limited for lane in found)
            if group.has_limited and not had_limited:
                self._bells[1].set()
            if group.has_free:
                able.append((group, found))
            else:
                idle.add(group)
        self._looked_for |= idle
        self._looked_for.update(group for group, _ in able)
        self._turns.served({tenant: counts[tenant] for tenant in left})
        self._line.served_free(idle)
        return able

    async def _serve_limited(self) -> None:
        while True:
            await self._bells[1].wait()
            self._bells[1].clear()
            content = self._line.hasty_and_content()
            unserved: set[str] = set()
            try:
                unserved = await self._limited_pass()
            except WindlassError as error:
                # The other loop tells the waiting when the database is away.
                logger.debug("A claim from limited queues failed: %s", error)
            self._line.served_limited(content, unserved)
            if unserved:
                self._bells[1].set()
                await asyncio.sleep(0)
            if content:
                self._bells[0].set()

    async def _limited_pass(self) -> set[str]:
        """Serve the limited queues; return the tenants that want more claims than a pass makes."""
        await self._queues.learn(self._db)
        tenants: dict[str, list[list[Lane]]] = {}
        for queue, lanes in self._queues.limited():
            if queue not in self._full:
                tenants.setdefault(queue[0], []).append(lanes)
        claims: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        unserved: set[str] = set()
        for lanes in self._limited_turns.order(tenants):
            tenant = lanes[0].name.tenant
            if claims[tenant] < MOST_LIMITED:
                counts[tenant] += 1
                claims[tenant] += await self._served_limited(lanes)
            if claims[tenant] >= MOST_LIMITED:
                unserved.add(tenant)
        self._limited_turns.served({tenant: counts[tenant] for tenant in unserved})
        return unserved

    async def _served_limited(self, lanes: list[Lane]) -> int:
        """Serve one limited queue, whatever becomes of it; return how many claims were made."""
        freed = self._freed_count
        try:
            async with asyncio.timeout(ROUND_S):
                return await self._limited_round(lanes)
        except (WindlassError, TimeoutError) as error:
            # A rival has its lock, and is claiming: it is asked again at the next look, or when a job of it ends.
            self._no_room(lanes[0].name, freed)
            logger.debug("A claim from a limited queue failed: %s", error)
        except Exception:
            logger.exception("A claim from a limited queue failed.")
        finally:
            self._hands.answer_laden()
        return 1

    async def _limited_round(self, lanes: list[Lane]) -> int:
        """Claim from one limited queue, for a few lines that can run some of it, as long as it has room."""
        name = lanes[0].name.of_queue
        own = (await self._lanes.resolve(self._db, [name]))[name]
        count = 0
        for group in self._line.groups(self._turns):
            can_run = group.has_limited and group.capability.tenant == name.tenant
            numbers = [lane.id for lane in lanes if can_run and group.serves(lane) and lane.id in self._hot]
            share = 0.5 if group.has_free else 1.0
            slots = group.slots(self._ids.new, share=share, empty_handed=True) if numbers else []
            if not slots:
                continue
            if count >= MOST_LIMITED:
                break
            count += 1
            stamps = self._hot.stamps(numbers)
            freed = self._freed_count
            claiming = FromLimited(own.id, numbers, slots)
            jobs = await self._hands.claimed(slots, claiming)
            self._hands.hand_out([(numbers, slots)], jobs)
            finish(slots)
            if claiming.answer.full:
                self._no_room(name, freed)
                if claiming.answer.again_s is not None:
                    self._again_in(claiming.answer.again_s, name)
                break
            if len(jobs) < len(slots):
                self._hot.empty(stamps)
                await self._hands.dismiss_dead(slots)
        return count

    def _no_room(self, name: LaneName, freed: int) -> None:
        """Ask a queue again when one of its leases ends: now, if one did since `freed` was read."""
        if freed == self._freed_count:
            self._full.add((name.tenant, name.queue))
        else:
            self._bells[1].set()

    def _again_in(self, pause_s: float, name: LaneName) -> None:
        """Ask a queue with a rate again when its next job may start."""

        def ask() -> None:
            self._full.discard((name.tenant, name.queue))
            self._bells[1].set()

        asyncio.get_running_loop().call_later(min(max(pause_s, 0.001), LOOK_S), ask)
