"""Control: what people do to a job besides submitting it: cancel, pause, resume, change.

Cancel is a request: a waiting job is cancelled at once and never starts; a leased one is told to stop, and ends by its
worker's report, the end of its lease, or the end of the grace (deadlines.py). Pausing a queue or tenant sets a bit on
its lanes, which the claim statement reads itself; pausing a job holds its place.
A job may move between `queue` and `timer` while we look, so each act tries both until one applies or it is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from windlass.db import Query, Row, Statements, load
from windlass.errors import Conflict, Contention, InvalidInput, JobFinished, NotFound
from windlass.job import FINAL_STATES, Place, State
from windlass.queue.defaults import without
from windlass.queue.lanes import SQL as LANES
from windlass.queue.lanes import LaneName, Lanes
from windlass.queue.newjob import MAX_PRIORITY, MAX_TEXT, check_instant, check_name, check_text

SQL = load(__file__)

CANCEL_GRACE_MS = 30_000
CANCEL_MARGIN_MS = 10_000
"""Beyond the grace, before the lease of a job told to cancel is revoked, unless its worker is known to need longer."""
TRIES = 10
PauseKind = Literal["queue", "tenant", "job"]


class Actor(msgspec.Struct, frozen=True):
    """Who acts, and why: kept with what was done."""

    name: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be kept."""
        for field, text in (("actor", self.name), ("reason", self.reason)):
            if text:
                check_text(field, text, longest=MAX_TEXT)


class Cancelled(msgspec.Struct, frozen=True):
    """What a cancel found: the job's state afterwards. `already`: it was being or had been cancelled before."""

    id: UUID
    state: State
    already: bool = False


async def cancel(
    db: Statements,
    ids: Sequence[UUID],
    *,
    tenant: str,
    actor: Actor,
    grace_ms: int = CANCEL_GRACE_MS,
    margin_ms: int = CANCEL_MARGIN_MS,
) -> list[Cancelled | JobFinished | NotFound]:
    """Cancel jobs; answers in order: cancelled, cancelling, or why not."""
    answers: dict[UUID, Cancelled | JobFinished | NotFound] = {}
    for _ in range(TRIES):
        open_ids = sorted(set(ids) - answers.keys())
        if not open_ids:
            break
        # Each place in a transaction of its own: their unique keys are locked in one order within a statement only.
        async with db.transaction() as transaction:
            # Only what is locked here, in one order: a job promoted meanwhile is found by the next try.
            found = [r["id"] for r in await transaction.fetch(SQL.lock_places, ids=open_ids, tenant=tenant)]
            stopped = await transaction.fetch(
                SQL.cancel_leased, ids=found, tenant=tenant, patience_ms=grace_ms + margin_ms
            )
            ended = await transaction.fetch(SQL.cancel_queued, ids=found, tenant=tenant, reason=actor.reason)
            # Also of a job that ends at once: its end tells why, but not who asked.
            await note_events(transaction, [row["id"] for row in (*stopped, *ended)], "cancel_requested", actor)
        elsewhere = sorted(set(open_ids) - set(found))
        if elsewhere:
            async with db.transaction() as transaction:
                timed = await transaction.fetch(SQL.cancel_timed, ids=elsewhere, tenant=tenant, reason=actor.reason)
                await note_events(transaction, [row["id"] for row in timed], "cancel_requested", actor)
            ended += timed
        answers.update((row["id"], Cancelled(row["id"], State.CANCELLING)) for row in stopped)
        answers.update((row["id"], Cancelled(row["id"], State.CANCELLED)) for row in ended)
        answers.update(await _settled(db, sorted(set(open_ids) - answers.keys()), tenant))
    if set(ids) - answers.keys():
        raise Contention("Jobs move faster than they can be cancelled. Try again.")
    return [answers[job_id] for job_id in ids]


async def pause_job(db: Statements, job_id: UUID, *, tenant: str, actor: Actor, until: datetime | None = None) -> State:
    """Keep a job from being claimed; one that runs goes on. Return its state."""
    check_instant("until", until)
    return await _on_place(db, job_id, tenant, (SQL.pause_queued, SQL.pause_timed), "paused", actor, until)


async def resume_job(db: Statements, job_id: UUID, *, tenant: str, actor: Actor) -> State:
    """Let a paused job go on where it stood."""
    return await _on_place(db, job_id, tenant, (SQL.resume_queued, SQL.resume_timed), "resumed", actor, None)


async def pause_queue(
    db: Statements, lanes: Lanes, queue: LaneName, *, actor: Actor, until: datetime | None = None
) -> None:
    """Hand out nothing from a queue; a claim begun after this has committed takes nothing."""
    check_name("queue", queue.queue)
    check_instant("until", until)
    await lanes.resolve(db, [queue.of_queue])
    await _pause_lanes(db, "queue", queue.tenant, queue.queue, actor, until)


