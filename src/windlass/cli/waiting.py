"""Wait for the end of jobs, as `submit --wait` and `jobs wait` do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import click

from windlass.cli.calls import Server
from windlass.cli.shown import as_json, printable
from windlass.errors import Forbidden, NotFound, Unavailable
from windlass.job import FINAL_STATES, State, WaitCode
from windlass.wire.base import MAX_WAIT_S

PATIENCE_S = 30.0
"""A server that does not answer for so long is not waited for any more."""
PAUSE_S = 0.5
LOOK_S = 2.0
"""A job that has not started by then is said to wait; so often is looked why."""
WAITING = frozenset({State.SCHEDULED, State.QUEUED, State.BLOCKED, State.SLEEPING})


def wait_for(server: Server, job_id: str, *, until: float | None) -> Any:
    """Return the job when it has ended; Unavailable if it has not by `until`, of the monotonic clock.

    A job that does not start is not waited for in silence: on stderr stands why it waits, and again when that changes.
    """
    heard_at = time.monotonic()
    told = _Told(job_id)
    try:
        while True:
            now = time.monotonic()
            longest_s = MAX_WAIT_S if told.has_started else LOOK_S
            left_s = longest_s if until is None else max(0.0, min(longest_s, until - now))
            try:
                job = server.get(f"/jobs/{job_id}", wait=round(left_s, 3))
                heard_at = time.monotonic()
            except Unavailable:  # a server that restarts is back in a moment
                if now - heard_at > PATIENCE_S or (until is not None and now >= until):
                    raise
                time.sleep(PAUSE_S)
                continue
            if State(job["state"]) in FINAL_STATES:
                return job
            told.tell(job)
            if until is not None and time.monotonic() >= until:
                why = "".join(f" {detail}" for detail in told.details)
                problem = f"Job {job_id} has not ended in time: it is {job['state']}.{why} Wait again, or cancel it."
                raise Unavailable(problem)
    except KeyboardInterrupt:
        go_on = f"`windlass jobs wait {job_id}` waits again, `windlass jobs cancel {job_id}` cancels it."
        click.echo(f"Job {job_id} is still {told.state}, and goes on without this command. {go_on}", err=True)
        raise


class _Told:
    """What was said on stderr about a job that is waited for."""

    def __init__(self, job_id: str) -> None:
        self.state = "queued"
        self.has_started = False
        self.details: list[str] = []
        self._job_id = job_id
        self._reasons: list[Any] = []

    def tell(self, job: Any) -> None:
        """Say why the job waits, or that it has started, if that was not said before."""
        self.state = printable(job["state"])
        has_waited, self.has_started = bool(self._reasons), job["state"] not in WAITING
        reasons = job.get("waiting") or []
        self.details = [printable(reason["detail"]) for reason in reasons]
        # How many threads are busy changes all the time.
        seen = [reason["code"] if reason["code"] == WaitCode.TURN else reason for reason in reasons]
        if seen == self._reasons:
            return
        self._reasons = seen
        if seen:
            click.echo(f"Job {self._job_id} is {self.state}. {' '.join(self.details)}", err=True)
        elif has_waited:
            worker = f" on {printable(job['worker_id'])}" if job["worker_id"] else ""
            click.echo(f"Job {self._job_id} is {self.state}{worker}.", err=True)


def stuck_tasks(server: Server) -> list[Any]:
    """Return the tasks whose jobs nobody is handed; none where this key may not see them."""
    try:
        return list(server.get("/stuck")["tasks"])
    except (Forbidden, NotFound):  # a key kept to some queues, a server of an older version
        return []


def with_reasons(jobs: Iterable[Any], stuck: Iterable[Any]) -> Iterator[Any]:
    """Yield the jobs, with `stuck` those that are queued and that nobody is handed: why."""
    reasons = {(task["queue"], task["task"], tuple(task["labels"])): task["detail"] for task in stuck}
    for job in jobs:
        why = reasons.get((job["queue"], job["task"], tuple(job["labels"])))
        yield {**job, "stuck": why} if why and job["state"] == State.QUEUED else job


def patiently(server: Server, path: str, **query: Any) -> Any:
    """Return the answer, also if the server restarts meanwhile; Unavailable if it is not back in time."""
    began_at = time.monotonic()
    while True:
        try:
            return server.get(path, **query)
        except Unavailable:
            if time.monotonic() - began_at > PATIENCE_S:
                raise
            time.sleep(PAUSE_S)


def echo_end(job: Any) -> bool:
    """Print the result of a job, or on stderr why there is none; return whether it succeeded."""
    if job["state"] == State.SUCCEEDED:
        click.echo(as_json(job["result"]) or "null")
        return True
    error = ": ".join(printable(str(job[name])) for name in ("error_type", "error_message") if job[name])
    why = error or printable(str(job["reason"] or "no reason was given"))
    click.echo(f"Job {job['id']} is {job['state']} after {job['attempt']} attempts: {why}", err=True)
    return False


def deadline(timeout_s: float | None) -> float | None:
    """Return the instant of the monotonic clock at which waiting ends; None: never."""
    return None if timeout_s is None else time.monotonic() + timeout_s
