"""The log of a job over HTTP: pages, and the stream of lines until the job has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

from tests.server.api import WORKER, Json, claim, submit, submit_and_claim
from windlass.config.redact import Redactor
from windlass.engine import trail
from windlass.engine.engine import Engine
from windlass.queue import logs as step
from windlass.server import logs
from windlass.server.app import Door
from windlass.server.call import Message

AT = "2026-01-31T12:00:00Z"


def chunk(job: Json, *texts: str, seq: int = 0, **more: Any) -> Json:
    """Return lines of a job as its worker sends them."""
    lines = [{"at": AT, "text": text} for text in texts]
    return {"job_id": job["id"], "fence": job["fence"], "seq": seq, "lines": lines, **more}


async def write(client: httpx2.AsyncClient, *chunks: Json, **more: Any) -> None:
    """Send lines as the worker that holds the leases."""
    answer = await client.post("/jobs/report", json={"worker_id": WORKER, "logs": chunks, **more})
    assert 200 == answer.status_code, answer.text


def completed(job: Json) -> Json:
    """Return the report of a job that succeeded."""
    return {"kind": "complete", "job_id": job["id"], "fence": job["fence"]}


def streamed(body: bytes) -> list[str]:
    """Return the texts of the lines of a stream."""
    events = [part for part in body.decode().split("\n\n") if "event: line" in part]
    return [msgspec.json.decode(part.split("data: ", 1)[1])["text"] for part in events]


async def following(door: Door, job_id: str) -> AsyncGenerator[bytes, None]:
    """Follow the log of a job without a network, and yield what comes, part by part."""
    parts: asyncio.Queue[Message] = asyncio.Queue()
    path = f"/api/v1/jobs/{job_id}/logs"
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"follow=true", "client": ("1.2.3.4", 5)}

    async def receive() -> Message:
        return await asyncio.Future[Message]()

    serving = asyncio.create_task(
        door({**scope, "headers": [(b"authorization", b"Bearer admin.a")]}, receive, parts.put)
    )
    try:
        while True:
            yield (await asyncio.wait_for(parts.get(), 30)).get("body", b"")
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def until(heard: AsyncGenerator[bytes, None], text: bytes) -> None:
    """Return when a part that holds the text has come."""
    while text not in await anext(heard):
        pass


async def test_the_lines_of_a_job_are_shown_page_by_page(client: httpx2.AsyncClient) -> None:
    """Each line has its attempt, time, stream and level; a page goes on where the one before ended."""
    job = await submit_and_claim(client)
    warning = {"at": AT, "text": "careful", "stream": "stderr", "level": "WARNING"}
    await write(client, chunk(job, "one", "two"), chunk(job, seq=1, lines=[warning], dropped=4))

    first = (await client.get(f"/jobs/{job['id']}/logs", params={"limit": 2})).json()
    second = (await client.get(f"/jobs/{job['id']}/logs", params={"after": first["next_cursor"]})).json()
    none = (await client.get(f"/jobs/{job['id']}/logs", params={"attempt": 2})).json()
    later = (await client.get(f"/jobs/{job['id']}/logs", params={"after": "1.1"})).json()

    shown = {"attempt": 1, "fence": 1, "seq": 1, **warning}
    assert (["one", "two"], 0) == ([line["text"] for line in first["lines"]], first["dropped"])
    assert {"lines": [shown], "next_cursor": None, "dropped": 4} == second
    assert ([], []) == (none["lines"], later["lines"])


async def test_rel_t17_secrets_in_lines_are_hidden(client: httpx2.AsyncClient) -> None:
    """The server hides what looks like a secret before it is stored, whatever the worker did; controls too."""
    job = await submit_and_claim(client)

    await write(client, chunk(job, "login with password=hunter2 now", "a\x00b"))
    log = (await client.get(f"/jobs/{job['id']}/logs")).json()

    assert ["login with password=*** now", "a\u2400b"] == [line["text"] for line in log["lines"]]


@pytest.mark.parametrize(
    ("params", "status"), [({"after": "x"}, 422), ({"limit": 1001}, 422), ({"attempt": 0}, 422), ({"follow": "2"}, 422)]
)
async def test_a_wrong_question_is_refused(client: httpx2.AsyncClient, params: Json, status: int) -> None:
    """What is no place, number or choice is 422; a job that is not there is 404."""
    job = await submit_and_claim(client)

    assert status == (await client.get(f"/jobs/{job['id']}/logs", params=params)).status_code
    assert 404 == (await client.get(f"/jobs/{uuid4()}/logs")).status_code


async def test_a_line_that_is_too_long_is_refused(client: httpx2.AsyncClient) -> None:
    """It is 422, and names the lines."""
    job = await submit_and_claim(client)
    line = {"at": AT, "text": "x" * 16_385}

    answer = await client.post("/jobs/report", json={"worker_id": WORKER, "logs": [chunk(job, lines=[line])]})

    assert (422, True) == (answer.status_code, "logs" in answer.json()["errors"][0]["field"])


async def test_a_line_that_cannot_be_kept_refuses_no_report(client: httpx2.AsyncClient) -> None:
    """A time before 1970 is left out and told; the end of the attempt stands."""
    job = await submit_and_claim(client)
    line = {"at": "1900-01-01T00:00:00Z", "text": "x"}

    answer = await client.post(
        "/jobs/report", json={"worker_id": WORKER, "logs": [chunk(job, lines=[line])], "reports": [completed(job)]}
    )

    assert (200, "applied") == (answer.status_code, answer.json()["answers"][0]["status"])
    assert answer.json()["refused"]


async def test_a_stream_of_an_ended_job_tells_all_and_ends(client: httpx2.AsyncClient) -> None:
    """Every line comes with its place; who comes back with the last one hears what follows it."""
    job = await submit_and_claim(client)
    await write(client, chunk(job, "one", "two"), reports=[completed(job)])
    path = f"/jobs/{job['id']}/logs?follow=1"

    whole = await client.get(path)
    rest = await client.get(path, headers={"Last-Event-ID": "1.0.1"})

    assert "text/event-stream" == whole.headers["content-type"]
    assert (["one", "two"], ["two"]) == (streamed(whole.content), streamed(rest.content))
    assert b"id: 1.0.2\nevent: line\n" in whole.content
    assert whole.content.endswith(b"event: end\ndata: {}\n\n")


async def test_a_stream_hears_lines_as_they_come_in(
    client: httpx2.AsyncClient, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that this server takes are told at once, not at the next look."""
    monkeypatch.setattr(logs, "LOOK_S", 3600.0)
    job = await submit_and_claim(client)

    heard = following(door, job["id"])
    await until(heard, b": windlass")
    await write(client, chunk(job, "first"))
    await until(heard, b'"text":"first"')
    await write(client, chunk(job, "last", seq=1), reports=[completed(job)])
    await until(heard, b'"text":"last"')
    await heard.aclose()


