"""Durations as people write them: `90s`, `1h30m`, `2d`, `PT5M`, a number of seconds, a timedelta. Pure.

Everything that takes a span from outside reads it here: settings, requests, the command line.
A span is never negative, never endless, and never a guess: what can be read in two ways is refused.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal

from windlass.errors import InvalidInput

MAX_S = 100 * 365 * 86_400
"""A hundred years: a longer span is a mistake."""

_UNITS_S = {
    "w": Decimal(604_800),
    "d": Decimal(86_400),
    "h": Decimal(3600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("0.001"),
}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_PLAIN = re.compile(_NUMBER)
_PARTS = re.compile(rf"(?:{_NUMBER}(?:ms|[wdhms]))+")
_PART = re.compile(rf"({_NUMBER})(ms|[wdhms])")
_ISO = re.compile(
    rf"P(?=.)(?:(?P<w>{_NUMBER})W)?(?:(?P<d>{_NUMBER})D)?"
    rf"(?:T(?=.)(?:(?P<h>{_NUMBER})H)?(?:(?P<m>{_NUMBER})M)?(?:(?P<s>{_NUMBER})S)?)?"
)
_HINT = "write seconds (90), units from large to small (1h30m, 2d, 250ms) or ISO 8601 (PT5M)"


def parse_duration(value: object, field: str = "duration") -> float:
    """Return the span in seconds of a text, number or timedelta; InvalidInput names `field`, and how to write it."""
    seconds = _seconds(value, field)
    if seconds < 0:
        raise InvalidInput(field, f"{_shown(value)} is negative; a duration is 0 or more.")
    if seconds > MAX_S:
        raise InvalidInput(field, f"{_shown(value)} is longer than 100 years.")
    return float(seconds)


def _seconds(value: object, field: str) -> Decimal | float:
    if isinstance(value, str):
        return _from_text(value, field)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or _is_endless(value):
        raise InvalidInput(field, f"{_shown(value)} is no duration; {_HINT}.")
    return value


def _is_endless(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _from_text(text: str, field: str) -> Decimal:
    written = text.strip(" ")
    if _PLAIN.fullmatch(written):
        return Decimal(written)
    if found := _ISO.fullmatch(written):
        return sum((Decimal(part) * _UNITS_S[unit] for unit, part in found.groupdict().items() if part), Decimal(0))
    if not _PARTS.fullmatch(written):
        raise InvalidInput(field, f"{_shown(text)} is no duration; {_HINT}.")
    parts = _PART.findall(written)
    order = [list(_UNITS_S).index(unit) for _, unit in parts]
    if order != sorted(set(order)):
        raise InvalidInput(field, f"{_shown(text)} names a unit twice or out of order; {_HINT}.")
    return sum((Decimal(number) * _UNITS_S[unit] for number, unit in parts), Decimal(0))


def _shown(value: object) -> str:
    # Python refuses to write out an integer of many digits.
    if isinstance(value, int) and abs(value) > 10**300:
        return "a number of hundreds of digits"
    return repr(value[:40]) if isinstance(value, str) else str(value)[:40]
