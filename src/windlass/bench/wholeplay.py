"""Players: the processes that submit, work and watch in `windlass bench whole`, as seen by who conducts them.

Each says `ready` when it is loaded and connected, waits for the word, and then does its part (peers/stage.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from windlass.errors import SetupError

STAGE = Path(__file__).parent / "peers"
START_S = 120.0
STOP_S = 30.0
KEPT_LINES = 20
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PGPASSWORD", "PGPASSFILE", "PGSSLMODE")


class Player:
    """A process that was started, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self._process = process
        self._name = name
        self._said: deque[str] = deque(maxlen=KEPT_LINES)
        assert process.stderr is not None
        # Who does not read on lets the process wait for room in the pipe.
        self._reading = asyncio.create_task(self._read_on(process.stderr))

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    async def ready(self) -> None:
        """Wait until it is ready; SetupError, with what it said, if it ends before."""
        if await self.line(within_s=START_S) != "ready":
            raise SetupError(f"{self._name} did not become ready: {self.complaint()}")

    def go(self) -> None:
        """Give the word."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def line(self, *, within_s: float) -> str:
        """Return the next line it says; SetupError if it ends, or says nothing for so long."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(within_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise SetupError(f"{self._name} said nothing for {within_s:g} s: {self.complaint()}") from None
        if not line:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._reading
            raise SetupError(f"{self._name} ended: {self.complaint()}")
        return line.decode().strip()

    async def finished(self, *, within_s: float) -> None:
        """Wait until it has ended well; SetupError if it has not."""
        try:
            async with asyncio.timeout(within_s):
                code = await self._process.wait()
                await self._reading
        except TimeoutError:
            raise SetupError(f"{self._name} has not ended within {within_s:g} s.") from None
        if code != 0:
            raise SetupError(f"{self._name} ended with {code}: {self.complaint()}")

    def complaint(self) -> str:
        """Return the last line it wrote to stderr."""
        return next((line for line in reversed(self._said) if line), "it said nothing")

    async def stop(self) -> None:
        """End it and what it started, gently first."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._reading

    async def _read_on(self, stderr: asyncio.StreamReader) -> None:
        async for line in stderr:
            self._said.append(line.decode(errors="replace").strip())


@asynccontextmanager
async def playing(command: Sequence[str], *, name: str, folder: str, ours: bool = False) -> AsyncIterator[Player]:
    """Start a process in `folder`, with none of our settings; it is ended with the block. `ours`: it imports us."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment(ours=ours),
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=2**24,
    )
    player = Player(process, name)
    try:
        yield player
    finally:
        await player.stop()


def environment(*, ours: bool) -> dict[str, str]:
    """Return the variables of a player: as few as it needs."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    if ours:
        kept["PYTHONPATH"] = os.pathsep.join(str(Path(place).resolve()) for place in sys.path if place)
    return kept