async def resume_queue(db: Statements, queue: LaneName) -> bool:
    """Hand out from a queue again; False if it was not paused."""
    check_name("queue", queue.queue)
    return await _resume_lanes(db, "queue", queue.tenant, queue.queue)


async def pause_tenant(db: Statements, tenant: str, *, actor: Actor, until: datetime | None = None) -> None:
    """Hand out nothing of a tenant."""
    check_instant("until", until)
    await _pause_lanes(db, "tenant", tenant, "", actor, until)


async def resume_tenant(db: Statements, tenant: str) -> bool:
    """Hand out a tenant's jobs again; False if it was not paused. Queues paused by themselves stay paused."""
    return await _resume_lanes(db, "tenant", tenant, "")


async def resume_due(db: Statements) -> int:
    """Resume everything whose pause has an end that has come; return how many.

    One that a rival holds is left to the next run, so that it does not keep the others waiting.
    """
    resumed = 0
    for row in await db.fetch(SQL.pauses_over):
        with suppress(Contention):
            if row["kind"] == "job":
                await _resume_job_over(db, UUID(row["name"]), row["tenant"])
            else:
                await _resume_lanes(db, row["kind"], row["tenant"], row["name"], over=True)
            resumed += 1
    return resumed


async def _resume_job_over(db: Statements, job_id: UUID, tenant: str) -> None:
    async with db.transaction() as transaction:
        # A pause that was prolonged since it was read is not over.
        if await transaction.fetch(SQL.drop_pause_over, kind="job", tenant=tenant, name=str(job_id)):
            with suppress(NotFound, JobFinished):
                await resume_job(transaction, job_id, tenant=tenant, actor=Actor(reason="The pause is over."))


async def change(
    db: Statements,
    lanes: Lanes,
    job_id: UUID,
    *,
    tenant: str,
    actor: Actor,
    priority: int | None = None,
    queue: str | None = None,
    run_at: datetime | None = None,
) -> State:
    """Change priority, queue or due time of a job that waits; Conflict if it is leased, JobFinished if it has ended."""
    _check_change(priority, queue, run_at)
    for _ in range(TRIES):
        found = await db.fetch(SQL.find_waiting, id=job_id, tenant=tenant)
        if not found:
            settled = await _settled(db, [job_id], tenant)
            if job_id in settled:
                raise _error(settled[job_id])
            if await db.fetch(SQL.find_leased, id=job_id, tenant=tenant):
                raise Conflict(f"Cannot change job {job_id}: a worker has it. Cancel it first, or wait.")
            continue
        row = found[0]
        name = LaneName(tenant, queue or row["queue"], row["task"], row["labels"], row["key"])
        lane = (await lanes.resolve(db, [name]))[name]
        async with db.transaction() as transaction:
            locked = await transaction.fetch(SQL.lock_queued, id=job_id) or await transaction.fetch(
                SQL.lock_timed, id=job_id
            )
            if not locked or locked[0]["lane"] != row["lane"]:
                # It has gone elsewhere meanwhile, or somebody changed its queue: look again.
                continue
            since = await transaction.fetch(SQL.ready_since, id=job_id) if run_at is None else []
            kept = without({"priority": priority, "queue": queue, "delay": run_at})
            await transaction.fetch(
                SQL.change_job, id=job_id, lane=lane.id, priority=priority, run_at=run_at, kept=kept
            )
            timed = await _place_again(
                transaction,
                locked[0],
                job_id,
                lane=lane.id,
                run_at=run_at,
                ready_ms=since[0]["ready_ms"] if since else None,
            )
            await note_events(transaction, [job_id], "changed", actor)
            if timed:
                return State.SCHEDULED
            return State.BLOCKED if locked[0]["place"] == Place.BLOCKED or locked[0]["pending"] else State.QUEUED
    raise Contention(f"Job {job_id} moves faster than it can be changed. Try again.")


async def _place_again(
    transaction: Statements, row: Row, job_id: UUID, *, lane: int, run_at: datetime | None, ready_ms: int | None
) -> bool:
    """Give a locked job its place anew, with its new lane, priority and time; return whether it is a timer now."""
    await transaction.fetch(SQL.drop_place, id=job_id)
    # A retry or snooze keeps its own due time, and what is ready its place in time, unless a new one is asked for.
    due_at = run_at or row["due_at"]
    [placed] = await transaction.fetch(
        SQL.place,
        id=job_id,
        lane=lane,
        due_at=due_at,
        asked=int(run_at is not None),
        ready_ms=ready_ms,
        place=row["place"],
        attempt=row["attempt"],
        fence=row["fence"],
        lost=row["lost"],
        releases=row["releases"],
        flags=row["flags"],
        pending=row["pending"],
        queued_at=row["queued_at"],
        late_ms=row["late_ms"],
        reason=row["reason"],
    )
    return bool(placed["timed"])


