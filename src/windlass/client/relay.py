"""Relay: brings jobs from the outbox of an application's own database (outbox.py) to the servers.

Rows are read in batches, submitted with their id as idempotency key, then deleted: a relay that dies in between submits
them again and gets the same jobs, for as long as servers remember keys (`jobs.idempotency_hours`). Any number of relays
may run. A row that can never be a job is set aside with its error. A shared PostgreSQL or SQLite file needs none: there
the servers do it by themselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.client.connections import bind, driver_of
from windlass.client.options import Options
from windlass.client.outbox import TABLE, statement
from windlass.client.task import Call
from windlass.durations import parse_duration
from windlass.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from windlass.client.app import App

REFUSED = (InvalidInput, Conflict)
"""What submitting again would not mend."""

logger = logging.getLogger("windlass")

Row = tuple[str, str, str | None, str]
"""Id, task, payload, options."""


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
            rows = self._waiting(connection)
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

    def _waiting(self, connection: Any) -> list[Row]:
        cursor = connection.cursor()
        try:
            cursor.execute(statement("waiting", self._table))
            return [tuple(row) for row in cursor.fetchmany(self._batch_count)]
        finally:
            cursor.close()

    def _submit(self, rows: Sequence[Row]) -> list[tuple[str, str | None]]:
        """Submit rows; return each with what keeps it from being a job, None if it is one now."""
        calls, done = [], list[tuple[str, str | None]]()
        for row in rows:
            try:
                calls.append((row, self._call(row)))
            except msgspec.MsgspecError as error:
                done.append(_set_aside(row, f"options: {error}"))
        return done + self._enqueue(calls)

    def _enqueue(self, calls: Sequence[tuple[Row, Call[Any]]]) -> list[tuple[str, str | None]]:
        if not calls:
            return []
        try:
            self._app.enqueue_many([call for _, call in calls])
        except REFUSED as error:
            if len(calls) == 1:
                return [_set_aside(calls[0][0], str(error))]
        else:
            return [(row[0], None) for row, _ in calls]
        # One of them is refused: find it by halves, so that the others are stored.
        middle = len(calls) // 2
        return [*self._enqueue(calls[:middle]), *self._enqueue(calls[middle:])]

    def _call(self, row: Row) -> Call[Any]:
        row_id, task, payload, text = row
        options = msgspec.json.decode(text, type=Options)
        if options.idempotency_key is None:
            options = msgspec.structs.replace(options, idempotency_key=f"outbox:{row_id}")
        body = b"null" if payload is None else payload.encode()
        return Call(self._app, task, payload=body, options=options, decode=msgspec.json.decode)


def _set_aside(row: Row, error: str) -> tuple[str, str]:
    logger.error("Row %s of the outbox cannot be a job and is set aside: %s", row[0], error)
    return row[0], error


def _execute(connection: Any, text: str, bound: Any) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(text, bound)
    finally:
        cursor.close()
