"""What servers show of jobs and schedules, as a program reads it: structs of the wire, JSON in them as plain values.

On the wire a payload is text kept byte for byte; here it is what that text says.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw

from windlass.job import State
from windlass.wire import jobs as wire
from windlass.wire import schedules


class JobInfo(wire.Job, frozen=True, kw_only=True):
    """Everything about a job."""

    payload: Any
    headers: Any
    retry_policy: Any
    result: Any
    metrics: Any


class AttemptInfo(wire.Attempt, frozen=True, kw_only=True):
    """One ended attempt of a job."""

    output: Any
    metrics: Any


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """The ended attempts of a job, oldest first."""

    attempts: list[AttemptInfo]


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What of a job tells who waits for it how it has ended."""

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


class ScheduleInfo(schedules.Schedule, frozen=True, kw_only=True):
    """Everything about a schedule."""

    payload: Any
    retry_policy: Any
    headers: Any


class ScheduleInfos(msgspec.Struct, frozen=True, kw_only=True):
    """A page of schedules by name."""

    schedules: list[ScheduleInfo]
    next_cursor: str | None


class Difference(schedules.Difference, frozen=True, kw_only=True):
    """One setting that changes."""

    was: Any
    becomes: Any


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What would change, and the slots that follow from it; nothing was stored."""

    name: str
    exists: bool
    differences: list[Difference]
    slots: list[schedules.ShownSlot]
