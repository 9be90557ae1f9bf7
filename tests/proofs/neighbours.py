"""Neighbours: what one tenant does costs another one little, and none of its leases.

    python -m tests.proofs neighbours [--faults SECONDS]

Tenant a has 16 callers (noise.py, a process apart from the server) that send the largest requests of each kind that
are permitted, each kind in turn and then all together. Beside it tenant b submits, claims, beats and lists, at a
steady pace, and holds jobs under a session. Measured is how long b waits, on both databases; compared is the p99 of
each kind with that of b alone. All kinds together are shown, and have no bound.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from tests.proofs.load import pause
from tests.proofs.noise import ALL, KINDS, READY
from tests.proofs.processes import environment, server_arguments, started
from tests.proofs.verdict import Line
from windlass.queue.keys import make_token

MORE_MS = {"postgres": 150.0, "sqlite": 300.0}
"""By so much the p99 of a neighbour may rise."""
SECONDS = 12
"""For each kind of requests."""
PACE_S = 0.1
"""Between two calls of a kind, whatever became of those before: a stall is seen by all that come in it."""
LEAST_SERVED = 2
"""Answers of 2xx that tenant a gets of each kind, or else it was no noise: registrations soon have no budget left."""
WARM_S = 2.0
HELD = 3
VERBS = ("submit", "claim", "heartbeat", "list")


class Neighbour:
    """Tenant b: each call again and again, each timed from when it was due; all kinds at the same time."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._session = str(uuid4())
        self._held: list[dict[str, Any]] = []
        self._never = asyncio.Event()
        self.lost: list[str] = []
        self.refused: list[str] = []

    async def begin(self) -> None:
        """Hold some jobs, and have some to list."""
        await self._call("POST", "/workers/register", {"worker_id": "b", "session": self._session, "lease_seconds": 15})
        for _ in range(50):
            await self._call("POST", "/jobs", {"task": "t"})
        claim = {"worker_id": "b", "session": self._session, "count": HELD}
        self._held = (await self._call("POST", "/jobs/claim", claim)).json()["jobs"]

    async def measured(self, seconds: float) -> dict[str, list[float]]:
        """Return the times of each verb in milliseconds."""
        times: dict[str, list[float]] = {verb: [] for verb in VERBS}
        held = [{"job_id": job["id"], "fence": job["fence"], "started": True} for job in self._held]
        beat = {"worker_id": "b", "session": self._session, "held": held}

        async def once(due_s: float, verb: str, method: str, path: str, body: Any) -> None:
            answer = await self._call(method, path, body)
            times[verb].append((time.monotonic() - due_s) * 1000)
            if verb == "heartbeat" and answer.status_code == 200:
                self.lost += answer.json()["lost"]
            if verb == "claim" and answer.status_code == 200:
                await self._complete(answer.json()["jobs"][0])

        async def repeat(verb: str, method: str, path: str, body: Any = None) -> None:
            begun_s = time.monotonic()
            async with asyncio.TaskGroup() as calls:
                for number in range(round(seconds / PACE_S)):
                    due_s = begun_s + number * PACE_S
                    await pause(self._never, due_s - time.monotonic())
                    calls.create_task(once(due_s, verb, method, path, body))

        await asyncio.gather(
            repeat("submit", "POST", "/jobs", {"task": "t", "queue": "other"}),
            repeat("claim", "POST", "/jobs/claim", {"worker_id": "curl", "queues": ["other"], "count": 1}),
            repeat("heartbeat", "POST", "/workers/heartbeat", beat),
            repeat("list", "GET", "/jobs?limit=20"),
        )
        return times

    async def _complete(self, job: dict[str, Any]) -> None:
        await self._call("POST", f"/jobs/{job['id']}/complete", {"worker_id": "curl", "fence": job["fence"]})

    async def _call(self, method: str, path: str, body: Any) -> httpx2.Response:
        answer = await self._client.request(method, f"/api/v1{path}", json=body)
        if answer.status_code >= 400:
            self.refused.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
        return answer


