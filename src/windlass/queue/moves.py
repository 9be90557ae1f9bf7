"""Moves: how a lease ends. Lock the rows, look at them in the next statement, decide, write.

Report, rescue, deadlines and a closing worker all end leases here, so that every end is guarded alike: by job, fence
and place in the statement that writes. Each lease that ends leaves an attempt: in `done` or `dead` with a job that is
finished, else in `attempt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from windlass.db import Row, Statements, load
from windlass.job import Flag, Outcome, Reason
from windlass.queue.retry import PREFERENCE_S, Again, Never, RetryPolicy, after_failure, after_loss, policy_from_json

SQL = load(__file__)

MAX_RELEASES = 100
"""The hundredth plain release of a job counts as a failure, so that a poison job cannot circle for ever."""
LOST = "Worker crashed or timed out."
RELEASED_TOO_OFTEN = "released_too_often"
RELEASED_AFTER_START = "released_after_start"
BEGUN = "It may run at most once, and it had begun when it was given back."
TAKEN = frozenset({"lost", "revoked"})
"""Error types of a cancel that no worker confirmed, because its lease was taken away before: late reports are stale."""


class LeaseName(NamedTuple):
    """What names a lease; of who holds it, only what is given is compared."""

    job_id: UUID
    fence: int
    session: UUID | None = None
    worker: str | None = None
    tenant: str | None = None


class Lease(msgspec.Struct, frozen=True):
    """A lease as it was found, locked."""

    id: UUID
    fence: int
    attempt: int
    lost: int
    releases: int
    flags: int
    lane: int
    session: UUID
    worker: str | None
    tenant: str | None
    heartbeat_at: datetime | None
    """The last one of its session."""
    bare: int | None
    queued_at: datetime
    claimed_at: datetime
    started_at: datetime | None
    run: int
    max_attempts: int
    max_lost: int
    retry: str | None
    run_at: datetime
    now_at: datetime

    @property
    def policy(self) -> RetryPolicy:
        """The job's retry policy."""
        return policy_from_json(self.retry)

    @property
    def cancelling(self) -> bool:
        """Whether somebody asked for the job to be cancelled."""
        return bool(self.flags & Flag.CANCEL)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt leaves behind, besides its times."""

    outcome: Outcome
    result: str | None = None
    metrics: str | None = None
    error_type: str | None = None
    error: str | None = None
    traceback: str | None = None
    reason: str | None = None
    duration_ms: int | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Where a lease goes: to `ready` or `timer` (with a wait), to `done`, or to `dead`."""

    lease: Lease
    to: str
    record: Record
    attempt: int
    lost: int = 0
    """Added to the job's counts."""
    releases: int = 0
    started: bool = False
    delay_ms: int = 0
    until: datetime | None = None
    """When it is due again, in place of a delay; a time that has passed is now."""
    why: Reason = Reason.RETRY
    preferred: bool = False
    held: bool = False

    @property
    def late_ms(self) -> int | None:
        """From due to the start of a first attempt, where the end of the lease is the first to tell the start."""
        lease = self.lease
        if not self.started or lease.started_at is not None or lease.attempt != 1:
            return None
        ran = lease.now_at - lease.claimed_at
        if self.record.duration_ms is not None:
            ran = min(ran, timedelta(milliseconds=self.record.duration_ms))
        return max(0, (lease.now_at - ran - lease.run_at) // timedelta(milliseconds=1))

    @property
    def flags(self) -> int:
        """The flags the job goes on with."""
        flags = Flag(self.lease.flags) & ~(Flag.PREFERRED | Flag.LIMITED)
        if self.started:
            flags |= Flag.STARTED
        if self.preferred:
            flags |= Flag.PREFERRED
        return int(flags)


class Moved(msgspec.Struct, frozen=True):
    """What a move did: where the job stands now, and when it is due again, if it is."""

    move: Move
    next_run_at: datetime | None = None
    rank: int | None = None


async def lock(db: Statements, leases: Iterable[LeaseName], *, skip_locked: bool = False) -> list[Lease]:
    """Lock the leases that are still held as named, and return them as they are.

    Leases that a rival has locked are waited for, or skipped.
    """
    rows = sorted(leases, key=lambda lease: lease[:2])
    if not rows:
        return []
    query = SQL.lock_free_leases if skip_locked else SQL.lock_leases
    locked = [(row["id"],) for row in await db.fetch(query, leases=rows)]
    return [_lease(row) for row in await db.fetch(SQL.read_leases, ids=locked)] if locked else []


async def apply(db: Statements, moves: Sequence[Move]) -> dict[UUID, Moved]:
    """Write the moves, each only if its lease still holds; return what was done, by job."""
    done: dict[UUID, Moved] = {}
    for targets, query, row_of in _WAYS:
        chosen = {move.lease.id: move for move in moves if move.to in targets}
        if chosen:
            for row in await db.fetch(query, moves=[row_of(chosen[job_id]) for job_id in sorted(chosen)]):
                done[row["id"]] = Moved(chosen[row["id"]], row["next_run_at"], row["rank"])
    attempts = [_attempt_row(moved) for moved in done.values() if moved.move.to in ("ready", "timer")]
    if attempts:
        await db.fetch(SQL.record_attempts, attempts=attempts)
    return done


def release(lease: Lease, reason: str | None, *, started: bool = False) -> Move:
    """Give a lease back: no attempt is used, and the job keeps its rank. Past the cap it is a failure."""
    record = Record(outcome=Outcome.RELEASED, reason=reason)
    if lease.cancelling:
        return cancelled(lease, Record(outcome=Outcome.CANCELLED, reason=reason), started=started)
    if lease.max_lost == 1 and (started or lease.started_at is not None):
        begun = Record(outcome=Outcome.FAILED, error_type=RELEASED_AFTER_START, error=BEGUN, reason=reason)
        return dead(lease, begun, Never(BEGUN), attempt=lease.attempt, started=True)
    if lease.releases + 1 >= MAX_RELEASES:
        error = f"Released {lease.releases + 1} times; last reason: {reason}"
        failed = Record(outcome=Outcome.FAILED, error_type=RELEASED_TOO_OFTEN, error=error, reason=reason)
        return fail(lease, failed, retryable=True, chance=0.0)
    return Move(
        lease=lease,
        to="ready",
        record=record,
        attempt=lease.attempt - 1,
        releases=1,
        started=started or lease.started_at is not None,
    )


def give_back(lease: Lease, reason: str) -> Move:
    """Release a lease that its worker does not know of; one that began and may run at most once is lost instead."""
    if lease.started_at is not None and lease.max_lost == 1:
        return lose(lease, chance=0.0)
    return release(lease, reason)


def snooze(lease: Lease, reason: str | None, *, delay_ms: int = 0, until: datetime | None = None) -> Move:
    """Put a job off: it is due again after the delay, or at a time; no attempt is used."""
    if lease.cancelling:
        return cancelled(lease, Record(outcome=Outcome.CANCELLED, reason=reason), started=True)
    return Move(
        lease=lease,
        to="timer",
        record=Record(outcome=Outcome.SNOOZED, reason=reason),
        attempt=lease.attempt - 1,
        started=True,
        delay_ms=delay_ms,
        until=until,
        why=Reason.SNOOZE,
    )


def fail(lease: Lease, record: Record, *, retryable: bool, chance: float) -> Move:
    """End a failed or timed-out attempt: again after a wait, or dead. A job being cancelled is cancelled instead."""
    if lease.cancelling:
        return cancelled(lease, msgspec.structs.replace(record, outcome=Outcome.CANCELLED), started=True)
    decision = after_failure(
        lease.policy,
        attempt=lease.attempt,
        max_attempts=lease.max_attempts,
        retryable=retryable,
        error_type=record.error_type,
        chance=chance,
    )
    if isinstance(decision, Never):
        return dead(lease, record, decision, attempt=lease.attempt, started=True)
    # A bare caller's session is of this one lease: nobody could come back with it.
    preferred = decision.prefer_same_worker and not lease.bare
    delay_s = PREFERENCE_S if preferred else decision.delay_s
    return Move(
        lease=lease,
        to="timer",
        record=record,
        attempt=lease.attempt,
        started=True,
        delay_ms=round(delay_s * 1000),
        preferred=preferred,
    )


def lose(lease: Lease, *, chance: float) -> Move:
    """End a lease whose worker is gone: it counts as lost, and as an attempt only if its start was told."""
    record = Record(outcome=Outcome.LOST, error_type="lost", error=LOST)
    if lease.cancelling:
        reason = "Its worker was lost while it was being cancelled."
        return cancelled(lease, Record(outcome=Outcome.CANCELLED, error_type="lost", reason=reason), lost=1)
    started = lease.started_at is not None
    loss = after_loss(
        lease.policy,
        attempt=lease.attempt,
        max_attempts=lease.max_attempts,
        lost=lease.lost + 1,
        max_lost=lease.max_lost,
        started=started,
        chance=chance,
    )
    if isinstance(loss.then, Never):
        return dead(lease, record, loss.then, attempt=loss.attempt, lost=1, started=started)
    assert isinstance(loss.then, Again)
    return Move(
        lease=lease,
        to="timer" if loss.then.delay_s > 0 else "ready",
        record=record,
        attempt=loss.attempt,
        lost=1,
        started=started,
        delay_ms=round(loss.then.delay_s * 1000),
    )


def cancelled(lease: Lease, record: Record, *, started: bool = False, lost: int = 0) -> Move:
    """End a job that was to be cancelled."""
    started = started or lease.started_at is not None
    return Move(lease=lease, to="done", record=record, attempt=lease.attempt, lost=lost, started=started)


def dead(lease: Lease, record: Record, why: Never, *, attempt: int, started: bool, lost: int = 0) -> Move:
    """End a job for good without success."""
    record = msgspec.structs.replace(record, reason=why.reason)
    return Move(lease=lease, to="dead", record=record, attempt=attempt, lost=lost, started=started, held=why.held)


def _lease(row: Row) -> Lease:
    return Lease(**dict(row))


def _ready_row(move: Move) -> tuple[object, ...]:
    lease = move.lease
    return (lease.id, lease.fence, move.attempt, move.lost, move.releases, move.flags)


def _timer_row(move: Move) -> tuple[object, ...]:
    return (*_ready_row(move), move.delay_ms, move.until, int(move.why))


def _end_row(move: Move) -> tuple[object, ...]:
    lease, record = move.lease, move.record
    return (
        lease.id,
        lease.fence,
        move.attempt,
        move.lost,
        int(record.outcome),
        record.result,
        record.metrics,
        record.error_type,
        record.error,
        record.traceback,
        record.reason,
        lease.worker,
        record.duration_ms,
        int(move.started),
        int(move.to == "dead"),
        int(move.held),
    )


def _attempt_row(moved: Moved) -> tuple[object, ...]:
    move, lease, record = moved.move, moved.move.lease, moved.move.record
    return (
        lease.id,
        lease.run,
        lease.attempt,
        lease.fence,
        lease.lane,
        int(record.outcome),
        record.metrics,
        record.error_type,
        record.error,
        record.traceback,
        record.reason,
        lease.worker,
        lease.session,
        lease.queued_at,
        lease.claimed_at,
        lease.started_at,
        record.duration_ms,
        int(move.started),
        moved.next_run_at,
    )


_WAYS = (
    (("ready",), SQL.lease_to_ready, _ready_row),
    (("timer",), SQL.lease_to_timer, _timer_row),
    (("done", "dead"), SQL.lease_to_end, _end_row),
)
