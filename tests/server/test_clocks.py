"""G7: what is asked for in spans and times is decided by the database's clock.

The clock of these servers is the machine's; that of their database is the test's, and stands far from it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx2
import msgspec
import pytest

from tests.clock import TestClock
from tests.server.api import claim, lease, submit, submit_and_claim

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def past_the_ceiling(clock: TestClock) -> None:
    """Move past the time that an empty SQLite file never goes below."""
    clock.advance(5)


@pytest.mark.parametrize("later", [HOUR, -HOUR, timedelta(0)])
@pytest.mark.parametrize("way", ["one", "list"])
async def test_a_job_is_put_off_until_a_time_of_the_database(
    client: httpx2.AsyncClient, clock: TestClock, way: str, later: timedelta
) -> None:
    """P21: the job is due at that time exactly; a time that has passed is now."""
    job = await submit_and_claim(client)
    until = (clock.now() + later).isoformat()

    if way == "one":
        answer = await client.post(f"/jobs/{job['id']}/snooze", json=lease(job, until=until))
    else:
        entry = {"kind": "snooze", "job_id": job["id"], "fence": job["fence"], "until": until}
        body = {"worker_id": "worker-1", "session": job["session"], "reports": [entry]}
        answer = await client.post("/jobs/report", json=body)

    assert 200 == answer.status_code, answer.text
    due_at = datetime.fromisoformat((await client.get(f"/jobs/{job['id']}")).json()["next_run_at"])
    assert max(timedelta(0), later) == due_at - clock.now()


async def test_a_stream_begins_at_the_time_of_the_database(client: httpx2.AsyncClient, clock: TestClock) -> None:
    """What happened before the stream began is left out, what happens from then on is told."""
    await submit(client)
    clock.advance(1)
    later = await submit(client)

    answer = await client.get("/events?seconds=0.01")

    told = [msgspec.json.decode(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [later] == [event["job_id"] for event in told]


async def test_a_start_deadline_may_be_a_span(client: httpx2.AsyncClient, clock: TestClock) -> None:
    """S1: it counts from the submit; a job that nobody has started by then is not handed out."""
    job_id = await submit(client, start_within="10m")
    both = await client.post("/jobs", json={"task": "t", "start_within": 1, "start_deadline": "2026-01-01T13:00:00Z"})

    shown = (await client.get(f"/jobs/{job_id}")).json()
    clock.advance(minutes=10)

    assert clock.now() == datetime.fromisoformat(shown["start_deadline"])
    assert [] == await claim(client)
    assert (422, "start_within") == (both.status_code, both.json()["errors"][0]["field"])


@pytest.mark.parametrize("path", ["/schedules/s", "/queues/q", "/tenants/a", "job"])
async def test_a_pause_may_be_a_span(client: httpx2.AsyncClient, clock: TestClock, path: str) -> None:
    """X5: it ends so long after the database's now."""
    made: dict[str, Any] = {"name": "s", "task": "t", "every": "1h"}
    assert 201 == (await client.post("/schedules", json=made)).status_code
    job_id = await submit(client, queue="q")

    path = path if path != "job" else f"/jobs/{job_id}"
    paused = await client.post(f"{path}/pause", json={"duration": "2h"})
    both = await client.post(f"{path}/pause", json={"duration": 1, "until": "2026-01-01T13:00:00Z"})

    assert (200, 422, "duration") == (paused.status_code, both.status_code, both.json()["errors"][0]["field"])
    clock.advance(hours=2, seconds=-1)
    shown = (await client.get(path)).json()
    assert shown["paused"] is True
    if "pause" in shown:
        assert clock.now() + timedelta(seconds=1) == datetime.fromisoformat(shown["pause"]["until"])
