"""Retries that are kept for the worker that failed them: it may claim them back at once, others wait for a while.

Which retries these are stands in the database, so it does not matter which server the worker asks. That there are some
is read with the session (sessions.py), and told by the server that hears of the failure, so that nobody believes an
older answer.
"""

from __future__ import annotations

from windlass.db import Database
from windlass.engine.line import Ask, Capability, Handed
from windlass.queue.claim import claim_back, kept_for
from windlass.queue.lanes import Lanes
from windlass.queue.workers import Session


async def claim_kept(db: Database, lanes: Lanes, ask: Ask, session: Session) -> list[Handed]:
    """Claim what is kept for the session and asked for; an empty list when nothing is."""
    if not session.kept:
        return []
    kept = await kept_for(db, session.id)
    await lanes.learn(db, kept.values())
    can = Capability.of(ask)
    served = [lease for lease, number in kept.items() if (lane := lanes.get(number)) and can.serves(lane.name)]
    jobs = await claim_back(db, served[: ask.count], session=session.id, tenant=session.tenant)
    named = ((job, lanes.get(job.lane)) for job in jobs)
    return [Handed(job, lane.name, session.lease_ms) for job, lane in named if lane is not None]
