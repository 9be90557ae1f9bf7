"""Answers: what came back from a server, as a struct or as one of our errors. Pure.

A problem carries the code of its error class, so that what a server refuses is raised here as if it were refused here,
with the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from windlass.client.requests import Request
from windlass.errors import (
    BodyTooLarge,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    TooMany,
    Unauthorized,
    Unavailable,
    WindlassError,
    WrongMethod,
    code_of,
)
from windlass.wire.base import Problem

_IN_BATCH = re.compile(r"(?P<batch>jobs|schedules)\[(?P<index>[0-9]+)\]\.(?P<field>.*)", re.DOTALL)
_BY_STATUS: dict[int, type[WindlassError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: BodyTooLarge,
    429: TooMany,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}
    """By lower-case name."""


def read(request: Request, answer: Answer, *, where: str) -> Any:
    """Return the answer as the type that the request asks for; the server's problem as our error."""
    if answer.status >= 400:
        raise error_of(answer, where=where)
    if request.answer is None or not answer.body:
        return None
    try:
        return msgspec.json.decode(answer.body, type=request.answer)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"{where} does not answer as a Windlass server does: {error}. Check WINDLASS_URL.") from None


def error_of(answer: Answer, *, where: str) -> WindlassError:
    """Return a problem as an error of the class that its code names."""
    try:
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        kind = _BY_STATUS.get(answer.status, WindlassError)
        return _made(kind, f"{where} answered {answer.status}, and not as a Windlass server does.", answer)
    kind = _by_code().get(problem.code) or _BY_STATUS.get(answer.status, WindlassError)
    if issubclass(kind, InvalidInput) or answer.status == 422:
        field, _, text = problem.detail.partition(": ")
        kind = kind if issubclass(kind, InvalidInput) else InvalidInput
        if problem.errors:
            field, text = problem.errors[0].field, problem.errors[0].problem
        place = _IN_BATCH.fullmatch(field)
        if place is None:
            return kind(field, text)
        return kind(place["field"], text, index=int(place["index"]), batch=place["batch"])
    return _made(kind, problem.detail, answer)


def _made(kind: type[WindlassError], text: str, answer: Answer) -> WindlassError:
    if issubclass(kind, WrongMethod):
        return kind(text, [name.strip() for name in answer.headers.get("allow", "").split(",")])
    try:
        error = kind(text)
    except TypeError:  # one that says a text of its own
        error = WindlassError(text)
    if isinstance(error, TooMany | Unavailable):
        said = answer.headers.get("retry-after", "")
        error.retry_after_s = float(said) if said.isdecimal() else 1.0
    return error


_codes: dict[str, type[WindlassError]] = {}


def _by_code() -> Mapping[str, type[WindlassError]]:
    if not _codes:
        _codes.update(
            (code_of(kind), kind) for kind in _classes(WindlassError) if kind.__module__ == WindlassError.__module__
        )
    return _codes


def _classes(kind: type[WindlassError]) -> Iterator[type[WindlassError]]:
    for below in kind.__subclasses__():
        yield below
        yield from _classes(below)
