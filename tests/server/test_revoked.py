"""A key that is revoked while its caller waits or follows a stream: the call ends within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import httpx2
import pytest

from tests.server.api import WORKER, lease, state_of, submit, submit_and_claim
from tests.server.frame import Idle, KeyRing, client_of
from windlass.config import Settings
from windlass.engine.engine import Engine
from windlass.engine.fair import Cap
from windlass.engine.outside import Outside
from windlass.errors import Unauthorized
from windlass.server.app import create_app
from windlass.server.auth import Principal
from windlass.server.call import Call

Calls = Callable[[str], httpx2.AsyncClient]


async def revoked(key_ring: KeyRing, key: str, calling: asyncio.Task[httpx2.Response]) -> httpx2.Response:
    """Revoke a key once its call has been seen to wait, and return how the call ended."""
    await key_ring.asked.wait()
    assert not calling.done()
    key_ring.revoked.add(key)
    return await calling


async def test_rel_t3_a_revoked_worker_that_waits_is_handed_nothing(calls: Calls, key_ring: KeyRing) -> None:
    """T3: a long poll ends with 401; a job that comes later is not the revoked worker's."""
    body = {"worker_id": WORKER, "wait": 20}
    claiming = asyncio.create_task(calls("worker.a").post("/jobs/claim", json=body))

    answer = await revoked(key_ring, "worker.a", claiming)
    job_id = await submit(calls("admin.a"))

    assert (401, "Bearer") == (answer.status_code, answer.headers["www-authenticate"])
    assert "queued" == await state_of(calls("admin.a"), job_id)


async def test_rel_t3_a_key_that_ends_while_the_body_comes_does_nothing(
    engine: Engine, key_ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3: a body may take ten seconds, and the name of its tenant may have another owner by then."""
    now_s = 1000.0
    monkeypatch.setattr(engine, "outside", Outside(monotonic=lambda: now_s))
    door = create_app(engine, Settings(), cast(Any, key_ring), look_s=2.0)

    async def slow() -> AsyncIterator[bytes]:
        nonlocal now_s
        yield b'{"task": '
        now_s += 10.0
        key_ring.revoked.add("admin.a")
        yield b'"t"}'

    async with client_of(door, "admin.a") as client:
        answer = await client.post("/api/v1/jobs", content=slow(), headers={"content-type": "application/json"})
    async with client_of(door, "reader.a") as client:
        page = (await client.get("/api/v1/jobs")).json()

    assert (401, []) == (answer.status_code, page["jobs"])


async def test_rel_t3_who_waits_for_a_job_is_not_told_its_end(calls: Calls, key_ring: KeyRing) -> None:
    """T3: waiting for a job ends with 401."""
    job_id = await submit(calls("admin.a"))
    waiting = asyncio.create_task(calls("reader.a").get(f"/jobs/{job_id}?wait=20"))

    answer = await revoked(key_ring, "reader.a", waiting)

    assert 401 == answer.status_code


async def test_rel_t4_a_stream_ends_with_its_key(calls: Calls, key_ring: KeyRing) -> None:
    """T4: the stream of a revoked reader ends; that of another goes on until its own time is over."""
    following = asyncio.create_task(calls("reader.a").get("/events"))
    other = asyncio.create_task(calls("operator.a").get("/events?seconds=20"))

    answer = await revoked(key_ring, "reader.a", following)

    assert (200, False) == (answer.status_code, other.done())
    key_ring.revoked.add("operator.a")
    await other


async def test_an_act_is_kept_though_its_caller_was_refused(calls: Calls, key_ring: KeyRing) -> None:
    """Who is revoked while waiting for the end of a cancelled job has cancelled it all the same."""
    job = await submit_and_claim(calls("admin.a"))
    cancelling = asyncio.create_task(calls("operator.a").delete(f"/jobs/{job['id']}?wait=20"))

    answer = await revoked(key_ring, "operator.a", cancelling)
    entries = (await calls("admin.a").get("/audit")).json()["entries"]

    assert (401, ["job.cancel"]) == (answer.status_code, [entry["action"] for entry in entries])
    await calls("admin.a").post(f"/jobs/{job['id']}/fail", json=lease(job, outcome="cancelled", error="x"))


async def test_what_is_ready_at_that_moment_is_undone() -> None:
    """A job that was handed out while the key was being looked at is given back."""
    undone: list[str] = []
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Late:
        async def still_good(self, principal: Principal) -> bool:
            ready.set_result("a job")
            await asyncio.gather(ready)
            return False

    async def connected() -> Any:
        await asyncio.Event().wait()

    async def work() -> str:
        return await ready

    async def undo(value: str) -> None:
        undone.append(value)

    nothing = cast(Any, None)
    call = Call(
        cast(Any, Idle()),
        nothing,
        receive=connected,
        lobby=nothing,
        redactor=nothing,
        watch=Late(),
        waiting=Cap.of_connections("waiting calls", 10),
        look_s=0.01,
    )

    with pytest.raises(Unauthorized):
        await call.while_connected(work(), undo)

    assert ["a job"] == undone
