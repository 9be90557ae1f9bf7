"""Servers are killed, stopped, and lose their database under load: the long proofs in short.

The full ones are `python -m tests.proofs`; here a duty's lease is two seconds, and each fault comes once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

import httpx2
import pytest

from tests.cluster import Cluster
from tests.databases import connected
from tests.proofs import failover, memory, restarts, stops
from tests.proofs import fleet as fleets
from tests.proofs.load import QUICK, Load
from tests.proofs.processes import PATIENCE_S, server_arguments
from tests.proofs.verdict import Line, verdict
from tests.server.process.conftest import Launch
from windlass.httpclient import AsyncClient

FILE = "sqlite:///windlass.db"


def against(lines: Sequence[Line]) -> list[str]:
    """Return what does not hold."""
    return [line.text for line in lines if line.against]


async def test_rel_a7_killed_holder(own_url: str) -> None:
    """The holder of a duty is killed: another acts for it in time, nothing is lost or doubled."""
    lines = await failover.prove(own_url, faults=1, fast=True, kinds=QUICK)

    assert [] == against(lines)


@pytest.mark.exhaustive
async def test_rel_b3_stopped_holder(own_url: str) -> None:
    """The holder of a duty is stopped for longer than its lease: woken, it changes nothing."""
    lines = await stops.prove(own_url, faults=1, fast=True, kinds=QUICK)

    assert [] == against(lines)


@pytest.mark.exhaustive
async def test_rel_a8_all_servers_killed(own_url: str) -> None:
    """All servers are killed and started again: everything that was acknowledged is done, once."""
    async with fleets.running(own_url, settings=fleets.FAST) as fleet, connected(own_url) as connection:
        load = Load(fleet.urls, kinds=QUICK)
        async with load.flowing():
            await load.done(connection, 50)
            for member in fleet.members:
                await member.kill()
            for member in fleet.members:
                await member.start()
            drained_s = await load.drain(connection)
        lines = await verdict(load.ledger, own_url)

    assert drained_s is not None
    assert [] == against(lines)


async def test_rel_a5_killed_server_of_a_file(launch: Launch) -> None:
    """The server of a SQLite file is killed under submits: what it acknowledged is there, and a repeat finds it."""
    server = await launch(*server_arguments(FILE))
    told: dict[str, str] = {}
    async with AsyncClient(verify=False, base_url=await server.serving(), timeout=PATIENCE_S) as client:
        submits = [asyncio.create_task(submit(client, f"key-{number}", told)) for number in range(100)]
        await asyncio.wait(submits[:40])
        server.send(signal.SIGKILL)
        await asyncio.wait(submits)
    assert -signal.SIGKILL == await server.ended()
    acknowledged = dict(told)

    again = await launch(*server_arguments(FILE))

    async with AsyncClient(verify=False, base_url=await again.serving(), timeout=PATIENCE_S) as client:
        for number in range(100):
            assert await submit(client, f"key-{number}", told)
        jobs = (await client.get("/api/v1/jobs", params={"limit": 500})).json()["jobs"]
    assert 40 <= len(acknowledged)
    assert acknowledged == {key: told[key] for key in acknowledged}
    assert sorted(told.values()) == sorted(job["id"] for job in jobs)


async def submit(client: httpx2.AsyncClient, key: str, told: dict[str, str]) -> bool:
    """Submit a job under a key and keep the id that was acknowledged; say whether it was."""
    try:
        answer = await client.post("/api/v1/jobs", json={"task": "t", "idempotency_key": key})
    except httpx2.HTTPError:
        return False
    if answer.status_code in (200, 201):
        told[key] = answer.json()["id"]
    return key in told


@pytest.mark.exhaustive
async def test_rel_c1_c2_database_restarted(own_cluster: Cluster) -> None:
    """The database is restarted, then crashes: 503 meanwhile, served again in two seconds, nothing told is lost."""
    lines = await restarts.prove(own_cluster, faults=2, kinds=QUICK, down_s=0.5, loaded_s=1.0)

    assert [] == against(lines)


@pytest.mark.exhaustive
async def test_rel_i30_memory_is_flat(own_url: str) -> None:
    """Twenty thousand jobs leave nothing behind in the server that brought them through."""
    lines = await memory.prove(own_url, jobs=20_000, every_s=0.2)

    assert [] == against(lines)
