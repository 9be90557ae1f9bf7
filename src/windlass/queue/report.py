"""Report: a worker says how an attempt ended, and the first valid word is recorded, once.

The guard is (job, fence, leased), in the statement that writes; worker and session only decide who may speak.
A repeated report changes nothing and gets the same answer; a stale one changes no byte, and its worker must stop.
Success takes one statement for the whole batch, which deletes places and writes ends. Everything else is decided from
the job's policy after its place is locked (moves.py, retry.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.errors import InvalidInput
from windlass.job import STATE_OF_OUTCOME, Outcome, State
from windlass.queue import checkpoints, moves
from windlass.queue.checkpoints import Note
from windlass.queue.moves import Lease, LeaseName, Move, Moved, Record
from windlass.queue.newjob import (
    CHECKED_BYTES,
    MAX_DELAY_MS,
    MAX_NAME,
    check_instant,
    check_json,
    check_range,
    check_text,
    storable,
)

SQL = load(__file__)

Chance = Callable[[], float]
"""Between 0 and 1: jitter."""


class Status(StrEnum):
    """What became of one report."""

    APPLIED = "applied"
    ALREADY = "already"
    """The same was recorded for this fence before."""
    STALE = "stale"
    """The lease is another's, or ended otherwise: the worker must stop."""
    UNKNOWN = "unknown"
    """No such job, not this worker's, or past retention."""


class LeaseReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What every report names: the lease."""

    job_id: UUID
    fence: int
    worker: str
    session: UUID | None = None
    tenant: str = "default"
    """Whose key the caller has: the leases of other tenants are unknown to it."""


class Complete(LeaseReport, frozen=True, kw_only=True, gc=False):
    """The task has succeeded."""

    result: str | None = None
    """JSON text, stored as received."""
    metrics: str | None = None
    duration_ms: int | None = None


class Fail(LeaseReport, frozen=True, kw_only=True):
    """The task has failed, timed out, or was stopped because of a cancel."""

    outcome: Literal[Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED] = Outcome.FAILED
    error: str = ""
    error_type: str | None = None
    traceback: str | None = None
    retryable: bool = True
    metrics: str | None = None
    duration_ms: int | None = None


class Snooze(LeaseReport, frozen=True, kw_only=True):
    """The task wants to be run again later; no attempt is used."""

    delay_ms: int = 0
    until: datetime | None = None
    """When it is due again, in place of a delay."""
    reason: str | None = None
    checkpoint: str | None = None
    """JSON text, for the attempt that goes on."""
    duration_ms: int | None = None


class Release(LeaseReport, frozen=True, kw_only=True):
    """The worker gives the job back; no attempt is used. With an error it is a failure like any other."""

    reason: str | None = None
    error: str | None = None
    started: bool = False
    checkpoint: str | None = None
    duration_ms: int | None = None


Report = Complete | Fail | Snooze | Release
_KINDS = (Complete, Fail, Snooze, Release)
# By class, looked up once: what a thousand reports do not have is a good part of a batch's time on this side.
_JSON_FIELDS, _MS_FIELDS = (
    {kind: [name for name in names if name in kind.__struct_fields__] for kind in _KINDS}
    for names in (("result", "metrics", "checkpoint"), ("duration_ms", "delay_ms"))
)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a worker is told of its report."""

    status: Status
    state: State | None = None
    next_run_at: datetime | None = None
    lane: int | None = None
    """Of an applied report, so that claimers of its lane can be woken."""
    rank: int | None = None
    """Of a job that is ready again."""
    run_ms: int | None = None
    """How long the attempt ran, as it is known."""
    attempt: int | None = None
    """Of a job that succeeded; with how long it waited from when it could be claimed until this attempt began."""
    waited_ms: int | None = None
    late_ms: int | None = None
    """From due to the start of a first attempt, where this report was the first to tell the start."""
    prefer_same_worker: bool = False
    """The same worker may claim the job back at once."""
    moved: Moved | None = None
    """How the lease ended, of an applied report that tells of no success."""


async def report(db: Statements, reports: Sequence[Report], *, chance: Chance) -> list[Answer]:
    """Record how attempts ended; answer item by item, in order."""
    answers: dict[int, Answer] = {}
    size = sum(len(getattr(item, field) or "") for item in reports for field in _JSON_FIELDS[type(item)])
    if size <= CHECKED_BYTES:
        _validate(reports)
    else:
        await asyncio.to_thread(_validate, reports)
    turns = _turns(reports)
    while turns:
        succeeded: dict[int, Complete] = {}
        others: dict[int, Fail | Snooze | Release] = {}
        for number, *_ in turns.values():
            item = reports[number]
            if isinstance(item, Complete):
                succeeded[number] = item
            else:
                others[number] = item
        answers.update(await _complete(db, succeeded))
        answers.update(await _settle(db, others, chance))
        turns = {job_id: rest for job_id, (n, *rest) in turns.items() if rest and n not in answers}
    unanswered = {number: item for number, item in enumerate(reports) if number not in answers}
    if unanswered:
        answers.update(await _classify(db, unanswered))
    return [answers[number] for number in range(len(reports))]


