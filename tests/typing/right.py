"""Right calls of the Python API: strict mypy accepts this file, and `assert_type` says what it makes of each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from windlass import App, Call, Context, Job

app = App()


@app.task
def add(x: int, y: int = 2) -> int:
    """Add two numbers."""
    return x + y


@app.task
def tell(ctx: Context, text: str, *, loud: bool = False) -> str:
    """Take a context that nobody passes."""
    return text.upper() if loud else text


@app.task(name="mail.send", queue="mail", timeout="5m", retry={"kind": "fixed", "base": 5}, labels=["gpu"])
async def send(to: str) -> bool:
    """Be asynchronous, with options."""
    return bool(to)


@app.task(isolation="process", timeout=None, delay=timedelta(seconds=1))
async def crunch(ctx: Context, rows: list[int]) -> dict[str, int]:
    """Be asynchronous, with a context and options."""
    return {str(row): row for row in rows}


@app.task
def anything(data: Any) -> None:
    """Take whatever it is given: its calls are not checked."""


@app.task
def nothing() -> None:
    """Take nothing."""


def blocking() -> None:
    """Call and enqueue in an ordinary function."""
    assert_type(add(1), int)
    assert_type(add.enqueue(1, y=3), Job[int])
    assert_type(add.enqueue(1).result(timeout="10s"), int)
    assert_type(add.delay(1), Job[int])
    assert_type(add.send(1, 2), Job[int])
    assert_type(add.options(queue="fast", delay="1h", priority=5).enqueue(1), Job[int])
    assert_type(add.s(1), Call[int])
    assert_type(app.enqueue_many([add.s(1), add.s(x=2)]), list[Job[int]])
    assert_type(tell("hello", loud=True), str)
    assert_type(tell.enqueue("hello").result(), str)
    assert_type(send.enqueue("ann@example.org").result(), bool)
    assert_type(crunch.enqueue([1, 2]), Job[dict[str, int]])
    assert_type(app.enqueue("elsewhere", {"a": 1}, queue="mail"), Job[Any])
    anything.enqueue({"a": 1})
    anything.enqueue(data=1)
    nothing.enqueue()


async def in_a_loop() -> None:
    """Call and enqueue in an event loop."""
    assert_type(await send("ann@example.org"), bool)
    assert_type(await add.aenqueue(1), Job[int])
    assert_type(await (await send.aenqueue("x")).aresult(), bool)
    assert_type(await app.aenqueue_many([tell.s("a")]), list[Job[str]])
    assert_type(await tell.options(tags=["x"]).aenqueue("a", loud=True), Job[str])
