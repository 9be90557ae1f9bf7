"""A PostgreSQL database with forty thousand rows in every place a job can lie in, for tests of plans.

Twenty lanes of queue `full` hold the backlog; every lane has its share of ready, blocked and leased rows.
Tables are filled at one stroke and autovacuum is off, so nobody has analysed them unless a test does.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from tests.clock import START
from tests.databases import Server, connected, create

COUNT = 40_000
LANES = 20
SESSIONS = 1000
DEAD_SESSIONS = 3
LEASES_PER_SESSION = COUNT // SESSIONS
DUE, PASSED = 3000, 300
STEP_MS = 12_000
"""Between the ids of one kind, so that they lie in two spans."""

READY, BLOCKED, LEASED, TIMED, DONE, SESSION = range(1, 7)

FIGURES = {
    "count": COUNT,
    "lanes": LANES,
    "sessions": SESSIONS,
    "dead_sessions": DEAD_SESSIONS,
    "due": DUE,
    "passed": PASSED,
    "ready": READY,
    "blocked": BLOCKED,
    "leased": LEASED,
    "timed": TIMED,
    "done": DONE,
    "session": SESSION,
    "first_ms": int((START - timedelta(days=1, hours=12)).timestamp() * 1000),
    "step_ms": STEP_MS,
}


def made(kind: int, n: int) -> UUID:
    """Return the id of row `n` of a kind, as the statements above make it."""
    return UUID(f"{FIGURES['first_ms'] + n * STEP_MS:012x}70008000{kind:012x}")


async def copy_filled(server: Server, name: str) -> str:
    """Make a filled database and return its URL; the first test worker to come fills one, all others are copies."""
    template = f"{server.prefix}_filled"
    async with connected(server.url) as connection:
        await connection.execute("SELECT pg_advisory_lock(hashtext($1))", template)
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", template):
            await create(server, "filling")
            await fill(server.url_of("filling"))
            # It gets its name when it is whole.
            await connection.execute(f'ALTER DATABASE "{server.prefix}_filling" RENAME TO "{template}"')
        await connection.execute(f'CREATE DATABASE "{server.prefix}_{name}" TEMPLATE "{template}"')
    return server.url_of(name)


async def fill(url: str) -> None:
    """Fill the migrated, empty database at `url`."""
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    async with connected(url) as connection:
        await connection.execute(f"SET windlass.now = '{START.isoformat()}'")
        await connection.execute(re.sub(r"(?<=[\s(\[,]):([a-z_]+)", lambda match: str(FIGURES[match[1]]), script))


async def analyse(url: str) -> None:
    """Let the planner know what is in the tables."""
    async with connected(url) as connection:
        await connection.execute("ANALYZE")
