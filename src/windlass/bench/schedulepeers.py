"""The peers of `windlass bench schedules`: how long they take to hand over schedules due in the same second."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass.bench.scratch import scratch
from windlass.bench.wholepeers import Peer, installed, redis_server
from windlass.bench.wholeplay import STAGE, playing
from windlass.errors import SetupError

HERD_S = 900.0
PEERS = (
    Peer(
        name="APScheduler, SQL job store",
        script="run_apscheduler.py",
        requires=("apscheduler==3.11.3", "sqlalchemy", "psycopg[binary]"),
        store="postgres",
        workers=1,
        note="one-time jobs on PostgreSQL, 20 threads; until the last body began",
    ),
    Peer(
        name="Celery beat on Redis",
        script="run_beat.py",
        requires=("celery[redis]==5.7.0", "hiredis"),
        store="redis",
        workers=1,
        note="crontab entries of one minute; until the last message was in Redis",
    ),
)


async def herd_s(peer: Peer, count: int, *, postgres: str) -> float:
    """Return in how many seconds the peer handed over `count` schedules due at once; SetupError if it cannot."""
    python = await installed(peer)
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        async with _store(peer, postgres, folder) as url:
            command = [python, str(STAGE / peer.script), url, str(count)]
            async with playing(command, name=peer.name, folder=folder) as player:
                said = json.loads(await player.line(within_s=HERD_S))
                return float(said["seconds"])


@asynccontextmanager
async def _store(peer: Peer, postgres: str, folder: str) -> AsyncIterator[str]:
    if peer.store == "postgres":
        async with scratch(postgres) as url:
            yield url
    elif peer.store == "redis":
        async with redis_server(folder) as (url, _):
            yield url
    else:
        raise SetupError(f"{peer.name} has no place for its store here.")
