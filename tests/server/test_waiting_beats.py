"""A heartbeat that waits is answered as soon as something concerns its session, and renews it only when it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.clock import TestClock
from tests.server.api import WORKER, Json, submit
from tests.server.frame import KeyRing
from windlass.engine.duty import tell
from windlass.engine.engine import Engine
from windlass.queue import deadlines
from windlass.queue.moves import Moved

Calls = Callable[[str], httpx2.AsyncClient]
PATIENCE_S = 15.0
"""Less than any heartbeat here waits by itself."""


@pytest.fixture
async def session(client: httpx2.AsyncClient) -> str:
    """The session of a registered worker."""
    name = str(uuid4())
    await client.post("/workers/register", json={"worker_id": WORKER, "session": name, "max_threads": 1})
    return name


async def held_job(client: httpx2.AsyncClient, session: str, **fields: Any) -> Json:
    """Submit a job and let the session have it."""
    await submit(client, **fields)
    [job] = (await client.post("/jobs/claim", json={"worker_id": WORKER, "session": session})).json()["jobs"]
    found: Json = {"job_id": job["id"], "fence": job["fence"]}
    return found


def beat(client: httpx2.AsyncClient, session: str, **fields: Any) -> Coroutine[Any, Any, httpx2.Response]:
    """Return a heartbeat that waits."""
    return client.post("/workers/heartbeat", json={"worker_id": WORKER, "session": session, "wait": 20, **fields})


async def waiting(engine: Engine, asking: Coroutine[Any, Any, httpx2.Response]) -> asyncio.Task[httpx2.Response]:
    """Send a heartbeat, and return when it waits."""
    task = asyncio.create_task(asking)
    async with asyncio.timeout(PATIENCE_S):
        while not (engine.session_waits.waiting_count or task.done()):  # noqa: ASYNC110 — nothing says that it waits
            await asyncio.sleep(0)
    assert not task.done(), task.result().text
    return task


async def answered(task: asyncio.Task[httpx2.Response]) -> httpx2.Response:
    """Return the answer, which must come long before the wait is over."""
    async with asyncio.timeout(PATIENCE_S):
        return await task


@pytest.mark.parametrize("names", [True, False])
async def test_a_cancel_ends_the_wait(client: httpx2.AsyncClient, engine: Engine, session: str, names: bool) -> None:
    """X2: the worker hears of it at once, also of a job that the heartbeat did not name."""
    job = await held_job(client, session)
    task = await waiting(engine, beat(client, session, **({"held": [job]} if names else {})))

    await client.delete(f"/jobs/{job['job_id']}")

    assert [job["job_id"]] == (await answered(task)).json()["cancel"]


async def test_a_drain_ends_the_wait(client: httpx2.AsyncClient, engine: Engine, session: str) -> None:
    """A worker that has nothing to do hears of it, too."""
    task = await waiting(engine, beat(client, session))

    await client.post(f"/workers/{WORKER}/drain")

    assert (await answered(task)).json()["drain"]


async def test_a_worker_that_says_that_it_drains_is_not_told_so(
    client: httpx2.AsyncClient, engine: Engine, session: str
) -> None:
    """Else its heartbeats would never wait again."""
    job = await held_job(client, session)
    await client.post(f"/workers/{WORKER}/drain")

    task = await waiting(engine, beat(client, session, draining=True))

    await client.delete(f"/jobs/{job['job_id']}")
    assert [job["job_id"]] == (await answered(task)).json()["cancel"]


async def test_a_lease_that_was_taken_away_ends_the_wait(
    client: httpx2.AsyncClient, engine: Engine, session: str, clock: TestClock
) -> None:
    """The attempt is somebody else's: the worker stops it."""
    job = await held_job(client, session, timeout_seconds=1)
    task = await waiting(engine, beat(client, session, held=[{**job, "started": True}]))
    clock.advance(29)
    moved: list[Moved] = []
    while not moved:
        clock.advance(1)
        moved = await deadlines.end_overdue(engine.db, chance=lambda: 0.0)

    tell(engine.wake, moved)

    assert [job["job_id"]] == (await answered(task)).json()["lost"]


