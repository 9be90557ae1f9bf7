"""The options of a job: when, where and how often it runs. Immutable; spans are read as people write them. Pure.

A task has some from its decorator, `.options(...)` lays others over them, and each call takes what is then there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict, get_args

import msgspec
from msgspec import UNSET, UnsetType

from windlass.client.problems import refuse
from windlass.durations import parse_duration
from windlass.errors import InvalidInput
from windlass.job import GivenOption, unique_key_of
from windlass.wire.base import NOT_YET
from windlass.wire.jobs import JobRequest, Policy
from windlass.wire.problems import named_problem
from windlass.wire.tasks import TaskDefaults

Span = str | float | timedelta
"""`"90s"`, `"1h30m"`, seconds, or a timedelta."""
MAX_RETRIES = 999
Delivery = Literal["at_least_once", "at_most_once"]
Retry = str | Mapping[str, Any] | Policy
"""The name of a preset (default, immediate, stepped), or a policy as the API has it."""


class JobOptions(TypedDict, total=False):
    """What may be said of a job, by task, by `.options(...)`, or by name."""

    queue: str
    priority: int
    delay: Span | None
    run_at: datetime | None
    timeout: Span | None
    max_attempts: int
    max_retries: int
    max_lost: int
    retry: Retry
    delivery: Delivery
    idempotency_key: str | None
    unique: bool
    unique_key: str | None
    unique_for: Span | None
    start_deadline: datetime | Span | None
    labels: Iterable[str]
    tags: Iterable[str]
    headers: Mapping[str, str] | None
    tenant: str | None


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options as they were read: spans in seconds, None or UNSET where nothing was said."""

    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    timeout_seconds: float | UnsetType | None = UNSET
    """None: no limit."""
    max_attempts: int | None = None
    max_lost: int | None = None
    retry_policy: Policy | str | None = None
    delivery: Delivery | None = None
    idempotency_key: str | None = None
    unique: bool = False
    """No second job of the task with the same arguments, while the first lives or for `unique_for`."""
    unique_key: str | None = None
    unique_for: float | None = None
    start_deadline: datetime | float | None = None
    """An instant, or seconds from the submit."""
    labels: tuple[str, ...] | UnsetType = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    headers: dict[str, str] | None = None
    tenant: str | None = None
    cleared: frozenset[str] = frozenset()
    """Options that were taken away again: servers do not fill them in from the task."""

    def over(self, **said: Any) -> Options:
        """Return these options with others laid over them; InvalidInput or TypeError for what cannot be read."""
        changes: dict[str, Any] = {}
        for name, value in said.items():
            check_not_yet(name)
            if name not in JobOptions.__annotations__:
                raise TypeError(f"There is no option {name!r}; there are {', '.join(JobOptions.__annotations__)}.")
            try:
                changes |= checked(name, value)
            except InvalidInput as error:
                refuse(error)
        empty = {_KNOWN_AS.get(name, name) for name, value in changes.items() if value is None or value is False}
        said_now = {_KNOWN_AS.get(name, name) for name in changes} - empty
        cleared = (self.cleared | empty & _FILLED_IN) - said_now
        if changes.get("delay") is not None and changes.get("run_at") is not None:
            raise InvalidInput("delay", "run_at is given too. Give one of them.")
        # The one said later counts.
        for one, other in (("delay", "run_at"), ("run_at", "delay")):
            if changes.get(one) is not None:
                changes.setdefault(other, None)
        return msgspec.structs.replace(self, **changes, cleared=frozenset(cleared))

    def fields(self, task: str, payload: bytes) -> dict[str, Any]:
        """Return what a request for this job says besides task and payload."""
        found = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) not in _SILENT}
        found.pop("unique", None)
        found.pop("cleared", None)
        if self.cleared:
            found["without"] = sorted(self.cleared)
        if self.timeout_seconds is None:
            found["timeout_seconds"] = None
        if isinstance(self.start_deadline, float):
            found["start_within"] = found.pop("start_deadline")
        if (self.unique or self.unique_for is not None) and self.unique_key is None:
            found["unique_key"] = unique_key_of(task, payload)
        return found

    def published(self) -> TaskDefaults:
        """Return what servers give the jobs of a task that has these options, where a submit leaves them open.

        Left out is what is of one job only: whose it is, its idempotency key, an instant.
        """
        names = TaskDefaults.__struct_fields__
        found = {name: value for name in names if (value := getattr(self, name, None)) not in _SILENT}
        if self.timeout_seconds is None:
            found["timeout_seconds"] = None
        if isinstance(self.start_deadline, float):
            found["start_within"] = self.start_deadline
        found["unique"] = self.unique_key is None and (self.unique or self.unique_for is not None)
        return TaskDefaults(**found)


