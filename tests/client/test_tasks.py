"""Tasks: what the decorator makes of a function, without any server."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest

import windlass
from tests.client.serving import NoOne
from windlass import App, Context
from windlass.client.context import AboutJob
from windlass.client.published import json_types
from windlass.engine.payloads import refusal
from windlass.errors import InvalidInput, Unavailable
from windlass.wire.tasks import Parameter, Signature


def test_a_task_is_still_its_function() -> None:
    """It can be called, with its name and its docstring; a context comes by itself, or is passed."""
    app = App()

    @app.task
    def add(x: int, y: int = 2) -> int:
        """Add."""
        return x + y

    @app.task
    def who(ctx: Context, greeting: str) -> str:
        ctx.progress(0.5)
        ctx.check()
        return f"{greeting} {ctx.job.task}"

    @app.task
    async def later(x: int) -> int:
        return x

    assert 3 == add(1)
    assert ("add", "Add.", __name__) == (add.__name__, add.__doc__, add.__module__)
    assert "hello who" == who("hello")
    assert 5 == asyncio.run(later(5))
    assert (False, True) == (add.is_async, later.is_async)
    assert {"add": add, "who": who, "later": later} == app.tasks


def test_a_decorator_with_options_and_a_name() -> None:
    """`@app.task(...)`: name, isolation, exclusive, options of its jobs; the application's queue where none is said."""
    app = App(queue="slow")

    @app.task(name="mail.send", isolation="process", exclusive=True, timeout="5m", max_attempts=5)
    def send() -> None:
        pass

    other = send.options(queue="fast")

    assert ("mail.send", "process", True) == (send.name, send.isolation, send.exclusive)
    assert ("slow", 300.0, 5) == (
        send.job_options.queue,
        send.job_options.timeout_seconds,
        send.job_options.max_attempts,
    )
    assert ("fast", 300.0, "process") == (other.job_options.queue, other.job_options.timeout_seconds, other.isolation)
    assert other.exclusive
    assert app.tasks["mail.send"] is send


def test_two_functions_of_one_name_are_refused() -> None:
    """The error names both; the same function again, as after a reload, is not two."""
    app = App()

    def first() -> None:
        pass

    def second() -> None:
        pass

    app.task(name="one")(first)
    app.task(name="one")(first)

    with pytest.raises(InvalidInput, match=r"'one' names two tasks, .*first and .*second"):
        app.task(name="one")(second)
    with pytest.raises(InvalidInput, match="is no function"):
        app.task(functools.partial(first))
    with pytest.raises(InvalidInput, match="neither thread nor process"):
        app.task(isolation="fibre")(second)  # type: ignore[call-overload]


def test_a_call_can_be_kept_and_is_never_changed() -> None:
    """`.s()` holds name, payload and options of the moment."""
    app = App()

    @app.task(priority=3)
    def add(x: int) -> int:
        return x

    call = add.options(tags=["a"]).s(1)

    assert ("add", b'{"x":1}', 3, ("a",)) == (call.name, call.payload, call.options.priority, call.options.tags)


def _context(task: str) -> Context:
    """Return what a worker passes to a task, with nothing behind it."""
    return Context(AboutJob(id=UUID(int=1), task=task), NoOne())


def test_a_worker_runs_it_from_its_payload() -> None:
    """`run` reads the arguments, `encode` writes the result, `decode` reads it by the annotation."""
    app = App()

    @app.task
    def pair(ctx: Context, x: int) -> tuple[int, str]:
        return x, ctx.job.task

    result = pair.encode(pair.run(b'{"x":7}', _context("pair")))

    assert b'[7,"pair"]' == result
    assert (7, "pair") == pair.decode(result)
    assert b"null" == pair.encode(None)
    with pytest.raises(InvalidInput, match=r"result: .*cannot be written as JSON"):
        pair.encode(object())


class Struct(msgspec.Struct):
    """A struct."""

    a: int


def test_what_is_published_of_a_task() -> None:
    """Names, JSON types and whether they are needed: a server can refuse a payload before anybody runs it."""
    app = App()

    @app.task
    def every(ctx: Context, a: int, b: float | None, c: Struct, *rest: str, d: Any = 1, **more: str) -> None:
        pass

    assert (
        Signature(
            parameters={
                "a": Parameter(types=("integer",), required=True),
                "b": Parameter(types=("integer", "null", "number"), required=True),
                "c": Parameter(types=("object",), required=True),
                "rest": Parameter(types=("array",)),
                "d": Parameter(types=None),
            },
            extra=True,
            single=False,
        )
        == every.signature()
    )


def numbers(*args: int) -> int:
    """Any number of numbers."""
    return sum(args)


def anything(*args: Any) -> Any:
    """Any number of values."""
    return args


def first_and(x: int, y: int = 2) -> int:
    """One that is needed."""
    return x + y


def number(x: int) -> int:
    """Just one."""
    return x


@pytest.mark.parametrize("fn", [numbers, anything, first_and, number])
@pytest.mark.parametrize("payload", [5, 1.0, "5", [1, 2], {"args": [1, 2]}, {"args": 5}, {"x": 1}, {"x": 1.0}, None])
def test_a_server_refuses_what_the_worker_would(fn: Any, payload: Any) -> None:
    """What is published of a task and what it takes when it runs say the same."""
    task = App().task(fn)
    text = msgspec.json.encode(payload)

    try:
        task.run(text, Context(AboutJob(id=UUID(int=1), task=task.name), NoOne()))
        runs = True
    except (InvalidInput, TypeError):
        runs = False

    assert runs == (refusal([task.signature()], text.decode(), task=task.name) is None)


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        (Literal["a", 1], ("integer", "string")),
        (list[int], ("array",)),
        (bool, ("boolean",)),
        (Any, None),
        (object, None),
        (App, None),
        (Struct | int, ("integer", "object")),
    ],
)
def test_in_doubt_a_parameter_takes_anything(kind: Any, types: Any) -> None:
    """What JSON says nothing about is not refused by a server."""
    assert types == json_types(kind)


def test_what_is_exported_is_there() -> None:
    """Every name of the package's door leads somewhere, the errors that docs/python.md tells to catch among them."""
    found = {name: getattr(windlass, name) for name in windlass.__all__}

    assert {"Conflict", "InvalidInput", "NotFound", "TooMany", "Unavailable"} <= found.keys()
    assert found["Unavailable"] is Unavailable


def test_importing_windlass_is_light() -> None:
    """Heartbeat processes and commands import it too: no HTTP library, no server, no database."""
    code = (
        "import sys, windlass; "
        "heavy = {'httpx2', 'uvicorn', 'asyncpg', 'windlass.server', 'windlass.engine', 'windlass.embedded'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules); "
        "assert 'msgspec' not in sys.modules; "
        "from windlass import App, Context, Job, JobFailed; App().task(lambda: 1) if False else App(); "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    sources = Path(windlass.__file__).parent.parent

    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(sources)}, check=False)

    assert 0 == done.returncode
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = windlass.Nothing