def _turns(reports: Sequence[Report]) -> dict[UUID, list[int]]:
    """Return who speaks in turn for each job: the first that holds its lease is heard, the rest are told what it did.

    Reports of many workers share a batch, so the first one named may be stale while a later one is the holder's.
    """
    turns: dict[UUID, list[int]] = {}
    for number, item in enumerate(reports):
        turns.setdefault(item.job_id, []).append(number)
    for job_id, numbers in turns.items():
        if len(numbers) > 1:
            speakers = {(r.fence, r.tenant, r.worker, r.session): n for n in reversed(numbers) for r in (reports[n],)}
            turns[job_id] = sorted(speakers.values())
    return turns


async def _complete(db: Statements, reports: dict[int, Complete]) -> dict[int, Answer]:
    if not reports:
        return {}
    items = [
        (r.job_id, r.fence, r.tenant, r.worker, r.session, r.result, r.metrics, r.duration_ms)
        for r in sorted(reports.values(), key=lambda r: r.job_id.bytes)
    ]
    applied = {row["id"]: row for row in await db.fetch(SQL.complete, items=items)}
    return {
        number: Answer(
            Status.APPLIED,
            State.SUCCEEDED,
            lane=row["lane"],
            run_ms=row["run_ms"] if r.duration_ms is None else r.duration_ms,
            attempt=row["attempt"],
            waited_ms=row["waited_ms"],
            late_ms=row["late_ms"],
        )
        for number, r in reports.items()
        if (row := applied.get(r.job_id)) is not None
    }


async def _settle(db: Statements, reports: dict[int, Fail | Snooze | Release], chance: Chance) -> dict[int, Answer]:
    if not reports:
        return {}
    numbers = {item.job_id: number for number, item in reports.items()}
    async with db.transaction() as transaction:
        # Before the leases end: the move marks jobs that have a checkpoint.
        await checkpoints.keep(transaction, [note for r in reports.values() if (note := _note(r)) is not None])
        named = [LeaseName(r.job_id, r.fence, r.session, r.worker, r.tenant) for r in reports.values()]
        leases = await moves.lock(transaction, named)
        decided = [_decide(lease, reports[numbers[lease.id]], chance) for lease in leases]
        moved = await moves.apply(transaction, decided)
    return {
        numbers[job_id]: Answer(
            Status.APPLIED,
            _state_after(done.move),
            done.next_run_at,
            lane=done.move.lease.lane,
            rank=done.rank,
            run_ms=done.move.record.duration_ms,
            late_ms=done.move.late_ms,
            prefer_same_worker=done.move.preferred,
            moved=done,
        )
        for job_id, done in moved.items()
    }


def _note(item: Fail | Snooze | Release) -> Note | None:
    if isinstance(item, Fail) or item.checkpoint is None:
        return None
    return Note(
        job_id=item.job_id,
        fence=item.fence,
        worker=item.worker,
        session=item.session,
        tenant=item.tenant,
        checkpoint=item.checkpoint,
    )


def _decide(lease: Lease, item: Fail | Snooze | Release, chance: Chance) -> Move:
    move = _move(lease, item, chance)
    # A lease never told as started began so long before its end (W16).
    return msgspec.structs.replace(move, record=msgspec.structs.replace(move.record, duration_ms=item.duration_ms))


def _move(lease: Lease, item: Fail | Snooze | Release, chance: Chance) -> Move:
    if isinstance(item, Snooze):
        return moves.snooze(lease, storable(item.reason), delay_ms=item.delay_ms, until=item.until)
    if isinstance(item, Release):
        if item.error is None:
            return moves.release(lease, storable(item.reason), started=item.started)
        record = Record(
            outcome=Outcome.FAILED, error_type="released", error=storable(item.error), reason=storable(item.reason)
        )
        return moves.fail(lease, record, retryable=True, chance=chance())
    record = Record(
        outcome=item.outcome,
        error_type=storable(item.error_type),
        error=storable(item.error),
        traceback=storable(item.traceback),
        metrics=item.metrics,
    )
    if item.outcome is Outcome.CANCELLED:
        return moves.cancelled(lease, record, started=True)
    return moves.fail(lease, record, retryable=item.retryable, chance=chance())


