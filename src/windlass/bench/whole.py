"""`windlass bench whole`: the product from submit to result, with real workers, beside peers of the same run.

`drain`: jobs submitted beforehand are run to their end; `pickup`: from a submit to the beginning of the body, one job
at a time; `sleep`: many async jobs that sleep at once, and what they cost.
Sides take turns, round by round (wholeside.py); the median counts, and a ratio is that of one round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import msgspec

from windlass.bench.http import Goal, percentile
from windlass.bench.wholeours import ASYNC_SLOTS, THREADS, InProcess, OverHttp
from windlass.bench.wholepeers import PEERS, PeerSide, installed
from windlass.bench.wholeside import Drained, Side, drained, picked_up_ms
from windlass.bench.wholesleep import Crowd, slept
from windlass.errors import SetupError

PARTS = ("drain", "pickup", "sleep")
MEASURE = "PGQueuer"
"""The side that ratios are of."""
PICKUPS = 200
NAP_S = 20.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, where, and how much."""

    postgres: str | None
    sqlite: str
    parts: tuple[str, ...] = PARTS
    peers: bool = False
    jobs: int = 50_000
    rounds: int = 3
    pickups: int = PICKUPS
    crowds: tuple[Crowd, ...] = ()
    nap_s: float = NAP_S

    @property
    def step_count(self) -> int:
        """How many steps there are to be told of, at most."""
        entrants = our_entrants(self)
        peers = len(PEERS) if self.peers else 0
        steps = peers
        if "drain" in self.parts:
            steps += self.rounds * (len(entrants) + peers)
        if "pickup" in self.parts:
            steps += sum(one.pickup for one in entrants) + sum(peer.analysed for peer in PEERS[:peers])
        if "sleep" in self.parts and self.postgres is not None:
            steps += len(self.crowds)
        return steps


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the result."""

    part: str
    name: str
    jobs: int
    value: float | None
    """None: not available."""
    unit: str
    spread: tuple[float, float] | None = None
    ratio: float | None = None
    """To PGQueuer, the median of rounds that followed each other."""
    cpu_us: dict[str, float] = {}
    """Microseconds of CPU for one job, by who used them; medians."""
    goal: Goal | None = None
    ratio_goal: float | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what stands in the file."""
        return msgspec.structs.asdict(self) | {"goal": None if self.goal is None else self.goal.at, "met": self.met}

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None if there is none, or nothing to compare with."""
        if self.goal is not None and self.value is not None:
            return self.goal.met(self.value)
        if self.ratio_goal is not None and self.ratio is not None:
            return self.ratio >= self.ratio_goal
        return None


class Entrant(msgspec.Struct, frozen=True, kw_only=True):
    """A side, and what is said of it."""

    side: Side
    share: float = 1.0
    ratio_goal: float | None = None
    goal: Goal | None = None
    pickup: bool = True
    """Whether its pickup is timed."""
    pickup_goal: Goal | None = None
    is_peer: bool = False
    compared: bool = True
    """Whether its rate is set against the measure: what is on SQLite is not."""
    note: str = ""


def our_entrants(plan: Plan) -> list[Entrant]:
    """Return our own sides."""
    found = []
    if plan.postgres is not None:
        url = plan.postgres
        found += [
            Entrant(
                side=OverHttp("over HTTP, 2 worker processes", url, task="noop", processes=2),
                ratio_goal=1.0,
                pickup_goal=Goal(6, at_most=True),
                note=f"async task, {ASYNC_SLOTS} slots; server, fleet and 2 runners; results and history kept",
            ),
            Entrant(
                side=OverHttp(
                    "over HTTP, 2 worker processes, threads", url, task="plain", processes=2, threads=THREADS
                ),
                note=f"the same with a plain function, {THREADS} threads",
            ),
            Entrant(
                side=InProcess("in-process, 2 processes", url, task="noop", processes=2),
                ratio_goal=2.0,
                pickup=False,
                note=f"async task, {ASYNC_SLOTS} slots; engine and worker in each; results and history kept",
            ),
            Entrant(side=InProcess("in-process, 1 process", url, task="noop", processes=1), note="the same, one"),
            Entrant(
                side=InProcess("in-process, 1 process, threads", url, task="plain", processes=1, threads=THREADS),
                pickup=False,
                note=f"the same with a plain function, {THREADS} threads",
            ),
        ]
    found.append(
        Entrant(
            side=InProcess("in-process on SQLite", plan.sqlite, task="noop", processes=1),
            goal=Goal(13_000),
            compared=False,
            note=f"async task, {ASYNC_SLOTS} slots; synchronous=FULL; results and history kept",
        )
    )
    return found


async def measure(plan: Plan, note: Callable[[str], None]) -> list[Reading]:
    """Return every reading; `note` is told what is being done."""
    entrants = our_entrants(plan)
    missing: list[Reading] = []
    if plan.peers:
        there, missing = await _peers(plan, note)
        entrants += there
    readings: list[Reading] = []
    if "drain" in plan.parts:
        readings += await _drain(plan, entrants, note) + missing
    if "pickup" in plan.parts:
        readings += await _pickup(plan, [one for one in entrants if one.pickup], note)
    if "sleep" in plan.parts and plan.postgres is not None:
        for crowd in plan.crowds:
            note(f"{crowd.jobs:,} jobs asleep on {crowd.processes} worker processes")
            for name, value, unit in await slept(crowd, plan.postgres, nap_s=plan.nap_s):
                readings.append(Reading(part="sleep", name=name, jobs=crowd.jobs, value=value, unit=unit))
    return readings


async def _peers(plan: Plan, note: Callable[[str], None]) -> tuple[list[Entrant], list[Reading]]:
    there, missing = [], []
    for peer in PEERS:
        note(f"{peer.name}: its environment")
        try:
            if peer.store == "postgres" and plan.postgres is None:
                raise SetupError("there is no PostgreSQL here")
            side = PeerSide(peer, await installed(peer), postgres=plan.postgres or "")
        except SetupError as error:
            missing.append(Reading(part="drain", name=peer.name, jobs=0, value=None, unit="jobs/s", note=str(error)))
        else:
            there.append(
                Entrant(
                    side=side,
                    share=peer.share,
                    pickup=peer.analysed,
                    is_peer=True,
                    compared=peer.store != "sqlite",
                    note=peer.note,
                )
            )
    return there, missing


async def _drain(plan: Plan, entrants: Sequence[Entrant], note: Callable[[str], None]) -> list[Reading]:
    found: dict[str, list[Drained]] = {one.side.name: [] for one in entrants}
    failed: dict[str, str] = {}
    for number in range(plan.rounds):
        for one in entrants:
            name = one.side.name
            if name in failed:
                continue
            note(f"drain, round {number + 1} of {plan.rounds}: {name}")
            try:
                found[name].append(await drained(one.side, _jobs(plan, one)))
            except SetupError as error:
                if not one.is_peer:
                    raise
                failed[name] = str(error)
    return [_drain_reading(one, _jobs(plan, one), found=found, failure=failed.get(one.side.name)) for one in entrants]


def _jobs(plan: Plan, one: Entrant) -> int:
    return max(1, round(plan.jobs * one.share))


def _drain_reading(one: Entrant, jobs: int, *, found: dict[str, list[Drained]], failure: str | None) -> Reading:
    name = one.side.name
    if failure is not None:
        return Reading(part="drain", name=name, jobs=jobs, value=None, unit="jobs/s", note=failure)
    own = [each.rate for each in found[name]]
    others = [each.rate for each in found.get(MEASURE, [])]
    ratio = None
    if one.compared and name != MEASURE and len(others) == len(own):
        ratio = median(mine / other for mine, other in zip(own, others, strict=True))
    users = found[name][0].cpu_us
    return Reading(
        part="drain",
        name=name,
        jobs=jobs,
        value=median(own),
        unit="jobs/s",
        spread=(min(own), max(own)),
        ratio=ratio,
        cpu_us={user: median(each.cpu_us.get(user, 0.0) for each in found[name]) for user in users},
        goal=one.goal,
        ratio_goal=one.ratio_goal,
        note=one.note,
    )


async def _pickup(plan: Plan, entrants: Sequence[Entrant], note: Callable[[str], None]) -> list[Reading]:
    readings = []
    for one in entrants:
        name = one.side.name
        note(f"pickup: {name}")
        try:
            times = await picked_up_ms(one.side, plan.pickups)
        except SetupError as error:
            if not one.is_peer:
                raise
            readings.append(Reading(part="pickup", name=name, jobs=0, value=None, unit="ms", note=str(error)))
            continue
        for kind, share in (("median", 0.5), ("99th percentile", 0.99)):
            goal = one.pickup_goal if share == 0.5 else None
            value = percentile(times, share)
            readings.append(
                Reading(part="pickup", name=f"{name}, {kind}", jobs=plan.pickups, value=value, unit="ms", goal=goal)
            )
    return readings
