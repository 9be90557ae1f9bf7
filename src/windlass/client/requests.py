"""The requests of the Python API, built without asking anybody. Pure.

Each function returns what is to be sent; doors.py sends it, blocking or not, and answers.py reads what came back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import Raw

from windlass.client.results import Ending
from windlass.errors import InvalidInput, WindlassError
from windlass.wire import jobs as wire
from windlass.wire.base import MAX_CANCEL_WAIT_S, MAX_WAIT_S
from windlass.wire.trail import MAX_LINES, LogPage

ANSWER_S = 15.0
MAX_BATCH = 1000
MAX_BATCH_BYTES = 7 << 20
"""Of the jobs in one request; servers take 8 MiB."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a server."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """From the root of the API."""
    query: Mapping[str, str | int | float] = {}
    body: bytes | None = None
    answer: Any = None
    """The type of what comes back; None: nothing."""
    wait_s: float = 0.0
    """How long the server itself may wait before it answers."""
    answer_s: float = ANSWER_S
    """How long an answer may take beyond that."""
    connect_s: float = math.inf
    """How long connecting may take, if not as long as usual."""
    key: str | None = None
    """The idempotency key of the one job that it submits."""
    job_count: int = 0
    """How many jobs it submits."""
    repeatable: bool = True
    """Whether sending it again changes nothing, also when the first one was heard and its answer lost."""


def submits(jobs: Sequence[Mapping[str, Any]]) -> list[Request]:
    """Ask to store jobs, in order, in as few requests as they fit into; each stores all of its jobs or none.

    Where it takes several, InvalidInput names the job that no server would take, before the first is sent.
    """
    encoded = [msgspec.json.encode(job) for job in jobs]
    found, first, size = [], 0, 0
    for index, job in enumerate(encoded):
        if index > first and (index - first == MAX_BATCH or size + len(job) > MAX_BATCH_BYTES):
            found.append(_batch(jobs[first:index], encoded[first:index]))
            first, size = index, 0
        size += len(job) + 1
    if found:
        _check(encoded)
    return [*found, _batch(jobs[first:], encoded[first:])] if first < len(jobs) else found


def _check(encoded: Sequence[bytes]) -> None:
    for index, job in enumerate(encoded):
        try:
            _job.decode(job)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at `$")
            raise InvalidInput(path.strip(".`") or "job", f"{text}.", index=index) from None


_job = msgspec.json.Decoder(wire.JobRequest)


def _batch(jobs: Sequence[Mapping[str, Any]], encoded: Sequence[bytes]) -> Request:
    one = len(jobs) == 1
    return Request(
        method="POST",
        path="/jobs" if one else "/jobs/batch",
        body=encoded[0] if one else b'{"jobs":[%b]}' % b",".join(encoded),
        answer=wire.Submitted if one else wire.Batch,
        key=jobs[0].get("idempotency_key") if one else None,
        job_count=len(jobs),
        repeatable=all("idempotency_key" in job for job in jobs),
    )


def failed_after(error: WindlassError, request: Request, *, stored: Sequence[Any], count: int) -> WindlassError:
    """Return the error of a submit with the handles of those that were stored before it, and the job's own index."""
    if not stored:
        return error
    if isinstance(error, InvalidInput) and (error.index is not None or request.job_count == 1):
        error = error.at(len(stored) + (error.index or 0))
    note = f"The first {len(stored)} of {count} jobs are stored, and are in `stored` of this error."
    error.args = (f"{error} {note}",)
    error.stored = tuple(stored)
    return error


def job_fields(task: str, payload: bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job as the API wants it."""
    return {"task": task, "payload": Raw(payload), **options}


def get(job_id: UUID) -> Request:
    """Ask how a job is."""
    return Request(method="GET", path=f"/jobs/{job_id}", answer=wire.Job)


def wait(job_id: UUID, *, wait_s: float) -> Request:
    """Ask for the end of a job, waiting for it as long as a server waits."""
    wait_s = min(max(wait_s, 0.0), MAX_WAIT_S)
    query = {"wait": round(wait_s, 3)} if wait_s else {}
    return Request(method="GET", path=f"/jobs/{job_id}", query=query, answer=Ending, wait_s=wait_s)


def cancel(job_id: UUID, *, reason: str | None = None, wait_s: float = 0.0, force: bool = False) -> Request:
    """Ask to cancel a job, waiting for its end as long as a server waits."""
    wait_s = min(max(wait_s, 0.0), MAX_CANCEL_WAIT_S)
    body = wire.CancelRequest(reason=reason, force=force)
    return Request(
        method="POST",
        path=f"/jobs/{job_id}/cancel",
        query={"wait": round(wait_s, 3)} if wait_s else {},
        body=msgspec.json.encode(body),
        answer=wire.Cancelled,
        wait_s=wait_s,
    )


def retry(job_id: UUID, *, reason: str | None = None) -> Request:
    """Ask to run a dead, cancelled or expired job again."""
    body = b"{}" if reason is None else msgspec.json.encode({"reason": reason})
    return Request(method="POST", path=f"/jobs/{job_id}/retry", body=body, answer=wire.Moved, repeatable=False)


def attempts(job_id: UUID, *, after: str | None = None) -> Request:
    """Ask for a page of the ended attempts of a job."""
    place = {} if after is None else {"cursor": after}
    return Request(method="GET", path=f"/jobs/{job_id}/attempts", query=place, answer=wire.AttemptList)


def logs(job_id: UUID, *, after: str | None = None) -> Request:
    """Ask for a page of a job's log."""
    place = {} if after is None else {"after": after}
    return Request(method="GET", path=f"/jobs/{job_id}/logs", query={"limit": MAX_LINES, **place}, answer=LogPage)
