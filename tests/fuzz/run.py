"""Run schemathesis against a real server: its own document says what to send and what may come back.

The server is a process of its own with keys required, schemathesis another one (schemathesis.toml, hooks.py). How many
requests there were is what the server has counted, not what was meant to be sent.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import msgspec

from tests.fuzz.hooks import OWN_KEY
from tests.fuzz.loopmeter import WORD, Measured
from tests.proofs.processes import ServerProcess, environment, server_arguments, started
from windlass.queue.keys import key_id_of, make_token

PHASES = ("examples", "coverage", "fuzzing", "stateful")
_COMMAND = "from schemathesis.cli import schemathesis; schemathesis()"
_COUNTED = re.compile(r'^windlass_http_requests_total\{.*status="(\d+)"\} (\S+)$', re.MULTILINE)
_FAULT = re.compile(r"request\.failed|Traceback|task exception|error +log\.other", re.IGNORECASE)
_ROOT = Path(__file__).parent.parent.parent


class Round(msgspec.Struct, frozen=True):
    """What one run of schemathesis came to."""

    passed: bool
    said: str


class Target:
    """A server to be called."""

    def __init__(self, process: ServerProcess, url: str, *, token: str, folder: Path) -> None:
        self.process = process
        self.url = url
        self.token = token
        self._folder = folder

    async def fuzz(self, phases: Sequence[str], *, examples: int, seed: int | None = None) -> Round:
        """Call every operation with up to so many examples each in the phases that make them up.

        Without a seed every run does the same.
        """
        how = ["--generation-deterministic"] if seed is None else ["--seed", str(seed), "--generation-database", "none"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _COMMAND, "--config-file", str(Path(__file__).parent / "schemathesis.toml"), "run"),
            *(f"{self.url}/openapi.json", "--header", f"Authorization: Bearer {self.token}"),
            *("--phases", ",".join(phases), "--max-examples", str(examples), "--no-color", "--no-shrink", *how),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            cwd=self._folder,
            env=environment({OWN_KEY: key_id_of(self.token) or ""}) | {"PYTHONPATH": _search_path()},
        )
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Round(process.returncode == 0, said.decode(errors="replace"))

    @property
    def address(self) -> tuple[str, int]:
        """Its host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    async def measured(self) -> Measured:
        """Return what its loop was measured by since this was asked before; only of a measured one."""
        since = len(self.process.lines)
        self.process.send(signal.SIGUSR1)
        found = await self.process.said(f"^{WORD}(.*)$", since=since)
        return msgspec.json.decode(found[1], type=Measured)

    async def answered(self) -> Counter[int]:
        """Return how many requests the server has answered, by status."""
        async with httpx2.AsyncClient(
            verify=False, headers={"Authorization": f"Bearer {self.token}"}, timeout=30
        ) as client:
            page = await client.get(f"{self.url}/metrics")
        counts: Counter[int] = Counter()
        for status, count in _COUNTED.findall(page.text):
            counts[int(status)] += int(float(count))
        return counts


@asynccontextmanager
async def target(database_url: str, folder: Path, *, measured: bool = False) -> AsyncIterator[Target]:
    """Give a server on this database, for a block; `folder` is for what it and schemathesis leave.

    A measured one tells how long its event loop was held (loopmeter.py).
    """
    token = make_token()
    settings = {"WINDLASS_SECURITY_BOOTSTRAP_KEY": token, "WINDLASS_SECURITY_KEYS_REQUIRED": "true"}
    module = "windlass"
    if measured:
        module, settings["PYTHONPATH"] = "tests.fuzz.loopmeter", _search_path()
    async with started(*server_arguments(database_url), settings=settings, cwd=folder, module=module) as process:
        yield Target(process, await process.serving(), token=token, folder=folder)


def faults(server: ServerProcess) -> list[str]:
    """Return the lines in which the server tells of a fault of its own."""
    return [line for line in server.lines if _FAULT.search(line)]


def _search_path() -> str:
    return os.pathsep.join([str(_ROOT), str(_ROOT / "src")])
