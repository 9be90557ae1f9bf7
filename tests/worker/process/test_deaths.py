"""Whatever is killed, a job that was accepted runs to its end, and has one result."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Self
from urllib.parse import urlsplit

import pytest

from tests.cluster import free_port
from tests.proofs.processes import ServerProcess
from tests.worker.process.installation import FOR_EVER_MS, SHORT, Begun, Installation, kill


async def finished(installation: Installation, job_id: str, *, outcomes: list[str]) -> None:
    """Let the next attempt of a job succeed, and see how each of its attempts ended."""
    again = await installation.begun()
    assert job_id == again.job_id
    again.go_on("second")

    job = await installation.ended(job_id)

    assert ("succeeded", "second") == (job["status"], job["result"])
    assert outcomes == [attempt["outcome"] for attempt in await installation.attempts(job_id)]


async def begin(installation: Installation) -> Begun:
    """Have a job that runs."""
    await installation.submit("wait", port=installation.port)
    return await installation.begun()


async def test_a_job_runs_to_its_end(installation: Installation) -> None:
    """From the command line to the result, through server, fleet and runner."""
    fleet = await installation.start_workers()
    job_id = await installation.submit("double", x=21)

    job = await installation.ended(job_id)

    assert ("succeeded", 42, 1) == (job["status"], job["result"], job["attempt"])
    fleet.send(signal.SIGTERM)
    assert 0 == await fleet.ended()


async def test_a_killed_runner_gives_its_jobs_back_at_once(installation: Installation) -> None:
    """Not when its lease is over, which is minutes away here; the fleet replaces it."""
    await installation.start_workers()
    first = await begin(installation)

    kill(first.pid)

    await finished(installation, first.job_id, outcomes=["lost", "succeeded"])


async def test_a_job_that_kills_its_process_is_dead_after_a_few(bare: Installation) -> None:
    """It kills before any heartbeat says that it has begun, and counts as lost nevertheless."""
    await bare.start_server(jobs_max_lost="2")
    await bare.start_workers()

    job_id = await bare.submit("crash")

    assert "dead" == (await bare.ended(job_id))["status"]
    assert ["lost", "lost"] == [attempt["outcome"] for attempt in await bare.attempts(job_id)]
    assert 6 == (await bare.ended(await bare.submit("double", x=3)))["result"]


async def test_rel_a9_runners_die_with_their_fleet(installation: Installation) -> None:
    """No runner works on without its keeper; another fleet runs the job when the lease is over."""
    fleet = await installation.start_workers("--processes", "2", **SHORT)
    first = await begin(installation)

    kill(fleet.pid)

    await first.gone()
    await installation.start_workers()
    await finished(installation, first.job_id, outcomes=["lost", "succeeded"])


async def test_rel_a9_a_runner_that_holds_the_interpreter_dies_with_its_fleet(installation: Installation) -> None:
    """It cannot see that its socket has ended: the kernel kills it."""
    fleet = await installation.start_workers()
    await installation.submit("hold", port=installation.port, ms=FOR_EVER_MS)
    first = await installation.begun()

    kill(fleet.pid)

    await first.gone()


async def test_all_workers_killed_lose_nothing(installation: Installation) -> None:
    """Fleets and runners at the same moment, as when a machine loses power."""
    fleets = [await installation.start_workers(**SHORT) for _ in range(2)]
    first = await begin(installation)

    for pid in (first.pid, *(fleet.pid for fleet in fleets)):
        kill(pid)

    await installation.start_workers()
    await finished(installation, first.job_id, outcomes=["lost", "succeeded"])


async def test_a_killed_server_costs_no_attempt(installation: Installation) -> None:
    """The job runs on; its report waits for the server to come back."""
    await installation.start_workers()
    first = await begin(installation)
    await stop_hard(installation.server)
    first.go_on("first")
    await first.gone()

    await installation.start_server()

    job = await installation.ended(first.job_id)
    assert ("succeeded", "first", 1) == (job["status"], job["result"], job["attempt"])


async def test_servers_away_for_longer_than_a_lease_cost_no_attempt(installation: Installation) -> None:
    """The job runs on and is run once; the worker asks for more as soon as a server is back (L14, Z3)."""
    fleet = await installation.start_workers(**SHORT)
    first = await begin(installation)
    await stop_hard(installation.server)
    await fleet.said("worker.lapsed")

    await installation.start_server()

    assert 42 == (await installation.ended(await installation.submit("double", x=21)))["result"]
    first.go_on("first")
    job = await installation.ended(first.job_id)
    assert ("succeeded", "first", 1) == (job["status"], job["result"], job["attempt"])
    assert ["succeeded"] == [attempt["outcome"] for attempt in await installation.attempts(first.job_id)]
    assert 0 == installation.begun_count()


async def test_rel_d2_a_worker_cut_off_loses_its_job_to_another(installation: Installation) -> None:
    """The servers live and give its job away: its body is stopped at the first answer, and there is one record (Z7)."""
    async with Cable(installation.url) as cable:
        cut_off = await installation.start_workers(url=cable.url, **SHORT)
        first = await begin(installation)
        cable.cut()
        await cut_off.said("worker.lapsed")
        await installation.start_workers()
        second = await installation.begun()
        second.go_on("second")
        assert "succeeded" == (await installation.ended(first.job_id))["status"]

        await cable.mend()
        await first.gone()

        assert 42 == (await installation.ended(await installation.submit("double", x=21)))["result"]
    job = await installation.job(first.job_id)
    assert (first.job_id, "succeeded", "second") == (second.job_id, job["status"], job["result"])
    assert ["lost", "succeeded"] == [attempt["outcome"] for attempt in await installation.attempts(first.job_id)]


@pytest.mark.exhaustive
async def test_a_killed_server_and_killed_workers_lose_nothing(installation: Installation) -> None:
    """Both come back, in any order; the job runs again after its lease."""
    fleet = await installation.start_workers(**SHORT)
    first = await begin(installation)
    kill(fleet.pid)
    await stop_hard(installation.server)

    await installation.start_server()
    await installation.start_workers()

    await finished(installation, first.job_id, outcomes=["lost", "succeeded"])


async def stop_hard(process: ServerProcess) -> None:
    """Kill a process and wait until it is gone."""
    process.send(signal.SIGKILL)
    await process.ended()


class Cable:
    """The network between a worker and the server at `url`, which can be cut."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = parts.hostname, parts.port
        self._port = free_port()
        self._ends: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where the worker finds the server."""
        return f"http://127.0.0.1:{self._port}"

    async def mend(self) -> None:
        """Let the worker reach the server, at the port it had before."""
        self._listener = await asyncio.start_server(self._come, "127.0.0.1", self._port)

    def cut(self) -> None:
        """Let nothing through any more."""
        self._listener.close()
        for end in self._ends:
            end.cancel()

    async def __aenter__(self) -> Self:
        await self.mend()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        await asyncio.gather(*self._ends, return_exceptions=True)

    def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = asyncio.create_task(self._carry(reader, writer))
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)
        # Also when it is cut before it has begun.
        end.add_done_callback(lambda _: writer.transport.abort())

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._server)
        try:
            with contextlib.suppress(OSError):
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            back.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()
