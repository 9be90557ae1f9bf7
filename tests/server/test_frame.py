"""The frame: what every request goes through before and after its endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from msgspec import Meta

from tests.server.frame import bearer, client_of, make_door
from windlass.config.redact import Redactor
from windlass.errors import Contention, InvalidInput, NotFound, SetupError, TooMany
from windlass.server import shapes
from windlass.server.bodies import BodyBudget
from windlass.server.call import Call, ClientGone, Message, Reply
from windlass.server.decoding import BodyDecoder
from windlass.server.route import Route
from windlass.wire.base import Body, Words
from windlass.wire.jobs import BatchRequest


class Inner(Body, frozen=True, kw_only=True):
    """An object inside a body."""

    job_id: str


class Thing(Body, frozen=True, kw_only=True):
    """A body with a bit of everything."""

    aliases: ClassVar[Mapping[str, str]] = {"title": "name"}

    name: Annotated[str, Meta(min_length=1, max_length=10)]
    count: int = 1
    worker_id: str | None = None
    held: tuple[Inner, ...] = ()
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Loose(Body, frozen=True, kw_only=True):
    """A body that takes further fields as metrics."""

    extras = "metrics"

    name: str
    metrics: dict[str, float | str] = msgspec.field(default_factory=dict)


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint has seen."""

    tenant: str
    path: str = ""
    query: Any = None
    body: Any = None


class Numbers(Words, frozen=True, kw_only=True):
    """A query with a number and a switch."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    wait: float = 0.0
    force: bool = False


async def echo(call: Call) -> Echo:
    """Answer what was asked."""
    return Echo(tenant=call.tenant, path=call.path, query=call.query, body=call.body)


async def broken(_call: Call) -> Echo:
    """Meet a fault."""
    raise ZeroDivisionError("secret inside")


async def refuse(call: Call) -> Echo:
    """Raise what the path names."""
    kinds = {"busy": TooMany("Full."), "contention": Contention("Again."), "field": InvalidInput("delay_ms", "no.")}
    raise kinds.get(call.path, NotFound(f"There is no job {call.path}."))


def route(method: str, path: str, handler: Any = echo, scopes: Any = ("read",), **more: Any) -> Route:
    """Return a line of the table."""
    return Route(method=method, path=path, handler=handler, scopes=scopes, summary="Test", answers={200: Echo}, **more)


ROUTES = (
    route("POST", "/things", body=Thing, query=Numbers),
    route("GET", "/things", query=Numbers),
    route("POST", "/asked", body=Thing, query_is_body=True),
    route("POST", "/loose", body=Loose),
    route("POST", "/jobs/{id}/touch", body=Inner, body_optional=False),
    route("GET", "/jobs/{id}"),
    route("GET", "/queues/{name}"),
    route("GET", "/queues/{name}/scale", scopes=("operate", "submit")),
    route("GET", "/broken", broken),
    route("GET", "/refused/{name}", refuse),
    route("GET", "/version", scopes=()),
)
ID = "0197c2a0-0000-7000-8000-0000000000aa"
PATIENCE_S = 20


async def test_a_request_is_decoded_and_answered() -> None:
    """An endpoint sees the tenant of the key, the decoded body and the defaults of the query."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        answer = await client.post(
            "/api/v1/things?limit=7", json={"name": "a", "workerId": "w", "held": [{"jobId": "1"}]}
        )

    assert 200 == answer.status_code
    assert "acme" == answer.json()["tenant"]
    assert 7 == answer.json()["query"]["limit"]
    assert {"name": "a", "count": 1, "worker_id": "w", "held": [{"job_id": "1"}]} == answer.json()["body"]


async def test_an_older_name_is_taken_once() -> None:
    """An alias of a field is put into ours; both together are refused."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        older = await client.post("/api/v1/things", json={"title": "a"})
        both = await client.post("/api/v1/things", json={"title": "a", "name": "b"})

    assert "a" == older.json()["body"]["name"]
    assert 422 == both.status_code


async def test_fields_may_stand_in_the_query_where_that_is_said() -> None:
    """A route may take fields of its body from the query, not from both."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        asked = await client.post("/api/v1/asked?name=a&count=3")
        both = await client.post("/api/v1/asked?name=a", json={"name": "b"})
        strange = await client.post("/api/v1/asked?name=a&colour=red")

    assert ("a", 3) == (asked.json()["body"]["name"], asked.json()["body"]["count"])
    assert [422, 422] == [both.status_code, strange.status_code]


