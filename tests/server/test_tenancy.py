"""The tenancy matrix: every route beside every kind of caller, about objects that are its own, another's, or nobody's.

T5: another tenant's object is like one that never was, byte for byte and header for header, and stays as it is.
The requests are made from the table of routes (world.py), so that a new route enters by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec import inspect

from tests.server.frame import SCOPES
from tests.server.world import (
    FREE,
    OPENING,
    PLAIN,
    REFERENCES,
    STATES,
    Ask,
    Named,
    World,
    alike,
    asks,
    replaced,
    rows_of,
    unknown,
)
from windlass.db import Database
from windlass.server.routes import ROUTES

Calls = Callable[[str], httpx2.AsyncClient]
pytestmark = [pytest.mark.one_kind, pytest.mark.usefixtures("stored_keys")]
SCOPED = [route for route in ROUTES if route.scopes]
ASKS = [ask for route in SCOPED for ask in asks(route)]
READS = [ask for ask in ASKS if ask.route.method == "GET"]
WRITES = [ask for ask in ASKS if ask.route.method != "GET"]
LIMITED = "worker.{}@queue-{}"
EMPTY = {"migration", "clock", "pulse", "server", "duty", "stat", "outbox", "schedule_wait", "schedule_watch", "erased"}
"""Tables in which no row is a tenant's, or the tenants of these tests have none."""
ABOVE = ("/metrics", "/duties", "/tenants")
"""Routes above tenants: a tenant's own key is refused, or is told of its own name alone."""


async def send(client: httpx2.AsyncClient, ask: Ask, named: Named, own: Named | None = None) -> httpx2.Response:
    """Send a request that names this."""
    return await client.request(ask.route.method, ask.url(named), json=ask.content(named, own))


async def worlds(calls: Calls, *tenants: str) -> list[World]:
    """Return a world for each of the tenants."""
    made = [World(tenant, calls(f"admin.{tenant}"), calls("root")) for tenant in tenants]
    for world in made:
        await world.begin()
    return made


async def everything(world: World) -> dict[str, Named]:
    """Make a job in each state, and once a backfill."""
    return {state: await world.named(state, backfills=state == "queued") for state in STATES}


@pytest.mark.parametrize(("ours", "theirs"), [("a", "b"), pytest.param("b", "a", marks=pytest.mark.exhaustive)])
async def test_rel_t5_what_is_anothers_is_like_what_never_was(
    calls: Calls, db: Database, ours: str, theirs: str
) -> None:
    """The same bytes and headers from every route to every principal; nothing of the other tenant changes."""
    _, other = await worlds(calls, ours, theirs)
    foreign = await everything(other)
    before = await rows_of(db, theirs)
    principals = {role: calls(f"{role}.{ours}") for role in SCOPES} | {"limited": calls(LIMITED.format(ours, ours))}

    told_apart: list[tuple[str, str, str, object, object]] = []
    # Reads come first: what is then written under another's name is the caller's own from there on.
    for ask in (*READS, *WRITES):
        for role, client in principals.items():
            for state in STATES if role == "admin" and ask.route.parameter == "id" else (ask.state,):
                named = foreign[state]
                never = unknown(named)
                there = alike(await send(client, ask, named), replaced(named, never))
                not_there = alike(await send(client, ask, never), {})
                if there != not_there:
                    told_apart.append((ask.route.name, role, state, there, not_there))

    assert [] == told_apart
    assert before == await rows_of(db, theirs)
    assert {table for table, rows in before.items() if not rows} <= EMPTY


async def test_rel_t5_what_is_anothers_inside_a_list_is_like_what_never_was(calls: Calls, db: Database) -> None:
    """Per item, beside an own object in the same list; nothing of the other tenant changes."""
    own, other = await worlds(calls, "a", "b")
    lists = [ask for ask in ASKS if ask.in_lists]
    foreign = await everything(other)
    before = await rows_of(db, "b")
    client = calls("admin.a")

    for ask in lists:
        state = ask.state if "ids" in ask.body else "running"
        named, never = foreign[state], unknown(foreign[state])
        mine = [await own.named(state) for _ in range(2)]
        # The lease is the caller's own, the object in the list is not.
        there = alike(await _beside(client, ask, named, mine[0]), replaced(named, never) | replaced(mine[0], mine[1]))
        not_there = alike(await _beside(client, ask, never, mine[1]), {})
        assert not_there == there, ask.route.name
        assert 200 == there[0], (ask.route.name, there)

    assert {"POST /jobs/report", "POST /workers/heartbeat", "POST /dead-letter/purge"} <= {a.route.name for a in lists}
    assert before == await rows_of(db, "b")


