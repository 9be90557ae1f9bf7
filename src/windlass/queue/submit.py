"""Submit: a request of one to a thousand jobs becomes rows, all of them or none.

A job that is due goes into `queue`, ready; one that is not goes into `timer` (timers.py).
Several requests share one transaction; one that cannot be stored is refused by itself.
An idempotency key answers a repeated request with the job it made first; a unique key lets one job live at a time.
The answer leaves after the commit. If the connection breaks at COMMIT, the database is asked what became of it.

Next: claim.py hands ready jobs out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from windlass.db import Statements, load
from windlass.errors import AlreadyExists, BeingErased, InvalidInput, KeyReused, TooMany, Unavailable, WindlassError
from windlass.job import Flag, State
from windlass.queue.lanes import Lane, LaneName, Lanes
from windlass.queue.newjob import CHECKED_BYTES, NewJob, tags_text, validate
from windlass.queue.retry import policy_to_json

SQL = load(__file__)

KEY_TRIES = 3


class Submitted(msgspec.Struct, frozen=True):
    """What became of one job: a new row, or the job that its key named already."""

    id: UUID
    state: State | None
    """None: its key is remembered longer than the job itself, which is past retention or purged."""
    next_run_at: datetime | None
    duplicate: bool = False
    lane: int | None = None
    """Of a new job that is ready: where, and with which rank, so that claimers can be woken."""
    rank: int | None = None


Take = Callable[[Statements, Sequence[UUID]], Awaitable[set[UUID]]]
"""Takes away, in the transaction that stores jobs, what they came from; returns which may be stored (outbox.py)."""


class _WinnerGone(Exception):
    """The job that held a key ended between two statements; the key is free again."""


class _LanesRetired(Unavailable):
    """The tenant of remembered lanes was deleted; the lanes are forgotten, and nothing was written."""


class _Refusals(Exception):
    def __init__(self, by_request: dict[int, WindlassError]) -> None:
        self.by_request = by_request


async def submit(db: Statements, lanes: Lanes, jobs: Sequence[NewJob]) -> list[Submitted]:
    """Store the jobs of one request, all or none, and return what became of each in order."""
    [answer] = await submit_requests(db, lanes, [jobs])
    if isinstance(answer, WindlassError):
        raise answer
    return answer


async def submit_requests(
    db: Statements, lanes: Lanes, requests: Sequence[Sequence[NewJob]], *, take: Take | None = None
) -> list[list[Submitted] | WindlassError]:
    """Store several requests in one transaction; each is answered by itself, with its jobs or with its error.

    With `take`, a request of which not all jobs were taken is answered with none: somebody else stores it.
    """
    if not db.capabilities.commits:
        # A refused request must be rolled back and the lanes it made must stay: neither is possible inside another's.
        raise TypeError("submit commits by itself; it cannot join an open transaction.")
    size = sum(len(job.payload) + len(job.headers or "") for jobs in requests for job in jobs)
    refused = _refused(requests) if size <= CHECKED_BYTES else await asyncio.to_thread(_refused, requests)
    answers: dict[int, list[Submitted] | WindlassError] = {**refused}
    remaining = {number: jobs for number, jobs in enumerate(requests) if number not in answers}
    tries = KEY_TRIES
    while remaining:
        places, over_cap = await _resolve(db, lanes, remaining)
        answers.update(over_cap)
        remaining = {number: jobs for number, jobs in remaining.items() if number not in answers}
        if not remaining:
            break
        try:
            async with db.transaction(tracked=True) as transaction:
                taken = remaining if take is None else await _taken(transaction, take, remaining)
                stored = await _store_requests(transaction, lanes, places, taken)
        except _Refusals as refusals:
            answers.update(refusals.by_request)
            remaining = {number: jobs for number, jobs in remaining.items() if number not in answers}
        except AlreadyExists as exists:
            # Which request has the id that is taken is found by trying each alone.
            for number, jobs in remaining.items():
                alone = len(remaining) == 1
                [answers[number]] = [exists] if alone else await submit_requests(db, lanes, [jobs], take=take)
            break
        except (_WinnerGone, _LanesRetired):
            tries -= 1
            if not tries:
                raise Unavailable("Keys or tenants come and go faster than they can be read. Try again.") from None
        else:
            answers.update({number: stored.get(number, []) for number in remaining})
            break
    return [answers[number] for number in range(len(requests))]


def _refused(requests: Sequence[Sequence[NewJob]]) -> dict[int, InvalidInput]:
    """Return which requests may not be stored, by their index, and why."""
    refused: dict[int, InvalidInput] = {}
    ids: set[UUID] = set()
    for number, jobs in enumerate(requests):
        try:
            validate(jobs)
            if not ids.isdisjoint(job.id for job in jobs):
                raise InvalidInput("id", "another request of the same moment has a job with this id.")
        except InvalidInput as problem:
            refused[number] = problem
        else:
            ids.update(job.id for job in jobs)
    return refused


async def _taken(
    transaction: Statements, take: Take, requests: dict[int, Sequence[NewJob]]
) -> dict[int, Sequence[NewJob]]:
    ids = await take(transaction, [job.id for jobs in requests.values() for job in jobs])
    return {number: jobs for number, jobs in requests.items() if ids.issuperset(job.id for job in jobs)}


async def _resolve(
    db: Statements, lanes: Lanes, requests: dict[int, Sequence[NewJob]]
) -> tuple[dict[LaneName, Lane], dict[int, TooMany | BeingErased]]:
    """Return the lanes of the requests, and the refusals of those whose tenant may not have so many, or is erased."""
    try:
        return await lanes.resolve(db, {job.lane for jobs in requests.values() for job in jobs}), {}
    except (TooMany, BeingErased):
        places: dict[LaneName, Lane] = {}
        refused: dict[int, TooMany | BeingErased] = {}
        for number, jobs in requests.items():
            try:
                places |= await lanes.resolve(db, {job.lane for job in jobs})
            except (TooMany, BeingErased) as problem:
                refused[number] = problem
        return places, refused


async def store(
    transaction: Statements, lanes: Lanes, places: dict[LaneName, Lane], jobs: Sequence[NewJob]
) -> dict[UUID, Submitted]:
    """Insert jobs that take no keys, in the caller's transaction; their lanes are known. Return what became of each.

    Raises Unavailable if a lane was left behind by a deleted tenant; the next try looks it up again.
    """
    answers: dict[UUID, Submitted] = {}
    for row in await transaction.fetch(SQL.submit, jobs=[_row(job, places[job.lane]) for job in jobs]) if jobs else ():
        ready = row["rank"] is not None
        answers[row["id"]] = Submitted(
            id=row["id"],
            state=State.QUEUED if ready else State.SCHEDULED,
            next_run_at=row["due_at"],
            lane=row["lane"] if ready else None,
            rank=row["rank"],
        )
    if retired := {job.tenant for job in jobs if job.id not in answers}:
        for tenant in retired:
            lanes.forget(tenant)
        raise _LanesRetired(f"Tenant {min(retired)} was deleted a moment ago. Try again.")
    return answers


async def _store_requests(
    transaction: Statements,
    lanes: Lanes,
    places: dict[LaneName, Lane],
    requests: dict[int, Sequence[NewJob]],
) -> dict[int, list[Submitted]]:
    named = await _take_keys(transaction, requests)
    fresh = [job for request in requests.values() for job in request if job.id not in named]
    answers = await store(transaction, lanes, places, fresh)
    known = sorted(set(named.values()) - answers.keys())
    if known:
        answers.update((job_id, Submitted(job_id, None, None, duplicate=True)) for job_id in known)
        for row in await transaction.fetch(SQL.find_jobs, ids=known):
            answers[row["id"]] = Submitted(row["id"], State(row["state"]), row["next_run_at"], duplicate=True)
    for job_id, winner in named.items():
        answers[job_id] = msgspec.structs.replace(answers[winner], duplicate=True, lane=None, rank=None)
    return {number: [answers[job.id] for job in request] for number, request in requests.items()}


async def _take_keys(transaction: Statements, requests: dict[int, Sequence[NewJob]]) -> dict[UUID, UUID]:
    """Take the keys of all jobs; return, for each job that lost one, the id of the job that has it."""
    named: dict[UUID, UUID] = {}
    refused: dict[int, WindlassError] = {}
    undecided: set[int] = set()
    owners = {job.id: number for number, request in requests.items() for job in request}
    keyed = [
        (number, index, job)
        for number, request in requests.items()
        for index, job in enumerate(request)
        if job.idempotency_key is not None
    ]
    holders, won = await _take(transaction, [_idempotency_row(job) for _, _, job in keyed])
    for number, index, job in keyed:
        name = _idempotency_row(job)[:2]
        winner, content_hash = holders[name]
        if content_hash != job.content_hash:
            owner = owners.get(winner, number)
            if owner != number and (owner in refused or owner in undecided):
                # The rival is not stored either; when it is out of the way this request gets another look.
                undecided.add(number)
                continue
            problem = f"{job.idempotency_key!r} was used before for job {winner} with other content. Use another key."
            refused.setdefault(number, KeyReused("idempotency_key", problem, index=index))
        elif winner != job.id or name not in won:
            # Also the same job said again, with the id it was stored under.
            named[job.id] = winner
    if refused:
        raise _Refusals(refused)
    unique = [
        job for request in requests.values() for job in request if job.unique_key is not None and job.id not in named
    ]
    holders, won = await _take(transaction, [_unique_row(job) for job in unique])
    names = [(job, _unique_row(job)[:2]) for job in unique]
    lost = [(job, holders[name][0]) for job, name in names if name not in won or holders[name][0] != job.id]
    # The idempotency key such a job has just won must name the job that it is answered with.
    moved = [(*_idempotency_row(job)[:2], winner) for job, winner in lost if job.idempotency_key is not None]
    if moved:
        await transaction.fetch(SQL.move_keys, keys=sorted(moved, key=lambda row: row[:2]))
    named.update((job.id, winner) for job, winner in lost)
    # A key folded onto a job of this batch that itself lost its unique key ends at the same winner.
    return {job_id: named.get(winner, winner) for job_id, winner in named.items()}


async def _take(
    transaction: Statements, keys: list[tuple[str, str, UUID, str, int | None]]
) -> tuple[dict[tuple[str, str], tuple[UUID, str]], set[tuple[str, str]]]:
    """Take free keys; return who has each now: (job id, content hash), and those that were taken just now."""
    if not keys:
        return {}, set()
    # The first of several in one batch takes it. Sorted, so that rival batches wait and do not deadlock.
    first = {key[:2]: key for key in reversed(keys)}
    rows = await transaction.fetch(SQL.take_keys, keys=[first[name] for name in sorted(first)])
    won = {(row["scope"], row["key"]) for row in rows}
    holders = {name: first[name][2:4] for name in won}
    taken = sorted(first.keys() - holders.keys())
    if taken:
        # In the next statement: the first one's snapshot may be older than the winner's commit.
        for row in await transaction.fetch(SQL.find_keys, keys=taken):
            holders[row["scope"], row["key"]] = (row["job_id"], row["content_hash"])
        if len(holders) < len(first):
            raise _WinnerGone
    return holders, won


def _idempotency_row(job: NewJob) -> tuple[str, str, UUID, str, int | None]:
    return (f"{job.tenant}/key", job.idempotency_key or "", job.id, job.content_hash, job.idempotency_ms)


def _unique_row(job: NewJob) -> tuple[str, str, UUID, str, int | None]:
    return (f"{job.tenant}/unique", job.unique_key or "", job.id, "", job.unique_ms)


def _row(job: NewJob, lane: Lane) -> tuple[object, ...]:
    unique = job.unique_key is not None and job.unique_ms is None
    return (
        job.id,
        lane.id,
        job.task,
        job.payload,
        job.headers,
        tags_text(job.tags),
        job.priority,
        *job.limits,
        job.timeout_s,
        # At most once has no say in attempts, by error type or otherwise.
        None if job.delivery == "at_most_once" else policy_to_json(job.retry),
        job.idempotency_key,
        job.unique_key if unique else None,
        job.flow_id,
        job.parent_id,
        job.schedule_id,
        job.slot_at,
        job.run_at,
        job.delay_ms,
        job.start_by,
        None if job.start_within_ms is None else max(0, job.start_within_ms - job.asked_ms_ago),
        job.defaults,
        int(Flag.UNIQUE if unique else Flag.NONE),
    )
