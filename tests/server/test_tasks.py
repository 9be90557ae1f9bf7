"""Tasks over HTTP: published by workers, listed, and payloads checked against them at submit."""

from __future__ import annotations

from collections.abc import Callable

import httpx2

from tests.server.api import WORKER, Json

Calls = Callable[[str], httpx2.AsyncClient]
ADD: Json = {"parameters": {"x": {"types": ["integer"], "required": True}, "y": {"types": ["integer"]}}}


async def publish(client: httpx2.AsyncClient, **signatures: Json) -> None:
    """Register a worker that publishes these."""
    answer = await client.post(
        "/workers/register", json={"worker_id": WORKER, "tasks": list(signatures), "signatures": signatures}
    )
    assert 200 == answer.status_code, answer.text


async def test_a_payload_that_no_worker_takes_is_refused(client: httpx2.AsyncClient, calls: Calls) -> None:
    """422 names the argument; in a list also the job; other tasks and other tenants are not checked."""
    await publish(client, add=ADD)

    good = await client.post("/jobs", json={"task": "add", "payload": {"x": 1, "y": 2}})
    bad = await client.post("/jobs", json={"task": "add", "payload": {"y": 2}})
    many = await client.post(
        "/jobs/batch", json={"jobs": [{"task": "add", "payload": {"x": 1}}, {"task": "add", "payload": {"x": "1"}}]}
    )
    other = await client.post("/jobs", json={"task": "other", "payload": {"z": 2}})
    foreign = await calls("admin.b").post("/jobs", json={"task": "add", "payload": {"z": 2}})

    assert [201, 422, 422, 201, 201] == [answer.status_code for answer in (good, bad, many, other, foreign)]
    assert ("payload.x", "jobs[1].payload.x") == tuple(answer.json()["errors"][0]["field"] for answer in (bad, many))


async def test_published_tasks_are_listed(client: httpx2.AsyncClient, calls: Calls) -> None:
    """A page by name, with the signatures as they are understood; a tenant sees its own."""
    await publish(client, add=ADD, shout={"single": True})

    first = (await client.get("/tasks", params={"limit": 1})).json()
    rest = (await client.get("/tasks", params={"cursor": first["next_cursor"]})).json()
    foreign = (await calls("admin.b").get("/tasks")).json()

    [task] = first["tasks"]
    assert ("add", "add") == (task["name"], first["next_cursor"])
    assert {"x": {"types": ["integer"], "required": True}, "y": {"types": ["integer"], "required": False}} == task[
        "signatures"
    ][0]["parameters"]
    assert (["shout"], None, []) == ([t["name"] for t in rest["tasks"]], rest["next_cursor"], foreign["tasks"])


async def test_a_signature_is_read_strictly(client: httpx2.AsyncClient) -> None:
    """An unknown type or field is 422, and nothing is published."""
    wrongs: list[Json] = [{"parameters": {"x": {"types": ["int"]}}}, {"arguments": {}}]
    for wrong in wrongs:
        answer = await client.post("/workers/register", json={"worker_id": WORKER, "signatures": {"add": wrong}})
        assert 422 == answer.status_code

    assert [] == (await client.get("/tasks")).json()["tasks"]
