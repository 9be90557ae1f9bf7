"""Isolated bodies: each in a process that can be killed, for a thread of threads.py that waits for it.

The processes (cell.py) are started when needed, run one body at a time, and are kept; one that was pressed, has run
`worker.max_jobs` bodies or left something behind is replaced. Each leads a session and so a group of its own: what a
body starts dies with it, and a body that kills its group kills nobody else. When one dies, its attempt has failed.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from windlass import log
from windlass.config.environment import for_tasks
from windlass.config.settings import Worker as WorkerSettings
from windlass.worker.attempt import Attempt
from windlass.worker.celllines import Setup
from windlass.worker.cellprocess import CellProcess
from windlass.worker.endings import Ending, Halted, Raised


class Isolated:
    """The processes of one worker."""

    def __init__(self, app_target: str | None, *, settings: WorkerSettings, server_url: str | None = None) -> None:
        self._setup = None if app_target is None else Setup(app_target, settings.log_bytes, server_url)
        self._max_jobs = settings.max_jobs
        # Now, before a body can change it.
        self._directory = Path.cwd()
        self._lock = threading.Lock()
        self._idle: list[CellProcess] = []
        self._all: set[CellProcess] = set()
        self._closed = False
        # The kernel ends a process with the thread that started it, so that thread must outlive them all.
        self._starter = ThreadPoolExecutor(1, "windlass-starter")

    def run(self, attempt: Attempt) -> Ending:
        """Run the body in a process, and return how it ended."""
        try:
            cell = self._take()
        except (OSError, RuntimeError) as error:
            return Raised("ProcessNotStarted", f"No process for the task could be started: {error}")
        if cell is None:
            return Raised(
                "ProcessNotStarted", "This worker has no module that a process could import. Start it with --app."
            )
        # Who stops it looks at the place after the ladder is set: one of the two sees the other.
        cell.attempt = attempt
        attempt.place = cell
        ending = Halted() if attempt.ladder is not None else cell.run(attempt)
        self._give_back(cell)
        return ending

    def _take(self) -> CellProcess | None:
        while True:
            with self._lock:
                cell = self._idle.pop() if self._idle else None
            if cell is None:
                return self._start()
            if cell.is_alive:
                return cell
            self._end(cell)

    def _start(self) -> CellProcess | None:
        setup = self._setup
        if setup is None:
            return None

        def start() -> CellProcess:
            return CellProcess(setup, directory=self._directory, environment=for_tasks(os.environ))

        cell = self._starter.submit(start).result()
        with self._lock:
            if not self._closed:
                self._all.add(cell)
                return cell
        cell.kill()
        raise RuntimeError("the worker has ended.")

    def _give_back(self, cell: CellProcess) -> None:
        is_good = cell.let_go() and not (self._max_jobs and cell.job_count >= self._max_jobs)
        with self._lock:
            if is_good and not self._closed:
                self._idle.append(cell)
                return
        self._end(cell)

    def _end(self, cell: CellProcess) -> None:
        with self._lock:
            self._all.discard(cell)
            is_closed = self._closed
        if is_closed:
            cell.kill()
        else:
            self._starter.submit(_ended, cell)

    def close(self) -> None:
        """End all processes, with what they run."""
        with self._lock:
            self._closed = True
            cells = list(self._all)
            self._idle.clear()
        for cell in cells:
            cell.kill()
        self._starter.shutdown()


def _ended(cell: CellProcess) -> None:
    began_at = time.monotonic()
    try:
        cell.end()
    except Exception as error:  # nobody waits for this
        log.event("cell.failed", error=error, pid=cell.pid, seconds=round(time.monotonic() - began_at, 3))