async def test_unknown_fields_become_metrics_only_where_that_is_said() -> None:
    """A struct may name a field that takes the rest; the rest must still fit that field."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        taken = await client.post("/api/v1/loose", json={"name": "a", "files": 3, "metrics": {"x": 1}})
        refused = await client.post("/api/v1/loose", json={"name": "a", "files": [3]})

    assert {"x": 1, "files": 3} == taken.json()["body"]["metrics"]
    assert 422 == refused.status_code


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"null", "body"),
        (b'{"name":"a"} x', "body"),
        (b'\xef\xbb\xbf{"name":"a"}', "body"),
        ('{"name":"a"}'.encode("utf-16"), "body"),
        (b'{"name":"\xff"}', "body"),
        (b'{"name":"\\ud800"}', "body"),
        (b'{"name":"a","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "body"),
        (b'{"name":"a","count":NaN}', "body"),
        (b'{"name":"a","count":1.5}', "count"),
        (b'{"name":"a","count":true}', "count"),
        (b'{"name":"a","count":"1"}', "count"),
        (b'{"name":"a","count":' + b"9" * 5000 + b"}", "count"),
        (b'{"name":"a","count":1e100000}', "count"),
        (b'{"name":""}', "name"),
        (b'{"name":"12345678901"}', "name"),
        (b"{}", "name"),
        (b'{"name":"a","tenant":"b"}', "tenant"),
        (b'{"name":"a","held":[{"jobId":"1"},{"job_id":"1","tenant":"b"}]}', "held[1].tenant"),
        (b'{"name":"a","held":[{}]}', "held[0].job_id"),
    ],
)
async def test_a_bad_body_is_refused_with_its_field(body: bytes, field: str) -> None:
    """Whatever is not the JSON asked for is 422, naming the field; nothing is guessed."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        answer = await client.post("/api/v1/things", content=body, headers={"Content-Type": "application/json"})

    assert 422 == answer.status_code
    assert "application/problem+json" == answer.headers["content-type"]
    assert [field] == [error["field"] for error in answer.json()["errors"]]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=1.0",
        "limit=1e2",
        "limit=%D9%A1",
        "limit=1_0",
        "limit=+1",
        "limit=",
        "limit=" + "9" * 5000,
        "limit=1&limit=2",
        "wait=nan",
        "wait=inf",
        "force=yes",
        "vocabulary=z",
        "colour=red",
        "limit=%ff",
        "&".join(f"a{i}=1" for i in range(60)),
    ],
)
async def test_a_bad_query_is_refused(query: str) -> None:
    """Unknown and repeated names and numbers in other than plain digits are 422."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        answer = await client.get(f"/api/v1/things?{query}")

    assert 422 == answer.status_code
    assert answer.json()["errors"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Content-Type": "application/json; charset=utf-16"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
        ({"Content-Type": "application/json; charset=UTF-8"}, 200),
        ({"Content-Type": "application/json", "Content-Encoding": "identity"}, 200),
    ],
)
async def test_a_body_must_be_declared_as_plain_json(headers: dict[str, str], status: int) -> None:
    """Other media types, other charsets and compressed bodies are 415."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        answer = await client.post("/api/v1/things", content=b'{"name":"a"}', headers=headers)

    assert status == answer.status_code


