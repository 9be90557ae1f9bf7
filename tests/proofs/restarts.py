"""Restarts: PostgreSQL goes away and comes back under load, in each way that it can.

    python -m tests.proofs restarts [--faults 3]

Two servers, which live on through it. Measured is how long after the database takes connections again each server
stores a job; meanwhile every call is answered 503. At the end every acknowledged job is there, and no result twice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx2

from tests.cluster import Cluster
from tests.databases import connected
from tests.proofs import fleet as fleets
from tests.proofs import show
from tests.proofs.failover import drained
from tests.proofs.ledger import Ledger
from tests.proofs.load import KINDS, Load
from tests.proofs.verdict import Line, verdict
from windlass.httpclient import AsyncClient

MODES = ("fast", "immediate", "kill")
"""A shutdown that ends sessions, one without a checkpoint, and a postmaster that is killed."""
DOWN_S = 3.0
BACK_S = 2.0
"""How soon after the database a server must store jobs again."""
TOLD_S = 1.5
"""How soon a call should be told to come back; more is shown, and is no failure."""
PATIENCE_S = 60.0
LOADED_S = 5.0


async def prove(
    cluster: Cluster,
    *,
    faults: int = 3,
    kinds: Sequence[str] = KINDS,
    down_s: float = DOWN_S,
    loaded_s: float = LOADED_S,
    log: Path | None = None,
) -> list[Line]:
    """Restart the database so many times under load; return what was found."""
    url = cluster.url
    back: list[float] = []
    async with fleets.running(url, log=log) as fleet:
        load = Load(fleet.urls, kinds=kinds)
        async with load.flowing():
            await _loaded(loaded_s)
            for turn in range(faults):
                mode = MODES[turn % len(MODES)]
                await asyncio.to_thread(stop, cluster, mode)
                await _loaded(down_s)
                took = await restart(cluster, fleet.urls, ledger=load.ledger)
                back += took
                print(f"{turn + 1:3}. {mode}: back after " + ", ".join(f"{each:.2f} s" for each in took), flush=True)
                await _loaded(loaded_s)
            async with connected(url) as connection:
                drained_s = await load.drain(connection)
        ended = [member.role for member in fleet.members if not member.process.is_running]
        lines = await verdict(load.ledger, url)
    print(show.distribution("a server stores jobs again", back))
    print(show.distribution("a call is told to come back", load.ledger.put_off_s))
    late = sum(took_s > TOLD_S for took_s in load.ledger.put_off_s)
    print(f"{late} of them after more than {TOLD_S:g} s; the longest answer of all took {load.ledger.longest_s:.2f} s")
    return [
        show.within("a server stores jobs again", back, goal_s=BACK_S, most_s=BACK_S),
        Line("servers live on", f"{len(ended)} ended", ended),
        drained(drained_s),
        *lines,
    ]


def stop(cluster: Cluster, mode: str) -> None:
    """Stop the database in this way; it is gone when this returns."""
    if mode != "immediate":
        number = signal.SIGINT if mode == "fast" else signal.SIGKILL
        pid_file = cluster.folder / "data" / "postmaster.pid"
        pid = int(pid_file.read_text().split()[0])
        os.kill(pid, number)
        if mode == "fast":
            give_up_s = time.monotonic() + PATIENCE_S
            while pid_file.exists() and time.monotonic() < give_up_s:
                with suppress(ChildProcessError):
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    cluster.stop()
    if mode == "kill":
        (cluster.folder / "data" / "postmaster.pid").unlink(missing_ok=True)


async def restart(cluster: Cluster, urls: list[str], *, ledger: Ledger) -> list[float]:
    """Start the database; return how long after it took connections each server stored a job."""
    starting = asyncio.create_task(asyncio.to_thread(cluster.start))
    stored = [asyncio.create_task(_stored(url, ledger)) for url in urls]
    accepts_s = await _accepts(cluster.url)
    await starting
    return [max(0.0, await each - accepts_s) for each in stored]


async def _accepts(url: str) -> float:
    """Return when the database took a connection."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(OSError, asyncpg.PostgresError):
                async with connected(url):
                    return time.monotonic()
            await _loaded(0.02)


async def _stored(url: str, ledger: Ledger) -> float:
    """Return when the server at `url` stored a job."""
    async with asyncio.timeout(PATIENCE_S), AsyncClient(base_url=url, timeout=10.0) as client:
        while True:
            with suppress(httpx2.HTTPError):
                answer = await client.post("/api/v1/jobs", json={"task": "plain", "payload": "probe"})
                if answer.status_code == 201:
                    ledger.acknowledge(UUID(answer.json()["id"]), None)
                    return time.monotonic()
                ledger.unknown_count += 1
            await _loaded(0.02)


async def _loaded(seconds: float) -> None:
    """Let the load go on for a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
