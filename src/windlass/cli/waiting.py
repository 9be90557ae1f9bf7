"""Wait for the end of jobs, as `submit --wait` and `jobs wait` do."""

from __future__ import annotations

import time
from typing import Any

import click

from windlass.cli.calls import Server
from windlass.cli.shown import as_json, printable
from windlass.errors import Unavailable
from windlass.job import FINAL_STATES, State
from windlass.wire.base import MAX_WAIT_S

PATIENCE_S = 30.0
"""A server that does not answer for so long is not waited for any more."""
PAUSE_S = 0.5


def wait_for(server: Server, job_id: str, *, until: float | None) -> Any:
    """Return the job when it has ended; Unavailable if it has not by `until`, of the monotonic clock."""
    heard_at = time.monotonic()
    while True:
        now = time.monotonic()
        left_s = MAX_WAIT_S if until is None else max(0.0, min(MAX_WAIT_S, until - now))
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
        if until is not None and time.monotonic() >= until:
            raise Unavailable(f"Job {job_id} has not ended in time: it is {job['state']}. Wait again, or cancel it.")


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
