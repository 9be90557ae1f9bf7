"""The peers of `windlass bench whole`: each is installed into an environment of its own, once, and kept in a cache.

A peer that cannot be installed, or cannot run here, is shown as not available, with the reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from windlass.bench.scratch import scratch
from windlass.bench.wholeplay import STAGE, START_S, playing
from windlass.bench.wholeside import Script
from windlass.errors import SetupError

INSTALL_S = 600.0
LOOK_S = 0.05
KINDS = ("postgres", "redis", "sqlite")


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another job queue."""

    name: str
    script: str
    requires: tuple[str, ...]
    store: str
    """One of KINDS."""
    workers: int
    share: float = 1.0
    """Of the jobs: a slow one is measured with fewer."""
    analysed: bool = True
    note: str


PEERS = (
    Peer(
        name="PGQueuer",
        script="run_pgqueuer.py",
        requires=("pgqueuer[asyncpg]==1.6.0", "uvloop"),
        store="postgres",
        workers=2,
        note="2 processes, asyncpg, uvloop, batches of 100; log kept, no results",
    ),
    Peer(
        name="PGQueuer, tables never analysed",
        script="run_pgqueuer.py",
        requires=("pgqueuer[asyncpg]==1.6.0", "uvloop"),
        store="postgres",
        workers=2,
        analysed=False,
        note="the same, right after the jobs were submitted to a new database",
    ),
    Peer(
        name="Procrastinate",
        script="run_procrastinate.py",
        requires=("procrastinate==3.10.0", "psycopg[binary,pool]", "uvloop"),
        store="postgres",
        workers=2,
        share=0.1,
        note="2 processes, 20 jobs at once, uvloop; jobs and events kept, no results",
    ),
    Peer(
        name="Celery on Redis",
        script="run_celery.py",
        requires=("celery[redis]==5.7.0", "hiredis"),
        store="redis",
        workers=1,
        share=0.1,
        note="prefork 2, prefetch 128, acknowledged early; results in memory, not on disk",
    ),
    Peer(
        name="Huey on SQLite",
        script="run_huey.py",
        requires=("huey==3.5.4",),
        store="sqlite",
        workers=1,
        share=0.1,
        note="2 processes; results kept, no history",
    ),
)


class PeerSide:
    """A peer that is installed, as a side to be measured."""

    def __init__(self, peer: Peer, python: str, *, postgres: str) -> None:
        self._peer = peer
        self._command = (python, str(STAGE / peer.script))
        self._postgres = postgres

    @property
    def name(self) -> str:
        """As it is shown."""
        return self._peer.name

    @property
    def workers(self) -> int:
        """How many processes are started; Celery and Huey start their two themselves."""
        return self._peer.workers

    @property
    def works_itself(self) -> bool:
        """Peers submit and work in two processes."""
        return False

    @asynccontextmanager
    async def opened(self, folder: str) -> AsyncIterator[Script]:
        """Make a fresh store: a database, a Redis, or a file."""
        if self._peer.store == "postgres":
            async with scratch(self._postgres) as url:
                yield Script(command=self._command, url=url, database=url, analysed=self._peer.analysed)
        elif self._peer.store == "redis":
            async with redis_server(folder) as (url, pid):
                yield Script(command=self._command, url=url, others={"Redis": pid})
        else:
            yield Script(command=self._command, url=f"{folder}/bench.db")


async def installed(peer: Peer) -> str:
    """Return the Python of the peer's environment, made if it is not there; SetupError if that fails."""
    if peer.store == "redis" and shutil.which("redis-server") is None:
        raise SetupError("there is no redis-server on this machine")
    place = cache_folder() / f"{peer.script.removeprefix('run_').removesuffix('.py')}-{_mark(peer)}"
    python = place / "bin" / "python"
    if not (place / "installed").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        await _run([sys.executable, "-m", "venv", str(place)])
        await _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requires])
        (place / "installed").touch()
    return str(python)


def cache_folder() -> Path:
    """Return where environments of peers are kept."""
    kept = os.environ.get("XDG_CACHE_HOME")
    return (Path(kept) if kept else Path.home() / ".cache") / "windlass" / "bench-peers"


def _mark(peer: Peer) -> str:
    return hashlib.sha256(f"{sys.version} {peer.requires}".encode()).hexdigest()[:12]


async def _run(command: Sequence[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(INSTALL_S):
            _, said = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise SetupError(f"not installed within {INSTALL_S:g} s") from None
    if process.returncode != 0:
        lines = [line for line in said.decode(errors="replace").splitlines() if line.startswith("ERROR")]
        raise SetupError(lines[-1] if lines else f"{command[-1]} could not be installed")


@asynccontextmanager
async def redis_server(folder: str) -> AsyncIterator[tuple[str, int]]:
    """Run a Redis of its own that writes nothing to disk; yield its URL and process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    async with playing([*command, "--logfile", "redis.log"], name="redis-server", folder=folder) as player:
        await _listening(int(port))
        yield f"redis://127.0.0.1:{port}/0", player.pid


async def _listening(port: int) -> None:
    async with asyncio.timeout(START_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(LOOK_S)
            else:
                writer.close()
                return
