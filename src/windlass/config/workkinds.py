"""Work kinds: tasks that every worker runs without any code of a user, made of settings alone (W14). Pure.

A kind takes so long and ends so; the same kind ends the same way every time.
The catalogue below is shipped in `default.toml`; `windlass.toml` may add kinds and change single fields of these.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class WorkKind(msgspec.Struct, frozen=True, kw_only=True):
    """What every worker can run without your code: for demonstrations, tests and measurements."""

    duration_s: Annotated[float, Meta(ge=0, le=31_536_000)] = msgspec.field(default=0.0, name="duration")
    """How long one attempt takes."""
    outcome: Literal["success", "fail", "cancel"] = "success"
    """How an attempt ends."""
    retryable: bool = True
    """Whether one that failed is tried again."""
    fail_first: Annotated[int, Meta(ge=0, le=1000)] = 0
    """So many attempts fail before the first that ends as `outcome` says."""


CATALOGUE: Mapping[str, WorkKind] = MappingProxyType(
    {
        "quick": WorkKind(duration_s=0.01),
        "email": WorkKind(duration_s=0.1),
        "resize": WorkKind(duration_s=0.25),
        "report": WorkKind(duration_s=0.5),
        "slow": WorkKind(duration_s=2.0),
        "flaky": WorkKind(duration_s=0.05, fail_first=2),
        "unstable": WorkKind(duration_s=0.05, outcome="fail"),
        "broken": WorkKind(duration_s=0.05, outcome="fail", retryable=False),
        "cancelled": WorkKind(duration_s=0.05, outcome="cancel"),
    }
)
"""The shipped kinds."""

_TYPES = typing.get_type_hints(WorkKind, include_extras=True)
FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(WorkKind)}
"""The name of each field in a file, and in the struct."""
FIELD_TYPES = {written: _TYPES[name] for written, name in FIELDS.items()}
FIELD_DEFAULTS = {written: getattr(WorkKind(), name) for written, name in FIELDS.items()}
