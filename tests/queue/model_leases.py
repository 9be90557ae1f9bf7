"""The model: how a lease ends, and what its worker is told.

A lease ends by its worker's report, by the loss of its session, by a deadline, or because it is given back.
Each end leaves an attempt; the job waits again, or it is finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.queue.model_rows import TEXT, Attempt, End, Job, Memory, Session, SessionState, Where
from windlass.clock import EPOCH
from windlass.job import Outcome, Reason, State
from windlass.queue.report import Complete, Release, Report, Snooze, Status
from windlass.queue.retry import RetryPolicy

PREFERENCE_S = 10
UNLISTED = timedelta(seconds=15)
SESSION_KEEP = timedelta(days=1)
BARE_KEEP = timedelta(minutes=1)
MAX_RELEASES = 3
"""The plain release that counts as a failure. The product's 100 is set to this while the model runs."""


def milliseconds(instant: datetime) -> int:
    """Return the whole milliseconds since 1970."""
    return (instant - EPOCH) // timedelta(milliseconds=1)


class Leases(Memory):
    """What ends leases."""

    def rank(self, job: Job, due_at: datetime) -> int:
        """Due time less the worth of its priority; in a fifo queue the time of creation."""
        queue = self.queues[job.lane.of_queue]
        return milliseconds(job.created_at) if queue.fifo else milliseconds(due_at) - job.priority * queue.credit_ms

    def report(self, reports: Sequence[Report], chance: float) -> list[tuple[Any, ...]]:
        """The holder's first word on a job is taken; everything else is told what it is."""
        answers: dict[int, tuple[Any, ...]] = {}
        for number, item in enumerate(reports):
            job = self.jobs.get(item.job_id)
            if job is not None and self._may_speak(job, item):
                answers[number] = self._settle(job, item, chance)
        return [answers.get(number) or self._class_of(item) for number, item in enumerate(reports)]

    def _may_speak(self, job: Job, item: Report) -> bool:
        if job.where != "leased" or job.fence != item.fence or job.session is None:
            return False
        holder = self.sessions[job.session]
        return (holder.worker, holder.tenant) == (item.worker, item.tenant) and item.session in (None, holder.id)

    def _settle(self, job: Job, item: Report, chance: float) -> tuple[Any, ...]:
        end = End(Outcome.SUCCEEDED, self.now)
        if isinstance(item, Complete):
            end.result, end.metrics = item.result, item.metrics
            self.finish(job, end, began=True, duration_ms=item.duration_ms)
        elif isinstance(item, Snooze):
            end.outcome, end.reason = Outcome.SNOOZED, item.reason
            self.put_off(job, end, delay_ms=item.delay_ms)
        elif isinstance(item, Release) and item.error is None:
            self.give_back(job, item.reason, began=item.started)
        elif isinstance(item, Release):
            end = replace(end, outcome=Outcome.FAILED, error_type="released", error=item.error, reason=item.reason)
            self.fail(job, end, chance=chance)
        else:
            end = replace(end, outcome=item.outcome, error_type=item.error_type, error=item.error)
            end.traceback, end.metrics = item.traceback, item.metrics
            self.fail(job, end, retryable=item.retryable, duration_ms=item.duration_ms, chance=chance)
        next_run_at = self.now if job.live and job.where != "timer" else job.due_at
        state = job.state
        return (Status.APPLIED, state, next_run_at, job.preferred)

    def _class_of(self, item: Report) -> tuple[Any, ...]:
        job = self.jobs.get(item.job_id)
        ended = [a for a in self._all_attempts() if a.job_id == item.job_id]
        if item.tenant not in ([job.lane.tenant] if job is not None else [a.lane.tenant for a in ended]):
            return (Status.UNKNOWN, None, None, False)
        own = [a for a in ended if a.fence == item.fence and a.end.session is not None]
        holder = own[0].end.worker if own else None
        if job is not None and job.fence == item.fence and job.session is not None:
            holder = self.sessions[job.session].worker
        if holder not in (None, item.worker):
            return (Status.UNKNOWN, None, None, False)
        if own and item.session in (None, own[0].end.session) and _same_kind(item, own[0].end):
            kept = job is not None and job.fence == item.fence and job.preferred
            return (Status.ALREADY, _state_told(own[0], job), own[0].next_run_at, kept)
        return (Status.STALE, None, None, False)

    def fail(
        self, job: Job, end: End, *, chance: float, retryable: bool = True, duration_ms: int | None = None
    ) -> None:
        """Again after a wait while attempts are left, else dead. A job being cancelled is cancelled."""
        if job.cancel or end.outcome is Outcome.CANCELLED:
            end.outcome = Outcome.CANCELLED
            self.finish(job, end, began=True, duration_ms=duration_ms)
            return
        policy = job.retry or RetryPolicy()
        policy = policy.by_error.get(end.error_type or "", policy)
        if not retryable or job.attempt >= (policy.max_attempts or job.max_attempts):
            end.reason = TEXT
            self.finish(job, end, where="dead", began=True, duration_ms=duration_ms, held=policy.then == "hold")
            return
        wait_ms = _wait_ms(policy, job.attempt, chance)
        preferred = policy.prefer_same_worker and wait_ms == 0 and not self.sessions[_session(job)].bare
        due_at = self.now + timedelta(milliseconds=PREFERENCE_S * 1000 if preferred else wait_ms)
        self._leave(job, end, due_at=due_at, began=True, duration_ms=duration_ms)
        self._to_timer(job, due_at, Reason.RETRY)
        job.preferred = preferred

    def lose(self, job: Job, chance: float) -> None:
        """A lost lease always counts as lost, and as an attempt only if its start was told."""
        end = End(Outcome.LOST, self.now, error_type="lost", error=TEXT)
        began = job.started_at is not None
        job.lost += 1
        if job.cancel:
            self.finish(job, self._taken(), began=began)
            return
        policy = job.retry or RetryPolicy()
        kept = job.attempt if began else job.attempt - 1
        if job.lost >= job.max_lost or kept >= (policy.max_attempts or job.max_attempts):
            end.reason = TEXT
            self.finish(job, end, where="dead", began=began, held=policy.then == "hold")
            job.attempt = kept
            return
        wait_ms = 0 if job.lost == 1 else _wait_ms(policy, job.lost, chance)
        due_at = self.now + timedelta(milliseconds=wait_ms)
        self._leave(job, end, due_at=due_at, began=began)
        job.attempt = kept
        if wait_ms:
            self._to_timer(job, due_at, Reason.RETRY)
        else:
            self._to_wait(job)

    def give_back(self, job: Job, reason: str | None, *, began: bool = False) -> None:
        """A release uses no attempt and keeps the rank; one too many is a failure."""
        if job.cancel:
            self.finish(job, End(Outcome.CANCELLED, self.now, reason=reason), began=began or bool(job.started_at))
            return
        if job.max_lost == 1 and (began or job.started_at is not None):
            end = End(Outcome.FAILED, self.now, error_type="released_after_start", error=TEXT, reason=TEXT)
            self.finish(job, end, where="dead", began=True)
            return
        if job.releases + 1 >= MAX_RELEASES:
            error = End(Outcome.FAILED, self.now, error_type="released_too_often", error=TEXT, reason=reason)
            self.fail(job, error, chance=0)
            return
        end = End(Outcome.RELEASED, self.now, reason=reason)
        self._leave(job, end, due_at=self.now, began=began or bool(job.started_at))
        job.attempt -= 1
        job.releases += 1
        self._to_wait(job)

    def _to_wait(self, job: Job) -> None:
        job.where, job.queued_at = "held" if job.paused else "ready", self.now

    def put_off(self, job: Job, end: End, *, delay_ms: int) -> None:
        """A snooze uses no attempt."""
        if job.cancel:
            end.outcome = Outcome.CANCELLED
            self.finish(job, end, began=True)
            return
        due_at = self.now + timedelta(milliseconds=delay_ms)
        self._leave(job, end, due_at=due_at, began=True)
        job.attempt -= 1
        self._to_timer(job, due_at, Reason.SNOOZE)

    def finish(
        self,
        job: Job,
        end: End,
        *,
        where: Where = "done",
        began: bool = False,
        duration_ms: int | None = None,
        held: bool = False,
    ) -> None:
        """End a job; its unique key is free again."""
        if job.where == "leased":
            self._fill(job, end, began=began, duration_ms=duration_ms)
        end.queued_at, job.queued_at = job.queued_at, None
        self._clear(job)
        job.where, job.end, job.held = where, end, held
        job.rank = job.due_at = job.reason = None
        job.paused = job.cancel = job.preferred = job.begun = False
        self.keys = {k: v for k, v in self.keys.items() if v.expires_at is not None or v.job_id != job.id}

    def _fill(self, job: Job, end: End, *, began: bool, duration_ms: int | None) -> None:
        assert job.session is not None
        assert job.claimed_at is not None
        end.queued_at = job.queued_at
        end.session, end.worker, end.claimed_at = job.session, self.sessions[job.session].worker, job.claimed_at
        if began:
            # Never told as started: finish less duration, else when it was claimed, and not before that.
            spent = timedelta(milliseconds=duration_ms) if duration_ms is not None else self.now - job.claimed_at
            end.started_at = job.started_at or max(job.claimed_at, self.now - spent)

    def _leave(self, job: Job, end: End, *, due_at: datetime, began: bool, duration_ms: int | None = None) -> None:
        self._fill(job, end, began=began, duration_ms=duration_ms)
        self.attempts.append(Attempt(job.id, job.lane, job.run, job.attempt, job.fence, end, due_at))
        self._clear(job)
        job.begun = job.begun or began

    def _clear(self, job: Job) -> None:
        job.session = job.claimed_at = job.started_at = job.deadline_at = None

    def _to_timer(self, job: Job, due_at: datetime, reason: Reason) -> None:
        job.where, job.due_at, job.reason, job.rank, job.queued_at = "timer", due_at, reason, None, None

    def rescue(self, chance: float, tolerance: float) -> tuple[Any, ...]:
        """After our own silence sessions get a full lease; then the silent are dead and their leases lost."""
        beat_at, self.pulse = self.pulse, self.now
        dead = []
        for session in self.sessions.values():
            if session.state is not SessionState.ALIVE:
                continue
            lease = timedelta(milliseconds=session.lease_ms)
            heard_at = max(session.heartbeat_at, beat_at or session.heartbeat_at)
            if (self.now - heard_at) / lease > tolerance:
                session.expires_at = max(session.expires_at, self.now + lease)
            if session.expires_at < self.now:
                session.state, session.ended_at = SessionState.DEAD, self.now
                dead.append(session.id)
        lost = [j for j in self.leased() if self.sessions[_session(j)].state is not SessionState.ALIVE]
        for job in lost:
            self.lose(job, chance)
        holders = {job.session for job in self.leased()}
        self.sessions = {s.id: s for s in self.sessions.values() if s.id in holders or not self._forgotten(s)}
        return (sorted(dead), self.moved(lost))

    def _forgotten(self, session: Session) -> bool:
        """Whether a session that holds nothing may go: a bare one a minute after its end, others a day."""
        keep = BARE_KEEP if session.bare else SESSION_KEEP
        return session.ended_at is not None and session.ended_at < self.now - keep

    def end_overdue(self, chance: float) -> list[tuple[Any, ...]]:
        """A lease past its deadline is timed out, or cancelled where that was asked for."""
        late = [j for j in self.leased() if j.deadline_at is not None and j.deadline_at < self.now]
        for job in late:
            if job.cancel:
                self.finish(job, self._taken(), began=job.started_at is not None)
            else:
                self.fail(job, End(Outcome.TIMED_OUT, self.now, error_type="timeout", error=TEXT), chance=chance)
        return self.moved(late)

    def _taken(self) -> End:
        return End(Outcome.CANCELLED, self.now, error_type=TEXT, reason=TEXT, taken=True)

    def leased(self) -> list[Job]:
        """The jobs that somebody holds."""
        return [job for job in self.jobs.values() if job.where == "leased"]

    def moved(self, jobs: Sequence[Job]) -> list[tuple[Any, ...]]:
        """Say where jobs went that were leased."""
        to = {"held": "ready", "done": "done", "dead": "dead", "timer": "timer", "ready": "ready"}
        return sorted(
            (job.id, to[job.where], self.now if job.where in ("ready", "held") else job.due_at) for job in jobs
        )


