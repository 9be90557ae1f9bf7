"""The isolated process: runs one body at a time, for a worker that can kill it.

`python -m windlass.worker.cell FD PARENT`, started by cellprocess.py with one end of a pair of sockets. The body runs
in the main thread. Stop sets its flag, Press raises Stopped in it; what holds the interpreter hears neither and is
killed. A SIGTERM that the worker did not announce is ignored: a platform may tell every process of a unit to stop, and
the worker then decides what becomes of the body. It dies with its worker. It has no key and no session.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw

from windlass.client.context import Context, Stopped
from windlass.config import Settings
from windlass.config.redact import Redactor
from windlass.config.settings import Server
from windlass.errors import SetupError
from windlass.wire.trail import Stream
from windlass.worker import celllines
from windlass.worker.attempt import arun, run
from windlass.worker.capture import CAPTURE
from windlass.worker.celllines import Broken, Done, Lines, Noted, Press, Run, Setup, Stop, Up, Wrote
from windlass.worker.celltraces import HELD_BACK, Traces
from windlass.worker.endings import Ending, Halted, Raised, Returned
from windlass.worker.load import load_app
from windlass.worker.runnable import Runnable, Tasks
from windlass.worker.trail import Rules, Trail

MAX_RESULT_BYTES = celllines.MAX_LINE_BYTES // 2
DROPPED_TOLD = 1000
_PR_SET_PDEATHSIG = 1
_MB = 1024.0 if sys.platform != "darwin" else 1024.0 * 1024.0
"""What the peak memory of a process is divided by: it is in KiB, on macOS in bytes."""


class Wire:
    """The socket to the worker: whole lines, from any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._is_main_sending = False
        self._is_stop_waiting = False

    def say(self, said: Any) -> None:
        """Send a line. A SIGTERM that comes meanwhile waits: half a line would be the end of the talk."""
        data = celllines.line(said)
        with self._lock:
            is_main = threading.current_thread() is threading.main_thread()
            self._is_main_sending = is_main
            try:
                self._sock.sendall(data)
            finally:
                if is_main:
                    self._is_main_sending = False
        if is_main and self._is_stop_waiting:
            self._is_stop_waiting = False
            raise Stopped

    def defers_stop(self) -> bool:
        """Say whether a stop must wait, and remember it."""
        self._is_stop_waiting = self._is_main_sending
        return self._is_main_sending

    def lines(self) -> Any:
        """Yield what the worker says, until it is gone."""
        parts = Lines()
        while data := self._sock.recv(65_536):
            for text in parts.feed(data):
                yield celllines.from_worker(text)


class SentTrail(Trail):
    """A trail whose lines go to the worker at once."""

    __slots__ = ("_wire",)

    def __init__(self, about: Run, wire: Wire, *, rules: Rules) -> None:
        super().__init__(about.about.id, about.about.fence, rules=rules, fresh=deque())
        self._wire = wire

    def write(self, stream: Stream, text: str) -> None:
        """Keep and send."""
        super().write(stream, text)
        self._send()

    def log(self, level: str, text: str) -> None:
        """Keep and send."""
        super().log(level, text)
        self._send()

    def close(self) -> None:
        """Send the rest."""
        super().close()
        self._send(all_of_it=True)

    def _send(self, *, all_of_it: bool = False) -> None:
        if self._lines or self._dropped_count >= DROPPED_TOLD or (all_of_it and self._dropped_count):
            for chunk in self.take()[0]:
                self._wire.say(Wrote(list(chunk.lines), chunk.dropped))


class RemoteAttempt:
    """What stands behind the context here: the attempt is in the worker."""

    def __init__(self, job: Run, wire: Wire) -> None:
        self.job = job
        self.stopping: str | None = None
        self.is_pressed = False
        self.cancel: Callable[[], None] | None = None
        self._wire = wire
        self._due_at = None if job.remaining_s is None else time.monotonic() + job.remaining_s

    @property
    def remaining_s(self) -> float | None:
        """How long until its time is over; None: there is no limit."""
        return None if self._due_at is None else max(0.0, self._due_at - time.monotonic())

    def progress(self, value: bytes) -> None:
        """Tell how far it is."""
        self._wire.say(Noted(progress=Raw(value)))

    def checkpoint(self, value: bytes) -> None:
        """Tell from where a later attempt may go on."""
        self._wire.say(Noted(checkpoint=Raw(value)))

    def alive(self) -> None:
        """Nothing: the worker sees that the process lives."""