async def exchange(door: Any, scope: dict[str, Any], messages: list[Message]) -> list[Message]:
    """Send messages to the application by hand; it waits for ever when they are used up."""
    sent: list[Message] = []
    base = {"type": "http", "method": "POST", "path": "/api/v1/things", "query_string": b"", "client": ("1.2.3.4", 5)}

    async def receive() -> Message:
        return messages.pop(0) if messages else await asyncio.Future[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    await door({**base, **scope}, receive, send)
    return sent


KEY = (b"authorization", b"Bearer reader.acme")
JSON = (b"content-type", b"application/json")


async def test_a_large_body_is_refused_by_its_length_and_while_it_comes() -> None:
    """Over the limit is 413: by Content-Length without reading a byte, else as soon as too much has come."""
    door = make_door(ROUTES)
    part = {"type": "http.request", "body": b" " * 600_000, "more_body": True}

    told = await exchange(door, {"headers": [KEY, JSON, (b"content-length", b"1048577")]}, [])
    counted = await exchange(door, {"headers": [KEY, JSON, (b"transfer-encoding", b"chunked")]}, [part, dict(part)])

    assert [413, 413] == [told[0]["status"], counted[0]["status"]]


async def test_rel_d10_a_body_that_dribbles_is_given_up() -> None:
    """The whole body must come in time; then 408, and the connection is closed."""
    door = make_door(ROUTES, body_seconds=0.01)
    first = {"type": "http.request", "body": b"{", "more_body": True}

    sent = await exchange(door, {"headers": [KEY, JSON, (b"content-length", b"100")]}, [first])

    assert 408 == sent[0]["status"]
    assert (b"connection", b"close") in sent[0]["headers"]


@pytest.mark.parametrize("length", [(b"content-length", b"900000"), (b"transfer-encoding", b"chunked")])
async def test_rel_s8_bodies_under_way_share_a_budget(length: tuple[bytes, bytes]) -> None:
    """S8: beyond its share a key is told to come back; another tenant has room, and small bodies always get in."""
    door = make_door(ROUTES)
    door._bodies = BodyBudget(5_000_000, 25)
    large = {"type": "http.request", "body": b" " * 900_000, "more_body": True}
    small = {"type": "http.request", "body": b'{"name":"a"}', "more_body": False}
    other = (b"authorization", b"Bearer reader.other")
    first = asyncio.create_task(exchange(door, {"headers": [KEY, JSON, length]}, [dict(large)]))
    for _ in range(20):  # nothing but our own steps is waited for
        await asyncio.sleep(0)

    refused = await exchange(door, {"headers": [KEY, JSON, length]}, [dict(large)])
    others = await exchange(door, {"headers": [other, JSON, length]}, [dict(large), {"type": "http.request"}])
    let_in = await exchange(door, {"headers": [KEY, JSON, (b"content-length", b"12")]}, [small])

    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert [503, 422, 200] == [sent[0]["status"] for sent in (refused, others, let_in)]
    assert (b"retry-after", b"1") in refused[0]["headers"]
    assert 0 == door._bodies.used


@pytest.mark.parametrize(
    "messages",
    [
        [{"type": "http.request", "body": b'{"name":"a"}' + b" " * 99_988}],
        [{"type": "http.request", "body": b"{" * 100_000}],
        [{"type": "http.request", "body": b"{", "more_body": True}],
        [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}],
    ],
    ids=["taken", "refused", "too slow", "gone"],
)
async def test_the_budget_of_a_body_is_given_back(messages: list[Message]) -> None:
    """However a request ends."""
    door = make_door(ROUTES, body_seconds=0.01)

    await exchange(door, {"headers": [KEY, JSON, (b"content-length", b"100000")]}, messages)

    assert 0 == door._bodies.used


def test_nobody_can_have_all_of_the_budget() -> None:
    """A tenant has half of what others leave, a key half of that; there is always some left for another tenant."""
    budget = BodyBudget(128, 25)
    left = []

    for tenant in ("a", "b", "c"):
        for key in ("first", "second"):
            left.append(budget.left((tenant, key)))
            budget.add((tenant, key), left[-1])

    assert [32, 16, 20, 10, 12, 6] == left
    assert 128 - sum(left) == budget.left(())


async def test_a_caller_that_hangs_up_in_its_body_is_not_answered() -> None:
    """Nobody is there: nothing is sent."""
    sent = await exchange(
        make_door(ROUTES), {"headers": [KEY, JSON, (b"content-length", b"100")]}, [{"type": "http.disconnect"}]
    )

    assert [] == sent


async def test_a_wait_ends_when_the_caller_has_gone() -> None:
    """A long poll is cancelled on disconnect, and what it had just got is given back."""
    ended = asyncio.Event()
    undone: list[str] = []

    async def wait(call: Call) -> Reply:
        async def stubborn() -> str:
            try:
                await asyncio.Future()
            finally:
                ended.set()
            raise AssertionError

        async def give_back(value: str) -> None:
            undone.append(value)

        await call.while_connected(stubborn(), give_back)
        raise AssertionError

    door = make_door([route("POST", "/things", wait)])

    async with asyncio.timeout(5):
        sent = await exchange(door, {"headers": [KEY]}, [{"type": "http.disconnect"}])

    assert ended.is_set()
    assert ([], []) == (sent, undone)


async def test_what_is_ready_for_a_caller_that_has_just_gone_is_given_back() -> None:
    """Work that ends in the same moment as the connection goes to `undo`, not into the void."""
    undone: list[str] = []

    async def wait(call: Call) -> Reply:
        async def quick() -> str:
            return "job"

        async def give_back(value: str) -> None:
            undone.append(value)

        with pytest.raises(ClientGone):
            await call.while_connected(quick(), give_back)
        raise ClientGone

    door = make_door([route("POST", "/things", wait)])

    await exchange(door, {"headers": [KEY]}, [{"type": "http.disconnect"}])

    assert ["job"] == undone


