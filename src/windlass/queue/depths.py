"""Depths: how many jobs wait and run, queue by queue, at a cost that does not grow with a backlog.

Up to `MOST` rows of each kind are counted exactly; beyond that a depth is what was counted and says so.
*Depth* and *pending* mean due and claimable now: jobs that a pause holds are told apart, others by their own states.
Read by the overview and the metrics (stats.py), by the lists of queues (queues.py) and by scaling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from windlass.db import Row, Statements, load
from windlass.job import State

SQL = load(__file__)

MOST = 100_000
"""How many rows of a kind are counted."""
FIRST_LOOK = 1000
"""How many of a lane are counted before it is known which lanes are long."""
LEASED, WAITING, TIMED = 1, 2, 3
"""The sources of the query `elsewhere`."""


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in a state; of `queued` those that are due and claimable now."""

    tenant: str
    queue: str
    state: State
    jobs: int
    held: int = 0
    """Of `queued`: those that a pause of the job, the queue or the tenant keeps back."""
    exact: bool = True
    """False: there are at least so many."""


class Wait(msgspec.Struct, frozen=True):
    """How long the claimable job of a queue that waits longest has been due."""

    tenant: str
    queue: str
    waited_s: float


async def depths(
    db: Statements, tenant: str | None = None, *, queues: Sequence[str] | None = None, most: int = MOST
) -> list[Depth]:
    """Return how many jobs are in each live state and dead, of each queue; states without a job are left out.

    Of one tenant or of all, of some queues or of all.
    """
    lanes = await _lanes(db, tenant, queues)
    jobs: Counter[tuple[str, str, State]] = Counter()
    held: Counter[tuple[str, str, State]] = Counter()
    estimates: set[tuple[str, str, State]] = set()
    for row, limit in await _ready_and_dead(db, list(lanes), most):
        lane = lanes[row["lane"]]
        queued, dead = ((lane["tenant"], lane["queue"], state) for state in (State.QUEUED, State.DEAD))
        (held if lane["paused"] else jobs)[queued] += row["ready"]
        jobs[dead] += row["dead"]
        estimates |= {key for key, name in ((queued, "ready"), (dead, "dead")) if row[name] >= limit}
    rows = await db.fetch(SQL.elsewhere, most=most)
    for row in rows:
        if row["state"] is not None and row["lane"] in lanes:
            lane, state = lanes[row["lane"]], State(row["state"])
            (held if state is State.QUEUED else jobs)[lane["tenant"], lane["queue"], state] += row["jobs"]
    partial = _partly_read(rows, most)
    return [
        Depth(
            tenant=key[0],
            queue=key[1],
            state=key[2],
            jobs=jobs[key],
            held=held[key],
            exact=key not in estimates and key[2] not in partial,
        )
        for key in sorted(jobs.keys() | held.keys())
        if jobs[key] or held[key]
    ]


async def longest_waits(
    db: Statements, tenant: str | None = None, *, queues: Sequence[str] | None = None
) -> list[Wait]:
    """Return for each queue with a claimable job how long the one that waits longest has been due."""
    lanes = {number: lane for number, lane in (await _lanes(db, tenant, queues)).items() if not lane["paused"]}
    waits: dict[tuple[str, str], int] = {}
    for row in await db.fetch(SQL.longest_waits, lanes=list(lanes)):
        name = (lanes[row["lane"]]["tenant"], lanes[row["lane"]]["queue"])
        waits[name] = max(waits.get(name, 0), row["waited_ms"])
    return [Wait(*name, waited_ms / 1000) for name, waited_ms in sorted(waits.items())]


async def _lanes(db: Statements, tenant: str | None, queues: Sequence[str] | None) -> dict[int, Row]:
    asked = None if queues is None else list(queues)
    return {row["number"]: row for row in await db.fetch(SQL.lanes_counted, tenant=tenant, queues=asked)}


async def _ready_and_dead(db: Statements, lanes: list[int], most: int) -> list[tuple[Row, int]]:
    """Return the counts of each lane with the limit they were counted to.

    Long lanes share what is left of `most`, so that one of them beside a thousand empty ones is counted far.
    """
    first = max(1, min(FIRST_LOOK, most // max(1, len(lanes))))
    rows = await db.fetch(SQL.ready_and_dead, lanes=lanes, most=first)
    long = [row["lane"] for row in rows if max(row["ready"], row["dead"]) >= first]
    if not long:
        return [(row, first) for row in rows]
    # One more than is exact, so that a lane of just so many is told exactly.
    further = max(first, most // len(long) + 1)
    again = await db.fetch(SQL.ready_and_dead, lanes=long, most=further)
    return [(row, first) for row in rows if row["lane"] not in set(long)] + [(row, further) for row in again]


def _partly_read(rows: Iterable[Row], most: int) -> frozenset[State]:
    """Return the states of which only a part was read."""
    read: Counter[int] = Counter()
    for row in rows:
        read[row["source"]] += row["jobs"]
    states = {
        LEASED: {State.ASSIGNED, State.RUNNING, State.CANCELLING},
        WAITING: {State.BLOCKED},
        TIMED: {State.SCHEDULED, State.SLEEPING},
    }
    return frozenset(state for source, found in states.items() if read[source] >= most for state in found)
