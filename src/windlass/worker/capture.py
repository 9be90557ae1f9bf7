"""Capture: whose line is it that was logged or printed?

A handler of `logging` and stand-ins for stdout and stderr find the attempt by a context variable, which asyncio tasks
and `asyncio.to_thread` inherit, and hand the line to its trail (trail.py). Everything also goes where it went before.
The worker's own lines are nobody's.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TextIO

from windlass.client.context import Stopped
from windlass.wire.trail import Stream
from windlass.worker.trail import Trail

CURRENT: ContextVar[Trail | None] = ContextVar("windlass_attempt", default=None)
"""The trail of the attempt whose code runs here."""

_OWN, _TASKS = "windlass", "windlass.task"
_CARRIERS = ("httpx2", "httpcore2")
"""Loggers of what carries our own requests: these are no lines of a job, and wait for no lock that a body may hold."""
Find = Callable[[], Trail | None]


class _Handler(logging.Handler):
    """Hands each record to the attempt that made it."""

    def __init__(self, find: Find) -> None:
        super().__init__()
        self._find = find
        self._text = logging.Formatter()

    def createLock(self) -> None:  # noqa: N802 - a name of logging's
        """Have no lock: a body that is stopped here would leave it taken for all others. Trails have their own."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Keep the record, without a lock; Stopped if this line is to be the body's last: here it holds none either."""
        passed = bool(self.filter(record))
        if passed:
            self.emit(record)
        trail = self._find()
        if trail is not None and trail.stops_thread == [threading.get_ident()]:
            with contextlib.suppress(IndexError):  # whoever stops it otherwise was faster
                trail.stops_thread.pop()
                raise Stopped("It is to stop.")
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record; never raise."""
        if len(logging.getLogger().handlers) == 1:
            self._last_resort(record)
        trail = self._find()
        if trail is None or (_below(record.name, _OWN) and not _below(record.name, _TASKS)):
            return
        try:
            trail.log(record.levelname, self._text.format(record))
        except Exception as error:  # arguments that do not fit the text
            trail.log(record.levelname, f"{str(record.msg)[:1000]} (cannot be formatted: {type(error).__name__})")

    def _last_resort(self, record: logging.LogRecord) -> None:
        """Do as `logging` does without any handler: warnings go to stderr, and not to the attempt a second time."""
        if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
            token = CURRENT.set(None)
            try:
                logging.lastResort.handle(record)
            finally:
                CURRENT.reset(token)


class _AsBefore(logging.Filter):
    """Keeps from other handlers what they would not have seen, had the level not been lowered for the capture."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record goes on."""
        if _below(record.name, _TASKS):
            return record.levelno >= logging.getLogger(_OWN).getEffectiveLevel()
        return record.levelno >= self._level or _below(record.name, _OWN)


def _below(name: str, logger: str) -> bool:
    return name == logger or name.startswith(f"{logger}.")


class _StandIn:
    """A stream that also hands what is written to the attempt that wrote it."""

    def __init__(self, stream: Stream, target: TextIO | None, *, find: Find) -> None:
        self.target = target
        self._stream = stream
        self._find = find

    def write(self, text: str) -> int:
        """Write where it went before, and keep it for the attempt."""
        if self.target is not None:
            # Who closed the worker's own output has not asked for its jobs to fail.
            with contextlib.suppress(OSError, ValueError):
                self.target.write(text)
        trail = self._find()
        if trail is not None:
            trail.write(self._stream, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush where it went before."""
        if self.target is not None:
            with contextlib.suppress(OSError, ValueError):
                self.target.flush()

    def close(self) -> None:
        """Stay open: a body that closes its stdout does not close that of others."""

    def __getattr__(self, name: str) -> Any:
        if self.target is None:
            raise AttributeError(name)
        return getattr(self.target, name)


class Capture:
    """The capture of one process; installed once, however many ask for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._undo = contextlib.ExitStack()

    def install(self, *, find: Find = CURRENT.get, through: bool = True) -> None:
        """Begin; `through`: what is printed also goes where it went before."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._streams(find, through)
                self._logging(find)

    def remove(self) -> None:
        """End, when nobody needs it any more: everything is as it was."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._undo.close()

    def _streams(self, find: Find, through: bool) -> None:
        before: tuple[TextIO | None, TextIO | None] = (sys.stdout, sys.stderr)
        stdout = _StandIn("stdout", before[0] if through else None, find=find)
        stderr = _StandIn("stderr", before[1] if through else None, find=find)
        sys.stdout, sys.stderr = stdout, stderr

        def restore() -> None:
            # Somebody may have put another in its place since.
            if sys.stdout is stdout:
                sys.stdout = before[0]
            if sys.stderr is stderr:
                sys.stderr = before[1]

        self._undo.callback(restore)

    def _logging(self, find: Find) -> None:
        root, tasks = logging.getLogger(), logging.getLogger(_TASKS)
        as_before = _AsBefore(root.level)
        others = list(root.handlers)
        for other in others:
            other.addFilter(as_before)
            self._undo.callback(other.removeFilter, as_before)
        for carrier in map(logging.getLogger, _CARRIERS):
            if carrier.level == logging.NOTSET:  # who has set a level wants to see them
                self._undo.callback(carrier.setLevel, logging.NOTSET)
                carrier.setLevel(logging.WARNING)
        handler = _Handler(find)
        self._undo.callback(root.setLevel, root.level)
        self._undo.callback(tasks.setLevel, tasks.level)
        tasks.setLevel(min(logging.INFO, logging.getLogger(_OWN).getEffectiveLevel()))
        root.setLevel(min(logging.INFO, root.level))
        root.addHandler(handler)
        self._undo.callback(root.removeHandler, handler)


CAPTURE = Capture()
"""That of this process."""
