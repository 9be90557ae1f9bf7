"""Showing much: others get their turn on the event loop, and what takes long is done by a thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from tests.server.frame import client_of, make_door
from windlass.db.sqlite import _translated
from windlass.errors import CommitUnknown, Unavailable, WindlassError
from windlass.job import WaitCode
from windlass.server import shown
from windlass.server.call import Call
from windlass.server.problems import problem_of
from windlass.server.route import Route
from windlass.wire.jobs import Waiting

CALL = cast(Call, SimpleNamespace(give_way=partial(asyncio.sleep, 0)))
LARGE = "x" * (shown.TURN_BYTES + 1)


def item(text: str) -> Waiting:
    """Return something that has a text."""
    return Waiting(code=WaitCode.NOT_DUE, detail=text)


async def test_large_items_are_shown_by_a_thread() -> None:
    """H5: what takes longer than a turn does not hold the event loop."""

    def show(_: Call, one: Waiting) -> tuple[int, str]:
        return len(one.detail), threading.current_thread().name

    items = [item("a"), item(LARGE), item("b")]
    told = [one async for one in shown.in_turns(CALL, items, show)]
    alone = await shown.shown_apart(CALL, item(LARGE), show)

    assert [1, len(LARGE), 1] == [size for size, _ in told]
    here = threading.current_thread().name
    assert [True, False, True] == [name == here for _, name in told]
    assert alone[1].startswith("windlass-redaction")


async def test_others_get_their_turn_between_items() -> None:
    """H5: no more is shown in one go than a turn holds, in texts or in items."""
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(neighbour())
    seen = []
    async for _ in shown.in_turns(CALL, [item("x" * 30_000)] * 8, lambda _, one: one):
        seen.append(turns)
    async for _ in shown.in_turns(CALL, [item("")] * 64, lambda _, one: one):
        seen.append(turns)
    beside.cancel()

    assert 2 >= max(seen[:8].count(turn) for turn in set(seen[:8]))
    assert len(set(seen[8:])) > 1


def failure() -> sqlite3.OperationalError:
    """Return the error of a database whose disk is full."""
    error = sqlite3.OperationalError("disk I/O error at /srv/secret.db")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


async def test_rel_t17_what_the_database_says_is_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """L13: a caller hears our sentence; the log has the database's words under the request's id."""

    async def handler(_: Call) -> None:
        error = failure()
        raise _translated(error) from error

    routes = [
        Route(method="GET", path="/broken", handler=handler, scopes=("read",), summary="Break", answers={200: None})
    ]
    async with client_of(make_door(routes), "reader.acme") as client:
        answer = await client.get("/api/v1/broken", headers={"x-request-id": "r-77"})

    assert (503, False) == (answer.status_code, "secret.db" in answer.text)
    assert "Try again." in answer.json()["detail"]
    [line] = [record.getMessage() for record in caplog.records if "request.unserved" in record.getMessage()]
    assert ("secret.db" in line, "r-77" in line) == (True, True)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Unavailable("All 9 connections were in use for 5 s. Try again."), "All 9 connections"),
        (CommitUnknown("The connection broke at COMMIT (reset by 10.0.0.7)."), "Whether it was done is not known"),
    ],
)
def test_our_own_words_are_told(error: WindlassError, told: str) -> None:
    """L13: a sentence of ours stays as it is, unless words of the database stand in it."""
    text = problem_of(error).content.decode()

    assert (True, False) == (told in text, "10.0.0.7" in text)
