"""Failover: the holders of duties are killed under load, one after the other, and others take over.

    python -m tests.proofs failover [--faults 20] [--fast]

Two servers on one PostgreSQL. Each time the duty whose turn it is names its holder, which gets SIGKILL; measured is how
long all its duties wait for another server. The killed one is started again. At the end nothing is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.databases import connected
from tests.proofs import fleet as fleets
from tests.proofs import show, witness
from tests.proofs.load import KINDS, Load
from tests.proofs.takeover import Takeover, measured, takeovers, victim_of
from tests.proofs.verdict import Line, verdict

GOAL_S, MOST_S = 7.0, 8.0
"""At the default lease of 6 s: lease + 1 s, and what is required."""
FAST_GOAL_S, FAST_MOST_S = 3.0, 8.0
"""At a lease of 2 s, where tests keep the machine busy beside it."""


async def prove(
    url: str, *, faults: int = 20, fast: bool = False, kinds: Sequence[str] = KINDS, log: Path | None = None
) -> list[Line]:
    """Kill holders so many times under load; return what was found."""
    done: list[Takeover] = []
    settings, renewal_s = (fleets.FAST, fleets.FAST_RENEWAL_S) if fast else (None, fleets.RENEWAL_S)
    async with fleets.running(url, settings=settings, log=log) as fleet, connected(url) as connection:
        load = Load(fleet.urls, kinds=kinds)
        async with load.flowing():
            for turn in range(faults):
                victim, lost = await victim_of(connection, fleet, turn=turn, within_s=renewal_s)
                since_at = await witness.now(connection)
                await victim.kill()
                took = await takeovers(connection, lost, since_at=since_at)
                done += took
                print(f"{turn + 1:3}. killed {victim.role}: " + described(took), flush=True)
                await victim.start()
            drained_s = await load.drain(connection)
        lines = await verdict(load.ledger, url)
    taken, acts = measured(done)
    print(show.distribution("another has the duty", taken))
    print(show.distribution("another acts", acts))
    goal_s, most_s = (FAST_GOAL_S, FAST_MOST_S) if fast else (GOAL_S, MOST_S)
    return [
        show.within("another has the duty", taken, goal_s=goal_s, most_s=most_s),
        show.within("another acts", acts, goal_s=goal_s, most_s=most_s),
        drained(drained_s),
        *lines,
    ]


def described(took: list[Takeover]) -> str:
    """Return what became of some duties, in a line."""
    return ", ".join(
        f"{each.duty} {each.taken_s:.2f}" + ("" if each.acts_s is None else f"/{each.acts_s:.2f}") for each in took
    )


def drained(drained_s: float | None) -> Line:
    """Return whether everything ended by itself once nothing more came."""
    return Line("drained", "no" if drained_s is None else f"in {drained_s:.1f} s", ["jobs stay"] * (drained_s is None))
