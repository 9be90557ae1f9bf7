"""What a task takes, as its workers publish it: its arguments with the JSON types of their values, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from windlass.wire.base import Body, Key, Name, PositiveSpan, Span
from windlass.wire.jobs import Attempts, Delivery, Names, Policy, Preset, Priority, Timeout

MOST_TASKS = 1000
"""That one worker may serve: it names them in each claim."""
JsonType = Literal["null", "boolean", "integer", "number", "string", "array", "object"]
JsonTypes = Annotated[tuple[JsonType, ...], Meta(max_length=7)]


class Parameter(Body, frozen=True, kw_only=True):
    """One argument of a task."""

    types: JsonTypes | None = None
    """Null: any value."""
    required: bool = False


class TaskDefaults(Body, frozen=True, kw_only=True, omit_defaults=True):
    """What the jobs of a task get for the options that their submit leaves open."""

    queue: Name | None = None
    priority: Priority | None = None
    delay: Span | None = None
    timeout_seconds: Timeout | UnsetType | None = UNSET
    """Null: no limit."""
    max_attempts: Attempts | None = None
    max_lost: Attempts | None = None
    retry_policy: Policy | Preset | None = None
    delivery: Delivery | None = None
    unique: bool = False
    """No second job with the same arguments, while the first lives or for `unique_for`."""
    unique_key: Key | None = None
    unique_for: PositiveSpan | None = None
    start_within: Span | None = None
    """The start deadline, counted from the submit, or from the slot of a schedule."""
    labels: Names | None = None
    tags: Names | None = None
    headers: dict[str, str] | None = None


class Signature(Body, frozen=True, kw_only=True):
    """The arguments of a task, and the options of its jobs."""

    parameters: Annotated[dict[Name, Parameter], Meta(max_length=255)] = msgspec.field(default_factory=dict)
    extra: bool = False
    """Names that are not listed are taken too."""
    single: bool = False
    """A payload that is no object is allowed: it is the only argument."""
    single_types: JsonTypes | None = None
    """Of such a payload. Null: any value, or those of the parameter if there is only one."""
    defaults: TaskDefaults = TaskDefaults()


def read_signatures(published: Mapping[str, msgspec.Raw]) -> dict[str, Signature]:
    """Return signatures that were encoded."""
    return {name: msgspec.json.decode(raw, type=Signature) for name, raw in published.items()}


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task that workers have published."""

    name: str
    signatures: list[Signature]
    """The newest first; a payload is good if one published within a day takes it."""
    defaults: TaskDefaults
    """Those that count: of the build whose worker registered last."""
    seen_at: datetime
    """When a worker published it last."""


class TaskList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tasks by name."""

    tasks: list[Task]
    next_cursor: str | None
