"""Why a job waits, over HTTP: with the job, for all tasks in one look, and jobs by the end of their id."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.server.api import claim, submit
from windlass.engine import fair
from windlass.engine.acts import AT_ONCE_EACH, ROOM_EACH
from windlass.engine.engine import Engine

Calls = Callable[[str], httpx2.AsyncClient]


async def codes(client: httpx2.AsyncClient, job_id: str, **query: Any) -> list[str]:
    """Return the codes of why a job waits."""
    return [reason["code"] for reason in (await client.get(f"/jobs/{job_id}", params=query)).json()["waiting"]]


async def register(client: httpx2.AsyncClient, **fields: Any) -> None:
    """Register a worker that says what it serves."""
    answer = await client.post("/workers/register", json={"worker_id": "ann", "queues": ["default"], **fields})
    assert 200 == answer.status_code


async def test_a_job_says_why_it_waits(client: httpx2.AsyncClient) -> None:
    """Each look at one job has the reasons of that moment; a job that does not wait has none."""
    await register(client, tasks=["t"])
    typo, due_later, ready = await submit(client, task="typo"), await submit(client, delay=60), await submit(client)
    await client.post("/queues/shut/pause", json={"reason": "no mail today"})
    paused = await submit(client, queue="shut")

    assert ["no_worker_for_task"] == await codes(client, typo)
    assert ["not_due"] == await codes(client, due_later)
    assert ["turn"] == await codes(client, ready)
    assert ["paused_queue"] == await codes(client, paused, wait=0.01)
    assert "no mail today" in (await client.get(f"/jobs/{paused}")).text
    await claim(client, count=2)
    assert [] == await codes(client, ready)


async def test_a_worker_that_does_not_say_what_it_serves_may_serve_all(client: httpx2.AsyncClient) -> None:
    """A caller that only claims is not known to lack a task; what it may do is told apart from what a worker can."""
    await claim(client, tasks=["other"])
    job_id = await submit(client)
    waiting = (await client.get(f"/jobs/{job_id}")).json()["waiting"]
    await client.post("/workers/register", json={"worker_id": "ann", "session": str(uuid4()), "tasks": ["t"]})
    [can] = (await client.get(f"/jobs/{job_id}")).json()["waiting"]

    assert [("turn", "It waits for its turn: 1 worker may run it, but does not say so; 0 of 1 threads are busy.")] == [
        (reason["code"], reason["detail"]) for reason in waiting
    ]
    assert "It waits for its turn: 1 worker can run it; 0 of 1 threads are busy." == can["detail"]


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ({"task": "typo"}, "No live worker of queue default has the task typo"),
        ({"queue": "other"}, "No live worker serves queue other"),
        ({"labels": ["gpu"]}, "No live worker with the task t has the labels gpu"),
    ],
)
async def test_a_caller_that_only_claims_hides_no_reason(
    client: httpx2.AsyncClient, asked: dict[str, Any], missing: str
) -> None:
    """Beside registered workers it is told that it may ask for the job, and the job is listed as one that is stuck."""
    await register(client, tasks=["t"], queues=["default"])
    await claim(client, worker_id="passer-by", queues=["zzz"], tasks=["onlythis"])
    job_id = await submit(client, **asked)

    [reason] = (await client.get(f"/jobs/{job_id}")).json()["waiting"]
    [stuck] = (await client.get("/stuck")).json()["tasks"]

    assert reason["detail"].startswith(f"{missing} (1 caller that has not registered may ask for it). ")
    assert reason["code"] == stuck["code"]


async def test_looks_for_reasons_take_turns(calls: Calls, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """M4: of one tenant two at a time; who finds no turn is shown the job all the same, and `waiting` is null."""
    monkeypatch.setattr(engine.acts.explaining, "_patience_s", 0.0)
    clients = [calls(f"admin.{tenant}") for tenant in "ab"]
    jobs = [(client, await submit(client)) for client in clients]
    async with AsyncExitStack() as held:
        for _ in range(AT_ONCE_EACH):
            await held.enter_async_context(engine.acts.explaining.sure_turn("a"))
        answers = [await client.get(f"/jobs/{job_id}") for client, job_id in jobs]
    told = await codes(*jobs[0])

    assert [200, 200] == [answer.status_code for answer in answers]
    assert [True, False] == [answer.json()["waiting"] is None for answer in answers]
    assert ["no_worker"] == told


async def test_only_so_many_wait_for_a_look(client: httpx2.AsyncClient, engine: Engine) -> None:
    """M4: beyond that a job is shown at once."""
    job_id = await submit(client)
    with ExitStack() as places:
        for _ in range(ROOM_EACH // 2):
            places.enter_context(engine.acts.explaining.place("a", "admin.a"))
        answer = await client.get(f"/jobs/{job_id}")

    assert (200, None) == (answer.status_code, answer.json()["waiting"])


async def test_large_fleets_are_looked_at_in_turns(client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """M4: other callers get their turn on the event loop between workers and between lanes."""
    monkeypatch.setattr(fair, "TURN_S", 0.0)
    waited: list[str] = []
    wait = fair.LoopTurns.wait

    async def counted(self: fair.LoopTurns, tenant: str) -> None:
        waited.append(tenant)
        await wait(self, tenant)

    for number in range(3):
        await register(client, session=str(uuid4()), tasks=["t"], labels=[f"l{number}"])
    job_id = await submit(client, task="typo")
    monkeypatch.setattr(fair.LoopTurns, "wait", counted)

    counts = []
    for path in (f"/jobs/{job_id}", "/stuck"):
        waited.clear()
        await client.get(path)
        counts.append(len(waited))

    texts = 3 + 2
    assert [3 + texts + 1, 3 + texts + 2] == counts


async def test_lists_do_not_look_for_reasons(client: httpx2.AsyncClient) -> None:
    """`waiting` is null in a list: what is looked up for each job of a page would not be bounded."""
    await submit(client)

    assert [None] == [job["waiting"] for job in (await client.get("/jobs")).json()["jobs"]]


async def test_a_paused_schedule_says_so_as_a_job(client: httpx2.AsyncClient) -> None:
    """By its id, in the shape of a job."""
    made = await client.post("/jobs", json={"task": "t", "schedule": "0 5 * * *"})
    schedule = made.json()["id"]
    await client.post(f"/jobs/{schedule}/pause")

    assert "paused_schedule" in await codes(client, schedule)


async def test_tasks_that_nobody_serves_are_listed_once(client: httpx2.AsyncClient) -> None:
    """One entry for each queue, task and labels, however many jobs wait there."""
    await register(client, tasks=["t"])
    for _ in range(3):
        await submit(client, task="typo", labels=["gpu"])
    await submit(client)

    [found] = (await client.get("/stuck")).json()["tasks"]

    assert ("default", "typo", ["gpu"], "no_worker_for_task") == tuple(
        found[name] for name in ("queue", "task", "labels", "code")
    )


async def test_jobs_are_found_by_the_end_of_their_id(client: httpx2.AsyncClient) -> None:
    """`id_end`, in any case, with other conditions beside it; what cannot be an end is refused."""
    job_id, _ = await submit(client), await submit(client)

    found = (await client.get("/jobs", params={"id_end": job_id[-8:].upper()})).json()

    assert ([job_id], 1) == ([job["id"] for job in found["jobs"]], found["total"])
    for condition in ({"queue": "q"}, {"status": "dead"}, {"page": 2}, {"cursor": job_id}):
        assert [] == (await client.get("/jobs", params={"id_end": job_id[-8:], **condition})).json()["jobs"]
    for wrong in ("abc", "%%%%", "wxyz"):
        assert 422 == (await client.get("/jobs", params={"id_end": wrong})).status_code
