"""Showing much: others get their turn on the event loop, and what takes long is done by a thread."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest

from tests.server.api import lease, submit, submit_and_claim
from tests.server.frame import client_of, make_door
from tests.server.test_schedules import one_database
from windlass.config.redact import Redactor
from windlass.db.sqlite import _translated
from windlass.engine.acts import SHOWN_EACH
from windlass.engine.engine import Engine
from windlass.engine.fair import Turnstile
from windlass.errors import CommitUnknown, TooMany, Unavailable, WindlassError
from windlass.job import WaitCode
from windlass.server import shown
from windlass.server.call import Call
from windlass.server.problems import problem_of
from windlass.server.route import Route
from windlass.wire.jobs import Waiting

LARGE = "x" * (shown.TURN_BYTES + 1)
COSTLY = [[""]] * 9_000
"""A payload that is large, and takes long to redact."""
NAMED = {"name": "large", "task": "t", "cron": "0 2 * * *", "payload": COSTLY}


def showing(room_each: int = 100) -> Turnstile:
    """Return the turns of large items."""
    return Turnstile("large items to show", at_once=1, at_once_each=1, room_each=room_each, patience_s=600)


def call_of(tenant: str, turns: Turnstile) -> Call:
    """Return what showing needs of a call."""
    engine = SimpleNamespace(acts=SimpleNamespace(showing=turns))
    principal = SimpleNamespace(key_id=f"key-of-{tenant}")
    return cast(
        Call, SimpleNamespace(give_way=partial(asyncio.sleep, 0), tenant=tenant, engine=engine, principal=principal)
    )


def item(text: str) -> Waiting:
    """Return something that has a text."""
    return Waiting(code=WaitCode.NOT_DUE, detail=text)


async def test_large_items_are_shown_by_a_thread() -> None:
    """H5: what takes longer than a turn does not hold the event loop."""

    def show(_: Call, one: Waiting) -> tuple[int, str]:
        return len(one.detail), threading.current_thread().name

    call = call_of("a", showing())
    items = [item("a"), item(LARGE), item("b")]
    told = [one async for one in shown.in_turns(call, items, show)]
    alone = await shown.shown_apart(call, item(LARGE), show)
    beside = await shown.shown_apart(call, item("a"), show, beside=item(LARGE))

    assert [1, len(LARGE), 1] == [size for size, _ in told]
    here = threading.current_thread().name
    assert [True, False, True] == [name == here for _, name in told]
    assert alone[1].startswith("windlass-redaction")
    assert beside[1].startswith("windlass-redaction")


async def test_rel_t9_a_tenant_with_much_to_show_delays_another_by_one_item() -> None:
    """T9: large items of one tenant do not all stand before the item of another."""
    turns, begun, may_go = showing(), threading.Event(), threading.Event()
    order: list[str] = []

    def show(call: Call, _: Waiting) -> None:
        begun.set()
        assert may_go.wait(60)
        order.append(call.tenant)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(shown.shown_apart(call_of("a", turns), item(LARGE), show))
        await asyncio.to_thread(begun.wait, 60)
        tasks.create_task(shown.shown_apart(call_of("b", turns), item(LARGE), show))
        await asyncio.sleep(0)
        may_go.set()

    assert (1, 21) == (order.index("b"), len(order))


async def test_rel_t9_a_list_takes_few_turns() -> None:
    """T9: large items go together up to the size of the largest one, so a list waits for few of another tenant's."""
    turns, taken = showing(), 0

    class Counted:
        @asynccontextmanager
        async def turn(self, tenant: str, key: str | None) -> AsyncIterator[None]:
            nonlocal taken
            taken += 1
            async with turns.turn(tenant, key):
                yield

    items = [item("x" * (60 << 10))] * 9
    sizes: list[int] = []

    def show(_: Call, one: Waiting) -> int:
        sizes.append(taken)
        return len(one.detail)

    told = [size async for size in shown.in_turns(call_of("a", cast(Turnstile, Counted())), items, show)]

    assert [60 << 10] * 9 == told
    assert [1, 1, 1, 1, 2, 2, 2, 2, 3] == sizes


async def test_rel_t9_large_items_of_a_tenant_are_bounded() -> None:
    """T9: beyond its room a read is refused; what was done is shown all the same."""
    turns = showing(room_each=4)
    call = call_of("a", turns)
    with turns.place("a", "key-of-a"), turns.place("a", "key-of-a"):
        with pytest.raises(TooMany, match="2 large items to show of this key"):
            await shown.shown_apart(call, item(LARGE), lambda _, one: one)
        for weighed in ((item(LARGE), 0), (item("small"), len(LARGE)), (item(LARGE[2_000:]), 0)):
            with pytest.raises(TooMany), shown.room_to_show(call, *weighed):
                raise AssertionError
        with shown.room_to_show(call, item("small")):
            small = await shown.shown_apart(call, item("small"), lambda _, one: one.detail)
        done = await shown.shown_apart(call, item(LARGE), lambda _, one: one.detail, acted=True)
        other = await shown.shown_apart(call_of("b", turns), item(LARGE), lambda _, one: one.detail)

    assert ("small", LARGE, LARGE) == (small, done, other)


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
    call = call_of("a", showing())
    async for _ in shown.in_turns(call, [item("x" * 6_000)] * 8, lambda _, one: one):
        seen.append(turns)
    async for _ in shown.in_turns(call, [item("")] * 64, lambda _, one: one):
        seen.append(turns)
    beside.cancel()

    assert 2 >= max(seen[:8].count(turn) for turn in set(seen[:8]))
    assert len(set(seen[8:])) > 1


