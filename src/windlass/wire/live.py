"""The stream of what happens to jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from windlass.wire.base import Instant, Query


class StreamedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the stream."""

    job_id: UUID
    kind: str
    happened_at: datetime
    worker_id: str | None
    actor: str | None = None
    """Who did it, where no worker did: the name of a key, or a part of Windlass."""
    detail: str | None


class EventsQuery(Query, frozen=True, kw_only=True):
    """Which events to stream, and from when."""

    since: Instant | None = None
    """From this time on; without it, from now on. The header `Last-Event-ID` says the same."""
    job_id: UUID | None = None
    """Only of this job."""
    kind: Annotated[str, Meta(min_length=1, max_length=50)] | None = None
    """Only of this kind: submitted, assigned, running, succeeded, failed, dead, …"""
    seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    """End the stream after so long; without it, when either side closes it."""
