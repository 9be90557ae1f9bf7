"""Enqueue in the application's own transaction: committed it is there, rolled back it never was, with every library."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

import windlass
from tests.client.serving import Served
from tests.clock import TestClock
from tests.databases import KeptDatabases, connected
from tests.queue import said
from tests.queue.steps import Steps
from windlass.client import outbox
from windlass.client.app import App
from windlass.client.connections import bind
from windlass.client.context import AboutJob, Context
from windlass.client.outbox import OUTBOX_DDL, enqueue_in, finish_in
from windlass.client.relay import Relay
from windlass.db import Database
from windlass.errors import InvalidInput, PayloadTooLarge, StaleFence
from windlass.job import State

app = App(url="http://127.0.0.1:9")  # nobody listens there, and nothing is asked


@app.task(queue="post", max_attempts=7)
def mail(to: str, copies: int = 1) -> None:
    """Send nothing."""


def alchemical(url: str) -> str:
    """Return the URL as SQLAlchemy wants it."""
    return url.replace("postgresql://", "postgresql+psycopg://").replace("postgres://", "postgresql+psycopg://")


@asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Any]:
    """A transaction of asyncpg."""
    async with connected(url) as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def of_asyncpg_pool(url: str) -> AsyncIterator[Any]:
    """A transaction of a pool of asyncpg."""
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def of_psycopg(url: str) -> AsyncIterator[Any]:
    """A transaction of psycopg, async, with rows that are dicts."""
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        yield connection


@asynccontextmanager
async def of_alchemy(url: str) -> AsyncIterator[Any]:
    """A transaction of SQLAlchemy, async."""
    engine = sqlalchemy_asyncio.create_async_engine(alchemical(url))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def of_alchemy_session(url: str) -> AsyncIterator[Any]:
    """A transaction of SQLAlchemy, an async session."""
    engine = sqlalchemy_asyncio.create_async_engine(alchemical(url))
    try:
        async with sqlalchemy_asyncio.AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


@contextmanager
def blocking_psycopg(url: str) -> Iterator[Any]:
    """A transaction of psycopg."""
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def blocking_alchemy(url: str) -> Iterator[Any]:
    """A transaction of SQLAlchemy."""
    engine = sqlalchemy.create_engine(alchemical(url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def blocking_alchemy_session(url: str) -> Iterator[Any]:
    """A transaction of SQLAlchemy, a session."""
    engine = sqlalchemy.create_engine(alchemical(url))
    try:
        with orm.Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


AWAITED = [of_asyncpg, of_asyncpg_pool, of_psycopg, of_alchemy, of_alchemy_session]
BLOCKING = [blocking_psycopg, blocking_alchemy, blocking_alchemy_session]
SENDING = mail.options(priority=3).s("ann", copies=2)


class Changed(Exception):
    """The application changes its mind."""


async def in_transaction(opened: Any, url: str, *, fails: bool = False) -> UUID:
    """Enqueue in a transaction of a library, which commits or fails; return the id."""
    made: list[UUID] = []
    try:
        if opened in AWAITED:
            async with opened(url) as connection:
                made.append(await enqueue_in(connection, SENDING))
                if fails:
                    raise Changed
        else:
            await asyncio.to_thread(_blocking, opened, url, made, fails)
    except Changed:
        pass
    return made[0]


def _blocking(opened: Any, url: str, made: list[UUID], fails: bool) -> None:
    with opened(url) as connection:
        made.append(enqueue_in(connection, SENDING))
        if fails:
            raise Changed


@pytest.mark.parametrize("opened", [*AWAITED, *BLOCKING], ids=lambda opened: opened.__name__)
async def test_a_call_is_enqueued_by_the_commit(
    timely_postgres_url: str, kept_timely: KeptDatabases, clock: TestClock, opened: Any
) -> None:
    """S11: with every library the job has the id that was returned, the call's payload and the task's options."""
    [db] = await kept_timely.opened(1)
    job_id = await in_transaction(opened, timely_postgres_url)

    await said.relay(db)

    job = await Steps(db, clock).get(job_id)
    assert "post" == job.queue
    assert ('{"to":"ann","copies":2}', 3, 7) == (job.payload, job.priority, job.max_attempts)


@pytest.mark.parametrize("opened", [*AWAITED, *BLOCKING], ids=lambda opened: opened.__name__)
async def test_a_rollback_enqueues_nothing(postgres_db: Database, postgres_url: str, opened: Any) -> None:
    """S11: with every library nothing is left."""
    await in_transaction(opened, postgres_url, fails=True)

    assert [] == await said.left(postgres_db)


async def test_a_json_codec_of_the_application_does_not_matter(postgres_db: Database, postgres_url: str) -> None:
    """An application may have taught its connection to write JSON by itself: nothing is written twice."""
    async with connected(postgres_url) as connection:
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, schema="pg_catalog", encoder=repr, decoder=str)
        await enqueue_in(connection, "mail", {"to": "ann"}, queue="post")

        rows = await connection.fetch("SELECT payload, options FROM windlass.outbox")

    assert [('{"to":"ann"}', '{"queue": "post"}')] == [tuple(row) for row in rows]


def test_a_shared_sqlite_file_has_the_same_table(sqlite_url: str) -> None:
    """A row in the table `outbox` of Windlass's own file is a job of that id, after the commit."""
    path = sqlite_url.removeprefix("sqlite:///").split("?")[0]
    connection = sqlite3.connect(path)

    job_id = enqueue_in(connection, mail, {"to": "ann"}, table="outbox")
    connection.commit()

    found = connection.execute("SELECT id, kind, task, payload, due_at FROM outbox").fetchall()
    assert [(str(job_id), "enqueue", mail.name, '{"to":"ann"}', 0)] == found
    connection.close()


