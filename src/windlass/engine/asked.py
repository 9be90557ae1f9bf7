"""A job as somebody asks for it, turned into the job that the queue stores. Pure.

What is left out comes from the settings, and is marked: its task may give another value (signatures.py). Spans become
milliseconds, `max_retries` one attempt less than it says.
Asked over HTTP it comes through server/newjobs.py, from an application's transaction through relay.py; a job asked for
with `schedule` is a schedule instead (recurring.py).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from windlass.config import Settings
from windlass.durations import parse_duration
from windlass.engine.translate import json_text, span_ms
from windlass.errors import InvalidInput, InvalidSchedule
from windlass.queue.defaults import Defaults, opened
from windlass.queue.newjob import NewJob
from windlass.queue.retry import DEFAULT, PRESETS, RetryPolicy
from windlass.wire.jobs import Delivery, JobRequest, Policy, PolicyByError

if TYPE_CHECKING:
    from windlass.config.settings import Retry
    from windlass.wire.schedules import ScheduleRequest
    from windlass.wire.tasks import TaskDefaults

QUEUE = "default"
DELIVERY: Delivery = "at_least_once"


def new_job(asked: JobRequest, settings: Settings, *, job_id: UUID, tenant: str) -> NewJob:
    """Return the job to store; InvalidInput if what is asked for contradicts itself, or is too much."""
    _refuse_schedule(asked)
    jobs = settings.jobs
    timeout_s = jobs.timeout_seconds if isinstance(asked.timeout_seconds, UnsetType) else asked.timeout_seconds
    return NewJob(
        id=job_id,
        task=asked.task,
        payload=json_text("payload", asked.payload, longest=jobs.max_payload_bytes) or "null",
        tenant=tenant,
        queue=asked.queue or QUEUE,
        labels=() if isinstance(asked.labels, UnsetType) else asked.labels,
        headers=headers_text(asked.headers),
        tags=() if isinstance(asked.tags, UnsetType) else asked.tags,
        priority=jobs.priority if asked.priority is None else asked.priority,
        run_at=asked.run_at,
        delay_ms=span_ms("delay", asked.delay),
        start_by=asked.start_deadline,
        start_within_ms=span_ms("start_within", asked.start_within),
        timeout_s=None if timeout_s is None else math.ceil(timeout_s),
        max_attempts=attempts_of(asked.max_attempts, asked.max_retries, usual=jobs.max_attempts),
        max_lost=asked.max_lost or jobs.max_lost,
        retry=policy_of(asked.retry_policy, settings.retry),
        delivery=asked.delivery or DELIVERY,
        idempotency_key=asked.idempotency_key,
        idempotency_ms=int(jobs.idempotency_hours * 3_600_000),
        unique_key=asked.unique_key,
        unique_ms=span_ms("unique_for", asked.unique_for),
        defaults=(left_open(asked) | _of_one_job(asked)) & ~opened(*set(asked.without)),
    )


def left_open(asked: JobRequest | ScheduleRequest) -> int:
    """Return the bits of the options that a job or a schedule does not name."""
    never_again = asked.delivery == "at_most_once"
    policy = PRESETS[asked.retry_policy] if isinstance(asked.retry_policy, str) else asked.retry_policy
    how_often = (asked.max_attempts, asked.max_retries, None if policy is None else policy.max_attempts)
    named = {
        "queue": asked.queue is not None,
        "priority": asked.priority is not None,
        "timeout_seconds": asked.timeout_seconds is not UNSET,
        "max_attempts": never_again or any(count is not None for count in how_often),
        "max_lost": never_again or asked.max_lost is not None,
        "retry_policy": never_again or asked.retry_policy is not None,
        "delivery": asked.delivery is not None,
        "labels": asked.labels is not UNSET,
        "tags": asked.tags is not UNSET,
        "headers": asked.headers is not None,
    }
    return opened(*(option for option, is_named in named.items() if not is_named))


def _of_one_job(asked: JobRequest) -> int:
    named = {
        "delay": asked.delay is not None or asked.run_at is not None,
        "unique_key": asked.unique_key is not None,
        "unique_for": asked.unique_for is not None,
        "start_deadline": asked.start_deadline is not None or asked.start_within is not None,
    }
    return opened(*(option for option, is_named in named.items() if not is_named))


def given_by(published: TaskDefaults, settings: Settings) -> Defaults:
    """Return what a task gives its jobs, as the fields of a job have it."""
    values: dict[str, Any] = {
        name: value
        for name in ("queue", "priority", "max_attempts", "max_lost", "delivery", "labels", "tags", "unique_key")
        if (value := getattr(published, name)) is not None
    }
    if not isinstance(published.timeout_seconds, UnsetType):
        limit_s = published.timeout_seconds
        values["timeout_seconds"] = None if limit_s is None else math.ceil(limit_s)
    if published.retry_policy is not None:
        values["retry_policy"] = policy_of(published.retry_policy, settings.retry)
    if published.headers is not None:
        values["headers"] = headers_text(published.headers)
    for name in ("delay", "unique_for"):
        if getattr(published, name) is not None:
            values[name] = span_ms(name, getattr(published, name))
    within_s = None if published.start_within is None else parse_duration(published.start_within, "start_within")
    return Defaults(values=values, unique=published.unique, start_within_s=within_s)


def headers_text(headers: dict[str, str] | None) -> str | None:
    """Return headers as they are stored."""
    return None if headers is None else msgspec.json.encode(headers).decode()


def _refuse_schedule(asked: JobRequest) -> None:
    for field in ("schedule", "timezone", "schedule_name"):
        if getattr(asked, field) is not None:
            raise InvalidSchedule(
                field,
                "it is for a schedule, and this makes jobs only. Send it by itself to /jobs, with schedule, "
                "or many to /schedules/batch.",
            )


def attempts_of(max_attempts: int | None, max_retries: int | None, *, usual: int) -> int:
    """Return how many attempts are asked for, in one way or the other; InvalidInput if both are, and differ."""
    if max_retries is None:
        return max_attempts or usual
    if max_attempts not in (None, max_retries + 1):
        raise InvalidInput("max_retries", f"{max_retries} does not go with max_attempts. Give one of them.")
    return max_retries + 1


def policy_of(asked: Policy | str | None, usual: Retry) -> RetryPolicy | None:
    """Return the policy for further attempts that is asked for; None: the usual one everywhere."""
    if asked is None or asked == "default":
        policy = RetryPolicy(
            kind=usual.kind,
            base_s=usual.base_seconds,
            factor=usual.factor,
            cap_s=usual.cap_seconds,
            jitter=usual.jitter,
        )
        # What is usual everywhere need not be stored with every job.
        return None if policy == DEFAULT else policy
    if isinstance(asked, str):
        return PRESETS[asked]
    return _converted(asked, {error_type: _converted(inner, {}) for error_type, inner in asked.by_error.items()})


def _converted(asked: PolicyByError, by_error: dict[str, RetryPolicy]) -> RetryPolicy:
    return RetryPolicy(
        kind=asked.kind,
        base_s=parse_duration(asked.base, "retry_policy.base"),
        factor=asked.factor,
        cap_s=parse_duration(asked.cap, "retry_policy.cap"),
        jitter=asked.jitter,
        delays_s=tuple(parse_duration(delay, "retry_policy.delays") for delay in asked.delays),
        prefer_same_worker=asked.prefer_same_worker,
        max_attempts=asked.max_attempts,
        then=asked.then,
        by_error=by_error,
    )
