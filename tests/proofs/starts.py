"""Starts: several servers start at once on an empty PostgreSQL, many times; one sets it up, all of them serve.

python -m tests.proofs starts [--faults 20]
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from urllib.parse import urlsplit, urlunsplit

from tests.databases import connected
from tests.proofs.processes import ProcessEnded, ServerProcess, server_arguments, started
from tests.proofs.verdict import Line

SERVERS = 5


async def prove(url: str, *, rounds: int = 20) -> list[Line]:
    """Start the servers so many times, each time on a new database; return what was found."""
    failed: list[str] = []
    for number in range(1, rounds + 1):
        async with connected(url) as connection:
            await connection.execute(f'CREATE DATABASE "starts_{number}"')
        ended = await start_together(urlunsplit(urlsplit(url)._replace(path=f"/starts_{number}")))
        print(f"{number:3}. {SERVERS - len(ended)} of {SERVERS} serve", flush=True)
        failed += [f"start {number}: {said}" for said in ended]
    return [Line("starts on an empty database", f"{rounds * SERVERS} starts, {len(failed)} failed", failed)]


async def start_together(database_url: str, *, count: int = SERVERS) -> list[str]:
    """Start servers at once; return the last line of each that does not serve."""
    async with AsyncExitStack() as stack:
        servers = await asyncio.gather(
            *(stack.enter_async_context(started(*server_arguments(database_url))) for _ in range(count))
        )
        return [said for said in await asyncio.gather(*map(_refusal, servers)) if said]


async def _refusal(server: ServerProcess) -> str | None:
    try:
        await server.serving()
    except ProcessEnded:
        return server.lines[-1]
    return None
