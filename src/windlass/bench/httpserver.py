"""The server under test: a process of its own with default settings, and what it takes of the machine.

The process gets none of our settings: no WINDLASS_ variable, no file, an empty folder to run in.
CPU and memory are read from /proc, so these figures exist on Linux only.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from windlass.errors import SetupError

START_S = 60.0
STOP_S = 20.0
KEPT_LINES = 20
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PGPASSWORD", "PGPASSFILE", "PGSSLMODE")
_ADDRESS = re.compile(r"serves http://127\.0\.0\.1:(\d+) ")


class Served:
    """A server that listens, seen from outside."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    def cpu_s(self) -> float | None:
        """Return how long it has used a core since it started; None where that cannot be known."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float | None:
        """Return what it has in memory; None where that cannot be known."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except OSError:
            return None
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Costs:
    """What a server's process has used of the CPU for the jobs of some rounds."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._used_s = 0.0
        self._jobs = 0
        self._before_s: float | None = None

    @property
    def us_per_job(self) -> float | None:
        """Microseconds of CPU for one job; None where that cannot be known."""
        return self._used_s / self._jobs * 1e6 if self._jobs else None

    def forget(self) -> None:
        """Start anew."""
        self._used_s, self._jobs = 0.0, 0

    def begin(self) -> None:
        """Note that a round begins."""
        self._before_s = self._served.cpu_s()

    def end(self, jobs: int) -> None:
        """Note that a round has done so many jobs."""
        now_s = self._served.cpu_s()
        if self._before_s is not None and now_s is not None:
            self._used_s += now_s - self._before_s
            self._jobs += jobs


@asynccontextmanager
async def windlass_server(url: str) -> AsyncIterator[Served]:
    """Run `windlass server` on the database at `url`."""
    command = ("-m", "windlass", "server", "--port", "0", "--log-format", "json")
    # Not as an argument: it may have a password, and those are refused there.
    async with _running(command, WINDLASS_DATABASE_URL=url) as served:
        yield served


@asynccontextmanager
async def bare_server() -> AsyncIterator[Served]:
    """Run the bare endpoint."""
    async with _running(("-m", "windlass.bench.httpbare")) as served:
        yield served


@asynccontextmanager
async def _running(command: Sequence[str], **settings: str) -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=_environment() | settings, cwd=folder, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        said: deque[str] = deque(maxlen=KEPT_LINES)
        reading: asyncio.Task[None] | None = None
        try:
            port = await _address(process.stderr, said)
            # Who does not read on lets the server wait for room in the pipe.
            reading = asyncio.create_task(_read_on(process.stderr, said))
            yield Served(port, process.pid)
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
            if reading is not None:
                await reading


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    path = os.pathsep.join(str(Path(place).resolve()) for place in sys.path if place)
    # How durable the database is stands beside the figures (scratch.py).
    return kept | {"PYTHONPATH": path, "WINDLASS_DATABASE_ALLOW_UNDURABLE": "true"}


async def _address(stderr: asyncio.StreamReader, said: deque[str]) -> int:
    with suppress(TimeoutError):
        async with asyncio.timeout(START_S):
            async for line in stderr:
                said.append(line.decode(errors="replace"))
                if found := _ADDRESS.search(said[-1]):
                    return int(found[1])
    raise SetupError(f"The server did not start; it said: {''.join(said).strip() or 'nothing'}")


async def _read_on(stderr: asyncio.StreamReader, said: deque[str]) -> None:
    async for line in stderr:
        said.append(line.decode(errors="replace"))
