"""Problems of the code of an application: raised where they stand, or collected by `windlass check-app`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

_OURS = str(Path(__file__).parent.parent)


class Problem(msgspec.Struct, frozen=True):
    """What is wrong, and the line of the user's code that says it."""

    place: str
    text: str


class _Collection:
    found: list[Problem] | None = None
    """Where problems are collected; None: they are raised."""


def refuse(error: Exception) -> None:
    """Raise an error of the user's code; where problems are collected, note it and return."""
    if _Collection.found is None:
        raise error
    _Collection.found.append(Problem(_place(), str(error)))


@contextmanager
def collecting() -> Iterator[list[Problem]]:
    """Collect problems for a block, so that all of them can be said at once."""
    found: list[Problem] = []
    _Collection.found = found
    try:
        yield found
    finally:
        _Collection.found = None


def _place() -> str:
    """Return file and line of the innermost frame that is not ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{frame.f_lineno}"
