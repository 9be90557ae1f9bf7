"""What people see and do besides jobs: dead letters, workers, queues, duties, tenants, keys, the audit."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from windlass.wire.base import Because, Name, Pages

Ids = Annotated[tuple[UUID, ...], Meta(min_length=1, max_length=1000)]


class DeadQuery(Pages, frozen=True, kw_only=True):
    """Which dead letters to list."""

    queue: Name | None = None
    task: Name | None = None


class DeadRequest(Because, frozen=True, kw_only=True):
    """Which dead letters: these, or the newest of a queue or task, a thousand at most."""

    ids: Ids | None = None
    queue: Name | None = None
    task: Name | None = None


class DeadRetryRequest(DeadRequest, frozen=True, kw_only=True):
    """Which dead letters to run again, and with what."""

    payload: Raw | UnsetType = UNSET


class DeadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one dead letter."""

    id: UUID
    status: Literal["retried", "purged", "conflict", "not_found"]
    detail: str | None = None


class DeadAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each dead letter."""

    count: int
    """How many it was done to."""
    jobs: list[DeadAnswer]
