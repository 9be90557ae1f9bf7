"""Triggers: when a schedule makes its jobs, as a program writes it. Pure.

Light values. What an expression means is known by queue/cron, which servers use: it is asked when the trigger is
written, so that a wrong one is refused there, with the place of the fault. schedules.py sends them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from windlass.client.options import Span
from windlass.client.problems import refuse
from windlass.durations import parse_duration
from windlass.errors import InvalidSchedule

MAX_EVERY_S = 366 * 86_400


class Cron(msgspec.Struct, frozen=True):
    """By the wall clock of a zone; made by `cron(...)`."""

    expression: str
    zone: str = "UTC"

    def fields(self) -> dict[str, Any]:
        """Return it as the API has it."""
        return {"cron": self.expression, "timezone": self.zone}


class Every(msgspec.Struct, frozen=True):
    """Again and again after the same time; made by `every(...)`."""

    every_s: int

    def fields(self) -> dict[str, Any]:
        """Return it as the API has it."""
        return {"every": self.every_s}


class At(msgspec.Struct, frozen=True):
    """Once; made by `at(...)`."""

    at: datetime

    def fields(self) -> dict[str, Any]:
        """Return it as the API has it."""
        return {"at": self.at}


Trigger = Cron | Every | At


def cron(expression: str, *, zone: str | ZoneInfo = "UTC") -> Cron:
    """Fire at the times of a cron expression, by the wall clock of a zone.

    Five fields (minute, hour, day, month, weekday), six with seconds first, or `@daily` and such. The zone is an IANA
    name.
    """
    if not isinstance(expression, str):
        raise InvalidSchedule("cron", f"{expression!r} is no text. Write it as in cron: '30 2 * * *'.")
    name = zone.key if isinstance(zone, ZoneInfo) else zone
    if not isinstance(name, str):
        raise InvalidSchedule("timezone", f"{zone!r} has no name. Give an IANA name, such as 'Europe/Berlin'.")
    # Only a program that writes an expression pays for what reads it.
    from windlass.queue.cron import Cron as Read
    from windlass.queue.cron import check_trigger

    try:
        check_trigger(Read(expression, name))
    except InvalidSchedule as error:
        refuse(error)
    return Cron(expression, name)


def every(span: Span) -> Every:
    """Fire again and again after the same elapsed time, from a second on: `"90s"`, `"1h30m"`, or a timedelta."""
    span_s = parse_duration(span, "every")
    if span_s < 1 or span_s != int(span_s):
        refuse(InvalidSchedule("every", f"{span} is no number of whole seconds, 1 or more. Round it."))
    elif span_s > MAX_EVERY_S:
        refuse(InvalidSchedule("every", f"{span} is no interval; intervals go from 1 s to {MAX_EVERY_S} s (366 days)."))
    return Every(max(1, int(span_s)))


def at(instant: datetime) -> At:
    """Fire once, at an instant that names its zone."""
    return At(aware("at", instant))


def aware(field: str, instant: datetime) -> datetime:
    """Return an instant in UTC; InvalidSchedule names `field` where it is none, or has no zone.

    A schedule outlives the machine that made it: a time of the local zone would mean another one elsewhere.
    """
    if not isinstance(instant, datetime):
        raise InvalidSchedule(field, f"{instant!r} is no datetime. Give one with a zone.")
    if instant.utcoffset() is None:
        raise InvalidSchedule(
            field, f"{instant} names no zone. Add one: datetime(…, tzinfo=ZoneInfo('Europe/Berlin'))."
        )
    return instant.astimezone(UTC)
