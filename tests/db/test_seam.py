"""The seam: values go in and come out unchanged, and transactions are what they say, on both databases."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.clock import START, TestClock
from tests.databases import opened
from tests.db.queries import SQL, key, names, now, put
from windlass.db import Database, Statements, open_database
from windlass.errors import AlreadyExists, InvalidInput
from windlass.job import Place

ID = UUID("019b7680-1234-7abc-8def-0123456789ab")
ODD_TEXT = "e\u0301 é ﬀ \u202e\u200b\ufeff 🂡\U0010ffff '\"\\;--:name $1 \x01\x7f\x85\u2028 \t\n"


async def echo(db: Statements, **values: Any) -> dict[str, Any]:
    """Send values through the database and return them."""
    given_values = {"id": None, "at": None, "text": None, "number": None} | values
    [row] = await db.fetch(SQL["echo"], **given_values)
    return dict(row)


async def write_and_fail(db: Statements, *names: str) -> None:
    """Store each of the keys in one transaction, which then ends in an error of ours."""
    async with db.transaction() as transaction:
        for name in names:
            await put(transaction, name)
        raise ZeroDivisionError("mine")


async def test_values_come_back_as_they_went(db: Database) -> None:
    """Ids, instants to the microsecond, text with odd Unicode and big numbers survive both ways."""
    at = datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC)

    found = await echo(db, id=ID, at=at, text=ODD_TEXT, number=-(2**63))

    assert {"id": ID, "happened_at": at, "text": ODD_TEXT, "number": -(2**63)} == found
    assert isinstance(found["id"], UUID)


@pytest.mark.parametrize("values", [{"text": "\ud800"}, {"number": 2**63}, {"number": -(2**70)}])
async def test_a_value_that_cannot_be_taken_is_invalid_input(db: Database, values: dict[str, Any]) -> None:
    """What no column can hold is refused as the caller's mistake, alone and in a transaction, which can go on."""
    with pytest.raises(InvalidInput):
        await echo(db, **values)
    async with db.transaction() as transaction:
        with pytest.raises(InvalidInput):
            await echo(transaction, **values)
        await put(transaction, "after")

    assert ["after"] == await names(db)


async def test_null_is_none(db: Database) -> None:
    """Absent values of every kind are None on both ways."""
    assert {"id": None, "happened_at": None, "text": None, "number": None} == await echo(db)


async def test_instants_are_in_utc(db: Database) -> None:
    """An instant given in another zone is the same instant when it returns, with a zone."""
    at = datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=-9, minutes=-30)))

    found = (await echo(db, at=at))["happened_at"]

    assert at == found
    assert timedelta(0) == found.utcoffset()


@pytest.mark.parametrize("number", [0, -1, 2**31, 2**53 + 1, 2**63 - 1])
async def test_numbers_are_exact(db: Database, number: int) -> None:
    """Whole numbers keep their last digit up to 63 bits."""
    assert number == (await echo(db, number=number))["number"]


async def test_enumerations_are_their_numbers(db: Database) -> None:
    """A member of an IntEnum is stored as its number."""
    assert isinstance(Place.HELD, IntEnum)
    assert 3 == (await echo(db, number=Place.HELD))["number"]


async def test_lists_keep_their_order(db: Database) -> None:
    """A list goes in as one parameter, whatever its elements."""
    texts = [ODD_TEXT, "", "[1]"]
    ids = [UUID(int=n) for n in range(3)]

    rows = await db.fetch(SQL["echo_lists"], ids=ids, texts=texts, numbers=[2**53 + 1, 0, -1])

    assert [(ids[0], texts[0], 2**53 + 1), (ids[1], "", 0), (ids[2], "[1]", -1)] == [
        (row["id"], row["text"], row["number"]) for row in rows
    ]
    assert [] == await db.fetch(SQL["echo_lists"], ids=[], texts=[], numbers=[])


async def test_rows_come_back_as_they_went(db: Database) -> None:
    """A rows parameter carries every kind of column, NULL included."""
    await db.fetch(SQL["put"], keys=[("a", "1", ID, ODD_TEXT, START), ("a", "2", ID, "", None)])

    rows = await db.fetch(SQL["keys"], scope="a")

    assert [("1", ID, ODD_TEXT, START), ("2", ID, "", None)] == [tuple(row.values()) for row in rows]


@pytest.mark.parametrize("count", [0, 1, 1000])
async def test_rows_of_any_number(db: Database, count: int) -> None:
    """No row, one row and a thousand rows are one statement; the next call begins with an empty list."""
    wanted = [f"{n:04d}" for n in range(count)]

    await put(db, *wanted)
    await put(db, "last")

    assert [*wanted, "last"] == await names(db)


