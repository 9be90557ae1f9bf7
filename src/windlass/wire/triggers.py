"""Triggers, and the slots that follow from them: when something is to happen.

Next: schedules.py has what is to happen then.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from windlass.wire.base import Body, Instant, Query, Span

Expression = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        examples=["30 2 * * *"],
        description="Five fields (minute, hour, day, month, weekday), six with seconds first, or `@daily` and such.",
    ),
]
Zone = Annotated[str, Meta(min_length=1, max_length=100, examples=["Europe/Berlin"], description="An IANA name.")]
Exclusion = Annotated[
    str,
    Meta(
        min_length=3,
        max_length=21,
        examples=["2026-12-25"],
        description="A day, a range `2026-12-24/2027-01-01`, a day of each year `--12-25`, or a weekday `SAT`.",
    ),
]
Exclusions = Annotated[tuple[Exclusion, ...], Meta(max_length=400)]


def needs(name: str, *others: str) -> Mapping[str, Any]:
    """Return, as JSON Schema, that the other fields are given only together with the one of this name."""
    given = {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
    return {
        "dependentSchemas": {other: {"anyOf": [{"properties": {other: {"type": "null"}}}, given]} for other in others}
    }


class TriggerRequest(Body, frozen=True, kw_only=True):
    """When something is to happen; without cron, every and at: by hand only."""

    aliases: ClassVar[Mapping[str, str]] = {
        "schedule": "cron",
        "cron_expression": "cron",
        "interval": "every",
        "zone": "timezone",
        "tz": "timezone",
    }
    exclusive: ClassVar[tuple[tuple[str, str], ...]] = (("cron", "every"), ("cron", "at"), ("every", "at"))
    bound: ClassVar[Mapping[str, Any]] = needs("cron", "timezone")

    cron: Expression | None = None
    """Five fields (minute, hour, day, month, weekday), six with seconds first, or `@daily` and such."""
    every: Span | None = None
    """From 1 s, in whole seconds, by elapsed time."""
    at: Instant | None = None
    """Once."""
    timezone: Zone | None = None
    """Of the wall clock that cron goes by; UTC unless it is given."""
    start: Instant | None = None
    """No slot before then."""
    end: Instant | None = None
    """No slot after then."""
    exclude: Exclusions = ()
    """Days without a slot, by their date in the zone: `2026-12-25`, `2026-12-24/2027-01-01`, `--12-25` or `SAT`."""
    jitter: Span | None = None
    """Each slot is due later by a part of this that depends only on the schedule."""

    def __post_init__(self) -> None:
        """Let schedules that leave out the same days share these: a thousand in a body may name 400,000."""
        if self.exclude:
            msgspec.structs.force_setattr(self, "exclude", _shared(self.exclude))


@functools.lru_cache(maxsize=16)
def _shared(days: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same tuple for all equal ones."""
    return days


class ShownSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot to come: nominal, on the wall clock of its zone, and what a change of that clock does to it."""

    slot_at: datetime
    due_at: datetime
    """Later than the slot where there is jitter."""
    local: str
    mark: str | None


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The slots to come."""

    words: str
    timezone: str
    slots: list[ShownSlot]
    """Fewer than asked for where the series ends, or where they lie so far apart that finding them takes too long."""


class PreviewQuery(Query, frozen=True, kw_only=True):
    """How many slots to show, and from when on."""

    count: Annotated[int, Meta(ge=1, le=100)] = 10
    after: Instant | None = None


class PreviewRequest(TriggerRequest, frozen=True, kw_only=True):
    """A trigger that is not stored, to be looked at."""

    count: Annotated[int, Meta(ge=1, le=100)] = 10
    after: Instant | None = None
