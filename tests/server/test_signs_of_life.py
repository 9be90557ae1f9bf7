"""Signs of life over HTTP: every call that names a worker keeps it in the list, with or without a session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.clock import TestClock
from tests.server.api import WORKER, Json, claim, lease, submit
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.queue import rescue

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
STEP_S = 5


class Time:
    """Time that passes when the test says so: the database's, the server's, and that of the duty that rescues."""

    def __init__(self, db: Database, clock: TestClock) -> None:
        self._db = db
        self._clock = clock
        self.elapsed_s = 0.0

    async def run(self, seconds: float) -> None:
        """Let time pass, in steps shorter than a gap between two looks of rescue."""
        for _ in range(int(seconds // STEP_S)):
            await self._step(STEP_S)
        await self._step(seconds % STEP_S)

    async def _step(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self.elapsed_s += seconds
        await rescue.rescue(self._db, chance=lambda: 0.0)


@pytest.fixture
def time(db: Database, clock: TestClock) -> Time:
    """The time of the database and of the engine."""
    return Time(db, clock)


@pytest.fixture
async def engine(db: Database, settings: Settings, time: Time) -> AsyncIterator[Engine]:
    """A running engine, whose elapsed time is the test's."""
    outside = Outside(monotonic=lambda: time.elapsed_s)
    async with Engine(db, settings, name="s", outside=outside).running() as made:
        yield made


async def post(client: httpx2.AsyncClient, engine: Engine, path: str, **body: Any) -> Json:
    """Send a call, wait until the sign of life in it is stored, and return the answer."""
    answer = await client.post(path, json={"worker_id": WORKER, **body})
    assert answer.status_code in (200, 204), answer.text
    await engine._sessions.idle()
    found: Json = answer.json() if answer.status_code == 200 else {}
    return found


async def shown(client: httpx2.AsyncClient) -> Json:
    """Return the one worker there is."""
    [worker] = (await client.get("/workers")).json()["workers"]
    assert isinstance(worker, dict)
    return worker


async def test_who_registers_and_claims_without_a_session_stays_what_it_registered(
    client: httpx2.AsyncClient, engine: Engine, time: Time
) -> None:
    """H1, H9: one row, with the threads, version and counts of the registration, however it calls from then on."""
    registered = await post(client, engine, "/workers/register", max_threads=4, version="1.2", lease_seconds=60)
    await time.run(20)
    for _ in range(3):
        await submit(client)
    one, two, _ = await claim(client)
    await post(client, engine, f"/jobs/{one['id']}/complete", **lease(one))
    await post(client, engine, f"/jobs/{two['id']}/fail", **lease(two, error_message="x"))
    await time.run(20)
    await post(client, engine, "/workers/heartbeat")

    worker = await shown(client)

    assert (4, 1, 3, "1.2", "active") == tuple(
        worker[k] for k in ("total_threads", "busy_threads", "available_threads", "version", "status")
    )
    assert (1, 1, 60) == tuple(worker[k] for k in ("jobs_completed", "jobs_failed", "lease_seconds"))
    assert registered["start_id"] == worker["start_id"]
    assert registered["session"] not in str(worker)


async def test_a_session_that_was_registered_and_never_named_again_lends_what_it_said(
    client: httpx2.AsyncClient, engine: Engine, time: Time
) -> None:
    """H1: who registers a session of its own and then calls without it is shown alive, as it registered."""
    await post(client, engine, "/workers/register", session=str(uuid4()), max_threads=4, version="1.2")
    await time.run(2)
    seen = []
    for _ in range(6):
        await post(client, engine, "/jobs/claim")
        await time.run(20)
        worker = await shown(client)
        seen.append((worker["status"], worker["total_threads"], worker["version"]))

    assert [("idle", 4, "1.2")] * 6 == seen


async def test_who_beats_every_minute_is_alive_between_its_beats(
    client: httpx2.AsyncClient, engine: Engine, time: Time
) -> None:
    """H3: `{workerId, currentPageId, timestamp}` every 60 s; dead after 300 s; the timestamp is its clock's skew."""
    await post(client, engine, "/workers/heartbeat", timestamp="2026-01-01T12:00:00Z")
    seen: list[str] = []
    for _ in range(20):
        await time.run(15)
        if len(seen) % 4 == 3:
            await post(client, engine, "/workers/heartbeat", timestamp="2026-01-01T12:00:00Z", currentPageId=None)
        seen.append((await shown(client))["status"])
    alive = await shown(client)
    await time.run(299)
    last = (await shown(client))["status"]
    await time.run(2)
    [words] = (await client.get("/workers/status?vocabulary=d")).json()["workers"]

    assert ["starting"] * 3 + ["idle"] * 17 == seen
    assert "idle" == last
    assert ("dead", WORKER) == (words["status"], words["id"])
    assert alive["skew_ms"] is not None


async def test_a_job_named_as_the_current_page_lasts_from_beat_to_beat(
    client: httpx2.AsyncClient, engine: Engine, time: Time
) -> None:
    """L7, L18: a lease of 300 s and a beat of 60 s keep the job that is named, and no other."""
    for _ in range(2):
        await submit(client)
    kept, other = await claim(client, lease_seconds=300)
    beats = []
    for _ in range(6):
        beats.append(await post(client, engine, "/workers/heartbeat", currentPageId=kept["id"]))
        await time.run(60)

    states = [(await client.get(f"/jobs/{job['id']}")).json()["state"] for job in (kept, other)]

    assert ["running", "queued"] == states
    assert [[]] * 6 == [beat["lost"] for beat in beats]


