"""Short forms of calls that many tests make."""

from __future__ import annotations

from typing import Any

import httpx2

WORKER = "worker-1"
Json = dict[str, Any]


async def submit(client: httpx2.AsyncClient, **fields: Any) -> str:
    """Submit a job and return its id."""
    answer = await client.post("/jobs", json={"task": "t", **fields})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["id"]
    return job_id


async def claim(client: httpx2.AsyncClient, **fields: Any) -> list[Json]:
    """Claim jobs as a bare worker and return them."""
    answer = await client.post("/jobs/claim", json={"worker_id": WORKER, **fields})
    assert answer.status_code in (200, 204), answer.text
    jobs: list[Json] = answer.json()["jobs"] if answer.status_code == 200 else []
    return jobs


async def submit_and_claim(client: httpx2.AsyncClient, **fields: Any) -> Json:
    """Submit a job and claim it; return it as its worker sees it."""
    await submit(client, **fields)
    [job] = await claim(client)
    return job


def lease(job: Json, **more: Any) -> Json:
    """Return what a worker names when it speaks of a job that it claimed."""
    return {"worker_id": WORKER, "fence": job["fence"], "session": job["session"], **more}


async def state_of(client: httpx2.AsyncClient, job_id: str) -> str:
    """Return the state of a job."""
    state: str = (await client.get(f"/jobs/{job_id}")).json()["state"]
    return state