async def _beside(client: httpx2.AsyncClient, ask: Ask, named: Named, own: Named) -> httpx2.Response:
    """Name an object of another's in the lists of a request that is the caller's own for the rest."""
    mixed = msgspec.structs.replace(own, job=named.job, fence=named.fence)
    return await send(client, ask, mixed, own)


@pytest.mark.parametrize("route", OPENING)
async def test_rel_t7_a_session_of_anothers_is_refused(calls: Calls, db: Database, route: str) -> None:
    """Whoever has guessed a session of another tenant gets nothing by it, and changes nothing."""
    _, other = await worlds(calls, "a", "b")
    named = await other.named("running")
    before = await rows_of(db, "b")
    [ask] = [ask for ask in ASKS if ask.route.name == route][:1]

    body = {**(ask.content(named) or {}), "session": named.session}
    answer = await calls("worker.a").request(ask.route.method, ask.url(named), json=body)

    assert answer.status_code in (404, 409), answer.text
    assert before == await rows_of(db, "b")


async def test_what_is_gone_is_like_what_never_was(calls: Calls) -> None:
    """A purged job and a deleted schedule: the same bytes and headers as for one that nobody ever made."""
    [own] = await worlds(calls, "a")
    client = calls("admin.a")
    gone = await own.named("dead")
    assert 204 == (await client.delete(f"/dead-letter/{gone.job}")).status_code
    assert 204 == (await client.delete(f"/schedules/{gone.schedule}?purge=true")).status_code

    never = unknown(gone)
    for ask in ASKS:
        if ask.route.parameter in ("id", "schedule"):
            was = alike(await send(client, ask, gone), replaced(gone, never))
            assert alike(await send(client, ask, never), {}) == was, ask.route.name
            assert was[0] in (404, 409), (ask.route.name, was)


async def test_the_owner_of_an_object_is_let_do_what_others_are_refused(calls: Calls) -> None:
    """The control: the requests that another's caller is refused are good ones."""
    [own] = await worlds(calls, "a")
    client = calls("admin.a")

    named = await everything(own)
    answers = {}
    for ask in ASKS:
        if ask.query or (ask.body and ask not in list(asks(ask.route))[:1]):
            continue
        if ask.route.method != "GET":
            named[ask.state] = await own.named(ask.state, backfills="backfill" in ask.route.path)
        answer = await send(client, ask, named[ask.state])
        answers[ask.route.name, ask.by_name] = answer
    above = {answer.status_code for (name, _), answer in answers.items() if _is_above(name)}
    refused = {
        name: answer.text
        for name, answer in answers.items()
        # That an own name is taken shows that it is known.
        if answer.status_code >= 300 and not _is_above(name[0]) and "name_taken" not in answer.text
    }

    assert {} == refused
    assert above <= {200, 403, 404}


def _is_above(name: str) -> bool:
    return name.split(" ")[1].startswith(ABOVE)


async def test_what_another_tenant_has_and_does_changes_no_answer(calls: Calls) -> None:
    """Lists, counts, figures and streams of a tenant are the same bytes when another one has come, worked and gone."""
    [own] = await worlds(calls, "a")
    named = await everything(own)
    reader = calls("admin.a")
    reads = {(ask.route.name, *ask.query): ask for ask in READS if ask.route.tenanted}
    before = {name: alike(await send(reader, ask, named[ask.state]), {}) for name, ask in reads.items()}

    [other] = await worlds(calls, "b")
    await everything(other)
    after = {name: alike(await send(reader, ask, named[ask.state]), {}) for name, ask in reads.items()}

    assert [] == [(name, before[name], after[name]) for name in before if before[name] != after[name]]


def test_every_field_that_can_name_an_object_is_in_the_matrix() -> None:
    """A new field with an id or a name is tried with another tenant's, or is listed as free."""
    unlisted = {
        (route.name, field.encode_name)
        for route in SCOPED
        for struct in (route.body, route.query)
        if struct is not None
        for field in _fields(struct)
        if _can_name(field.type) and field.encode_name not in {*REFERENCES, *FREE, *PLAIN, "cursor", "payload"}
    }

    assert set() == unlisted


def _fields(struct: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _can_name(kind: Any) -> bool:
    """Say whether a value of this type can be a name or an id, or hold one."""
    match kind:
        case inspect.UUIDType():
            return True
        case inspect.StrType():
            return kind.pattern is not None and kind.max_length in (200, 512)
        case inspect.StructType():
            return any(_can_name(field.type) for field in kind.fields)
        case inspect.Metadata():
            return _can_name(kind.type)
        case inspect.UnionType():
            return any(_can_name(inner) for inner in kind.types)
        case inspect.VarTupleType() | inspect.ListType():
            return _can_name(kind.item_type)
    return False
