"""Right calls of the Python API: strict mypy accepts this file, and `assert_type` says what it makes of each."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

import asyncpg

from windlass import (
    App,
    Backfill,
    Call,
    Context,
    Declared,
    Forbidden,
    Job,
    JobFinished,
    KeyReused,
    PayloadTooLarge,
    Preview,
    Run,
    Schedule,
    ScheduleChange,
    SetupError,
    StaleFence,
    State,
    Unauthorized,
    UniqueTaken,
    at,
    cron,
    enqueue_in,
    every,
    finish_in,
)

app = App(name="typed")
NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)


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


@app.scheduled(cron("0 8 * * MON", zone="Europe/Berlin"), name="mondays", kwargs={"day": "mon"}, overlap="queue_one")
@app.scheduled(every("5m"), start=NOON, exclude=["SAT", date(2026, 12, 25)])
@app.task(queue="reports")
def report(day: str = "today") -> int:
    """Be declared above a task, twice."""
    return len(day)


@app.task(name="sweep.all")
@app.scheduled(every(timedelta(hours=1)), jitter="1m")
def sweep(ctx: Context, deep: bool = False) -> bool:
    """Be declared below a task, with a context."""
    return deep


@app.scheduled(at(NOON))
async def once(number: int = 1) -> int:
    """Be a function and no task before."""
    return number


@app.scheduled(at(NOON), args=[1])
def untyped(data: Any) -> None:
    """Take whatever it is given, declared."""


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
    assert_type(app.enqueue_many([add.s(1), tell.s("a"), nothing.s()]), list[Job[object]])
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


def schedules() -> None:
    """Store schedules, and use their handles."""
    assert_type(report.enqueue("mon"), Job[int])
    assert_type(sweep.enqueue(deep=True), Job[bool])
    assert_type(once.enqueue(2).result(), int)
    untyped.enqueue(data=1)
    assert_type(app.schedule(report, cron("@daily")), Schedule[int])
    assert_type(app.schedule(tell.s("a"), every("5m"), name="a", replace_existing=True, timeout=None), Schedule[str])
    assert_type(app.schedule(send.s("ann"), at(NOON), dry_run=True), ScheduleChange)
    assert_type(app.schedule(nothing, None, name="by hand"), Schedule[None])
    found = app.schedules["nightly"]
    assert_type(found, Schedule[Any])
    assert_type("nightly" in app.schedules, bool)
    assert_type([each.name for each in app.schedules], list[str])
    schedule = app.schedule(report, cron("@daily"))
    assert_type(schedule.run_now(), Job[int])
    assert_type(schedule.pause("why", until="2h").resume().refresh(), Schedule[int])
    assert_type(schedule.preview(5), Preview)
    assert_type(schedule.runs(5, decision="fired"), list[Run])
    assert_type(schedule.backfill(NOON, NOON, concurrency=4), Backfill)
    assert_type(schedule.reschedule(every(60), overlap="allow", end=None), Schedule[int])
    assert_type(schedule.reschedule(catch_up="skip", dry_run=True), ScheduleChange)
    assert_type(app.declare(dry_run=True), Declared)


def in_a_transaction(connection: sqlite3.Connection, session: Any, context: Context) -> None:
    """Enqueue in a transaction of the program's own."""
    assert_type(enqueue_in(connection, add.s(1)), UUID)
    assert_type(enqueue_in(connection, "elsewhere", {"a": 1}, queue="mail"), UUID)
    enqueue_in(session, add.s(1))
    assert_type(finish_in(connection, context, 5), None)


async def in_an_async_transaction(connection: asyncpg.Connection[asyncpg.Record], context: Context) -> None:
    """Enqueue in a transaction of the program's own, in an event loop."""
    assert_type(await enqueue_in(connection, add.s(1)), UUID)
    assert_type(await finish_in(connection, context, 5), None)


def names(job: Job[int]) -> State:
    """Name what a program catches and annotates."""
    try:
        return job.status
    except (StaleFence, Unauthorized, Forbidden, PayloadTooLarge, KeyReused, JobFinished, UniqueTaken, SetupError):
        return State.DEAD


async def schedules_in_a_loop() -> None:
    """Store schedules, and use their handles, in an event loop."""
    assert_type(await once(), int)
    schedule = await app.aschedule(once.s(2), every(60), expect_within="1h")
    assert_type(schedule, Schedule[int])
    assert_type(await app.aschedule(once, every(60), dry_run=True), ScheduleChange)
    assert_type(await schedule.arun_now({"number": 3}), Job[int])
    assert_type(await schedule.areschedule(every(60), dry_run=True), ScheduleChange)
    assert_type(await (await schedule.apause()).aresume(), Schedule[int])
    assert_type(await app.schedules.aget("nightly"), Schedule[Any])
    assert_type([each.name async for each in app.schedules.afind(paused=True)], list[str])
    assert_type(await app.adeclare(), Declared)
