"""Pools: bodies run in threads and on a loop, within one capacity, and end as they should."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from msgspec import Raw

from tests.worker.poolsrig import claimed, completed, failed, rig
from windlass.client.context import Context
from windlass.wire import work as wire

BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["thread", "async"])


def as_async(fn: Any, is_async: bool) -> Any:
    """Return the function, or a coroutine function of the same name that calls it."""

    async def body(context: Context) -> Any:
        await asyncio.sleep(0)
        return fn(context)

    body.__name__ = fn.__name__
    return body if is_async else fn


@BOTH
async def test_a_body_is_run_and_its_result_reported(is_async: bool) -> None:
    """What the body returns is the result, as JSON; the job is named before the body begins."""
    seen: list[Any] = []

    def double(context: Context) -> Any:
        seen.append((list(pools.started), context.job.headers, context.job.tags, context.checkpoint, context.attempt))
        return {"x": 2}

    async with rig(as_async(double, is_async)) as pools:
        job = claimed("double")
        ended = await pools.run(job)

        assert Raw(b'{"x":2}') == completed(ended).result
        assert (job.id, 1, False) == (ended.job_id, ended.fence, ended.zombie)
        assert [([(job.id, 1)], {"trace": "t1"}, ("red",), {"at": 7}, 1)] == seen
        assert 4 == pools.pools.free_count


class Odd(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def recurse(depth: int = 0) -> int:
    """Never return."""
    return recurse(depth + 1) + 1


@BOTH
@pytest.mark.parametrize(
    ("error", "error_type", "message"),
    [
        (ValueError("bad\x00 \ud800"), "ValueError", "bad␀ ?"),
        (SystemExit(3), "SystemExit", "3"),
        (KeyboardInterrupt(), "KeyboardInterrupt", ""),
        (GeneratorExit(), "GeneratorExit", ""),
        (Odd(), "Odd", "(its message cannot be shown: __str__ raised RuntimeError)"),
        (Exception("x" * 1_000_000), "Exception", "x" * 8192),
    ],
    ids=["value", "exit", "interrupt", "generator", "odd", "huge"],
)
async def test_rel_k14_whatever_a_body_raises_fails_its_attempt_only(
    is_async: bool, error: BaseException, error_type: str, message: str
) -> None:
    """Every error, also one that ends programs, fails the attempt; the next body runs in the same place."""

    def bad(context: Context) -> None:
        raise error

    def good(context: Context) -> int:
        return 1

    async with rig(as_async(bad, is_async), as_async(good, is_async), threads=1) as pools:
        entry = failed(await pools.run(claimed("bad")))

        assert (error_type, message, True) == (entry.error_type, entry.error_message, entry.retryable)
        assert entry.traceback is not None
        assert 40_000 > len(entry.traceback)
        assert "\x00" not in entry.traceback
        assert Raw(b"1") == completed(await pools.run(claimed("good"))).result


@BOTH
async def test_a_body_without_end_to_its_depth_fails(is_async: bool) -> None:
    """A recursion without end fails the attempt with a traceback that is bounded."""

    def deep(context: Context) -> int:
        return recurse()

    async with rig(as_async(deep, is_async)) as pools:
        entry = failed(await pools.run(claimed("deep")))

        assert "RecursionError" == entry.error_type
        assert 40_000 > len(entry.traceback or "")


@BOTH
async def test_a_task_says_itself_how_it_ends(is_async: bool) -> None:
    """Snooze, fail and cancel of the context end the attempt in the way they say."""

    def snoozes(context: Context) -> None:
        context.checkpoint = {"at": 9}
        context.snooze("90s", reason="too early")

    def fails(context: Context) -> None:
        context.fail("no such account", retry=False, error_type="NoAccount")

    def gives_up(context: Context) -> None:
        context.cancel("not needed")

    def stops(context: Context) -> None:
        raise asyncio.CancelledError

    functions = [as_async(fn, is_async) for fn in (snoozes, fails, gives_up, stops)]
    async with rig(*functions) as pools:
        snoozed = (await pools.run(claimed("snoozes"))).entry
        own = failed(await pools.run(claimed("fails")))
        given_up = failed(await pools.run(claimed("gives_up")))
        stopped = failed(await pools.run(claimed("stops")))

        assert isinstance(snoozed, wire.SnoozeEntry)
        assert (90.0, "too early", Raw(b'{"at":9}')) == (snoozed.delay, snoozed.reason, snoozed.checkpoint)
        assert ("NoAccount", "no such account", False) == (own.error_type, own.error_message, own.retryable)
        assert ("cancelled", "not needed") == (given_up.outcome, given_up.error_message)
        assert ("failed", "CancelledError", True) == (stopped.outcome, stopped.error_type, stopped.retryable)


@BOTH
async def test_arguments_and_results_that_do_not_fit_are_not_tried_again(is_async: bool) -> None:
    """Neither a payload that does not fit nor a result that is no JSON gets better by a retry."""

    def strange(context: Context) -> object:
        return object()

    async with rig(as_async(strange, is_async)) as pools:
        argument = failed(await pools.run(claimed("strange", payload=b'"wrong"')))
        result = failed(await pools.run(claimed("strange")))

        assert ("InvalidInput", False) == (argument.error_type, argument.retryable)
        assert ("InvalidInput", False) == (result.error_type, result.retryable)


@BOTH
async def test_what_finds_no_slot_waits_in_line_and_can_be_taken_back(is_async: bool) -> None:
    """Never more bodies run than there are slots; what has not begun can be given back; the rest goes on in order."""
    gate = threading.Event()
    order: list[str] = []

    async def awaits(context: Context) -> None:
        order.append(str(context.id))
        await asyncio.to_thread(gate.wait, 60)

    def blocks(context: Context) -> None:
        order.append(str(context.id))
        gate.wait(60)

    name = "awaits" if is_async else "blocks"
    async with rig(awaits, blocks, threads=2) as pools:
        jobs = [claimed(name) for _ in range(6)]
        pools.start(*jobs[:4])
        await pools.until(lambda: 2 == len(order))
        assert (2, 2, 0) == (pools.pools.busy_count, pools.pools.line_count, pools.pools.free_count)
        assert jobs[2:4] == pools.pools.take_line()

        pools.start(*jobs[4:])
        gate.set()
        await pools.until(lambda: 4 == len(pools.ended))

        assert {str(job.id) for job in (*jobs[:2], *jobs[4:])} == set(order)
        assert (0, 0, 2) == (pools.pools.busy_count, pools.pools.line_count, pools.pools.free_count)


async def test_threads_and_coroutines_share_one_capacity() -> None:
    """A line of both kinds runs to its end, with never more at once than there are slots."""
    lock = threading.Lock()
    running = 0
    most = 0

    def begin() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)

    def end() -> None:
        nonlocal running
        with lock:
            running -= 1

    def sync(context: Context) -> None:
        begin()
        end()

    async def coroutine(context: Context) -> None:
        begin()
        await asyncio.sleep(0)
        end()

    async with rig(sync, coroutine, threads=3) as pools:
        jobs = [claimed(name) for _ in range(100) for name in ("sync", "coroutine", "coroutine")]
        pools.start(*jobs[:150])
        pools.start(*jobs[150:])
        await pools.until(lambda: 300 == len(pools.ended))

        assert all(1 == len(ends) for ends in pools.ended.values())
        assert 3 >= most
        assert {(job.id, job.fence) for job in jobs} == set(pools.started)


async def test_a_coroutine_that_blocks_does_not_stop_threads() -> None:
    """Coroutines have a loop of their own: while one blocks it, threads take jobs and the worker goes on."""
    gate = threading.Event()

    async def blocks(context: Context) -> None:
        gate.wait(60)

    def quick(context: Context) -> int:
        return 1

    async with rig(blocks, quick, threads=2) as pools:
        blocking = claimed("blocks")
        pools.start(blocking)
        await pools.run(claimed("quick"))

        assert blocking.id not in pools.ended
        gate.set()
        completed(await pools.end(blocking))


async def test_a_loop_survives_a_task_that_a_body_leaves_behind() -> None:
    """A task started by a body that raises SystemExit ends neither the loop nor other bodies."""

    async def leaves(context: Context) -> None:
        async def bad() -> None:
            raise SystemExit(1)

        kept.append(asyncio.get_running_loop().create_task(bad()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def good(context: Context) -> int:
        return 1

    kept: list[Any] = []
    async with rig(leaves, good) as pools:
        await pools.run(claimed("leaves"))

        completed(await pools.run(claimed("good")))
        assert isinstance(kept[0].exception(), SystemExit)


async def test_variables_of_one_body_are_not_seen_by_the_next() -> None:
    """Context variables set by a body end with it, though its thread goes on."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    def sets(context: Context) -> int:
        before = variable.get()
        variable.set(5)
        return before

    async with rig(sets, threads=1) as pools:
        await pools.run(claimed("sets"))

        assert Raw(b"0") == completed(await pools.run(claimed("sets"))).result


async def test_a_task_that_is_not_known_here_is_given_back() -> None:
    """A job for another worker is released, with the reason."""
    async with rig() as pools:
        entry = (await pools.run(claimed("elsewhere"))).entry

        assert isinstance(entry, wire.ReleaseEntry)
        assert "This worker has no task 'elsewhere'." == entry.reason