async def test_a_slow_rhythm_is_noticed(client: httpx2.AsyncClient, engine: Engine, time: Time) -> None:
    """H3: who beats every 60 s in the short form, and has not said so, is alive from its second beat on."""
    for _ in range(2):
        await post(client, engine, "/workers/heartbeat")
        await time.run(60)
    seen = [(await shown(client))["status"]]
    await post(client, engine, "/workers/heartbeat")
    await time.run(60)
    seen.append((await shown(client))["status"])

    assert ["idle", "idle"] == seen


async def test_the_length_that_was_asked_for_stands(client: httpx2.AsyncClient, engine: Engine, time: Time) -> None:
    """L7: `dead_after_seconds` of the registration is how long it is alive, and how long its jobs are leased."""
    await post(client, engine, "/workers/register", dead_after_seconds=120)
    await submit(client)
    [job] = await claim(client)
    await post(client, engine, "/workers/heartbeat", timestamp="2026-01-01T12:00:00Z")
    await time.run(119)
    before = await shown(client)
    await time.run(2)

    assert 120 == job["lease_seconds"]
    assert ("busy", "dead") == (before["status"], (await shown(client))["status"])


async def test_who_registers_again_is_one_worker_with_a_new_start(
    client: httpx2.AsyncClient, engine: Engine, time: Time
) -> None:
    """P31: register is an upsert: restarted within 30 s, a worker is not shown dead by the start before."""
    first = await post(client, engine, "/workers/register", max_threads=2)
    await post(client, engine, "/workers/heartbeat", busy_threads=2)
    await time.run(10)
    second = await post(client, engine, "/workers/register", max_threads=3)
    fresh = await shown(client)
    for _ in range(6):
        await time.run(10)
        await post(client, engine, "/workers/heartbeat")

    worker = await shown(client)

    assert first["start_id"] != second["start_id"]
    assert ("starting", 0, 3) == tuple(fresh[k] for k in ("status", "busy_threads", "total_threads"))
    assert ("idle", 3, second["start_id"]) == tuple(worker[k] for k in ("status", "total_threads", "start_id"))


async def test_reports_are_signs_of_life(client: httpx2.AsyncClient, engine: Engine, time: Time) -> None:
    """H9: a caller that only reports is alive, also if it names the session of each job."""
    for _ in range(4):
        await submit(client)
    await post(client, engine, "/workers/register")
    seen = []
    for number, job in enumerate(await claim(client, lease_seconds=600)):
        await time.run(20)
        named = lease(job) if number % 2 else {"fence": job["fence"]}
        await post(client, engine, f"/jobs/{job['id']}/complete", **named)
        seen.append((await shown(client))["status"])

    assert "dead" not in seen
    assert "idle" == seen[-1]


@pytest.mark.parametrize("way", ["claim", "report", "report at another server"])
async def test_claims_and_reports_keep_a_session(
    client: httpx2.AsyncClient, engine: Engine, time: Time, way: str
) -> None:
    """H9: a worker with a session is alive as long as it claims or reports, and has one row."""
    session = str(uuid4())
    await post(client, engine, "/workers/register", session=session, max_threads=20)
    for _ in range(6):
        await submit(client)
    jobs = await claim(client, session=session) if "report" in way else []
    seen = []
    for number in range(6):
        await time.run(20)
        if way == "claim":
            await post(client, engine, "/jobs/claim", session=session, count=1)
        else:
            if "another" in way:
                engine._sessions._known.clear()
            await post(client, engine, f"/jobs/{jobs[number]['id']}/complete", **lease(jobs[number]))
        seen.append((await shown(client))["status"])

    assert {"active"} == set(seen[:5])
    assert seen[5] in ("active", "idle")


async def test_reports_of_an_ended_session_bring_nobody_back(
    client: httpx2.AsyncClient, engine: Engine, time: Time
) -> None:
    """I6: who has left stays away, though it repeats a report until somebody answers."""
    session = str(uuid4())
    await post(client, engine, "/workers/register", session=session)
    await submit(client)
    [job] = await claim(client, session=session)
    await client.delete(f"/workers/{WORKER}?session={session}")
    engine._sessions._known.clear()
    await client.post(f"/jobs/{job['id']}/complete", json=lease(job))
    await engine._sessions.idle()

    assert "stopped" == (await shown(client))["status"]


async def test_the_session_of_a_registration_may_be_used_from_then_on(
    client: httpx2.AsyncClient, engine: Engine, time: Time
) -> None:
    """P31: register answers a session; who names it holds its jobs by it, and calls without it keep none of them."""
    session = (await post(client, engine, "/workers/register", max_threads=4, lease_seconds=40))["session"]
    await submit(client)
    [job] = await claim(client, session=session)
    await time.run(20)
    beat = await post(client, engine, "/workers/heartbeat", session=session, held=[])
    held = await shown(client)
    for _ in range(3):
        await post(client, engine, "/workers/heartbeat")
        await time.run(20)

    assert (session, 40) == (job["session"], job["lease_seconds"])
    assert [job["id"]] == beat["released"]
    assert (4, "idle") == (held["total_threads"], held["status"])
    assert "idle" == (await shown(client))["status"]
