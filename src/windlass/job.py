"""The words: where a job lies, its states, how an attempt ends; and the key of jobs that are the same.

A job is one `job` row, and one narrow row: in `queue` or `timer` while it lives, in `done` or `dead` when it has ended.
States are derived from that by the `jobs` view in SQL and are stored nowhere.
The numbers are stored: they never change meaning.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum, IntFlag, StrEnum
from typing import Literal

import msgspec


class Place(IntEnum):
    """Which of its four lines a row of `queue` stands in."""

    READY = 0
    LEASED = 1
    BLOCKED = 2
    HELD = 3


class Flag(IntFlag):
    """What travels with a job's place row through `queue` and `timer`."""

    NONE = 0
    PAUSED = 1
    CANCEL = 2
    UNIQUE = 4
    """It holds a `dedup` row that is deleted when it ends."""
    STARTED = 8
    """A worker has begun it once, so its start deadline no longer counts."""
    PREFERRED = 16
    """The worker that failed it may claim it back at once; others wait until the timer is due."""
    CHECKPOINT = 32
    """An attempt of its left a checkpoint, which its next claim brings."""
    AWAITED = 64
    """Other jobs wait for its end: whoever ends it looks for them."""
    LIMITED = 256
    """Of a lease only: its queue has limits, so it is counted."""


class Reason(IntEnum):
    """Why a row lies in `timer`."""

    SCHEDULED = 0
    RETRY = 1
    SLEEP = 2
    SNOOZE = 3


class Outcome(IntEnum):
    """How an attempt, or with it the job, ended."""

    SUCCEEDED = 0
    FAILED = 1
    TIMED_OUT = 2
    LOST = 3
    CANCELLED = 4
    RELEASED = 5
    SNOOZED = 6
    EXPIRED = 7
    """Of a job only: its start deadline passed before any attempt."""


class State(StrEnum):
    """The states of a job, as everybody sees them."""

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    QUEUED = "queued"
    ASSIGNED = "assigned"
    RUNNING = "running"
    SLEEPING = "sleeping"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class WaitCode(StrEnum):
    """Why a job that waits is not running."""

    PAUSED_JOB = "paused_job"
    PAUSED_QUEUE = "paused_queue"
    PAUSED_TENANT = "paused_tenant"
    PAUSED_SCHEDULE = "paused_schedule"
    NOT_DUE = "not_due"
    NOT_PROMOTED = "not_promoted"
    """Its time has come, and no server has made it ready yet."""
    BLOCKED = "blocked"
    NO_SERVER = "no_server"
    NO_WORKER = "no_worker"
    NO_WORKER_FOR_QUEUE = "no_worker_for_queue"
    NO_WORKER_FOR_TASK = "no_worker_for_task"
    NO_WORKER_FOR_LABELS = "no_worker_for_labels"
    TURN = "turn"
    """Workers can run it, and others come first."""


SPOT_REASON = "Spot termination"
"""Why a worker gives jobs back whose machine is withdrawn: such releases are counted."""
FINAL_STATES = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED, State.EXPIRED})

STATE_OF_OUTCOME = {
    Outcome.SUCCEEDED: State.SUCCEEDED,
    Outcome.CANCELLED: State.CANCELLED,
    Outcome.EXPIRED: State.EXPIRED,
}
"""The state of a job in `done`, by its outcome."""

Source = Literal["submit", "schedule", "manual"]
"""Who made a job: a caller, a slot of a schedule, or somebody who had a schedule run beside its series."""
GivenOption = Literal[
    "queue",
    "priority",
    "timeout_seconds",
    "max_attempts",
    "max_lost",
    "retry_policy",
    "delivery",
    "labels",
    "tags",
    "headers",
    "delay",
    "unique_key",
    "unique_for",
    "start_deadline",
]
"""An option that the task of a job may give it (queue/defaults.py)."""


def failure_text(error_type: str | None, error: str | None) -> str | None:
    """Return what went wrong as Python says it, `KeyError: 9`; types of our own stand in the message already."""
    if error_type is None or error_type == error_type.lower():
        return error
    return f"{error_type}: {error}" if error else error_type


def unique_key_of(task: str, payload: str | bytes) -> str:
    """Return the same key for jobs of a task with the same arguments, in whatever order they were named."""
    ordered = msgspec.json.encode(msgspec.json.decode(payload), order="sorted")
    return f"{task}:{hashlib.blake2b(ordered, digest_size=16).hexdigest()}"
