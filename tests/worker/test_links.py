"""The links: a worker's words over HTTP against real servers, and what becomes of everything that goes wrong."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import httpx2
import msgspec
import pytest
from msgspec import Raw

from tests.cluster import free_port
from tests.proofs.processes import server_arguments, started
from tests.worker.overhttp import attempts_of, ended, submit, to
from tests.worker.running import PATIENCE_S, BrokenLink, Gate, Plain, entered, until
from windlass.client.context import Context
from windlass.errors import (
    BodyTooLarge,
    Conflict,
    InvalidInput,
    NotFound,
    PayloadTooLarge,
    StaleFence,
    TooMany,
    Unauthorized,
    Unavailable,
    WindlassError,
    WrongMethod,
)
from windlass.wire import work as wire
from windlass.worker.httplink import HttpLink, error_of
from windlass.worker.keeping import OwnKeeping
from windlass.worker.runner import Worker


@asynccontextmanager
async def worker_of(url: str, tasks: dict[str, Plain], **worker: Any) -> AsyncIterator[tuple[Worker, BrokenLink]]:
    """Run a worker over HTTP for a block."""
    settings = to(url, **worker)
    for name, task in tasks.items():
        task.name = name
    link = BrokenLink(HttpLink(settings))
    made = Worker(tasks, link, keeping=OwnKeeping(link, settings), settings=settings)
    running = asyncio.create_task(made.run())
    try:
        yield made, link
    finally:
        made.drain("the test is over", within_s=0)
        await asyncio.wait([running], timeout=30)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await link.aclose()


def echo(payload: Any, context: Context) -> Any:
    """Return the payload."""
    return payload


async def test_every_call_over_http(database_url: str) -> None:
    """Register, claim, heartbeat, report with the next claim, close: each reaches a real server and is answered."""
    async with started(*server_arguments(database_url)) as server:
        url = await server.serving()
        link = HttpLink(to(url))
        first, second = await submit(url, "echo", {"n": 1}), await submit(url, "echo", {"n": 2})

        opened = await link.register(wire.RegisterRequest(worker_id="ann b", lease_seconds=9))
        named: dict[str, Any] = {"worker_id": opened.worker_id, "session": opened.session}
        claim = await link.claim(wire.ClaimRequest(count=1, wait=5, **named))
        [job] = claim.jobs
        held = wire.HeldJob(job_id=job.id, fence=job.fence, started=True)
        beat = await link.heartbeat(wire.BeatRequest(held=(held,), **named))
        done = wire.CompleteEntry(job_id=job.id, fence=job.fence, result=Raw(b"[1]"))
        answers = await link.report(wire.ReportRequest(reports=(done,), claim=wire.NextClaim(count=5), **named))
        empty = await link.claim(wire.ClaimRequest(**named))
        await link.close(opened.worker_id, session=opened.session)

        assert (first, b'{"n":1}') == (job.id, bytes(job.payload))
        assert (9.0, [], False) == (opened.lease_seconds, beat.lost, beat.drain)
        assert ["applied"] == [answer.status for answer in answers.answers]
        assert [second] == [job.id for job in answers.jobs]
        assert [] == empty.jobs
        with pytest.raises(Conflict):
            await link.heartbeat(wire.BeatRequest(**named))
        await link.aclose()


@pytest.mark.one_kind
async def test_a_worker_over_http(database_url: str) -> None:
    """Jobs run to their end over HTTP; under load reports carry the next claim."""
    async with started(*server_arguments(database_url)) as server:
        url = await server.serving()
        async with httpx2.AsyncClient(verify=False, base_url=url, timeout=PATIENCE_S) as client:
            jobs = [{"task": "echo", "payload": n} for n in range(100)]
            answer = await client.post("/api/v1/jobs/batch", json={"jobs": jobs})
            assert 201 == answer.status_code, answer.text
        async with worker_of(url, {"echo": Plain(echo)}) as (_, link):
            last = await submit(url, "echo", "last")

            assert "last" == (await ended(url, last))["result"]
            async with (
                asyncio.timeout(PATIENCE_S),
                httpx2.AsyncClient(verify=False, base_url=url, timeout=PATIENCE_S) as client,
            ):
                listed: list[dict[str, Any]] = []
                # The last one may end before others that were claimed with it.
                while not listed or any(job["finished_at"] is None for job in listed):
                    listed = (await client.get("/api/v1/jobs", params={"limit": 500})).json()["jobs"]
            assert ["succeeded"] * 101 == [job["state"] for job in listed]
            assert any(report.claim is not None for report in link.reports)


@pytest.mark.one_kind
async def test_rel_z3_a_report_outlives_a_restart_of_the_server(database_url: str) -> None:
    """A server dies while a body runs: its end is told to the next one at the same address, and recorded once."""
    gate, port = Gate(), free_port()
    async with started(*server_arguments(database_url, port=port)) as server:
        url = await server.serving()
        async with worker_of(url, {"gate": Plain(gate)}) as (_, link):
            job = await submit(url, "gate")
            await entered(gate)

            server.send(signal.SIGKILL)
            await server.ended()
            gate.opened.set()
            await until(lambda: bool(link.reports))
            async with started(*server_arguments(database_url, port=port)) as again:
                assert url == await again.serving()

                assert "through" == (await ended(url, job))["result"]
                assert ["succeeded"] == [attempt["outcome"] for attempt in await attempts_of(url, job)]
                assert 1 == gate.entered_count


class Peer:
    """A server of nothing: it keeps what it is sent, and answers what it is told."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self.heard = b""
        self.serving: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, or none."""
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        self.heard += await reader.readuntil(b"\r\n\r\n")
        if self._answer is None:
            await reader.read()
        else:
            writer.write(self._answer)
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def peer(answer: bytes | None) -> AsyncIterator[tuple[str, Peer]]:
    """Serve on a port of this machine for a block."""
    made = Peer(answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", made
    await asyncio.gather(*made.serving, return_exceptions=True)


def answered(status: str, body: bytes, *headers: str) -> bytes:
    """Return the bytes of an answer."""
    head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers])
    return f"{head}\r\n\r\n".encode() + body


async def test_nobody_there_is_unavailable() -> None:
    """A port where nobody listens: Unavailable, with the address."""
    async with peer(None) as (url, _):
        pass
    link = HttpLink(to(url))

    with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
        await link.claim(wire.ClaimRequest(worker_id="ann"))
    await link.aclose()


@pytest.mark.parametrize("answer", [b"", answered("200 OK", b"[]")], ids=["broken", "not ours"])
async def test_rel_t17_the_password_of_a_url_is_in_no_message(answer: bytes) -> None:
    """Neither where nobody answers nor where another program does."""
    async with peer(answer) as (url, _):
        link = HttpLink(to(url.replace("//", "//u:hunter2@")))

        with pytest.raises(Unavailable, match=r"127\.0\.0\.1") as caught:
            await link.claim(wire.ClaimRequest(worker_id="ann"))
        await link.aclose()

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [b"", b"\x00\x01 nothing of HTTP", answered("502 Bad Gateway", b"<html>proxy</html>"), b"HTTP/1.1 200 OK\r\n"],
)
async def test_a_broken_answer_is_unavailable(answer: bytes) -> None:
    """A connection that breaks, a proxy's own page, something else than HTTP: all are tried again."""
    async with peer(answer) as (url, _):
        link = HttpLink(to(url))

        with pytest.raises(Unavailable):
            await link.report(wire.ReportRequest(worker_id="ann"))
        await link.aclose()


