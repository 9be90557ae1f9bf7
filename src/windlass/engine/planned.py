"""A schedule as somebody asks for it, turned into the one that the queue stores, and back into what is shown. Pure.

What is left out comes from the settings. Whatever is wrong is found here, before anything is stored, and named by its
field. What the slots are is computed in queue/cron/; who stores it: schedules.py; who asks: server/schedules.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from windlass.config import Settings
from windlass.durations import parse_duration
from windlass.engine.asked import DELIVERY, QUEUE, attempts_of, left_open, policy_of
from windlass.engine.translate import json_text
from windlass.errors import InvalidInput, InvalidSchedule
from windlass.queue.cron import At, Cron, Every, Trigger, preview, words
from windlass.queue.cursor import base_of, begun
from windlass.queue.defaults import OPEN, Defaults, filled, sources
from windlass.queue.newjob import NewJob, check_instant
from windlass.queue.schedule import MAX_CATCH_UP, MISFIRE_GRACE_S, NewSchedule, Policy, check_rules, check_schedule
from windlass.queue.schedulerows import series_of
from windlass.wire import schedules as wire
from windlass.wire.base import Span
from windlass.wire.jobs import Delivery
from windlass.wire.people import Pause

if TYPE_CHECKING:
    from windlass.queue.schedules import Schedule

DAY_S = 86_400
MAX_JITTER_S = DAY_S
PATH_WORDS = frozenset({"batch", "declared", "preview"})
"""Names that stand in the paths of the API themselves."""
_KINDS: dict[type[Any], str] = {Cron: "cron", Every: "every", At: "at"}
Value = TypeVar("Value")
Hide = Callable[[str], Raw]
"""Return JSON without the secrets in it."""


def new_schedule(
    asked: wire.ScheduleRequest,
    settings: Settings,
    *,
    schedule_id: UUID,
    tenant: str,
    owner: str | None = None,
    check: Callable[[NewSchedule], None] = check_schedule,
) -> NewSchedule:
    """Return the schedule to store; InvalidInput or InvalidSchedule names the field that cannot be accepted.

    `check` is which rules are looked at: all, or all but the payload's.
    """
    jobs = settings.jobs
    timeout_s = jobs.timeout_seconds if isinstance(asked.timeout_seconds, UnsetType) else asked.timeout_seconds
    schedule = NewSchedule(
        id=schedule_id,
        name=asked.name,
        task=asked.task,
        tenant=tenant,
        owner=owner,
        trigger=trigger_of(asked),
        start_at=_instant("start", asked.start),
        end_at=_instant("end", asked.end),
        exclude=tuple(asked.exclude),
        jitter_s=_jitter_s(asked.jitter),
        policy=_policy(asked, settings),
        paused=asked.enabled is False,
        payload=json_text("payload", asked.payload, longest=jobs.max_payload_bytes) or "null",
        queue=asked.queue or QUEUE,
        labels=() if isinstance(asked.labels, UnsetType) else asked.labels,
        headers=_headers(asked.headers),
        tags=() if isinstance(asked.tags, UnsetType) else asked.tags,
        priority=jobs.priority if asked.priority is None else asked.priority,
        timeout_s=None if timeout_s is None else math.ceil(timeout_s),
        max_attempts=attempts_of(asked.max_attempts, asked.max_retries, usual=jobs.max_attempts),
        max_lost=asked.max_lost or jobs.max_lost,
        retry=policy_of(asked.retry_policy, settings.retry),
        delivery=asked.delivery or DELIVERY,
        defaults=left_open(asked) | (OPEN["start_deadline"] if asked.start_within is None else 0),
    )
    check(schedule)
    _check_name(schedule)
    return schedule


def previewed(asked: wire.TriggerRequest, *, schedule_id: UUID) -> NewSchedule:
    """Return a schedule that is looked at and not stored: only its times are of interest."""
    schedule = NewSchedule(
        id=schedule_id,
        name="preview",
        task="preview",
        trigger=trigger_of(asked),
        start_at=_instant("start", asked.start),
        end_at=_instant("end", asked.end),
        exclude=tuple(asked.exclude),
        jitter_s=_jitter_s(asked.jitter),
    )
    check_schedule(schedule)
    return schedule


def patched(was: NewSchedule, asked: wire.SchedulePatch, settings: Settings) -> NewSchedule:
    """Return the schedule with what a patch changes; null leaves it open again, or is nothing at all."""
    jobs = settings.jobs
    timeout_s = _chosen(asked.timeout_seconds, was.timeout_s, None)
    fields: dict[str, Any] = {
        **{name: _chosen(getattr(asked, name), getattr(was, name), None) for name in ("name", "task")},
        "queue": _chosen(asked.queue, was.queue, QUEUE),
        "defaults": _patched_defaults(was, asked),
        **{
            name: tuple(_chosen(getattr(asked, name), getattr(was, name), ())) for name in ("exclude", "labels", "tags")
        },
        "trigger": _patched_trigger(was.trigger, asked),
        "start_at": _instant("start", _chosen(asked.start, was.start_at, None)),
        "end_at": _instant("end", _chosen(asked.end, was.end_at, None)),
        "jitter_s": was.jitter_s if asked.jitter is UNSET else _jitter_s(_chosen(asked.jitter, None, None)),
        "policy": _patched_policy(was.policy, asked, settings),
        "paused": was.paused if asked.enabled is UNSET else not asked.enabled,
        "payload": json_text("payload", asked.payload, longest=jobs.max_payload_bytes) or was.payload,
        "priority": _chosen(asked.priority, was.priority, jobs.priority),
        "timeout_s": None if timeout_s is None else math.ceil(timeout_s),
        "max_lost": _chosen(asked.max_lost, was.max_lost, jobs.max_lost),
    }
    if asked.max_attempts is not UNSET or asked.max_retries is not UNSET:
        most, retries = _chosen(asked.max_attempts, None, None), _chosen(asked.max_retries, None, None)
        fields["max_attempts"] = attempts_of(most, retries, usual=jobs.max_attempts)
    if asked.headers is not UNSET:
        fields["headers"] = _headers(_chosen(asked.headers, None, None))
    if asked.retry_policy is not UNSET:
        fields["retry"] = policy_of(_chosen(asked.retry_policy, None, None), settings.retry)
    if asked.delivery is not UNSET:
        fields["delivery"] = asked.delivery
        if asked.delivery != _delivery(was.job(was.id)) == "at_most_once":
            fields.setdefault("max_attempts", jobs.max_attempts)
            fields["max_lost"] = _chosen(asked.max_lost, jobs.max_lost, jobs.max_lost)
    schedule = msgspec.structs.replace(was, **fields)
    check_rules(schedule)
    _check_name(schedule)
    return schedule


def _patched_defaults(was: NewSchedule, asked: wire.SchedulePatch) -> int:
    """Return which options are open after a patch: those that it sets to null, and none that it names."""
    found = was.defaults
    given = {option: getattr(asked, option, UNSET) for option in OPEN} | {"start_deadline": asked.start_within}
    if asked.max_retries is not UNSET:
        given["max_attempts"] = asked.max_retries
    if asked.delivery == "at_most_once":
        given |= dict.fromkeys(("max_attempts", "max_lost", "retry_policy"), asked.delivery)
    elif asked.delivery is not UNSET and _delivery(was.job(was.id)) == "at_most_once":
        given |= {option: None for option in ("max_attempts", "max_lost") if given[option] is UNSET}
    for option, value in given.items():
        if value is not UNSET:
            is_open = value is None and option != "timeout_seconds"
            found = found | OPEN[option] if is_open else found & ~OPEN[option]
    return found


def trigger_of(asked: wire.TriggerRequest) -> Trigger | None:
    """Return the trigger that is asked for; None: by hand only. InvalidSchedule if there are two."""
    given = [name for name in ("cron", "every", "at") if getattr(asked, name) is not None]
    if len(given) > 1:
        raise InvalidSchedule(given[1], f"it is given beside {given[0]}. Give one of cron, every and at.")
    if asked.cron is not None:
        return Cron(asked.cron, asked.timezone or "UTC")
    if asked.timezone is not None:
        raise InvalidSchedule(
            "timezone", "it is for cron: every counts elapsed time, and at is an instant. Leave it out, or give cron."
        )
    if asked.every is not None:
        return Every(_every_s(asked.every))
    return None if (at := _instant("at", asked.at)) is None else At(at)


def check_fires(schedule: NewSchedule, *, now: datetime) -> None:
    """Return if some slot is left; InvalidSchedule if start, end and the days left out leave none."""
    begun(schedule, base_at=base_of(schedule, now), now=now)


def slots_after(
    schedule: NewSchedule,
    instant: datetime,
    *,
    base_at: datetime,
    count: int,
) -> list[wire.ShownSlot]:
    """Return the next `count` slots later than an instant; none of a schedule that is run by hand only."""
    slots = series_of(schedule, base_at)
    if slots is None:
        return []
    late = timedelta(seconds=slots.offset_s)
    return [
        wire.ShownSlot(slot_at=slot.slot_at, due_at=slot.slot_at + late, local=slot.local, mark=slot.mark)
        for slot in preview(slots, instant, count=count)
    ]


def described(trigger: Trigger | None) -> str:
    """Return a trigger in words."""
    return "by hand only" if trigger is None else words(trigger)


def shown(schedule: Schedule, *, given: Defaults, hide: Hide) -> wire.Schedule:
    """Return a schedule with what its task gives, as it is shown: without the secrets in its payload and headers."""
    it, policy, pause = schedule.definition, schedule.definition.policy, schedule.pause
    trigger = it.trigger
    return wire.Schedule(
        **{name: getattr(it, name) for name in ("id", "name", "tenant", "owner", "task")},
        **_shown_options(filled(it.job(it.id), given), hide),
        exclude=list(it.exclude),
        payload=hide(it.payload),
        cron=trigger.expression if isinstance(trigger, Cron) else None,
        every_seconds=trigger.every_s if isinstance(trigger, Every) else None,
        at=trigger.at if isinstance(trigger, At) else None,
        timezone=it.zone,
        words=described(trigger),
        start=it.start_at,
        end=it.end_at,
        jitter_seconds=it.jitter_s,
        enabled=not it.paused,
        paused=it.paused,
        pause=None
        if pause is None
        else Pause(
            of=pause.of, reason=pause.reason, actor=pause.actor, paused_at=pause.paused_at, until=pause.resume_at
        ),
        status=status_of(schedule),
        next_run_at=schedule.next_at,
        last_run_at=schedule.last_at,
        catch_up=policy.catch_up,
        catch_up_max=policy.catch_up_max,
        catch_up_window_seconds=policy.catch_up_window_s,
        misfire_grace_seconds=policy.misfire_grace_s,
        overlap=policy.overlap,
        expect_within_seconds=policy.expect_within_s,
        start_within_seconds=_start_within_s(it, given),
        missing=schedule.missing_at is not None,
        waiting_jobs=schedule.waiting_count,
        version=schedule.version,
        created_at=schedule.created_at,
        updated_at=schedule.changed_at,
    )


def _shown_options(job: NewJob, hide: Hide) -> dict[str, Any]:
    """Return the options of a schedule's jobs as they are shown."""
    attempts, lost = job.limits
    return {
        "queue": job.queue,
        "priority": job.priority,
        "timeout_seconds": job.timeout_s,
        "max_attempts": attempts,
        "max_retries": attempts - 1,
        "max_lost": lost,
        "delivery": _delivery(job),
        "retry_policy": None if job.retry is None else Raw(msgspec.json.encode(job.retry)),
        "labels": list(job.labels),
        "tags": list(job.tags),
        "headers": None if job.headers is None else hide(job.headers),
        "defaults": sources(job.defaults),
    }


