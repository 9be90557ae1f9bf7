"""Enqueue inside a transaction of the application's own: the job is there if it commits, and never was if not.

Where the application shares Windlass's PostgreSQL, the function `windlass.enqueue` writes the row, and the job has the
id that is returned. Elsewhere a table of the application's own keeps it (`OUTBOX_DDL`), and relay.py brings it over.
`finish_in` ends an attempt the same way: its effects and its end are one commit. See docs/transactions.md.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack, overload
from uuid import UUID

import msgspec

from windlass.client import values
from windlass.client.connections import driver_of, first, run, sqlstate_of
from windlass.client.options import JobOptions, Options
from windlass.clock import system_clock
from windlass.errors import InvalidInput, PayloadTooLarge, StaleFence
from windlass.ids import Ids

if TYPE_CHECKING:
    from windlass.client.context import Context

TABLE = "windlass_outbox"
MAX_PAYLOAD_BYTES = 262_144
"""No server takes more, whatever its settings."""
MAX_NAME = 200
STALE = "WL409"
"""The SQLSTATE of a finish that comes too late."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_ids = Ids(system_clock)
_making = threading.Lock()


def statement(name: str, table: str = TABLE) -> str:
    """Return a statement of outbox.sql, for a table; InvalidInput for what is no name of one."""
    if not _NAME.fullmatch(table):
        raise InvalidInput("table", f"{table!r} is no name of a table.")
    return _STATEMENTS[name].replace("{table}", table)


def _read_statements() -> dict[str, str]:
    _, *parts = re.split(
        r"^-- name: (\w+)\n", Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"), flags=re.M
    )
    texts = (re.sub(r"^--.*\n", "", text, flags=re.M).strip() for text in parts[1::2])
    return dict(zip(parts[::2], texts, strict=True))


_STATEMENTS = _read_statements()
OUTBOX_DDL = statement("table")
"""Makes the table in the application's own database; a migration may hold the same. MySQL wants longtext for text."""


class Named(Protocol):
    """A task of an App, or anything else that has a task's name and options."""

    @property
    def name(self) -> str:
        """The name that workers know it by."""


class Async(Protocol):
    """A connection whose calls are awaited."""

    def execute(self, *_: Any, **__: Any) -> Coroutine[Any, Any, Any]:
        """Run a statement."""


@overload
def enqueue_in(  # type: ignore[overload-overlap]
    connection: Async,
    task: str | Named,
    payload: Any = None,
    *,
    table: str | None = None,
    **options: Unpack[JobOptions],
) -> Awaitable[UUID]: ...
@overload
def enqueue_in(
    connection: object,
    task: str | Named,
    payload: Any = None,
    *,
    table: str | None = None,
    **options: Unpack[JobOptions],
) -> UUID: ...
def enqueue_in(
    connection: Any,
    task: str | Named,
    payload: Any = None,
    *,
    table: str | None = None,
    **options: Unpack[JobOptions],
) -> Any:
    """Enqueue a job in the transaction of `connection`; return its id, or an awaitable where the connection is async.

    `task` is a name, a task, or a call (`add.s(1, y=2)`), which brings its own payload.
    On PostgreSQL the function of a shared database is called, and the id is the job's; with `table`, and on every
    other database, a row is written there. Of a shared SQLite file the table is `outbox`, and the id the job's too.
    InvalidInput for what no server would take: it is refused here, before the commit.
    """
    name, text, said = _asked(task, payload, options)
    if table is None and driver_of(connection).is_postgres:
        bound = {"task": name, "payload": text, "options": said}
        return run(connection, statement("enqueue"), values=bound, read=lambda row: _uuid(first(row)))
    with _making:
        row_id = _ids.new()
    bound = {"id": str(row_id), "task": name, "payload": text, "options": said}
    return run(connection, statement("insert", table or TABLE), values=bound, read=lambda _: row_id)


enqueue = enqueue_on_commit = enqueue_in
"""As users of other libraries know it: the job is enqueued when the transaction commits."""


@overload
def finish_in(connection: Async, context: Context, result: Any = None) -> Awaitable[None]: ...  # type: ignore[overload-overlap]
@overload
def finish_in(connection: object, context: Context, result: Any = None) -> None: ...
def finish_in(connection: Any, context: Context, result: Any = None) -> Any:
    """End the attempt of `context` in the transaction of `connection`, which must be on Windlass's own PostgreSQL.

    The job succeeds when the transaction commits. StaleFence if the lease is over: roll back, the work is another's.
    Return None, or an awaitable where the connection is async. Call it last: it locks the job's place until the commit.
    """
    if not driver_of(connection).is_postgres:
        raise InvalidInput("connection", "only on PostgreSQL can an attempt be finished; see docs/transactions.md.")
    text = None if result is None else values.encode(result, "result").decode()
    bound = {"id": str(context.id), "fence": context.fence, "result": text}

    def call() -> Any:
        return run(connection, statement("finish"), values=bound, read=lambda _: None)

    return _refusing(call, context)


def _refusing(call: Callable[[], Any], context: Context) -> Any:
    try:
        answer = call()
    except Exception as error:
        raise _told(error, context) from error
    return None if answer is None else _arefusing(answer, context)


async def _arefusing(answer: Any, context: Context) -> None:
    try:
        await answer
    except Exception as error:
        raise _told(error, context) from error


def _told(error: Exception, context: Context) -> Exception:
    if sqlstate_of(error) != STALE:
        return error
    return StaleFence(
        f"Job {context.id} cannot be finished with fence {context.fence}: its lease is over, or it has been used. "
        "Roll the transaction back; the work is another's."
    )


def _asked(task: Any, payload: Any, options: JobOptions) -> tuple[str, str | None, str]:
    """Return what a row says: the task's name, the payload and the options, both as JSON."""
    own = Options()
    if isinstance(task, str):
        name = task
    else:
        name = task.name
        own = getattr(task, "job_options", None) or task.options
        if isinstance(own_payload := getattr(task, "payload", None), bytes):
            if payload is not None:
                raise InvalidInput("payload", f"the call of {name} has one already.")
            payload = msgspec.Raw(own_payload)
    if not 1 <= len(name) <= MAX_NAME:
        raise InvalidInput("task", f"{len(name)} characters; 1 to {MAX_NAME} are accepted.")
    text = b"null" if payload is None else values.encode(payload, "payload")
    if len(text) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            "payload",
            f"{len(text)} bytes, more than {MAX_PAYLOAD_BYTES}. Store the data elsewhere and pass its address.",
        )
    said = own.over(**options).fields(name, text)
    return name, None if payload is None else text.decode(), msgspec.json.encode(said).decode()


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(str(value))
