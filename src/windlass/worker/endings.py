"""Endings: how a body ended, and what is reported of it. Pure.

A body returns, raises, asks for a later run, gives its job up, or is stopped; the same words come from a thread, an
event loop and an isolated process. A body that returns has done its work and is reported as complete, also after it was
asked to stop, but not after its time was over; one that raises after that has been stopped, whatever it raised.
"""

from __future__ import annotations

import asyncio
import re
import signal
import traceback
from collections.abc import Mapping
from types import TracebackType

import msgspec
from msgspec import UNSET, Raw, UnsetType

from windlass.client.context import Snoozed, Stopped, TaskCancelled, TaskFailed
from windlass.errors import InvalidInput
from windlass.wire import work as wire
from windlass.worker.ladder import Ladder, Rung, StopWhy

MAX_MESSAGE = 8192
MAX_TRACE = 32_768
MAX_FRAMES = 50
MAX_REASON = 2000
Metrics = Mapping[str, int | float | str]


class _Ending(msgspec.Struct, frozen=True, tag_field="ending"):
    """The form of all endings."""


class Returned(_Ending, frozen=True, tag="returned"):
    """The body returned."""

    result: Raw | UnsetType = UNSET
    """As JSON; unset: it returned None."""


class Raised(_Ending, frozen=True, tag="raised"):
    """The body raised, or its process died."""

    error_type: str
    message: str
    traceback: str | None = None
    retryable: bool = True


class Slept(_Ending, frozen=True, tag="slept"):
    """The body asked to be run again later."""

    delay_s: float
    reason: str | None = None


class GaveUp(_Ending, frozen=True, tag="gave_up"):
    """The body cancelled its own job."""

    reason: str


class Halted(_Ending, frozen=True, tag="halted"):
    """The body heard that it is to stop, and did."""

    error_type: str = "Stopped"


Ending = Returned | Raised | Slept | GaveUp | Halted


def raised(error: BaseException) -> Ending:
    """Return how a body ended that raised `error`; raises only Stopped, and for texts that are none."""
    error = _single(error)
    if isinstance(error, Snoozed):
        reason = plain(error.reason, MAX_REASON) if error.reason else None
        return Slept(min(error.delay_s, 1_000_000_000.0), reason or None)
    if isinstance(error, TaskCancelled):
        return GaveUp(_message(error))
    if isinstance(error, Stopped | asyncio.CancelledError):
        return Halted(type(error).__name__)
    if isinstance(error, TaskFailed):
        named = error.error_type or type(error).__name__
        return Raised(plain(named, 200), _message(error), _trace(error), bool(error.retry))
    retryable = not isinstance(error, InvalidInput)
    return Raised(plain(type(error).__name__, 200), _message(error), _trace(error), retryable)


def _single(error: BaseException) -> BaseException:
    """Return what a body meant that raised it in a group of its own, such as asyncio.TaskGroup; else the error."""
    inner = error
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner if isinstance(inner, Snoozed | TaskCancelled | TaskFailed | Stopped) else error


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def plain(text: str, most: int) -> str:
    """Return the text, cut, without what cannot be sent or stored: NUL and half surrogates."""
    text = text[:most]
    if _UNSTORABLE.search(text) is None:
        return text
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as second:  # user code: it may raise anything
        if isinstance(second, Stopped):
            raise
        return f"(its message cannot be shown: __str__ raised {type(second).__name__})"
    return plain(text, MAX_MESSAGE)


def _trace(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, _own(error), limit=-MAX_FRAMES)
    except BaseException as second:
        if isinstance(second, Stopped):
            raise
        return f"(its traceback cannot be shown: {type(second).__name__})"
    text = "".join(lines)
    if len(text) > MAX_TRACE:
        # The end of a traceback says most.
        text = f"… {len(text) - MAX_TRACE} characters left out …\n{text[-MAX_TRACE:]}"
    return plain(text, MAX_TRACE + 100)


