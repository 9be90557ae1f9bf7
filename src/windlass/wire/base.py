"""What bodies, queries and answers are made of: names, spans, instants, and the strictness of requests.

A request names its fields in snake_case. Where an older name is taken too, `aliases` of the struct maps it to ours;
the camelCase form of every field is taken without being listed (server/bodies.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

MAX_WAIT_S = 20
MAX_CANCEL_WAIT_S = 30
MAX_PAGE = 500
MAX_INT = 2**31 - 1

Name = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^\\u0000-\\u001f\\u007f/,]+$")]
"""Of a task, queue, worker, tenant, label or tag."""
Key = Annotated[str, Meta(min_length=1, max_length=512, pattern="^[^\\u0000]+$")]
Text = Annotated[str, Meta(max_length=65_536)]
Reason = Annotated[str, Meta(min_length=1, max_length=2000, pattern="^[^\\u0000]+$")]
Instant = Annotated[
    datetime,
    Meta(
        tz=True,
        examples=["2026-01-31T12:00:00Z"],
        description="RFC 3339 with a zone, from 1970 up to 9999.",
        extra_json_schema={"pattern": "^(19[7-9][0-9]|[2-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9])-"},
    ),
]
SPAN_PARTS = "".join(
    f"([0-9]{{1,{digits}}}(\\.[0-9]{{1,3}})?{unit})?"
    for unit, digits in (("w", 3), ("d", 4), ("h", 5), ("m", 6), ("s", 7), ("ms", 9))
)
Span = (
    Annotated[float, Meta(ge=0, le=1_000_000_000)]
    | Annotated[str, Meta(min_length=2, max_length=60, pattern=f"^{SPAN_PARTS}$", examples=["90s", "1h30m"])]
)
"""Seconds, or a text such as `5m` or `1h30m`."""
PositiveSpan = (
    Annotated[float, Meta(gt=0, le=1_000_000_000)]
    | Annotated[str, Meta(min_length=2, max_length=60, pattern=f"^(?=.*[1-9]){SPAN_PARTS}$", examples=["90s", "1h30m"])]
)
"""The same, but not nothing."""
Fence = Annotated[int, Meta(ge=1, le=MAX_INT)]
Count = Annotated[int, Meta(ge=0, le=MAX_INT)]
AnyJson = Any
"""JSON in an answer. A server writes `Raw` or None, a reader gets plain values; `Raw | None` would read only null."""
VocabularyName = Literal["canonical", "a", "b", "c", "d"]


NOT_YET: Mapping[str, str] = {
    "concurrency_key": "it would limit nothing yet. Leave it out; max_running of the queue limits how many jobs run.",
}
"""Fields that a job or a schedule cannot have yet, each with what is said to those who give it."""
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake_case(name: str) -> str:
    """Return `currentPageId` as `current_page_id`."""
    return _HUMP.sub(r"_\1", name).lower() if not name.islower() else name


Duration = Annotated[float, Meta(ge=0, le=1_000_000_000)]
"""Seconds."""
Started = bool | Duration
"""Whether the body has begun: true, just now; a number, so many seconds before this was sent."""


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The body of a request.

    What is made from JSON has no cycles: looking through a hundred thousand parts for some would hold the event loop.
    """

    aliases: ClassVar[Mapping[str, str]] = {}
    """Older names of its fields."""
    extras: ClassVar[str | None] = None
    """The field that takes what is not named here; None: it is refused."""
    exclusive: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Fields of which only one may be given."""
    either: ClassVar[tuple[str, ...]] = ()
    """Fields of which exactly one must be given."""
    some: ClassVar[tuple[str, ...]] = ()
    """Fields of which at least one must be given."""
    expected: ClassVar[tuple[str, ...]] = ()
    """Fields that the document calls required, though a setting may allow to leave them out."""
    bound: ClassVar[Mapping[str, Any]] = {}
    """What the document asks of fields together, as JSON Schema; the server refuses it in its own words."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of a request. Every route takes `tenant` beside it, from those who may name one."""


class Words(Query, frozen=True, kw_only=True):
    """The query of a route whose answer names states."""

    vocabulary: VocabularyName | None = None
    """In which words `status` is told; `state` is always canonical."""


class Pages(Words, frozen=True, kw_only=True):
    """The query of a list of jobs."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    cursor: UUID | None = None
    """`next_cursor` of the page before."""


class NamePages(Query, frozen=True, kw_only=True):
    """The query of a list by name."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    cursor: Annotated[str, Meta(min_length=1, max_length=300, pattern="^[^\\u0000]+$")] | None = None
    """`next_cursor` of the page before."""


class Because(Body, frozen=True, kw_only=True):
    """Why somebody does this."""

    reason: Reason | None = None


class PauseRequest(Because, frozen=True, kw_only=True):
    """Why to pause, and until when or for how long; neither: until it is resumed."""

    exclusive: ClassVar[tuple[tuple[str, str], ...]] = (("until", "duration"),)

    until: Instant | None = None
    duration: PositiveSpan | None = None
    """From now on, in seconds or as `30m`, `2h`."""


class FieldProblem(msgspec.Struct, frozen=True):
    """One field that was not accepted, and why."""

    field: str
    problem: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, for people in `detail`, for programs in `code`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem] = []