def _start_within_s(schedule: NewSchedule, given: Defaults) -> int | None:
    if schedule.defaults & OPEN["start_deadline"] and given.start_within_s is not None:
        return max(1, math.ceil(given.start_within_s))
    return schedule.policy.start_within_s


def status_of(schedule: Schedule) -> Literal["active", "paused", "ended", "manual"]:
    """Return how a schedule stands, in a word."""
    if schedule.definition.paused:
        return "paused"
    if schedule.definition.trigger is None:
        return "manual"
    return "ended" if schedule.next_at is None else "active"


def _check_name(schedule: NewSchedule) -> None:
    if schedule.name in PATH_WORDS:
        raise InvalidInput("name", f"{schedule.name!r} is a word of this API's paths. Choose another name.")
    try:
        UUID(schedule.name)
    except ValueError:
        return
    raise InvalidInput("name", f"{schedule.name!r} looks like an id, by which another could be meant. Choose a name.")


def _delivery(job: NewJob) -> Delivery:
    """Return how a job is delivered: what is never run again, whatever happens, at most once."""
    return "at_most_once" if job.limits == (1, 1) else "at_least_once"


def _chosen(given: Value | UnsetType | None, was: Value, usual: Value) -> Value:
    """Return what a patch makes of a setting."""
    if isinstance(given, UnsetType):
        return was
    return usual if given is None else given