def _state_after(move: Move) -> State:
    if move.to == "done":
        return State.CANCELLED
    return {"ready": State.QUEUED, "timer": State.SCHEDULED, "dead": State.DEAD}[move.to]


async def _classify(db: Statements, reports: dict[int, Report]) -> dict[int, Answer]:
    """Tell apart, for reports that changed nothing: already applied, stale, unknown."""
    ids = sorted({item.job_id for item in reports.values()})
    # Live ones first: a job that ends in between is then found among the ended, never in neither.
    live = {row["id"]: row for row in await db.fetch(SQL.live_leases, ids=ids)}
    ends = await db.fetch(SQL.ended_leases, ids=ids)
    tenants = {row["job_id"]: row["tenant"] for row in ends} | {row["id"]: row["tenant"] for row in live.values()}
    # A row without session is the end of a job that waited, not of a lease.
    ended = {(row["job_id"], row["fence"]): row for row in ends if row["session"] is not None}
    return {
        number: _class_of(item, ended.get((item.job_id, item.fence)), live)
        if tenants.get(item.job_id) == item.tenant
        else Answer(Status.UNKNOWN)
        for number, item in reports.items()
    }


def _class_of(item: Report, ended: Row | None, live: dict[UUID, Row]) -> Answer:
    holder = ended or live.get(item.job_id)
    if holder is not None and holder["fence"] == item.fence and holder["worker"] not in (None, item.worker):
        return Answer(Status.UNKNOWN)
    if ended is not None and (item.session is None or item.session == ended["session"]) and _same_kind(item, ended):
        now = live.get(item.job_id)
        preferred = now is not None and now["fence"] == item.fence and bool(now["preferred"])
        return Answer(Status.ALREADY, _state_told(ended), ended["next_run_at"], prefer_same_worker=preferred)
    if ended is None and holder is not None and isinstance(item, Complete) and _is_finishing(item, holder):
        return Answer(Status.ALREADY, State.SUCCEEDED)
    return Answer(Status.STALE)


def _is_finishing(item: Complete, live: Row) -> bool:
    """Say whether the task itself has said so in a transaction of its own, whose relay is still to come (outbox.py)."""
    own_session = live["session"] is not None and item.session in (None, live["session"])
    return bool(live["held"]) and live["fence"] == item.fence and own_session


def _state_told(ended: Row) -> State:
    """Return the state that the first report was answered with."""
    outcome = Outcome(ended["outcome"])
    if outcome is Outcome.RELEASED:
        return State.QUEUED
    # A failure after which nothing was to follow was the end of its run, also when the job was retried by hand since.
    after_failure = State.DEAD if ended["next_run_at"] is None else State.SCHEDULED
    return STATE_OF_OUTCOME.get(outcome, after_failure)


def _same_kind(item: Report, ended: Row) -> bool:
    outcome = Outcome(ended["outcome"])
    if isinstance(item, Complete):
        return outcome is Outcome.SUCCEEDED
    if outcome is Outcome.CANCELLED:
        # Any of these ends a job that was being cancelled, but not after its lease was taken away.
        return ended["error_type"] not in moves.TAKEN
    if isinstance(item, Snooze):
        return outcome is Outcome.SNOOZED
    if isinstance(item, Release):
        if item.error is not None:
            return outcome is Outcome.FAILED
        # One release too many, or too late, was recorded as a failure.
        too_much = (moves.RELEASED_TOO_OFTEN, moves.RELEASED_AFTER_START)
        return outcome is Outcome.RELEASED or ended["error_type"] in too_much
    return outcome is item.outcome


def _validate(reports: Sequence[Report]) -> None:
    """Raise InvalidInput if a report cannot be stored; the error names the index and the field of the first."""
    for index, item in enumerate(reports):
        try:
            _check(item)
        except InvalidInput as problem:
            raise problem.at(index) from None


def _check(item: Report) -> None:
    check_text("worker", item.worker, longest=MAX_NAME)
    if not 1 <= item.fence < 2**31:
        raise InvalidInput("fence", f"{item.fence} was never given out; fences start at 1.")
    for field in _JSON_FIELDS[type(item)]:
        if (text := getattr(item, field)) is not None:
            check_json(field, text)
    for field in _MS_FIELDS[type(item)]:
        check_range(field, getattr(item, field), 0, MAX_DELAY_MS)
    if isinstance(item, Snooze):
        check_instant("until", item.until)
