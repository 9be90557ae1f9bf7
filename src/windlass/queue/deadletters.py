"""Dead letters, and other ends that are not the last word: retry, replay, purge.

Retry gives a dead, cancelled or expired job another run under its own id: its attempts start again, its fence does
not, and its old end moves to the attempts. Replay makes a new job of a finished one. Purge removes dead jobs for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.db.partitions import make_days
from windlass.errors import Conflict, NotFound, UniqueTaken
from windlass.ids import Ids
from windlass.job import FINAL_STATES, State
from windlass.queue import erasure, following
from windlass.queue.control import Actor, note_events
from windlass.queue.history import Job, get
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob, check_json, validate
from windlass.queue.retry import policy_from_json
from windlass.queue.scheduledits import SQL as EDITS
from windlass.queue.submit import Submitted, store

SQL = load(__file__)


class Retried(msgspec.Struct, frozen=True):
    """A job that runs again, and where it now stands."""

    id: UUID
    lane: int
    rank: int


async def retry(
    db: Statements, ids: Sequence[UUID], *, tenant: str, actor: Actor, payload: str | None = None
) -> list[Retried | Conflict | NotFound]:
    """Run dead, cancelled or expired jobs again, now; answers in order."""
    if payload is not None:
        check_json("payload", payload)
    answers: dict[UUID, Retried | Conflict | NotFound] = {}
    async with db.transaction() as transaction:
        # One that was cancelled while it waited for the run before it is to run now: nothing may let it go once more.
        slots = await transaction.fetch(SQL.ended_slots, ids=sorted(set(ids)))
        await following.forget(transaction, [(row["schedule_id"], row["slot_at"], row["id"]) for row in slots])
        found = await transaction.fetch(SQL.lock_dead, ids=sorted(set(ids)), tenant=tenant)
        found += await transaction.fetch(SQL.lock_done, ids=sorted(set(ids)), tenant=tenant)
        # In the next statement: a rival that erased one while its lock was waited for is seen now.
        erased = await erasure.erased_among(transaction, [row["id"] for row in found])
        answers.update((job_id, _erased("retry", job_id)) for job_id in erased)
        found = [row for row in found if row["id"] not in erased]
        # A dead letter may be older than the history that its old end moves to, and days are dropped table by table.
        await make_days(transaction, "attempt", {row["finished_at"] for row in found})
        # Of several jobs with the same key only one can live, the first found.
        wanted = {row["unique_key"]: row["id"] for row in reversed(found) if row["unique_key"] is not None}
        keys = [(f"{tenant}/unique", key, wanted[key]) for key in sorted(wanted)]
        won = {row["job_id"] for row in await transaction.fetch(SQL.take_unique, keys=keys)} if keys else set()
        free = sorted(row["id"] for row in found if row["unique_key"] is None or row["id"] in won)
        for row in found:
            if row["id"] not in free:
                answers[row["id"]] = UniqueTaken(
                    f"Cannot retry job {row['id']}: another live job has its unique key {row['unique_key']!r}. "
                    "Wait for that one, or cancel it."
                )
        for query in (SQL.revive_dead, SQL.revive_done):
            for row in await transaction.fetch(query, ids=free, payload=payload) if free else ():
                answers[row["id"]] = Retried(row["id"], row["lane"], row["rank"])
        await transaction.fetch(SQL.drop_pauses, tenant=tenant, names=[str(job_id) for job_id in free])
        await note_events(transaction, free, "retried", actor)
    missing = [job_id for job_id in ids if job_id not in answers]
    answers.update(await _explain(db, missing, tenant))
    return [answers[job_id] for job_id in ids]


async def replay(
    db: Statements, lanes: Lanes, ids: Ids, job_id: UUID, *, tenant: str, actor: Actor, payload: str | None = None
) -> Submitted:
    """Submit a finished job once more, as a new one; its keys are not taken over."""
    job = await get(db, job_id, tenant=tenant)
    if job.state not in FINAL_STATES:
        raise Conflict(f"Cannot replay job {job_id}: it is {job.state}. Wait for its end, or submit a new one.")
    if await erasure.erased_among(db, [job_id]):
        raise _erased("replay", job_id)
    copy = _copy(job, ids.new(), payload)
    validate([copy])
    places = await lanes.resolve(db, [copy.lane])
    async with db.transaction(tracked=True) as transaction:
        answers = await store(transaction, lanes, places, [copy])
        await note_events(transaction, [job_id], "replayed", actor)
    return answers[copy.id]


async def purge(db: Statements, ids: Sequence[UUID], *, tenant: str) -> list[UUID]:
    """Remove dead jobs for good, with their attempts, logs and events; return those that were removed."""
    removed: list[UUID] = []
    wanted = sorted(set(ids))
    for first in range(0, len(wanted), erasure.CHUNK):
        async with db.transaction() as transaction:
            chunk = wanted[first : first + erasure.CHUNK]
            purged = [row["id"] for row in await transaction.fetch(SQL.purge, ids=chunk, tenant=tenant)]
            await transaction.fetch(EDITS.purge_jobs, ids=purged)
        removed += purged
    return removed


def _erased(verb: str, job_id: UUID) -> Conflict:
    return Conflict(f"Cannot {verb} job {job_id}: its content was erased. Submit a new job.")


async def _explain(db: Statements, ids: Sequence[UUID], tenant: str) -> dict[UUID, Conflict | NotFound]:
    answers: dict[UUID, Conflict | NotFound] = {}
    for job_id in ids:
        try:
            job = await get(db, job_id, tenant=tenant)
        except NotFound as missing:
            answers[job_id] = missing
        else:
            holder = f" on worker {job.worker}" if job.worker and job.finished_at is None else ""
            advice = "Replay it instead." if job.state is State.SUCCEEDED else "Cancel it first, or wait."
            answers[job_id] = Conflict(f"Cannot retry job {job_id}: it is {job.state}{holder}. {advice}")
    return answers


def _copy(job: Job, new_id: UUID, payload: str | None) -> NewJob:
    return NewJob(
        id=new_id,
        task=job.task,
        payload=job.payload if payload is None else payload,
        tenant=job.tenant,
        queue=job.queue,
        labels=tuple(filter(None, job.labels.split(","))),
        headers=job.headers,
        tags=tuple(job.tags),
        priority=job.priority,
        timeout_s=job.timeout_s,
        max_attempts=job.max_attempts,
        max_lost=job.max_lost,
        retry=None if job.retry is None else policy_from_json(job.retry),
        schedule_id=job.schedule_id,
        defaults=job.defaults,
    )