@pytest.mark.parametrize("way", ["http", "sqlite"])
def test_a_job_is_known_from_the_commit_on(served: Served, way: str) -> None:
    """Whoever has the id may ask for the job at once: the answer comes when the server has stored it."""
    connection = sqlite3.connect(served.settings.database.url.removeprefix("sqlite:///").split("?")[0])
    job_id = enqueue_in(connection, mail, {"to": "ann"}, table="outbox")
    connection.commit()
    connection.close()

    with App(url=served.url) if way == "http" else App(database=served.settings.database.url) as asking:
        state = asking.job(job_id).status

    assert State.QUEUED is state


def test_what_the_document_names_is_at_the_door() -> None:
    """Programs import these from `windlass` itself."""
    assert (OUTBOX_DDL, enqueue_in, outbox.enqueue_on_commit) == (
        windlass.OUTBOX_DDL,
        windlass.enqueue_in,
        windlass.enqueue_on_commit,
    )
    assert (finish_in, Relay) == (windlass.finish_in, windlass.Relay)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The application's own database, with an outbox."""
    connection = sqlite3.connect(tmp_path / "own.db")
    connection.execute(OUTBOX_DDL)
    connection.commit()
    yield connection
    connection.close()


def test_a_row_in_a_database_of_the_applications_own(own: sqlite3.Connection) -> None:
    """Where Windlass is elsewhere, the row lies in a table of the application's."""
    row_id = enqueue_in(own, "mail", [1], delay="5m", tags=["a"])

    assert [(str(row_id), "mail", "[1]", '{"delay":300.0,"tags":["a"]}')] == own.execute(
        "SELECT id, task, payload, options FROM windlass_outbox"
    ).fetchall()


def test_a_session_on_another_database_writes_a_row(tmp_path: Path) -> None:
    """SQLAlchemy on SQLite, by `enqueue_on_commit`: the row is there after the commit, not after a rollback."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'own.db'}")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(OUTBOX_DDL))

    with orm.Session(engine) as session:
        outbox.enqueue_on_commit(session, mail.s("lost"))
        session.rollback()
        outbox.enqueue_on_commit(session, mail.s("ann"))
        session.commit()
        rows = session.execute(sqlalchemy.text("SELECT payload FROM windlass_outbox")).all()
    engine.dispose()

    assert ['{"to":"ann"}'] == [row[0] for row in rows]


class Wrapped:
    """A connection as Django has it: the database's vendor, and `%s` for every driver."""

    __module__ = "django.db.backends.sqlite3.base"
    vendor = "sqlite"

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []
        self.description = None

    def cursor(self) -> Wrapped:
        """Return itself."""
        return self

    def execute(self, text: str, values: Any) -> None:
        """Note what is said."""
        self.said.append((text, values))

    def close(self) -> None:
        """Do nothing."""


def test_a_connection_of_django_is_known() -> None:
    """Its parameters are written as Django wants them."""
    connection = Wrapped()

    row_id = enqueue_in(connection, "mail")

    [(text, values)] = connection.said
    assert text.endswith("VALUES (%s, %s, %s, %s)")
    assert [str(row_id), "mail", None, "{}"] == values


