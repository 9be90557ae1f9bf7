"""A schedule as its maker asks for it, and the rules it must keep. Pure.

What its times are is computed in cron/, what becomes of each slot in firing.py, how it is stored in schedules.py.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Literal
from uuid import UUID

import msgspec

from windlass.errors import InvalidInput, InvalidSchedule
from windlass.queue.cron import At, Cron, Every, Trigger, check_exclusions, check_trigger
from windlass.queue.defaults import OPEN
from windlass.queue.newjob import MAX_DELAY_MS, NewJob, check_instant, check_json, check_name, check_range, validate
from windlass.queue.retry import RetryPolicy

CatchUp = Literal["latest", "skip", "all"]
Overlap = Literal["skip", "allow", "queue_one", "queue_all", "cancel_previous"]
CATCH_UPS: tuple[CatchUp, ...] = ("latest", "skip", "all")
"""In the order of their numbers in the table."""
OVERLAPS: tuple[Overlap, ...] = ("skip", "allow", "queue_one", "queue_all", "cancel_previous")

SHARDS = 16
"""Into so many parts schedules are divided, by the last four bits of their ids."""
MAX_WAITING = 1000
"""So many jobs of one schedule wait for the run before them, at most; further slots are skipped."""
MAX_CATCH_UP = 1000
MISFIRE_GRACE_S = 60
MAX_SPAN_S = MAX_DELAY_MS // 1000
NO_ID = UUID(int=0)
UNREACHABLE = (".", "..")
"""Names that a path cannot have: whoever sends it takes them for folders."""


class Decision(enum.IntEnum):
    """What became of a slot."""

    FIRED = 0
    """Its job was made."""
    WAITING = 1
    """Its job was made and waits until the run before it is over."""
    REPLACED = 2
    """Its job was made, and the one before it cancelled."""
    BACKFILLED = 3
    """Its job was made by a backfill."""
    MANUAL = 4
    """Not a slot: a job made by hand, at this instant."""
    OVERLAPPED = 5
    """Skipped: the run before it was not over."""
    MISSED = 6
    """Skipped: too late, by the policy for slots missed."""
    PAUSED = 7
    """Skipped: the schedule was paused."""

    @property
    def word(self) -> str:
        """Its name for people."""
        return self.name.lower()


MADE = (Decision.FIRED, Decision.WAITING, Decision.REPLACED, Decision.BACKFILLED, Decision.MANUAL)
"""Decisions that made a job."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about slots that are late, that overlap, or that bring no success."""

    catch_up: CatchUp = "latest"
    catch_up_max: int = MAX_CATCH_UP
    """How many missed slots `all` makes up for, the newest ones."""
    catch_up_window_s: int | None = None
    """Slots missed longer ago are not made up for."""
    misfire_grace_s: int = MISFIRE_GRACE_S
    """A slot that is later than this counts as missed; every slot inside it fires."""
    overlap: Overlap = "skip"
    expect_within_s: int | None = None
    """Dead-man's switch: a run must have succeeded so long after its slot."""
    start_within_s: int | None = None
    """A job of it that is not started so long after its slot expires."""


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule to store; `None` means absent."""

    id: UUID
    name: str
    task: str
    tenant: str = "default"
    owner: str | None = None
    """The application that declares it."""
    trigger: Trigger | None = None
    """None: run by hand only."""
    start_at: datetime | None = None
    end_at: datetime | None = None
    exclude: tuple[str, ...] = ()
    """Days on which it does not run, by the local date of the slot."""
    jitter_s: int = 0
    policy: Policy = Policy()
    paused: bool = False
    payload: str = "null"
    queue: str = "default"
    labels: tuple[str, ...] = ()
    headers: str | None = None
    tags: tuple[str, ...] = ()
    priority: int = 0
    timeout_s: int | None = 3600
    max_attempts: int = 3
    max_lost: int = 5
    retry: RetryPolicy | None = None
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    defaults: int = 0
    """Which options its author left open: each job gets what its task has when it is made (defaults.py)."""

    @property
    def zone(self) -> str:
        """The zone of its wall clock."""
        return self.trigger.zone if isinstance(self.trigger, Cron) else "UTC"

    @property
    def own_queue(self) -> str | None:
        """The queue that it names; None: its jobs go to the queue of its task, which may change."""
        return None if self.defaults & OPEN["queue"] else self.queue

    def job(self, job_id: UUID, *, slot_at: datetime | None = None) -> NewJob:
        """Return a job that it makes."""
        return NewJob(
            id=job_id,
            task=self.task,
            payload=self.payload,
            tenant=self.tenant,
            queue=self.queue,
            labels=self.labels,
            headers=self.headers,
            tags=self.tags,
            priority=self.priority,
            timeout_s=self.timeout_s,
            max_attempts=self.max_attempts,
            max_lost=self.max_lost,
            retry=self.retry,
            delivery=self.delivery,
            schedule_id=self.id,
            slot_at=slot_at,
            run_at=slot_at,
            defaults=self.defaults,
        )


class Reach(msgspec.Struct, frozen=True):
    """The queues that a caller may touch."""

    queues: frozenset[str]
    queue_of: Callable[[NewSchedule], str] = attrgetter("queue")
    """Where the jobs of a schedule go now."""

    def holds(self, schedule: NewSchedule) -> bool:
        """Say whether the jobs of a stored schedule go to a queue of the caller's."""
        return self.queue_of(schedule) in self.queues


def shard_of(schedule_id: UUID) -> int:
    """Return which part of the schedules it belongs to."""
    return schedule_id.int % SHARDS


