"""A job as its caller asks for it, and the rules it must keep. Pure.

Everything from outside is bounded here, before any statement: sizes, depths, ranges, characters.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Literal
from uuid import UUID

import msgspec

from windlass.errors import InvalidInput, PayloadTooLarge
from windlass.queue.defaults import open_fields
from windlass.queue.retry import RetryPolicy

MAX_BATCH = 1000
MAX_JSON_BYTES = 262_144
CHECKED_BYTES = MAX_JSON_BYTES
"""Of JSON checked in one go on the event loop, which takes some 25 ms at worst; more is checked by a thread."""
MAX_DEPTH = 64
MAX_PRIORITY = 127
MAX_ATTEMPTS = 1000
MAX_NAME = 200
MAX_TEXT = 65_536
"""Characters kept of an error, a traceback or a reason."""
MAX_KEY_BYTES = 1024
MAX_LANE_BYTES = 2400
"""An entry of a PostgreSQL index holds 2,704 bytes; these names and keys are indexed together with their tenant."""
MAX_TIMEOUT_S = 10 * 365 * 86_400
MAX_DELAY_MS = 100 * 365 * 86_400_000
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)

# Slash and comma separate names in our own keys.
_NAME = re.compile(r"[^\x00-\x1f\x7f/,]+")


class LaneName(msgspec.Struct, frozen=True, order=True, gc=False):
    """What a lane is the number of."""

    tenant: str
    queue: str
    task: str = ""
    labels: str = ""
    """Sorted and joined by commas."""
    key: str = ""

    @property
    def of_queue(self) -> LaneName:
        """The name of the queue itself."""
        return LaneName(self.tenant, self.queue)


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job to submit; `None` means absent."""

    id: UUID
    """Fresh from `Ids`, never a caller's choice: an id is guarded against a second use only while its job is kept.

    Or that of its row in the outbox, which leaves out ids that are known (outbox.py).
    """
    task: str
    payload: str = "null"
    """JSON text, stored as received."""
    tenant: str = "default"
    queue: str = "default"
    labels: tuple[str, ...] = ()
    headers: str | None = None
    tags: tuple[str, ...] = ()
    priority: int = 0
    run_at: datetime | None = None
    delay_ms: int | None = None
    start_by: datetime | None = None
    """Start deadline: not started by then, the job expires."""
    start_within_ms: int | None = None
    """The same, as a span from when the job was asked for."""
    asked_ms_ago: int = 0
    """How long ago the job was asked for: of a row of the outbox, its age."""
    timeout_s: int | None = 3600
    max_attempts: int = 3
    max_lost: int = 5
    retry: RetryPolicy | None = None
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    """At most once: one attempt, and a lost lease ends in dead, whether its start was told or not."""
    idempotency_key: str | None = None
    idempotency_ms: int = 86_400_000
    unique_key: str | None = None
    unique_ms: int | None = None
    """How long the unique key is held; None: as long as the job lives."""
    flow_id: UUID | None = None
    parent_id: UUID | None = None
    schedule_id: UUID | None = None
    slot_at: datetime | None = None
    defaults: int = 0
    """Which options were left open, and which of these the task gave (defaults.py)."""

    @property
    def lane(self) -> LaneName:
        """The lane it will wait in."""
        return LaneName(self.tenant, self.queue, self.task, ",".join(sorted(set(self.labels))))

    @property
    def limits(self) -> tuple[int, int]:
        """How many attempts it has, and at which lost lease it is dead."""
        if self.delivery == "at_most_once":
            return 1, 1
        attempts = self.max_attempts if self.retry is None else self.retry.max_attempts or self.max_attempts
        return attempts, self.max_lost

    @property
    def content_hash(self) -> str:
        """Tells a repeated request from another one under the same idempotency key.

        Ids and keys do not count, and neither does what the request left open: a task's defaults may change meanwhile.
        """
        content = msgspec.structs.asdict(self)
        open_ones = open_fields(self.defaults)
        for name in ("id", "idempotency_key", "idempotency_ms", "asked_ms_ago", "defaults", *open_ones):
            del content[name]
        return hashlib.blake2b(msgspec.json.encode(content, order="sorted"), digest_size=16).hexdigest()


def tags_text(tags: Sequence[str]) -> str | None:
    """Return tags as they are stored."""
    return msgspec.json.encode(tags).decode() if tags else None


def validate(jobs: Sequence[NewJob]) -> None:
    """Return if every job may be stored; InvalidInput names the index and the field of the first that may not."""
    if not 1 <= len(jobs) <= MAX_BATCH:
        raise InvalidInput("jobs", f"{len(jobs)} jobs in one request; 1 to {MAX_BATCH} are accepted.")
    for index, job in enumerate(jobs):
        try:
            _validate(job)
        except InvalidInput as problem:
            raise problem.at(index) from None
    seen: set[UUID] = set()
    for index, job in enumerate(jobs):
        if job.id in seen:
            raise InvalidInput("id", f"{job.id} stands twice in the request.", index=index)
        seen.add(job.id)


