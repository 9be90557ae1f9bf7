"""Durations: `"90s"`, `"1h30m"`, a number of seconds or a timedelta; inside Windlass always a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta

from windlass.errors import InvalidInput

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.ASCII)
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+", re.ASCII)
LONGEST = timedelta(days=36500)


def parse_duration(value: str | float | timedelta, *, field: str) -> timedelta:
    """Return `value` as a timedelta; plain numbers are seconds. InvalidInput if it is none or over a century."""
    seconds = _seconds(value, field)
    if not 0 <= seconds <= LONGEST.total_seconds():  # also refuses NaN
        shown = f"{seconds:g} s" if isinstance(value, int) else repr(value)  # an int may have thousands of digits
        raise InvalidInput(field, f"{shown} is not between 0 and 100 years.")
    return timedelta(seconds=seconds)


def _seconds(value: str | float | timedelta, field: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool):
        raise InvalidInput(field, f"{value!r} is not a duration.")
    if isinstance(value, int):
        return float(max(-1, min(value, 2**53)))  # beyond, it is refused anyway, and a float may not hold it
    if isinstance(value, float):
        return value
    text = value.strip().lower()
    if len(text) > 64 or not _WHOLE.fullmatch(text):
        raise InvalidInput(field, f"{value[:64]!r} is not a duration; write for example 90s, 15m, 1h30m or 2d.")
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PIECE.findall(text))