def _session(job: Job) -> UUID:
    assert job.session is not None
    return job.session


def _wait_ms(policy: RetryPolicy, count: int, chance: float) -> int:
    if policy.kind == "table":
        wait = policy.delays_s[min(count, len(policy.delays_s)) - 1] if policy.delays_s else 0
    else:
        wait = policy.base_s * {"fixed": 1, "linear": count, "exponential": policy.factor**count}[policy.kind]
    return round(min(wait, policy.cap_s) * (1 + policy.jitter * chance) * 1000)


def _same_kind(item: Report, end: End) -> bool:
    """Whether a report says what was recorded: a job being cancelled is cancelled by whatever its worker says."""
    if isinstance(item, Complete):
        return end.outcome is Outcome.SUCCEEDED
    if end.outcome is Outcome.CANCELLED:
        return not end.taken
    if isinstance(item, Snooze):
        return end.outcome is Outcome.SNOOZED
    if isinstance(item, Release) and item.error is None:
        return end.outcome is Outcome.RELEASED or end.error_type in ("released_too_often", "released_after_start")
    return end.outcome is (Outcome.FAILED if isinstance(item, Release) else item.outcome)


def _state_told(attempt: Attempt, job: Job | None) -> State:
    """The answer that the first report got: where the job went then."""
    outcome = attempt.end.outcome
    if outcome in (Outcome.SUCCEEDED, Outcome.CANCELLED):
        return State(outcome.name.lower())
    if outcome is Outcome.RELEASED:
        return State.QUEUED
    # An attempt after which nothing was to follow was the last of its run.
    return State.SCHEDULED if attempt.next_run_at is not None else State.DEAD
