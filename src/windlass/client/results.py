"""What the end of a job means for who waits for it: a value, or an error that says why there is none. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw

from windlass.errors import InvalidInput, JobCancelled, JobExpired, JobFailed, NoResult
from windlass.job import State
from windlass.wire.jobs import Attempt
from windlass.wire.trail import LogPage

FOLLOW_S = 0.5
"""How long the end of a job is waited for between two looks at its log."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What of a job tells who waits for it how it has ended, with its result as it was reported."""

    id: UUID
    task: str
    state: State
    attempt: int
    result: Raw
    reason: str | None
    error_type: str | None
    error_message: str | None
    failure_reason: str | None
    start_deadline: datetime | None


def value(job: Ending, decode: Callable[[bytes], Any]) -> Any:
    """Return the result of a job that succeeded; InvalidInput if it is not what its task is annotated to return."""
    try:
        return decode(bytes(job.result))
    except (msgspec.MsgspecError, NotImplementedError, ValueError) as error:
        raise InvalidInput("result", f"job {job.id} of {job.task} returned something else: {error}.") from error


def failure(job: Ending, attempts: Sequence[Attempt]) -> NoResult:
    """Return why a job that has ended has no result."""
    if job.state is State.CANCELLED:
        return JobCancelled(f"Job {job.id} ({job.task}) was cancelled{_because(job.reason)}", job_id=job.id)
    if job.state is State.EXPIRED:
        return JobExpired(
            f"Job {job.id} ({job.task}) was not started by its deadline, {job.start_deadline}.", job_id=job.id
        )
    last = attempts[-1] if attempts else None
    error_type = job.error_type or (last.error_type if last else None)
    message = job.error_message or job.failure_reason or (last.error_message if last else None)
    error = JobFailed(
        f"Job {job.id} ({job.task}) failed at attempt {job.attempt}: {error_type or 'error'}: {message}", job_id=job.id
    )
    error.error_type, error.error_message = error_type, message
    error.traceback = last.traceback if last else None
    return error


def not_yet(job_id: UUID, job: Ending | None, *, without_server: str | None = None) -> TimeoutError:
    """Return the error for a job that has not ended in time; `without_server`: the database that was asked instead."""
    how = "no server answers" if job is None else f"it is {job.state.value}"
    if job is not None and without_server is not None:
        how += f", and no server was found for {without_server}. Is `windlass up` running there?"
    elif job is not None and job.state is State.QUEUED:
        how += ": no worker has taken it. Is `windlass up`, or a worker for its queue and task, running?"
    else:
        how += "."
    return TimeoutError(f"Job {job_id} has not ended in time: {how} Ask again with its handle, or app.job(id).")


def place_after(page: LogPage, before: str | None) -> str | None:
    """Return where the page after this one begins, also when there are no more lines yet."""
    if page.next_cursor is not None or not page.lines:
        return page.next_cursor or before
    return f"{page.lines[-1].fence}.{page.lines[-1].seq}"


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else "."
