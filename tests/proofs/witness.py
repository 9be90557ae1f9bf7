"""The witness: who held which duty when, and who acted for it, written down inside the database by triggers.

It does not depend on what servers say of themselves. Its tables are in witness.sql; servers are told apart by the role
that each connects as.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import asyncpg
import msgspec

from windlass.queue.duties import Metadata

Connection: TypeAlias = "asyncpg.Connection[Any]"

SETUP = Path(__file__).with_suffix(".sql")
FREQUENT = ("promote", "rescue", "deadlines")
"""Duties that look every half second, so that their next run tells when somebody acts; others keep a longer pace."""

LEADERS = "SELECT name, held_by, holder, term, metadata FROM windlass.leaders ORDER BY name"
# Acts of a server that did not have the duty. On a busy machine a statement may run a moment after it was sent, so half
# a second after the lease ended, or another server took it, is let pass; a woken holder is judged without that.
OUTSIDE = """
SELECT a.duty, a.role, a.at, last.role AS holder_role, last.term, last.expires_at
  FROM proof.act a CROSS JOIN LATERAL (
       SELECT * FROM proof.lease l WHERE l.duty = a.duty AND l.at <= a.at ORDER BY l.id DESC LIMIT 1) last
 WHERE NOT EXISTS (
       SELECT 1 FROM proof.lease l
        WHERE l.duty = a.duty AND l.role = a.role AND l.holder IS NOT NULL AND l.at <= a.at
          AND l.expires_at > a.at - interval '500 milliseconds'
          AND NOT EXISTS (SELECT 1 FROM proof.lease n
                           WHERE n.duty = l.duty AND n.id > l.id AND n.at <= a.at - interval '500 milliseconds'
                             AND (n.role <> l.role OR n.holder IS NULL)))
"""
# A term that does not rise where the holder changes, or falls, or has two holders.
FALLEN = """
SELECT duty, term, before, holder, holder_before FROM (
       SELECT duty, term, holder, lag(term) OVER w AS before, lag(holder) OVER w AS holder_before
         FROM proof.lease WINDOW w AS (PARTITION BY duty ORDER BY id)) x
 WHERE term < before OR (term = before AND holder IS DISTINCT FROM holder_before AND holder IS NOT NULL)
"""


class Leader(msgspec.Struct, frozen=True):
    """A duty as it stands: the server that has it (None: free), its holder and term, and when it last ran."""

    name: str
    held_by: str | None
    holder: UUID | None
    term: int
    last_run_at: datetime | None

    @property
    def pid(self) -> int | None:
        """The process that has the duty."""
        return pid_of(self.held_by)


def pid_of(server: str | None) -> int | None:
    """Return the process that a server's name tells; None of nobody."""
    return None if server is None else int(server.rpartition("_")[2])


async def install(connection: Connection, roles: list[str]) -> None:
    """Set the witness up in a migrated database, with a role for each server."""
    for role in roles:
        with suppress(asyncpg.DuplicateObjectError):  # roles belong to the cluster, and another database of it has them
            await connection.execute(f'CREATE ROLE "{role}" SUPERUSER LOGIN')
    await connection.execute(SETUP.read_text(encoding="utf-8"))


def url_of(url: str, role: str) -> str:
    """Return the URL of the same database for another role."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))


async def leaders(connection: Connection) -> dict[str, Leader]:
    """Return every duty by name."""
    found = {}
    for row in await connection.fetch(LEADERS):
        metadata = msgspec.json.decode(row["metadata"], type=Metadata)
        found[row["name"]] = Leader(row["name"], row["held_by"], row["holder"], row["term"], metadata.last_run_at)
    return found


async def now(connection: Connection) -> datetime:
    """Return the instant by the database's clock."""
    instant: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return instant
