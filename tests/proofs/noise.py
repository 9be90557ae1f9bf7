"""Noise: 16 callers of one tenant that send the largest requests of a kind for a while, as a program of its own.

    WINDLASS_KEY=… python -m tests.proofs.noise ADDRESS KIND SECONDS

At the end it prints how many answers of each status came. For neighbours.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import httpx2
import msgspec

from tests.proofs.load import pause

CALLERS = 16
BATCH, BYTES = 1000, 7_500
REFUSED_S = 0.1
"""How long a caller rests that was told to come back: it is not polite."""
STREAMS_EACH = 5
FAILED, TEXT = 40, 65_000
READY = "ready"
PATIENCE_S = 60.0


class Noise:
    """The callers of one tenant."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._never = asyncio.Event()
        self.answers: Counter[str] = Counter()
        jobs = [{"task": "t", "payload": "x" * BYTES}] * BATCH
        self._batch = msgspec.json.encode({"jobs": jobs})
        self._session = str(uuid4())

    async def prepare(self) -> None:
        """Have jobs to list, attempts with the longest errors, and a session that holds leases."""
        await self.ask("POST", "/jobs/batch", self._batch)
        await self.ask("POST", "/workers/register", {"worker_id": "w", "session": self._session, "lease_seconds": 3600})
        for job in await self._leased(FAILED):
            failure = {"worker_id": "w", "fence": job["fence"], "error": "e" * TEXT, "traceback": "t" * TEXT}
            await self.ask("POST", f"/jobs/{job['id']}/fail", failure)
        self.answers.clear()

    async def _leased(self, count: int) -> list[dict[str, Any]]:
        await self.ask("POST", "/jobs/batch", {"jobs": [{"task": "t", "queue": "own", "max_attempts": 1}] * count})
        claim = {"worker_id": "w", "session": self._session, "queues": ["own"], "count": count}
        answer = await self.ask("POST", "/jobs/claim", claim)
        return list(answer.json()["jobs"]) if answer.status_code == 200 else []

    async def ask(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        """Call once; rest a little where told to come back."""
        content = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json"}
        answer = await self._client.request(method, f"/api/v1{path}", content=content, headers=headers)
        self.answers[str(answer.status_code)] += 1
        if answer.status_code in (429, 503):
            await pause(self._never, REFUSED_S)
        return answer

    async def batches(self) -> None:
        """Submit a thousand jobs of 7.5 kB."""
        await self.ask("POST", "/jobs/batch", self._batch)

    async def claims(self) -> None:
        """Claim a thousand jobs without a session."""
        await self.ask("POST", "/jobs/claim", {"worker_id": f"w{uuid4()}", "count": 1000, "lease_seconds": 5})

    async def lists(self) -> None:
        """List 500 jobs."""
        await self.ask("GET", "/jobs?limit=500")

    async def attempts(self) -> None:
        """List 500 attempts."""
        await self.ask("GET", "/attempts?limit=500")

    async def streams(self) -> None:
        """Open streams from long ago, and read them for a while."""

        async def one() -> None:
            query = "/api/v1/events?since=2020-01-01T00:00:00Z&seconds=2"
            async with self._client.stream("GET", query) as answer:
                self.answers[str(answer.status_code)] += 1
                async for _ in answer.aiter_bytes():
                    pass
            if answer.status_code == 429:
                await pause(self._never, REFUSED_S)

        await asyncio.gather(*(one() for _ in range(STREAMS_EACH)))

    async def schedules(self) -> None:
        """Make a thousand schedules whose slots are hard to find."""
        away = {"exclude": ["2026-01-01/2074-12-31"], "timezone": "America/New_York"}
        items = [
            {"name": f"s-{uuid4()}", "task": "t", "cron": f"{n % 60} {n % 24} * * *", **away, "enabled": False}
            for n in range(BATCH)
        ]
        await self.ask("POST", "/schedules/batch", {"schedules": items})

    async def previews(self) -> None:
        """Ask for slots that are hard to find."""
        body = {"cron": "* 2 29 2 *", "timezone": "America/New_York", "count": 100}
        await self.ask("POST", "/schedules/preview", body)

    async def registrations(self) -> None:
        """Register with a thousand new signatures."""
        parameters = {f"p{n}": {"types": ["integer"]} for n in range(20)}
        signatures = {f"t{uuid4()}": {"parameters": parameters} for _ in range(800)}
        await self.ask(
            "POST", "/workers/register", {"worker_id": "w", "session": str(uuid4()), "signatures": signatures}
        )

    async def logs(self) -> None:
        """Send 8 MB of lines for leases that are held."""
        line = {"at": "2026-01-01T00:00:00Z", "text": "password=x " * 700}
        held = await self._leased(8)
        chunks = [
            {"job_id": job["id"], "fence": job["fence"], "seq": n, "lines": [line] * 10}
            for job in held
            for n in range(1, 12)
        ]
        await self.ask("POST", "/jobs/report", {"worker_id": "w", "session": self._session, "logs": chunks})

    async def heartbeats(self) -> None:
        """Tell of ten thousand jobs."""
        held = [{"job_id": str(uuid4()), "fence": 1, "started": True} for _ in range(10_000)]
        await self.ask("POST", "/workers/heartbeat", {"worker_id": "w", "session": self._session, "held": held})

    async def reports(self) -> None:
        """Complete a thousand jobs of nobody with results of 7.5 kB."""
        items = [{"kind": "complete", "job_id": str(uuid4()), "fence": 1, "result": "x" * BYTES} for _ in range(BATCH)]
        await self.ask("POST", "/jobs/report", {"worker_id": "w", "session": self._session, "reports": items})


KINDS = (
    *("batches", "claims", "lists", "attempts", "streams", "schedules", "previews", "registrations", "logs"),
    *("heartbeats", "reports"),
)
ALL = "all"


async def main(address: str, kind: str, seconds: float) -> None:
    """Call until the time is over; print what came."""
    limits = httpx2.Limits(max_connections=200)
    headers = {"Authorization": f"Bearer {os.environ['WINDLASS_KEY']}"}
    async with httpx2.AsyncClient(
        base_url=address, headers=headers, timeout=PATIENCE_S, limits=limits, verify=False
    ) as client:
        noise = Noise(client)
        await noise.prepare()
        print(READY, flush=True)
        ends_s = time.monotonic() + seconds

        async def call(number: int) -> None:
            name = KINDS[number % len(KINDS)] if kind == ALL else kind
            act: Callable[[], Awaitable[None]] = getattr(noise, name)
            while time.monotonic() < ends_s:
                try:
                    await act()
                except httpx2.HTTPError as error:
                    noise.answers[type(error).__name__] += 1

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds + 5):
                await asyncio.gather(*(call(number) for number in range(CALLERS)))
        print(", ".join(f"{status} × {count}" for status, count in sorted(noise.answers.items())))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
