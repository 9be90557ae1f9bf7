"""How a schedule is stored, and how it is read back. Pure.

A definition is one row of `schedule`; delivery and limits are kept as the figures its jobs get, so that firing.py can
make a job from the row alone. When it fires is beside it, in `schedule_next` (cursor.py); written by schedulewrites.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from windlass.db import Row
from windlass.queue.cron import Series, series
from windlass.queue.queues import Pause
from windlass.queue.retry import policy_from_json, policy_to_json
from windlass.queue.schedule import CATCH_UPS, OVERLAPS, NewSchedule, Policy, trigger_columns, trigger_from

OWN_COLUMNS = "id name kind expression zone payload".split()
"""What differs from schedule to schedule, in the order of `own_columns_of`."""
SHAPE_COLUMNS = (
    "tenant owner start_at end_at exclude task headers tags queue labels priority max_attempts "
    "max_lost timeout_s retry start_within_s catch_up catch_up_max catch_up_window_s misfire_grace_s overlap jitter_s "
    "expect_within_s paused defaults"
).split()
"""What many of them share, in the order of `shape_columns_of`."""

_CATCH_UPS = {word: number for number, word in enumerate(CATCH_UPS)}
_OVERLAPS = {word: number for number, word in enumerate(OVERLAPS)}


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is stored, and how far it is."""

    definition: NewSchedule
    version: int
    """Raised by every edit, pause and resume."""
    base_at: datetime
    """What an interval without a start counts from."""
    created_at: datetime
    changed_at: datetime
    next_at: datetime | None
    """When the next slot is due; None: paused, by hand only, or never again."""
    last_at: datetime | None
    """The last slot that was decided."""
    waiting_count: int
    missing_at: datetime | None
    """Since when a run that was expected is missing."""
    pause: Pause | None

    @property
    def id(self) -> UUID:
        """What its jobs and slots name it by."""
        return self.definition.id

    def series(self) -> Series | None:
        """Return its slots; None if it is run by hand only."""
        return series_of(self.definition, self.base_at)


def series_of(schedule: NewSchedule, base_at: datetime) -> Series | None:
    """Return the slots of a definition; None if it is run by hand only."""
    if schedule.trigger is None:
        return None
    return series(
        schedule.trigger,
        schedule_id=schedule.id,
        base_at=base_at,
        start_at=schedule.start_at,
        end_at=schedule.end_at,
        exclude=schedule.exclude,
        jitter_s=schedule.jitter_s,
    )


def own_columns_of(schedule: NewSchedule) -> tuple[Any, ...]:
    """Return the values of OWN_COLUMNS."""
    return schedule.id, schedule.name, *trigger_columns(schedule.trigger), schedule.payload


def shape_columns_of(schedule: NewSchedule) -> tuple[Any, ...]:
    """Return the values of SHAPE_COLUMNS."""
    policy = schedule.policy
    job = schedule.job(schedule.id)
    return (
        schedule.tenant,
        schedule.owner,
        _utc(schedule.start_at),
        _utc(schedule.end_at),
        _json(schedule.exclude),
        schedule.task,
        schedule.headers,
        _json(schedule.tags),
        schedule.queue,
        job.lane.labels,
        schedule.priority,
        *job.limits,
        schedule.timeout_s,
        None if schedule.delivery == "at_most_once" else policy_to_json(schedule.retry),
        policy.start_within_s,
        _CATCH_UPS[policy.catch_up],
        policy.catch_up_max,
        policy.catch_up_window_s,
        policy.misfire_grace_s,
        _OVERLAPS[policy.overlap],
        schedule.jitter_s,
        policy.expect_within_s,
        int(schedule.paused),
        schedule.defaults,
    )


def definition_from(row: Mapping[str, Any]) -> NewSchedule:
    """Return the definition in `row`."""
    return NewSchedule(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        owner=row["owner"],
        trigger=trigger_from(row["kind"], row["expression"], row["zone"]),
        start_at=row["start_at"],
        end_at=row["end_at"],
        exclude=_texts(row["exclude"]),
        task=row["task"],
        payload=row["payload"],
        headers=row["headers"],
        tags=_texts(row["tags"]),
        queue=row["queue"],
        labels=tuple(filter(None, row["labels"].split(","))),
        priority=row["priority"],
        max_attempts=row["max_attempts"],
        max_lost=row["max_lost"],
        timeout_s=row["timeout_s"],
        retry=None if row["retry"] is None else policy_from_json(row["retry"]),
        jitter_s=row["jitter_s"],
        defaults=row["defaults"],
        paused=bool(row["paused"]),
        policy=Policy(
            catch_up=CATCH_UPS[row["catch_up"]],
            catch_up_max=row["catch_up_max"],
            catch_up_window_s=row["catch_up_window_s"],
            misfire_grace_s=row["misfire_grace_s"],
            overlap=OVERLAPS[row["overlap"]],
            expect_within_s=row["expect_within_s"],
            start_within_s=row["start_within_s"],
        ),
    )


def as_stored(schedule: NewSchedule) -> NewSchedule:
    """Return the definition as it is read back: two that are stored alike are equal."""
    values = (*own_columns_of(schedule), *shape_columns_of(schedule))
    return definition_from(dict(zip((*OWN_COLUMNS, *SHAPE_COLUMNS), values, strict=True)))


def schedule_from(row: Row) -> Schedule:
    """Return the schedule in `row`."""
    pause = None
    if row["paused_at"] is not None:
        pause = Pause(
            of="schedule",
            reason=row["pause_reason"],
            actor=row["pause_actor"],
            paused_at=row["paused_at"],
            resume_at=row["resume_at"],
        )
    return Schedule(
        definition=definition_from(row),
        version=row["version"],
        base_at=row["base_at"],
        created_at=row["created_at"],
        changed_at=row["changed_at"],
        next_at=row["next_at"],
        last_at=row["last_at"],
        waiting_count=row["waiting_count"],
        missing_at=row["missing_at"],
        pause=pause,
    )


def _utc(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.astimezone(UTC)


def _json(texts: tuple[str, ...]) -> str | None:
    return msgspec.json.encode(texts).decode() if texts else None


def _texts(stored: str | None) -> tuple[str, ...]:
    return () if stored is None else msgspec.json.decode(stored, type=tuple[str, ...])