async def test_rel_t15_lists_of_one_tenant_leave_turns_to_others() -> None:
    """Of one tenant two lists are read at once, more wait, and beyond its room it is 429; another tenant's go on."""
    reading: list[str] = []
    go_on = asyncio.Event()

    async def slow(call: Call) -> Echo:
        reading.append(call.tenant)
        await go_on.wait()
        return await echo(call)

    door = make_door([route("GET", "/things", slow), route("GET", "/things/{id}", echo)])
    async with client_of(door, "reader.a") as client, client_of(door, "reader.b") as other:
        async with asyncio.timeout(PATIENCE_S):
            many = [asyncio.create_task(client.get("/api/v1/things")) for _ in range(30)]
            while len(reading) < 2:  # noqa: ASYNC110 — what is waited for sets no event
                await asyncio.sleep(0)
            one = asyncio.create_task(other.get("/api/v1/things"))
            while len(reading) < 3:  # noqa: ASYNC110 — as above
                await asyncio.sleep(0)
            first = list(reading)
            beyond = await client.get("/api/v1/things")
            single = await client.get(f"/api/v1/things/{ID}")
            go_on.set()
            statuses = {answer.status_code for answer in await asyncio.gather(one, *many)}

    assert ["a", "a", "b"] == first
    assert (429, "1", 200, {200}) == (beyond.status_code, beyond.headers["retry-after"], single.status_code, statuses)


async def test_rel_t15_calls_that_wait_have_a_cap() -> None:
    """Beyond it a call that waits is 429, and what it would have done has not begun."""
    begun: list[int] = []

    async def wait(call: Call) -> Echo:
        async def work() -> Echo:
            begun.append(1)
            return await asyncio.Future()

        return await call.while_connected(work())

    door = make_door([route("POST", "/things", wait)])
    async with client_of(door, "reader.a") as client, asyncio.timeout(PATIENCE_S):
        many = [asyncio.create_task(client.post("/api/v1/things")) for _ in range(10)]
        while len(begun) < 10:  # noqa: ASYNC110 — what is waited for sets no event
            await asyncio.sleep(0)
        beyond = await client.post("/api/v1/things")
        for one in many:
            one.cancel()
        await asyncio.gather(*many, return_exceptions=True)

    assert (429, 10) == (beyond.status_code, len(begun))


async def test_scope_comes_before_the_object() -> None:
    """Who may not do a thing is told 403, whether it exists or not; without a key it is 401."""
    async with client_of(make_door(ROUTES)) as client:
        answers = [
            await client.get(f"/api/v1/jobs/{ID}", headers=headers)
            for headers in ({}, bearer("nonsense"), bearer("worker.acme"), bearer("reader.acme"))
        ]

    assert [401, 401, 403, 200] == [answer.status_code for answer in answers]
    assert "Bearer" == answers[0].headers["www-authenticate"]
    assert answers[0].content == answers[1].content


async def test_one_of_several_scopes_is_enough() -> None:
    """A route may name several scopes."""
    async with client_of(make_door(ROUTES)) as client:
        answers = [
            await client.get("/api/v1/queues/mail/scale", headers=bearer(f"{role}.acme"))
            for role in ("operator", "producer", "admin", "reader")
        ]

    assert [200, 200, 200, 403] == [answer.status_code for answer in answers]


async def test_only_a_key_above_tenants_names_one() -> None:
    """The tenant comes from the key; another one in the query is 422, but for admin keys without a tenant."""
    async with client_of(make_door(ROUTES)) as client:
        bound = await client.get("/api/v1/things?tenant=other", headers=bearer("admin.acme"))
        above = await client.get("/api/v1/things?tenant=other", headers=bearer("root"))
        silent = await client.get("/api/v1/things", headers=bearer("root"))

    assert 422 == bound.status_code
    assert ["other", "default"] == [above.json()["tenant"], silent.json()["tenant"]]


async def test_unknown_paths_and_methods() -> None:
    """A path that is not there is 404; a method it does not take is 405 with those it takes."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        nowhere = await client.get("/api/v1/nowhere")
        outside = await client.get("/things")
        wrong = await client.request("PATCH", "/api/v1/things")
        odd = await client.request("BREW", f"/api/v1/jobs/{ID}")

    assert [404, 404, 405, 405] == [a.status_code for a in (nowhere, outside, wrong, odd)]
    assert ["GET, POST", "GET"] == [wrong.headers["allow"], odd.headers["allow"]]


@pytest.mark.parametrize("text", ["1", "%00", "..%2f..%2fhealth", f"{ID}%20", "%ff", f"{{{ID}}}", ID.replace("-", "")])
async def test_what_is_no_id_is_not_found(text: str) -> None:
    """A text that can be no id is like an unknown one, and encoding opens no other path."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        answer = await client.get(f"/api/v1/jobs/{text}")

    assert 404 == answer.status_code


