"""A key that is limited to queues, beside every route of the table: it sees and touches nothing of other queues."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import uuid4

import httpx2
import pytest

from tests.server.api import WORKER, claim, lease, state_of, submit
from windlass.server.route import Route, documented_path
from windlass.server.routes import ROUTES

Calls = Callable[[str], httpx2.AsyncClient]
ROOT = "http://windlass.test"
LIMITED = "admin.a@own"
"""All scopes, one queue: what such a key is refused, it is refused for its queue."""


def routes_bound(by: str) -> list[Route]:
    """Return the routes that keep a limited key to its queues in this way."""
    return [route for route in ROUTES if route.scopes and route.bound == by]


async def ask(client: httpx2.AsyncClient, route: Route, value: str) -> httpx2.Response:
    """Call a route about something, with the least that it takes."""
    body = {"worker_id": WORKER, "fence": 1, "delay": 1} if "work" in route.scopes else {}
    url = ROOT + re.sub(r"\{\w+\}", value, documented_path(route))
    return await client.request(route.method, url, json=body if route.body else None)


async def dead_job(client: httpx2.AsyncClient, queue: str) -> str:
    """Return a job of a queue that has failed for good."""
    job_id = await submit(client, queue=queue, max_attempts=1)
    [job] = await claim(client, queues=[queue])
    await client.post(f"/jobs/{job_id}/fail", json=lease(job, error="x"))
    return job_id


def test_rel_t4_a_route_is_closed_to_limited_keys_unless_it_says_how() -> None:
    """A job or a queue in the path binds the route; what a new route does not say is refused."""
    for route in ROUTES:
        if route.parameter == "id":
            assert "job" == route.bound, route.name
        if route.path.startswith("/queues/{name}"):
            assert "queue" == route.bound, route.name
    assert {"/tenants/{name}/pause", "/attempts", "/events", "/queues", "/workers", "/admin/queue/status"} <= {
        route.path for route in routes_bound("whole")
    }


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_rel_t4_what_is_about_the_whole_is_refused(calls: Calls) -> None:
    """N2: lists and acts over all queues are 403, also the pause of the whole tenant."""
    client = calls(LIMITED)

    for route in routes_bound("whole"):
        answer = await ask(client, route, "a")
        assert 403 == answer.status_code, (route.name, answer.text)


async def test_rel_t4_a_job_of_another_queue_is_refused_by_id(calls: Calls) -> None:
    """N2: 403 on every route about a job, waiting or dead, and nothing becomes of it; an unknown one is 404."""
    client = calls(LIMITED)
    dead = await dead_job(calls("admin.a"), "other")
    waiting = await submit(calls("admin.a"), queue="other")

    for route in routes_bound("job"):
        for job_id in (waiting, dead):
            answer = await ask(client, route, job_id)
            assert 403 == answer.status_code, (route.name, answer.text)
            assert "other" not in answer.text
        assert (await ask(client, route, str(uuid4()))).status_code in (404, 422), route.name

    assert ["queued", "dead"] == [await state_of(calls("admin.a"), job_id) for job_id in (waiting, dead)]


async def test_rel_t4_another_queue_is_refused_by_name(calls: Calls) -> None:
    """N2: look, set, pause, resume and scale."""
    client = calls(LIMITED)
    await submit(calls("admin.a"), queue="other")

    for route in routes_bound("queue"):
        answer = await ask(client, route, "other")
        assert 403 == answer.status_code, route.name


async def test_a_limited_key_does_its_work_in_its_queue(calls: Calls) -> None:
    """N2: submit, look, change, claim, report and retry go as for everybody else."""
    client = calls(LIMITED)
    job_id = await submit(client, queue="own")

    changed = await client.patch(f"/jobs/{job_id}", json={"priority": 5})
    moved = await client.patch(f"/jobs/{job_id}", json={"queue": "other"})
    [job] = await claim(client, queues=["own"])
    failed = await client.post(f"/jobs/{job_id}/fail", json=lease(job, error="x", retryable=False))
    retried = await client.post("/dead-letter/retry", json={})
    elsewhere = await client.post("/jobs", json={"task": "t", "queue": "other"})

    assert [200, 403, 200, 403] == [answer.status_code for answer in (changed, moved, failed, elsewhere)]
    assert 1 == retried.json()["count"]
    assert [200, 200] == [
        (await client.get(path)).status_code for path in (f"/jobs/{job_id}/attempts", f"/jobs/{job_id}?wait=0")
    ]


async def test_rel_t4_lists_show_only_the_keys_queues(calls: Calls) -> None:
    """N2: of one queue by itself, of several the one that is named; another is 403, as is none of several."""
    for queue in ("own", "second", "other"):
        await dead_job(calls("admin.a"), queue)
    one, two = calls("reader.a@own"), calls("reader.a@own,second")

    for path in ("/jobs", "/dead-letter"):
        alone = (await one.get(path)).json()
        named = (await two.get(f"{path}?queue=second")).json()
        refused = [await one.get(f"{path}?queue=other"), await two.get(path)]
        assert [["own"], ["second"]] == [[job["queue"] for job in found["jobs"]] for found in (alone, named)]
        assert (1, [403, 403]) == (alone["total"], [answer.status_code for answer in refused])


async def test_rel_t4_acts_on_many_keep_to_the_keys_queues(calls: Calls) -> None:
    """N2: dead letters of another queue are neither retried nor removed, by name, by id or by leaving the queue out."""
    other = await dead_job(calls("admin.a"), "other")
    own = await dead_job(calls("admin.a"), "own")
    client = calls("operator.a@own")

    by_id = await client.post("/dead-letter/purge", json={"ids": [own, other]})
    by_name = await client.post("/dead-letter/retry", json={"queue": "other"})
    all_own = await client.post("/dead-letter/purge", json={})

    assert [403, 403] == [by_id.status_code, by_name.status_code]
    assert [own] == [job["id"] for job in all_own.json()["jobs"]]
    assert "dead" == await state_of(calls("admin.a"), other)


async def test_rel_t4_a_limited_worker_speaks_only_of_its_queues(calls: Calls) -> None:
    """N2: reports in a list and heartbeats for a job of another queue are refused, with the right lease too."""
    job_id = await submit(calls("admin.a"), queue="other")
    [job] = await claim(calls("admin.a"), queues=["other"])
    client = calls("worker.a@own")
    entry = {"kind": "complete", "job_id": job_id, "fence": job["fence"], "session": job["session"]}

    listed = await client.post("/jobs/report", json={"worker_id": WORKER, "reports": [entry]})
    beat = await client.post(
        "/workers/heartbeat", json={"worker_id": WORKER, "held": [{"job_id": job_id, "fence": job["fence"]}]}
    )
    claimed = await client.post("/jobs/claim", json={"worker_id": WORKER, "queues": ["own", "other"]})
    closed = await calls(LIMITED).delete(f"/workers/{WORKER}")

    assert [403, 403, 403] == [answer.status_code for answer in (listed, claimed, closed)]
    assert (200, [job_id]) == (beat.status_code, beat.json()["lost"])
    assert "assigned" == await state_of(calls("admin.a"), job_id)
