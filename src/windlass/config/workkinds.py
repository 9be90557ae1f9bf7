"""Work kinds: tasks that a worker runs without any code of a user, made of settings alone (W14). Pure.

A kind takes so long and ends so; the same kind ends the same way every time.
Workers serve the kinds that the user's own `windlass.toml` names; none is shipped.
"""

from __future__ import annotations

import typing
from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class WorkKind(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks without code, for demonstrations, tests and measurements; a worker serves those that its file names."""

    duration_s: Annotated[float, Meta(ge=0, le=31_536_000)] = msgspec.field(default=0.0, name="duration")
    """How long one attempt takes."""
    outcome: Literal["success", "fail", "cancel"] = "success"
    """How an attempt ends."""
    retryable: bool = True
    """Whether one that failed is tried again."""
    fail_first: Annotated[int, Meta(ge=0, le=1000)] = 0
    """So many attempts fail before the first that ends as `outcome` says."""


_TYPES = typing.get_type_hints(WorkKind, include_extras=True)
FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(WorkKind)}
"""The name of each field in a file, and in the struct."""
FIELD_TYPES = {written: _TYPES[name] for written, name in FIELDS.items()}
FIELD_DEFAULTS = {written: getattr(WorkKind(), name) for written, name in FIELDS.items()}