def _validate(job: NewJob) -> None:
    for field, name in (("task", job.task), ("tenant", job.tenant), ("queue", job.queue)):
        check_name(field, name)
    for field, names in (("labels", job.labels), ("tags", job.tags)):
        if len(names) > 32:
            raise InvalidInput(field, f"{len(names)} of them; at most 32 are accepted.")
        for name in names:
            check_name(field, name)
    for field, key in (("idempotency_key", job.idempotency_key), ("unique_key", job.unique_key)):
        if key is not None:
            check_text(field, key, longest=512)
            if len(key.encode()) > MAX_KEY_BYTES:
                raise InvalidInput(field, f"{len(key.encode())} bytes; at most {MAX_KEY_BYTES} are accepted.")
    size = sum(len(part.encode()) for part in msgspec.structs.astuple(job.lane))
    if size > MAX_LANE_BYTES:
        raise InvalidInput("labels", f"{size} bytes with tenant, queue and task; at most {MAX_LANE_BYTES} are taken.")
    check_json("payload", job.payload)
    if job.headers is not None:
        check_json("headers", job.headers)
    check_range("priority", job.priority, -MAX_PRIORITY, MAX_PRIORITY)
    check_range("max_attempts", job.max_attempts, 1, MAX_ATTEMPTS)
    check_range("max_lost", job.max_lost, 1, MAX_ATTEMPTS)
    check_range("timeout_s", job.timeout_s, 1, MAX_TIMEOUT_S)
    check_range("delay_ms", job.delay_ms, 0, MAX_DELAY_MS)
    check_range("start_within_ms", job.start_within_ms, 0, MAX_DELAY_MS)
    check_range("idempotency_ms", job.idempotency_ms, 1, MAX_DELAY_MS)
    check_range("unique_ms", job.unique_ms, 1, MAX_DELAY_MS)
    for field, instant in (("run_at", job.run_at), ("start_by", job.start_by), ("slot_at", job.slot_at)):
        check_instant(field, instant)
    if job.run_at is not None and job.delay_ms is not None:
        raise InvalidInput("delay_ms", "run_at is given too; give one of them.")
    if job.start_by is not None and job.start_within_ms is not None:
        raise InvalidInput("start_within_ms", "start_deadline is given too; give one of them.")
    if job.retry is not None:
        check_policy(job.retry)


def check_policy(policy: RetryPolicy) -> None:
    """Return if the policy's figures make sense."""
    waits = (policy.base_s, policy.cap_s, *policy.delays_s)
    if any(not 0 <= wait <= MAX_DELAY_MS / 1000 for wait in waits) or len(policy.delays_s) > MAX_ATTEMPTS:
        raise InvalidInput("retry", "waits must lie between 0 and 100 years, at most 1,000 of them.")
    if not 1 <= policy.factor <= 100 or not 0 <= policy.jitter <= 1:
        raise InvalidInput("retry", "factor must lie between 1 and 100, jitter between 0 and 1.")
    check_range("retry.max_attempts", policy.max_attempts, 1, MAX_ATTEMPTS)
    if len(policy.by_error) > 32:
        raise InvalidInput("retry.by_error", f"{len(policy.by_error)} of them; at most 32 are accepted.")
    for error_type, inner in policy.by_error.items():
        check_text("retry.by_error", error_type, longest=MAX_NAME)
        if inner.by_error:
            raise InvalidInput("retry.by_error", "a policy by error type cannot hold further ones.")
        check_policy(inner)


def check_name(field: str, name: str) -> None:
    """Return if `name` can name a thing: 1 to 200 characters, no control characters, slash or comma."""
    check_text(field, name, longest=MAX_NAME)
    if not _NAME.fullmatch(name):
        raise InvalidInput(field, f"{name!r} holds a control character, a slash or a comma.")


def check_text(field: str, text: str, *, longest: int) -> None:
    """Return if PostgreSQL and SQLite can both store `text`."""
    if not 1 <= len(text) <= longest:
        raise InvalidInput(field, f"{len(text)} characters; 1 to {longest} are accepted.")
    _check_encodable(field, text)


def check_json(field: str, text: str, *, longest: int = MAX_JSON_BYTES) -> None:
    """Return if `text` is JSON of bounded size and depth."""
    size = len(_check_encodable(field, text))
    if size > longest:
        raise PayloadTooLarge(
            field, f"{size} bytes, more than {longest}. Store the data elsewhere and pass its address."
        )
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidInput(field, f"it is not JSON: {error}") from None
    # Fewer brackets than that cannot be nested so deep.
    if text.count("[") + text.count("{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise InvalidInput(field, f"it is nested more than {MAX_DEPTH} deep.")


def check_instant(field: str, instant: datetime | None) -> None:
    """Return if `instant` is absent, or has a zone and lies in a range that every part can compute with."""
    if instant is None:
        return
    if instant.tzinfo is None:
        raise InvalidInput(field, f"{instant.isoformat()} has no zone; write for example 2026-01-31T12:00:00Z.")
    try:
        inside = EARLIEST <= instant.astimezone(UTC) < LATEST
    except OverflowError:
        inside = False
    if not inside:
        raise InvalidInput(field, f"{instant.isoformat()} is not in the years 1970 to 9998. Give another time.")


def _check_encodable(field: str, text: str) -> bytes:
    if "\x00" in text:
        raise InvalidInput(field, "it holds a NUL character, which PostgreSQL cannot store.")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(field, "it holds half of a surrogate pair, which is not text.") from None


def check_range(field: str, value: float | None, least: float, most: float) -> None:
    """Return if `value` is absent or lies between the two; what is not a number does not."""
    if value is not None and not least <= value <= most:
        shown = "A number of more than 20 digits" if abs(value) >= 10**20 else value
        raise InvalidInput(field, f"{shown} is not between {least} and {most}.")


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    while level := [v for v in level if v.__class__ is list or v.__class__ is dict]:
        if depth == 0:
            return True
        depth -= 1
        level = list(chain.from_iterable(v.values() if v.__class__ is dict else v for v in level))
    return False


def storable(text: str | None) -> str | None:
    """Return a text that every database takes; what an error says must never keep it from being recorded."""
    if text is None:
        return None
    return text[:MAX_TEXT].replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()
