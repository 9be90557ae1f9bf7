"""Every verb of the Python API: over HTTP and embedded, blocking and in an event loop, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from tests.client.conftest import Voice
from tests.client.serving import Served
from tests.worker.overhttp import to
from windlass import App, Context, JobCancelled, JobFailed
from windlass.client.task import Task
from windlass.errors import Conflict, InvalidInput, JobExpired, JobFinished, KeyReused, NotFound
from windlass.job import State
from windlass.wire.trail import ShownLine
from windlass.wire.work import RegisterRequest
from windlass.worker.httplink import HttpLink


@dataclass
class Point:
    """Something that is no plain JSON."""

    x: int
    y: int = 0


def tasks_of(app: App) -> dict[str, Task[..., Any]]:
    """Give the application tasks to run."""

    @app.task
    def move(ctx: Context, point: Point, by: int = 1) -> Point:
        return Point(point.x + by, point.y + by)

    @app.task
    async def double(number: int) -> int:
        return number * 2

    @app.task
    def fail(why: str) -> None:
        raise ValueError(why)

    return app.tasks


async def run_next(served: Served, app: App) -> dict[str, Any]:
    """Have the next job run by hand."""
    return await asyncio.to_thread(served.run_next, app)


async def test_a_job_runs_and_its_result_comes_back_as_it_was_returned(app: App, served: Served, voice: Voice) -> None:
    """What a task returns is what `result()` returns, of the type that it is annotated with."""
    task = tasks_of(app)["move"]

    job = await voice(task, "enqueue", Point(1, 2), by=3)
    before = await job.astatus()
    claimed = await run_next(served, app)

    assert State.QUEUED is before
    assert {"point": {"x": 1, "y": 2}, "by": 3} == claimed["payload"]
    assert Point(4, 5) == await voice(job, "result", "60s")
    assert State.SUCCEEDED is await job.astatus()
    with pytest.raises(JobFinished):
        await voice(job, "cancel")


async def test_an_async_task_and_a_wait_that_began_before_it_ran(app: App, served: Served, voice: Voice) -> None:
    """A result is waited for, wherever the job is run."""
    job = await voice(tasks_of(app)["double"], "enqueue", 21)

    waiting = asyncio.ensure_future(voice(job, "result", 60))
    await run_next(served, app)

    assert 42 == await waiting


async def test_a_failed_job_says_why(app: App, served: Served, voice: Voice) -> None:
    """JobFailed has the type, the message and the traceback of the last attempt."""
    job = await voice(tasks_of(app)["fail"], "enqueue", "no paper")
    await run_next(served, app)

    with pytest.raises(JobFailed, match="no paper") as caught:
        await voice(job, "result", 60)

    assert "ValueError" == caught.value.error_type
    assert "no paper" == caught.value.error_message
    assert "Traceback" in (caught.value.traceback or "")
    assert ["failed"] == [attempt.outcome for attempt in await voice(job, "attempts")]


async def test_a_cancelled_job_is_no_result_and_can_be_retried(app: App, voice: Voice) -> None:
    """cancel, JobCancelled, retry; a second cancel says the same, a second retry is refused."""
    job = await voice(tasks_of(app)["double"], "enqueue", 1)

    assert State.CANCELLED is await voice(job, "cancel", "not needed")
    with pytest.raises(JobCancelled, match="not needed"):
        await voice(job, "result", 60)
    assert State.CANCELLED is await voice(job, "cancel")
    assert State.QUEUED is await voice(job, "retry")
    with pytest.raises(Conflict):
        await voice(job, "retry")


async def test_a_wait_ends_in_time(app: App, voice: Voice) -> None:
    """TimeoutError says how the job is; the handle can be asked again."""
    job = await voice(tasks_of(app)["double"], "enqueue", 1)

    with pytest.raises(TimeoutError, match="it is queued"):
        await voice(job, "result", timeout="50ms")

    assert State.QUEUED is await job.astatus()


async def test_a_job_by_name_with_options(app: App, voice: Voice) -> None:
    """The task need not be known here; options are those of the API, spans as people write them."""
    job = await voice(app, "enqueue", "elsewhere", {"a": 1}, delay="1h", queue="mail", tags=["x"], timeout="5m")

    info = await voice(job, "info")

    assert ("elsewhere", "mail", ["x"], 300, {"a": 1}) == (
        info.task,
        info.queue,
        info.tags,
        info.timeout_seconds,
        info.payload,
    )
    assert State.SCHEDULED is info.state
    assert job == app.job(str(job.id))


async def test_many_jobs_come_back_in_order(app: App, voice: Voice) -> None:
    """More than fit into one request are parted; the handles stand in the order of the calls."""
    double = tasks_of(app)["double"]

    jobs = await voice(app, "enqueue_many", [double.s(number) for number in range(1001)])

    assert 1001 == len({job.id for job in jobs})
    assert [{"number": 0}, {"number": 1000}] == [(await job.ainfo()).payload for job in (jobs[0], jobs[-1])]
    assert [] == await voice(app, "enqueue_many", [])


async def test_one_bad_job_of_a_batch_stores_none(app: App, voice: Voice) -> None:
    """A batch is all or none; the error names the job by its index."""
    double = tasks_of(app)["double"]

    with pytest.raises(InvalidInput, match=r"jobs\[1\]"):
        await voice(app, "enqueue_many", [double.s(1), double.options(start_deadline=0.0).s(2)])


async def test_what_no_server_takes_is_refused_before_the_first_request(app: App, voice: Voice) -> None:
    """Of calls that take several requests the wrong one is named by its own index, and nothing is stored."""
    double = tasks_of(app)["double"]
    calls = [double.options(queue="many").s(number) for number in range(1005)]
    calls[1003] = double.options(start_deadline=0.0).s(1)

    with pytest.raises(InvalidInput, match=r"jobs\[1003\].start_within") as raised:
        await voice(app, "enqueue_many", calls)

    assert (1003, ()) == (raised.value.index, raised.value.stored)


@pytest.mark.parametrize("last", [1001, 1005])
async def test_a_refusal_after_the_first_request_tells_what_is_stored(app: App, voice: Voice, last: int) -> None:
    """The error has the handles of the requests before, and the index that the call has in the whole."""
    double = tasks_of(app)["double"]
    await voice(double.options(idempotency_key="taken"), "enqueue", 1)
    calls = [double.s(number) for number in range(last)]
    calls[-1] = double.options(idempotency_key="taken").s(2)

    with pytest.raises(KeyReused, match="first 1000 of") as raised:
        await voice(app, "enqueue_many", calls)

    assert (last - 1, 1000) == (raised.value.index, len(raised.value.stored))
    assert {"number": 999} == (await raised.value.stored[-1].ainfo()).payload


async def test_a_key_names_the_work(app: App, voice: Voice) -> None:
    """The same key again is the same job; unique by arguments is one live job."""
    double = tasks_of(app)["double"]
    keyed, unique = double.options(idempotency_key="k"), double.options(unique=True)

    first, second = await voice(keyed, "enqueue", 1), await voice(keyed, "enqueue", 1)
    third, fourth, fifth = [await voice(unique, "enqueue", number) for number in (1, 1, 2)]

    assert (first, False, True) == (second, first.duplicate, second.duplicate)
    assert third == fourth
    assert third != fifth
    assert first != third


async def test_a_job_that_is_not_there(app: App, voice: Voice) -> None:
    """NotFound, in the server's words."""
    job = app.job(UUID(int=7))

    with pytest.raises(NotFound, match=str(job.id)):
        await voice(job, "info")


