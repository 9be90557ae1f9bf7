"""Load: callers that submit, claim and report over HTTP, as bare programs do, through whatever happens to the servers.

A call that is not answered goes to the next server, under the same idempotency key; a claim is not said again.
Every duty has work: jobs due later and retries (promote), claimers that forget their jobs (rescue), jobs that overrun
their time and jobs that nobody may start any more (deadlines). What was acknowledged stands in the ledger.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx2

from tests.proofs.ledger import Ledger, Said
from tests.proofs.witness import Connection
from windlass.httpclient import AsyncClient

Json = dict[str, Any]

ANSWER_S = 3.0
"""How long a caller waits for an answer before it asks the next server."""
PAUSE_S = 0.05
CLAIM_WAIT_S = 1.0
LEASE_S = 2.0
SESSION_S = 4.0
DRAIN_S = 90.0
LIVE = """
SELECT count(*) FROM (SELECT id FROM windlass.queue UNION ALL SELECT id FROM windlass.timer) AS p
  JOIN windlass.job j ON j.id = ANY(ARRAY[p.id]) WHERE j.schedule_id IS NULL
"""
ENDED = """
SELECT count(*) FROM windlass.done d JOIN windlass.job j ON j.id = ANY(ARRAY[d.id]) WHERE j.schedule_id IS NULL
"""

KINDS = ("plain", "keyed", "later", "keyed", "flaky", "lost", "keyed", "overrun", "nobody", "later")
"""What is submitted, in turn."""
QUICK = ("plain", "keyed", "later", "flaky", "lost", "nobody")
"""The same without jobs that overrun their time: their workers have another half minute to stop them."""


class Load:
    """Callers of a fleet."""

    def __init__(
        self, urls: Sequence[str], *, kinds: Sequence[str] = KINDS, pace_s: float = 0.02, submitters: int = 6
    ) -> None:
        self.ledger = Ledger()
        self._urls = list(urls)
        self._clients = [AsyncClient(base_url=f"{url}/api/v1", timeout=ANSWER_S) for url in urls]
        self._kinds = kinds
        self._pace_s = pace_s
        self._submitter_count = submitters
        self._full = asyncio.Event()
        """No more is submitted."""
        self._over = asyncio.Event()

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Let callers call for a block; afterwards use `drain` and then this ends."""
        callers = [
            *(self._submit_on(number) for number in range(self._submitter_count)),
            *(self._work(number) for number in range(3)),
            *(self._work_bare(number) for number in range(2)),
            self._forget(0),
            self._forget(1),
            self._overrun(0),
            self._overrun(1),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for caller in callers:
                    group.create_task(caller)
                try:
                    yield
                finally:
                    self._full.set()
                    self._over.set()
        finally:
            for client in self._clients:
                await client.aclose()

    async def done(self, connection: Connection, count: int) -> None:
        """Wait until so many jobs have ended."""
        async with asyncio.timeout(DRAIN_S):
            while await connection.fetchval(ENDED) < count:
                await connection.execute("SELECT pg_sleep(0.05)")

    async def drain(self, connection: Connection) -> float | None:
        """Submit no more and wait until no job is live; return how long that took, None if it did not come to that."""
        self._full.set()
        began_s = time.monotonic()
        while await connection.fetchval(LIVE):
            if time.monotonic() - began_s > DRAIN_S:
                return None
            await connection.execute("SELECT pg_sleep(0.1)")
        return time.monotonic() - began_s

    async def crowd(self, count: int, *, within_s: float, url: str) -> None:
        """Submit jobs to the server at `url` that come due one after the other: within this time one always is."""
        jobs = []
        for number in range(count):
            job = job_of("keyed", secrets.token_hex(8))
            jobs.append({**job, "delay": round(within_s * (number + 1) / count, 3)})
        answer = await self._call("/jobs/batch", {"jobs": jobs}, again=True, first=self._urls.index(url))
        if answer is None or answer.status_code != 201:
            self.ledger.faults.append("a crowd of jobs was not taken")
            return
        for job, told in zip(jobs, answer.json()["jobs"], strict=True):
            self.ledger.acknowledge(UUID(told["id"]), job["idempotency_key"])

    async def _submit_on(self, number: int) -> None:
        for kind in itertools.islice(itertools.cycle(self._kinds), number, None):
            if self._full.is_set():
                return
            await self._submit(kind)
            await pause(self._full, self._pace_s)

    async def _submit(self, kind: str) -> None:
        key = None if kind == "plain" else secrets.token_hex(8)
        body = job_of(kind, key)
        answer = await self._call("/jobs", body, again=key is not None)
        if answer is None or answer.status_code >= 500:
            self.ledger.unknown_count += 1
        elif answer.status_code in (200, 201):
            self.ledger.acknowledge(UUID(answer.json()["id"]), key)
            if key is not None and random.random() < 0.1:
                repeated = await self._call("/jobs", body, again=True)
                if repeated is not None:
                    self.ledger.acknowledge(UUID(repeated.json()["id"]), key)
        else:
            self.ledger.faults.append(f"{answer.status_code} to a submit: {answer.text[:300]}")

    async def _work(self, number: int) -> None:
        """Be a worker with a session, which says that it lives every second."""
        worker = f"worker-{number}"
        while not self._over.is_set():
            session = str(uuid4())
            lease: Json = {"worker_id": worker, "session": session}
            if await self._ok("/workers/register", {**lease, "lease_seconds": SESSION_S, "max_threads": 50}):
                await self._work_in_session(lease)

    async def _work_in_session(self, lease: Json) -> None:
        beaten_s = time.monotonic()
        while not self._over.is_set():
            if time.monotonic() - beaten_s > 1.0:
                beaten_s = time.monotonic()
                if not await self._ok("/workers/heartbeat", {**lease, "held": []}):
                    return
            jobs = await self._claim({**lease, "count": 20, "tasks": ["plain"]})
            if jobs is None:
                return
            await self._end(lease, jobs)

    async def _work_bare(self, number: int) -> None:
        """Be a program without a session: each of its jobs has a lease of its own."""
        lease: Json = {"worker_id": f"bare-{number}"}
        while not self._over.is_set():
            jobs = await self._claim({**lease, "count": 10, "tasks": ["plain"], "lease_seconds": LEASE_S})
            await self._end(lease, jobs or [])

    async def _forget(self, number: int) -> None:
        """Claim jobs and forget them the first time; come back much later to report what is no longer ours."""
        lease: Json = {"worker_id": f"forgetful-{number}"}
        forgotten: list[tuple[float, Json]] = []
        while not self._over.is_set():
            jobs = await self._claim({**lease, "count": 5, "tasks": ["lost"], "lease_seconds": 1.0}) or []
            forgotten += [(time.monotonic(), job) for job in jobs if job["fence"] == 1]
            await self._end(lease, [job for job in jobs if job["fence"] > 1])
            forgotten = await self._come_back(lease, forgotten)

    async def _overrun(self, number: int) -> None:
        """Claim jobs, say that they have started, and let their time run out; finish them the second time."""
        lease: Json = {"worker_id": f"slow-{number}"}
        forgotten: list[tuple[float, Json]] = []
        while not self._over.is_set():
            jobs = await self._claim({**lease, "count": 5, "tasks": ["overrun"], "lease_seconds": 60.0}) or []
            for job in jobs:
                if job["fence"] == 1:
                    told = {**lease, "fence": job["fence"], "session": job["session"], "started": True}
                    await self._call(f"/jobs/{job['id']}/heartbeat", told, again=True)
                    forgotten.append((time.monotonic(), job))
            await self._end(lease, [job for job in jobs if job["fence"] > 1])
            forgotten = await self._come_back(lease, forgotten)

    async def _come_back(self, lease: Json, forgotten: list[tuple[float, Json]]) -> list[tuple[float, Json]]:
        """Report jobs whose lease must have ended, seen by their having been handed out again; return the others."""
        later = []
        for since_s, job in forgotten:
            if not self._granted_again(job):
                later.append((since_s, job))
                continue
            entry = {"kind": "complete", "job_id": job["id"], "fence": job["fence"], "session": job["session"]}
            answer = await self._call("/jobs/report", {**lease, "reports": [{**entry, "result": "late"}]}, again=True)
            if answer is not None and answer.status_code == 200:
                status = answer.json()["answers"][0]["status"]
                self.ledger.refused[status] += 1
                if status in ("applied", "already"):
                    self.ledger.wrongly_taken.append((UUID(job["id"]), job["fence"]))
        return later

    def _granted_again(self, job: Json) -> bool:
        job_id = UUID(job["id"])
        return any(self.ledger.grants[job_id, fence] for fence in range(job["fence"] + 1, job["fence"] + 5))

    async def _claim(self, body: Json) -> list[Json] | None:
        """Claim once; None if the session is no longer known. A claim that is not answered has got nothing."""
        answer = await self._call("/jobs/claim", {**body, "wait": CLAIM_WAIT_S}, again=False, wait_s=CLAIM_WAIT_S)
        if answer is None or answer.status_code in (204, 503):
            return []
        if answer.status_code != 200:
            return None
        jobs: list[Json] = answer.json()["jobs"]
        for job in jobs:
            self.ledger.grants[UUID(job["id"]), job["fence"]] += 1
        return jobs

    async def _end(self, lease: Json, jobs: Sequence[Json]) -> None:
        """Report how these jobs ended; the first attempt of a flaky one fails."""
        if not jobs:
            return
        entries: list[Json] = []
        for job in jobs:
            nonce = secrets.token_hex(8)
            named = {"job_id": job["id"], "fence": job["fence"], "session": job["session"]}
            if job["payload"] == "flaky" and job["attempt"] == 1:
                entries.append({"kind": "fail", **named, "error_message": nonce})
            else:
                entries.append({"kind": "complete", **named, "result": nonce})
            said = Said("fail" if "error_message" in entries[-1] else "complete", nonce)
            self.ledger.said[UUID(job["id"]), job["fence"]] = said
        answer = await self._call("/jobs/report", {"worker_id": lease["worker_id"], "reports": entries}, again=True)
        if answer is None or answer.status_code != 200:
            return
        for entry, told in zip(entries, answer.json()["answers"], strict=True):
            if told["status"] in ("applied", "already"):
                self.ledger.accepted[UUID(entry["job_id"]), entry["fence"]].add(told["status"])
            else:
                self.ledger.refused[told["status"]] += 1

    async def _ok(self, path: str, body: Json) -> bool:
        answer = await self._call(path, body, again=True)
        return answer is not None and answer.status_code == 200

    async def _call(
        self, path: str, body: Json, *, again: bool, wait_s: float = 0.0, first: int | None = None
    ) -> httpx2.Response | None:
        """Ask one server after the other until one answers, if the call may be said again; None if none has."""
        turn = random.randrange(len(self._clients)) if first is None else first
        while True:
            client = self._clients[turn % len(self._clients)]
            answer = await self._ask(client, path, body=body, wait_s=wait_s)
            if answer is not None and answer.status_code < 500:
                return answer
            if not again or self._over.is_set():
                return answer
            turn += 1
            await pause(self._over, PAUSE_S)

    async def _ask(self, client: httpx2.AsyncClient, path: str, *, body: Json, wait_s: float) -> httpx2.Response | None:
        began_s = time.monotonic()
        try:
            answer = await client.post(path, json=body, timeout=ANSWER_S + wait_s)
        except httpx2.HTTPError:
            self.ledger.silences += 1
            return None
        took_s = time.monotonic() - began_s - wait_s
        self.ledger.answered(answer.status_code, path=path, text=answer.text, took_s=took_s)
        return answer


def job_of(kind: str, key: str | None) -> Json:
    """Return a job of this kind, as it is submitted."""
    body: Json = {"task": "plain", "payload": kind, "max_attempts": 10, "max_lost": 50}
    body["retry_policy"] = {"kind": "fixed", "base": 0.5}
    if key is not None:
        body["idempotency_key"] = key
    if kind == "later":
        body["delay"] = round(random.uniform(0.2, 4.0), 3)
    elif kind in ("lost", "overrun"):
        body["task"] = kind
        body["timeout_seconds"] = 1 if kind == "overrun" else 60
    elif kind == "nobody":
        body["queue"] = "nobody"
        body["start_deadline"] = (datetime.now(UTC) + timedelta(seconds=random.uniform(0.5, 3.0))).isoformat()
    return body


async def pause(event: asyncio.Event, seconds: float) -> None:
    """Return after so long, or when the event comes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
