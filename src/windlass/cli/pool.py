"""The workers of `windlass up`: one child process, `windlass worker --scale`, started again when it dies.

It has a session of its own for the terminal, so that Ctrl-C reaches only `up`, which then lets it drain; should `up`
itself be killed, the kernel kills it too: its server is gone. What it prints passes through.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence

FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 30.0
LONG_LIFE_S = 60.0
"""One that lived so long begins its back-off anew."""
LONGEST_LINE = 1 << 20
READY = b" is ready: "
"""What a fleet says when all its workers are there."""
PR_SET_PDEATHSIG = 1
INTERRUPTED = 130

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Pool:
    """The child process, one after the other."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        said: Callable[[str], None],
        passed: Callable[[bytes], None],
        is_reloading: bool = False,
    ) -> None:
        """`said` is told what a person should know, `passed` each line that the child prints."""
        self._arguments = arguments
        self._environment = environment
        self._said = said
        self._passed = passed
        self._is_reloading = is_reloading
        self._process: Process | None = None
        self._stop_count = 0
        self._is_wanted_anew = False
        self._changed = asyncio.Event()
        self.was_ready = False
        """Whether its workers were all there once."""
        self.is_over = False
        """Whether it has ended for good."""

    async def run(self) -> int:
        """Keep the child until it is told to stop; return its exit code, also if the first never got ready."""
        try:
            return await self._keep()
        finally:
            self.is_over = True

    async def _keep(self) -> int:
        loop = asyncio.get_running_loop()
        backoff_s = FIRST_BACKOFF_S
        while True:
            self._is_wanted_anew = False
            self._changed.clear()
            began_at = loop.time()
            code, is_ready = await self._live()
            if self._is_told_to_stop() and code in (-signal.SIGTERM, -signal.SIGINT):
                # It came before the child could hear it: there was nothing to lose yet.
                return INTERRUPTED if self._is_to_be_killed() else 0
            if self._is_told_to_stop() or not (self.was_ready or self._is_reloading):
                return code
            if self._is_wanted_anew:
                continue
            if self._is_reloading and not is_ready:
                self._said("The workers cannot start. Save a correction, and they are started again.")
                await self._changed.wait()
            else:
                backoff_s = FIRST_BACKOFF_S if loop.time() - began_at > LONG_LIFE_S else backoff_s
                self._said(f"The workers ended by themselves (exit code {code}); again in {backoff_s:g} s.")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), backoff_s)
                backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)
            if self._is_told_to_stop():
                return 0

    def stop(self) -> None:
        """Let it drain; said again, give everything back now; a third time, kill."""
        # Two of the same signal may be heard as one.
        number = signal.SIGINT if self._is_told_to_stop() else signal.SIGTERM
        self._stop_count += 1
        self._changed.set()
        self._tell(number)

    def renew(self) -> None:
        """Let it drain and start another, which imports the code as it is now."""
        self._is_wanted_anew = True
        self._changed.set()
        self._tell()

    def _is_told_to_stop(self) -> bool:
        return self._stop_count > 0

    def _is_to_be_killed(self) -> bool:
        return self._stop_count > 2

    def _tell(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _live(self) -> tuple[int, bool]:
        self._process = process = await asyncio.create_subprocess_exec(
            *self._arguments,
            env=dict(self._environment),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            limit=LONGEST_LINE,
            start_new_session=True,
            preexec_fn=with_parent(signal.SIGKILL),
        )
        if self._is_told_to_stop() or self._is_wanted_anew:  # said while it was being started
            self._tell()
        is_ready = False
        assert process.stdout is not None
        async for line in process.stdout:
            if not is_ready and READY in line:
                is_ready = self.was_ready = True
            self._passed(line)
        return await process.wait(), is_ready


def with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return what has the kernel send this to a process when its parent dies; for between fork and exec."""

    def ask() -> None:
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, number)

    return ask
