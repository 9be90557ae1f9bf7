"""Every route beside every kind of caller, generated from the table: a new route enters by itself."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

from tests.clock import TestClock
from tests.server.frame import SCOPES, bearer, client_of
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.queue.keys import ROLES, bootstrap, key_id_of, make_token
from windlass.queue.keys import SCOPES as ALL_SCOPES
from windlass.server.app import Door, create_app
from windlass.server.auth import Gate
from windlass.server.route import OPEN_PATHS, Route, documented_path
from windlass.server.routes import ROUTES

Calls = Callable[[str], httpx2.AsyncClient]
SCOPED = [route for route in ROUTES if route.scopes]
ROOT = "http://windlass.test"


def path_of(route: Route, value: str) -> str:
    """Return the URL of a route with something in place of its parameter."""
    return ROOT + re.sub(r"\{\w+\}", value, documented_path(route))


async def ask(client: httpx2.AsyncClient, route: Route, value: str) -> httpx2.Response:
    """Call a route with an empty body, where it takes one; a stream is asked to end at once."""
    query = "?seconds=0.001" if route.media_type == "text/event-stream" else ""
    return await client.request(route.method, path_of(route, value) + query, json={} if route.body else None)


def test_the_open_routes_are_an_exact_list() -> None:
    """Whatever is not in the list needs a key, and everything in the list is there."""
    assert OPEN_PATHS == {route.path for route in ROUTES if not route.scopes}


class Gated(msgspec.Struct, frozen=True):
    """The application behind its real gate, and a client of the first key, which is above tenants."""

    root: httpx2.AsyncClient
    clock: TestClock

    async def token(self, **fields: Any) -> str:
        """Make a key and return its token."""
        made = await self.root.post("/api/v1/keys", json={"name": "k", **fields})
        assert made.status_code == 201, made.text
        token: str = made.json()["token"]
        return token

    async def ask(self, route: Route, headers: dict[str, str], more: str = "") -> httpx2.Response:
        """Call a route about something unknown with these headers alone; wrong keys are never sent too often."""
        self.clock.advance(7)
        query = "?seconds=0.001" if route.media_type == "text/event-stream" else ""
        request = self.root.build_request(route.method, path_of(route, str(uuid4())) + (more or query))
        del request.headers["authorization"]
        request.headers.update(headers)
        return await self.root.send(request)


@pytest.fixture
async def gated(engine: Engine, db: Database, clock: TestClock) -> AsyncIterator[Gated]:
    """The application with real keys; a tenant `a` is there. The clock of the gate alone moves on."""
    token = make_token()
    await bootstrap(db, token)
    gate_clock = TestClock()
    door = create_app(engine, engine.settings, Gate(db, keys_required=True, clock=gate_clock))
    async with client_of(door, token) as root:
        await root.post("/api/v1/tenants", json={"name": "a"})
        yield Gated(root, gate_clock)


async def bad_headers(gated: Gated, clock: TestClock) -> dict[str, dict[str, str]]:
    """Return headers that let nobody in, each by what is wrong with it."""
    good, revoked = await gated.token(tenant="a"), await gated.token(tenant="a")
    expiring = await gated.token(tenant="a", expires_at="2026-01-01T12:00:30Z")
    await gated.root.post("/api/v1/tenants", json={"name": "gone"})
    orphaned = await gated.token(tenant="gone")
    for token in (revoked, orphaned):
        await gated.root.delete(f"/api/v1/keys/{key_id_of(token)}")
    assert 204 == (await gated.root.delete("/api/v1/tenants/gone")).status_code
    clock.advance(60)
    flipped = good[:-8] + ("a" if good[-8] != "a" else "b") + good[-7:]
    return {
        "none": {},
        "empty": {"Authorization": ""},
        "no token": {"Authorization": "Bearer"},
        "nonsense": bearer("nonsense"),
        "another scheme": {"Authorization": f"Basic {good}"},
        "cut": bearer(good[:-1]),
        "flipped": bearer(flipped),
        "unknown": bearer(make_token()),
        "two that differ": {**bearer(good), "X-API-Key": revoked},
        "cookie": {"Cookie": f"key={good}"},
        "revoked": bearer(revoked),
        "expired": bearer(expiring),
        "of a deleted tenant": bearer(orphaned),
        "good, and one in the query": bearer(good),
    }


@pytest.mark.one_kind
async def test_rel_t4_without_a_good_key_every_route_is_401(gated: Gated, clock: TestClock) -> None:
    """None, malformed, revoked, expired, of a deleted tenant: one body and one set of headers for all of them."""
    bad = await bad_headers(gated, clock)

    answers = {
        (why, route.name): await gated.ask(route, headers, "?token=x" if "query" in why else "")
        for why, headers in bad.items()
        for route in SCOPED
    }
    strange = [await gated.ask(route, {}, "?a=1&a=2&%ff") for route in SCOPED]

    refusals = {*map(refusal, answers.values()), *map(refusal, strange)}
    assert [] == [name for name, answer in answers.items() if answer.status_code != 401]
    assert 1 == len(refusals), refusals


def refusal(answer: httpx2.Response) -> tuple[int, str, str]:
    """Return an answer for comparison: all but the request id."""
    return answer.status_code, answer.text, repr([h for h in answer.headers.items() if h[0] != "x-request-id"])


KEYS = {
    **{scope: frozenset({scope}) for scope in sorted(ALL_SCOPES)},
    **{f"role {role}": scopes for role, scopes in ROLES.items()},
    "all but admin": ALL_SCOPES - {"admin"},
}
"""Scopes by what a key of them is called; a key of scope admin has all."""


@pytest.mark.one_kind
@pytest.mark.parametrize("key", KEYS)
async def test_rel_t4_a_route_answers_only_its_scopes(gated: Gated, key: str) -> None:
    """403 for a key that lacks the scope, before anything of the object is told; never for one that has it."""
    given = {"role": key[5:]} if key.startswith("role") else {"scopes": sorted(KEYS[key])}
    headers = bearer(await gated.token(tenant="a", **given))

    scopes = ALL_SCOPES if "admin" in KEYS[key] else KEYS[key]
    for route in SCOPED:
        answer = await gated.ask(route, headers)
        refused = answer.status_code == 403 and "lacks the scope" in answer.json()["detail"]
        assert refused != bool(scopes & set(route.scopes)), (route.name, answer.text)
        assert answer.status_code not in (401, 500), (route.name, answer.text)


async def test_a_worker_may_ask_how_many_there_should_be(calls: Calls) -> None:
    """H8: a pool that scales needs no second key."""
    answer = await calls("worker.a").get("/autoscale")

    assert 200 == answer.status_code, answer.text


@pytest.mark.one_kind
@pytest.mark.parametrize("role", sorted(SCOPES))
async def test_rel_t6_a_tenant_in_the_query_is_refused(calls: Calls, role: str) -> None:
    """The tenant comes from the key alone."""
    client = calls(f"{role}.a")

    for route in SCOPED:
        if SCOPES[role] & set(route.scopes):
            answer = await client.request(route.method, path_of(route, str(uuid4())) + "?tenant=b")
            assert 422 == answer.status_code, (route.method, route.path)


async def test_nothing_answers_with_a_fault(calls: Calls) -> None:
    """An empty body or none, an unknown object: a problem or an answer, never 500."""
    client = calls("root")

    for route in ROUTES:
        for value in (str(uuid4()), "nobody", "%00", "..%2F..", "%f0%9f%90%99"):
            answer = await ask(client, route, value)
            assert answer.status_code < 500, (route.method, route.path, value, answer.text)
            if answer.status_code >= 400:
                assert "application/problem+json" == answer.headers["content-type"]


@pytest.mark.one_kind
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "HEAD", "BREW"])
async def test_a_method_that_is_not_there_is_405(calls: Calls, method: str) -> None:
    """With those that are, in Allow."""
    client = calls("root")
    shapes: dict[str, set[str]] = {}
    for route in ROUTES:
        shapes.setdefault(documented_path(route), set()).add(route.method)

    for path, methods in shapes.items():
        if method not in methods and not (method == "HEAD" and path in OPEN_PATHS):
            answer = await client.request(method, ROOT + re.sub(r"\{\w+\}", "x", path))
            assert 405 == answer.status_code, path
            assert methods <= set(answer.headers["allow"].split(", "))


@pytest.mark.one_kind
async def test_load_balancers_may_probe_by_head(calls: Calls) -> None:
    """The open routes answer HEAD as they answer GET; no other does."""
    client = calls("")

    answers = [await client.head(ROOT + path) for path in sorted(OPEN_PATHS)]

    assert {200} == {answer.status_code for answer in answers}


@pytest.mark.one_kind
async def test_the_document_and_the_router_name_the_same_routes(door: Door, calls: Calls) -> None:
    """Every route is documented with its statuses, and nothing else is."""
    document = (await calls("").get(f"{ROOT}/openapi.json")).json()

    documented = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    served = {(route.method, documented_path(route)) for route in ROUTES}

    assert served == documented
    assert "3.1.0" == document["openapi"]


@pytest.mark.one_kind
async def test_rel_t12_the_reference_page_needs_nothing_else(calls: Calls) -> None:
    """One page without script or foreign address, with a strict policy, naming every operation."""
    page = await calls("").get(f"{ROOT}/docs")

    assert 200 == page.status_code
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "nosniff" == page.headers["x-content-type-options"]
    assert not re.search(r"<script|https?://|<link|<img|<iframe|javascript:", page.text)
    for route in ROUTES:
        assert documented_path(route) in page.text


async def test_examples_of_the_document_are_accepted(calls: Calls) -> None:
    """What the page shows for copying is a body that decodes."""
    from windlass.server.reference import _example

    document = (await calls("").get(f"{ROOT}/openapi.json")).json()
    client = calls("root")

    for route in SCOPED:
        if route.body is not None:
            operation = document["paths"][documented_path(route)][route.method.lower()]
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            body = _example(schema, document["components"]["schemas"])
            answer = await client.request(route.method, path_of(route, str(uuid4())), json=body)
            assert answer.status_code != 422, (route.path, body, answer.text)


async def test_lists_never_show_another_tenant(calls: Calls) -> None:
    """Jobs, schedules, queues, workers, attempts, dead letters, keys, audit and counts of one tenant are its own."""
    foreign = calls("admin.b")
    await foreign.post("/jobs", json={"task": "secret-task", "queue": "secret-queue", "idempotency_key": "secret-key"})
    await foreign.post("/jobs/claim", json={"worker_id": "secret-worker", "queues": ["secret-queue"]})
    await foreign.post("/queues/secret-queue/pause", json={"reason": "secret-reason"})
    await foreign.post("/schedules", json={"name": "secret-name", "task": "secret-task", "every": "1h"})

    client = calls("admin.a")
    for route in SCOPED:
        if route.method == "GET" and route.parameter is None and route.path != "/metrics":
            answer = await ask(client, route, "")
            assert answer.status_code in (200, 403), route.path
            assert "secret" not in answer.text, route.path
    status = (await client.get("/admin/queue/status")).json()

    assert (0, 0, 0) == (status["pending"], status["in_progress"], status["active_workers"])
    assert 403 == (await client.get(f"{ROOT}/metrics", headers=bearer("admin.a"))).status_code