@pytest.mark.parametrize(
    "items",
    [
        [],
        [(None, None, None)],
        [(None, None, None)] * 3,
        [(None, None, None), (ID, "x", 1)],
        [(ID, None, None), (None, None, None)],
        [(None, "x", None), (None, None, None), (None, "y", None)],
        [(None, None, 1), (None, None, 2)],
    ],
    ids=str,
)
async def test_rows_of_nothing_are_rows(db: Database, items: list[tuple[Any, ...]]) -> None:
    """As many rows arrive as were passed, also where a column, or every column, is NULL in all of them."""
    rows = await db.fetch(SQL["echo_rows"], items=items)

    assert items == [tuple(row.values()) for row in rows]


async def test_rows_are_forgotten_after_a_rollback(db: Database) -> None:
    """What a call passed as rows is no part of a later call, whatever was rolled back in between."""
    await put(db, "first")
    with pytest.raises(ZeroDivisionError):
        await write_and_fail(db, "gone")

    await put(db, "second")

    assert ["first", "second"] == await names(db)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    at=st.datetimes(datetime(1970, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
    number=st.integers(-(2**63), 2**63 - 1),
    made=st.uuids(),
)
async def test_any_value_comes_back(db: Database, text: str, at: datetime, number: int, made: UUID) -> None:
    """Whatever may be stored returns unchanged."""
    assert {"id": made, "happened_at": at, "text": text, "number": number} == await echo(
        db, id=made, at=at, text=text, number=number
    )


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("parameters", [{}, {"scope": "a", "extra": 1}, {"Scope": "a"}], ids=str)
async def test_parameters_must_be_those_of_the_query(db: Database, parameters: dict[str, Any], inside: bool) -> None:
    """A missing or extra parameter is a TypeError that names the query, in a transaction or out of one."""

    async def fetch() -> None:
        async with db.transaction() as transaction:
            await (transaction if inside else db).fetch(SQL["keys"], **parameters)

    with pytest.raises(TypeError, match=r"^keys takes \['scope'\], got "):
        await fetch()

    assert [] == await names(db)


async def test_a_query_by_itself_is_committed(database_url: str) -> None:
    """Outside a transaction each query is one by itself, and there for another program when it returns."""
    async with opened(database_url) as db:
        await put(db, "x")

        other = await open_database(database_url, role="client")
        try:
            assert ["x"] == await names(other)
        finally:
            await other.close()


async def test_a_failed_query_leaves_the_database_usable(db: Database) -> None:
    """An error of one query is the caller's, and the next one works, also for writes."""
    await put(db, "x")

    for attempt in (put(db, "y", "x"), db.fetch(SQL["broken"], id=1)):
        with pytest.raises(Exception, match=r"stored already|no such table|does not exist"):
            await attempt
    await put(db, "z")

    assert ["x", "z"] == await names(db)


async def test_a_transaction_commits_at_its_end(db: Database) -> None:
    """Nothing of a transaction is seen outside until it ends, and then everything; inside it is seen at once."""
    async with db.transaction() as transaction:
        await put(transaction, "x")
        await put(transaction, "y")
        inside, outside = await names(transaction), await names(db)

    assert (["x", "y"], []) == (inside, outside)
    assert ["x", "y"] == await names(db)


async def test_an_error_rolls_back(db: Database) -> None:
    """An error in the block undoes everything in it, and is raised as it was."""
    await put(db, "before")

    with pytest.raises(ZeroDivisionError, match="mine"):
        await write_and_fail(db, "x")

    assert ["before"] == await names(db)


async def test_a_failed_statement_rolls_back(db: Database) -> None:
    """A statement that fails undoes those before it."""
    with pytest.raises(AlreadyExists):
        await write_and_fail(db, "x", "x")

    assert [] == await names(db)


async def test_a_nested_transaction_joins(db: Database) -> None:
    """A step that opens a transaction inside one is part of it: its end commits nothing, an error outside undoes it."""

    async def fail_outside() -> None:
        async with db.transaction() as outer:
            async with outer.transaction(tracked=True) as inner:
                await put(inner, "x")
            assert [] == await names(db)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_outside()
    async with db.transaction() as outer, outer.transaction() as inner:
        await put(inner, "y")
    assert ["y"] == await names(db)


async def test_a_tracked_transaction_commits_like_any_other(db: Database) -> None:
    """Tracking changes what is known after a break, nothing else."""
    async with db.transaction(tracked=True) as transaction:
        await put(transaction, "x")

    assert ["x"] == await names(db)


async def test_the_clock_is_obeyed(db: Database, clock: TestClock) -> None:
    """:now is the test's clock, in queries and in transactions."""
    for _ in range(2):
        told = clock.advance(60.000001)

        assert told == await now(db)
        async with db.transaction() as transaction:
            assert told == await now(transaction)


async def test_the_clock_stands_still_in_a_transaction(db: Database, clock: TestClock) -> None:
    """:now is the begin of the transaction, in what it reads and in what it writes, however long it lasts."""
    await put(db, "x")
    begun_at = clock.advance(60)
    async with db.transaction() as transaction:
        first = await now(transaction)
        clock.advance(60)
        second = await now(transaction)
        [row] = await transaction.fetch(SQL["stamp"], scope="a")

    assert begun_at == first == second == row["expires_at"]
    assert clock.now() == await now(db)


async def test_without_a_clock_time_is_the_databases(database_url: str) -> None:
    """In service the database's own clock is used; it lies near this machine's here."""
    db = await open_database(database_url)
    try:
        before = datetime.now(UTC) - timedelta(minutes=1)
        found = await now(db)
    finally:
        await db.close()

    assert before < found < before + timedelta(minutes=2)


async def test_transactions_run_beside_each_other_safely(db: Database) -> None:
    """Many tasks with a transaction each neither mix nor lose anything."""

    async def both(name: str) -> None:
        async with db.transaction() as transaction:
            await put(transaction, f"{name}1")
            await asyncio.sleep(0)
            await put(transaction, f"{name}2")
            if name == "c":
                raise ZeroDivisionError

    results = await asyncio.gather(*(both(name) for name in "abcde"), return_exceptions=True)

    assert [None, None, ZeroDivisionError, None, None] == [r if r is None else type(r) for r in results]
    assert [f"{name}{n}" for name in "abde" for n in "12"] == await names(db)


async def test_a_cancelled_task_rolls_back(db: Database) -> None:
    """A task that is cancelled inside its transaction leaves nothing, and the database goes on."""
    wrote = asyncio.Event()

    async def write_and_wait() -> None:
        async with db.transaction() as transaction:
            await put(transaction, "x")
            wrote.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write_and_wait())
    await wrote.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await put(db, "y")
    assert ["y"] == await names(db)


