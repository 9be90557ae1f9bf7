"""Refusals: whether the time of a refusal tells that another tenant has a job of that id.

    python -m tests.proofs refusals

On each database, in one process: looks at ids of another tenant's jobs, live, timed, done and dead, at unknown ids, and
at other unknown ids, in random order. Shown is by how much the quick ones of each kind differ from the first unknown
ones; the second unknown ones tell what chance makes of it.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx2

from tests.proofs.verdict import Line
from tests.server.api import claim, lease, submit
from tests.server.frame import KeyRing, bearer
from windlass.clock import system_clock
from windlass.config import Settings
from windlass.db import open_database
from windlass.db.migrate import migrate
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.ids import Ids
from windlass.server.app import create_app

LOOKS = 4000
"""At each kind of id."""
MOST_US = 15.0
"""How much slower than an unknown id another's may be refused."""
SEED = 15
Ask = Callable[[UUID], Awaitable[None]]


async def prove(postgres_url: str, *, looks: int = LOOKS) -> list[Line]:
    """Measure on both databases; return what was found."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, url in (("SQLite", f"sqlite:///{Path(folder) / 'refusals.db'}"), ("PostgreSQL", postgres_url)):
            times = await measured(url, looks)
            unknown = _typical(times.pop("unknown"))
            print(f"{name}: an unknown id is refused after {unknown * 1e6:.0f} us")
            chance_us = (_typical(times.pop("also unknown")) - unknown) * 1e6
            print(f"  also unknown   {chance_us:+6.1f} us")
            for kind, spent in times.items():
                later_us = (_typical(spent) - unknown) * 1e6
                print(f"  {kind:14} {later_us:+6.1f} us")
                against = [f"{later_us:.1f} us"] if abs(later_us) > MOST_US + abs(chance_us) else []
                lines.append(Line(f"{name}, {kind}", f"{later_us:+.1f} us of {MOST_US:g}", against))
    return lines


async def measured(url: str, looks: int) -> dict[str, list[float]]:
    """Return the seconds of each look, by the kind of id."""
    db = await open_database(url)
    try:
        await migrate(db)
        engine = Engine(db, Settings(), name="refusals", outside=Outside())
        async with engine.running():
            transport = httpx2.ASGITransport(app=cast(Any, create_app(engine, Settings(), cast(Any, KeyRing()))))
            base = "http://windlass.test/api/v1"
            async with (
                httpx2.AsyncClient(transport=transport, base_url=base, headers=bearer("admin.b")) as owner,
                httpx2.AsyncClient(transport=transport, base_url=base, headers=bearer("reader.a")) as stranger,
            ):
                ids = await some_jobs(owner)

                async def ask(job_id: UUID) -> None:
                    answer = await stranger.get(f"/jobs/{job_id}")
                    assert answer.status_code == 404, answer.text

                return await timed(ask, ids, looks)
    finally:
        await db.close()


async def some_jobs(owner: httpx2.AsyncClient) -> dict[str, UUID]:
    """Make a job in each place, and unknown ids; return them by kind."""
    made: dict[str, UUID] = {"unknown": Ids(system_clock).new(), "also unknown": Ids(system_clock).new()}
    for kind in ("done", "dead"):
        await submit(owner, payload="x" * 1000)
        [job] = await claim(owner)
        verb, more = ("complete", {}) if kind == "done" else ("fail", {"error": "e", "retryable": False})
        await owner.post(f"/jobs/{job['id']}/{verb}", json=lease(job, **more))
        made[kind] = UUID(job["id"])
    made["queued"] = UUID(await submit(owner, payload="x" * 1000))
    made["scheduled"] = UUID(await submit(owner, payload="x" * 1000, delay=3600))
    return made


async def timed(ask: Ask, ids: dict[str, UUID], looks: int) -> dict[str, list[float]]:
    """Ask for each id so often, in random order; return how long each took."""
    order = [kind for kind in ids for _ in range(looks)]
    random.Random(SEED).shuffle(order)
    for kind in order[:500]:
        await ask(ids[kind])
    times: dict[str, list[float]] = {kind: [] for kind in ids}
    for kind in order:
        began_s = time.perf_counter()
        await ask(ids[kind])
        times[kind].append(time.perf_counter() - began_s)
        await asyncio.sleep(0)
    return times


def _typical(times: list[float]) -> float:
    """Return the time that nine of ten looks took at least: others on the machine lengthen times, and shorten none."""
    return statistics.quantiles(times, n=10)[0]
