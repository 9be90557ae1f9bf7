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


def named_problem(error: msgspec.ValidationError) -> InvalidInput:
    """Return the error with the field it is about."""
    text = str(error)
    place = _PATH.search(text)
    where, problem = (place[1], text[: place.start()]) if place else ("", text)
    if found := _UNKNOWN.search(problem) or _MISSING.search(problem):
        where = f"{where}.{found[1]}" if where else found[1]
        unknown = NOT_YET.get(snake_case(found[1]), "it is not known here. Check its spelling.")
        problem = "it is required." if "missing" in problem else unknown
    if _SPAN in problem:
        problem = "it is no duration. Give seconds, or a text such as 90s or 1h30m."
    return InvalidInput(where[:200] or "body", problem.replace("`", ""))