def shape_of(schedule: NewSchedule) -> NewSchedule:
    """Return what it has in common with others of its kind: everything but its id, name, trigger and payload."""
    return msgspec.structs.replace(schedule, id=NO_ID, name="-", trigger=None, payload="null")


def check_schedule(schedule: NewSchedule) -> None:
    """Return if it may be stored; InvalidInput or InvalidSchedule names the field that is wrong."""
    check_rules(schedule)
    check_payload(schedule)


def check_payload(schedule: NewSchedule) -> None:
    """Return if its payload may be stored: the one thing that takes longer the larger it is."""
    check_json("payload", schedule.payload)


def check_rules(schedule: NewSchedule) -> None:
    """Return if all but its payload may be stored.

    Of a million that share few triggers and shapes, each of these is looked at once.
    """
    check_name("name", schedule.name)
    if schedule.name in UNREACHABLE:
        raise InvalidInput("name", f"{schedule.name!r} cannot stand in the path of a request. Choose another name.")
    shape = shape_of(schedule)
    try:
        _check_shape_once(shape)
    except TypeError:  # a policy by error type cannot be remembered
        _check_shape(shape)
    _check_trigger_once(schedule.trigger)


@lru_cache(4096)
def _check_trigger_once(trigger: Trigger | None) -> None:
    check_trigger(trigger)
    if isinstance(trigger, At):
        check_instant("at", trigger.at)


@lru_cache(128)
def _check_shape_once(shape: NewSchedule) -> None:
    _check_shape(shape)


def _check_shape(shape: NewSchedule) -> None:
    if shape.owner is not None:
        check_name("owner", shape.owner)
    try:
        validate([shape.job(shape.id)])
    except InvalidInput as problem:
        raise type(problem)(problem.field, problem.problem) from None
    check_exclusions(shape.exclude)
    for field, instant in (("start", shape.start_at), ("end", shape.end_at)):
        check_instant(field, instant)
    if shape.start_at is not None and shape.end_at is not None and shape.end_at < shape.start_at:
        raise InvalidSchedule(
            "end", f"{shape.end_at.isoformat()} is before start, {shape.start_at.isoformat()}. Exchange them."
        )
    policy = shape.policy
    check_range("jitter", shape.jitter_s, 0, 86_400)
    check_range("catch_up_max", policy.catch_up_max, 1, MAX_CATCH_UP)
    check_range("misfire_grace", policy.misfire_grace_s, 1, MAX_SPAN_S)
    for field, span_s in (
        ("catch_up_window", policy.catch_up_window_s),
        ("expect_within", policy.expect_within_s),
        ("start_within", policy.start_within_s),
    ):
        check_range(field, span_s, 1, MAX_SPAN_S)


def trigger_columns(trigger: Trigger | None) -> tuple[int, str | None, str]:
    """Return kind, expression and zone, as a trigger is stored."""
    match trigger:
        case Cron(expression, zone):
            return 1, expression, zone
        case Every(every_s):
            return 2, str(every_s), "UTC"
        case At(at):
            return 3, at.astimezone(UTC).isoformat(), "UTC"
    return 0, None, "UTC"


def trigger_from(kind: int, expression: str | None, zone: str) -> Trigger | None:
    """Return the trigger that is stored so."""
    match kind, expression:
        case 1, str():
            return Cron(expression, zone)
        case 2, str():
            return Every(int(expression))
        case 3, str():
            return At(datetime.fromisoformat(expression))
    return None


def differences(was: NewSchedule, becomes: NewSchedule) -> list[tuple[str, str | None, str | None]]:
    """Return the settings that differ, by the names that a request has for them, as JSON; None where there is none."""
    old, new = _settings(was), _settings(becomes)
    return [(field, _json(old[field]), _json(new[field])) for field in old if old[field] != new[field]]


class _Json(str):
    """A text that is JSON already."""


def _json(value: object) -> str | None:
    if value is None:
        return None
    return str(value) if isinstance(value, _Json) else msgspec.json.encode(value).decode()


def _settings(schedule: NewSchedule) -> dict[str, object]:
    trigger, policy = schedule.trigger, schedule.policy
    attempts, lost = schedule.job(schedule.id).limits
    return {
        "name": schedule.name,
        "owner": schedule.owner,
        "enabled": not schedule.paused,
        "cron": trigger.expression if isinstance(trigger, Cron) else None,
        "every": trigger.every_s if isinstance(trigger, Every) else None,
        "at": trigger.at.astimezone(UTC) if isinstance(trigger, At) else None,
        "timezone": schedule.zone,
        "start": schedule.start_at,
        "end": schedule.end_at,
        "exclude": schedule.exclude,
        "jitter": schedule.jitter_s,
        "task": schedule.task,
        "payload": _Json(schedule.payload),
        "queue": schedule.queue,
        "labels": sorted(set(schedule.labels)),
        "tags": schedule.tags,
        "headers": None if schedule.headers is None else _Json(schedule.headers),
        "priority": schedule.priority,
        "timeout_seconds": schedule.timeout_s,
        "max_attempts": attempts,
        "max_lost": lost,
        "retry_policy": None if schedule.delivery == "at_most_once" else schedule.retry,
        "catch_up": policy.catch_up,
        "catch_up_max": policy.catch_up_max,
        "catch_up_window": policy.catch_up_window_s,
        "misfire_grace": policy.misfire_grace_s,
        "overlap": policy.overlap,
        "expect_within": policy.expect_within_s,
        "start_within": policy.start_within_s,
        "defaults": [option for option, bit in OPEN.items() if schedule.defaults & bit],
    }
