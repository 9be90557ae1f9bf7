"""Processes of the command line, and the hands of a worker that speaks HTTP."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from tests.proofs.processes import SERVES, environment
from windlass.cli.pool import with_parent

PATIENCE_S = 60.0
"""Nothing that is waited for takes nearly as long; past it something hangs."""
PAUSE_S = 0.05
UP = re.compile(r"Windlass is up at (\S+)")
READY = "Workers are ready."
Found = TypeVar("Found")


class Running:
    """A process of the command line; what it says goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._said = said

    @property
    def text(self) -> str:
        """All that it has said."""
        return self._said.read_text(errors="replace")

    def said(self, pattern: str | re.Pattern[str], *, count: int = 1) -> re.Match[str]:
        """Wait until it has said this so many times; return the last."""

        def found() -> re.Match[str] | None:
            matches = list(re.finditer(pattern, self.text))
            return matches[count - 1] if len(matches) >= count else None

        return waited(found, f"{pattern!r}, said by", self)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait for its end; return the exit code."""
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self.is_running:
            self._process.kill()
        self._process.wait()


@contextmanager
def running(folder: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Run `windlass` with these arguments in a folder, for a block."""
    said = folder / f"said-{time.monotonic_ns()}.log"
    with said.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment(settings or {}),
            start_new_session=True,
            preexec_fn=_begin,
        )
    made = Running(process, said)
    try:
        yield made
    finally:
        made.close()


def hear_ctrl_c() -> None:
    """Begin as a shell starts a process in the foreground; for between fork and exec.

    Tests may run where SIGINT is ignored (`nohup`, `&` in a script): children inherit that, and Python then leaves it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _begin() -> None:
    hear_ctrl_c()
    with_parent(signal.SIGTERM)()


@contextmanager
def serving(folder: Path, *, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server for a block; yield its URL."""
    arguments = ("server", "--database", f"sqlite:///{folder}/jobs.db", "--port", "0", "--log-format", "text")
    with running(folder, *arguments, settings=settings) as process:
        found = process.said(SERVES)
        yield f"{found[1]}://{found[2]}:{found[3]}"


def waited(look: Callable[[], Found | None], what: str, process: Running | None = None) -> Found:
    """Return what the look finds, when it finds something; an AssertionError if it never does, or the process ends."""
    until = time.monotonic() + PATIENCE_S
    while True:
        is_over = time.monotonic() > until or (process is not None and not process.is_running)
        if found := look():
            return found
        assert not is_over, f"waited in vain for {what} {'' if process is None else process.text}"
        time.sleep(PAUSE_S)


class Hands:
    """A worker that keeps no session: claims what it is told to, and tells how it ended."""

    def __init__(self, url: str) -> None:
        self._client = httpx2.Client(verify=False, base_url=f"{url}/api/v1", timeout=PATIENCE_S)

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def submit(self, task: str, **fields: Any) -> str:
        """Submit a job and return its id."""
        return str(self._post("/jobs", {"task": task, **fields})["id"])

    def submit_many(self, task: str, count: int, **fields: Any) -> list[str]:
        """Submit so many jobs at once and return their ids."""
        answer = self._post("/jobs/batch", {"jobs": [{"task": task, **fields}] * count})
        return [str(job["id"]) for job in answer["jobs"]]

    def job(self, job_id: str) -> Any:
        """Return a job."""
        return self._client.get(f"/jobs/{job_id}").raise_for_status().json()

    def workers(self) -> Any:
        """Return the workers that there are."""
        return self._client.get("/workers").raise_for_status().json()["workers"]

    def claim(self, task: str, *, queue: str) -> Any:
        """Say what these hands do, wait for a job of the task and claim it."""
        self._post("/workers/register", {"worker_id": "hands", "queues": [queue], "tasks": [task]})
        asked = {"worker_id": "hands", "tasks": [task], "queues": [queue], "count": 1, "wait": 20}
        [job] = self._post("/jobs/claim", asked)["jobs"]
        return job

    def write(self, job: Any, chunks: list[list[Any]], *, dropped: int) -> None:
        """Tell lines of a job that was claimed, and how many were dropped after each chunk."""
        named = {"job_id": job["id"], "fence": job["fence"], "dropped": dropped}
        logs = [{**named, "seq": number, "lines": lines} for number, lines in enumerate(chunks)]
        self._post("/jobs/report", {"worker_id": "hands", "session": job["session"], "logs": logs})

    def end(self, job: Any, result: Any = None) -> None:
        """Let a job that was claimed succeed."""
        lease = {"worker_id": "hands", "session": job["session"], "fence": job["fence"]}
        self._post(f"/jobs/{job['id']}/complete", {**lease, "result": result})

    def complete(self, task: str, *, queue: str, result: Any = None) -> str:
        """Claim a job, let it succeed, and return its id."""
        job = self.claim(task, queue=queue)
        self.end(job, result)
        return str(job["id"])

    def kill(self, task: str, *, queue: str) -> str:
        """Claim a job, let it fail for good, and return its id."""
        job = self.claim(task, queue=queue)
        lease = {"worker_id": "hands", "session": job["session"], "fence": job["fence"]}
        error = {"error_type": "ValueError", "error_message": "no such address", "retryable": False}
        self._post(f"/jobs/{job['id']}/fail", {**lease, **error})
        return str(job["id"])

    def _post(self, path: str, body: Any) -> Any:
        answer = self._client.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else {"jobs": []}
