"""A job that is asked for with `schedule` is a schedule: what it is called, and how a second asking is known. Pure.

An idempotency key with it names the schedule, so that of two askings one finds the name taken; and the last bits of its
id are a mark of what was asked, so that it can be told whether the other asked for the same. Both last as long as the
schedule itself, whatever is edited meanwhile but its name.
"""

from __future__ import annotations

import hashlib
from uuid import UUID

import msgspec

from windlass.errors import InvalidInput, InvalidSchedule, KeyReused
from windlass.wire.jobs import JobRequest
from windlass.wire.schedules import ScheduleRequest

MARK_BITS = 44
"""As many bits of an id are random and nothing else."""
MARK = (1 << MARK_BITS) - 1
_SAME = (
    *("task", "payload", "tenant", "queue", "priority", "timeout_seconds", "max_attempts", "max_retries", "max_lost"),
    *("retry_policy", "delivery", "labels", "tags", "headers", "timezone"),
)
"""Fields that a job and a schedule have in common."""
_NEVER = ("delay", "unique_key", "unique_for", "start_deadline", "start_within")
"""Fields that say nothing of a job which is made again and again."""
_NAMES = {"cron": "schedule", "start": "run_at", "name": "schedule_name"}


def schedule_of(asked: JobRequest, fresh_id: UUID, *, tenant: str) -> tuple[UUID, ScheduleRequest]:
    """Return the id and the settings of the schedule that is asked for in the words of a job."""
    for field in _NEVER:
        if getattr(asked, field) is not None:
            raise InvalidSchedule(field, "it is of one job, and schedule makes many. Leave one of them out.")
    schedule_id = fresh_id
    if asked.idempotency_key is not None:
        schedule_id = UUID(int=fresh_id.int & ~MARK | _mark(asked, tenant))
    return schedule_id, ScheduleRequest(
        name=asked.schedule_name or _name(asked, fresh_id),
        cron=asked.schedule,
        start=asked.run_at,
        **{field: getattr(asked, field) for field in _SAME},
    )


def check_same(asked: JobRequest, asked_id: UUID, *, stored_id: UUID) -> None:
    """Return if the schedule that has the name already was asked for by the same words; KeyReused otherwise."""
    if (asked_id.int ^ stored_id.int) & MARK:
        raise KeyReused(
            "idempotency_key",
            f"{asked.idempotency_key!r} was used before for schedule {stored_id} with other content. Use another key.",
        )


def in_words_of_jobs(problem: InvalidInput) -> InvalidInput:
    """Return the same error, naming the field as a job has it."""
    return type(problem)(_NAMES.get(problem.field, problem.field), problem.problem)


def _name(asked: JobRequest, fresh_id: UUID) -> str:
    if asked.idempotency_key is None:
        return f"{asked.task[:150]}-{fresh_id.hex[-12:]}"
    # Of the key alone: with another task it is the same key with other content.
    return f"key-{hashlib.blake2b(asked.idempotency_key.encode(), digest_size=12).hexdigest()}"


def _mark(asked: JobRequest, tenant: str) -> int:
    text = tenant.encode() + b"\0" + msgspec.json.encode(asked)
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) & MARK
