"""Answers that do not come: waits beside other calls, a submit that is said again, and what the last error says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.client.serving import PATIENCE_S, Served, until
from tests.cluster import free_port
from windlass import App
from windlass.client import doors
from windlass.client.answers import Answer
from windlass.client.doors import HttpDoor
from windlass.client.requests import Request
from windlass.client.tries import NotHeard, ServerDown
from windlass.errors import Unavailable

JOB = UUID(int=7)


class Silent:
    """A server that hears, and answers from the second submit on, or never."""

    def __init__(self, *, answers: bool) -> None:
        self.heard: list[dict[str, Any]] = []
        self.url = ""
        self._answers = answers
        self._serving: set[asyncio.Task[Any]] = set()

    async def end(self) -> None:
        """Wait until every caller has gone."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._serving)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request, and answer it or not."""
        this = asyncio.current_task()
        assert this is not None
        self._serving.add(this)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        _, _, length = head.partition(b"content-length: ")
        body = await reader.readexactly(int(length.split(b"\r\n")[0] or 0))
        self.heard.append(msgspec.json.decode(body or b"{}"))
        if self._answers and len(self.heard) > 1:
            body = msgspec.json.encode({"id": JOB, "status": "queued", "state": "queued", "next_run_at": None})
            writer.write(b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
        await reader.read()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def silent(*, answers: bool) -> AsyncIterator[Silent]:
    """Run such a server within the block."""
    made = Silent(answers=answers)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()
    await made.end()


@pytest.mark.parametrize("voice", ["sync", "async"], indirect=True)
async def test_rel_d3_a_submit_is_said_again_within_its_patience(voice: Any) -> None:
    """An answer that does not come leaves time for a second try, under the key of the first."""
    async with silent(answers=True) as server, App(url=server.url, patience="10s") as app:
        job = await voice(app, "enqueue", "pay", {"x": 1})

    assert JOB == job.id
    assert server.heard[0] == server.heard[1]
    assert server.heard[0]["idempotency_key"].startswith("call-")


async def test_rel_d3_the_last_error_names_the_key_under_which_to_repeat() -> None:
    """Whoever submits again under it has one job, whether the first was stored or not."""
    async with silent(answers=False) as server, App(url=server.url, patience="1s") as app:
        with pytest.raises(Unavailable) as raised:
            await app.aenqueue("pay", {"x": 1})

    key = server.heard[0]["idempotency_key"]
    assert key == raised.value.idempotency_key
    assert f"idempotency_key={key!r}" in str(raised.value)


@pytest.mark.parametrize("voice", ["sync", "async"], indirect=True)
async def test_a_submit_says_soon_that_no_server_is_there(voice: Any) -> None:
    """With the address and what to do; long before the patience for a server that is slow to answer is over."""
    url = f"http://127.0.0.1:{free_port()}"
    async with App(url=url) as app:
        with pytest.raises(
            ServerDown, match=rf"No server answers at {url}.*windlass server.*tried for \d\.\d s.*patience"
        ):
            await voice(app, "enqueue", "pay", {"x": 1})


async def test_a_wait_for_a_silent_server_ends_with_its_timeout() -> None:
    """A result is not waited for long beyond its own timeout, though nobody says a word."""
    async with silent(answers=False) as server, App(url=server.url) as app:
        with pytest.raises(TimeoutError, match="no server answers"):
            await asyncio.wait_for(app.job(JOB).aresult("1s"), doors.CONNECT_S + 5.0)


async def test_waits_for_results_do_not_keep_a_submit_from_its_server(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait, other calls have connections of their own."""
    monkeypatch.setattr(doors, "CONNECTIONS", 2)
    begun = 0
    asend = HttpDoor.asend

    async def counted(door: HttpDoor, request: Request) -> Answer:
        nonlocal begun
        begun += request.wait_s > 0
        return await asend(door, request)

    monkeypatch.setattr(HttpDoor, "asend", counted)
    server = await asyncio.to_thread(Served, sqlite_url)
    async with App(url=server.url, patience=PATIENCE_S) as app:
        job = await app.aenqueue("t")
        waits = [asyncio.create_task(job.aresult(PATIENCE_S)) for _ in range(6)]
        await until(lambda: begun == len(waits))

        second = await app.aenqueue("t")

        assert not second.duplicate
        await job.acancel()
        ended = await asyncio.gather(*waits, return_exceptions=True)
        assert ["JobCancelled"] * 6 == [type(error).__name__ for error in ended]
    await asyncio.to_thread(server.close)


async def test_too_many_calls_at_one_time_are_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is not blamed for connections that this program has all in use."""
    monkeypatch.setattr(doors, "CONNECTIONS", 1)
    request = Request(method="POST", path="/jobs", body=b"{}", answer_s=3.0)

    async with silent(answers=False) as server:
        door = HttpDoor(server.url, key=None)
        first = asyncio.create_task(door.asend(request))
        await until(lambda: bool(server.heard))
        monkeypatch.setattr(doors, "CONNECT_S", 0.2)
        with pytest.raises(NotHeard, match="1 connections of this program"):
            await door.asend(request)
        with pytest.raises(Unavailable):
            await first
        await door.aclose()


@pytest.mark.parametrize(("method", "says"), [("GET", False), ("POST", True)])
async def test_a_lost_answer_to_a_change_tells_to_look_first(method: Any, says: bool) -> None:
    """A question is just asked again; what may have been done is not said twice without a look."""
    async with silent(answers=False) as server:
        door = HttpDoor(server.url, key=None)
        with pytest.raises(Unavailable) as raised:
            await door.asend(Request(method=method, path="/jobs", answer_s=0.5))
        await door.aclose()

    assert says == ("look before you repeat it" in str(raised.value))
