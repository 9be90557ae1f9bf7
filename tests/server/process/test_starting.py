"""A server starts: what it refuses, with which words and exit code, and how it waits for its database."""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import ExitStack, nullcontext
from pathlib import Path

import httpx2
import pytest

from tests import cluster
from tests.cluster import Cluster
from tests.proofs.processes import PATIENCE_S, server_arguments
from tests.proofs.starts import start_together
from tests.server.process.conftest import Launch
from windlass.config import Settings
from windlass.config.settings import Security, Server
from windlass.errors import SetupError
from windlass.server.run import check_exposure, connections_allowed

FILE = "sqlite:///windlass.db"


def nothing_in(folder: Path) -> bool:
    """Say whether the folder is empty."""
    return not any(folder.iterdir())


async def test_a_server_sets_an_empty_file_up_and_serves(launch: Launch) -> None:
    """Without any preparation a server makes its database, says where it serves, and takes jobs."""
    server = await launch(*server_arguments(FILE))

    url = await server.serving()

    async with httpx2.AsyncClient(verify=False, base_url=url, timeout=PATIENCE_S) as client:
        assert 200 == (await client.get("/readyz")).status_code
        assert 201 == (await client.post("/api/v1/jobs", json={"task": "t"})).status_code
    assert "No key is needed: everybody from this machine may do everything." == server.lines[0]


async def test_servers_that_start_together_on_an_empty_database_all_serve(own_url: str) -> None:
    """One of them sets the database up, the others wait for it."""
    assert [] == await start_together(own_url, count=3)