async def test_a_stream_hears_lines_that_come_while_it_looks(
    client: httpx2.AsyncClient, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that are kept after a look has read, and before the stream waits again, are told at once, too."""
    monkeypatch.setattr(logs, "LOOK_S", 3600.0)
    job = await submit_and_claim(client)
    read, late = step.read, [chunk(job, "late")]

    async def read_then_write(*arguments: Any, **more: Any) -> Any:
        page = await read(*arguments, **more)
        if late:
            await write(client, late.pop())
        return page

    monkeypatch.setattr(step, "read", read_then_write)
    heard = following(door, job["id"])
    await until(heard, b'"text":"late"')
    await heard.aclose()


async def test_a_stream_ends_with_its_job(client: httpx2.AsyncClient) -> None:
    """A job that ends without another line ends its streams at the next look."""
    job = await submit_and_claim(client)
    reading = asyncio.create_task(client.get(f"/jobs/{job['id']}/logs", params={"follow": "true"}))

    await write(client, reports=[completed(job)])
    answer = await asyncio.wait_for(reading, 30)

    assert answer.content.endswith(b"event: end\ndata: {}\n\n")


@pytest.mark.parametrize("words", ["logs", "notes"])
async def test_the_first_words_of_an_attempt_tell_its_start(client: httpx2.AsyncClient, words: str) -> None:
    """A job that has told its progress is running; from when it began, once, and only under its lease."""
    session = str(uuid4())
    await client.post("/workers/register", json={"worker_id": WORKER, "session": session})
    await submit(client)
    [job] = await claim(client, session=session)
    lease = {"job_id": job["id"], "fence": job["fence"]}
    said = {"logs": chunk(job, "hello"), "notes": {**lease, "progress": 40}}[words]
    before = (await client.get(f"/jobs/{job['id']}")).json()

    for worker, fence in (("another", job["fence"]), (WORKER, job["fence"] + 1)):
        wrong = {**said, "fence": fence, "started": 0.0}
        await client.post("/jobs/report", json={"worker_id": worker, "session": session, words: [wrong]})
    denied = (await client.get(f"/jobs/{job['id']}")).json()
    for started in (0.0, 0.0):
        await client.post(
            "/jobs/report", json={"worker_id": WORKER, "session": session, words: [{**said, "started": started}]}
        )
    after = (await client.get(f"/jobs/{job['id']}")).json()

    assert ("assigned", "assigned", "running") == (before["state"], denied["state"], after["state"])
    assert after["started_at"] is not None


@pytest.mark.one_kind
async def test_lines_of_a_lease_that_is_not_there_cost_nothing(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H5: before much text is looked through for secrets, its leases are looked at; held ones are redacted and kept."""
    job = await submit_and_claim(client)
    read: list[str] = []
    redact = Redactor.text

    def recorded(self: Redactor, text: str) -> str:
        read.append(text)
        return redact(self, text)

    monkeypatch.setattr(Redactor, "text", recorded)
    texts = [f"token=hunter2 {number:05} " + "x" * 10_000 for number in range(9)]

    await write(client, chunk(job | {"fence": job["fence"] + 1}, *texts))
    foreign = list(read)
    await write(client, chunk(job, *texts))

    kept = (await client.get(f"/jobs/{job['id']}/logs")).json()["lines"]
    assert ([], 9) == ([text for text in foreign if "hunter2" in text], len(kept))
    assert {"token=***"} == {line["text"].split()[0] for line in kept}


@pytest.mark.one_kind
async def test_rel_t9_many_small_chunks_give_way(
    client: httpx2.AsyncClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H5: what is redacted in one go is bounded over all chunks of a request, not in each."""
    job = await submit_and_claim(client)
    turns = 0

    async def counted(_: str) -> None:
        nonlocal turns
        turns += 1

    chunks = [chunk(job, "x" * 5000, seq=number) for number in range(20)]
    monkeypatch.setattr(engine.loop_turns, "wait", counted)
    await write(client, *chunks)

    assert 20 * 5000 // trail.TURN_BYTES <= turns