@pytest.mark.parametrize("turns", range(8))
async def test_a_task_cancelled_anywhere_leaves_all_or_nothing(db: Database, turns: int) -> None:
    """Wherever a cancel meets a transaction (begin, statement, commit), it is whole or absent; the next one works."""

    async def write() -> None:
        async with db.transaction() as transaction:
            await put(transaction, "x1")
            await put(transaction, "x2")

    task = asyncio.create_task(write())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    async with db.transaction() as transaction:
        await put(transaction, "y")
    assert await names(db) in (["y"], ["x1", "x2", "y"])


async def test_a_closed_transaction_keeps_no_lock(db: Database) -> None:
    """After a rollback others may write the same rows at once."""
    await put(db, "x")

    async def lock_and_fail() -> None:
        async with db.transaction() as transaction:
            await transaction.fetch(SQL["stamp"], scope="a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await lock_and_fail()

    assert 1 == len(await db.fetch(SQL["stamp"], scope="a"))


async def test_maintenance_runs_outside_any_transaction(db: Database) -> None:
    """VACUUM, which no transaction may hold, is run by `maintain`."""
    await put(db, "x")

    await db.maintain("VACUUM" if db.dialect == "sqlite" else "VACUUM windlass.dedup")

    assert ["x"] == await names(db)


async def test_a_script_is_one_transaction(db: Database) -> None:
    """`run` runs all statements of a script or none of them."""
    table = "windlass.dedup" if db.dialect == "postgres" else "dedup"
    values = "('a', 'x', '019b7680-1234-7abc-8def-0123456789ab', 'semicolon;', NULL)"

    with pytest.raises(Exception, match="no_such_table"):
        await db.run(f"INSERT INTO {table} VALUES {values};\nINSERT INTO no_such_table VALUES (1);\n")
    nothing = await names(db)
    await db.run(f"INSERT INTO {table} VALUES {values};\nUPDATE {table} SET key = 'y';\n")

    assert [] == nothing
    assert ["y"] == await names(db)


async def test_the_version_is_told(db: Database) -> None:
    """Name and version of the database, for people."""
    assert (await db.version()).startswith({"postgres": "PostgreSQL 1", "sqlite": "SQLite 3."}[db.dialect])


def test_keys_differ() -> None:
    """The helper of these tests makes another id for another name."""
    assert key("x") != key("y")


async def test_nobody_listens_on_sqlite(sqlite_db: Database) -> None:
    """A hint goes nowhere and costs nothing: capabilities say that there are none."""
    await sqlite_db.notify("windlass_wake", "7")

    assert not sqlite_db.capabilities.notify
