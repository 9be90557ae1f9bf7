"""Every answer of the API, with a value in each field, is read by whoever asks for it. Generated from the routes."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import inspect as kinds

from tests.client.serving import Served
from tests.worker.running import Gate, Plain, entered
from tests.worker.test_links import worker_of
from windlass import App, Context
from windlass.client import requests, schedulerequests
from windlass.client.answers import Answer, read
from windlass.client.requests import Request
from windlass.job import State
from windlass.server.route import BASE, Route, Router
from windlass.server.routes import ROUTES

ID = UUID(int=7)
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
JSON = {"any": ["json", 1, None]}
ROUTER = Router(ROUTES)

ASKED: dict[str, list[Request]] = {
    "get": [requests.get(ID), schedulerequests.get(ID)],
    "wait": [requests.wait(ID, wait_s=1)],
    "submits": [*requests.submits([{"task": "a"}]), *requests.submits([{"task": "a"}, {"task": "b"}])],
    "cancel": [requests.cancel(ID)],
    "retry": [requests.retry(ID)],
    "attempts": [requests.attempts(ID)],
    "logs": [requests.logs(ID)],
    "create": [schedulerequests.create({}, replace_existing=True)],
    "try_create": [schedulerequests.try_create({}, replace_existing=True)],
    "declare": [schedulerequests.declare("me", [], dry_run=False)],
    "find": [schedulerequests.find({}, cursor=None)],
    "change": [schedulerequests.change(ID, {}, reason=None)],
    "try_change": [schedulerequests.try_change(ID, {})],
    "pause": [schedulerequests.pause(ID, reason=None, until=None)],
    "resume": [schedulerequests.resume(ID, reason=None)],
    "run": [schedulerequests.run(ID, None, reason=None)],
    "delete": [schedulerequests.delete(ID, purge=False, reason=None)],
    "preview": [schedulerequests.preview(ID, 1, after=None)],
    "preview_of": [schedulerequests.preview_of({})],
    "runs": [schedulerequests.runs(ID, {}, limit=1, cursor=None)],
    "backfill": [schedulerequests.backfill(ID, {}, reason=None)],
    "get_backfill": [schedulerequests.get_backfill(ID)],
    "stop_backfill": [schedulerequests.stop_backfill(ID, reason=None)],
}
"""What the Python API asks, by the function that builds it."""


def filled(kind: kinds.Type) -> Any:
    """Return a value of a type with every field of it there: no null where there can be more."""
    match kind:
        case kinds.Metadata():
            return filled(kind.type)
        case kinds.UnionType():
            return filled(next(part for part in kind.types if not isinstance(part, kinds.NoneType)))
        case kinds.StructType():
            return kind.cls(**{field.name: filled(field.type) for field in kind.fields})
        case kinds.ListType() | kinds.VarTupleType():
            return [filled(kind.item_type)]
        case kinds.TupleType():
            return [filled(part) for part in kind.item_types]
        case kinds.DictType():
            return {"key": filled(kind.value_type)}
        case kinds.EnumType():
            return next(iter(kind.cls))
        case kinds.LiteralType():
            return kind.values[0]
        case kinds.RawType() | kinds.AnyType():
            return msgspec.Raw(msgspec.json.encode(JSON))
        case kinds.BoolType():
            return True
    return {kinds.StrType: "text", kinds.IntType: 1, kinds.FloatType: 1.0, kinds.UUIDType: ID, kinds.DateTimeType: AT}[
        type(kind)
    ]


def answers_of(method: str, path: str) -> list[type[msgspec.Struct]]:
    """Return the types that the route of a request answers with."""
    ready, _ = ROUTER.find(method, BASE + path, (BASE + path).encode())
    return kinds_of(ready.route)


def kinds_of(route: Route) -> list[type[msgspec.Struct]]:
    """Return the structs that a route answers with."""
    found: list[type[msgspec.Struct]] = []
    for kind in route.answers.values():
        found.extend(part for part in (kind if isinstance(kind, tuple) else (kind,)) if part not in (None, *found))
    return found


def plain(value: Any) -> Any:
    """Return what a struct says, as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def test_every_request_is_looked_at() -> None:
    """A request that is added to the Python API stands in the table above."""
    known = {
        name
        for module in (requests, schedulerequests)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and function.__annotations__.get("return", "").find("Request") >= 0
        if not name.startswith("_")
    }

    assert known == set(ASKED)


@pytest.mark.parametrize("request_", [pytest.param(r, id=name) for name, rs in ASKED.items() for r in rs])
def test_the_python_api_reads_every_field_of_every_answer(request_: Request) -> None:
    """Whatever stands in a field of an answer, the type that a handle reads it by takes it, and says the same."""
    if request_.answer is None:
        return
    fields = set(request_.answer.__struct_fields__)
    fitting = [kind for kind in answers_of(request_.method, request_.path) if fields <= set(kind.__struct_fields__)]
    assert fitting

    for kind in fitting:
        body = msgspec.json.encode(filled(kinds.type_info(kind)))
        got = read(request_, Answer(200, body), where="here")

        said = plain(msgspec.Raw(body))
        assert {name: said[name] for name in fields} == plain(got)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=f"{route.name} {kind.__name__}")
        for route in ROUTES
        if route.media_type == "application/json"
        for kind in kinds_of(route)
    ],
)
def test_every_answer_is_read_by_its_own_type(kind: type[msgspec.Struct]) -> None:
    """Workers, and programs that use the types of the wire, read what a server writes with them."""
    body = msgspec.json.encode(filled(kinds.type_info(kind)))

    got = msgspec.json.decode(body, type=kind)

    assert plain(msgspec.Raw(body)) == plain(got)


async def test_a_job_with_progress_and_a_checkpoint_is_looked_at(sqlite_url: str) -> None:
    """A handle tells how a job is while it runs and when it has ended, whatever its attempt left behind."""
    gate = Gate()

    def sums(payload: Any, context: Context) -> str:
        context.progress({"done": 3, "of": 8})
        context.checkpoint = [1, {"row": 3}]
        return gate(payload, context)

    served = Served(sqlite_url)
    app = App(url=served.url)
    async with worker_of(served.url, {"sums": Plain(sums)}):
        job = await app.aenqueue("sums", {"of": 8})
        await entered(gate)
        while (running := await job.ainfo()).progress is None:
            assert State.RUNNING is running.state or State.ASSIGNED is running.state
        gate.opened.set()
        await job.aresult()

        ended = await job.ainfo()
        assert ({"done": 3, "of": 8}, [1, {"row": 3}]) == (running.progress, running.checkpoint)
        assert (State.SUCCEEDED, {"done": 3, "of": 8}) == (ended.state, ended.progress)
        assert State.SUCCEEDED is await job.astatus()
    await app.aclose()
    served.close()