def _patched_trigger(was: Trigger | None, asked: wire.SchedulePatch) -> Trigger | None:
    given = {name: value for name in ("cron", "every", "at") if (value := getattr(asked, name)) is not UNSET}
    new = {name: value for name, value in given.items() if value is not None}
    zone = was.zone if isinstance(was, Cron) else None
    timezone = _chosen(asked.timezone, zone if "cron" in new or not new else None, None)
    if new:
        return trigger_of(wire.TriggerRequest(**new, timezone=timezone))
    if _KINDS.get(type(was)) in given:
        was = None
    if isinstance(was, Cron):
        return Cron(was.expression, timezone or "UTC")
    if asked.timezone is not UNSET and asked.timezone is not None:
        raise InvalidSchedule("timezone", "it is for cron, which this schedule does not go by. Give cron too.")
    return was


def _policy(asked: wire.ScheduleRequest, settings: Settings) -> Policy:
    return Policy(
        catch_up=asked.catch_up or settings.schedules.catch_up,
        catch_up_max=asked.catch_up_max or MAX_CATCH_UP,
        catch_up_window_s=_span_s("catch_up_window", asked.catch_up_window),
        misfire_grace_s=_span_s("misfire_grace", asked.misfire_grace) or MISFIRE_GRACE_S,
        overlap=asked.overlap or settings.schedules.overlap,
        expect_within_s=_within_s(asked.expect_within, settings),
        start_within_s=_span_s("start_within", asked.start_within),
    )


