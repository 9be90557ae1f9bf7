"""The stream of events: everything is told, at least once, however much happens at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

from tests.proofs.processes import server_arguments, started
from tests.server.api import submit
from tests.server.frame import bearer
from windlass.engine import changes
from windlass.engine.changes import Follower, Looks, Told
from windlass.queue.recent import JobEvent
from windlass.server.app import Door
from windlass.server.call import Message

PATIENCE_S = 60


@pytest.fixture
async def process(sqlite_url: str) -> AsyncIterator[httpx2.AsyncClient]:
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


async def test_more_than_one_look_holds_is_told(process: httpx2.AsyncClient) -> None:
    """P29: two thousand jobs of one moment and one that comes later are all told."""
    ids = set()
    for _ in range(2):
        answer = await process.post("/api/v1/jobs/batch", json={"jobs": [{"task": "t"}] * 1000})
        ids |= {job["id"] for job in answer.json()["jobs"]}
    ids.add((await process.post("/api/v1/jobs", json={"task": "t"})).json()["id"])

    events = await told(process, 2001, since="2020-01-01T00:00:00Z")

    assert ids == {event["job_id"] for event in events}
    assert {"submitted"} == {event["kind"] for event in events}


async def test_a_stream_goes_on_where_it_was(process: httpx2.AsyncClient) -> None:
    """`Last-Event-ID`, the id of the last event, begins there; filters choose."""
    first = (await process.post("/api/v1/jobs", json={"task": "t"})).json()["id"]
    [event] = await told(process, 1, since="2020-01-01T00:00:00Z")
    second = (await process.post("/api/v1/jobs", json={"task": "t"})).json()["id"]

    again = await told(process, 1, since=event["happened_at"], job_id=second)

    assert (first, second) == (event["job_id"], again[0]["job_id"])


async def test_a_stream_ends_when_it_was_asked_to(process: httpx2.AsyncClient) -> None:
    """`seconds` bounds a stream, for those who cannot close it."""
    answer = await process.get("/api/v1/events", params={"seconds": "0.01"})

    assert (200, ": windlass") == (answer.status_code, answer.text.splitlines()[0])


@asynccontextmanager
async def following(door: Door, key: str) -> AsyncIterator[asyncio.Queue[Message]]:
    """Follow the events of a key's tenant without a network; give what comes, the status and headers first."""
    parts: asyncio.Queue[Message] = asyncio.Queue()
    scope = {"type": "http", "method": "GET", "path": "/api/v1/events", "query_string": b"", "client": ("1.2.3.4", 5)}
    headers = [(name.lower().encode(), value.encode()) for name, value in bearer(key).items()]

    async def receive() -> Message:
        return await asyncio.Future[Message]()

    serving = asyncio.create_task(door({**scope, "headers": headers}, receive, parts.put))
    try:
        yield parts
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def status(parts: asyncio.Queue[Message]) -> int:
    """Return the status that a stream began with."""
    found: int = (await asyncio.wait_for(parts.get(), PATIENCE_S))["status"]
    return found


async def until(parts: asyncio.Queue[Message], text: str) -> None:
    """Return when a stream has told this."""
    while text.encode() not in (await asyncio.wait_for(parts.get(), PATIENCE_S)).get("body", b""):
        pass


@pytest.mark.one_kind
async def test_rel_t15_the_streams_of_one_key_leave_room_for_others(door: Door) -> None:
    """A key has 20 streams, a tenant 50; beyond that it is 429, and another tenant is not refused."""
    async with AsyncExitStack() as opened:
        statuses = [
            await status(await opened.enter_async_context(following(door, f"{role}.a")))
            for role in ("reader", "producer", "operator", "admin")
            for _ in range(21 if role != "operator" else 11)
        ]
        other = await status(await opened.enter_async_context(following(door, "reader.b")))

    again = following(door, "reader.a")
    async with again as parts:
        assert 200 == await status(parts)
    assert [[200] * 20 + [429]] * 2 + [[200] * 10 + [429], [429] * 21] == [
        statuses[:21],
        statuses[21:42],
        statuses[42:53],
        statuses[53:],
    ]
    assert 200 == other


async def test_rel_m4_one_look_serves_all_streams_of_a_tenant(
    door: Door, calls: Callable[[str], httpx2.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams that have caught up hear of a job by one look for all of them; another tenant hears nothing of it."""
    lookers: set[int] = set()
    fresh = Looks.fresh

    async def noted(self: Looks, db: Any, tenant: str) -> list[Told]:
        if tenant == "a":
            lookers.add(id(self))
        return await fresh(self, db, tenant)

    monkeypatch.setattr(Looks, "fresh", noted)
    async with AsyncExitStack() as opened:
        streams = [await opened.enter_async_context(following(door, "reader.a")) for _ in range(5)]
        other = await opened.enter_async_context(following(door, "reader.b"))
        first = await submit(calls("admin.a"))
        await asyncio.gather(*(until(stream, first) for stream in streams))
        lookers.clear()

        second = await submit(calls("admin.a"))
        await asyncio.gather(*(until(stream, second) for stream in streams))
        of_b = await submit(calls("admin.b"))
        heard: list[str] = []
        while not heard or of_b not in heard[-1]:
            heard.append((await asyncio.wait_for(other.get(), PATIENCE_S)).get("body", b"").decode())

    assert 1 == len(lookers)
    assert second not in "".join(heard)


@pytest.mark.one_kind
async def test_a_reader_that_is_too_far_behind_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a stream is bounded: beyond it the stream ends, and nothing is kept for it."""
    monkeypatch.setattr(changes, "MOST_BEHIND", 3)
    event = Told(JobEvent(datetime(2026, 1, 31, tzinfo=UTC), uuid4(), "submitted", None, None))
    quick, slow = Follower(), Follower()

    quick.tell([event] * 3)
    slow.tell([event] * 3)
    heard = await quick.news()
    for follower in (quick, slow):
        follower.tell([event])

    assert ([event] * 3, [event], None) == (heard, await quick.news(), await slow.news())
