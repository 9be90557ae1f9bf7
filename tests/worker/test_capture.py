"""Capture: lines that bodies log and print are kept with their attempt, bounded, cleaned and redacted."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import tracemalloc
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from tests.worker.poolsrig import BASE, claimed, completed, rig
from windlass import log
from windlass.client.context import Context
from windlass.config.redact import Redactor
from windlass.wire.trail import MAX_LINE, MAX_LINES, LogLine
from windlass.worker.capture import CAPTURE, CURRENT
from windlass.worker.trail import Rules, Trail

told = logging.getLogger("a.library")


def a_trail(cap_bytes: int = 1_000_000) -> Trail:
    """Return a trail of its own."""
    rules = Rules(cap_bytes=cap_bytes, redactor=Redactor(), clock=lambda: BASE)
    return Trail(uuid4(), 1, rules=rules, fresh=deque())


def lines_of(trail: Trail) -> list[LogLine]:
    """Close a trail and return its lines."""
    trail.close()
    return [line for chunk in trail.take()[0] for line in chunk.lines]


@contextmanager
def no_handlers() -> Iterator[None]:
    """Without the handlers of others, such as those of the test run, which raise where a record is wrong."""
    root = logging.getLogger()
    others, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers = others


async def test_lines_are_kept_with_their_attempt() -> None:
    """Logged and printed, in a thread, in a coroutine, and in a thread that it asks for; each has its own attempt's."""

    def prints(context: Context) -> None:
        print("printed", context.id)
        print("to stderr", file=sys.stderr)
        told.info("logged %s", context.id)
        context.log.debug("not kept: below info")
        context.log.info("by the context")

    async def awaits(context: Context) -> None:
        told.warning("first %s", context.id)
        await asyncio.sleep(0)
        await asyncio.to_thread(print, "from a thread", context.id)

    async with rig(prints, awaits) as pools:
        first, second, third = claimed("prints"), claimed("awaits"), claimed("awaits")
        pools.start(first, second, third)
        await pools.until(lambda: 3 == len(pools.ended))

        assert [
            ("stdout", None, f"printed {first.id}"),
            ("stderr", None, "to stderr"),
            ("log", "INFO", f"logged {first.id}"),
            ("log", "INFO", "by the context"),
        ] == [(line.stream, line.level, line.text) for line in pools.lines[first.id]]
        for job in (second, third):
            assert [f"first {job.id}", f"from a thread {job.id}"] == pools.texts(job)


async def test_an_error_that_is_logged_keeps_its_traceback() -> None:
    """Each line of a traceback is a line; a record that cannot be formatted is kept as it can be."""

    def logs(context: Context) -> None:
        try:
            raise ValueError("here")
        except ValueError:
            told.exception("it failed")
        told.warning("%d", "no number")

    with no_handlers():
        async with rig(logs) as pools:
            job = claimed("logs")
            completed(await pools.run(job))

    texts = pools.texts(job)
    assert "it failed" == texts[0]
    assert "ValueError: here" == texts[-2]
    assert "%d (cannot be formatted: TypeError)" == texts[-1]
    assert {"ERROR", "WARNING"} == {line.level for line in pools.lines[job.id]}


