"""docs/transactions.md: its examples run, and do what it says."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.client.test_transactions import Nothing, context_of
from tests.clock import TestClock
from tests.databases import connected
from tests.queue import said
from tests.queue.steps import Steps
from tests.rules.source import REPOSITORY
from windlass.client.context import AboutJob, Context
from windlass.client.outbox import OUTBOX_DDL
from windlass.client.relay import Relay
from windlass.db import open_database
from windlass.job import State

DOCUMENT = REPOSITORY / "docs" / "transactions.md"


def blocks(language: str) -> list[str]:
    """Return the examples in one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the examples define, run one after the other as one program."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WINDLASS_URL", "http://127.0.0.1:9")
    # A module by name, because annotations are looked up there.
    space: dict[str, Any] = {"__name__": "example"}
    exec(compile("\n".join(blocks("python")), str(DOCUMENT), "exec"), space)
    return space


async def test_the_shared_postgres_example(example: dict[str, Any], fresh_postgres_url: str, clock: TestClock) -> None:
    """Sections 1 and 2: an order brings its receipt, and is settled once, with the grants of the document."""
    db = await open_database(fresh_postgres_url, clock=clock)
    clock.advance(minutes=1)
    steps = Steps(db, clock)
    async with connected(fresh_postgres_url) as connection:
        await connection.execute(f"SET windlass.now = '{clock.now().isoformat()}'")
        await connection.execute("CREATE TABLE orders (number serial, customer text, paid int DEFAULT 0)")
        example["connect"] = lambda: connected(fresh_postgres_url)

        job_id = await example["order"](connection, "ann")
        await said.relay(db)
        lease = await steps.lease(await steps.worker(), "settle")
        await example["settle"].fn(context_of(lease), 1)
        await said.relay(db)

        assert '{"order":1}' == (await steps.get(job_id)).payload
        assert State.SUCCEEDED is await steps.state_of(lease.id)
        assert 1 == await connection.fetchval("SELECT paid FROM orders")
    await db.close()


def test_the_shared_sqlite_example(example: dict[str, Any], sqlite_url: str) -> None:
    """Section 3: the order and the row are one commit."""
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///").split("?")[0])
    connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT)")

    job_id = example["order_here"](connection, "ann")

    assert [(str(job_id), '{"order":1}')] == connection.execute("SELECT id, payload FROM outbox").fetchall()
    connection.close()


def test_the_table_of_other_databases_is_ours(example: dict[str, Any]) -> None:
    """Section 4: the document has the table that the program makes, and a relay for it."""
    assert OUTBOX_DDL in [block.strip() for block in blocks("sql")]
    assert isinstance(example["relay_for"](sqlite3.connect), Relay)


def test_pieces_that_were_done_are_not_done_again(example: dict[str, Any]) -> None:
    """Section 5, R13: a second attempt does what the first has left, another job does its own."""
    connection = sqlite3.connect("shop.db")
    connection.execute(next(block for block in blocks("sql") if "processed" in block))
    connection.execute("CREATE TABLE account (name TEXT, balance INTEGER)")
    connection.executemany("INSERT INTO account VALUES (?, 0)", [["ann"], ["bob"]])
    connection.commit()

    def attempt(job_id: UUID, fence: int, **amounts: int) -> int:
        paid: int = example["pay_out"](Context(AboutJob(id=job_id, task="t", fence=fence), Nothing()), amounts)
        return paid

    job_id = uuid4()
    paid = [attempt(job_id, 1, ann=5), attempt(job_id, 2, ann=5, bob=7), attempt(job_id, 3, ann=5, bob=7)]
    another = attempt(uuid4(), 1, ann=1)

    assert ([1, 1, 0], 1) == (paid, another)
    assert [("ann", 6), ("bob", 7)] == connection.execute("SELECT name, balance FROM account").fetchall()
    connection.close()
