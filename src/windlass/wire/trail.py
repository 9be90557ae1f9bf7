"""What an attempt leaves behind while it runs: lines of its log, its progress, its checkpoint.

They travel with reports (work.py), so that a worker needs no request of their own for them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from windlass.wire.base import Body, Count, Fence, Instant

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


class Note(Body, frozen=True, kw_only=True):
    """How far an attempt is, and from where a later one may go on."""

    job_id: UUID
    fence: Fence
    progress: Raw | UnsetType = UNSET
    checkpoint: Raw | UnsetType = UNSET


class ShownLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a job's log."""

    attempt: int
    fence: int
    seq: int
    at: datetime
    stream: str
    level: str | None
    text: str