def _patched_policy(was: Policy, asked: wire.SchedulePatch, settings: Settings) -> Policy:
    spans: dict[str, Any] = {}
    for name, usual in (
        ("catch_up_window", None),
        ("misfire_grace", MISFIRE_GRACE_S),
        ("start_within", None),
    ):
        if (span := getattr(asked, name)) is not UNSET:
            spans[f"{name}_s"] = usual if span is None else _span_s(name, span)
    if asked.expect_within is not UNSET:
        spans["expect_within_s"] = _within_s(asked.expect_within, settings)
    return msgspec.structs.replace(
        was,
        catch_up=_chosen(asked.catch_up, was.catch_up, settings.schedules.catch_up),
        catch_up_max=_chosen(asked.catch_up_max, was.catch_up_max, MAX_CATCH_UP),
        overlap=_chosen(asked.overlap, was.overlap, settings.schedules.overlap),
        **spans,
    )


def _instant(field: str, instant: datetime | None) -> datetime | None:
    check_instant(field, instant)
    return None if instant is None else instant.astimezone(UTC)


def _span_s(field: str, span: Span | None) -> int | None:
    """Return a span in whole seconds, none shorter than what was said."""
    return None if span is None else math.ceil(parse_duration(span, field))


def _within_s(span: Span | None, settings: Settings) -> int | None:
    """Return by when a run is expected; InvalidSchedule if it may have been forgotten by then."""
    within_s, days = _span_s("expect_within", span), settings.retention.days
    longest_s = round(max(days - 2, days / 2) * DAY_S)
    if within_s is not None and days and within_s > longest_s:
        raise InvalidSchedule(
            "expect_within",
            f"{within_s} s is longer than {longest_s} s, as long as a run is surely known: history is kept for {days} "
            "days (retention.days). Give less, or raise that setting.",
        )
    return within_s


def _every_s(span: Span) -> int:
    try:
        seconds = parse_duration(span, "every")
    except InvalidInput as problem:
        raise InvalidSchedule("every", problem.problem) from None
    if seconds != int(seconds) or seconds < 1:
        raise InvalidSchedule("every", f"{seconds:g} s is no interval: it goes by whole seconds, from 1 s on.")
    return int(seconds)


def _jitter_s(span: Span | None) -> int:
    seconds = _span_s("jitter", span) or 0
    if seconds > MAX_JITTER_S:
        raise InvalidSchedule("jitter", f"{seconds} s is more than {MAX_JITTER_S} s, a day. Give less.")
    return seconds


def _headers(headers: dict[str, str] | None) -> str | None:
    return None if headers is None else msgspec.json.encode(headers).decode()
