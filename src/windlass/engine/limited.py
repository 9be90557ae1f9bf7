"""The loop that claims from limited queues, on a connection of its own: a queue's lock never keeps the others waiting.

The other loop (dispatch.py) looks which lines can run something of which limited queue; only these are visited. A pass
makes a few claims for each tenant and looks at so many lanes, then it is others' turn; the next pass goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from windlass.db import Database
from windlass.engine.hands import ROUND_S, FromLimited, Hands, finish
from windlass.engine.hot import MOST_LOOKED, HotLanes, HotQueues
from windlass.engine.line import Line, Turns
from windlass.errors import WindlassError
from windlass.ids import Ids
from windlass.queue import claim
from windlass.queue.lanes import LaneName, Lanes

MOST_LIMITED = 4
"""Claims from limited queues of one tenant that are made in one pass, before those of others get their turn."""
MOST_PAUSE_S = 1.0
"""A queue with a rate is asked again after so long at most."""
REST_S = 0.01
"""Before the next pass after one that could claim nothing: those who wait are being served by the other loop."""

logger = logging.getLogger("windlass")


class _Allowance:
    """The claims and the lanes that a pass may still spend on one tenant."""

    def __init__(self, looks: int) -> None:
        self.claims, self.looks = MOST_LIMITED, looks

    @property
    def spent(self) -> bool:
        return self.claims <= 0 or self.looks <= 0


class LimitedQueues:
    """The limited queues that may have room now, and the loop that claims from them."""

    def __init__(
        self,
        db: Database,
        lanes: Lanes,
        ids: Ids,
        *,
        line: Line,
        hot: HotLanes,
        queues: HotQueues,
        hands: Hands,
        ring_free: Callable[[], None],
    ) -> None:
        self._db, self._lanes, self._ids = db, lanes, ids
        self._line, self._demands = line, line.demands
        self._hot, self._queues, self._hands = hot, queues, hands
        self._ring_free = ring_free
        self._turns = Turns()
        self._bell = asyncio.Event()
        self._freed_count = 0
        self._full: set[tuple[str, str]] = set()
        """Queues that have no room: (tenant, queue)."""

    def ring(self) -> None:
        """Make a pass."""
        self._bell.set()

    def freed(self, lane: int) -> None:
        """Ask a queue again: the room is the queue's, whichever of its lanes made it."""
        self._freed_count += 1
        known = self._lanes.get(lane)
        if known is None:
            self._full.clear()
        else:
            self._full.discard((known.name.tenant, known.name.queue))
        self.ring()

    def looked(self) -> None:
        """Ask all queues again, after a look at all lanes."""
        self._full.clear()
        self.ring()

    async def serve(self) -> None:
        """Claim whenever the bell rings, until cancelled."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            rest_s: float | None = None
            try:
                rest_s = await self._pass()
            except WindlassError as error:
                # The other loop tells the waiting when the database is away.
                logger.debug("A claim from limited queues failed: %s", error)
            if self._line.served_limited():
                self._ring_free()
            if rest_s is not None:
                self.ring()
            await asyncio.sleep(rest_s or 0)

    async def _pass(self) -> float | None:
        """Visit the queues that somebody waits for; return when the next pass is due if there is more to do."""
        await self._queues.learn(self._db)
        tenants: dict[str, list[tuple[str, str]]] = {}
        for queue in self._demands:
            if queue not in self._full:
                tenants.setdefault(queue[0], []).append(queue)
        allowances = {tenant: _Allowance(max(MOST_LOOKED // len(tenants), 1)) for tenant in tenants}
        counts: Counter[str] = Counter()
        for queue in self._turns.order(tenants):
            tenant = queue[0]
            if not allowances[tenant].spent:
                counts[tenant] += 1
                await self._visit(queue, allowances[tenant])
                await asyncio.sleep(0)
        left = {tenant: counts[tenant] for tenant, allowance in allowances.items() if allowance.spent}
        self._turns.served(left)
        if not left:
            return None
        return 0 if any(allowance.claims < MOST_LIMITED for allowance in allowances.values()) else REST_S

    async def _visit(self, queue: tuple[str, str], allowance: _Allowance) -> None:
        """Claim from one queue, whatever becomes of it, for the lines that can run some of it."""
        visit, freed = self._demands.visit(), self._freed_count
        try:
            for group in self._demands.of(queue):
                if allowance.spent or queue in self._full:
                    break
                if queue[1] in group.limited and group.waiters:
                    async with asyncio.timeout(ROUND_S):
                        await self._claim(queue, group, allowance)
        except (WindlassError, TimeoutError) as error:
            # A rival has its lock, and is claiming: it is asked again at the next look, or when a job of it ends.
            self._no_room(queue, freed, visit)
            logger.debug("A claim from a limited queue failed: %s", error)
        except Exception:
            self._demands.refused(queue, visit)
            logger.exception("A claim from a limited queue failed.")
        finally:
            self._hands.answer_laden()

    async def _claim(self, queue: tuple[str, str], group: Line.Group, allowance: _Allowance) -> None:
        """Claim once for a line."""
        numbers = self._runnable(queue, group, allowance)
        if not numbers:
            return  # and no lane is made: the first use of a deleted tenant's name would bring the tenant back
        name, share = LaneName(*queue), 0.5 if group.has_free else 1.0
        own = (await self._lanes.resolve(self._db, [name]))[name]
        numbers = [number for number in numbers if number in self._hot]  # the other loop may have found some empty
        slots = group.slots(self._ids.new, share=share, empty_handed=True) if queue[1] in group.limited else []
        if not numbers or not slots:
            return
        allowance.claims -= 1
        visit, freed = self._demands.visit(group, queue[1]), self._freed_count
        stamps = self._hot.stamps(numbers)
        claiming = FromLimited(own.id, numbers, slots)
        jobs = await self._hands.claimed(slots, claiming)
        self._hands.hand_out([(numbers, slots)], jobs)
        finish(slots)
        if claiming.answer.full:
            self._no_room(queue, freed, visit)
            if claiming.answer.again_s is not None:
                self._again_in(claiming.answer.again_s, queue)
        elif len(jobs) < len(slots) and sum(job.size for job in jobs) < claim.MOST_BYTES // 2:
            self._hot.empty(stamps.items())
            if self._runnable(queue, group, allowance):
                self._demands.visited(group, queue[1], visit)
            await self._hands.dismiss_dead(slots)
        else:
            self.ring()  # for those of the line who had no slot, or whose jobs were too long for this claim

    def _runnable(self, queue: tuple[str, str], group: Line.Group, allowance: _Allowance) -> list[int]:
        """Return the lanes of a queue that a line can run; with none, the line does not wait for the queue any more."""
        lanes = self._queues.of(queue[0], [queue[1]])
        allowance.looks -= 1 + len(lanes)
        numbers = [lane.id for lane in lanes if lane.limited and group.serves(lane)]
        if not numbers:
            self._demands.cannot_run(group, queue[1])
        return numbers

    def _no_room(self, queue: tuple[str, str], freed: int, visit: int) -> None:
        """Ask a queue again when one of its leases ends: now, if one did since `freed` was read."""
        if freed == self._freed_count:
            self._full.add(queue)
            self._demands.refused(queue)
        else:
            self._demands.refused(queue, visit)
            self.ring()

    def _again_in(self, pause_s: float, queue: tuple[str, str]) -> None:
        """Ask a queue with a rate again when its next job may start."""

        def ask() -> None:
            self._full.discard(queue)
            self.ring()

        asyncio.get_running_loop().call_later(min(max(pause_s, 0.001), MOST_PAUSE_S), ask)