@pytest.mark.parametrize("lost", ["true", "false"])
async def test_the_end_of_a_session_ends_the_wait(
    client: httpx2.AsyncClient, engine: Engine, session: str, lost: str
) -> None:
    """409: it must stop everything and register anew; also of one that holds nothing."""
    task = await waiting(engine, beat(client, session))

    await client.delete(f"/workers/{WORKER}", params={"session": session, "lost": lost})

    assert 409 == (await answered(task)).status_code


async def test_a_waiting_heartbeat_renews_when_it_comes(
    client: httpx2.AsyncClient, engine: Engine, session: str, clock: TestClock
) -> None:
    """And not when it is answered: then nobody knows whether the worker still lives."""
    clock.advance(20)
    came_at = clock.now()
    task = await waiting(engine, beat(client, session))
    clock.advance(5)

    await client.post(f"/workers/{WORKER}/drain")

    await answered(task)
    worker = (await client.get(f"/workers/{WORKER}")).json()
    assert came_at.isoformat() == worker["last_heartbeat_at"].replace("Z", "+00:00")


async def test_news_of_before_is_told_at_once(client: httpx2.AsyncClient, session: str) -> None:
    """What happened while no heartbeat waited is not waited for."""
    job = await held_job(client, session)
    await client.delete(f"/jobs/{job['job_id']}")

    answer = await answered(asyncio.create_task(beat(client, session, held=[job])))

    assert [job["job_id"]] == answer.json()["cancel"]


async def test_nothing_new_is_told_after_the_wait(client: httpx2.AsyncClient, session: str) -> None:
    """As a heartbeat that does not wait tells it."""
    answer = await beat(client, session, wait=0.01)

    assert (200, [], False) == (answer.status_code, answer.json()["cancel"], answer.json()["drain"])


async def test_news_that_nobody_told_is_found_by_a_look(
    client: httpx2.AsyncClient, engine: Engine, session: str
) -> None:
    """A hint may get lost on its way from another server; a slow look for all who wait finds it."""
    job = await held_job(client, session)
    task = await waiting(engine, beat(client, session))
    engine.wake.on_stop.clear()

    await client.delete(f"/jobs/{job['job_id']}")

    assert [job["job_id"]] == (await answered(task)).json()["cancel"]


async def test_a_revoked_worker_waits_no_longer(calls: Calls, client: httpx2.AsyncClient, key_ring: KeyRing) -> None:
    """T3: the call ends with 401."""
    session = str(uuid4())
    await client.post("/workers/register", json={"worker_id": WORKER, "session": session})
    task = asyncio.create_task(beat(calls("worker.a"), session))
    await key_ring.asked.wait()

    key_ring.revoked.add("worker.a")

    assert 401 == (await answered(task)).status_code


async def test_a_server_that_stops_answers_who_waits(client: httpx2.AsyncClient, engine: Engine, session: str) -> None:
    """Its workers go to another server; one that comes after that is answered at once."""
    task = await waiting(engine, beat(client, session))

    engine.session_waits.answer_all()

    assert 200 == (await answered(task)).status_code
    assert 200 == (await answered(asyncio.create_task(beat(client, session)))).status_code


@pytest.mark.parametrize("wait", [-1, 21, "x"])
async def test_a_wait_that_cannot_be_is_refused(client: httpx2.AsyncClient, session: str, wait: Any) -> None:
    """As of a claim."""
    assert 422 == (await beat(client, session, wait=wait)).status_code


async def test_a_caller_that_hung_up_waits_no_longer(client: httpx2.AsyncClient, engine: Engine, session: str) -> None:
    """Nothing is kept of it."""
    task = await waiting(engine, beat(client, session))

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert 0 == engine.session_waits.waiting_count
