"""A fleet: several servers on one PostgreSQL, each with a port and a role that it keeps when it is restarted."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from tests.cluster import free_port
from tests.databases import connected, opened
from tests.proofs import witness
from tests.proofs.processes import PATIENCE_S, ServerProcess, server_arguments, start
from windlass.db.migrate import migrate

RENEWAL_S, FAST_RENEWAL_S = 2.0, 0.6
FAST = {
    "WINDLASS_DUTIES_LEASE_SECONDS": "2",
    "WINDLASS_DUTIES_HEARTBEAT_SECONDS": "0.6",
    "WINDLASS_DUTIES_STANDBY_SECONDS": "0.3",
}
"""Settings under which a duty changes hands in about two seconds; renewals as often as above."""


class Member:
    """One server of a fleet: its role in the database, its port, and its process of the moment."""

    def __init__(self, role: str, database_url: str, settings: Mapping[str, str]) -> None:
        self.role = role
        self.database_url = witness.url_of(database_url, role)
        self.url = ""
        self.process: ServerProcess
        self.processes: list[ServerProcess] = []
        self._settings = settings

    async def start(self) -> None:
        """Start it, at the port it had before; return when it serves."""
        port = urlsplit(self.url).port or free_port()
        self.process = await start(*server_arguments(self.database_url, port=port), settings=self._settings)
        self.processes.append(self.process)
        self.url = await self.process.serving()

    async def kill(self) -> None:
        """End it as a machine does that loses power: it says nothing to anybody."""
        self.process.send(signal.SIGKILL)
        await self.process.ended()


class Fleet:
    """The servers of one installation."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members

    @property
    def urls(self) -> list[str]:
        """Where the servers are, in order."""
        return [member.url for member in self.members]

    def by_pid(self, pid: int | None) -> Member | None:
        """Return the server whose process this is; None if it is nobody's any more."""
        return next((member for member in self.members if member.process.pid == pid), None)

    async def holders(self) -> dict[str, int | None]:
        """Return the process that does each duty, as a server tells it; None where nobody does."""
        async with httpx2.AsyncClient(base_url=self.members[-1].url, timeout=PATIENCE_S) as client:
            told = (await client.get("/api/v1/duties")).raise_for_status().json()
        return {duty["name"]: witness.pid_of(duty["held_by"]) for duty in told["duties"]}

    def write(self, log: Path) -> None:
        """Write down all that the servers have said."""
        said = [f"{m.role} {p.pid}: {line}" for m in self.members for p in m.processes for line in p.lines]
        log.write_text("\n".join(said) + "\n", encoding="utf-8")


async def prepared(database_url: str, *, roles: list[str]) -> None:
    """Migrate the database and set the witness up in it."""
    async with opened(database_url) as db:
        await migrate(db)
    async with connected(database_url) as connection:
        await witness.install(connection, roles)


@asynccontextmanager
async def running(
    database_url: str,
    *,
    count: int = 2,
    settings: Mapping[str, str] | None = None,
    per_role: Mapping[str, Mapping[str, str]] | None = None,
    log: Path | None = None,
) -> AsyncIterator[Fleet]:
    """Run servers on an empty database for a block, with the witness in it; all processes are gone when it ends.

    What they said is then written to `log`.
    """
    roles = [f"server_{number}" for number in range(1, count + 1)]
    await prepared(database_url, roles=roles)
    fleet = Fleet([])
    try:
        fleet.members += [
            Member(role, database_url, {**(settings or {}), **(per_role or {}).get(role, {})}) for role in roles
        ]
        await asyncio.gather(*(member.start() for member in fleet.members))
        yield fleet
    finally:
        for process in (process for member in fleet.members for process in member.processes):
            await process.close()
        if log is not None:
            fleet.write(log)