async def test_an_answer_that_is_not_ours_is_unavailable() -> None:
    """Another program answers 200 at the address: its answer is not taken for an empty claim."""
    async with peer(answered("200 OK", b'{"hello": "world"}')) as (url, _):
        link = HttpLink(to(url))

        with pytest.raises(Unavailable, match="Check the URL"):
            await link.claim(wire.ClaimRequest(worker_id="ann"))
        await link.aclose()


async def test_each_call_has_its_time() -> None:
    """A server that never answers: claim, heartbeat and report give up by their own settings (V9)."""
    async with peer(None) as (url, _):
        times: dict[str, Any] = {f"{name}_timeout_seconds": 0.05 for name in ("claim", "heartbeat", "report")}
        link = HttpLink(to(url, **times))

        with pytest.raises(Unavailable, match="Timeout"):
            await link.claim(wire.ClaimRequest(worker_id="ann"))
        with pytest.raises(Unavailable, match="Timeout"):
            await link.heartbeat(wire.BeatRequest(worker_id="ann"))
        with pytest.raises(Unavailable, match="Timeout"):
            await link.report(wire.ReportRequest(worker_id="ann"))
        await link.aclose()


async def test_the_key_goes_in_a_header() -> None:
    """The key of the settings is shown with every call, and a name is safe in a path."""
    async with peer(answered("204 No Content", b"")) as (url, made):
        link = HttpLink(to(url, key="wl_secret"))

        await link.close("ann b?#", session=UUID(int=7), lost=True)
        await link.aclose()

    assert b"authorization: bearer wl_secret" in made.heard.lower()
    assert made.heard.startswith(b"DELETE /api/v1/workers/ann%20b%3F%23?session=")
    assert b"lost=true" in made.heard


