"""Schedules by the routes of jobs: `POST /jobs` with `schedule`, and what its id is good for there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.server.api import Json, claim, lease, submit
from tests.server.test_schedules import make, names, one_database

Calls = Callable[[str], httpx2.AsyncClient]
HOURLY = {"task": "report", "schedule": "0 * * * *"}


async def recur(client: httpx2.AsyncClient, **fields: Any) -> Json:
    """Submit a recurring job and return the answer."""
    answer = await client.post("/jobs", json={**HOURLY, **fields})
    assert answer.status_code == 201, answer.text
    made: Json = answer.json()
    return made


async def test_a_job_with_a_cron_makes_a_schedule(client: httpx2.AsyncClient) -> None:
    """S8, P5: 201 with the schedule's id, status and next slot; no job is made now."""
    made = await recur(client, timezone="Europe/Berlin", payload={"a": 1}, schedule_name="hourly", max_retries=1)

    schedule = (await client.get("/schedules/hourly")).json()
    assert {"id", "status", "state", "next_run_at"} == set(made)
    assert ("scheduled", schedule["id"], schedule["next_run_at"]) == tuple(
        made[k] for k in ("status", "id", "next_run_at")
    )
    assert ("0 * * * *", "Europe/Berlin", {"a": 1}, 2) == tuple(
        schedule[k] for k in ("cron", "timezone", "payload", "max_attempts")
    )
    assert [] == await claim(client)


async def test_its_id_is_good_for_the_routes_of_jobs(client: httpx2.AsyncClient) -> None:
    """S8: look, list, pause, resume, attempts and events in the shape of a job."""
    made = await recur(client)
    url = f"/jobs/{made['id']}"

    looked = (await client.get(url)).json()
    paused = (await client.post(f"{url}/pause", json={"reason": "audit"})).json()
    while_paused = (await client.get(url)).json()
    resumed = (await client.post(f"{url}/resume")).json()
    run = (await client.post(f"/schedules/{made['id']}/run")).json()
    events = (await client.get(f"{url}/events")).json()["events"]

    assert ("scheduled", "report", made["id"], made["next_run_at"], False) == tuple(
        looked[k] for k in ("state", "task", "schedule_id", "next_run_at", "paused")
    )
    assert ({"scheduled"}, True, False) == (
        {paused["state"], resumed["state"]},
        paused["paused"],
        resumed["paused"],
    )
    assert (True, "audit", None) == tuple(while_paused[k] for k in ("paused", "reason", "next_run_at"))
    assert made["next_run_at"] == (await client.get(url)).json()["next_run_at"]
    told = {event["kind"]: event["detail"] for event in events}
    assert {"submitted", "paused", "resumed", "manual"} == told.keys()
    assert run["id"] in told["manual"]


async def test_its_attempts_are_those_of_its_jobs(client: httpx2.AsyncClient) -> None:
    """S8: the jobs that it made, oldest first."""
    made = await recur(client)
    ids = []
    for _ in range(2):
        await client.post(f"/schedules/{made['id']}/run")
        [job] = await claim(client)
        await client.post(f"/jobs/{job['id']}/complete", json=lease(job))
        ids.append(job["id"])

    attempts = (await client.get(f"/jobs/{made['id']}/attempts")).json()["attempts"]

    assert ids == [attempt["job_id"] for attempt in attempts]


@pytest.mark.parametrize("how", ["DELETE", "POST"])
async def test_cancelling_it_ends_the_schedule_and_what_waits(client: httpx2.AsyncClient, how: str) -> None:
    """S8: DELETE stops the schedule and cancels its jobs that have not begun; from then on it is a cancelled job."""
    made = await recur(client)
    waiting = (await client.post(f"/schedules/{made['id']}/run")).json()["id"]
    url = f"/jobs/{made['id']}" + ("/cancel" if how == "POST" else "")

    cancelled = await client.request(how, url)

    assert (200, {"id": made["id"], "status": "cancelled", "state": "cancelled"}) == (
        cancelled.status_code,
        cancelled.json(),
    )
    assert "cancelled" == (await client.get(f"/jobs/{waiting}")).json()["state"]
    left = (await client.get(f"/jobs/{made['id']}")).json()
    assert ("cancelled", "report", made["id"]) == tuple(left[k] for k in ("state", "task", "schedule_id"))
    again = await client.request(how, url)
    assert (200, cancelled.json()) == (again.status_code, again.json())
    kinds = [event["kind"] for event in (await client.get(f"/jobs/{made['id']}/events")).json()["events"]]
    assert ("submitted", "cancelled") == (kinds[0], kinds[-1])
    assert [] == await claim(client)
    assert [] == await names(client)
    audited = (await client.get("/audit?action=job.cancel")).json()["entries"]
    assert (made["id"], "scheduled") == (audited[-1]["subject"], audited[-1]["was"]["state"])


async def test_waiting_for_it_takes_as_long_as_was_asked(client: httpx2.AsyncClient) -> None:
    """It does not end by itself: who waits for its end in a loop does not run in circles."""
    made = await recur(client)
    started = asyncio.get_running_loop().time()

    answer = await client.get(f"/jobs/{made['id']}?wait=0.3")

    assert ("scheduled", True) == (answer.json()["state"], asyncio.get_running_loop().time() - started >= 0.29)