async def test_jobs_and_workers_are_served_at_the_root_too() -> None:
    """The unversioned paths have the same endpoints; other nouns have none there."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        jobs = await client.get(f"/jobs/{ID.upper()}")
        queues = await client.get("/queues/mail")

    assert [200, 404] == [jobs.status_code, queues.status_code]
    assert ID == jobs.json()["path"]


async def test_errors_become_problems() -> None:
    """Each error has type, title, status, detail, code and errors; a cap and an outage say when to come back."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        busy, contention, field, missing = [
            await client.get(f"/api/v1/refused/{name}") for name in ("busy", "contention", "field", "x")
        ]

    assert [429, 503, 422, 404] == [a.status_code for a in (busy, contention, field, missing)]
    assert ["1", "1"] == [busy.headers["retry-after"], contention.headers["retry-after"]]
    assert "too_many" == busy.json()["code"]
    assert [{"field": "delay", "problem": "no."}] == field.json()["errors"]
    assert {"type", "title", "status", "detail", "code", "errors"} == set(missing.json())


async def test_rel_t17_a_fault_of_ours_tells_only_an_id(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected exception is 500 with the request's id; the log has the rest."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        with caplog.at_level(logging.ERROR, "windlass"):
            answer = await client.get("/api/v1/broken", headers={"X-Request-Id": "abc.1"})

    assert 500 == answer.status_code
    assert "abc.1" in answer.json()["detail"]
    assert "secret" not in answer.text
    lines: list[Any] = [record.msg for record in caplog.records]
    [line] = [line.shown(Redactor()) for line in lines if line.name == "request.failed"]
    assert {"request": "abc.1", "tenant": "acme", "method": "GET", "route": "/broken"} == line
    assert "ZeroDivisionError" in caplog.text


async def test_the_request_id_is_the_callers_if_it_is_sane() -> None:
    """A sane X-Request-Id comes back; any other is replaced by one of ours."""
    async with client_of(make_door(ROUTES), "reader.acme") as client:
        own, long, strange = [
            (await client.get("/version", headers={"X-Request-Id": text})).headers["x-request-id"]
            for text in ("a-b_c.9", "x" * 65, "a b")
        ]

    assert "a-b_c.9" == own
    assert not {"x" * 65, "a b"} & {long, strange}
    assert long != strange


def test_rel_t4_a_route_without_a_scope_does_not_start() -> None:
    """A server refuses to start with a route that is open and not in the exact list, or listed twice."""
    for bad in (
        [route("GET", "/things", scopes=())],
        [route("GET", "/jobs/health", scopes=())],
        [route("GET", "/things"), route("GET", "/things")],
    ):
        with pytest.raises(SetupError):
            make_door(bad)


async def test_payloads_come_byte_for_byte() -> None:
    """What is kept raw is not parsed and written again: order, spaces and numbers stay."""
    seen: list[bytes] = []

    async def keep(call: Call) -> Echo:
        seen.append(bytes(call.body.payload))
        return Echo(tenant=call.tenant)

    payload = b'{ "b": 1.0, "a":1e2 , "b": 2}'
    async with client_of(make_door([route("POST", "/things", keep, body=Thing)]), "reader.acme") as client:
        await client.post(
            "/api/v1/things",
            content=b'{"payload": ' + payload + b', "title": "x"}',
            headers={"Content-Type": "application/json"},
        )

    assert [payload] == seen


async def test_rel_t9_names_in_camel_case_cost_little() -> None:
    """T9: a list of a thousand in other spellings looks up what its entries may hold once, not for each of them."""
    decoder = BodyDecoder(BatchRequest)
    entry = {"task": "t", "maxRetries": 2.0}
    decoder.decode(msgspec.json.encode({"jobs": [entry]}))
    before = shapes.shape_of.cache_info()

    decoder.decode(msgspec.json.encode({"jobs": [{**entry, "uniqueKey": f"k{n}"} for n in range(1000)]}))

    after = shapes.shape_of.cache_info()
    assert before.misses == after.misses
    assert 1000 <= after.hits - before.hits <= 2000
