"""Triggers: when a schedule is to run, as its maker says it. Pure.

A cron expression on the wall clock of a zone, an interval of elapsed time, or one instant; no trigger: by hand only.
What expressions mean is told in fields.py, which instants come of them in series.py; the package itself is the door.
"""

from __future__ import annotations

import functools
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from windlass.errors import InvalidSchedule
from windlass.queue.cron.fields import expand, quoted
from windlass.queue.cron.walk import ever

MAX_EVERY_S = 366 * 86_400
SAMPLE = UUID(int=0)
"""Stands for any schedule where only the form of an expression counts."""
NO_ZONES = frozenset({"localtime", "posixrules"})
"""Files beside the zones on some systems: what they mean depends on the machine."""


class Cron(msgspec.Struct, frozen=True):
    """Times of the wall clock in a zone, by an expression of cron."""

    expression: str
    zone: str = "UTC"


class Every(msgspec.Struct, frozen=True):
    """Instants with the same elapsed time between them."""

    every_s: int


class At(msgspec.Struct, frozen=True):
    """One instant."""

    at: datetime


Trigger = Cron | Every | At


def check_trigger(trigger: Trigger | None, *, field: str = "cron") -> None:
    """Return if the trigger can be kept; InvalidSchedule names the place of the fault."""
    match trigger:
        case Cron(expression, zone):
            expanded = expand(expression, SAMPLE, field=field)
            check_zone(zone)
            if not ever(expanded):
                raise InvalidSchedule(
                    field, f"{quoted(expression)} never fires: no month has such a day. Change its day or its month."
                )
        case Every(every_s):
            if not 1 <= every_s <= MAX_EVERY_S:
                raise InvalidSchedule(
                    "every" if field == "cron" else field,
                    f"{every_s} s is no interval; intervals go from 1 s to {MAX_EVERY_S} s (366 days).",
                )
        case At(at):
            if at.tzinfo is None:
                raise InvalidSchedule(
                    "at" if field == "cron" else field, f"{at.isoformat()} has no zone; add Z or an offset to it."
                )


def check_zone(name: str, *, field: str = "timezone") -> ZoneInfo:
    """Return the zone of this IANA name; InvalidSchedule if there is none, as paths and other spellings are."""
    if name not in zone_names():
        raise InvalidSchedule(
            field, f"{quoted(name)} is no time zone{_meant(name)}. Give an IANA name, as Europe/Berlin."
        )
    return ZoneInfo(name)


@functools.cache
def zone_names() -> frozenset[str]:
    """Return the zones that this installation knows."""
    return frozenset(available_timezones() - NO_ZONES)


def _meant(name: str) -> str:
    same = [known for known in zone_names() if known.lower() == name[:100].lower()]
    return f" (did you mean {same[0]}?)" if same else ""
