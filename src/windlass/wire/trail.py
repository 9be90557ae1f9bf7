"""What an attempt leaves behind while it runs: lines of its log, its progress, its checkpoint.

They travel with reports (work.py), so that a worker needs no request of their own for them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from windlass.wire.base import AnyJson, Body, Count, Fence, Instant, Query, Started

MAX_LINE = 16_384
MAX_LINES = 1000
Stream = Literal["log", "stdout", "stderr"]


class LogLine(Body, frozen=True, kw_only=True, omit_defaults=True):
    """One line that an attempt wrote."""

    at: Instant
    """By the worker's clock: it is shown, and decides nothing."""
    text: Annotated[str, Meta(max_length=MAX_LINE)]
    stream: Stream = "log"
    level: Annotated[str, Meta(max_length=20)] | None = None
    """Of `logging`; null for what was printed."""


class LogChunk(Body, frozen=True, kw_only=True):
    """Lines of one attempt, in order. The same chunk said twice is kept once."""

    job_id: UUID
    fence: Fence
    seq: Count
    """Counts the chunks of an attempt from 0."""
    lines: Annotated[tuple[LogLine, ...], Meta(max_length=MAX_LINES)]
    dropped: Count = 0
    """Lines left out after these, because there were too many."""
    started: Started = False
    """Said with the first words of an attempt: it is running from then on, where no heartbeat has told so."""


class Note(Body, frozen=True, kw_only=True):
    """How far an attempt is, and from where a later one may go on."""

    job_id: UUID
    fence: Fence
    progress: Raw | UnsetType = UNSET
    checkpoint: Raw | UnsetType = UNSET
    started: Started = False
    """As with the first lines of an attempt."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Words of an attempt that were not kept; what came with them stands."""

    job_id: UUID
    field: Literal["progress", "checkpoint", "logs"]
    detail: str


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's attempts left behind; of a job by itself, and not in lists."""

    progress: AnyJson = None
    checkpoint: AnyJson = None
    """From where its next attempt goes on."""


class ShownLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a job's log."""

    attempt: int
    fence: int
    seq: int
    at: datetime
    stream: str
    level: str | None
    text: str


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a job's log, in order."""

    lines: list[ShownLine]
    next_cursor: str | None
    """Null: there are no more yet. To look for later ones, `<fence>.<seq>` of the last line is a cursor too."""
    dropped: int
    """Lines that were left out of what this page covers, because there were too many."""


class LogsQuery(Query, frozen=True, kw_only=True):
    """Which lines of a job's log to show."""

    attempt: Annotated[int, Meta(ge=1, le=32_767)] | None = None
    after: Annotated[str, Meta(max_length=32, pattern=r"^[0-9]{1,10}\.[0-9]{1,10}(\.[0-9]{1,10})?$")] | None = None
    """`next_cursor` of the page before."""
    limit: Annotated[int, Meta(ge=1, le=MAX_LINES)] = 200
    follow: bool = False
    """Stream the lines, and those that are still to come."""
