"""The options of a schedule: its window, its policies, and what its jobs get. Pure.

What the task or the call has of its own (options.py) goes to the jobs of the schedule; what is said here lies over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
from msgspec import Raw

from windlass.client.options import Delivery, JobOptions, Options, Retry, Span, check_not_yet, read_option
from windlass.client.triggers import Trigger, aware
from windlass.durations import parse_duration
from windlass.errors import InvalidInput
from windlass.wire.problems import named_problem
from windlass.wire.schedules import CatchUp, Overlap, ScheduleRequest

if TYPE_CHECKING:
    from windlass.client.task import Call


class ScheduleChanges(TypedDict, total=False):
    """What may be changed of a schedule; None takes a setting away."""

    start: datetime | None
    end: datetime | None
    exclude: Iterable[str | date]
    jitter: Span | None
    catch_up: CatchUp | None
    catch_up_max: int | None
    catch_up_window: Span | None
    misfire_grace: Span | None
    overlap: Overlap | None
    expect_within: Span | None
    start_within: Span | None
    enabled: bool
    queue: str
    priority: int | None
    timeout: Span | None
    max_attempts: int | None
    max_retries: int
    max_lost: int | None
    retry: Retry | None
    labels: Iterable[str]
    tags: Iterable[str]
    headers: Mapping[str, str] | None


class ScheduleOptions(ScheduleChanges, total=False):
    """What may be said of a new schedule: the rest besides its task, trigger and name."""

    delivery: Delivery
    tenant: str | None


_REQUESTS = msgspec.json.Decoder(ScheduleRequest)
_UNFIT = {
    "delay": "the trigger says when. Use jitter to spread jobs, and .options(delay=None) here.",
    "run_at": "the trigger says when. Use the trigger at(…), and .options(run_at=None) here.",
    "idempotency_key": "each slot is a job of its own, once. Use .options(idempotency_key=None) here.",
    "unique": "overlap says what to do while the run before lives. Use .options(unique=False) here.",
    "unique_key": "overlap says what to do while the run before lives. Use .options(unique_key=None) here.",
    "unique_for": "overlap says what to do while the run before lives. Use .options(unique_for=None) here.",
}
"""Options of one job that make no sense for a series of them."""


def new_fields(call: Call[Any], trigger: Trigger | None, *, name: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schedule to store as the API wants it; InvalidInput for an option that no schedule can have."""
    _check(said, ScheduleOptions.__annotations__)
    own = {field: value for field, value in _own(said).items() if value is not None}
    of_jobs = call.options.over(**{name: value for name, value in said.items() if name in JobOptions.__annotations__})
    job = {**_job_fields(of_jobs), "task": call.name, "payload": Raw(call.payload)}
    fields = {"name": name, **({} if trigger is None else trigger.fields()), **job, **own}
    check_fields(fields)
    return fields


def check_fields(fields: Mapping[str, Any]) -> None:
    """Return if a server can read the schedule; InvalidInput says in its words why not."""
    try:
        _REQUESTS.decode(msgspec.json.encode(fields))
    except msgspec.ValidationError as error:
        raise named_problem(error) from None
    except (TypeError, ValueError) as error:
        raise InvalidInput("schedule", f"it is no JSON: {error}.") from None
    if exclude := fields.get("exclude"):
        from windlass.queue.cron import check_exclusions

        check_exclusions(exclude)


def changed_fields(trigger: Trigger | None, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what to change of a schedule as the API wants it; a trigger is changed as a whole."""
    _check(said, ScheduleChanges.__annotations__)
    changes = {} if trigger is None else trigger.fields()
    for name, value in said.items():
        if name in JobOptions.__annotations__:
            changes |= read_option(name, value)
    return changes | _own(said)


def window_fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return start, end, exclude and jitter as the API wants them."""
    _check(said, ("start", "end", "exclude", "jitter"))
    return {field: value for field, value in _own(said).items() if value is not None}


def _job_fields(options: Options) -> dict[str, Any]:
    for name, why in _UNFIT.items():
        if getattr(options, name) not in (None, False):
            raise InvalidInput(name, f"a schedule cannot have it: {why}")
    if isinstance(options.start_deadline, datetime):
        raise InvalidInput("start_deadline", "of a schedule it must be a span, after each slot. Use start_within=….")
    silent = (None, msgspec.UNSET)
    found = {name: value for name in options.__struct_fields__ if (value := getattr(options, name)) not in silent}
    for name in (*_UNFIT, "start_deadline", "cleared"):
        found.pop(name, None)
    if options.start_deadline is not None:
        found["start_within"] = options.start_deadline
    if options.timeout_seconds is None:
        found["timeout_seconds"] = None
    return found


def _check(said: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in said:
        check_not_yet(name)
        if name not in known:
            raise TypeError(f"There is no option {name!r} here; there are {', '.join(known)}.")


def _own(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if value is None else _READ[name](name, value) for name, value in said.items() if name in _READ}


def _span(name: str, value: Any) -> float:
    return parse_duration(value, name)


def _same(name: str, value: Any) -> Any:
    return value


def _days(name: str, value: Any) -> list[str]:
    if isinstance(value, str):
        raise InvalidInput(name, f"{value!r} is one text; give a list of days.")
    return [item.isoformat() if type(item) is date else item for item in value]


_READ: Mapping[str, Callable[[str, Any], Any]] = {
    "start": aware,
    "end": aware,
    "exclude": _days,
    "jitter": _span,
    "catch_up": _same,
    "catch_up_max": _same,
    "catch_up_window": _span,
    "misfire_grace": _span,
    "overlap": _same,
    "expect_within": _span,
    "start_within": _span,
    "enabled": _same,
}
