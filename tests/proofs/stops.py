"""Stops: the holders of duties are stopped for longer than their lease, and go on when others have taken over.

    python -m tests.proofs stops [--faults 20] [--fast]

A stopped process knows nothing of the time that has passed. When it goes on it must find out that its duties are
another's before it writes anything for them. The witness in the database has every write to a duty's row and every
act of a duty, with the server that made it: none may be the woken one's until it has taken the duty in a higher term.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from tests.databases import connected
from tests.proofs import fleet as fleets
from tests.proofs import show, witness
from tests.proofs.failover import FAST_GOAL_S, FAST_MOST_S, GOAL_S, MOST_S, described, drained
from tests.proofs.fleet import Member
from tests.proofs.load import KINDS, Load
from tests.proofs.takeover import Takeover, measured, takeovers, victim_of
from tests.proofs.verdict import Line, verdict
from tests.proofs.witness import Connection, Leader
from windlass.shards import grouped

STOPPED_S, FAST_STOPPED_S = 9.0, 3.0
"""How long a holder is stopped, at the least: half as long again as its lease."""
AFTER_S, FAST_AFTER_S = 3.0, 1.5
"""How long a woken server is watched."""

CROWD, CROWD_S = 500, 1.0
"""Jobs that come due while a holder wakes, and within which time."""

# Writes of the woken server to a duty it had: only in a term of its own that is higher than its successor's first one.
STALE_LEASES = """
SELECT l.duty, l.term, l.at
  FROM proof.lease l JOIN unnest($3::text[], $4::int[]) AS old (duty, term) ON old.duty = l.duty
 WHERE l.role = $1 AND l.at > $2 AND l.term <= old.term + 1
"""
STALE_ACTS = """
SELECT a.duty, a.at FROM proof.act a JOIN unnest($3::text[]) AS old (duty) ON old.duty = a.duty
 WHERE a.role = $1 AND a.at > $2
   AND NOT EXISTS (SELECT 1 FROM proof.lease l WHERE l.role = $1 AND l.duty = a.duty AND l.at > $2 AND l.at <= a.at)
"""


async def prove(
    url: str, *, faults: int = 20, fast: bool = False, kinds: Sequence[str] = KINDS, log: Path | None = None
) -> list[Line]:
    """Stop holders so many times under load; return what was found."""
    done: list[Takeover] = []
    stale: list[str] = []
    silent: list[str] = []
    settings, renewal_s = (fleets.FAST, fleets.FAST_RENEWAL_S) if fast else (None, fleets.RENEWAL_S)
    async with fleets.running(url, settings=settings, log=log) as fleet, connected(url) as connection:
        load = Load(fleet.urls, kinds=kinds)
        async with load.flowing():
            for turn in range(faults):
                victim, lost = await victim_of(connection, fleet, turn=turn, within_s=renewal_s)
                heard = len(victim.process.lines)
                since_at = await witness.now(connection)
                victim.process.send(signal.SIGSTOP)
                took = await takeovers(connection, lost, since_at=since_at)
                done += took
                await until(connection, since_at, seconds=FAST_STOPPED_S if fast else STOPPED_S)
                # There is something to promote at every instant: a woken holder that does not look first is seen.
                [other, *_] = [member.url for member in fleet.members if member is not victim]
                await load.crowd(CROWD, within_s=CROWD_S, url=other)
                woken_at = await witness.now(connection)
                victim.process.send(signal.SIGCONT)
                await connection.execute(f"SELECT pg_sleep({FAST_AFTER_S if fast else AFTER_S:g})")
                stale += await woken(connection, victim, lost, woken_at=woken_at)
                silent += [f"{turn + 1}: {name}" for name in lost if not says_lost(victim, name, since=heard)]
                print(f"{turn + 1:3}. stopped {victim.role}: " + described(took), flush=True)
            drained_s = await load.drain(connection)
        lines = await verdict(load.ledger, url)
    taken, acts = measured(done)
    print(show.distribution("another has the duty", taken))
    print(show.distribution("another acts", acts))
    goal_s, most_s = (FAST_GOAL_S, FAST_MOST_S) if fast else (GOAL_S, MOST_S)
    return [
        show.within("another has the duty", taken, goal_s=goal_s, most_s=most_s),
        show.within("another acts", acts, goal_s=goal_s, most_s=most_s),
        Line("the woken holder changes nothing", f"{faults} stops, {len(done)} duties, {len(stale)} writes", stale),
        Line("the woken holder says that it lost them", f"{len(done) - len(silent)} of {len(done)}", silent),
        drained(drained_s),
        *lines,
    ]


async def until(connection: Connection, since_at: datetime, *, seconds: float) -> None:
    """Return when so many seconds have passed since an instant of the database's clock."""
    await connection.execute("SELECT pg_sleep_until($1)", since_at + timedelta(seconds=seconds))


async def woken(connection: Connection, victim: Member, lost: dict[str, Leader], *, woken_at: datetime) -> list[str]:
    """Return what a woken server has written for the duties that are no longer its own."""
    names, terms = list(lost), [leader.term for leader in lost.values()]
    leases = await connection.fetch(STALE_LEASES, victim.role, woken_at, names, terms)
    acts = await connection.fetch(STALE_ACTS, victim.role, woken_at, names)
    return [
        *(f"{victim.role} wrote the row of {row['duty']} in term {row['term']} at {row['at']}" for row in leases),
        *(f"{victim.role} did {row['duty']} at {row['at']}" for row in acts),
    ]


def says_lost(victim: Member, name: str, *, since: int) -> bool:
    """Say whether the server has told that a duty is no longer its own."""
    [called] = grouped([name], among=[name])
    whole = re.escape(called.partition(" ")[0])
    return any(re.search(rf'duty\.lost .*duty="?{whole}\b', line) for line in victim.process.lines[since:])
