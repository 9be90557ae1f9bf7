"""Tasks over HTTP: published by workers, listed, and payloads checked against them at submit."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import msgspec
import pytest

from tests.server.api import WORKER, Json
from windlass.queue import tasks
from windlass.wire.tasks import Signature

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


async def test_rel_h4_more_signatures_than_are_kept_are_refused_for_good(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """422 tells the size and the bound: to wait would not help. The worker is not registered, and others may be."""
    await publish(client, first=ADD)
    size = len(msgspec.json.encode(msgspec.convert(ADD, Signature)))
    monkeypatch.setattr(tasks, "MOST_BYTES", 2 * size)
    many = {"worker_id": "greedy", "signatures": dict.fromkeys(("first", "second", "third"), ADD)}

    answer = await client.post("/workers/register", json=many)
    listed = (await client.get("/workers")).json()["workers"]
    await publish(client, first=ADD, second=ADD)

    assert (422, "signatures") == (answer.status_code, answer.json()["errors"][0]["field"])
    assert (True, True) == (f"{3 * size} bytes" in answer.text, f"{2 * size}" in answer.text)
    assert [WORKER] == [worker["worker_id"] for worker in listed]
