"""What people see and do besides jobs: dead letters, workers, queues, duties, tenants, keys, the audit."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from windlass.wire.base import MAX_PAGE, Because, Instant, Name, Query
from windlass.wire.base import Pages as PagesOfStates

ScopeName = Literal["submit", "work", "read", "operate", "admin"]
RoleName = Literal["admin", "producer", "reader", "worker"]
Ids = Annotated[tuple[UUID, ...], Meta(min_length=1, max_length=1000)]


class DeadQuery(PagesOfStates, frozen=True, kw_only=True):
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


class Pages(Query, frozen=True, kw_only=True):
    """The query of a list by name."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    cursor: Annotated[str, Meta(min_length=1, max_length=300, pattern="^[^\\u0000]+$")] | None = None
    """`next_cursor` of the page before."""


class TenantRequest(Because, frozen=True, kw_only=True):
    """A tenant to make."""

    name: Annotated[Name, Meta(examples=["acme"])]


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant."""

    name: str
    created_at: datetime


class TenantList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tenants by name."""

    tenants: list[Tenant]
    next_cursor: str | None


class KeyRequest(Because, frozen=True, kw_only=True):
    """A key to make: scopes, or a role that stands for some."""

    name: Annotated[Name, Meta(examples=["mailer"])]
    scopes: Annotated[tuple[ScopeName, ...], Meta(min_length=1, max_length=5)] | None = None
    role: RoleName | None = None
    tenant: Name | None = None
    """Only from who is above tenants: whose key it is; null for one above tenants."""
    queues: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=100)] | None = None
    expires_at: Instant | None = None


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key: all but its secret."""

    id: str
    name: str
    tenant: str | None
    scopes: list[str]
    queues: list[str] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKey(Key, frozen=True, kw_only=True):
    """A key with its secret, which is shown this once."""

    token: str


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of keys by id."""

    keys: list[Key]
    next_cursor: str | None


class AuditQuery(Query, frozen=True, kw_only=True):
    """Which entries of the audit to list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    cursor: UUID | None = None
    action: Name | None = None
    subject: Name | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody did by hand."""

    id: UUID
    happened_at: datetime
    tenant: str | None
    actor: str | None
    address: str | None
    request_id: str | None
    action: str
    subject: str
    reason: str | None
    was: Raw | None
    became: Raw | None


class AuditList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the audit, newest first."""

    entries: list[AuditEntry]
    next_cursor: UUID | None


class Duty(msgspec.Struct, frozen=True, kw_only=True):
    """A chore of the servers, and who does it."""

    name: str
    held_by: str | None
    held_for_seconds: float | None
    heartbeat_age_seconds: float
    progress_age_seconds: float | None
    term: int
    last_run_at: datetime | None
    items: int
    errors: int
    duration_ms: int | None


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server heard within a day."""

    id: UUID
    name: str
    version: str
    address: str | None
    live: bool
    started_at: datetime
    heartbeat_at: datetime


class DutyList(msgspec.Struct, frozen=True, kw_only=True):
    """The duties by name, and the servers they are spread over."""

    duties: list[Duty]
    servers: list[Server]
