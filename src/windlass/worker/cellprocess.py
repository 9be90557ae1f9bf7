"""An isolated process as its worker sees it: started, given a body, pressed, killed, and what comes from it.

What is printed by Python code there comes over the socket, line by line; what C code and other programs print comes
over pipes in place of stdout and stderr. The end of the socket, or of the process, is the end of the body.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Literal

from msgspec import UNSET, ValidationError

from windlass.worker import celllines
from windlass.worker.attempt import Attempt
from windlass.worker.capture import CURRENT
from windlass.worker.celllines import Broken, Done, FromCell, Lines, Noted, Press, Run, Setup, Stop, Wrote
from windlass.worker.celltraces import HELD_BACK
from windlass.worker.endings import Ending, Halted, Raised, died
from windlass.worker.ladder import Rung

LOOK_MS = 500
"""How often it is asked whether the process lives: a body may have handed the socket to a process of its own."""
END_S = 2.0
"""How long a process has to end by itself when it is no longer needed, or has closed its socket."""
START_S = 30.0
"""How long a process may take to import the module; and how long it may take to read what it was told."""
MOST_LEFT_BYTES = 1_048_576
"""Of what was printed before the end and is still in a pipe."""


class Pipe:
    """What is printed in the process by others than Python."""

    def __init__(self, stream: Literal["stdout", "stderr"], file: IO[bytes]) -> None:
        self.stream: Literal["stdout", "stderr"] = stream
        self.fd = file.fileno()
        self.is_open = True
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        os.set_blocking(self.fd, False)

    def read(self) -> str:
        """Return what is there; an empty text where nothing is."""
        try:
            data = os.read(self.fd, 65_536)
        except BlockingIOError:
            return ""
        except OSError:
            data = b""
        if not data:
            self.is_open = False
        return self._decoder.decode(data, not data)

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


class CellProcess:
    """One isolated process; used by one thread at a time, pressed from another."""

    def __init__(self, setup: Setup, *, directory: Path, environment: Mapping[str, str]) -> None:
        self.attempt: Attempt | None = None
        self.job_count = 0
        self._lock = threading.Lock()
        self._unsent = bytearray()
        self._read_at = time.monotonic()
        """When it last took something, or nothing was left to take."""
        self._is_up = False
        self._is_spoilt = False
        self._lines = Lines()
        ours, theirs = socket.socketpair()
        with theirs, _held_back():
            self._process = subprocess.Popen(
                # Without the working folder on its path: a file there may be called like a module of the library.
                [sys.executable, "-P", "-m", "windlass.worker.cell", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=directory,
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._sock = ours
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._pipes = (Pipe("stdout", self._process.stdout), Pipe("stderr", self._process.stderr))
        self._started_at = time.monotonic()
        with self._lock:
            self._say(setup)

    @property
    def is_alive(self) -> bool:
        """Whether it may be given another body."""
        return not self._is_spoilt and self._exit_code() is None

    def _exit_code(self) -> int | None:
        """Return its exit code, negative for a signal, without forgetting it; None while it lives."""
        if self._process.returncode is not None:
            return self._process.returncode
        if not hasattr(os, "waitid"):
            return self._process.poll()
        with contextlib.suppress(ChildProcessError):
            # Not reaped: while it is not, its number and that of its group are nobody else's.
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return None
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        return self._process.poll()

    def _say(self, said: celllines.FromWorker) -> None:
        """Say something, with the lock; what it does not take now is sent by who follows it."""
        if not self._unsent:
            self._read_at = time.monotonic()
        self._unsent += celllines.line(said)
        self._send()

    def _send(self) -> None:
        """Send what it takes, with the lock, and wait for nothing: the worker's own loop may be here."""
        # One that is gone is noticed by who reads.
        with contextlib.suppress(OSError):
            while self._unsent and (count := self._sock.send(self._unsent[:1_048_576], socket.MSG_DONTWAIT)):
                del self._unsent[:count]
                self._read_at = time.monotonic()

    def run(self, attempt: Attempt) -> Ending:
        """Run the body, and return how it ended."""
        self.job_count += 1
        try:
            return (self._begin(attempt) if self._is_up else None) or self._follow(attempt)
        except (ValidationError, ValueError) as error:
            self._is_spoilt = True
            return Raised("ProcessDied", f"What its process said cannot be read, so it was killed: {error}")
        finally:
            self._take_left(attempt)

    def _begin(self, attempt: Attempt) -> Ending | None:
        """Give it the body; the ending if that was to stop before it began."""
        # With the lock, so that a stop is said after the body is given, or seen here.
        with self._lock:
            if attempt.ladder is not None:
                return Halted()
            attempt.restart()
            self._say(Run(attempt.about(), attempt.job.payload, attempt.remaining_s))
        return None

    def _follow(self, attempt: Attempt) -> Ending:
        """Read what comes until the body has ended."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        by_fd = {pipe.fd: pipe for pipe in self._pipes if pipe.is_open}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        while True:
            with self._lock:
                self._send()
                poll.modify(self._sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            ready = poll.poll(LOOK_MS)
            if not ready and self._exit_code() is not None:
                return self._died()
            for fd, _ in ready:
                if fd in by_fd:
                    self._printed(attempt, by_fd[fd])
                    if not by_fd[fd].is_open:
                        poll.unregister(fd)
                        del by_fd[fd]
            if any(fd == self._sock.fileno() and event != select.POLLOUT for fd, event in ready):
                ending = self._listen(attempt)
            else:
                ending = self._late(time.monotonic())
            if ending is not None:
                return ending

    def _listen(self, attempt: Attempt) -> Ending | None:
        """Read what came; the ending if it has one."""
        data = self._received()
        if not data:
            return self._died()
        for text in self._lines.feed(data):
            ending = self._heard(attempt, celllines.from_cell(text))
            if ending is not None:
                return ending
        return None

    def _late(self, now: float) -> Ending | None:
        """Return how the body ended whose process is not of use; None while it is."""
        if not self._is_up and now - self._started_at >= START_S:
            self._is_spoilt = True
            return Raised(
                "ProcessNotStarted",
                f"The process for the task was not ready after {START_S:.0f} s and was killed. "
                "Look at what its module does when it is imported.",
            )
        if self._unsent and now - self._read_at >= START_S:
            self._is_spoilt = True
            return Raised(
                "ProcessDied", f"Its process read nothing of the worker's for {START_S:.0f} s and was killed."
            )
        return None

    def _received(self) -> bytes:
        try:
            return self._sock.recv(1_048_576)
        except OSError:
            return b""

    def _heard(self, attempt: Attempt, said: FromCell) -> Ending | None:
        if isinstance(said, Wrote):
            attempt.trail.add(said.lines, said.dropped_count)
            for line in said.lines:
                text = f"{line.text}\n" if line.level is None else f"{line.level} {line.text}\n"
                _show("stdout" if line.stream == "stdout" else "stderr", text)
        elif isinstance(said, Noted):
            if said.progress is not UNSET:
                attempt.progress(bytes(said.progress))
            if said.checkpoint is not UNSET:
                attempt.checkpoint(bytes(said.checkpoint))
        elif isinstance(said, Done):
            self._is_spoilt |= said.worn
            attempt.metrics = {"cpu_seconds": said.cpu_s, "peak_memory_mb": said.peak_mb}
            return said.ending
        elif isinstance(said, Broken):
            self._is_spoilt = True
            return Raised("ProcessNotStarted", f"The process for the task cannot run it: {said.reason}")
        else:
            self._is_up = True
            return self._begin(attempt)
        return None

    def _died(self) -> Ending:
        """Return how the body ended whose process did, or no longer speaks."""
        self._is_spoilt = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._wait_unreaped(END_S)
        return died(self._exit_code())

    def _wait_unreaped(self, within_s: float) -> None:
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(self.pid)
                try:
                    select.select([fd], [], [], within_s)
                finally:
                    os.close(fd)
                return
        self._process.wait(within_s)

    def _printed(self, attempt: Attempt, pipe: Pipe) -> int:
        text = pipe.read()
        if text:
            attempt.trail.write(pipe.stream, text)
            _show(pipe.stream, text)
        return len(text)

    def _take_left(self, attempt: Attempt) -> None:
        """Take what was printed before the end."""
        for pipe in self._pipes:
            left_bytes = MOST_LEFT_BYTES
            while pipe.is_open and left_bytes > 0 and (count := self._printed(attempt, pipe)):
                left_bytes -= count

    def press(self, attempt: Attempt, rung: Rung) -> None:
        """Do what the rung says, if the body has not ended."""
        with self._lock:
            if self.attempt is not attempt:
                return
            if rung == "flag":
                self._say(Stop(attempt.job.id, attempt.stopping or "The attempt is to stop."))
            elif rung in ("sigterm", "sigkill"):
                self._is_spoilt = True
                # One that still imports has no body that could clean up.
                is_asked = rung == "sigterm" and self._is_up
                if is_asked:
                    self._say(Press(attempt.job.id))
                self._signal(signal.SIGTERM if is_asked else signal.SIGKILL)

    def let_go(self) -> bool:
        """Note that the body has ended; False: let no other run here."""
        with self._lock:
            self.attempt = None
        return self.is_alive

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to what it started."""
        # Once it is reaped, its number may be another's.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def end(self) -> None:
        """Let it end by itself, if it is well; then kill what is left of its group."""
        self._sock.close()
        if not self._is_spoilt:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._wait_unreaped(END_S)
        self.kill()

    def kill(self) -> None:
        """End it, and what it started."""
        with self._lock:
            self._signal(signal.SIGKILL)
        # One that the kernel cannot end yet must not hold up the others.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        # A thread that still reads sees the end of the process; the socket is its own to close.
        if self.attempt is None:
            self._sock.close()
            for pipe in self._pipes:
                pipe.close()


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Start a process whose signals wait until it has handlers for them: the mask goes over to it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _show(stream: Literal["stdout", "stderr"], text: str) -> None:
    """Write where the worker's own lines go."""
    token = CURRENT.set(None)
    try:
        with contextlib.suppress(OSError, ValueError):
            (sys.stdout if stream == "stdout" else sys.stderr).write(text)
    finally:
        CURRENT.reset(token)
