"""The stream of events: everything is told, at least once, however much happens at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import msgspec
import pytest

from tests.proofs.processes import server_arguments, started

PATIENCE_S = 60


@pytest.fixture
async def client(sqlite_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a real server."""
    async with (
        started(*server_arguments(sqlite_url)) as server,
        httpx2.AsyncClient(verify=False, base_url=await server.serving(), timeout=PATIENCE_S) as http,
    ):
        yield http


async def told(client: httpx2.AsyncClient, wanted: int, **query: str) -> list[dict[str, str]]:
    """Return the events of a stream, once so many have come."""
    events: list[dict[str, str]] = []
    async with asyncio.timeout(PATIENCE_S), client.stream("GET", "/api/v1/events", params=query) as answer:
        assert "text/event-stream" == answer.headers["content-type"]
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                events.append(msgspec.json.decode(line.removeprefix("data: ")))
                if len(events) == wanted:
                    break
    return events


async def test_more_than_one_look_holds_is_told(client: httpx2.AsyncClient) -> None:
    """P29: two thousand jobs of one moment and one that comes later are all told."""
    ids = set()
    for _ in range(2):
        answer = await client.post("/api/v1/jobs/batch", json={"jobs": [{"task": "t"}] * 1000})
        ids |= {job["id"] for job in answer.json()["jobs"]}
    ids.add((await client.post("/api/v1/jobs", json={"task": "t"})).json()["id"])

    events = await told(client, 2001, since="2020-01-01T00:00:00Z")

    assert ids == {event["job_id"] for event in events}
    assert {"submitted"} == {event["kind"] for event in events}


async def test_a_stream_goes_on_where_it_was(client: httpx2.AsyncClient) -> None:
    """`Last-Event-ID`, the id of the last event, begins there; filters choose."""
    first = (await client.post("/api/v1/jobs", json={"task": "t"})).json()["id"]
    [event] = await told(client, 1, since="2020-01-01T00:00:00Z")
    second = (await client.post("/api/v1/jobs", json={"task": "t"})).json()["id"]

    again = await told(client, 1, since=event["happened_at"], job_id=second)

    assert (first, second) == (event["job_id"], again[0]["job_id"])


async def test_a_stream_ends_when_it_was_asked_to(client: httpx2.AsyncClient) -> None:
    """`seconds` bounds a stream, for those who cannot close it."""
    answer = await client.get("/api/v1/events", params={"seconds": "0.01"})

    assert (200, ": windlass") == (answer.status_code, answer.text.splitlines()[0])
