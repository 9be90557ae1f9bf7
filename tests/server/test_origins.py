"""Where a job comes from, who did what to it, and why a slot has none."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx2
import msgspec

from tests.clock import TestClock
from tests.server.api import claim, lease, submit, submit_and_claim
from windlass.engine.engine import Engine
from windlass.ids import Ids
from windlass.queue import firing, looks

PATIENCE_S = 60
NIGHTLY: dict[str, Any] = {"name": "nightly", "task": "t", "every": "1h"}


async def fire(engine: Engine, clock: TestClock, **span: float) -> None:
    """Let time pass, and fire until nothing is due: the server may be about it at the same moment."""
    clock.advance(**span)
    async with asyncio.timeout(PATIENCE_S):
        while (left_s := (await looks.look(engine.db)).left_s("fire")) is not None and left_s <= 0:
            await firing.fire(engine.db, engine.lanes, Ids(engine.db.now))


async def test_a_job_tells_who_made_it(engine: Engine, client: httpx2.AsyncClient, clock: TestClock) -> None:
    """T11: a submit, a slot, or a run by hand; in the answer and in lists, also when it has ended."""
    made = (await client.post("/schedules", json=NIGHTLY)).json()
    by_hand = (await client.post("/schedules/nightly/run")).json()["id"]
    [job] = await claim(client)
    await client.post(f"/jobs/{by_hand}/complete", json=lease(job))
    submitted = await submit(client)
    await fire(engine, clock, hours=1, seconds=5)

    shown = {job["id"]: job["source"] for job in (await client.get("/jobs")).json()["jobs"]}

    assert ("manual", "submit") == (shown.pop(by_hand), shown.pop(submitted))
    assert ["schedule"] == list(shown.values())
    assert "manual" == (await client.get(f"/jobs/{by_hand}")).json()["source"]
    assert "schedule" == (await client.get(f"/jobs/{made['id']}")).json()["source"]


async def test_what_a_person_did_names_no_worker(client: httpx2.AsyncClient, clock: TestClock) -> None:
    """Y2: events of a job and of the stream name the caller's key as actor, and workers as workers."""
    clock.advance(5)
    job = await submit_and_claim(client)
    await client.delete(f"/jobs/{job['id']}")
    await client.post(f"/jobs/{job['id']}/fail", json=lease(job, outcome="cancelled", error_type="KeyError", error="9"))

    listed = (await client.get(f"/jobs/{job['id']}/events")).json()["events"]
    stream = await client.get(f"/events?seconds=0.01&since={clock.now() - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}")
    streamed = [msgspec.json.decode(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")]

    for events in (listed, streamed):
        told = {event["kind"]: (event["worker_id"], event["actor"]) for event in events}
        assert {
            "submitted": (None, None),
            "assigned": ("worker-1", None),
            "running": ("worker-1", None),
            "cancel_requested": (None, "admin.a"),
            "cancelled": ("worker-1", None),
        } == told
        assert "KeyError: 9" in {event["detail"] for event in events}


async def test_a_slot_that_was_skipped_says_why(engine: Engine, client: httpx2.AsyncClient, clock: TestClock) -> None:
    """T8: which policy, and which job was not over; of slots that were missed, by which policy."""
    await client.post("/schedules", json=NIGHTLY)
    await fire(engine, clock, hours=1, seconds=5)
    await fire(engine, clock, hours=1)
    [job] = await claim(client)
    await client.post(f"/jobs/{job['id']}/complete", json=lease(job))
    await fire(engine, clock, hours=3, minutes=30)

    runs = (await client.get("/schedules/nightly/runs")).json()["runs"]

    reasons = {run["decision"]: run["reason"] for run in runs}
    assert f"Overlap policy skip: job {job['id']} was not over." == reasons["overlapped"]
    assert "More than 60 s late; catch_up is latest." == reasons["missed"]


async def test_a_recurring_job_that_is_cancelled_was_made_when_it_was(
    client: httpx2.AsyncClient, clock: TestClock
) -> None:
    """S8: its entry keeps its created_at, and when it was due."""
    made = (await client.post("/jobs", json={"task": "t", "schedule": "0 * * * *"})).json()["id"]
    before = (await client.get(f"/jobs/{made}")).json()
    clock.advance(minutes=1)

    await client.delete(f"/jobs/{made}")

    after = (await client.get(f"/jobs/{made}")).json()
    kept = ("created_at", "scheduled_at", "source")
    assert ("cancelled", *(before[name] for name in kept)) == (after["state"], *(after[name] for name in kept))
