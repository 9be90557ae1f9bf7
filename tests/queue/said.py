"""What applications say in transactions of their own, for tests: by the functions on PostgreSQL, by rows on SQLite."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from tests.clock import START
from tests.sqltext import parse
from windlass.config import Settings
from windlass.db import Database, Statements
from windlass.engine.duty import Ran
from windlass.engine.looks import Looks
from windlass.engine.relay import Relay
from windlass.errors import WindlassError
from windlass.ids import Ids
from windlass.queue.lanes import Lanes
from windlass.queue.moves import Moved
from windlass.queue.newjob import NewJob
from windlass.queue.submit import Submitted

IDS = Ids(lambda: START)
"""As an application makes them whose clock is that of the tests."""

SAY = parse(
    """
-- name: enqueue
-- Say that a job is wanted.
-- hot: it writes.
-- postgres
SELECT windlass.enqueue(CAST(:task AS text), CAST(:payload AS json), CAST(:options AS jsonb)) AS id
 WHERE CAST(:id AS uuid) IS NOT NULL
-- sqlite
INSERT INTO outbox (id, task, payload, options) VALUES (:id, :task, :payload, :options) RETURNING id

-- name: row
-- Write a row past the function, as only the owner of the schema can.
-- both
INSERT INTO outbox (id, task, payload, options) VALUES (:id, :task, :payload, :options)

-- name: raw
-- Write a row as another program may, past all checks.
-- postgres
INSERT INTO outbox (id, kind, task, payload) VALUES (CAST(CAST(:name AS text) AS uuid), :kind, :task, :payload)
-- sqlite
INSERT INTO outbox (id, kind, task, payload) VALUES (:name, :kind, :task, CAST(CAST(:payload AS BLOB) AS TEXT))

-- name: finish
-- Say that the task of a lease is done.
-- hot: it writes.
-- postgres
SELECT windlass.finish(CAST(:id AS uuid), CAST(:fence AS int), CAST(:result AS json)) AS nothing
-- sqlite
UPDATE queue SET place = 3, flags = flags & ~2, deadline_at = NULL, start_by = NULL
 WHERE id = :id AND fence = :fence AND place = 1;
INSERT INTO outbox (id, kind, task, payload, fence) VALUES (:id, 'finish', '', :result, :fence)

-- name: left
-- What stands in the outbox.
-- both
SELECT CAST(id AS text) AS name, error FROM outbox ORDER BY id
""",
    origin="said.py",
)


async def enqueue(db: Statements, task: str = "mail", payload: str | None = None, **options: Any) -> UUID:
    """Say that a job is wanted, and return the id it will have."""
    text = msgspec.json.encode(options).decode()
    [row] = await db.fetch(SAY["enqueue"], id=IDS.new(), task=task, payload=payload, options=text)
    job_id: UUID = row["id"]
    return job_id


async def put(
    db: Statements, row_id: UUID, *, task: str = "mail", payload: str | None = None, options: str = "{}"
) -> None:
    """Write a row as it is."""
    await db.fetch(SAY["row"], id=row_id, task=task, payload=payload, options=options)


async def write(
    db: Database, name: str, *, kind: str = "enqueue", task: str = "mail", payload: str | bytes | None = None
) -> None:
    """Write a row into a SQLite file as another program may, past all checks."""
    await db.run("PRAGMA ignore_check_constraints = ON;")
    await db.fetch(SAY["raw"], name=name, kind=kind, task=task, payload=payload)
    await db.run("PRAGMA ignore_check_constraints = OFF;")


async def finish(db: Statements, job_id: UUID, fence: int, *, result: str | None = None) -> None:
    """Say that the task of a lease is done."""
    await db.fetch(SAY["finish"], id=job_id, fence=fence, result=result)


async def left(db: Statements) -> list[tuple[str, str]]:
    """Return what stands in the outbox: ids as they are written, and the errors of what was set aside."""
    return [(row["name"], row["error"] or "") for row in await db.fetch(SAY["left"])]


class Told:
    """Hears what a relay tells."""

    def __init__(self) -> None:
        self.lanes: list[int] = []
        self.freed_lanes: list[int] = []
        self.ends: list[UUID] = []
        self.stored: list[Submitted] = []
        self.moved: list[Moved] = []

    def ready(self, lane: int, rank: int) -> None:
        """A job can be claimed."""
        self.lanes.append(lane)

    def freed(self, lane: int) -> None:
        """A lease has ended."""
        self.freed_lanes.append(lane)

    def ended(self, job_id: UUID) -> None:
        """A job has ended."""
        self.ends.append(job_id)

    def session(self, session: UUID) -> None:
        """A session has lost a lease: nobody waits for it here."""

    def duties(self) -> None:
        """A duty was given up."""

    async def ended_leases(self, moves: Sequence[Moved]) -> None:
        """Leases were ended."""
        self.moved += moves

    def submitted(
        self, requests: Sequence[Sequence[NewJob]], answers: Sequence[list[Submitted] | WindlassError]
    ) -> None:
        """Jobs were stored."""
        self.stored += [job for answer in answers if not isinstance(answer, WindlassError) for job in answer]


async def as_they_are(jobs: Sequence[NewJob]) -> list[NewJob]:
    """Return jobs as they are asked for: nothing is known of their tasks."""
    return list(jobs)


def relay_of(told: Told | None = None, *, settings: Settings | None = None) -> Relay:
    """Return a relay of its own."""
    told = told or Told()
    looks = Looks(period_s=0.5, monotonic=time.monotonic)
    usual = settings or Settings()
    return Relay(Lanes(), usual, looks, wake=told, fill=as_they_are, stored=told.submitted, ended=told.ended_leases)


async def relay(db: Database, told: Told | None = None, *, settings: Settings | None = None, most: int = 500) -> Ran:
    """Let a relay of its own do one batch."""
    return await relay_of(told, settings=settings).run(db, most)
