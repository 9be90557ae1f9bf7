"""A body that is stopped by an exception leaves no lock of the whole process taken."""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from msgspec import Raw

from tests.worker.poolsrig import PATIENCE_S, SHORT, claimed, completed, failed, rig
from windlass.client.context import Context
from windlass.worker.capture import CAPTURE

WRITER = logging.getLogger("test.stopping")


class Told(logging.StreamHandler[io.StringIO]):
    """A handler that tells which thread is about to take its lock."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.taker: int | None = None

    def filter(self, record: logging.LogRecord) -> Any:
        """Pass a line; its lock is taken next."""
        self.taker = threading.get_ident()
        return super().filter(record)

    def waited_for(self) -> bool:
        """Say whether a thread is at the lock, which somebody else has."""
        top = None if self.taker is None else sys._current_frames().get(self.taker)
        return top is not None and top.f_code.co_name in ("acquire", "handle")


@pytest.fixture
def handler() -> Iterator[Told]:
    """A handler of the logger that bodies write to."""
    made = Told()
    WRITER.addHandler(made)
    yield made
    WRITER.removeHandler(made)


async def test_a_body_that_waits_for_the_lock_of_a_handler_is_stopped_only_after_it(handler: Told) -> None:
    """An exception raised between taking that lock and the code that lets it go would leave it taken for ever."""
    lock = handler.lock
    assert lock is not None
    nothing = threading.Event()

    def chatty(context: Context) -> None:
        WRITER.warning("one line")
        while True:
            nothing.wait(0.001)

    async with rig(chatty, settings=SHORT, abandon_s=PATIENCE_S) as pools:
        job = claimed("chatty")
        with lock:
            pools.start(job)
            await pools.until(handler.waited_for)
            [attempt] = pools.pools._running
            pools.pools.stop((job.id, job.fence), "cancel")
            await pools.until(lambda: attempt.ladder is not None and attempt.ladder.rung == "exception")
            await pools.until(lambda: attempt.unpressed)
        ended = await pools.end(job)

    assert "cancelled" == failed(ended).outcome
    assert {"stopped_by": "exception"} == failed(ended).metrics
    assert lock.acquire(timeout=5)
    lock.release()


async def test_a_stop_that_comes_in_a_destructor_is_raised_again() -> None:
    """No exception leaves a destructor: the body would go on as if nobody had stopped it."""
    nothing, destroying = threading.Event(), threading.Event()

    class Endless:
        def __del__(self) -> None:
            destroying.set()
            while True:
                nothing.wait(0.001)

    def body(context: Context) -> None:
        Endless()
        while True:
            nothing.wait(0.001)

    async with rig(body, settings=SHORT, abandon_s=PATIENCE_S / 2) as pools:
        job = claimed("body")
        pools.start(job)
        await pools.until(destroying.is_set)
        pools.pools.stop((job.id, job.fence), "cancel")
        ended = await pools.end(job)

    assert {"stopped_by": "exception"} == failed(ended).metrics


def test_code_can_be_profiled_after_a_stop_that_came_too_late() -> None:
    """CPython 3.11 hangs there while it still looks for an exception that nobody gets; so in a process of its own."""
    late = """
import sys
from windlass.worker.threads import take_exception
take_exception()
sys.setprofile(lambda *_: None)
(lambda: None)()
"""

    ended = subprocess.run([sys.executable, "-c", late], timeout=PATIENCE_S, check=False)

    assert 0 == ended.returncode


async def test_bodies_that_only_log_are_stopped_and_all_others_may_still_log(handler: Told) -> None:
    """However often a body is stopped while it logs, the next one can log."""

    over = threading.Event()
    logging_now: set[UUID] = set()

    def chatty(context: Context) -> None:
        while not over.is_set():
            WRITER.warning("again")
            logging_now.add(context.id)
            sum(range(5000))

    def ok(context: Context) -> str:
        WRITER.warning("fine")
        return "ok"

    try:
        async with rig(chatty, ok, settings=SHORT, abandon_s=PATIENCE_S) as pools:
            for _ in range(5):
                jobs = [claimed("chatty") for _ in range(3)]
                pools.start(*jobs)
                await pools.until(partial(logging_now.issuperset, [job.id for job in jobs]))
                for job in jobs:
                    pools.pools.stop((job.id, job.fence), "cancel")
                stopped = [failed(await pools.end(job)).metrics for job in jobs]
                after = await pools.run(claimed("ok"))

                assert [{"stopped_by": "exception"}] * 3 == stopped
                assert Raw(b'"ok"') == completed(after).result
    finally:
        over.set()  # a body that could not be stopped must not go on beside other tests


def test_the_capture_of_lines_has_no_lock_and_hears_nothing_of_the_workers_own_requests() -> None:
    """The worker's own loop must never wait for a lock that a body may hold."""
    before = list(logging.getLogger().handlers)
    CAPTURE.install()
    try:
        [own] = [found for found in logging.getLogger().handlers if found not in before]

        assert own.lock is None
        assert not logging.getLogger("httpx2").isEnabledFor(logging.INFO)
    finally:
        CAPTURE.remove()


async def test_a_closed_stdout_of_the_worker_fails_no_job() -> None:
    """What is printed is kept for the attempt, whatever became of the stream of the worker."""
    closed = io.StringIO()
    closed.close()

    def prints(context: Context) -> str:
        print("a line", flush=True)
        return "done"

    with contextlib.redirect_stdout(closed):
        async with rig(prints) as pools:
            job = claimed("prints")
            ended = await pools.run(job)
            assert sys.stdout is not closed

    assert Raw(b'"done"') == completed(ended).result
    assert ["a line"] == pools.texts(job)
