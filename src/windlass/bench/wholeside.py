"""A side of `windlass bench whole`: one queue with its workers, measured by the same steps whoever made it.

A drain: jobs are submitted beforehand, workers are started and wait for the word, and the time runs from the beginning
of the first body until the store has the last job finished. A pickup: one job at a time into an idle queue.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

import msgspec

from windlass.bench.peers.stage import seen
from windlass.bench.scratch import execute, is_postgres
from windlass.bench.wholecost import Costs, postmaster
from windlass.bench.wholeplay import START_S, Player, playing
from windlass.errors import SetupError

LOOK_S = 0.01
STUCK_S = 60.0
"""How long no job may begin before a side is given up."""


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """How to start the verbs of a side (peers/stage.py)."""

    command: tuple[str, ...]
    url: str
    ours: bool = False
    """Whether it imports us; peers do not."""
    database: str | None = None
    """The database of this round."""
    analysed: bool = True
    """Whether a PostgreSQL is analysed once it is filled."""
    others: Mapping[str, int] = {}
    """Processes that take part beside the workers."""

    def player(self, verb: str, *more: str, folder: str) -> AbstractAsyncContextManager[Player]:
        """Start one of the verbs."""
        name = f"{self.command[-1].rpartition('/')[2]} {verb}"
        return playing([*self.command, verb, self.url, *more], name=name, folder=folder, ours=self.ours)

    async def run(self, verb: str, *more: str, folder: str) -> None:
        """Run one of the verbs to its end."""
        async with self.player(verb, *more, folder=folder) as player:
            await player.finished(within_s=600)


class Drained(msgspec.Struct, frozen=True):
    """What became of a drain."""

    rate: float
    """Jobs a second."""
    cpu_us: dict[str, float]
    """Microseconds of CPU for one job, by who used them."""


class Side(Protocol):
    """What is measured."""

    @property
    def name(self) -> str:
        """As it is shown."""

    @property
    def workers(self) -> int:
        """How many `work` processes are started."""

    @property
    def works_itself(self) -> bool:
        """Whether what submits one job at a time is the worker too, in one process."""

    def opened(self, folder: str) -> AbstractAsyncContextManager[Script]:
        """Make a fresh store, for one round."""


async def drained(side: Side, count: int) -> Drained:
    """Run `count` jobs that were submitted beforehand."""
    async with _stage(side) as (script, folder, bodies):
        await script.run("fill", str(count), folder=folder)
        if script.analysed and script.database is not None and is_postgres(script.database):
            # As autovacuum does within a minute: plans that guess at empty tables are nobody's daily work.
            await execute(script.database, "VACUUM ANALYZE")
        async with AsyncExitStack() as stack:
            watching = await stack.enter_async_context(script.player("done", str(count), folder=folder))
            await watching.ready()
            crew = await _crew(stack, side, script, folder=folder, bodies=bodies)
            costs = Costs(await _roots(script, crew))
            _go(crew)
            await _begun(side, bodies, count)
            watching.go()
            end_at = float(await watching.line(within_s=START_S))
            return Drained(count / (end_at - seen(bodies).first_at), costs.us_per_job(count))


async def _roots(script: Script, crew: Sequence[Player]) -> dict[str, list[int]]:
    roots = {"workers": [player.pid for player in crew]} | {name: [pid] for name, pid in script.others.items()}
    if script.database is not None and is_postgres(script.database):
        found = await postmaster(script.database)
        if found is not None:
            roots["database"] = [found]
    return roots


async def picked_up_ms(side: Side, count: int) -> list[float]:
    """Return how long each of `count` single jobs took from the call that submits it to the beginning of its body."""
    async with _stage(side) as (script, folder, bodies), AsyncExitStack() as stack:
        calling = await stack.enter_async_context(script.player("pickup", bodies, str(count), folder=folder))
        await calling.ready()
        if not side.works_itself:
            _go(await _crew(stack, side, script, folder=folder, bodies=bodies))
        calling.go()
        times: list[float] = json.loads(await calling.line(within_s=START_S + count))
        return times


@asynccontextmanager
async def _stage(side: Side) -> AsyncIterator[tuple[Script, str, str]]:
    with (
        tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder,
        tempfile.TemporaryDirectory(prefix="windlass-bench-") as bodies,
    ):
        async with side.opened(folder) as script:
            await script.run("prepare", folder=folder)
            yield script, folder, bodies


async def _crew(stack: AsyncExitStack, side: Side, script: Script, *, folder: str, bodies: str) -> list[Player]:
    crew = [await stack.enter_async_context(script.player("work", bodies, folder=folder)) for _ in range(side.workers)]
    await asyncio.gather(*(player.ready() for player in crew))
    return crew


def _go(crew: Sequence[Player]) -> None:
    for player in crew:
        player.go()


async def _begun(side: Side, bodies: str, count: int) -> None:
    loop = asyncio.get_running_loop()
    before, moved_at = 0, loop.time()
    while (now := seen(bodies).jobs) < count:
        if now > before:
            before, moved_at = now, loop.time()
        elif loop.time() > moved_at + STUCK_S:
            raise SetupError(f"{side.name} has begun {now} of {count} jobs, and then none for {STUCK_S:g} s.")
        await asyncio.sleep(LOOK_S)
