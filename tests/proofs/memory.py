"""Memory: a server's stays flat over a million jobs.

    python -m tests.proofs memory [--jobs 1000000]

One server; jobs are submitted, claimed and reported by the batch. Every two seconds the process is looked at: resident
memory, open files, threads. Shown is the slope of memory over jobs, for the first and the second half of the run.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import msgspec

from tests.proofs import fleet as fleets
from tests.proofs.verdict import Line, checked

BATCH = 500
CALLERS = 3
AHEAD = 20_000
"""How many jobs may wait: submitters rest above it, so that the backlog is the same all the while."""
EVERY_S = 2.0
GROWTH = 0.05
"""What the mean of the last quarter may be above that of the second one; the first warms up."""


class Sample(msgspec.Struct, frozen=True):
    """One look at a process: jobs done until then, resident memory, open files, threads."""

    jobs: int
    rss_mb: float
    files: int
    threads: int


class Mill:
    """Callers that bring jobs to one server and do them."""

    def __init__(self, url: str, jobs: int) -> None:
        self.submitted = self.done = 0
        self._wanted = jobs
        limits = httpx2.Limits(max_connections=20)
        self._client = httpx2.AsyncClient(base_url=f"{url}/api/v1", timeout=30.0, limits=limits)
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        """Bring all jobs through."""
        async with self._client, asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(self._submit())
                group.create_task(self._work(f"mill-{number}"))

    async def _submit(self) -> None:
        while self.submitted < self._wanted:
            count = min(BATCH, self._wanted - self.submitted)
            self.submitted += count
            async with self._changed:
                await self._changed.wait_for(lambda: self.submitted - self.done <= AHEAD)
            jobs = [{"task": "grain", "payload": {"to": "ann@example.org", "number": n}} for n in range(count)]
            await self._call("/jobs/batch", {"jobs": jobs})

    async def _work(self, worker: str) -> None:
        lease = {"worker_id": worker, "session": str(uuid4())}
        await self._call("/workers/register", {**lease, "max_threads": BATCH, "lease_seconds": 60})
        beaten_s = time.monotonic()
        while self.done < self._wanted:
            if time.monotonic() - beaten_s > 10:
                beaten_s = time.monotonic()
                await self._call("/workers/heartbeat", {**lease, "held": []})
            claimed = await self._call("/jobs/claim", {**lease, "count": BATCH, "wait": 1})
            jobs = claimed["jobs"] if claimed else []
            if not jobs:
                continue
            entries = [
                {"kind": "complete", "job_id": job["id"], "fence": job["fence"], "result": {"ok": True}} for job in jobs
            ]
            answers = (await self._call("/jobs/report", {**lease, "reports": entries}))["answers"]
            assert all(answer["status"] == "applied" for answer in answers)
            async with self._changed:
                self.done += len(jobs)
                self._changed.notify_all()

    async def _call(self, path: str, body: dict[str, Any]) -> Any:
        answer = await self._client.post(path, json=body)
        assert answer.status_code < 300, f"{answer.status_code} to {path}: {answer.text[:300]}"
        return msgspec.json.decode(answer.content) if answer.content else None


async def prove(url: str, *, jobs: int = 1_000_000, every_s: float = EVERY_S, log: Path | None = None) -> list[Line]:
    """Bring so many jobs through one server; return what was found."""
    samples: list[Sample] = []
    began_s = time.monotonic()
    async with fleets.running(url, count=1, log=log) as fleet:
        [member] = fleet.members
        mill = Mill(member.url, jobs)
        running = asyncio.create_task(mill.run())
        try:
            while not running.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(every_s):
                        await asyncio.shield(running)
                samples.append(look(member.process.pid, mill.done))
        finally:
            running.cancel()
        took_s = time.monotonic() - began_s
        print(f"{mill.done} jobs in {took_s:.0f} s, {mill.done / took_s:.0f}/s")
        lines = [await checked(url)]
    for sample in samples[:: max(1, len(samples) // 20)]:
        print(f"{sample.jobs:9} jobs  {sample.rss_mb:7.1f} MB  {sample.files:3} files  {sample.threads:3} threads")
    return [*shape(samples), *lines]


def shape(samples: list[Sample]) -> list[Line]:
    """Return how memory, files and threads went over the run."""
    quarter = max(1, len(samples) // 4)
    second, last = samples[quarter : 2 * quarter] or samples[:1], samples[-quarter:]
    before_mb, after_mb = mean_mb(second), mean_mb(last)
    grown = after_mb / before_mb - 1
    half = len(samples) // 2
    first, then = slope(samples[:half]), slope(samples[half:])
    slopes = f"{first:+.2f} MB per 100,000 jobs in the first half, {then:+.2f} in the second"
    growth = f"{before_mb:.1f} MB in the second quarter, {after_mb:.1f} MB in the last, {grown:+.1%}; {slopes}"
    files = [max(sample.files for sample in part) for part in (second, last)]
    threads = [max(sample.threads for sample in part) for part in (second, last)]
    return [
        Line("memory is flat", growth, [f"{grown:+.1%}"] if grown > GROWTH else []),
        Line("no file is left open", f"{files[0]}, then {files[1]}", ["more"] if files[1] > files[0] + 2 else []),
        Line("no thread is left", f"{threads[0]}, then {threads[1]}", ["more"] if threads[1] > threads[0] else []),
    ]


def mean_mb(samples: list[Sample]) -> float:
    """Return the mean of resident memory."""
    return sum(sample.rss_mb for sample in samples) / len(samples)


def slope(samples: list[Sample]) -> float:
    """Return by how many MB memory grows in 100,000 jobs: the line of least squares."""
    if len(samples) < 2:
        return 0.0
    middle = sum(sample.jobs for sample in samples) / len(samples)
    middle_mb = mean_mb(samples)
    spread = sum((sample.jobs - middle) ** 2 for sample in samples)
    if not spread:
        return 0.0
    return 100_000 * sum((s.jobs - middle) * (s.rss_mb - middle_mb) for s in samples) / spread


def look(pid: int, jobs: int) -> Sample:
    """Return how the process stands now."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return Sample(jobs, int(status["VmRSS"].split()[0]) / 1024, files, int(status["Threads"]))
