"""The worker's log of ends: one line for each attempt, written by a thread of its own, many at a time.

The loop of the worker only hands over what ended: a terminal that is slow, or a pipe that nobody reads, keeps no job
waiting. Lines that find no room are counted, and told when there is room again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, Protocol
from uuid import UUID

from windlass import log
from windlass.wire import work as wire

GATHER_S = 0.05
"""How long lines are gathered into one write."""
ROOM = 20_000
"""Lines that may wait to be written."""
CLOSE_S = 1.0


class End(Protocol):
    """An attempt that is over (pools.py)."""

    @property
    def job_id(self) -> UUID:
        """Of which job."""

    @property
    def task(self) -> str:
        """Of which task."""

    @property
    def attempt(self) -> int:
        """Which one."""

    @property
    def tenant(self) -> str:
        """The tenant that the job belongs to."""

    @property
    def entry(self) -> wire.Entry | None:
        """What is reported of it."""

    @property
    def run_s(self) -> float:
        """How long it ran."""


class EndLog:
    """Writes a line for each attempt that ended."""

    def __init__(self, which: Literal["all", "failures"]) -> None:
        self._which = which
        self.worker: str | None = None
        """On which worker: of the lines of several it can be told whose they are."""
        self._waiting: deque[End] = deque()
        self._dropped_count = 0
        self._bell = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, ended: Sequence[End]) -> None:
        """Write these soon; of one thread."""
        if not ended or not log.hears("attempt.ended", log.INFO if self._which == "all" else log.WARNING):
            return
        room = ROOM - len(self._waiting)
        self._waiting.extend(ended[: max(0, room)])
        self._dropped_count += max(0, len(ended) - max(0, room))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="windlass-endlog", daemon=True)
            self._thread.start()
        self._bell.set()

    def close(self) -> None:
        """Write what is left, if that can be done soon."""
        self._over.set()
        self._bell.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._over.is_set():
            self._bell.wait()
            self._over.wait(GATHER_S)
            self._bell.clear()
            self._write()
        self._write()

    def _write(self) -> None:
        rows: list[dict[str, Any]] = []
        while self._waiting:
            end = self._waiting.popleft()
            fields = {
                "task": end.task,
                "job": end.job_id,
                "attempt": end.attempt,
                "outcome": _outcome(end.entry),
                "run_s": round(end.run_s, 4),
                "worker": self.worker,
                "tenant": end.tenant,
            }
            if isinstance(end.entry, wire.FailEntry):
                log.events("attempt.ended", rows)
                rows = []
                _write_failure(end.entry, fields)
            elif self._which == "all":
                rows.append(fields)
        log.events("attempt.ended", rows)
        if self._dropped_count:
            dropped, self._dropped_count = self._dropped_count, 0
            log.event("log.dropped", count=dropped)


def _outcome(entry: wire.Entry | None) -> str:
    match entry:
        case None:
            return "lost"
        case wire.CompleteEntry():
            return "succeeded"
        case wire.FailEntry():
            return entry.outcome.lower()
        case wire.ReleaseEntry():
            return "released"
        case wire.SnoozeEntry():
            return "snoozed"


def _write_failure(entry: wire.FailEntry, fields: dict[str, Any]) -> None:
    error = f"{entry.error_type}: {entry.error_message}" if entry.error_type else entry.error_message
    trace = None if entry.traceback is None else log.Trace(entry.traceback)
    log.event("attempt.ended", level=log.WARNING, **fields, message=error, trace=trace)
