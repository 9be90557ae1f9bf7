"""What the clock of a process shows: a wrong clock proves nothing as long as nobody has looked at it.

A server tells how far a worker's clock is ahead of its own, by what the worker's heartbeat says. A heartbeat of ours
with the true time shows the clock of a server; those of a worker, through a server that is right, the worker's.
"""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2

from tests.proofs.witness import Connection

WITNESS = "clock-witness"
WORKER = "clocked"
"""The name of the worker whose clock is wrong."""
NEAR_S = 60.0
"""What lies between a heartbeat and its answer is far below this, a jump far above."""
LOOK_S = 0.2
LOOKS = 150


async def has_jumped(role: str, urls: dict[str, str], *, seconds: int, connection: Connection) -> str | None:
    """Wait until the clock of a server or of the worker is wrong by so much; what it shows if it never is."""
    found: float | None = None
    for _ in range(LOOKS):
        found = await (_server_s(urls[role]) if role in urls else _worker_s(next(iter(urls.values()))))
        if found is not None and abs(found - seconds) < NEAR_S:
            return None
        await connection.execute("SELECT pg_sleep($1)", LOOK_S)
    return f"{role} was to be {seconds} s wrong and is {found} s"


async def _server_s(url: str) -> float | None:
    async with httpx2.AsyncClient(base_url=f"{url}/api/v1", timeout=30) as client:
        answer = (await client.post("/workers/register", json={"worker_id": WITNESS})).raise_for_status().json()
        beat = {"worker_id": WITNESS, "session": answer["session"], "timestamp": datetime.now(UTC).isoformat()}
        (await client.post("/workers/heartbeat", json=beat)).raise_for_status()
        ahead_ms = (await client.get(f"/workers/{WITNESS}")).raise_for_status().json()["skew_ms"]
        return None if ahead_ms is None else -ahead_ms / 1000


async def _worker_s(url: str) -> float | None:
    async with httpx2.AsyncClient(base_url=f"{url}/api/v1", timeout=30) as client:
        found = (await client.get("/workers")).raise_for_status().json()["workers"]
        [ahead_ms] = [worker["skew_ms"] for worker in found if worker["id"].startswith(WORKER)]
        return None if ahead_ms is None else float(ahead_ms) / 1000
