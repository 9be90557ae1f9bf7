"""Scale: the local pool goes from two workers to eight and back, and no attempt is lost or killed by it.

    python -m tests.proofs scale

300 jobs of half a second; `workers.default_count` 2, `max_count` 8, one thread each, a cool-down of 5 s.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.proofs.verdict import Line, checked
from tests.worker.process.installation import Installation, installed

JOBS = 300
POOL = {
    "workers_default_count": "2",
    "workers_max_count": "8",
    "workers_threads": "1",
    "scaling_cooldown_seconds": "5",
}
APP = "windlass.sample.tasks:app"
GONE = ("stopped", "dead", "draining")
PATIENCE_S = 180.0
LOOK_S = 0.5


async def prove(database_url: str) -> list[Line]:
    """Let the pool work; return what was found."""
    with tempfile.TemporaryDirectory() as folder:
        async with installed(Path(folder)) as world:
            world.database_url = database_url
            await world.start_server(**POOL)
            pool = await world.start_workers("--scale", "--name", "pool", app=APP, **POOL)
            watching = asyncio.create_task(_watch(world))
            jobs = [await world.submit("summarise", rows=25, pause_s=0.02) for _ in range(JOBS)]
            counts = await watching
            outcomes = Counter([a["outcome"] for job_id in jobs for a in await world.attempts(job_id)])
            await pool.close()
            await world.server.close()
    print("workers alive: " + " → ".join(map(str, counts)), flush=True)
    return [
        Line("from two to eight and back", f"most {max(counts)}, last {counts[-1]}", _against(counts)),
        Line("attempts", f"{dict(outcomes)}", [] if outcomes == {"succeeded": JOBS} else [str(dict(outcomes))]),
        await checked(database_url),
    ]


def _against(counts: list[int]) -> list[str]:
    good = counts[0] == counts[-1] == 2 and max(counts) == 8
    return [] if good else [str(counts)]


async def _watch(world: Installation) -> list[int]:
    """Return how many workers there were, each change of it, until all jobs are done and there are two again."""
    counts: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            workers = (await world.until(lambda _: True, "/workers"))["workers"]
            alive = sum(_lives(worker) for worker in workers)
            if not counts or counts[-1] != alive:
                counts.append(alive)
            left = await world.until(lambda _: True, "/admin/queue/status")
            if len(counts) > 1 and alive == 2 and left["pending"] + left["in_progress"] == 0:
                return counts
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), LOOK_S)


def _lives(worker: dict[str, Any]) -> bool:
    return worker["status"] not in GONE
