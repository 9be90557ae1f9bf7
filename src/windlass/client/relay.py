"""Relay: brings jobs from the outbox of an application's own database (outbox.py) to the servers.

Rows are read in batches, submitted with their id as idempotency key, then deleted: a relay that dies in between submits
them again and gets the same jobs, for as long as servers remember keys (`jobs.idempotency_hours`). Any number of relays
may run. A row that can never be a job is set aside with its error, whatever it is: it keeps no other waiting.
A shared PostgreSQL or SQLite file needs none: there the servers do it by themselves.
"""

from __future__ import annotations

import difflib
import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from windlass.client.connections import bind, driver_of
from windlass.client.options import Options
from windlass.client.outbox import TABLE, statement
from windlass.client.task import Call
from windlass.durations import parse_duration
from windlass.errors import BodyTooLarge, Conflict, Forbidden, InvalidInput, NotFound, WindlassError
from windlass.wire.jobs import JobRequest

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from windlass.client.app import App

REFUSED = (InvalidInput, BodyTooLarge, Conflict)
"""What submitting again would not mend."""
NOT_ALLOWED = (Forbidden, NotFound)
"""The same, of a row with a queue or tenant that the key is not for; unless the key may submit nothing at all."""
KNOWN = frozenset(JobRequest.__struct_fields__) - {"task", "payload"}

logger = logging.getLogger("windlass")

Row = tuple[str, str, str | bytes | None, str]
"""Id, task, payload, options; some drivers give long texts as bytes."""
Done = tuple[str, str | None]
"""The id of a row that was dealt with, and why it is set aside; None: it is a job now."""


class Relay:
    """Reads an outbox and submits what stands there; `run_once`, or `with Relay(...)` for a thread of its own."""

    def __init__(
        self,
        connect: Any,
        app: App,
        *,
        table: str = TABLE,
        batch_count: int = 100,
        look: str | float | timedelta = 1.0,
    ) -> None:
        """Take a function that returns a new DB-API connection, or an engine of SQLAlchemy."""
        self._connect = connect
        self._app = app
        self._table = table
        self._batch_count = batch_count
        self._look_s = parse_duration(look, "look")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def run_once(self) -> int:
        """Bring one batch over; return how many rows were done. WindlassError if no server took them: they stay."""
        raw = getattr(self._connect, "raw_connection", None)
        connection = raw() if raw is not None else self._connect()
        try:
            style = self._connect.dialect.paramstyle if raw is not None else driver_of(connection).style
            rows = self._waiting(connection, style)
            for row_id, error in self._submit(rows):
                name = "remove" if error is None else "set_aside"
                text, bound = bind(statement(name, self._table), style, {"id": row_id, "error": error})
                _execute(connection, text, bound)
            connection.commit()
            return len(rows)
        finally:
            connection.close()

    def run(self) -> None:
        """Bring rows over until `stop`; what fails is logged and tried again."""
        while not self._stopping.is_set():
            try:
                done = self.run_once()
            except Exception as error:
                # Also what the driver raises: the application's database may be away for a while.
                logger.warning("The outbox could not be relayed, and is looked at again: %s", error)
                done = 0
            if done < self._batch_count:
                self._stopping.wait(self._look_s)

    def stop(self) -> None:
        """Let `run` return after its batch."""
        self._stopping.set()

    def __enter__(self) -> Self:
        self._stopping.clear()
        self._thread = threading.Thread(target=self.run, name="windlass-relay", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _waiting(self, connection: Any, style: str) -> list[Row]:
        text, bound = bind(statement("waiting", self._table), style, {"limit": self._batch_count})
        cursor = connection.cursor()
        try:
            cursor.execute(text, bound)
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            cursor.close()

    def _submit(self, rows: Sequence[Row]) -> list[Done]:
        """Submit rows; return each with what keeps it from being a job, None if it is one now."""
        calls, done = [], list[Done]()
        for row in rows:
            try:
                calls.append((row, self._call(row)))
            except Exception as problem:
                # Also what nobody foresaw: one row must not stop all that come after it.
                done.append(_set_aside(row, str(problem)))
        not_allowed: list[tuple[Row, WindlassError]] = []
        answered = self._enqueue(calls, not_allowed)
        if not_allowed and not answered:
            # Not one was listened to: that is the key's fault, not theirs.
            raise not_allowed[0][1]
        return done + answered + [_set_aside(row, str(error)) for row, error in not_allowed]

    def _enqueue(
        self, calls: Sequence[tuple[Row, Call[Any]]], not_allowed: list[tuple[Row, WindlassError]]
    ) -> list[Done]:
        if not calls:
            return []
        try:
            self._app.enqueue_many([call for _, call in calls])
        except REFUSED as error:
            if len(calls) == 1:
                return [_set_aside(calls[0][0], str(error))]
        except NOT_ALLOWED as error:
            if len(calls) == 1:
                not_allowed.append((calls[0][0], error))
                return []
        else:
            return [(row[0], None) for row, _ in calls]
        # One of them is refused: find it by halves, so that the others are stored.
        middle = len(calls) // 2
        return [*self._enqueue(calls[:middle], not_allowed), *self._enqueue(calls[middle:], not_allowed)]

    def _call(self, row: Row) -> Call[Any]:
        row_id, task, payload, text = row
        body = b"null" if payload is None else payload.encode() if isinstance(payload, str) else bytes(payload)
        try:
            # It stands in the request as it is, so it must be one value and nothing more.
            msgspec.json.decode(body, type=Raw)
            said = msgspec.json.decode(text, type=dict[str, Raw])
        except msgspec.MsgspecError as error:
            raise InvalidInput("row", f"its payload or its options are no JSON: {error}.") from None
        for name in sorted(said.keys() - KNOWN):
            near = difflib.get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.5)
            raise InvalidInput("options", f"there is no option {name!r}." + (f" Is it {near[0]}?" if near else ""))
        said.setdefault("idempotency_key", Raw(msgspec.json.encode(f"outbox:{row_id}")))
        return Call(self._app, task, payload=body, options=_Written(said=said), decode=msgspec.json.decode)


class _Written(Options, frozen=True, kw_only=True):
    """Options as they stand in a row: the fields of a request, which the server reads."""

    said: Mapping[str, Raw]

    def fields(self, task: str, payload: bytes) -> dict[str, Any]:
        """Return what a request for this job says besides task and payload."""
        return dict(self.said)


def _set_aside(row: Row, error: str) -> Done:
    logger.error("Row %s of the outbox cannot be a job and is set aside: %s", row[0], error)
    return row[0], error


def _execute(connection: Any, text: str, bound: Any) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(text, bound)
    finally:
        cursor.close()