def problem(code: str, status: int, *errors: tuple[str, str]) -> bytes:
    """Return the body of a refusal."""
    fields = [{"field": field, "problem": text} for field, text in errors]
    return msgspec.json.encode(
        {"type": "t", "title": "T", "status": status, "detail": "why", "code": code, "errors": fields}
    )


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("unauthorized", 401, Unauthorized),
        ("not_found", 404, NotFound),
        ("conflict", 409, Conflict),
        ("stale_fence", 409, StaleFence),
        ("body_too_large", 413, BodyTooLarge),
        ("too_many", 429, TooMany),
        ("unavailable", 503, Unavailable),
        ("unexpected", 500, Unavailable),
        ("slow_head", 408, WindlassError),
        ("wrong_method", 405, WindlassError),
        ("of_a_later_version", 418, WindlassError),
        ("of_a_later_version", 503, Unavailable),
    ],
)
def test_a_refusal_is_the_error_it_was(code: str, status: int, kind: type[WindlassError]) -> None:
    """problem+json becomes the error that the server raised, with its text; one not known here, its nearest."""
    error = error_of(status, problem(code, status))

    assert isinstance(error, kind)
    assert not isinstance(error, WrongMethod)
    assert "why" == str(error)


def test_a_refused_field_names_its_entry() -> None:
    """The index of an entry comes back, so that only that one fails."""
    error = error_of(413, problem("payload_too_large", 413, ("reports[3].result", "too long.")))
    plain = error_of(422, problem("invalid_input", 422, ("fence", "needed.")))

    assert isinstance(error, PayloadTooLarge)
    assert (3, "result", "too long.") == (error.index, error.field, error.problem)
    assert "reports" == error.batch
    assert isinstance(plain, InvalidInput)
    assert (None, "fence") == (plain.index, plain.field)


def test_retry_after_comes_with_the_error() -> None:
    """What a server asks for is in the error, also where a proxy asks."""
    told = error_of(429, problem("too_many", 429), retry_after="7")
    proxy = error_of(503, b"busy", retry_after="9")
    date = error_of(503, b"busy", retry_after="Wed, 21 Oct 2026 07:28:00 GMT")

    assert isinstance(told, TooMany)
    assert isinstance(proxy, Unavailable)
    assert (7.0, 9.0) == (told.retry_after_s, proxy.retry_after_s)
    assert isinstance(date, Unavailable)
