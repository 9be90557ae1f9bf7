"""Triggers in words, for people. Pure.

The forms that most schedules have are told as people would; for the rest cronsim's own explanation serves.
"""

from __future__ import annotations

import functools
from datetime import UTC
from uuid import UUID

from cronsim.explain import explain

from windlass.queue.cron.fields import expand
from windlass.queue.cron.trigger import SAMPLE, At, Cron, Every, Trigger

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("", "January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_WHOLES = (("week", 7), ("year", 12), ("month", 0), ("day", 24), ("hour", 60), ("minute", 60))
"""By field, from the last: what its steps are counted in, and how many of them it has; 0: now so, now so."""
LONGEST = 60
"""A longer expression is told as it stands: its words would be longer still, and take long to find."""
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def words(trigger: Trigger | None, *, schedule_id: UUID | None = None) -> str:
    """Return when it runs, in words; what `H` stands for is told where the schedule is known."""
    match trigger:
        case Cron(expression, zone):
            if schedule_id is None and expand(expression, SAMPLE) != expand(expression, UUID(int=1)):
                return f"{expression}, where H is a value of the schedule's own ({zone})"
            return f"{_cron(expand(expression, schedule_id or SAMPLE))} ({zone})"
        case Every(every_s):
            return f"every {_span(every_s)}"
        case At(at):
            return f"once, on {at.astimezone(UTC):%Y-%m-%d at %H:%M:%S} (UTC)"
    return "by hand only"


def _span(every_s: int) -> str:
    parts = []
    rest = every_s
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return parts[0].removeprefix("1 ") if len(parts) == 1 else " ".join(parts)


@functools.lru_cache(maxsize=4096)
def _cron(expression: str) -> str:
    if len(expression) > LONGEST:
        return expression
    told = _daily(expression) or _stepped(expression)
    if told is not None:
        return told
    explained = explain(expression)
    told = explained[0].lower() + explained[1:]
    anew = [
        whole
        for part, (whole, count) in zip(reversed(expression.split()), _WHOLES, strict=False)
        if part.startswith("*/") and part != "*/1" and not _divides(part, count) and f"of every {whole}" not in told
    ]
    if not anew:
        return told
    return f"{told}, counted anew each {' and '.join(anew[::-1])}"


def _daily(expression: str) -> str | None:
    """Tell a fixed time of day: each day, on weekdays, on a day of the month or of the year."""
    parts = expression.split()
    minute, hour, day, month, weekday = parts[-5:]
    second = parts[0] if len(parts) == 6 else "0"
    if not (minute.isdigit() and hour.isdigit() and second.isdigit()):
        return None
    clock = f"{int(hour):02}:{int(minute):02}" + (f":{int(second):02}" if int(second) else "")
    match day, month, weekday:
        case "*", "*", "*":
            return f"every day at {clock}"
        case "*", "*", "1-5":
            return f"Monday to Friday at {clock}"
        case "*", "*", _ if weekday.isdigit():
            return f"every {_WEEKDAYS[int(weekday)]} at {clock}"
        case "L", "*", "*":
            return f"on the last day of every month at {clock}"
        case _, "*", "*" if day.isdigit():
            return f"on day {day} of every month at {clock}"
        case _, _, "*" if day.isdigit() and month.isdigit():
            return f"every year on {day} {_MONTHS[int(month)]} at {clock}"
    return None


def _stepped(expression: str) -> str | None:
    """Tell what runs many times each day."""
    parts = ["*" if part == "*/1" else part for part in expression.split()]
    if parts[-3:] != ["*", "*", "*"]:
        return None
    match parts[:-3]:
        case ["*", "*"]:
            return "every minute"
        case ["*", "*", "*"]:
            return "every second"
        case [minute, "*"] if _divides(minute, 60):
            return f"every {minute[2:]} minutes"
        case [second, "*", "*"] if _divides(second, 60):
            return f"every {second[2:]} seconds"
        case [minute, "*"] if minute.isdigit():
            return "every hour" if minute == "0" else f"every hour at minute {minute}"
        case [minute, hour] if minute.isdigit() and _divides(hour, 24):
            return f"every {hour[2:]} hours at minute {minute}"
    return None


def _divides(part: str, whole: int) -> bool:
    """Say whether this is a step that comes round evenly."""
    return part.startswith("*/") and part[2:].isdigit() and whole > 0 and whole % int(part[2:]) == 0
