"""Retries that are kept for the worker that failed them: it may claim them back at once, others wait for a while.

Remembered by the server that heard of the failure; a worker that asks another gets them when the window is over.
"""

from __future__ import annotations

from uuid import UUID

from windlass.db import Database
from windlass.engine.line import Ask, Capability, Handed
from windlass.queue.claim import claim_back
from windlass.queue.lanes import Lanes
from windlass.queue.workers import Session

MOST = 10_000
"""Sessions for which they are remembered."""


class KeptBack:
    """Which retries each session may claim back: (job, fence), each with its lane."""

    def __init__(self, db: Database, lanes: Lanes) -> None:
        self._db = db
        self._lanes = lanes
        self._kept: dict[UUID, dict[tuple[UUID, int], int]] = {}

    def keep(self, session: UUID, lease: tuple[UUID, int], *, lane: int) -> None:
        """Remember that a session may claim a job back."""
        while len(self._kept) >= MOST:
            del self._kept[next(iter(self._kept))]
        self._kept.setdefault(session, {})[lease] = lane

    async def claim(self, ask: Ask, session: Session) -> list[Handed]:
        """Claim what is kept for the session and asked for; an empty list when nothing is."""
        kept = self._kept.get(session.id)
        if not kept:
            return []
        await self._lanes.learn(self._db, kept.values())
        can = Capability(ask.tenant, ask.queues, ask.tasks, ask.labels)
        served = [lease for lease, lane in kept.items() if (known := self._lanes.get(lane)) and can.serves(known.name)]
        served = served[: ask.count]
        jobs = await claim_back(self._db, served, session=session.id, tenant=session.tenant)
        for lease in served:
            kept.pop(lease, None)
        if not kept:
            self._kept.pop(session.id, None)
        named = ((job, self._lanes.get(job.lane)) for job in jobs)
        return [Handed(job, lane.name, session.lease_ms) for job, lane in named if lane is not None]
