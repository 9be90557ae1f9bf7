"""Takeovers: how long it takes until another server has the duties of one that is dead or stopped, and acts for them.

Both are read from the duties' own rows, in the database's time: when another holder began a higher term, and when it
first ran. A duty that works every half second runs at once; one of a longer pace keeps its pace, so of it only the
taking is measured.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tests.proofs import witness
from tests.proofs.fleet import Fleet, Member
from tests.proofs.witness import Connection, Leader

PATIENCE_S = 30.0
SPREAD_S = 15.0
"""How long the servers may take to share the duties before the next fault."""

TAKEN = """
SELECT min(at) AS at FROM proof.lease WHERE duty = $1 AND term > $2 AND holder IS NOT NULL AND holder <> $3
"""

RESIGNED = "SELECT count(*) FROM proof.lease WHERE duty = $1 AND term = $2 AND holder IS NULL"


class Takeover(msgspec.Struct, frozen=True):
    """A duty that changed hands: how long after the fault another had it, and acted (None: it has a longer pace)."""

    duty: str
    term: int
    taken_s: float
    acts_s: float | None


async def victim_of(
    connection: Connection, fleet: Fleet, *, turn: int, within_s: float
) -> tuple[Member, dict[str, Leader]]:
    """Return the server that holds the duty whose turn it is, with all its duties.

    Before, every server gets some duties; then a while of up to `within_s` passes, so that the fault comes at any
    moment between two renewals and not always right after one.
    """
    give_up_s = time.monotonic() + SPREAD_S
    while not await _spread(connection, fleet) and time.monotonic() < give_up_s:
        await connection.execute("SELECT pg_sleep(0.05)")
    await connection.execute("SELECT pg_sleep($1)", random.uniform(0.0, within_s))
    while time.monotonic() < give_up_s + PATIENCE_S:
        told = await fleet.holders()
        member = fleet.by_pid(told[sorted(told)[turn % len(told)]])
        if member is not None:
            found = await witness.leaders(connection)
            return member, {name: leader for name, leader in found.items() if leader.pid == member.process.pid}
    raise AssertionError(f"nobody has the duty: {told}")


async def _spread(connection: Connection, fleet: Fleet) -> bool:
    """Say whether every server has a duty."""
    holders = {leader.pid for leader in (await witness.leaders(connection)).values()}
    return all(member.process.pid in holders for member in fleet.members)


async def takeovers(
    connection: Connection, lost: dict[str, Leader], *, since_at: datetime, given_up: bool = False
) -> list[Takeover]:
    """Wait until other servers have these duties and act for them; return how long each took since the fault.

    A duty that nobody acts for, however long one waits, has taken for ever. One that its holder was just giving up when
    the fault came tells nothing of the fault, and is left out, unless all are `given_up`.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    left = dict(lost)
    done: list[Takeover] = []
    while left:
        if time.monotonic() > deadline_s:
            return [*done, *(Takeover(name, leader.term, math.inf, math.inf) for name, leader in left.items())]
        now = await witness.leaders(connection)
        for name, before in list(left.items()):
            leader = now[name]
            taken_at = await connection.fetchval(TAKEN, name, before.term, before.holder)
            if taken_at is None or leader.term <= before.term:
                continue
            if not given_up and await connection.fetchval(RESIGNED, name, before.term):
                del left[name]
                continue
            acts_at = leader.last_run_at
            if name in witness.FREQUENT and (acts_at is None or acts_at <= taken_at):
                continue
            acts_s = None
            if name in witness.FREQUENT:
                assert acts_at is not None
                acts_s = (await _first_act_at(connection, name, taken_at, acts_at) - since_at).total_seconds()
            done.append(Takeover(name, leader.term, (taken_at - since_at).total_seconds(), acts_s))
            del left[name]
        await connection.execute("SELECT pg_sleep(0.02)")
    return done


async def _first_act_at(connection: Connection, name: str, taken_at: datetime, acts_at: datetime) -> datetime:
    """Return when the duty first did something after it was taken, or ran if that was before.

    The row tells the last run before a renewal, which may not be the first: an act that the witness saw may be earlier.
    """
    seen_at = await connection.fetchval("SELECT min(at) FROM proof.act WHERE duty = $1 AND at > $2", name, taken_at)
    return acts_at if seen_at is None else min(seen_at, acts_at)


def measured(done: Sequence[Takeover]) -> tuple[list[float], list[float]]:
    """Return all times until a duty was taken, and until somebody acted for it."""
    return [each.taken_s for each in done], [each.acts_s for each in done if each.acts_s is not None]
