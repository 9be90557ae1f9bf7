"""PostgreSQL, by asyncpg.

Statements that write run on `hot` connections, on which sequential and bitmap scans are off: on tables just filled
and never analysed the planner would else sort the whole backlog for one claim. Reads have connections of their own.
Behind a transaction-mode pooler nothing outlives a transaction, so every statement runs inside one, which begins by
setting what a direct connection sets once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from windlass.clock import Clock
from windlass.db import postgres_pool
from windlass.db.base import Capabilities, Dialect, Row, Statements
from windlass.db.dbclock import CLOCK, DatabaseClock
from windlass.db.postgres_errors import BROKEN, UNAVAILABLE, is_over, set_up, translated
from windlass.db.postgres_pool import acquired, terminate
from windlass.db.sqlfile import ERA, TRANSACTION, Query
from windlass.errors import CommitAborted, CommitUnknown, Contention, Unavailable

HOT_SETTINGS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    # Hot statements are shaped to have one plan; planning them anew for each length of a list cost 1 ms a batch.
    "plan_cache_mode": "force_generic_plan",
    # What was acknowledged is on disk, here and on synchronous standbys, whatever the database or the role says.
    # remote_apply would add only that standbys show it already, and we read from none.
    "synchronous_commit": "on",
    "lock_timeout": "1s",
    "statement_timeout": "30s",
    # 0.6 of the default duty lease: a stopped process must not block its successor.
    "idle_in_transaction_session_timeout": "3600ms",
}
READ_SETTINGS = {"jit": "off", "statement_timeout": "60s", "default_transaction_read_only": "on"}
HOT_COMMAND_S = 10.0
READ_COMMAND_S = 65.0
"""A statement that has no answer after this has none at all: the server is gone, and nobody said so."""
LONG_S = 86_400.0
"""For migrations, which may build an index for hours."""
PING_S, CLOSE_S = 5.0, 3.0
STATUS_TRIES = 50
STATUS_PAUSE_S = 0.1
# A standby, met by a connection that was sent elsewhere, has not seen everything: it does not say.
STATUS = (
    "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_xact_status($1::text::xid8) END AS status,"
    f" CASE WHEN NOT pg_is_in_recovery() THEN {ERA} END AS era"
)

_GONE = (asyncpg.UndefinedTableError, asyncpg.UndefinedObjectError, asyncpg.ObjectNotInPrerequisiteStateError)
_ARRAYS: dict[int, Any] = {}
"""Array types of PostgreSQL itself, by number, as the driver describes them. They are the same on every server."""
_OWN_TYPES = 10_000
_NOT_ASKED = SimpleNamespace(name="not asked")


class _Connection(asyncpg.Connection):
    now: str | None = None
    """The time that a test has set on this connection."""

    async def _introspect_types(self, typeoids: Collection[int], timeout: float) -> tuple[list[Any], Any]:
        """The driver asks on each connection, for each statement with a new array, what that array is: 3 ms each."""
        if _ARRAYS.keys() >= set(typeoids):
            return list(_ARRAYS.values()), _NOT_ASKED
        rows, statement = await super()._introspect_types(typeoids, timeout)  # type: ignore[misc]  # not published
        _ARRAYS.update({row["oid"]: row for row in rows if row["oid"] < _OWN_TYPES})
        return rows, statement

    def get_reset_query(self) -> str:
        """Nothing is ever set for longer than a transaction, so giving a connection back costs no round trip."""
        return ""


class PostgresDatabase:
    """A pool of writing and a pool of reading connections."""

    dialect: Dialect = "postgres"

    def __init__(self, dsn: str, clock: Clock | None, pooled: bool) -> None:
        self._dsn = dsn
        parts = urlsplit(dsn)
        self._where = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "localhost")
        self._clock = clock
        self._pooled = pooled
        self._time = DatabaseClock(clock)
        # A pooler would give LISTEN to whichever connection is free: behind one, servers poll.
        self.capabilities = Capabilities(notify=not pooled, partitions=True, commit_status=True, claims=True)
        self._hot: asyncpg.Pool[Any] | None = None
        self._read: asyncpg.Pool[Any] | None = None
        self._spare: list[asyncpg.Connection[Any]] = []
        """For maintenance, which no time limit may cut off: those that are not in use."""

    @classmethod
    async def open(
        cls, dsn: str, *, clock: Clock | None, pooled: bool, connections: int, readers: int = 3
    ) -> PostgresDatabase:
        """Return the database, having connected once; Unavailable or SetupError with the reason when that fails."""
        database = cls(dsn, clock, pooled)
        try:
            hot = database._pool(connections, HOT_SETTINGS, command_s=HOT_COMMAND_S)
            database._hot = await translated(set_up, hot)
            read = database._pool(readers, READ_SETTINGS, command_s=READ_COMMAND_S)
            database._read = await translated(set_up, read)
            await database.read_clock()
        except BaseException:
            await database.close()
            raise
        return database

    async def _pool(self, size: int, settings: dict[str, str], *, command_s: float) -> asyncpg.Pool[Any]:
        pool: asyncpg.Pool[Any] = await asyncpg.create_pool(
            self._dsn,
            connect=self._connect_to,
            min_size=1,
            max_size=size,
            connection_class=_Connection,
            timeout=postgres_pool.CONNECT_TIMEOUT_S,
            command_timeout=command_s,
            statement_cache_size=0 if self._pooled else 256,
            server_settings={} if self._pooled else {"application_name": "windlass", **settings},
            max_inactive_connection_lifetime=0,
        )
        return pool

    def now(self) -> datetime:
        """Return the time by the database's clock; setting this machine's clock changes nothing."""
        return self._time.now()

    async def read_clock(self) -> None:
        """Ask the database what time it is."""
        assert self._hot is not None
        async with acquired(self._hot) as connection:
            await self._time.read(lambda: translated(connection.fetchval, CLOCK))

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query; by itself where the connection keeps its settings, else inside a transaction of its own."""
        pool, settings = self._pool_for(query)
        if self._pooled:
            async with self._open(pool, settings, tracked=False) as statements:
                return await statements.fetch(query, **parameters)
        async with acquired(pool) as connection:
            await self._set_clock(connection)
            try:
                return await _fetch(connection, query, parameters)
            except Unavailable as error:
                if query.writes and isinstance(error.__cause__, BROKEN):
                    told = f"The connection broke ({error.__cause__}); whether it was committed is not known."
                    raise CommitUnknown(told) from error
                raise

    async def run(self, script: str) -> None:
        """Run a script in a transaction of its own."""
        async with self.transaction() as statements:
            await statements.run(script)

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        """Open a transaction on a writing connection."""
        assert self._hot is not None
        async with self._open(self._hot, HOT_SETTINGS, tracked=tracked) as statements:
            yield statements

    async def maintain(self, statement: str) -> None:
        """Run one statement on a connection without time limits, which is kept for the next one."""
        connection = await self._unlimited()
        try:
            await translated(connection.execute, statement)
        except BaseException as error:
            await connection.close()
            if isinstance(error, _GONE):
                raise Contention(f"A rival has done or does the same: {error}. Running it again is safe.") from error
            raise
        self._spare.append(connection)

    async def empty_log(self) -> bool:
        """Return True: PostgreSQL recycles its log by itself."""
        return True

    async def _unlimited(self) -> asyncpg.Connection[Any]:
        """Return a connection without time limits: one that is spare and answers, or a new one."""
        while self._spare:
            connection = self._spare.pop()
            with suppress(asyncpg.PostgresError, *UNAVAILABLE):
                await connection.execute("SELECT 1", timeout=postgres_pool.CONNECT_TIMEOUT_S)
                return connection
            connection.terminate()
        return await translated(self._connect)

    async def notify(self, channel: str, payload: str) -> None:
        """Send a hint, on a writing connection and outside any transaction of a job."""
        assert self._hot is not None
        async with acquired(self._hot) as connection:
            await translated(connection.execute, "SELECT pg_notify($1, $2)", channel, payload)

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[AsyncIterator[str]]:
        """Listen on a connection of its own; behind a pooler nothing ever comes."""
        if self._pooled:
            yield _until_none(asyncio.Queue())
            return
        connection = await translated(self._connect)
        hints: asyncio.Queue[str | None] = asyncio.Queue()
        connection.add_termination_listener(lambda _: hints.put_nowait(None))
        pinging = asyncio.create_task(_ping(connection, hints))
        try:
            await translated(connection.add_listener, channel, lambda *message: hints.put_nowait(message[3]))
            yield _until_none(hints)
        finally:
            pinging.cancel()
            connection.terminate()

    async def version(self) -> str:
        """Return for example `PostgreSQL 15.8`."""
        assert self._read is not None
        async with acquired(self._read) as connection:
            return "PostgreSQL " + str(await translated(connection.fetchval, "SHOW server_version")).split()[0]

    async def close(self) -> None:
        """Close both pools; connections that do not let go in time are cut off."""
        for connection in self._spare:
            connection.terminate()
        for pool in (self._hot, self._read):
            if pool is not None:
                try:
                    async with asyncio.timeout(CLOSE_S):
                        await pool.close()
                except TimeoutError:
                    pool.terminate()

    async def _connect(self) -> asyncpg.Connection[Any]:
        return await self._connect_to(self._dsn, timeout=postgres_pool.CONNECT_TIMEOUT_S, statement_cache_size=0)

    async def _connect_to(self, *arguments: Any, **options: Any) -> asyncpg.Connection[Any]:
        """Connect; an error says where nobody answers, which event loops leave out."""
        try:
            return await asyncpg.connect(*arguments, **options)  # type: ignore[no-any-return]
        except OSError as error:
            raise ConnectionError(f"{str(error) or type(error).__name__} ({self._where})") from error

    def _pool_for(self, query: Query) -> tuple[asyncpg.Pool[Any], dict[str, str]]:
        assert self._hot is not None and self._read is not None
        return (self._hot, HOT_SETTINGS) if query.hot else (self._read, READ_SETTINGS)

    async def _set_clock(self, connection: Any) -> None:
        """Let a connection be as late as the clock says, if it is not; behind a pooler each transaction says so."""
        if self._clock is None or self._pooled:
            return
        now, taken = self._clock().isoformat(), connection._con
        if taken is None or taken.now != now:
            await translated(connection.execute, f"SET windlass.now = '{now}'")
            taken.now = now

    def _begin(self, settings: dict[str, str]) -> str:
        local = dict(settings) if self._pooled else {}
        if self._pooled and self._clock:
            local["windlass.now"] = self._clock().isoformat()
        local.pop("default_transaction_read_only", None)
        return "; ".join(["BEGIN", *(f"SET LOCAL {name} = '{value}'" for name, value in local.items())])

    @asynccontextmanager
    async def _open(
        self, pool: asyncpg.Pool[Any], settings: dict[str, str], *, tracked: bool
    ) -> AsyncIterator[PostgresTransaction]:
        async with acquired(pool) as connection:
            await self._set_clock(connection)
            await translated(connection.execute, self._begin(settings))
            transaction = PostgresTransaction(connection, self.capabilities.inside())
            try:
                yield transaction
                if tracked and transaction.name is None:
                    transaction.name = await translated(connection.fetchval, f"SELECT {TRANSACTION}")
            except BaseException as error:
                if is_over(error):
                    terminate(connection)
                else:
                    await _roll_back(connection)
                raise
            try:
                done = await connection.execute("COMMIT")
            except UNAVAILABLE as broken:
                await self._resolve(transaction.name if tracked else None, broken)
            else:
                if done != "COMMIT":  # PostgreSQL answers ROLLBACK, without an error, when a statement had failed
                    raise CommitAborted("A statement of the transaction had failed, so nothing was written.")

    async def _resolve(self, name: str | None, broken: BaseException) -> None:
        """Return if the tracked transaction did commit after all; raise CommitAborted or CommitUnknown if not.

        A server that recovers from a crash gives the numbers of transactions it has no trace of to others.
        So "aborted" always holds, and "committed" only in the era in which the transaction had its number.
        """
        if name is None:
            raise CommitUnknown(f"The connection broke at COMMIT ({broken}); whether it was committed is not known.")
        number, named_in = name.split()
        for _ in range(STATUS_TRIES):
            status, era = await self._status(number)
            if status == "committed":
                if era == named_in:
                    return
                raise CommitUnknown(f"The connection broke at COMMIT ({broken}), and the database may have restarted.")
            if status == "aborted":
                raise CommitAborted(f"The connection broke at COMMIT ({broken}); nothing was written.")
            await asyncio.sleep(STATUS_PAUSE_S)
        raise CommitUnknown(f"The connection broke at COMMIT ({broken}); the database does not say what became of it.")

    async def _status(self, xid: str) -> tuple[str | None, str | None]:
        """Return what the database says of a transaction, and in which era; None for what it does not say."""
        try:
            connection = await self._connect()
            try:
                row = await connection.fetchrow(STATUS, xid)
            finally:
                await connection.close()
        except asyncpg.InvalidParameterValueError:  # "in the future": the server crashed and never saw it
            return "aborted", None
        except UNAVAILABLE:
            return None, None
        assert row is not None
        return row["status"], row["era"]