_SILENT = (None, UNSET)
_NOT_SENT = ("unique", "start_deadline")
"""Options that become something else when a job is sent."""
_KNOWN_AS = {"unique": "unique_key"}
"""Names of options in requests, where they differ from those in Python."""
_FILLED_IN = frozenset(get_args(GivenOption)) - {"timeout_seconds"}
"""Options that servers fill in from the task where a request leaves them out; a time limit is taken away by null."""
_REQUESTS = msgspec.json.Decoder(JobRequest)


def check_not_yet(name: str) -> None:
    """Return unless the option is one that jobs cannot have yet; InvalidInput says so."""
    if name in NOT_YET:
        raise InvalidInput(name, NOT_YET[name])


def checked(name: str, value: Any) -> dict[str, Any]:
    """Return what an option says in the API; InvalidInput in the words of the server if it would refuse that."""
    read = read_option(name, value)
    [(field, said)] = read.items()
    if said not in _SILENT and field not in _NOT_SENT and not isinstance(said, datetime):
        _check(name, field, said)
    return read


def _check(name: str, field: str, said: Any) -> None:
    try:
        # As it is sent: what a server decodes from it, and what it refuses, is the same here.
        _REQUESTS.decode(msgspec.json.encode({"task": "-", field: said}))
    except msgspec.ValidationError as error:
        problem = named_problem(error)
        raise InvalidInput(f"{name}{problem.field.removeprefix(field)}", problem.problem) from None
    except (TypeError, ValueError) as error:
        raise InvalidInput(name, f"it is no JSON: {error}.") from None


def read_option(name: str, value: Any) -> dict[str, Any]:
    """Return what an option says in the API, under the name that it has there; InvalidInput if it cannot be read."""
    field, read = _READ.get(name, (name, _same))
    return {field: read(name, value)}


def _same(name: str, value: Any) -> Any:
    return value


def _span(name: str, value: Any) -> float | None:
    return None if value is None else parse_duration(value, name)


def _timeout(name: str, value: Any) -> float | None:
    seconds = _span(name, value)
    if seconds is not None and seconds < 1:
        raise InvalidInput(name, f"{value} is less than a second, the shortest that is kept. None: no limit.")
    return seconds


def _instant(name: str, value: Any) -> datetime | None:
    if value is not None and not isinstance(value, datetime):
        raise InvalidInput(name, f"{value!r} is no datetime. Use `delay` for a span.")
    # A time without a zone means the local one, as datetime itself takes it.
    return None if value is None else value.astimezone(UTC)


def _deadline(name: str, value: Any) -> datetime | float | None:
    return _instant(name, value) if isinstance(value, datetime) else _span(name, value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidInput(name, f"{value!r} is one text; give a list of names.")
    return tuple(value)


def _attempts(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_RETRIES:
        raise InvalidInput(name, f"{value!r} is no number of retries; give 0 to {MAX_RETRIES}.")
    return value + 1


def _policy(name: str, value: Any) -> Policy | str | None:
    if value is None or isinstance(value, str | Policy):
        return value
    if not isinstance(value, Mapping):
        raise InvalidInput(name, f"{value!r} is neither the name of a preset nor a policy.")
    said = _in_seconds(value)
    said.update({"kind": said.pop("backoff")} if "backoff" in said else {})
    try:
        return msgspec.convert(said, Policy)
    except msgspec.ValidationError as error:
        raise InvalidInput(name, f"it is no retry policy: {error}.") from None


def _in_seconds(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {name: _in_seconds(item) for name, item in value.items()}
    return [_in_seconds(item) for item in value] if isinstance(value, list | tuple) else value


_READ: Mapping[str, tuple[str, Any]] = {
    "delay": ("delay", _span),
    "run_at": ("run_at", _instant),
    "timeout": ("timeout_seconds", _timeout),
    "max_retries": ("max_attempts", _attempts),
    "retry": ("retry_policy", _policy),
    "unique_for": ("unique_for", _span),
    "start_deadline": ("start_deadline", _deadline),
    "labels": ("labels", _names),
    "tags": ("tags", _names),
}