class Cell:
    """The process: what it has been given, and what it runs."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._given: queue.SimpleQueue[Setup | RemoteAttempt | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._attempt: RemoteAttempt | None = None
        self._trail: Trail | None = None
        self._is_in_body = False
        self._directory = os.getcwd()  # noqa: PTH109
        self._environment = dict(os.environ)
        self._traces = Traces()

    def listen(self) -> None:
        """Take what the worker says; its end is that of this process."""
        with contextlib.suppress(OSError):
            for said in self._wire.lines():
                if isinstance(said, Stop):
                    self._stop(said)
                elif isinstance(said, Press):
                    self._press(said)
                elif isinstance(said, Run):
                    self._attempt = RemoteAttempt(said, self._wire)
                    self._given.put(self._attempt)
                else:
                    self._given.put(said)
        if self._attempt is not None:
            # Its own group: this process leads a session, or it would not have come so far.
            os.killpg(0, signal.SIGKILL)
        self._given.put(None)

    def _stop(self, stop: Stop) -> None:
        with self._lock:
            attempt = self._attempt
            if attempt is not None and attempt.job.about.id == stop.job_id:
                attempt.stopping = stop.reason
                if attempt.cancel is not None:
                    attempt.cancel()

    def _press(self, press: Press) -> None:
        with self._lock:
            attempt = self._attempt
            if attempt is None or attempt.job.about.id != press.job_id:
                return
            attempt.is_pressed = True
        # The worker's own SIGTERM may have come before its word.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def on_sigterm(self, signum: int, frame: object) -> None:
        """Raise Stopped in the body, once, if the worker wants that; without a body there is nothing to stop."""
        attempt = self._attempt
        if attempt is None or not attempt.is_pressed:
            return
        if self._is_in_body and not self._wire.defers_stop():
            self._is_in_body = False
            raise Stopped

    def serve(self) -> None:
        """Import, then run what comes, one after the other."""
        setup = self._given.get()
        if not isinstance(setup, Setup):
            return
        try:
            app = load_app(setup.app_target)
        except SetupError as error:
            self._wire.say(Broken(str(error)))
            return
        if setup.server_url is not None:
            app.use(Settings(server=Server(url=setup.server_url)))
        # A line goes to the worker once; there is no other place for it here.
        logging.lastResort = None
        CAPTURE.install(find=lambda: self._trail, through=False)
        rules = Rules(cap_bytes=setup.log_bytes, redactor=Redactor(()))
        self._traces.note()
        self._wire.say(Up())
        while isinstance(attempt := self._given.get(), RemoteAttempt):
            self._one(app.tasks, attempt, rules=rules)

    def _one(self, tasks: Tasks, attempt: RemoteAttempt, *, rules: Rules) -> None:
        trail = self._trail = SentTrail(attempt.job, self._wire, rules=rules)
        cpu_s = time.process_time()
        ending: Ending = Halted()
        try:
            self._is_in_body = True
            ending = self._body(tasks, attempt)
            self._is_in_body = False
        except Stopped:
            # SIGTERM, just after the body's end or in the midst of a loop.
            self._is_in_body = False
        if isinstance(ending, Returned) and ending.result is not UNSET and len(bytes(ending.result)) > MAX_RESULT_BYTES:
            message = f"result: it has more than {MAX_RESULT_BYTES} bytes. Store it elsewhere and return where."
            ending = Raised("PayloadTooLarge", message, None, False)
        _flush()
        trail.close()
        with self._lock:
            self._attempt = self._trail = None
        worn = self._restore()
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MB
        self._wire.say(Done(ending, round(time.process_time() - cpu_s, 6), round(peak_mb, 1), worn))

    def _body(self, tasks: Tasks, attempt: RemoteAttempt) -> Ending:
        job = attempt.job
        task = tasks.get(job.about.task)
        if task is None:
            return Raised("UnknownTask", f"The isolated process has no task {job.about.task!r}.")
        if attempt.stopping is not None:
            return Halted()
        context = Context(job.about, attempt)
        if task.is_async:
            return asyncio.run(self._async_body(task, attempt, context))
        return run(task, job.payload, lambda: context)

    async def _async_body(self, task: Runnable, attempt: RemoteAttempt, context: Context) -> Ending:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        assert this is not None
        with self._lock:
            attempt.cancel = lambda: _cancel(loop, this)
            if attempt.stopping is not None:
                return Halted()
        return await arun(task, attempt.job.payload, lambda: context)

    def _restore(self) -> bool:
        """Put back what a body may have changed; True where that cannot be done."""
        if self._traces.restore():
            return True
        try:
            os.chdir(self._directory)
            if dict(os.environ) != self._environment:
                os.environ.clear()
                os.environ.update(self._environment)
            for fd in (1, 2):
                os.fstat(fd)
        except OSError:
            return True
        return False


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(task.cancel)


def _flush() -> None:
    """Write out what Python and C still hold of what was printed."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def die_with(parent: int) -> None:
    """Have the kernel end this process with its parent, also when it holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It died before the kernel was asked.
        os._exit(1)


def main(argv: list[str]) -> None:
    """Serve the worker at the other end of a socket until it is gone."""
    fd, parent = int(argv[1]), int(argv[2])
    die_with(parent)
    os.set_inheritable(fd, False)
    cell = Cell(Wire(socket.socket(fileno=fd)))
    signal.signal(signal.SIGTERM, cell.on_sigterm)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # Blocked by who started this process, so that none could end it before.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
    threading.Thread(target=cell.listen, name="windlass-listen", daemon=True).start()
    cell.serve()


if __name__ == "__main__":
    main(sys.argv)
