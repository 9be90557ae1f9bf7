"""Nobody can hold all connections of a server: each kind of call that stays has its share of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest

from tests.server.frame import KeyRing, client_of, make_door
from tests.server.test_frame import JSON, KEY, ROUTES, exchange, route
from tests.server.test_live import following, status
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.engine.fair import Cap
from windlass.engine.outside import Outside
from windlass.server.app import CONNECTIONS, LARGE_BODY, Door, create_app
from windlass.server.bodies import BodyBudget
from windlass.server.call import Call, Message, Reply

PATIENCE_S = 30.0


@pytest.mark.parametrize(
    ("connections", "shares"), [(CONNECTIONS, (9000, 5000, 4000)), (896, (806, 448, 358)), (1, (1, 1, 1))]
)
def test_rel_t15_caps_are_shares_of_the_connections(connections: int, shares: tuple[int, int, int]) -> None:
    """T15: waiting calls take nine tenths of the connections, a tenant's one half, a key's two fifths."""
    cap = Cap.of_connections("waiting calls", connections)

    assert shares == (cap.most, cap.each, cap.each_key)


@pytest.mark.one_kind
async def test_rel_t15_streams_and_waits_share_the_cap(db: Database) -> None:
    """T15: on a server that takes 10 connections a tenant has 5 waits and streams together; another has room."""
    engine = Engine(db, Settings(), name="scheduler_test_1", outside=Outside())
    door = create_app(engine, Settings(), cast(Any, KeyRing()), connections=10)
    async with engine.running(), AsyncExitStack() as opened, asyncio.timeout(PATIENCE_S):
        for key in ("reader.a", "producer.a", "admin.a", "admin.a", "operator.a"):
            assert 200 == await status(await opened.enter_async_context(following(door, key)))
        stream = await status(await opened.enter_async_context(following(door, "reader.a")))
        client = await opened.enter_async_context(client_of(door, "worker.a"))
        wait = await client.post("/api/v1/jobs/claim", json={"worker_id": "ann", "wait": 5})
        without_wait = await client.post("/api/v1/jobs/claim", json={"worker_id": "ann"})
        other = await status(await opened.enter_async_context(following(door, "reader.b")))

    assert (429, 429, 204, 200) == (stream, wait.status_code, without_wait.status_code, other)


SMALL = (b"content-length", b"12")
HALF = {"type": "http.request", "body": b'{"name"', "more_body": True}
WHOLE = {"type": "http.request", "body": b'{"name":"a"}', "more_body": False}


async def post(door: Door, key: str, message: Message) -> int:
    """Send a small body, or the half of one that never ends; return the status of the answer."""
    headers = [(b"authorization", f"Bearer {key}".encode()), JSON, SMALL]
    sent = await exchange(door, {"headers": headers}, [dict(message)])
    status: int = sent[0]["status"]
    return status


@asynccontextmanager
async def half_sent(door: Door, keys: Sequence[str]) -> AsyncIterator[list[asyncio.Task[int]]]:
    """Send half a body with each key, one after the other; give the requests."""
    requests = []
    for key in keys:
        requests.append(asyncio.create_task(post(door, key, HALF)))
        for _ in range(20):  # nothing but our own steps is waited for
            await asyncio.sleep(0)
    try:
        yield requests
    finally:
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)


@pytest.mark.parametrize(
    ("keys", "ended"),
    [
        (["reader.a"] * 4, []),
        (["reader.a"] * 5, [0]),
        (["reader.a", "admin.a", "admin.a", "admin.a", "reader.a", "reader.a", "reader.b"], [0]),
        (["reader.a"] * 4 + ["reader.b"] * 4 + ["reader.c"] * 2, []),
        (["reader.a"] * 4 + ["reader.b"] * 4 + ["reader.c"] * 3, [0]),
        (["reader.a"] * 4 + ["reader.b"] * 4 + ["reader.c"] * 2 + ["reader.b"], [4]),
    ],
    ids=["within", "of a key", "of a tenant", "within all", "of all", "its own before others"],
)
async def test_rel_t9_bodies_that_come_slowly_leave_connections_free(keys: list[str], ended: list[int]) -> None:
    """T9: of 20 connections 4 have bodies of a key under way, 5 of a tenant, 10 in all; the slowest one makes room."""
    door = make_door(ROUTES, connections=20)

    async with half_sent(door, keys) as requests:
        let_in = await post(door, "worker.z", WHOLE)
        statuses = [(index, await request) for index, request in enumerate(requests) if request.done()]

    assert [(index, 429) for index in ended] == statuses
    assert 403 == let_in


async def test_rel_t9_a_whole_body_always_gets_in() -> None:
    """T9: a heartbeat of a key whose other bodies come slowly is taken, and the slowest of these makes room for it."""
    door = make_door(ROUTES, connections=20)

    async with half_sent(door, ["reader.a"] * 4) as requests:
        statuses = [await post(door, "reader.a", WHOLE) for _ in range(3)]
        ended, _ = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)

    assert [200] * 3 == statuses
    assert {requests[0]} == ended
    assert {} == door._bodies._receiving


@pytest.mark.parametrize(("method", "refused"), [("GET", 503), ("POST", 200)])
async def test_rel_s8_answers_under_way_share_a_budget(method: str, refused: int) -> None:
    """S8: with two reads of a key that are taken slowly its third is 503; another tenant's is not, nor is an act."""

    async def large(call: Call) -> Reply:
        return Reply(200, b" " * 900_000)

    async def small(call: Call) -> Reply:
        return Reply(200, b" " * 1000)

    door = make_door([route(method, "/things", large), route(method, "/others", small)])
    door._answers = BodyBudget(5_000_000, 25)
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(message: Message) -> None:
        begun.release()
        await go_on.wait()

    async def status_of(key: str, path: str = "things", send: Any = None) -> int:
        scope = {"type": "http", "method": method, "path": f"/api/v1/{path}", "query_string": b""}
        headers = [(b"authorization", f"Bearer {key}".encode())]
        sent: list[Message] = []

        async def keep(message: Message) -> None:
            sent.append(message)

        await door({**scope, "headers": headers, "client": ("1.2.3.4", 5)}, nothing_comes, send or keep)
        return sent[0]["status"] if sent else 0

    reading = [asyncio.create_task(status_of("reader.a", send=slow)) for _ in range(2)]
    for _ in reading:
        await begun.acquire()

    statuses = [await status_of("reader.a"), await status_of("reader.b"), await status_of("reader.a", "others")]
    go_on.set()
    await asyncio.gather(*reading)

    assert [refused, 200, 200] == statuses
    assert 0 == door._answers.used


