"""What is wrong with a request, in the words that the server answers and the client says beforehand. Pure."""

from __future__ import annotations

import re

import msgspec

from windlass.errors import InvalidInput
from windlass.wire.base import NOT_YET, SPAN_PARTS, snake_case

_PATH = re.compile(r" - at (?:key in )?`\$\.?(.*)`$")
_SPAN = repr(SPAN_PARTS)[1:-1]
"""As the decoder names the pattern of a duration."""
_UNKNOWN = re.compile(r"unknown field `(.*?)`")
_MISSING = re.compile(r"missing required field `(.*?)`")


def named_problem(error: msgspec.ValidationError, within: str = "") -> InvalidInput:
    """Return the error with the field it is about; `within` is where the decoded part stands."""
    text = str(error)
    place = _PATH.search(text)
    where, problem = (place[1], text[: place.start()]) if place else ("", text)
    where = f"{within}.{where}" if within and where else within or where
    if found := _UNKNOWN.search(problem):
        return unknown_field(where, found[1])
    if found := _MISSING.search(problem):
        where, problem = _joined(where, found[1]), "it is required."
    if _SPAN in problem:
        problem = "it is no duration. Give seconds, or a text such as 90s or 1h30m."
    return InvalidInput(where[:200] or "body", problem.replace("`", ""))


def unknown_field(where: str, name: str) -> InvalidInput:
    """Return the error about a name that stands for no field of the object at `where`."""
    problem = NOT_YET.get(snake_case(name[:200]), "it is not known here. Check its spelling.")
    return InvalidInput(_joined(where, name)[:200], problem)


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
