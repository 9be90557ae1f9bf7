"""The attack of `make fuzz` reaches every route and field, and sees what it is there to see."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import Context
from uuid import uuid4

import pytest

from tests.fuzz import framing
from tests.fuzz.caller import Answer, Request, Tally, call_all, read_answer
from tests.fuzz.hostile import Hostile, sites
from tests.fuzz.loopmeter import LONG_S, Meter
from tests.server.world import Named, asks
from windlass.server.routes import ROUTES

PROBLEM = b"http/1.1 422 x\r\ncontent-type: application/problem+json\r\n"


def named() -> Named:
    """Return names of objects that need not be there."""
    ids = {name: str(uuid4()) for name in ("job", "session", "schedule", "backfill")}
    return Named(tenant="a", number=1, fence=1, key="k", **ids)


@pytest.mark.exhaustive
def test_every_route_is_attacked() -> None:
    """All parts of the table: the path, the query, the body, keys, methods and headers."""
    drawn = Hostile([named()], "token", above="root", seed=1).drawn(20_000)

    met = Counter(" ".join(request.name.split(" ")[:2]) for request in drawn)

    assert {route.name for route in ROUTES if route.scopes} <= set(met)
    assert 20_000 == met.total()


def test_fields_inside_lists_are_attacked() -> None:
    """A field at any depth gets odd values, in a body that is good but for it."""
    [batch] = [route for route in ROUTES if route.name == "POST /jobs/batch"]
    one = named()

    found = {site.path: site for site in sites(next(iter(asks(batch))))}

    assert {"jobs", "jobs.priority", "jobs.retry_policy.by_error.max_attempts"} <= set(found)
    assert {"jobs": [{"task": one.text("task"), "priority": 7}]} == found["jobs.priority"].build(one, 7)


def test_as_many_forms_of_broken_framing_as_were_tried_before() -> None:
    """447 connections were tried by hand; each form has a name of its own to be found by."""
    shapes = framing.forms(b"Authorization: Bearer x")

    assert len(shapes) >= 447
    assert [] == [form.name for form in shapes if form.most < 1]


def test_what_is_wrong_with_an_answer_is_a_fault() -> None:
    """500 and above, a refusal that is no problem, an answer that comes too late; a good refusal is none."""
    tally = Tally()

    tally.keep("good", Answer(422, PROBLEM, 10, True), 0.9)
    assert {} == tally.faults

    tally.keep("fault", Answer(500, PROBLEM, 10, True), 0.0)
    tally.keep("bare", Answer(404, b"http/1.1 404 x\r\n", 10, True), 0.0)
    tally.keep("late", Answer(200, b"http/1.1 200 x\r\n", 10, True), 1.1)

    assert ["500 to fault", "404 without a problem to bare"] == list(tally.faults)[:2]
    assert "late" in list(tally.faults)[2]


def test_a_provoked_503_says_when_to_come_back() -> None:
    """Where a part asks for more than a server takes, 503 is an answer, with Retry-After."""
    tally = Tally(allowed=frozenset({503}))

    tally.keep("told", Answer(503, PROBLEM + b"retry-after: 1\r\n", 10, True), 0.0)
    assert {} == tally.faults

    tally.keep("bare", Answer(503, PROBLEM, 10, True), 0.0)
    assert ["503 without Retry-After to bare"] == list(tally.faults)


async def test_a_connection_that_ends_without_an_answer_is_a_fault() -> None:
    """The caller opens another connection for the next request."""

    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(drop, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    tally = Tally()

    async with server:
        await call_all([Request(b"GET / HTTP/1.1\r\n\r\n", "dropped")] * 3, address, tally, callers=1)

    assert (3, 3) == (tally.sent, tally.faults.total())


async def test_answers_are_read_whole() -> None:
    """With a length, in chunks, after a 100, and without a body where there is none."""
    reader = asyncio.StreamReader()
    reader.feed_data(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    reader.feed_data(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    reader.feed_data(
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    )

    answers = [await read_answer(reader, bodiless=bodiless) for bodiless in (False, False, True, False)]

    assert [(200, 2), (200, 3), (200, 0), (204, 0)] == [(answer.status, answer.size) for answer in answers]
    assert [True, True, True, False] == [answer.goes_on for answer in answers]


def test_the_longest_hold_of_a_loop_is_told_with_what_held_it() -> None:
    """Above 50 ms each place is kept with its longest hold; what is taken begins anew."""
    meter = Meter()

    for seconds in (0.001, LONG_S + 0.02, LONG_S + 0.01):
        meter.keep(named, Context(), seconds)
    taken, anew = meter.take(), meter.take()

    assert (LONG_S + 0.02, "named", 3) == (taken.longest.seconds, taken.longest.what, taken.callbacks)
    assert [(LONG_S + 0.02, "named")] == [(hold.seconds, hold.what) for hold in taken.long]
    assert (0.0, 0, []) == (anew.longest.seconds, anew.callbacks, anew.long)
