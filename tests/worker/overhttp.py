"""What tests say to a real server over HTTP: settings for it, submit, and what became of a job."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import httpx2
import msgspec

from tests.worker.running import PATIENCE_S, quick
from windlass.config import Settings


def to(url: str, *, key: str | None = None, **worker: Any) -> Settings:
    """Return settings of a worker of the servers at `url`."""
    settings = quick(**worker)
    server = msgspec.structs.replace(settings.server, url=url)
    return msgspec.structs.replace(settings, server=server, client=msgspec.structs.replace(settings.client, key=key))


async def submit(url: str, task: str, payload: Any = None) -> UUID:
    """Submit a job over HTTP."""
    async with httpx2.AsyncClient(verify=False, base_url=url, timeout=PATIENCE_S) as client:
        answer = await client.post("/api/v1/jobs", json={"task": task, "payload": payload})
        return UUID(answer.json()["id"])


async def ended(url: str, job: UUID) -> dict[str, Any]:
    """Return a job when it has ended."""
    async with httpx2.AsyncClient(verify=False, base_url=url, timeout=60) as client:
        for _ in range(3):
            answer: dict[str, Any] = (await client.get(f"/api/v1/jobs/{job}", params={"wait": 20})).json()
            if answer["finished_at"] is not None:
                return answer
    raise AssertionError(answer)


async def attempts_of(url: str, job: UUID) -> list[dict[str, Any]]:
    """Return the ended attempts of a job."""
    async with httpx2.AsyncClient(verify=False, base_url=url, timeout=PATIENCE_S) as client:
        attempts: list[dict[str, Any]] = (await client.get(f"/api/v1/jobs/{job}/attempts")).json()["attempts"]
        return attempts


async def nobody_waits(url: str) -> None:
    """Return when no claim waits at the server: what is submitted then goes to none that was given up before."""
    async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(verify=False, base_url=url) as client:
        while "windlass_long_polls 0.0\n" not in (await client.get("/metrics")).text:
            pass
