"""The worker's log of ends: a line for each attempt, written aside, with the trace of a failure."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.worker.running import Plain, quick, working
from windlass import log
from windlass.db import Database
from windlass.wire import work as wire
from windlass.worker import endlog
from windlass.worker.endlog import EndLog
from windlass.worker.pools import Ended

JOB = UUID(int=7)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Only lines of ours; give back the standard logging as it was."""
    root, ours = logging.getLogger(), logging.getLogger("windlass")
    before = [*root.handlers], root.level, ours.level
    root.handlers.clear()
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return the lines of ends, read as JSON."""
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in lines if line["event"] in ("attempt.ended", "log.dropped")]


def ended(entry: wire.Entry | None, number: int = 1) -> Ended:
    """Return an attempt that is over."""
    return Ended(JOB, number, entry, 1.25, False, "mail", 2, "default")


async def test_each_end_is_a_line(db: Database) -> None:
    """Task, job, attempt, outcome and duration; of a failure the error and where it was raised."""
    stream = io.StringIO()
    log.configure("json", "info", stream=stream)

    def fails(payload: Any, context: Any) -> None:
        raise ValueError("no such customer")

    async with working(db, {"fine": Plain(lambda payload, _: payload), "fails": Plain(fails)}) as work:
        fine = await work.submit("fine", 1)
        await work.ended(fine)
        failed = await work.submit("fails", max_attempts=1)
        await work.ended(failed)

    [first, second] = written(stream)
    assert ("info", "fine", str(fine), 1, "succeeded") == (
        first["level"],
        first["task"],
        first["job"],
        first["attempt"],
        first["outcome"],
    )
    assert 0.0 <= first["run_s"] < 60.0
    assert ["default"] * 2 == [line["tenant"] for line in (first, second)]
    assert first["worker"] == second["worker"]
    assert first["worker"].startswith("worker-")
    assert ("warn", "fails", str(failed), "failed", "ValueError: no such customer") == (
        second["level"],
        second["task"],
        second["job"],
        second["outcome"],
        second["message"],
    )
    assert 'raise ValueError("no such customer")' in second["trace"]


async def test_ends_that_went_well_may_be_left_out(db: Database) -> None:
    """`worker.log_jobs`: failures alone, where jobs are many."""
    stream = io.StringIO()
    log.configure("json", "info", stream=stream)

    async with working(db, {"fine": Plain(lambda payload, _: payload)}, settings=quick(log_jobs="failures")) as work:
        await work.ended(await work.submit("fine", 1))

    assert [] == written(stream)


@pytest.mark.parametrize(
    ("entry", "outcome"),
    [
        (wire.CompleteEntry(job_id=JOB), "succeeded"),
        (wire.ReleaseEntry(job_id=JOB), "released"),
        (wire.SnoozeEntry(job_id=JOB, delay=1.0), "snoozed"),
        (wire.FailEntry(job_id=JOB, outcome="timed_out"), "timed_out"),
        (wire.FailEntry(job_id=JOB, outcome="cancelled"), "cancelled"),
        (None, "lost"),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_an_end_says_how(entry: wire.Entry | None, outcome: str, form: Any) -> None:
    """In the words of attempts, for people and for programs."""
    stream = io.StringIO()
    log.configure(form, "info", stream=stream)
    ends = EndLog("all")

    ends.add([ended(entry)])
    ends.close()

    fields = f"task=mail job={JOB} attempt=2 outcome={outcome} run_s=1.25"
    if form == "text":
        assert fields in stream.getvalue()
    else:
        [line] = written(stream)
        assert fields == " ".join(f"{name}={line[name]}" for name in ("task", "job", "attempt", "outcome", "run_s"))


def test_a_task_cannot_forge_a_line() -> None:
    """Its name is quoted as in every other line, also when it comes again."""
    stream = io.StringIO()
    log.configure("text", "info", stream=stream)
    ends = EndLog("all")
    odd = Ended(JOB, 1, wire.CompleteEntry(job_id=JOB), 0.0, False, "a\nb\x1b[31m", 1, "default")

    ends.add([odd, odd])
    ends.close()

    assert 2 == len(stream.getvalue().splitlines())
    assert "\x1b" not in stream.getvalue()


def test_a_log_that_stands_still_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds no room is counted, and told when it can be written again."""
    monkeypatch.setattr(endlog, "ROOM", 5)
    go_on = threading.Event()
    writing = threading.Event()

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            writing.set()
            go_on.wait()
            return super().write(text)

    stream = Stuck()
    log.configure("json", "info", stream=stream)
    ends = EndLog("all")
    done = wire.CompleteEntry(job_id=JOB)
    ends.add([ended(done)])
    writing.wait()

    ends.add([ended(done, number) for number in range(20)])
    go_on.set()
    ends.close()

    lines = written(stream)
    assert 6 == sum(line["event"] == "attempt.ended" for line in lines)
    assert [15] == [line["count"] for line in lines if line["event"] == "log.dropped"]
