"""Idle: how many statements servers without work ask of the database, by pg_stat_statements.

    python -m tests.proofs idle

One, two and five servers, each time on a new database; BEGIN, COMMIT and SET are not counted. Measured is also how
long after the start every duty has a holder and no server more than its share.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.cluster import Cluster
from tests.databases import connected
from tests.proofs.processes import server_arguments, started
from tests.proofs.verdict import Line

COUNTS = (1, 2, 5)
MEASURED_S = 30.0
SHARED_S = 15.0
MOST_OF_ONE, MOST_OF_FURTHER = 8.0, 2.0
SHOWN = 12

ASKED = """
SELECT sum(calls) AS calls, left(regexp_replace(min(query), '\\s+', ' ', 'g'), 100) AS query
  FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
 WHERE d.datname = current_database() AND query !~* '^(begin|commit|rollback|set)'
   AND query NOT LIKE '%pg_stat_statements%' AND query NOT LIKE '%pg_sleep%'
 GROUP BY queryid ORDER BY 1 DESC
"""
HELD = "SELECT holder, count(*) FILTER (WHERE expires_at > now()) AS held FROM windlass.duty GROUP BY holder"


async def prove(cluster: Cluster) -> list[Line]:
    """Measure; return what was found."""
    async with connected(cluster.url) as connection:
        await connection.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
    cluster.stop()
    cluster.start()
    rates, lines = {}, []
    print("servers   statements/s   shared after")
    for count in COUNTS:
        url = urlunsplit(urlsplit(cluster.url)._replace(path=f"/idle_{count}"))
        async with connected(cluster.url) as connection:
            await connection.execute(f"CREATE DATABASE idle_{count}")
        shared_s, asked = await measured(url, count)
        rates[count] = sum(calls for calls, _ in asked) / MEASURED_S
        print(f"{count:7}   {rates[count]:12.1f}   {shared_s:10.1f} s")
        for calls, query in asked[:SHOWN]:
            print(f"          {calls / MEASURED_S:12.2f}   {query}")
        late = [f"{shared_s:.1f} s"] if shared_s > SHARED_S else []
        lines.append(Line(f"{count} servers share", f"after {shared_s:.1f} s of {SHARED_S:g} s", late))
    for count, rate in rates.items():
        most = MOST_OF_ONE + (count - 1) * MOST_OF_FURTHER
        lines.append(Line(f"{count} servers idle", f"{rate:.1f} of {most:g}/s", [f"{rate:.1f}/s"] * (rate > most)))
    return lines


async def measured(url: str, count: int) -> tuple[float, list[tuple[int, str]]]:
    """Return after how many seconds the duties were shared, and what was then asked how often."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(started(*server_arguments(url))) for _ in range(count)]
        await asyncio.gather(*(server.serving() for server in servers))
        connection = await stack.enter_async_context(connected(url))
        began_s = time.monotonic()
        shared_s = math.inf
        while shared_s == math.inf:
            await connection.execute("SELECT pg_sleep(0.1)")
            if await is_shared(connection, count):
                shared_s = time.monotonic() - began_s
        await connection.execute("CREATE EXTENSION pg_stat_statements")
        await connection.execute(f"SELECT pg_sleep({max(SHARED_S - shared_s, 0)})")
        await connection.execute("SELECT pg_stat_statements_reset()")
        await connection.execute(f"SELECT pg_sleep({MEASURED_S})")
        return shared_s, [(int(row["calls"]), row["query"]) for row in await connection.fetch(ASKED)]


async def is_shared(connection: Any, count: int) -> bool:
    """Say whether every duty has a holder and nobody more than its share."""
    held = [int(row["held"]) for row in await connection.fetch(HELD)]
    total = int(await connection.fetchval("SELECT count(*) FROM windlass.duty"))
    return sum(held) == total > 20 and max(held) <= math.ceil(total / count)
