"""A server stops: what its callers see, which exit code it has, and who has its duties then."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.databases import connected
from tests.proofs import fleet as fleets
from tests.proofs import witness
from tests.proofs.processes import PATIENCE_S, ServerProcess, server_arguments
from tests.proofs.takeover import takeovers, victim_of
from tests.proofs.witness import Connection
from tests.server.process.conftest import Launch
from windlass.httpclient import AsyncClient

FILE = "sqlite:///windlass.db"
STOPS = "server.stopping"
HAND_OVER_S = 4.0
"""Less than the lease of 6 s, which would have to end without a hand-over; by a clock of their own servers need no time
at all (tests/engine/test_loops_sharing.py)."""
AT_ONCE_S = 15.0
"""Half as long as it would wait for the request that is under way."""


async def polling(client: httpx2.AsyncClient) -> asyncio.Task[httpx2.Response]:
    """Return a claim that waits at the server."""
    claim = {"worker_id": "ann", "wait": 20}
    waiting = asyncio.create_task(client.post("/api/v1/jobs/claim", json=claim))
    # The second claim came later and has waited to its end: the first one waits by now.
    assert 204 == (await client.post("/api/v1/jobs/claim", json={"worker_id": "bob", "wait": 0.3})).status_code
    assert not waiting.done()
    return waiting


@asynccontextmanager
async def hanging(server: ServerProcess) -> AsyncIterator[None]:
    """Have a request under way for a block whose body never comes to an end."""
    url = httpx2.URL(await server.serving())
    assert url.port is not None
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
    try:
        writer.write(f"{head}Expect: 100-continue\r\n\r\n{{".encode())
        assert b"100 Continue" in await reader.readline()  # so the server has begun with it
        yield
    finally:
        writer.close()


async def test_rel_a12_term_drains(launch: Launch) -> None:
    """SIGTERM: who waits is answered, a balancer sees 503, and the process ends with 0, having said nothing odd."""
    server = await launch(*server_arguments(FILE))
    async with AsyncClient(verify=False, base_url=await server.serving(), timeout=PATIENCE_S) as client:
        waiting = await polling(client)

        server.send(signal.SIGTERM)

        await server.said(STOPS)
        with contextlib.suppress(httpx2.HTTPError):  # for a second; a busy machine may let it pass
            assert 503 == (await client.get("/readyz")).status_code
        assert 204 == (await waiting).status_code
    assert 0 == await server.ended()
    assert "Traceback" not in server.text
    told = re.findall(r"INFO  (server\.\w+) (.*)", server.text)
    assert ["server.started", "server.stopping", "server.stopped"] == [event for event, _ in told]
    assert ["version=", "requests=1", "at_once=false"] == [
        re.findall(r"version=|requests=\d|at_once=\w+", fields)[0] for _, fields in told
    ]


async def test_rel_a12_int_ends_with_0(launch: Launch) -> None:
    """SIGINT, as Ctrl-C sends it: who waits is answered, and the process ends with 0."""
    server = await launch(*server_arguments(FILE))
    async with httpx2.AsyncClient(verify=False, base_url=await server.serving(), timeout=PATIENCE_S) as client:
        waiting = await polling(client)

        server.send(signal.SIGINT)

        assert 204 == (await waiting).status_code
    assert 0 == await server.ended()
    assert "Traceback" not in server.text


async def test_rel_a12_hup_drains(launch: Launch) -> None:
    """SIGHUP, as a closed terminal sends it, once or twice: who waits is answered, and the process ends with 0."""
    server = await launch(*server_arguments(FILE))
    async with httpx2.AsyncClient(verify=False, base_url=await server.serving(), timeout=PATIENCE_S) as client:
        waiting = await polling(client)

        server.send(signal.SIGHUP)
        await server.said(STOPS)
        server.send(signal.SIGHUP)

        assert 204 == (await waiting).status_code
    assert 0 == await server.ended()
    assert "Traceback" not in server.text


async def test_rel_a12_hup_is_ignored_where_it_was_before(launch: Launch) -> None:
    """Under nohup a closed terminal means nothing: SIGTERM is the first signal that is heard, so the end is orderly."""
    server = await launch(*server_arguments(FILE), nohup=True)
    await server.serving()

    server.send(signal.SIGHUP)
    server.send(signal.SIGTERM)

    assert 0 == await server.ended()


async def until_held(connection: Connection) -> None:
    """Wait until somebody does every duty."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await witness.leaders(connection)) or any(d.held_by is None for d in found.values()):
            await connection.execute("SELECT pg_sleep(0.05)")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_rel_a12_second_signal_ends_at_once(launch: Launch, number: signal.Signals) -> None:
    """A second signal waits for nobody: exit code 130 at once, though a request is under way."""
    server = await launch(*server_arguments(FILE))
    await server.serving()
    async with hanging(server):
        server.send(number)
        await server.said(STOPS)

        server.send(number)

        async with asyncio.timeout(AT_ONCE_S):
            assert 130 == await server.ended()
    assert "Traceback" not in server.text


async def test_rel_a12_term_at_start(launch: Launch) -> None:
    """SIGTERM while a server waits for its database ends it with 0."""
    server = await launch(*server_arguments("postgresql://nobody@127.0.0.1:1/nothing"))
    await server.said("The database does not answer yet")

    server.send(signal.SIGTERM)

    assert 0 == await server.ended()
    assert "Traceback" not in server.text


async def test_rel_r7_hand_over(own_url: str) -> None:
    """A server that stops hands its duties over: another has all of them without waiting, in higher terms."""
    async with fleets.running(own_url) as fleet, connected(own_url) as connection:
        first, lost = await victim_of(connection, fleet, turn=0, within_s=0)
        [second] = [member for member in fleet.members if member is not first]
        since_at = await witness.now(connection)

        first.process.send(signal.SIGTERM)

        took = await takeovers(connection, lost, since_at=since_at, given_up=True)
        assert HAND_OVER_S > max(each.taken_s for each in took)
        await until_held(connection)
        assert {second.process.pid} == {leader.pid for leader in (await witness.leaders(connection)).values()}
        assert 0 == await first.process.ended()
        assert [] == await connection.fetch(witness.FALLEN)


async def test_rel_r7_hand_over_of_a_duty_just_passed_on(own_url: str) -> None:
    """A duty that a server has just passed on comes back to it without waiting when the other one stops."""
    async with fleets.running(own_url, count=1) as fleet, connected(own_url) as connection:
        await until_held(connection)
        late = fleets.Member("server_1", own_url, {})
        fleet.members.append(late)
        await late.start()
        await victim_of(connection, fleet, turn=0, within_s=0)
        found = await witness.leaders(connection)
        lost = {name: leader for name, leader in found.items() if leader.pid == late.process.pid}
        since_at = await witness.now(connection)

        late.process.send(signal.SIGTERM)

        took = await takeovers(connection, lost, since_at=since_at, given_up=True)
        assert HAND_OVER_S > max(each.taken_s for each in took)
        assert 0 == await late.process.ended()
