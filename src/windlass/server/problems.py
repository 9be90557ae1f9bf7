"""Errors as answers: `application/problem+json`, with the same text that goes to the terminal and the log.

Who was refused is logged too, so that guessing is seen: some lines a second, and how many were left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import msgspec

from windlass import log
from windlass.errors import (
    AlreadyExists,
    CommitAborted,
    CommitUnknown,
    Contention,
    InvalidInput,
    NameTaken,
    Unavailable,
    WindlassError,
    WrongMethod,
    code_of,
)
from windlass.server.call import Reply
from windlass.wire.base import FieldProblem, Problem

MEDIA_TYPE = b"application/problem+json"
REFUSED = frozenset({401, 403, 429})
"""What a caller is answered who may not do this, or not now."""
LINES_PER_SECOND = 20
LINES_PER_ADDRESS = 3
"""Of refused requests, in a second."""
_WIRE_NAMES = {
    "timeout_s": "timeout_seconds",
    "delay_ms": "delay",
    "start_by": "start_deadline",
    "start_within_ms": "start_within",
    "retry": "retry_policy",
    "worker": "worker_id",
    "lease_ms": "lease_seconds",
    "capacity": "max_threads",
    "busy": "busy_threads",
    "skew_ms": "timestamp",
    "duration_ms": "duration_seconds",
    "unique_ms": "unique_for",
    "rate_per_s": "rate_per_second",
}
"""What the queue's words for fields are called by callers."""


_SENTENCES: tuple[tuple[type[WindlassError], str], ...] = (
    (CommitUnknown, "The connection to the database broke. Whether it was done is not known: look before you repeat."),
    (CommitAborted, "The connection to the database broke, and nothing was written. Running it again is safe."),
    (Contention, "The database is busy with others, and nothing was written. Running it again is safe."),
    (Unavailable, "The database does not answer, or cannot be written. Try again."),
    (AlreadyExists, "It is stored already."),
)
"""What callers are told in place of the database's own words, which may name hosts, paths and statements."""


def told_by_database(error: WindlassError) -> bool:
    """Say whether the text of an error has words of the database in it: then they are for the log."""
    if isinstance(error, CommitUnknown | CommitAborted):
        return True
    seen = error.__cause__
    while isinstance(seen, Unavailable):
        seen = seen.__cause__
    return type(seen).__module__.partition(".")[0] in ("asyncpg", "sqlite3") or isinstance(seen, OSError)


def _text(error: WindlassError) -> str:
    if not told_by_database(error):
        return str(error)
    return next((sentence for kind, sentence in _SENTENCES if isinstance(error, kind)), str(error))


def problem_of(error: WindlassError, *, items: str | None = None) -> Reply:
    """Return the answer to a request that failed with this error; `items` names the list an index counts in."""
    detail, errors = _text(error), []
    if isinstance(error, InvalidInput) and told_by_database(error):
        error = type(error)(error.field, "the database cannot take it.", index=error.index)
    if isinstance(error, InvalidInput):
        field = _WIRE_NAMES.get(error.field, error.field)
        if items is not None and error.index is not None:
            field = f"{items}[{error.index}].{field}"
        detail, errors = f"{field}: {error.problem}", [FieldProblem(field, error.problem)]
    elif isinstance(error, NameTaken):
        field = "name" if items is None or error.index is None else f"{items}[{error.index}].name"
        problem = detail.removeprefix(f"schedules[{error.index}].name: ")
        detail, errors = f"{field}: {problem}", [FieldProblem(field, problem)]
    headers: list[tuple[bytes, bytes]] = []
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, WrongMethod):
        headers.append((b"allow", ", ".join(error.allow).encode()))
    if error.status in (429, 503):
        seconds = max(1, math.ceil(getattr(error, "retry_after_s", 1.0)))
        headers.append((b"retry-after", str(seconds).encode()))
    if error.status == 408:
        headers.append((b"connection", b"close"))
    code = code_of(type(error))
    return _reply(
        Problem(
            type=f"urn:windlass:problem:{code}",
            title=code.replace("_", " ").capitalize(),
            status=error.status,
            detail=detail,
            code=code,
            errors=errors,
        ),
        headers,
    )


def unexpected(request_id: str) -> Reply:
    """Return the answer to a request that met a fault of ours: an id, nothing of the inside."""
    return _reply(
        Problem(
            type="urn:windlass:problem:unexpected",
            title="Unexpected",
            status=500,
            detail=f"The server met a fault of its own. Its log has the reason under request {request_id}.",
            code="unexpected",
        ),
        [],
    )


class Refusals:
    """Logs the requests that were refused, of one server."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since_s = -math.inf
        self._told: Counter[str] = Counter()
        """Lines of this second, by address: never more of them than lines."""
        self._left_out_count = 0

    def tell(self, *, address: str, status: int, key: str | None, request: str, route: str) -> None:
        """Log a refused request, or count it where there were enough lines; `key` is an id, never a token."""
        now_s = self._monotonic()
        if now_s - self._since_s >= 1:
            self._since_s = now_s
            self._told.clear()
        if self._told.total() >= LINES_PER_SECOND or self._told[address] >= LINES_PER_ADDRESS:
            self._left_out_count += 1
            return
        self._told[address] += 1
        left_out, self._left_out_count = self._left_out_count or None, 0
        log.event(
            "request.refused",
            status=status,
            address=address,
            key=key,
            request=request,
            route=route,
            left_out=left_out,
        )


def _reply(problem: Problem, headers: list[tuple[bytes, bytes]]) -> Reply:
    return Reply(problem.status, msgspec.json.encode(problem), tuple(headers), MEDIA_TYPE)