class PostgresTransaction:
    """The verbs, inside one open transaction."""

    dialect: Dialect = "postgres"

    def __init__(self, connection: Any, capabilities: Capabilities) -> None:
        self._connection = connection
        self.capabilities = capabilities
        self.name: str | None = None
        """Its number, and the era in which it has it, once a query has told: what its fate can be asked for by."""

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query in this transaction."""
        rows = await _fetch(self._connection, query, parameters)
        if rows and "transaction_name" in rows[0]:
            self.name = rows[0]["transaction_name"]
        return rows

    async def run(self, script: str) -> None:
        """Run a script of statements without parameters, however long it takes."""
        await translated(self._connection.execute, script, timeout=LONG_S)

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        """Join this transaction."""
        yield self


async def _fetch(connection: Any, query: Query, parameters: dict[str, Any]) -> list[Row]:
    text, slots = query.postgres
    if parameters.keys() != query.parameters:
        raise TypeError(f"{query.name} takes {sorted(query.parameters)}, got {sorted(parameters)}")
    values = [parameters[name] if column is None else _column(parameters[name], column) for name, column in slots]
    rows: list[Row] = await translated(connection.fetch, text, *values)
    return rows


def _column(rows: list[tuple[Any, ...]], index: int) -> list[Any] | None:
    """Return one array of a rows parameter; None where all is NULL: unnest fills up what is too short with NULL.

    The first column is always sent, because it says how many rows there are.
    """
    values = [row[index] for row in rows]
    return values if index == 0 or values.count(None) < len(values) else None


async def _roll_back(connection: Any) -> None:
    try:
        await connection.execute("ROLLBACK")
    except UNAVAILABLE:
        terminate(connection)


async def _ping(connection: asyncpg.Connection[Any], hints: asyncio.Queue[str | None]) -> None:
    """Ask a listening connection now and then whether it still lives: one that fell silent would never say so."""
    try:
        while True:
            await asyncio.sleep(PING_S)
            await connection.execute("SELECT 1", timeout=PING_S)
    except (asyncpg.PostgresError, *UNAVAILABLE):
        hints.put_nowait(None)


async def _until_none(hints: asyncio.Queue[str | None]) -> AsyncIterator[str]:
    while (hint := await hints.get()) is not None:
        yield hint
