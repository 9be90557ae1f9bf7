"""Bad input over HTTP, group by group, spread over every route that takes it: a problem with 4xx, never a fault."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest
from msgspec import inspect

from windlass.server.route import Route, documented_path
from windlass.server.routes import ROUTES

Calls = Callable[[str], httpx2.AsyncClient]
# The rules are of the door alone: the database is hardly asked, so one kind is enough.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
JSON = {"Content-Type": "application/json"}
WITH_BODY = [route for route in ROUTES if route.body is not None]

FORMS: list[bytes] = [
    b" ",
    b"{",
    b"}",
    b"[]",
    b"[{}]",
    b"null",
    b"true",
    b"0",
    b'"x"',
    b"{}{}",
    b"{} x",
    b"{}\x00",
    b"\x00{}",
    b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"),
    "{}".encode("utf-32"),
    b'{"a":NaN}',
    b'{"a":Infinity}',
    b'{"a":-Infinity}',
    b'{"a":01}',
    b'{"a":+1}',
    b'{"a":.5}',
    b'{"a":1.}',
    b'{"a":0x10}',
    b"{'a':1}",
    b"{a:1}",
    b'{"a":1,}',
    b'{"a"}',
    b'{"a":}',
    b'{"a":"\\x"}',
    b'{"a":"\\u12"}',
    b'{"a":"\\ud800"}',
    b'{"a":"\\udc00\\ud800"}',
    b'{"a":"\xff"}',
    b'{"a":"\xc0\xaf"}',
    b'{"a":"\xed\xa0\x80"}',
    b'{"a":"\n"}',
    b'{"a":"\x00"}',
    b"{" * 1000,
    b"[" * 100_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'{"a":' + b"9" * 5000 + b"}",
    b'{"a":1e100000}',
    b"// comment\n{}",
    b"a=1&b=2",
    b"<xml/>",
]
TEXTS: list[Any] = [
    "",
    "\x00",
    "a\x00b",
    "\x1b[31m",
    "a\nb",
    "\x7f",
    "/",
    "a/b",
    "a,b",
    "x" * 201,
    "x" * 10_000,
    1,
    1.5,
    True,
    [],
    {},
    ["x"],
    {"x": 1},
]
NUMBERS: list[Any] = [
    -(2**31) - 1,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    1.5,
    1e308,
    "1",
    "1_0",
    "١",
    "",
    True,
    [],
    {},
]
TIMES: list[Any] = [
    "",
    "now",
    "infinity",
    "2026",
    "2026-01-01",
    "2026-01-01T00:00:00",
    "2026-01-01 00:00:00",
    "2026-13-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01T00:60:00Z",
    "2026-01-01T00:00:60Z",
    "2026-01-01T00:00:00+24:00",
    "2026-01-01T00:00:00 Europe/Berlin",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00",
    "294277-01-01T00:00:00Z",
    "2026-01-01T00:00:00Z\x00",
    1_700_000_000,
    1e30,
    True,
    [],
]
IDENTIFIERS: list[Any] = [
    "",
    "x",
    "0" * 36,
    "{" + str(uuid4()) + "}",
    str(uuid4())[:-1],
    str(uuid4()) + "0",
    1,
    True,
    [],
]


def url_of(route: Route, value: str = "") -> str:
    """Return the URL of a route about something that is not there."""
    return "http://windlass.test" + re.sub(r"\{\w+\}", value or str(uuid4()), documented_path(route))


def kinds_of(described: inspect.Type) -> set[str]:
    """Return what kinds of values a field takes."""
    match described:
        case inspect.Metadata():
            return kinds_of(described.type)
        case inspect.UnionType():
            return set().union(*(kinds_of(inner) for inner in described.types))
        case inspect.StrType():
            return {"name"} if described.max_length == 200 and described.pattern else {"text"}
        case inspect.IntType():
            return {"number"}
        case inspect.FloatType():
            return {"span"}
        case inspect.DateTimeType():
            return {"time"}
        case inspect.UUIDType():
            return {"identifier"}
    return {"other"}


BAD = {"name": TEXTS, "number": NUMBERS, "time": TIMES, "identifier": IDENTIFIERS}


def bad_fields(route: Route) -> list[tuple[str, Any]]:
    """Return fields of a body with values that they cannot take."""
    described = inspect.type_info(route.body)
    assert isinstance(described, inspect.StructType)
    found: list[tuple[str, Any]] = []
    for field in described.fields:
        kinds = kinds_of(field.type) - {"other"}
        if len(kinds) == 1 and (values := BAD.get(kinds.pop())):
            found += [(field.encode_name, value) for value in values]
    return found


async def send(client: httpx2.AsyncClient, route: Route, body: bytes) -> httpx2.Response:
    """Send a body to a route."""
    return await client.request(route.method, url_of(route), content=body, headers=JSON)


async def test_a_body_that_is_no_json_object_is_refused(calls: Calls) -> None:
    """JSON form: every text that is not one object of ours is 422, on every route that takes a body."""
    client = calls("root")

    for route, form in product(WITH_BODY, FORMS):
        answer = await send(client, route, form)
        assert 422 == answer.status_code, (route.name, form[:40], answer.text)
        assert answer.json()["errors"], (route.name, form[:40])


async def test_a_value_that_a_field_cannot_take_is_refused(calls: Calls) -> None:
    """Strings, numbers, times, identifiers: 422 with a field, or 404 for an object not there; never a fault."""
    client = calls("root")

    for route in WITH_BODY:
        required = required_fields(route)
        for field, value in bad_fields(route):
            body = json.dumps({**required, field: value}).encode()
            answer = await send(client, route, body)
            assert answer.status_code in (404, 413, 422), (route.name, field, value, answer.status_code, answer.text)


def required_fields(route: Route) -> dict[str, Any]:
    """Return good values for what a body must have."""
    good: dict[str, Any] = {
        "task": "t",
        "worker_id": "w",
        "fence": 1,
        "name": "n",
        "delay": 1,
        "paused": True,
        "owner": "o",
        "since": "2026-01-01T00:00:00Z",
        "until": "2026-01-02T00:00:00Z",
        "jobs": [{"task": "t"}],
        "schedules": [{"name": "n", "task": "t"}],
        "reports": [{"kind": "complete", "job_id": str(uuid4()), "fence": 1}],
    }
    assert route.body is not None
    fields = {field.name for field in msgspec.structs.fields(route.body)}
    needed = {field.name for field in msgspec.structs.fields(route.body) if field.required} | (fields & {"fence"})
    return {name: good[name] for name in needed}


async def test_rel_t6_unknown_fields_are_refused_at_any_depth(calls: Calls) -> None:
    """Mass assignment: `tenant`, `id`, `state` and the like are 422 from who may not name a tenant."""
    client = calls("admin.a")

    names = ("tenant", "tenant_id", "state", "__proto__", "constructor", "Id", "is_admin")
    for route, name in product(WITH_BODY, names):
        required = required_fields(route)
        values = {**required, name: {"x": 1}}
        for nested in ("jobs", "reports", "schedules"):
            if nested in required:
                values = {**required, nested: [{**required[nested][0], name: "b"}]}
        answer = await send(client, route, json.dumps(values).encode())
        assert 422 == answer.status_code, (route.name, name, answer.text)


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=a"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        {"Content-Type": "application/json", "Content-Encoding": "br, identity"},
    ],
)
async def test_what_is_not_plain_json_is_415(calls: Calls, headers: dict[str, str]) -> None:
    """HTTP: forms, other charsets and compressed bodies are refused on every route that takes a body."""
    client = calls("root")

    answers = [await client.request(r.method, url_of(r), content=b"{}", headers=headers) for r in WITH_BODY]

    assert {415} == {answer.status_code for answer in answers}


async def test_rel_t9_a_body_over_the_limit_is_413(calls: Calls) -> None:
    """8 MiB for lists of jobs and reports, else 1 MiB; one byte more is refused."""
    client = calls("root")

    answers = {r.name: (await send(client, r, b" " * (r.body_bytes + 1))).status_code for r in WITH_BODY}

    assert dict.fromkeys(answers, 413) == answers


@pytest.mark.parametrize("name", ["health", "readyz", "docs", "openapi.json", "version"])
async def test_names_that_end_like_open_paths_need_a_key(calls: Calls, name: str) -> None:
    """The open paths are whole paths: nothing below the API is open by its last word."""
    client = calls("")

    answers = [await client.get(url_of(route, name)) for route in ROUTES if route.method == "GET" and route.parameter]

    assert {401} == {answer.status_code for answer in answers}


@pytest.mark.parametrize("name", ["concurrency_key", "concurrencyKey"])
async def test_a_concurrency_key_is_refused_until_it_limits(client: httpx2.AsyncClient, name: str) -> None:
    """Wherever a job or a schedule is written; with a sentence, and nothing is stored."""
    job: dict[str, Any] = {"task": "t", name: "customer-7"}
    stored = await client.post("/schedules", json={"name": "hourly", "cron": "@hourly", "task": "t"})
    assert 201 == stored.status_code

    answers = [
        await client.post("/jobs", json=job),
        await client.post("/jobs", json={**job, "schedule": "@daily"}),
        await client.post("/jobs/batch", json={"jobs": [{"task": "t"}, job]}),
        await client.post("/schedules", json={"name": "nightly", "cron": "@daily", **job}),
        await client.put("/schedules/hourly", json={"cron": "@daily", **job}),
        await client.patch("/schedules/hourly", json={name: "k"}),
        await client.post("/schedules/batch", json={"schedules": [{"name": "nightly", "cron": "@daily", **job}]}),
    ]

    assert [422] * len(answers) == [answer.status_code for answer in answers]
    [problem] = {answer.json()["errors"][0]["problem"] for answer in answers}
    assert problem.startswith("it would limit nothing yet. Leave it out")
    document = (await client.get("http://door/openapi.json")).text
    assert "concurrency_key" not in document
    assert name in answers[0].json()["errors"][0]["field"]
    assert [] == (await client.get("/jobs", params={"include": "none"})).json()["jobs"]
    assert ["hourly"] == [found["name"] for found in (await client.get("/schedules")).json()["schedules"]]
