"""What the driver does to a server: submit, work, both at once, wait for work, and wait for nothing.

Bodies are made beforehand; of an answer no more is read than the next request needs.
Each load has a queue of its own, so that none meets the jobs another left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from time import perf_counter
from uuid import UUID, uuid4

import msgspec

from windlass.bench.httpclient import Connection, connections, get, post
from windlass.bench.httpserver import Costs
from windlass.bench.measure import Round, Stopwatch
from windlass.bench.rivals import PAYLOAD, RESULT

BATCH = 100
SUBMITTERS = 4
WORKERS = 8
AHEAD = 2_000
"""How many jobs submitters may be ahead of the workers when both are at it."""
MOST_FILLED = 200_000
SPARE = 1.5
WAIT_S = 20
FLOW_WAIT_S = 1
"""Of workers in the pipeline: so long they may wait for nothing when all is done."""
LEASE_S = 600.0
"""Of workers under load, who send no heartbeats."""
IDLE_LEASE_S = 30.0
"""Of idle workers, who do: the default of the server."""
SETTLE_S = 0.002

_PAYLOAD = msgspec.Raw(PAYLOAD)
_RESULT = msgspec.Raw(RESULT)
_encode = msgspec.json.encode


class _Lease(msgspec.Struct):
    id: UUID
    fence: int


class _Claim(msgspec.Struct):
    jobs: list[_Lease]


class _Registered(msgspec.Struct):
    heartbeat_seconds: float


_claims = msgspec.json.Decoder(_Claim)


def submit_one(queue: str) -> bytes:
    """Return the request that submits one job."""
    return post("/api/v1/jobs", _encode({"task": "bench", "queue": queue, "payload": _PAYLOAD}))


def submit_many(queue: str, count: int = BATCH) -> bytes:
    """Return the request that submits a batch."""
    jobs = [{"task": "bench", "queue": queue, "payload": _PAYLOAD}] * count
    return post("/api/v1/jobs/batch", _encode({"jobs": jobs}))


class Worker:
    """One registered worker on a connection of its own."""

    def __init__(self, connection: Connection, queue: str, *, count: int = BATCH, wait_s: float = WAIT_S) -> None:
        self._connection = connection
        self._named = {"worker_id": f"bench-{uuid4().hex[:12]}", "session": uuid4()}
        self._claim = self.claim_request(queue, count, wait_s=wait_s)
        self._hasty_claim = self.claim_request(queue, count, wait_s=0)

    async def register(self, *, lease_s: float = LEASE_S) -> float:
        """Open the session; return how often it is to be kept alive, in seconds."""
        body = _encode({**self._named, "lease_seconds": lease_s})
        answer = await self._connection.ask(post("/api/v1/workers/register", body))
        return msgspec.json.decode(answer.good(), type=_Registered).heartbeat_seconds

    def claim_request(self, queue: str, count: int, *, wait_s: float) -> bytes:
        """Return the request that claims."""
        return post("/api/v1/jobs/claim", _encode({**self._named, "queues": [queue], "count": count, "wait": wait_s}))

    def report_request(self, leases: Sequence[_Lease]) -> bytes:
        """Return the request that completes jobs."""
        reports = [
            {"kind": "complete", "job_id": lease.id, "fence": lease.fence, "result": _RESULT} for lease in leases
        ]
        return post("/api/v1/jobs/report", _encode({**self._named, "reports": reports}))

    async def claim(self, *, hasty: bool = False) -> list[_Lease]:
        """Return claimed jobs, waiting for them unless in haste; none when the time is over."""
        body = (await self._connection.ask(self._hasty_claim if hasty else self._claim)).good()
        return _claims.decode(body).jobs if body else []

    async def report(self, leases: Sequence[_Lease]) -> None:
        """Complete jobs."""
        (await self._connection.ask(self.report_request(leases))).good()

    def beat_request(self) -> bytes:
        """Return the request that keeps the session alive."""
        return post("/api/v1/workers/heartbeat", _encode(self._named))


def claim_and_report(queue: str) -> list[bytes]:
    """Return requests as large as those of a worker, for an endpoint that looks at nothing."""
    worker = Worker(Connection(), queue)
    return [worker.claim_request(queue, BATCH, wait_s=0), worker.report_request([_Lease(uuid4(), 1)] * BATCH)]


def asking(port: int, requests: Sequence[bytes], *, callers: int, jobs: int, costs: Costs | None = None) -> Round:
    """Send the requests over and over on so many connections; `jobs` of them are done by going through all once."""

    async def run(seconds: float) -> float:
        async with connections(port, callers) as opened:
            watch = Stopwatch(seconds)

            async def one(connection: Connection) -> None:
                while watch.running:
                    for request in requests:
                        (await connection.ask(request)).good()
                    watch.jobs += jobs

            if costs is not None:
                costs.begin()
            await asyncio.gather(*(one(connection) for connection in opened))
            rate = watch.rate
            if costs is not None:
                costs.end(watch.jobs)
            return rate

    return run


def working(port: int, queue: str, costs: Costs) -> Round:
    """Claim and complete in batches, by registered workers, from jobs submitted before."""
    rate = 0.0
    left = 0

    async def run(seconds: float) -> float:
        nonlocal rate, left
        wanted = min(MOST_FILLED, max(WORKERS * BATCH, int((rate or 10_000) * seconds * SPARE)))
        left += await _fill(port, queue, wanted - left)
        async with _workers(port, queue, WORKERS) as crew:
            watch = Stopwatch(seconds)

            async def one(worker: Worker) -> None:
                nonlocal left
                while watch.running and left > 0 and (leases := await worker.claim(hasty=left < WORKERS * BATCH)):
                    left -= len(leases)
                    await worker.report(leases)
                    watch.jobs += len(leases)
                    watch.stop()

            costs.begin()
            await asyncio.gather(*(one(worker) for worker in crew))
            costs.end(watch.jobs)
        rate = watch.rate
        return rate

    return run


def flowing(port: int, queue: str, costs: Costs) -> Round:
    """Submit, claim and complete in batches, all at once, until all that was submitted in the time is completed."""

    async def run(seconds: float) -> float:
        async with (
            connections(port, SUBMITTERS) as opened,
            _workers(port, queue, WORKERS, wait_s=FLOW_WAIT_S) as crew,
        ):
            flow = _Flow(seconds)
            request = submit_many(queue)
            submitting = (flow.submit(connection, request) for connection in opened)
            costs.begin()
            await asyncio.gather(*submitting, *(flow.work(worker) for worker in crew))
            costs.end(flow.watch.jobs)
        return flow.watch.rate

    return run


class _Flow:
    """Jobs on their way through a server."""

    def __init__(self, seconds: float) -> None:
        self.watch = Stopwatch(seconds)
        self._submitted = 0
        self._room = asyncio.Condition()

    async def submit(self, connection: Connection, request: bytes) -> None:
        """Submit batches while there is time, never far ahead of the workers."""
        while self.watch.running:
            async with self._room:
                await self._room.wait_for(self._has_room)
            self._submitted += BATCH
            await _good(connection, request)

    async def work(self, worker: Worker) -> None:
        """Claim and complete until nothing is left."""
        while self.watch.running or self.watch.jobs < self._submitted:
            leases = await worker.claim()
            if leases:
                await worker.report(leases)
                self.watch.jobs += len(leases)
                self.watch.stop()
            async with self._room:
                self._room.notify_all()

    def _has_room(self) -> bool:
        return self._submitted - self.watch.jobs < AHEAD


async def wake_up_times_ms(port: int, queue: str, count: int) -> list[float]:
    """Return how long it took from sending a submit to the answer of a claim that waited, on an idle server."""
    times = []
    submit = submit_one(queue)
    async with connections(port, 2) as (waiting, calling):
        worker = Worker(waiting, queue, count=1)
        await worker.register()
        for _ in range(count):
            claim = asyncio.create_task(worker.claim())
            await asyncio.sleep(SETTLE_S)
            (await calling.ask(get("/version"))).good()  # answered after the claim has been taken up
            start = perf_counter()
            submitting = asyncio.create_task(_good(calling, submit))
            leases = await claim
            times.append((perf_counter() - start) * 1000)
            await submitting
            await worker.report(leases)
    return times


async def round_trip_times_ms(port: int, request: bytes, count: int) -> list[float]:
    """Return how long one request after the other took on one connection."""
    times = []
    async with connections(port, 1) as (connection,):
        for _ in range(count):
            start = perf_counter()
            (await connection.ask(request)).good()
            times.append((perf_counter() - start) * 1000)
    return times


@asynccontextmanager
async def idling(port: int, queue: str, workers: int, *, beats: bool) -> AsyncIterator[None]:
    """Keep so many workers waiting for work that never comes while the block runs; `beats`: with heartbeats."""
    lease_s = IDLE_LEASE_S if beats else LEASE_S
    async with connections(port, 1) as (beating,), _workers(port, queue, workers, lease_s=lease_s) as crew:
        every_s = await crew[0].register(lease_s=lease_s)

        async def wait(worker: Worker) -> None:
            while True:
                await worker.claim()

        async def beat() -> None:
            for worker in cycle(crew):
                await asyncio.sleep(every_s / workers)
                await _good(beating, worker.beat_request())

        tasks = [asyncio.create_task(wait(worker)) for worker in crew]
        if beats:
            tasks.append(asyncio.create_task(beat()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _workers(
    port: int, queue: str, count: int, *, lease_s: float = LEASE_S, wait_s: float = WAIT_S
) -> AsyncIterator[list[Worker]]:
    async with connections(port, count) as opened:
        crew = [Worker(connection, queue, wait_s=wait_s) for connection in opened]
        for worker in crew:
            await worker.register(lease_s=lease_s)
        yield crew


async def _fill(port: int, queue: str, wanted: int) -> int:
    """Submit at least so many jobs, untimed; return how many."""
    requests = max(0, -(-wanted // BATCH))
    request = submit_many(queue)
    async with connections(port, SUBMITTERS) as opened:
        for start in range(0, requests, SUBMITTERS):
            now = opened[: min(SUBMITTERS, requests - start)]
            await asyncio.gather(*(_good(connection, request) for connection in now))
    return requests * BATCH


async def _good(connection: Connection, request: bytes) -> bytes:
    return (await connection.ask(request)).good()