async def test_rel_h10_port_taken(launch: Launch, tmp_path: Path) -> None:
    """A port that another has is named, with exit code 1, and nothing is half started: not even a file is made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = await launch(*server_arguments(FILE, port=port))

        code = await server.ended()

    wanted = f"Error: Cannot listen on 127.0.0.1:{port}: Address already in use. Use another --port or --host."
    assert (1, wanted) == (code, server.lines[-1])
    assert "Traceback" not in server.text
    assert nothing_in(tmp_path)


async def test_rel_g4_second_server_of_a_file(launch: Launch) -> None:
    """A SQLite file has one server: a second one ends with exit code 4 and says why; the first goes on."""
    first = await launch(*server_arguments(FILE))
    url = await first.serving()

    second = await launch(*server_arguments(FILE))

    assert 4 == await second.ended()
    assert second.lines[-1].startswith("Error: ")
    assert "windlass.db" in second.lines[-1]
    assert "Traceback" not in second.text
    async with httpx2.AsyncClient(verify=False, base_url=url, timeout=PATIENCE_S) as client:
        assert 201 == (await client.post("/api/v1/jobs", json={"task": "t"})).status_code


async def test_an_open_address_without_a_key_is_refused(launch: Launch) -> None:
    """Where others can reach it a server does not start before there is a key."""
    server = await launch(*server_arguments(FILE), "--host", "0.0.0.0", server_allow_plain="true")

    code = await server.ended()

    assert 1 == code
    assert server.lines[-1].startswith("Error: There is no key yet, and callers of 0.0.0.0 need one.")
    assert "Traceback" not in server.text


@pytest.mark.parametrize(
    ("server", "security", "refused"),
    [
        (Server(host="0.0.0.0"), Security(), True),
        (Server(host="0.0.0.0"), Security(keys_required=True), True),
        (Server(host="0.0.0.0", allow_plain=True), Security(), False),
        (Server(host="0.0.0.0", insecure=True), Security(), False),
        (Server(host="0.0.0.0"), Security(tls_cert="a", tls_key="b"), False),
        (Server(), Security(keys_required=True), False),
    ],
)
def test_rel_t14_beyond_this_machine_tls_is_needed(server: Server, security: Security, refused: bool) -> None:
    """T14: where others can reach it keys and jobs are encrypted, unless somebody says that it need not be."""
    settings = Settings(server=server, security=security)

    with pytest.raises(SetupError, match="there is no TLS") if refused else nullcontext():
        check_exposure(settings)


async def test_rel_t9_silent_connections_lock_nobody_out_where_files_are_few(launch: Launch) -> None:
    """T9: a server keeps files for itself: with 1,024 at most, 1,500 connections that say nothing let callers in."""
    server = await launch(*server_arguments(FILE), files=1024)
    url = httpx2.URL(await server.serving())
    assert url.port is not None
    own, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(own, min(most, 4096)), most))

    with ExitStack() as silent:
        silent.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (own, most))
        for _ in range(1500):
            silent.enter_context(socket.create_connection((url.host, url.port)))
        answers = []
        for _ in range(20):
            async with httpx2.AsyncClient(verify=False, base_url=url, timeout=PATIENCE_S) as client:
                answers.append((await client.post("/api/v1/jobs", json={"task": "t"})).status_code)

    assert [201] * 20 == answers
    told = [line for line in server.lines if "server.few_files" in line]
    assert 1 == len(told)
    assert "asked=10000 allowed=896 limit=1024" in told[0]


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "raised"),
    [
        (1024, 20_000, 10_000, 10_128),
        (1024, 4096, 3968, 4096),
        (1024, 1024, 896, 1024),
        (100, 100, 50, 100),
        (20_000, 20_000, 10_000, 20_000),
        (1024, resource.RLIM_INFINITY, 10_000, 10_128),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 10_000, resource.RLIM_INFINITY),
    ],
)
def test_the_limit_of_files_is_raised_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, allowed: int, raised: int
) -> None:
    """Ten thousand connections and a reserve, or what the hard limit leaves beside the reserve."""
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, given: limits.append(given))

    found = connections_allowed(10_000)

    assert (allowed, (raised, hard)) == (found, limits[-1])


async def test_rel_t15_waiting_calls_leave_connections_free(launch: Launch) -> None:
    """T15: on a server that takes 10 connections a tenant has 5 calls that wait; the sixth is 429, a submit goes in."""
    server = await launch(*server_arguments(FILE), server_max_connections="10")
    url = f"{await server.serving()}/api/v1"

    async with httpx2.AsyncClient(verify=False, base_url=url, timeout=PATIENCE_S) as client:
        waits = [
            asyncio.create_task(client.post("/jobs/claim", json={"worker_id": "ann", "queues": ["none"], "wait": 8}))
            for _ in range(6)
        ]
        [refused], _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        submitted = await client.post("/jobs", json={"task": "t"})
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    assert (429, 201) == (refused.result().status_code, submitted.status_code)


async def test_keys_off_on_an_open_address_is_refused(launch: Launch) -> None:
    """Keys cannot be turned off by a setting alone where others can reach the server."""
    server = await launch(*server_arguments(FILE), "--host", "0.0.0.0", security_keys_required="false")

    code = await server.ended()

    assert 1 == code
    assert "or say --insecure." in server.lines[-1]


async def test_an_insecure_server_is_warned_of(launch: Launch) -> None:
    """Who insists may serve everybody, and is told loudly."""
    server = await launch(*server_arguments(FILE), "--host", "0.0.0.0", "--insecure")

    await server.serving()

    assert "No key is needed: everybody from ANYWHERE that reaches this address may do everything." in server.text
    assert "Keys and jobs travel unencrypted" in server.text


async def test_rel_a13_database_down_at_start(launch: Launch, own_cluster: Cluster, own_url: str) -> None:
    """A server whose database is down lives, is not ready, and serves by itself once the database has come."""
    own_cluster.stop()
    port = cluster.free_port()
    server = await launch(*server_arguments(own_url, port=port))
    await server.said("The database does not answer yet")

    async with httpx2.AsyncClient(verify=False, base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
        alive, not_yet = await client.get("/healthz"), await client.get("/readyz")
        refused = await client.post("/api/v1/jobs", json={"task": "t"})
        own_cluster.start()
        await server.serving()
        ready = await client.get("/readyz")

    assert (200, 503, 200) == (alive.status_code, not_yet.status_code, ready.status_code)
    assert (503, "1") == (refused.status_code, refused.headers["retry-after"])
    assert "Traceback" not in server.text
