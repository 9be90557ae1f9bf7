"""One connection of a test worker to its PostgreSQL database, kept open from test to test.

A new connection reads the catalog and plans each statement anew: emptying some forty tables with their partitions and
asking for every invariant took it longer than most tests take. Here both are prepared once.
It waits for its answers where it is called, on the loop of whichever test that is; none of them takes long.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

import psycopg
from psycopg.rows import dict_row

from windlass.db import Query, Row, Statements
from windlass.queue.check import INVARIANTS, SHOWN, Violation

NAME = "kept"
"""What the server calls it, so that a test may count those of others."""
SETTINGS = f"-c application_name={NAME} -c plan_cache_mode=force_generic_plan -c jit=off"


class Kept:
    """A connection that is opened when it is asked for, and again after it was ended."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[dict[str, Any]] | None = None

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Run one statement with `$1` for its first value; return its rows."""
        try:
            return self._rows(text, values)
        except psycopg.OperationalError:
            if not self._opened().broken:
                raise
            self.close()  # a test has ended every connection to its database
            return self._rows(text, values)

    def _rows(self, text: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        with psycopg.RawCursor(self._opened(), row_factory=dict_row) as cursor:
            cursor.execute(text, values, prepare=True)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Close it; the next statement opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> psycopg.Connection[dict[str, Any]]:
        if self._connection is None:
            self._connection = psycopg.connect(self._url, autocommit=True, options=SETTINGS, row_factory=dict_row)
        return self._connection


async def check_at_once(db: Statements) -> list[Violation]:
    """Return what `check` finds, asked in one statement: it is asked after each test and after each order of a race."""
    return [Violation(row["invariant"], row["subject"], row["detail"]) for row in await db.fetch(ALL, limit=SHOWN)]


async def check_kept(kept: Kept, now: datetime) -> list[Violation]:
    """Return the same at this instant, asked on a connection that is kept."""
    return await check_at_once(cast(Statements, _Reading(kept, now)))


def _all_invariants() -> Query:
    named = "SELECT '{}' AS invariant, v.subject, v.detail FROM ({}) v"
    postgres = " UNION ALL ".join(named.format(query.name, query.postgres_source) for query in INVARIANTS)
    sqlite = " UNION ALL ".join(named.format(query.name, query.sqlite_source) for query in INVARIANTS)
    return Query("all", "Every invariant.", postgres, sqlite)


ALL = _all_invariants()


class _Reading:
    """What of the verbs of a database `check` needs."""

    def __init__(self, kept: Kept, now: datetime) -> None:
        self._kept = kept
        kept.rows("SELECT set_config('windlass.now', $1, false)", [now.isoformat()])

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query, at the instant of the test's clock."""
        text, slots = query.postgres
        return [*self._kept.rows(text, [parameters[name] for name, _ in slots])]
