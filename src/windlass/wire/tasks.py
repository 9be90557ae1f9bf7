"""What a task takes, as its workers publish it: the names of its arguments and the JSON types of their values."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from windlass.wire.base import Body, Name

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