async def prove(url: str, *, seconds: float) -> list[Line]:
    """Measure on both databases; return what was found."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="windlass-neighbours-") as folder:
        for database in (url, f"sqlite:///{Path(folder) / 'windlass.db'}"):
            lines += await _on(database, seconds)
    return lines


async def _on(database: str, seconds: float) -> list[Line]:
    kind = database.partition(":")[0].replace("postgresql", "postgres")
    lines = []
    print(
        f"{kind:<22}" + "".join(f"{verb + ' p50':>12}{'p99':>9}{'max':>9}" for verb in VERBS) + "  tenant a", flush=True
    )
    async with AsyncExitStack() as stack:
        token = make_token()
        settings = {"WINDLASS_SECURITY_BOOTSTRAP_KEY": token, "WINDLASS_SECURITY_KEYS_REQUIRED": "true"}
        server = await stack.enter_async_context(started(*server_arguments(database), settings=settings))
        address = await server.serving()
        keys = await _keys(address, token)
        client = await stack.enter_async_context(_client(address, keys["b"]))
        neighbour = Neighbour(client)
        await neighbour.begin()
        await neighbour.measured(WARM_S)
        alone = await neighbour.measured(seconds)
        _show("alone", alone, "")
        for noise in (*KINDS, ALL):
            async with _noise(address, keys["a"], noise, seconds + WARM_S) as said:
                await neighbour.measured(WARM_S)
                times = await neighbour.measured(seconds)
            _show(noise, times, said[-1] if said else "")
            if (served := _served(said)) < LEAST_SERVED:
                lines.append(Line(f"{kind} {noise}", "no noise", [f"{served} answers of 2xx: {said}"]))
            for verb in VERBS:
                most_ms = _p(alone[verb], 0.99) + MORE_MS[kind]
                p99_ms = _p(times[verb], 0.99)
                if p99_ms > most_ms and noise != ALL:
                    found = f"{p99_ms:.0f} ms of {most_ms:.0f} ms"
                    lines.append(Line(f"{kind} {noise} {verb}", found, [found]))
        lines.append(Line(f"{kind} leases of b", f"{len(neighbour.lost)} lost", neighbour.lost))
        lines.append(Line(f"{kind} answers to b", f"{len(neighbour.refused)} refused", neighbour.refused[:5]))
    return lines


async def _keys(address: str, token: str) -> dict[str, str]:
    tokens = {}
    async with _client(address, token) as admin:
        for tenant in ("a", "b"):
            await admin.post("/api/v1/tenants", json={"name": tenant})
            scopes = ["submit", "work", "read", "operate"]
            made = await admin.post("/api/v1/keys", json={"name": tenant, "tenant": tenant, "scopes": scopes})
            tokens[tenant] = made.json()["token"]
    return tokens


@asynccontextmanager
async def _client(address: str, token: str) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=60.0, verify=False) as client:
        yield client


@asynccontextmanager
async def _noise(address: str, token: str, kind: str, seconds: float) -> AsyncIterator[list[str]]:
    """Let tenant a call within the block; what it says of its answers is there afterwards."""
    said: list[str] = []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.proofs.noise", address, kind, str(seconds)),
        env=environment({"WINDLASS_KEY": token}),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        while (line := await process.stdout.readline()) and line.decode().strip() != READY:
            said.append(line.decode())
        yield said
    finally:
        out, _ = await process.communicate()
        said += out.decode().splitlines()


def _served(said: list[str]) -> int:
    """Return how many answers of 2xx the noise tells of."""
    return sum(int(count) for count in re.findall(r"\b2\d\d × (\d+)", said[-1] if said else ""))


def _p(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))] if ordered else 0.0


def _show(name: str, times: dict[str, list[float]], said: str) -> None:
    figures = "".join(
        f"{_p(times[verb], 0.5):>9.1f} ms{_p(times[verb], 0.99):>6.0f} ms{max(times[verb]):>6.0f} ms" for verb in VERBS
    )
    print(f"  {name:<20}{figures}  {said}", flush=True)
