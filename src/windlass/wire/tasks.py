"""What a task takes, as its workers publish it: the names of its arguments and the JSON types of their values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from windlass.wire.base import Body, Name

MOST_PUBLISHED = 300
JsonType = Literal["null", "boolean", "integer", "number", "string", "array", "object"]


class Parameter(Body, frozen=True, kw_only=True):
    """One argument of a task."""

    types: tuple[JsonType, ...] | None = None
    """Null: any value."""
    required: bool = False


class Signature(Body, frozen=True, kw_only=True):
    """The arguments of a task."""

    parameters: Annotated[dict[Name, Parameter], Meta(max_length=255)] = msgspec.field(default_factory=dict)
    extra: bool = False
    """Names that are not listed are taken too."""
    single: bool = False
    """A payload that is no object is allowed: it is the only argument."""
    single_types: tuple[JsonType, ...] | None = None
    """Of such a payload. Null: any value, or those of the parameter if there is only one."""


def read_signatures(published: Mapping[str, msgspec.Raw]) -> dict[str, Signature]:
    """Return signatures that were encoded, as many as a worker may publish."""
    some = list(published.items())[:MOST_PUBLISHED]
    return {name: msgspec.json.decode(raw, type=Signature) for name, raw in some}


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task that workers have published."""

    name: str
    signatures: list[Signature]
    """The newest first; a payload is good if one published within a day takes it."""
    seen_at: datetime
    """When a worker published it last."""


class TaskList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tasks by name."""

    tasks: list[Task]
    next_cursor: str | None
