"""The fields of cron expressions: what may stand in them, where a fault is, and what `H` and `@daily` stand for. Pure.

Five fields (minute, hour, day, month, weekday), or six with seconds first. An expression is bounded before it is read,
each element of it is checked against its field, and what comes out is plain: upper case, numbers for names, and for `H`
a value that depends only on the schedule's id and the field. Only such text is given to cronsim (walk.py).
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from typing import NoReturn
from uuid import UUID

import msgspec

from windlass.errors import InvalidSchedule

MAX_EXPRESSION = 200
MAX_ELEMENTS = 60
SHOWN = 60
"""So many characters of a faulty value are repeated in messages."""
FORMS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_READABLE = re.compile(r"[ -~\t]*")
_ELEMENT = re.compile(
    r"(?:(?P<star>\*)"
    r"|(?P<hash>H)(?:\((?P<from>[0-9A-Z]+)-(?P<to>[0-9A-Z]+)\))?"
    r"|(?P<low>[0-9A-Z]+)(?:-(?P<high>[0-9A-Z]+))?)"
    r"(?:/(?P<step>[0-9]+))?"
)
_SPREAD = re.compile(r"\bh\b", re.IGNORECASE)
_NTH = re.compile(r"(?P<day>[0-9A-Z]+)#(?P<nth>[0-9]+)")
_LAST = re.compile(r"(?P<day>[0-9]+)L")


class Field(msgspec.Struct, frozen=True):
    """What one field holds."""

    name: str
    lowest: int
    highest: int
    spread_to: int
    """The highest value that `H` gives: days end at 28, which every month has."""
    names: Mapping[str, int] = {}


def _named(text: str, first: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(text.split(), first)}


SECOND = Field("second", 0, 59, 59)
MINUTE = Field("minute", 0, 59, 59)
HOUR = Field("hour", 0, 23, 23)
DAY = Field("day", 1, 31, 28)
MONTH = Field("month", 1, 12, 12, _named("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1))
WEEKDAY = Field("weekday", 0, 7, 6, _named("SUN MON TUE WED THU FRI SAT", 0))
FIELDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)


class Place(msgspec.Struct, frozen=True):
    """Where a fault is: an expression and one of its fields, counted from 1."""

    expression: str
    field: Field
    number: int
    key: str
    """The name of the value that has the expression."""

    def refuse(self, has: str, but: str) -> NoReturn:
        """Raise InvalidSchedule for this place."""
        raise InvalidSchedule(self.key, f"{quoted(self.expression)} has {has} (field {self.number}); {but}.")


def quoted(text: str) -> str:
    """Return the text in quotes for a message, cut where it is long."""
    return f'"{text}"' if len(text) <= SHOWN else f'"{text[:SHOWN]}…"'


def expand(expression: str, schedule_id: UUID, *, field: str = "cron") -> str:
    """Return the expression in plain form for this schedule; InvalidSchedule names the place of a fault."""
    if len(expression) > MAX_EXPRESSION:
        raise InvalidSchedule(
            field, f"{quoted(expression)} has {len(expression)} characters; at most {MAX_EXPRESSION} are taken."
        )
    if _SPREAD.search(expression):
        return _expand(expression, schedule_id, field)
    return _expand_shared(expression, field)


@functools.lru_cache(maxsize=8192)
def _expand_shared(expression: str, key: str) -> str:
    """Without `H`, an expression is the same for all schedules."""
    return _expand(expression, UUID(int=0), key)


def _expand(expression: str, schedule_id: UUID, key: str) -> str:
    if not _READABLE.fullmatch(expression):
        place, wrong = next((place, sign) for place, sign in enumerate(expression, 1) if not _READABLE.fullmatch(sign))
        raise InvalidSchedule(
            key,
            f"{quoted(expression)} has {wrong!a} (character {place}); only digits, names and * / , - # are taken.",
        )
    if expression.lstrip().startswith("@"):
        form = FORMS.get(expression.strip().lower())
        if form is None:
            raise InvalidSchedule(key, f"{quoted(expression)} is not known; known are {', '.join(FORMS)}.")
        return form
    parts = expression.upper().split()
    if len(parts) not in (5, 6):
        raise InvalidSchedule(
            key,
            f"{quoted(expression)} has {len(parts)} fields; five are taken (minute hour day month weekday), "
            "or six with the second first.",
        )
    fields = FIELDS[-len(parts) :]
    return " ".join(
        _field(part, Place(expression, field, number, key), schedule_id)
        for number, (part, field) in enumerate(zip(parts, fields, strict=True), 1)
    )


def _field(text: str, place: Place, schedule_id: UUID) -> str:
    elements = text.split(",")
    if len(elements) > MAX_ELEMENTS:
        place.refuse(f"a list of {len(elements)} elements", f"a list has at most {MAX_ELEMENTS}")
    return ",".join(_element(element, place, schedule_id) for element in elements)


def _element(text: str, place: Place, schedule_id: UUID) -> str:
    special = _special(text, place)
    if special is not None:
        return special
    match = _ELEMENT.fullmatch(text)
    if match is None:
        place.refuse(
            f"{place.field.name} {quoted(text)}",
            "an element is a number, a range as 1-5, or either of * and these with a step",
        )
    step = _step(match["step"], place)
    if match["star"]:
        return "*" if step is None else f"*/{step}"
    if match["hash"]:
        return _spread(match, step, place, schedule_id)
    low = _value(match["low"], place)
    if match["high"] is None:
        return str(low) if step is None else f"{low}/{step}"
    high = _value(match["high"], place)
    return _range(low, _week_end(match["high"], high, place), step, place)


def _special(text: str, place: Place) -> str | None:
    """Return what only days or weekdays have: `L`, `LW`; `5L`, `MON#2`."""
    if place.field is DAY and text in ("L", "LW"):
        return text
    if place.field is WEEKDAY:
        if last := _LAST.fullmatch(text):
            return f"{_value(last['day'], place)}L"
        if nth := _NTH.fullmatch(text):
            if nth["nth"] not in "12345":
                place.refuse(f"weekday {quoted(text)}", "a weekday comes from #1 to #5 times in a month")
            return f"{_value(nth['day'], place)}#{nth['nth']}"
    return None


def _value(text: str, place: Place) -> int:
    field = place.field
    number = int(text) if text.isdigit() else field.names.get(text)
    if number is None:
        known = f" or {', '.join(field.names)}" if field.names else ""
        place.refuse(f"{field.name} {quoted(text)}", f"{field.name}s go from {field.lowest} to {field.highest}{known}")
    if not field.lowest <= number <= field.highest:
        place.refuse(f"{field.name} {text[:SHOWN]}", f"{field.name}s go from {field.lowest} to {field.highest}")
    return number


def _week_end(text: str, high: int, place: Place) -> int:
    """A range of weekdays may end on Sunday by its name, as in SAT-SUN."""
    return 7 if place.field is WEEKDAY and text == "SUN" else high


def _step(text: str | None, place: Place) -> int | None:
    if text is None:
        return None
    most = place.field.highest - place.field.lowest + (0 if place.field is WEEKDAY else 1)
    step = int(text)
    if not 1 <= step <= most:
        place.refuse(f"step {text[:SHOWN]}", f"steps of {place.field.name}s go from 1 to {most}")
    return step


def _range(low: int, high: int, step: int | None, place: Place) -> str:
    if low > high:
        place.refuse(f"{place.field.name}s {low}-{high}", "a range goes from the lower to the higher value")
    if low == high:
        return str(low)
    return f"{low}-{high}" if step is None else f"{low}-{high}/{step}"


def _spread(match: re.Match[str], step: int | None, place: Place, schedule_id: UUID) -> str:
    """Return what `H` stands for: a value, or with a step a first value and those that follow it."""
    field = place.field
    low, high = field.lowest, field.spread_to
    if match["from"] is not None:
        low, high = _value(match["from"], place), _value(match["to"], place)
        _range(low, high, None, place)
    if high > field.spread_to:
        place.refuse(f"H({low}-{high})", f"H of a {field.name} goes up to {field.spread_to}")
    size = high - low + 1
    first = low + stable(schedule_id, field.name) % (size if step is None else min(step, size))
    return str(first) if step is None else _range(first, high, step, place)


def stable(schedule_id: UUID, purpose: str) -> int:
    """Return a number of 64 bits that depends on these two only, on any machine."""
    digest = hashlib.blake2b(schedule_id.bytes + purpose.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
