"""Workers over HTTP that died, and how long the servers are patient with those that do not stop."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import httpx2
import pytest

from tests.server.api import WORKER, Json, state_of, submit
from windlass.config import Settings
from windlass.config.settings import Worker
from windlass.engine.engine import Engine
from windlass.queue import history

Calls = Callable[[str], httpx2.AsyncClient]


@pytest.fixture
def settings() -> Settings:
    """Settings with another grace."""
    return Settings(worker=Worker(cancel_grace_seconds=2.0, timeout_grace_seconds=3.0))


@pytest.fixture
async def session(client: httpx2.AsyncClient) -> str:
    """The session of a registered worker."""
    name = str(uuid4())
    await client.post("/workers/register", json={"worker_id": WORKER, "session": name, "max_threads": 5})
    return name


async def claimed(client: httpx2.AsyncClient, session: str, *, started: bool) -> Json:
    """Submit a job and let the session have it, begun if so wished."""
    await submit(client, timeout_seconds=10)
    [job] = (await client.post("/jobs/claim", json={"worker_id": WORKER, "session": session})).json()["jobs"]
    held = [{"job_id": job["id"], "fence": job["fence"], "started": started}]
    await client.post("/workers/heartbeat", json={"worker_id": WORKER, "session": session, "held": held})
    found: Json = job
    return found


@pytest.mark.parametrize(("lost", "outcome"), [("true", "lost"), ("false", "released")])
async def test_a_session_whose_process_died_is_told_apart(
    client: httpx2.AsyncClient, session: str, lost: str, outcome: str
) -> None:
    """With `lost` what had begun counts as a lost attempt, at once; without, it goes back and no attempt is used."""
    job = await claimed(client, session, started=True)

    answer = await client.delete(f"/workers/{WORKER}", params={"session": session, "lost": lost})
    attempts = (await client.get(f"/jobs/{job['id']}/attempts")).json()["attempts"]
    worker = (await client.get(f"/workers/{WORKER}")).json()

    assert (204, [outcome]) == (answer.status_code, [attempt["outcome"] for attempt in attempts])
    assert {"true": "dead", "false": "stopped"}[lost] == worker["status"]


async def test_a_session_of_another_worker_or_tenant_is_not_lost(
    calls: Calls, client: httpx2.AsyncClient, session: str
) -> None:
    """Whose session it is is looked at before: another tenant's, or another worker's, is 404."""
    job = await claimed(client, session, started=True)
    for one in (client, calls("admin.b")):
        await one.post("/workers/register", json={"worker_id": "other", "session": str(uuid4())})
    query = {"session": session, "lost": "true"}

    wrong = await client.delete("/workers/other", params=query)
    foreign = await calls("admin.b").delete("/workers/other", params=query)

    assert (404, 404, "running") == (wrong.status_code, foreign.status_code, await state_of(client, job["id"]))


async def test_the_grace_of_the_settings_decides_the_servers_patience(
    client: httpx2.AsyncClient, session: str, engine: Engine
) -> None:
    """A time-out and a cancel are waited for as long as the grace of each says, a heartbeat, the kill, and 7 s."""
    job = await claimed(client, session, started=True)
    running = (await history.get(engine.db, job["id"], tenant="a")).deadline_at
    await client.delete(f"/jobs/{job['id']}")
    found = await history.get(engine.db, job["id"], tenant="a")
    events = (await history.timeline(engine.db, job["id"], tenant="a")).items
    [asked_at] = [event.happened_at for event in events if event.kind == "cancel_requested"]

    assert running is not None
    assert found.deadline_at is not None
    assert found.started_at is not None
    assert 10 + 3 + 30 + 10 + 5 + 7 == round((running - found.started_at).total_seconds())
    assert 2 + 10 + 5 + 7 == round((found.deadline_at - asked_at).total_seconds())
