"""Many async jobs that sleep at once: whether a worker can hold them, and what they cost while they do."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack

import msgspec

from windlass.bench.peers.stage import seen
from windlass.bench.wholecost import cpu_s, family, memory_mb
from windlass.bench.wholeours import OverHttp
from windlass.bench.wholeside import STUCK_S
from windlass.errors import SetupError

LOOK_S = 0.05

Row = tuple[str, float, str]
"""Name, value and unit."""


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """So many jobs on so many processes."""

    jobs: int
    processes: int


async def slept(crowd: Crowd, url: str, *, nap_s: float) -> list[Row]:
    """Return what it cost to have all jobs of `crowd` asleep at once; SetupError if they never were."""
    threads = -(-crowd.jobs // crowd.processes)
    side = OverHttp("asleep", url, task="nap", processes=crowd.processes, threads=threads)
    payload = msgspec.json.encode({"seconds": nap_s}).decode()
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        async with side.opened(folder) as script, AsyncExitStack() as stack:
            with tempfile.TemporaryDirectory(prefix="windlass-bench-") as bodies:
                await script.run("fill", str(crowd.jobs), payload, folder=folder)
                watching = await stack.enter_async_context(script.player("done", str(crowd.jobs), folder=folder))
                await watching.ready()
                working = await stack.enter_async_context(script.player("work", bodies, folder=folder))
                await working.ready()
                working.go()
                begin_s = await _asleep(bodies, crowd.jobs, nap_s=nap_s)
                # Half of what is left is quiet: all have begun, none has ended.
                quiet_s = (nap_s - begin_s) / 2
                costs = await _costs(side.server_pid, working.pid, quiet_s)
                watching.go()
                end_at = float(await watching.line(within_s=nap_s + STUCK_S))
                over_s = end_at - seen(bodies).last_at - nap_s
    where = f"{crowd.jobs:,} asleep, {crowd.processes} process{'es' if crowd.processes > 1 else ''}"
    timed = [(f"{where}: all begun after", begin_s, "s"), (f"{where}: all finished after the last woke", over_s, "s")]
    return timed + [(f"{where}: {name}", value, unit) for name, value, unit in costs]


async def _asleep(bodies: str, count: int, *, nap_s: float) -> float:
    """Wait until all have begun; return how long that took, in seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + STUCK_S + nap_s
    while (now := seen(bodies)).jobs < count:
        if loop.time() > until or (now.jobs and now.last_at - now.first_at > nap_s):
            raise SetupError(f"Of {count} jobs only {now.jobs} began while the first slept for {nap_s:g} s.")
        await asyncio.sleep(LOOK_S)
    return now.last_at - now.first_at


async def _costs(server_pid: int, worker_pid: int, quiet_s: float) -> list[Row]:
    # The first of the family only started the fleet.
    sides = {"server": family(server_pid), "workers": family(worker_pid)[1:]}
    before = {name: cpu_s(pids) for name, pids in sides.items()}
    await asyncio.sleep(quiet_s)
    rows: list[Row] = []
    for name, pids in sides.items():
        rows.append((f"CPU of {name}", (cpu_s(pids) - before[name]) / quiet_s * 100, "% of a core"))
        rows.append((f"memory of {name}", memory_mb(pids), "MB"))
    return rows
