"""The context: what a body may ask and say while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from tests.worker.poolsrig import claimed, completed, failed, rig
from windlass.client.context import MAX_NOTE_BYTES, Context, Snoozed, Stopped
from windlass.errors import InvalidInput


async def test_progress_and_checkpoint_are_told_while_a_body_runs() -> None:
    """Only the last of each is told; a checkpoint is read back at once."""
    gate = threading.Event()
    begun = threading.Event()
    read: list[Any] = []

    def works(context: Context) -> None:
        read.append(context.checkpoint)
        context.progress(0.25)
        context.progress({"done": 5, "of": 10})
        context.checkpoint = {"row": 5}
        read.append(context.checkpoint)
        begun.set()
        gate.wait(60)
        context.progress(1)

    async with rig(works) as pools:
        job = claimed("works")
        pools.start(job)
        await asyncio.to_thread(begun.wait, 60)  # and nobody looks before
        pools.look()
        while_running = list(pools.notes)
        gate.set()
        await pools.end(job)

        assert [{"at": 7}, {"row": 5}] == read
        assert [(Raw(b'{"done":5,"of":10}'), Raw(b'{"row":5}'))] == [
            (note.progress, note.checkpoint) for note in while_running
        ]
        assert Raw(b"1") == pools.notes[-1].progress


async def test_a_body_knows_its_attempt_and_its_time() -> None:
    """Id, run id, fence and the time that is left; nothing asks it to stop."""

    def knows(context: Context) -> list[Any]:
        context.heartbeat()
        left = context.remaining_s
        return [str(context.id), context.run_id, context.fence, context.cancelled, left is not None and 0 < left <= 60]

    async with rig(knows) as pools:
        job = claimed("knows", timeout_s=60, fence=4)
        entry = completed(await pools.run(job))

        assert Raw(f'["{job.id}","{job.id}.4",4,false,true]'.encode()) == entry.result


async def test_a_heartbeat_stops_a_body_that_is_to_stop() -> None:
    """Long code that calls heartbeat is stopped there, with the reason."""
    reasons: list[str] = []
    begun = threading.Event()

    def beats(context: Context) -> None:
        begun.set()
        try:
            while True:
                context.heartbeat()
        except Stopped as stopped:
            reasons.append(str(stopped))
            raise

    async with rig(beats) as pools:
        job = claimed("beats")
        pools.start(job)
        await pools.until(begun.is_set)
        pools.pools.stop((job.id, job.fence), "cancel")

        assert "cancelled" == failed(await pools.end(job)).outcome
        assert ["The job was cancelled."] == reasons


@pytest.mark.parametrize("value", [object(), "x" * MAX_NOTE_BYTES], ids=["no JSON", "too long"])
async def test_a_note_that_cannot_be_kept_is_refused_where_it_is_made(value: object) -> None:
    """What is no JSON or too long is an error in the body, not a report that the server refuses."""

    def notes(context: Context) -> None:
        with pytest.raises(InvalidInput, match="progress"):
            context.progress(value)
        with pytest.raises(InvalidInput, match="checkpoint"):
            context.checkpoint = value

    async with rig(notes) as pools:
        job = claimed("notes")
        completed(await pools.run(job))

        assert [] == pools.notes


def test_stopped_is_let_by_when_errors_are_caught() -> None:
    """`except Exception` does not swallow a stop."""
    assert not issubclass(Stopped, Exception)


class Unshowable(Exception):
    """An error that stops whoever wants to see it."""

    def __str__(self) -> str:
        raise Stopped("not to be seen")


def snoozes_oddly(context: Context) -> None:
    """Give a reason that is no text, past the check."""
    raise Snoozed(1.0, 123)  # type: ignore[arg-type]


def is_unshowable(context: Context) -> None:
    """Raise what cannot be shown."""
    raise Unshowable


@pytest.mark.parametrize("fn", [snoozes_oddly, is_unshowable])
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_end_that_cannot_be_told_is_a_failure_and_frees_its_slot(
    fn: Callable[[Context], None], is_async: bool
) -> None:
    """Neither the job nor its slot hangs."""

    async def later(context: Context) -> None:
        fn(context)

    later.__name__ = fn.__name__
    async with rig(later if is_async else fn, threads=1) as pools:
        job = claimed(fn.__name__)

        assert "failed" == failed(await pools.run(job)).outcome
        assert 1 == pools.pools.free_count


@pytest.mark.parametrize("call", ["snooze", "fail", "cancel"])
async def test_what_is_no_text_is_refused_where_it_is_said(call: str) -> None:
    """The task that hands over a number as reason or error type hears of it."""
    odd: Any = 404

    def says(context: Context) -> None:
        if call == "snooze":
            context.snooze(1, reason=odd)
        if call == "fail":
            context.fail("x", error_type=odd)
        context.cancel(odd)

    async with rig(says) as pools:
        entry = failed(await pools.run(claimed("says")))

    assert ("InvalidInput", False) == (entry.error_type, entry.retryable)


async def test_a_wish_in_a_group_of_one_is_that_wish() -> None:
    """A task group wraps what its tasks raise: what the task meant still counts."""

    async def groups(context: Context) -> None:
        async def inner() -> None:
            context.fail("enough", retry=False)

        async with asyncio.TaskGroup() as group:
            group.create_task(inner())

    async with rig(groups) as pools:
        entry = failed(await pools.run(claimed("groups")))

    assert ("TaskFailed", "enough", False) == (entry.error_type, entry.error_message, entry.retryable)