def _check_change(priority: int | None, queue: str | None, run_at: datetime | None) -> None:
    if priority is not None and abs(priority) > MAX_PRIORITY:
        raise InvalidInput("priority", f"{priority} is not between -{MAX_PRIORITY} and {MAX_PRIORITY}.")
    if queue is not None:
        check_name("queue", queue)
    check_instant("run_at", run_at)


async def _on_place(
    db: Statements,
    job_id: UUID,
    tenant: str,
    queries: Sequence[Query],
    kind: Literal["paused", "resumed"],
    actor: Actor,
    until: datetime | None,
) -> State:
    for _ in range(TRIES):
        async with db.transaction() as transaction:
            changed = False
            for query in queries:
                changed = changed or bool(await transaction.fetch(query, id=job_id, tenant=tenant))
            if changed:
                await note_events(transaction, [job_id], kind, actor)
            found = await transaction.fetch(SQL.states, ids=[job_id], tenant=tenant)
            if (
                found
                and State(found[0]["state"]) not in FINAL_STATES
                and bool(found[0]["paused"]) == (kind == "paused")
            ):
                if kind == "paused":
                    await _keep_pause(transaction, "job", tenant, str(job_id), actor, until)
                else:
                    await transaction.fetch(SQL.drop_pause, kind="job", tenant=tenant, name=str(job_id))
                return State(found[0]["state"])
        settled = await _settled(db, [job_id], tenant)
        if job_id in settled:
            raise _error(settled[job_id])
    raise Contention(f"Job {job_id} moves faster than it can be {kind}. Try again.")


async def _pause_lanes(
    db: Statements, kind: PauseKind, tenant: str, name: str, actor: Actor, until: datetime | None
) -> None:
    async with db.transaction() as transaction:
        # Making lanes locks the same row first: a lane is either seen here or born paused.
        if not await transaction.fetch(LANES.lock_tenant, tenant=tenant):
            raise NotFound(f"There is no tenant {tenant}.")
        await _keep_pause(transaction, kind, tenant, name, actor, until)
        await transaction.fetch(SQL.pause_lanes, tenant=tenant, queue=name, bit=1 if kind == "queue" else 2)


async def _resume_lanes(db: Statements, kind: str, tenant: str, name: str, *, over: bool = False) -> bool:
    async with db.transaction() as transaction:
        await transaction.fetch(LANES.lock_tenant, tenant=tenant)
        drop = SQL.drop_pause_over if over else SQL.drop_pause
        dropped = await transaction.fetch(drop, kind=kind, tenant=tenant, name=name)
        if over and not dropped:  # prolonged since it was read
            return False
        await transaction.fetch(SQL.resume_lanes, tenant=tenant, queue=name, bit=1 if kind == "queue" else 2)
    return bool(dropped)


async def _keep_pause(
    transaction: Statements, kind: str, tenant: str, name: str, actor: Actor, until: datetime | None
) -> None:
    await transaction.fetch(
        SQL.keep_pause, kind=kind, tenant=tenant, name=name, reason=actor.reason, actor=actor.name, resume_at=until
    )


async def note_events(transaction: Statements, ids: Sequence[UUID], kind: str, actor: Actor) -> None:
    """Keep an act on jobs that no column tells."""
    if ids:
        rows = [(job_id, kind, actor.name, actor.reason) for job_id in ids]
        await transaction.fetch(SQL.note, events=rows)


async def _settled(db: Statements, ids: Sequence[UUID], tenant: str) -> dict[UUID, Cancelled | JobFinished | NotFound]:
    """Answer for jobs that no act applied to: cancelling, finished, unknown; those that just moved are left out."""
    if not ids:
        return {}
    found = {row["id"]: State(row["state"]) for row in await db.fetch(SQL.states, ids=list(ids), tenant=tenant)}
    answers: dict[UUID, Cancelled | JobFinished | NotFound] = {}
    for job_id in ids:
        state = found.get(job_id)
        if state is None:
            answers[job_id] = _missing(job_id)
        elif state in (State.CANCELLING, State.CANCELLED):
            answers[job_id] = Cancelled(job_id, state, already=True)
        elif state in FINAL_STATES:
            answers[job_id] = JobFinished(f"Job {job_id} has ended already: it is {state}.")
    left = [job_id for job_id in ids if job_id not in answers]
    for row in await db.fetch(SQL.finishing, ids=left, tenant=tenant) if left else ():
        answers[row["id"]] = JobFinished(f"Job {row['id']} was finished by its task; its end is being recorded.")
    return answers


def _missing(job_id: UUID) -> NotFound:
    return NotFound(f"There is no job {job_id}.")


def _error(answer: Cancelled | JobFinished | NotFound) -> Conflict | NotFound:
    if isinstance(answer, Cancelled):
        kind = JobFinished if answer.state is State.CANCELLED else Conflict
        return kind(f"Job {answer.id} is {answer.state}.")
    return answer