@pytest.fixture
def on_the_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the large texts that are redacted on the event loop from now on, by their first characters."""
    found: list[str] = []
    value = Redactor.value

    def watched(self: Redactor, item: Any, depth: int = 0) -> Any:
        if not depth and threading.current_thread() is threading.main_thread():
            text = json.dumps(item)
            if len(text) > shown.TURN_BYTES:
                found.append(text[:80])
        return value(self, item, depth)

    monkeypatch.setattr(Redactor, "value", watched)
    return found


@one_database
async def test_rel_t9_no_arguments_are_redacted_on_the_event_loop(
    client: httpx2.AsyncClient, on_the_loop: list[str]
) -> None:
    """T9: the payload of a schedule, and what is kept of a job, is hidden by the thread, whatever asks for it."""
    other = {"payload": [COSTLY]}
    answers = [
        await client.post("/schedules", json=NAMED),
        await client.get("/schedules/large"),
        await client.patch("/schedules/large", json={**other, "dry_run": True}),
        await client.post("/schedules", json={**NAMED, **other, "replace_existing": True, "dry_run": True}),
        await client.patch("/schedules/large", json=other),
        await client.put("/schedules/large", json=NAMED),
        await client.post("/schedules/large/pause", json={}),
        await client.post("/schedules/large/resume", json={}),
        await client.post("/jobs", json={"task": "t", "schedule": "0 2 * * *", "payload": COSTLY}),
    ]
    job = await submit_and_claim(client)
    answers += [
        await client.post(f"/jobs/{job['id']}/heartbeat", json=lease(job, checkpoint=COSTLY)),
        await client.get(f"/jobs/{job['id']}"),
    ]
    waiting = await submit(client, payload=COSTLY)
    answers += [
        await client.patch(f"/jobs/{waiting}", json={"priority": 7}),
        await client.get("/jobs"),
    ]

    assert [201, *[200] * 7, 201, *[200] * 4] == [answer.status_code for answer in answers]
    assert (COSTLY, [COSTLY]) == (answers[0].json()["payload"], answers[4].json()["payload"])
    [change] = answers[2].json()["differences"]
    assert ("payload", COSTLY, [COSTLY]) == (change["field"], change["was"], change["becomes"])
    assert COSTLY == answers[10].json()["checkpoint"]
    assert [] == on_the_loop


@one_database
async def test_rel_t9_an_act_that_could_not_be_shown_is_refused_before_it_is_done(
    client: httpx2.AsyncClient, engine: Engine
) -> None:
    """T9: 429 means that nothing was done."""
    made = await client.post("/schedules", json=NAMED)
    noted = [await submit_and_claim(client) for _ in range(2)]
    for job, field in zip(noted, ("checkpoint", "progress"), strict=True):
        await client.post(f"/jobs/{job['id']}/heartbeat", json=lease(job, **{field: COSTLY}))
    for job in noted:
        await client.post(f"/jobs/{job['id']}/release", json=lease(job))
    ids = [await submit(client, payload=COSTLY), *(job["id"] for job in noted)]
    with ExitStack() as places:
        for _ in range(SHOWN_EACH // 2):
            places.enter_context(engine.acts.showing.place("a", "admin.a"))
        refused = [
            await client.get("/schedules/large"),
            *[await client.get(f"/jobs/{job_id}") for job_id in ids],
            await client.post("/schedules", json={**NAMED, "name": "other"}),
            await client.patch("/schedules/large", json={"tags": ["x"]}),
            await client.post("/schedules/large/pause", json={}),
            await client.post("/schedules/large/resume", json={}),
            *[await client.patch(f"/jobs/{job_id}", json={"priority": 7}) for job_id in ids],
        ]
        small = await client.post("/schedules", json={**NAMED, "name": "small", "payload": 1})

    assert [429] * 11 == [answer.status_code for answer in refused]
    assert 201 == small.status_code
    assert made.json() == (await client.get("/schedules/large")).json()
    assert 404 == (await client.get("/schedules/other")).status_code
    assert [0] * 3 == [(await client.get(f"/jobs/{job_id}")).json()["priority"] for job_id in ids]


@one_database
async def test_rel_t9_queues_are_shown_in_turns(
    client: httpx2.AsyncClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T9: the reasons of many pauses are texts to be redacted."""
    for name in ("one", "two", "three"):
        await client.post(f"/queues/{name}/pause", json={"reason": "r" * 2_000})
    waits = 0
    wait = engine.loop_turns.wait

    async def counted(tenant: str) -> None:
        nonlocal waits
        waits += 1
        await wait(tenant)

    monkeypatch.setattr(engine.loop_turns, "wait", counted)
    monkeypatch.setattr(shown, "TURN_BYTES", 8 << 10)

    answer = await client.get("/queues")

    assert (3, True) == (len(answer.json()["queues"]), waits > 0)


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
