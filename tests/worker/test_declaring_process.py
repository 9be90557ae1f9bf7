"""Worker processes that start, on a real server: their application's schedules are there before the first job runs."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2

from tests.proofs.processes import server_arguments, started
from tests.worker.overhttp import ended, submit, to
from tests.worker.running import PATIENCE_S
from tests.worker.test_runner_process import runner
from windlass.config import Settings
from windlass.queue.keys import make_token
from windlass.wire import work as wire
from windlass.worker.frames import Opened, Ready
from windlass.worker.httplink import HttpLink

MODULE = """
import windlass
from windlass import cron, every

app = windlass.App(name="shop")

@app.scheduled(cron("0 3 1 1 *", zone="Europe/Berlin"), name="yearly", kwargs={"x": 1})
@app.scheduled(every("1d"), name="daily", overlap="allow")
@app.task
def add(x: int = 0, y: int = 0) -> int:
    return x + y
"""
LESS = MODULE.replace('@app.scheduled(every("1d"), name="daily", overlap="allow")\n', "")
WRONG = MODULE.replace('name="yearly"', 'name="batch"')
"""Only a server refuses this name: it is a word of its paths."""


async def work(stack: AsyncExitStack, settings: Settings, folder: Path, *, name: str) -> None:
    """Have a runner work, with a session of its own, until the stack ends."""
    link = HttpLink(settings)
    stack.push_async_callback(link.aclose)
    keeper = await stack.enter_async_context(runner(settings, "--app", "shop:app", folder=folder))
    registered = await link.register(wire.RegisterRequest(worker_id=name, lease_seconds=60.0))
    keeper.say(Opened(name, registered.session, 60.0, monotonic()))
    await keeper.hears(Ready)


async def schedules(url: str) -> list[dict[str, Any]]:
    """Return the schedules that the application has at the server."""
    async with httpx2.AsyncClient(verify=False, base_url=url, timeout=PATIENCE_S) as client:
        answer = await client.get("/api/v1/schedules", params={"owner": "shop"})
        found: list[dict[str, Any]] = answer.json()["schedules"]
        return found


async def test_what_is_declared_is_there_before_the_first_job(sqlite_url: str, tmp_path: Path) -> None:
    """Three processes that start at once make it once; code that declares less takes the rest away."""
    (tmp_path / "shop.py").write_text(MODULE)
    async with started(*server_arguments(sqlite_url)) as server:
        url = await server.serving()
        async with AsyncExitStack() as stack:
            for number in range(3):
                await work(stack, to(url, lease_seconds=60.0), tmp_path, name=f"w{number}")
            assert 3 == (await ended(url, await submit(url, "add", {"x": 1, "y": 2})))["result"]
            first = await schedules(url)
        (tmp_path / "shop.py").write_text(LESS)
        async with AsyncExitStack() as stack:
            await work(stack, to(url, lease_seconds=60.0), tmp_path, name="w4")
            await ended(url, await submit(url, "add"))
            second = await schedules(url)

    assert [("daily", 1), ("yearly", 1)] == [(schedule["name"], schedule["version"]) for schedule in first]
    assert ({}, {"x": 1}) == (first[0]["payload"], first[1]["payload"])
    assert [first[1]["id"]] == [schedule["id"] for schedule in second]


async def test_the_key_of_a_worker_is_enough_to_declare(sqlite_url: str, tmp_path: Path) -> None:
    """A worker's key with the name of its application declares, also one kept to a queue; other acts stay refused."""
    (tmp_path / "shop.py").write_text(MODULE)
    token = make_token()
    secured = {"WINDLASS_SECURITY_BOOTSTRAP_KEY": token, "WINDLASS_SECURITY_KEYS_REQUIRED": "true"}
    async with started(*server_arguments(sqlite_url), settings=secured) as server, AsyncExitStack() as stack:
        url = await server.serving()
        headers = {"Authorization": f"Bearer {token}"}
        client = await stack.enter_async_context(
            httpx2.AsyncClient(verify=False, base_url=f"{url}/api/v1", headers=headers, timeout=PATIENCE_S)
        )
        made = await client.post(
            "/keys", json={"name": "shop", "role": "worker", "tenant": "default", "queues": ["default"]}
        )
        key = made.json()["token"]

        await work(stack, to(url, key=key, lease_seconds=60.0), tmp_path, name="w1")
        job = (await client.post("/jobs", json={"task": "add", "payload": {"x": 2}})).json()["id"]
        ended = await client.get(f"/jobs/{job}?wait=20", timeout=60)
        found = (await client.get("/schedules?owner=shop")).json()["schedules"]
        refused = await client.delete("/schedules/daily", headers={"Authorization": f"Bearer {key}"})

    assert ["daily", "yearly"] == [schedule["name"] for schedule in found]
    assert ("succeeded", 403) == (ended.json()["state"], refused.status_code)


async def test_a_worker_with_a_wrong_declaration_works(sqlite_url: str, tmp_path: Path) -> None:
    """The server refuses that one and makes the other; jobs run all the same."""
    (tmp_path / "shop.py").write_text(WRONG)
    async with started(*server_arguments(sqlite_url)) as server, AsyncExitStack() as stack:
        url = await server.serving()
        await work(stack, to(url, lease_seconds=60.0), tmp_path, name="w1")

        result = (await ended(url, await submit(url, "add", {"x": 2})))["result"]

        assert 2 == result
        assert ["daily"] == [schedule["name"] for schedule in await schedules(url)]