def _own(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first frame that is not ours; all of it where every frame is."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_globals.get("__name__", "").startswith(("windlass.", "__main__")):
        step = step.tb_next
    return step or error.__traceback__


def died(returncode: int | None) -> Raised:
    """Return how a body ended whose process did: `returncode` as subprocess has it."""
    if returncode is None:
        return Raised("ProcessDied", "Its process closed its connection to the worker and was killed.")
    if returncode < 0:
        return Raised("ProcessDied", f"Its process was killed by signal {-returncode} ({_signal_name(-returncode)}).")
    return Raised("ProcessDied", f"Its process ended with exit code {returncode} before the task returned.")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


_HOW: dict[Rung, str] = {
    "flag": "it stopped when asked to",
    "exception": "an exception was raised in it",
    "sigterm": "its process ended after SIGTERM",
    "sigkill": "its process was sent SIGKILL",
    "abandoned": "it would not stop, was given up, and may still be running",
}
WHY: dict[StopWhy, str] = {
    "cancel": "The job was cancelled",
    "timeout": "Its time is over",
    "lost": "The worker's lease is gone",
    "release": "The worker is leaving",
}
"""The reason, as the body is told it."""


def entry(
    job: wire.ClaimedJob,
    ending: Ending,
    *,
    ladder: Ladder | None,
    run_s: float,
    metrics: Metrics | None = None,
    checkpoint: Raw | UnsetType = UNSET,
) -> wire.Entry | None:
    """Return what is reported of an attempt; None when its lease was lost."""
    if ladder is not None and ladder.why == "lost":
        return None
    known = dict(metrics) if metrics else None
    if isinstance(ending, Returned) and not (ladder is not None and ladder.why == "timeout"):
        return wire.CompleteEntry(
            job_id=job.id, fence=job.fence, result=ending.result, metrics=known, duration_seconds=round(run_s, 6)
        )
    if isinstance(ending, Slept):
        return wire.SnoozeEntry(
            job_id=job.id,
            fence=job.fence,
            delay=ending.delay_s,
            reason=ending.reason,
            checkpoint=checkpoint,
            duration_seconds=round(run_s, 6),
        )
    if ladder is not None or isinstance(ending, Returned):
        assert ladder is not None
        return _stopped(job, ending, ladder, run_s=run_s, metrics=known, checkpoint=checkpoint)
    outcome: wire.FailedOutcome = "failed"
    if isinstance(ending, GaveUp):
        outcome, ending = "cancelled", Raised("cancelled", ending.reason)
    elif isinstance(ending, Halted):
        ending = Raised(ending.error_type, "The task stopped by itself: nobody had asked it to.")
    return wire.FailEntry(
        job_id=job.id,
        fence=job.fence,
        error_type=ending.error_type,
        error_message=ending.message,
        traceback=ending.traceback,
        retryable=ending.retryable,
        outcome=outcome,
        metrics=known,
        duration_seconds=round(run_s, 6),
    )


def _stopped(
    job: wire.ClaimedJob,
    ending: Returned | Raised | GaveUp | Halted,
    ladder: Ladder,
    *,
    run_s: float,
    metrics: dict[str, int | float | str] | None,
    checkpoint: Raw | UnsetType,
) -> wire.Entry:
    if ladder.why == "release":
        return wire.ReleaseEntry(
            job_id=job.id, fence=job.fence, started=True, checkpoint=checkpoint, duration_seconds=round(run_s, 6)
        )
    recorded: dict[str, int | float | str] = {**(metrics or {}), "stopped_by": ladder.rung}
    if ladder.rung == "abandoned":
        recorded["zombie"] = 1
    timed_out = ladder.why == "timeout"
    why = f"Timed out after {job.max_execution_time} s" if timed_out else "Cancelled"
    if ladder.rung == "sigkill":
        why = f"Force killed. {why}"
    message = f"{why}: {_HOW[ladder.rung]}."
    if isinstance(ending, Returned):
        message = f"{why}: it returned only after that, and its result is not kept."
    own = isinstance(ending, Raised) and ending.error_type != "ProcessDied"
    if own and isinstance(ending, Raised):
        message = f"{message} Then it raised {ending.error_type}: {ending.message}"
    return wire.FailEntry(
        job_id=job.id,
        fence=job.fence,
        error_type="timeout" if timed_out else "cancelled",
        error_message=message,
        traceback=ending.traceback if isinstance(ending, Raised) else None,
        retryable=True,
        outcome="timed_out" if timed_out else "cancelled",
        metrics=recorded,
        duration_seconds=round(run_s, 6),
    )


def unbegun(job: wire.ClaimedJob, why: StopWhy) -> wire.Entry | None:
    """Return what is reported of a job that was stopped before its body began."""
    if why == "lost":
        return None
    if why == "cancel":
        return wire.FailEntry(
            job_id=job.id,
            fence=job.fence,
            error_type="cancelled",
            error_message="Cancelled before it began.",
            outcome="cancelled",
        )
    return wire.ReleaseEntry(job_id=job.id, fence=job.fence)