async def nothing_comes() -> Message:
    """Wait for ever."""
    return await asyncio.Future[Message]()


CHUNKED = (b"transfer-encoding", b"chunked")


async def test_rel_t15_large_bodies_take_turns_with_lists() -> None:
    """A tenant whose lists hold its turns waits with a large body until one ends; small ones, and others, go on."""
    door = make_door(ROUTES)
    small = {"type": "http.request", "body": b'{"name":"a"}', "more_body": False}
    large = {"type": "http.request", "body": b'{"name":"a"}' + b" " * LARGE_BODY, "more_body": False}
    other = (b"authorization", b"Bearer reader.other")
    held = door._engine.acts.large
    async with held.turn("acme"):
        async with held.turn("acme"):
            waiting = asyncio.create_task(exchange(door, {"headers": [KEY, JSON, CHUNKED]}, [dict(large)]))
            for _ in range(20):  # nothing but our own steps is waited for
                await asyncio.sleep(0)
            let_in = await exchange(door, {"headers": [KEY, JSON, CHUNKED]}, [small])
            others = await exchange(door, {"headers": [other, JSON, CHUNKED]}, [dict(large)])
            was_done = waiting.done()
        late = await waiting

    assert not was_done
    assert [200, 200, 200] == [sent[0]["status"] for sent in (let_in, others, late)]


async def test_rel_t15_large_bodies_of_two_tenants_leave_the_lists_to_a_third() -> None:
    """However long the large bodies of others wait for the database, a list of another tenant is answered."""
    acts = make_door(ROUTES)._engine.acts
    async with AsyncExitStack() as held:
        for tenant in "aabb":
            await held.enter_async_context(acts.large.turn(tenant))
        async with acts.list_turn("c", None):
            served = True

    assert served


async def test_rel_t15_lists_of_two_tenants_let_a_third_come_next() -> None:
    """Three lists run at once: that of a third tenant comes as soon as one of them ends, before the others' next."""
    acts = make_door(ROUTES)._engine.acts
    order: list[str] = []

    async def listed(tenant: str) -> None:
        async with acts.list_turn(tenant, None):
            order.append(tenant)

    async with acts.list_turn("a", None), acts.list_turn("b", None):
        async with acts.list_turn("a", None):
            waiting = [asyncio.create_task(listed(tenant)) for tenant in ("b", "b", "c")]
            for _ in range(20):  # nothing but our own steps is waited for
                await asyncio.sleep(0)
            none_yet = list(order)
        await asyncio.gather(*waiting)

    assert [] == none_yet
    assert "c" in order[:2]