async def test_lines_go_where_they_went_before(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout and stderr pass through; handlers see what they saw before, and no more; at the end all is as it was."""
    kept: list[str] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record.getMessage())

    def speaks(context: Context) -> None:
        print("printed")
        told.info("too low for others")
        told.warning("for all")
        sys.stdout.close()
        print("still open")

    root = logging.getLogger()
    handler = Keeps()
    root.addHandler(handler)
    before = (sys.stdout, sys.stderr, root.level, list(root.handlers), list(handler.filters))
    try:
        async with rig(speaks) as pools:
            job = claimed("speaks")
            completed(await pools.run(job))
        after = (sys.stdout, sys.stderr, root.level, list(root.handlers), list(handler.filters))
    finally:
        root.removeHandler(handler)

    assert "printed\nstill open\n" == capsys.readouterr().out
    assert ["for all"] == [text for text in kept if "windlass" not in text and not text.startswith("attempt.ended")]
    assert ["printed", "too low for others", "for all", "still open"] == pools.texts(job)
    assert before == after


async def test_the_workers_own_lines_are_nobodys() -> None:
    """What the worker itself logs in the thread of a body does not appear in the job's log."""

    def quiet(context: Context) -> None:
        log.event("job.pooled", level=logging.WARNING)
        logging.getLogger("windlass.worker").warning("ours")

    async with rig(quiet) as pools:
        job = claimed("quiet")
        completed(await pools.run(job))

        assert [] == pools.texts(job)


async def test_requests_of_a_body_s_own_submits_are_no_lines_of_it() -> None:
    """What carries them logs each one; only its warnings are kept."""

    def submits(context: Context) -> None:
        for name in ("httpx2", "httpcore2.connection"):
            logging.getLogger(name).info("HTTP Request: POST /api/v1/jobs")
        logging.getLogger("httpx2").warning("trouble")

    async with rig(submits) as pools:
        job = claimed("submits")
        await pools.run(job)
        texts = pools.texts(job)

    assert ["trouble"] == texts
    assert logging.NOTSET == logging.getLogger("httpx2").level


async def test_without_another_handler_warnings_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """The handler of the capture does not keep `logging` from its last resort."""

    def warns(context: Context) -> None:
        told.warning("seen")

    with no_handlers():
        async with rig(warns) as pools:
            job = claimed("warns")
            completed(await pools.run(job))

    assert ["seen"] == pools.texts(job)
    assert "seen\n" in capsys.readouterr().err


def test_rel_t18_controls_are_escaped_and_secrets_hidden() -> None:
    """No line can forge another or steer a terminal; what must not be seen is hidden."""
    trail = a_trail()

    trail.write("stdout", "a\x1b[31m\x00\ud800\tb\u202e\r\nsecond\rline\n")
    trail.log("INFO", "password=hunter2 and\nnext")
    trail.write("stderr", "postgres://u:pw@host/db")

    assert [
        "a\\x1b[31m\\x00\\ud800\tb\\u202e",
        "second\\rline",
        "password=*** and",
        "next",
        "postgres://u:***@host/db",
    ] == [line.text for line in lines_of(trail)]


def test_a_line_without_its_end_waits_for_it() -> None:
    """Parts of a line are put together, each stream for itself; at the end what is left is a line."""
    trail = a_trail()
    for text in ("one ", "and ", "two\nth"):
        trail.write("stdout", text)
        trail.write("stderr", "x")

    assert ["one and two", "th", "xxx"] == [line.text for line in lines_of(trail)]
    trail.write("stdout", "too late\n")
    assert [] == lines_of(trail)


def test_rel_f6_a_million_lines_are_capped_and_counted() -> None:
    """What is over the cap is counted, not kept; chunks are numbered, and bounded each."""
    trail = a_trail(cap_bytes=100_000)

    for _ in range(100):
        trail.write("stdout", "line\n" * 10_000)
    trail.close()
    chunks, _ = trail.take()

    kept = sum(len(chunk.lines) for chunk in chunks)
    assert 100_000 // 20 == kept
    assert 1_000_000 - kept == sum(chunk.dropped for chunk in chunks)
    assert list(range(len(chunks))) == [chunk.seq for chunk in chunks]
    assert MAX_LINES >= max(len(chunk.lines) for chunk in chunks)


def test_rel_f6_a_line_without_end_takes_bounded_memory() -> None:
    """A line of any length is cut: in one piece, and in a million."""
    huge = "x" * 200_000_000
    trail = a_trail()
    tracemalloc.start()
    try:
        trail.write("stdout", huge)
        trail.write("stdout", "\n")
        for _ in range(10_000):
            trail.write("stdout", "y" * 100)
        trail.log("INFO", huge)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    lines = lines_of(trail)
    assert 5_000_000 > peak_bytes
    assert ["x", "x", "y"] == [line.text[0] for line in lines]
    assert {MAX_LINE} == {len(line.text) for line in lines}
    assert {"…"} == {line.text[-1] for line in lines}


def test_nothing_is_kept_where_nothing_is_wanted() -> None:
    """With a cap of 0 lines are only counted, and the count is told though there are no lines."""
    trail = a_trail(cap_bytes=0)
    trail.write("stdout", "a\nb\nc")
    trail.log("INFO", "d\ne")
    trail.close()

    (chunk,), _ = trail.take()

    assert ((), 5) == (chunk.lines, chunk.dropped)
    assert ([], None) == trail.take()


def test_the_capture_is_there_once_however_many_ask() -> None:
    """Two workers in one process share it; it goes with the last."""
    before = sys.stdout
    trail = a_trail()
    sys.stdout = io.StringIO()
    token = CURRENT.set(trail)
    try:
        CAPTURE.install()
        CAPTURE.install()
        print("once")
        CAPTURE.remove()
        print("still")
        CAPTURE.remove()
        print("gone")
        through = sys.stdout.getvalue()
    finally:
        CURRENT.reset(token)
        sys.stdout = before

    assert ["once", "still"] == [line.text for line in lines_of(trail)]
    assert "once\nstill\ngone\n" == through
