"""A tenant that has something everywhere, for tests of erasure: one word stands in each of its texts."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.queue.planned import MINUTELY, made
from tests.queue.steps import Steps
from windlass.db import Database, Query
from windlass.db.sqlfile import TABLES
from windlass.db.sqlite import SqliteDatabase
from windlass.queue import audit, backfills, checkpoints, control, deadletters, firing, keys, logs, stats, tasks
from windlass.queue.claim import Claimed
from windlass.queue.control import Actor
from windlass.queue.lanes import LaneName

WORD = "n0nce"
SAID = Actor(f"{WORD}-key", f"because of {WORD}")
VIEWS = frozenset(
    (
        "attempts job_aliases job_events jobs jobs_dead jobs_done jobs_queued jobs_timed leaders workers "
        "schedule_history"
    ).split()
)
FIELDS: dict[str, Any] = {
    "queue": f"{WORD}-queue",
    "payload": f'{{"to": "{WORD}"}}',
    "headers": f'{{"trace": "{WORD}"}}',
    "tags": (WORD,),
    "labels": (f"{WORD}-label",),
}
OUTBOX = "INSERT INTO outbox (id, tenant, task, payload) VALUES (:id, :tenant, :task, :payload)"


async def jobs_of(steps: Steps, tenant: str, worker: str) -> dict[str, UUID]:
    """Bring jobs of a tenant into every place, each with a log, a checkpoint and errors where it can have them."""
    found: dict[str, UUID] = {}
    told: dict[str, Any] = {
        "host": WORD,
        "version": WORD,
        "build": WORD,
        "region": WORD,
        "labels": WORD,
        "tasks": WORD,
        "queues": WORD,
    }
    ann = await steps.worker(worker, tenant=tenant, **told)
    found["queued"] = await steps.submit_one(f"{WORD}-task", tenant=tenant, **FIELDS)
    found["timed"] = await steps.submit_one(
        "other", tenant=tenant, delay_ms=10**8, idempotency_key=f"{WORD}-1", unique_key=f"{WORD}-2", **FIELDS
    )
    for end in ("leased", "succeeded", "retry", "dead", "cancelled", "purged"):
        lease = await _leased(steps, ann, end, tenant)
        found[end] = lease.id
        if end == "succeeded":
            await steps.complete(lease, result=f'"{WORD}"', metrics=f'{{"{WORD}": 1}}')
        elif end in ("retry", "dead", "purged"):
            fields = {"error_type": f"{WORD}Error", "traceback": WORD, "retryable": end == "retry"}
            await steps.fail(lease, WORD, **fields)
        elif end == "cancelled":
            await control.cancel(steps.db, [lease.id], tenant=tenant, actor=SAID, grace_ms=0, margin_ms=0)
            await steps.release(lease)
    await deadletters.purge(steps.db, [found.pop("purged")], tenant=tenant)
    return found


async def _leased(steps: Steps, worker: Any, task: str, tenant: str) -> Claimed:
    await steps.submit_one(task, tenant=tenant, **FIELDS)
    label = FIELDS["labels"][0]
    lease = await steps.claim_one(worker, tasks=[task], queue=FIELDS["queue"], tenant=tenant, labels=label)
    named = steps.named(lease)
    await checkpoints.keep(steps.db, [checkpoints.Note(**named, progress=f'"{WORD}"', checkpoint=f'"{WORD}"')])
    await logs.keep(steps.db, [logs.Chunk(**named, seq=0, lines=[logs.Line(steps.clock.now(), WORD)])])
    return lease


def files_with(db: Database, word: str) -> list[str]:
    """Return which files of a SQLite database have these bytes anywhere."""
    assert isinstance(db, SqliteDatabase)
    files = [Path(f"{db.path}{end}") for end in ("", "-wal", "-shm")]
    return [file.name for file in files if word.encode() in file.read_bytes()]


async def everything_of(steps: Steps, tenant: str) -> dict[str, UUID]:
    """Give a tenant something of each kind; return its jobs by how they ended."""
    db = steps.db
    found = await jobs_of(steps, tenant, f"{WORD}-worker")
    schedule = await made(steps, f"{WORD}-plan", tenant=tenant, task="t", trigger=MINUTELY, payload=f'"{WORD}"')
    steps.clock.advance(minutes=3)
    await firing.fire(db, steps.lanes, steps.ids)
    since, until = steps.clock.now() - timedelta(minutes=10), steps.clock.now()
    await backfills.start(db, steps.ids, schedule, since=since, until=until, actor=SAID)
    await stats.roll_up(db)
    await control.pause_tenant(db, tenant, actor=SAID)
    await control.pause_queue(db, steps.lanes, LaneName(tenant, FIELDS["queue"]), actor=SAID)
    await control.pause_job(db, found["timed"], tenant=tenant, actor=SAID)
    await tasks.publish(db, tenant, {f"{WORD}-task": f'{{"{WORD}": 1}}'})
    key, _ = await keys.create(db, keys.NewKey(name=WORD, scopes=frozenset({"read"}), tenant=tenant))
    act = audit.Entry(
        action="queue.pause",
        subject=FIELDS["queue"],
        tenant=tenant,
        actor=f"{WORD} ({key.id})",
        request_id=WORD,
        reason=WORD,
        was=f'"{WORD}"',
        became=f'"{WORD}"',
    )
    await audit.record(db, steps.ids, act)
    query = Query("say", "Say that a job is wanted.", OUTBOX, OUTBOX)
    await db.fetch(query, id=steps.ids.new(), tenant=tenant, task=WORD, payload=f'"{WORD}"')
    return found


async def tables_with(db: Database, word: str = WORD) -> set[str]:
    """Return the tables that have the word anywhere, in any column; and `log` if it has any line at all."""
    if isinstance(db, SqliteDatabase):
        with closing(sqlite3.connect(db.path)) as beside:
            lines = [line for line in beside.iterdump() if line.startswith("INSERT INTO") and word in line]
            has_log = beside.execute("SELECT count(*) FROM log").fetchone()[0]
        return {line.split('"')[1] for line in lines} | ({"log"} if has_log else set())
    found = set()
    for table in TABLES - VIEWS:
        text = f"SELECT count(*) AS found FROM {table} x WHERE CAST(x AS text) LIKE '%{word}%' OR '{table}' = 'log'"
        [row] = await db.fetch(Query(table, "Rows.", text, text))
        found |= {table} if row["found"] else set()
    return found