@pytest.mark.parametrize("connection", [object(), None, "postgresql://localhost", 3])
def test_what_is_no_connection_is_refused(connection: Any) -> None:
    """The error says what was passed, and what may be."""
    with pytest.raises(InvalidInput, match="asyncpg, psycopg"):
        enqueue_in(connection, "mail")


@pytest.mark.parametrize("table", ["a b", "x;DROP TABLE y", '"x"', "", "a.b.c"])
def test_a_table_is_a_plain_name(own: sqlite3.Connection, table: str) -> None:
    """It stands in the statement as it is, so it may be nothing else."""
    with pytest.raises(InvalidInput, match="table"):
        enqueue_in(own, "mail", table=table or "-")


@pytest.mark.parametrize(
    ("task", "payload", "kind"),
    [("mail", "x" * 262_143, PayloadTooLarge), ("", None, InvalidInput), ("x" * 201, None, InvalidInput)],
    ids=["payload", "no task", "long task"],
)
def test_what_no_server_would_take_is_refused_before_the_commit(
    own: sqlite3.Connection, task: str, payload: Any, kind: type[InvalidInput]
) -> None:
    """While the application is there to hear of it; the largest payload is taken."""
    enqueue_in(own, "mail", "x" * 262_142)

    with pytest.raises(kind):
        enqueue_in(own, task, payload)


def test_a_call_has_its_payload_already(own: sqlite3.Connection) -> None:
    """A second one is refused instead of dropped."""
    with pytest.raises(InvalidInput, match="payload"):
        enqueue_in(own, mail.s("ann"), {"to": "bob"})


@pytest.mark.parametrize(
    ("style", "text", "values"),
    [
        ("qmark", "a = ? OR b = ? OR a = ?", [1, 2, 1]),
        ("numeric", "a = :1 OR b = :2 OR a = :3", [1, 2, 1]),
        ("dollar", "a = $1 OR b = $2 OR a = $3", [1, 2, 1]),
        ("format", "a = %s OR b = %s OR a = %s", [1, 2, 1]),
        ("named", "a = :one OR b = :two OR a = :one", {"one": 1, "two": 2}),
        ("pyformat", "a = %(one)s OR b = %(two)s OR a = %(one)s", {"one": 1, "two": 2}),
    ],
)
def test_parameters_are_written_in_every_style(style: str, text: str, values: Any) -> None:
    """DB-API has five, and asyncpg one of its own."""
    assert (text, values) == bind("a = :one OR b = :two OR a = :one", style, {"one": 1, "two": 2})


class Nothing:
    """Behind a context of these tests."""

    stopping = None
    remaining_s = None

    def progress(self, value: bytes) -> None:
        """Forget it."""

    def checkpoint(self, value: bytes) -> None:
        """Forget it."""

    def alive(self) -> None:
        """Forget it."""


def context_of(lease: Any) -> Context:
    """Return the context that the task of a lease would have."""
    return Context(AboutJob(id=lease.id, task="mail", fence=lease.fence), Nothing())


async def finished(opened: Any, url: str, context: Context) -> None:
    """Finish in a transaction of a library."""
    if opened in AWAITED:
        async with opened(url) as connection:
            await finish_in(connection, context, {"n": 1})
    else:
        await asyncio.to_thread(_finished, opened, url, context)


def _finished(opened: Any, url: str, context: Context) -> None:
    with opened(url) as connection:
        finish_in(connection, context, {"n": 1})


@pytest.mark.parametrize("opened", [*AWAITED, *BLOCKING], ids=lambda opened: opened.__name__)
async def test_an_attempt_is_finished_by_the_commit(
    postgres_db: Database, postgres_url: str, clock: TestClock, opened: Any
) -> None:
    """R13: with every library; a second finish is refused with an error of ours."""
    steps = Steps(postgres_db, clock)
    lease = await steps.running(await steps.worker())

    await finished(opened, postgres_url, context_of(lease))
    with pytest.raises(StaleFence, match="Roll the transaction back"):
        await finished(opened, postgres_url, context_of(lease))

    await said.relay(postgres_db)
    job = await steps.get(lease.id)
    assert (State.SUCCEEDED, '{"n":1}') == (job.state, job.result)


def test_finish_needs_postgres(own: sqlite3.Connection) -> None:
    """Elsewhere there is no lease to finish; the error says where to read on."""
    with pytest.raises(InvalidInput, match=r"docs/transactions\.md"):
        finish_in(own, Context(AboutJob(id=UUID(int=1), task="t"), Nothing()))