async def test_lists_hold_schedules_where_they_are_asked_for(client: httpx2.AsyncClient) -> None:
    """S8: with include=schedules, and by itself in vocabulary c; newest first among the jobs, in pages."""
    first = await submit(client)
    made = await recur(client)
    last = await submit(client)

    plain = (await client.get("/jobs")).json()
    both = (await client.get("/jobs?include=schedules")).json()
    words = (await client.get("/jobs?vocabulary=c")).json()
    without = (await client.get("/jobs?vocabulary=c&include=none")).json()
    pages = [(await client.get(f"/jobs?include=schedules&limit=1&page={page}")).json() for page in (1, 2, 3)]
    waiting = (await client.get("/jobs?include=schedules&status=scheduled")).json()
    running = (await client.get("/jobs?include=schedules&status=running")).json()

    assert [last, first] == [job["id"] for job in plain["jobs"]]
    assert [last, made["id"], first] == [job["id"] for job in both["jobs"]]
    assert both["total"] == 3
    assert [last, made["id"], first] == [job["id"] for job in words["jobs"]]
    assert [last, first] == [job["id"] for job in without["jobs"]]
    assert [last, made["id"], first] == [page["jobs"][0]["id"] for page in pages]
    assert ([made["id"]], []) == ([job["id"] for job in waiting["jobs"]], running["jobs"])


async def test_the_same_request_under_a_key_makes_one_schedule(client: httpx2.AsyncClient) -> None:
    """S6: 200 and the first one, also after an edit and for racing callers; other content is 422."""
    header = {"Idempotency-Key": "k1"}
    first = await client.post("/jobs", json={**HOURLY, "payload": [1.0]}, headers=header)
    await client.patch(f"/schedules/{first.json()['id']}", json={"priority": 3})

    again = await asyncio.gather(
        *(client.post("/jobs", json={**HOURLY, "payload": [1.0]}, headers=header) for _ in range(4))
    )
    other = await client.post("/jobs", json={**HOURLY, "payload": [2.0]}, headers=header)
    task = await client.post("/jobs", json={**HOURLY, "task": "x", "idempotency_key": "k1"})

    assert 201 == first.status_code
    assert [(200, {**first.json(), "duplicate": True})] * 4 == [(a.status_code, a.json()) for a in again]
    assert [(422, "key_reused")] * 2 == [(a.status_code, a.json()["code"]) for a in (other, task)]
    assert 1 == len(await names(client))


async def test_a_name_that_is_taken_is_a_conflict(client: httpx2.AsyncClient) -> None:
    """P26: 409, with a key too when another request took the name."""
    await make(client)

    plain = await client.post("/jobs", json={**HOURLY, "schedule_name": "nightly"})
    keyed = await client.post("/jobs", json={**HOURLY, "schedule_name": "nightly", "idempotency_key": "k"})

    assert [(409, "name_taken")] * 2 == [(a.status_code, a.json()["code"]) for a in (plain, keyed)]


BAD: list[tuple[Json, str, str]] = [
    ({"schedule": "0 25 * * *"}, "invalid_schedule", "schedule"),
    ({"schedule": "0 0 30 2 *"}, "invalid_schedule", "schedule"),
    ({"timezone": "Mars/Olympus"}, "invalid_schedule", "timezone"),
    ({"schedule": None, "timezone": "UTC"}, "invalid_schedule", "timezone"),
    ({"schedule": None, "schedule_name": "x"}, "invalid_schedule", "schedule_name"),
    ({"schedule_name": "batch"}, "invalid_input", "schedule_name"),
    ({"run_at": "9999-06-01T00:00:00Z"}, "invalid_input", "run_at"),
    ({"delay": 5}, "invalid_schedule", "delay"),
    ({"unique_key": "u"}, "invalid_schedule", "unique_key"),
]


@one_database
@pytest.mark.parametrize(("fields", "code", "field"), BAD, ids=lambda value: str(value)[:40])
async def test_what_is_wrong_is_named_in_the_words_of_a_job(
    client: httpx2.AsyncClient, fields: Json, code: str, field: str
) -> None:
    """P5: 422 with the field as the caller wrote it, and nothing is stored."""
    answer = await client.post("/jobs", json={**HOURLY, **fields})

    assert (422, code, field) == (answer.status_code, answer.json()["code"], answer.json()["errors"][0]["field"])
    assert ([], []) == (await names(client), (await client.get("/jobs")).json()["jobs"])


@one_database
async def test_a_batch_takes_jobs_only(client: httpx2.AsyncClient) -> None:
    """422 with the index, and where to send it instead."""
    answer = await client.post("/jobs/batch", json={"jobs": [{"task": "t"}, HOURLY]})

    assert (422, "jobs[1].schedule") == (answer.status_code, answer.json()["errors"][0]["field"])
    assert "/schedules/batch" in answer.json()["detail"]


async def test_rel_t6_a_foreign_one_is_like_none(calls: Calls) -> None:
    """N1: by the routes of jobs too."""
    made = await recur(calls("admin.b"))
    client = calls("admin.a")

    for method, tail in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("GET", "/attempts")):
        unknown = str(uuid4())
        foreign = await client.request(method, f"/jobs/{made['id']}{tail}")
        none = await client.request(method, f"/jobs/{unknown}{tail}")
        assert 404 == foreign.status_code == none.status_code
        assert none.text.replace(unknown, made["id"]) == foreign.text
    own = await recur(client)
    await recur(calls("admin.b"))
    listed = (await client.get("/jobs?include=schedules&limit=1")).json()

    assert [own["id"]] == [job["id"] for job in listed["jobs"]]
    assert 200 == (await calls("admin.b").get(f"/jobs/{made['id']}")).status_code