async def test_a_job_past_its_start_deadline_has_expired(app: App, served: Served, voice: Voice) -> None:
    """A start deadline may be a span; JobExpired says that nobody began in time."""
    task = tasks_of(app)["double"].options(start_deadline="10ms")

    job = await voice(task, "enqueue", 1)

    with pytest.raises(JobExpired, match="deadline"):
        await voice(job, "result", 60)


async def test_the_log_of_a_job_is_read_and_followed(app: App, served: Served) -> None:
    """Lines come in order; who follows gets those still to come, until the job has ended."""
    job = await tasks_of(app)["double"].aenqueue(1)
    before = [line.text async for line in job.alogs()]

    following = asyncio.ensure_future(asyncio.to_thread(lambda: [line.text for line in job.logs(follow=True)]))
    also = asyncio.ensure_future(_texts(job.alogs(follow=True)))
    await asyncio.to_thread(served.run_next, app, "one", "two", "three")

    assert [] == before
    assert ["one", "two", "three"] == await following == await also
    assert ["one", "two", "three"] == await asyncio.to_thread(lambda: [line.text for line in job.logs()])


async def _texts(lines: AsyncIterator[ShownLine]) -> list[str]:
    return [line.text async for line in lines]


async def test_a_job_by_name_has_the_options_of_its_task(app: App, served: Served, voice: Voice) -> None:
    """The worker has the code, the program only the name: what it leaves open is the task's, and is told so."""
    far = App(url=served.url)

    @far.task(queue="mail", max_attempts=7, timeout="90s", labels=["eu"], unique=True)
    def send(to: str) -> str:
        return to

    link = HttpLink(to(served.url))
    await link.register(RegisterRequest(worker_id="w", tasks=("send",), signatures={"send": send.signature()}))
    await link.aclose()

    job = await voice(app, "enqueue", "send", {"to": "ann"}, priority=3)
    again = await voice(app, "enqueue", "send", {"to": "ann"})

    info = await voice(job, "info")
    assert ("mail", 7, 90, ["eu"], 3) == (
        *(info.queue, info.max_attempts, info.timeout_seconds, info.labels, info.priority),
    )
    assert ("task", "settings", None) == tuple(info.defaults.get(name) for name in ("queue", "max_lost", "priority"))
    assert (job.id, True) == (again.id, again.duplicate)
    await far.aclose()
