"""A standby that a connection was sent to after its primary broke: it has not seen everything, so it says nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import cluster
from tests.databases import connected
from windlass.db.postgres import STATUS
from windlass.db.sqlfile import TRANSACTION


@pytest.fixture
def standby() -> Iterator[tuple[str, str]]:
    """The URL of a server in recovery, and the number of a transaction that it has replayed."""
    binaries = cluster.find()
    if binaries is None:
        pytest.skip("no binaries on this machine to run a second PostgreSQL with")
    with cluster.running(binaries) as running:
        xid = asyncio.run(committed(running.url))
        running.stop()
        data = next(
            folder for folder in (running.folder, *running.folder.iterdir()) if (folder / "PG_VERSION").exists()
        )
        mark(data / "standby.signal", data)
        running.start()
        yield running.url, xid


async def committed(url: str) -> str:
    """Commit a transaction and return its number."""
    async with connected(url) as connection, connection.transaction():
        await connection.execute("CREATE TABLE made ()")
        name: str = await connection.fetchval(f"SELECT {TRANSACTION}")
        return name.split()[0]


def mark(file: Path, like: Path) -> None:
    """Make an empty file that belongs to the owner of another."""
    file.touch()
    if os.getuid() == 0:
        os.chown(file, like.stat().st_uid, like.stat().st_gid)


async def test_rel_x25_a_standby_does_not_say_what_became_of_a_commit(standby: tuple[str, str]) -> None:
    """Neither of a transaction that it has replayed nor of one that is still to come does it say anything."""
    url, replayed = standby
    async with connected(url) as connection:
        assert await connection.fetchval("SELECT pg_is_in_recovery()")
        for xid in (replayed, str(int(replayed) + 1_000_000)):
            row = await connection.fetchrow(STATUS, xid)
            assert row is not None
            assert (None, None) == (row["status"], row["era"])
