"""The context of an attempt: what a task may ask and say while it runs.

A task gets one when its first parameter is annotated with `Context`; nobody passes it.
What is behind it is the worker's (worker/attempt.py), or nothing at all where the function is called directly.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NoReturn, Protocol
from uuid import UUID

import msgspec

from windlass.durations import parse_duration
from windlass.errors import InvalidInput

MAX_NOTE_BYTES = 262_144


class Stopped(BaseException):
    """The attempt is to stop: its job was cancelled, its time is over, or its lease is gone.

    Raised by `Context.check`, and in a thread that does not check. No Exception, so that `except Exception` lets it by.
    """

    def __init__(self, reason: str = "The attempt is to stop.") -> None:
        super().__init__(reason)


class Snoozed(BaseException):
    """The task wants to be run again later; no attempt is used. Raised by `Context.snooze`."""

    def __init__(self, delay_s: float, reason: str | None) -> None:
        super().__init__(f"snoozed for {delay_s:g} s")
        self.delay_s = delay_s
        self.reason = reason


class TaskFailed(Exception):
    """The task has failed, as it says itself. Raised by `Context.fail`."""

    def __init__(self, message: str, *, retry: bool, error_type: str | None = None) -> None:
        super().__init__(message)
        self.retry = retry
        self.error_type = error_type


class TaskCancelled(BaseException):
    """The task gives its own job up for good. Raised by `Context.cancel`."""


class AboutJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a task may know of its job."""

    id: UUID
    task: str
    queue: str = "default"
    tenant: str = "default"
    attempt: int = 1
    max_attempts: int = 1
    fence: int = 1
    priority: int = 0
    headers: Mapping[str, str] = {}
    tags: tuple[str, ...] = ()
    checkpoint: msgspec.Raw = msgspec.Raw(b"null")


class Behind(Protocol):
    """What stands behind a context: the worker's attempt. All of it may be called from any thread."""

    @property
    def stopping(self) -> str | None:
        """Why the attempt is to stop; None: it is not."""

    @property
    def remaining_s(self) -> float | None:
        """How long until the time-out; None: there is none."""

    def progress(self, value: bytes) -> None:
        """Keep how far it is, as JSON."""

    def checkpoint(self, value: bytes) -> None:
        """Keep from where a later attempt may go on, as JSON."""

    def alive(self) -> None:
        """Note that the body lives."""


class Context:
    """An attempt, as its own code sees it."""

    def __init__(self, job: AboutJob, behind: Behind) -> None:
        self.job = job
        self._behind = behind
        self._checkpoint = job.checkpoint

    @property
    def log(self) -> logging.Logger:
        """Where the task may write lines of its attempt's log; `logging` and `print` end up there too."""
        return logging.getLogger(f"windlass.task.{self.job.task}")

    @property
    def id(self) -> UUID:
        """The job's id: the same at every attempt."""
        return self.job.id

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.job.attempt

    @property
    def fence(self) -> int:
        """Rises with every claim of the job: hand it to what must refuse a late writer."""
        return self.job.fence

    @property
    def run_id(self) -> str:
        """The name of this attempt, `<job id>.<fence>`."""
        return f"{self.job.id}.{self.job.fence}"

    @property
    def cancelled(self) -> bool:
        """Whether the attempt is to stop, for whatever reason."""
        return self._behind.stopping is not None

    @property
    def remaining_s(self) -> float | None:
        """How long until the time-out; None: there is none."""
        return self._behind.remaining_s

    def check(self) -> None:
        """Return if the attempt may go on; Stopped, with the reason, if it is to stop."""
        reason = self._behind.stopping
        if reason is not None:
            raise Stopped(reason)

    def progress(self, value: Any) -> None:
        """Show how far the job is: a share from 0 to 1, or any JSON."""
        self._behind.progress(_note("progress", value))

    @property
    def checkpoint(self) -> Any:
        """What an earlier attempt kept, or this one; None if nothing was."""
        return msgspec.json.decode(self._checkpoint)

    @checkpoint.setter
    def checkpoint(self, value: Any) -> None:
        text = _note("checkpoint", value)
        self._behind.checkpoint(text)
        self._checkpoint = msgspec.Raw(text)

    def heartbeat(self) -> None:
        """Say that the body lives, and stop here if it is to."""
        self._behind.alive()
        self.check()

    def snooze(self, delay: str | float | timedelta, *, reason: str | None = None) -> NoReturn:
        """End here and run again after `delay`; no attempt is used."""
        raise Snoozed(parse_duration(delay, "delay"), _text("reason", reason))

    def fail(self, message: str, *, retry: bool = True, error_type: str | None = None) -> NoReturn:
        """Fail with a message of the task's own; without `retry` the job is dead."""
        raise TaskFailed(message, retry=bool(retry), error_type=_text("error_type", error_type))

    def cancel(self, reason: str | None = None) -> NoReturn:
        """Give the job up: it ends as cancelled."""
        raise TaskCancelled(_text("reason", reason) or "Cancelled by its task.")


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidInput(name, f"{value!r} is no text. Hand over a string.")
    return value


def _note(name: str, value: Any) -> bytes:
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(name, f"{error}. Hand over what JSON can hold.") from None
    if len(text) > MAX_NOTE_BYTES:
        raise InvalidInput(name, f"it has {len(text)} bytes as JSON; {MAX_NOTE_BYTES} are allowed. Keep less.")
    return text
