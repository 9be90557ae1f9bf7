"""An attempt: one body under one lease, from the claim to its end.

It stands behind the Context that the body has (client/context.py). Where it runs is known to threads.py, asyncs.py and
isolated.py; how it is stopped to ladder.py; what is reported of it to endings.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Raw

from windlass.client.context import AboutJob, Context
from windlass.wire import work as wire
from windlass.worker.endings import WHY, Ending, Returned, raised
from windlass.worker.frames import Lease
from windlass.worker.ladder import Kind, Ladder, Rung
from windlass.worker.runnable import Runnable
from windlass.worker.trail import Rules, Trail

MakeContext = Callable[[], Context]
"""Called where its errors are those of the attempt."""


class Monotonic(Protocol):
    """A clock that only goes forward, in seconds."""

    def __call__(self) -> float:
        """Return the present instant."""


class Place(Protocol):
    """Where a body runs, as the ladder sees it."""

    def press(self, attempt: Attempt, rung: Rung) -> None:
        """Do what the rung says to the body; nothing if it has ended."""


class Attempt:
    """One attempt. Its door is shut once, by whoever ends it: the body's own end, or the ladder that gives it up."""

    __slots__ = (
        "_clock",
        "_door",
        "_is_shut",
        "began_at",
        "due_at",
        "ending",
        "job",
        "kind",
        "ladder",
        "metrics",
        "place",
        "run_s",
        "task",
        "trail",
        "zombie",
    )

    def __init__(
        self,
        job: wire.ClaimedJob,
        task: Runnable,
        *,
        kind: Kind,
        rules: Rules,
        fresh: deque[Trail],
        clock: Monotonic,
    ) -> None:
        self.job = job
        self.task = task
        self.kind = kind
        self.trail = Trail(job.id, job.fence, rules=rules, fresh=fresh)
        self.began_at: float | None = None
        self.due_at: float | None = None
        self.ladder: Ladder | None = None
        self.place: Place | None = None
        self.ending: Ending | None = None
        self.metrics: dict[str, int | float | str] | None = None
        self.run_s = 0.0
        self.zombie = False
        self._clock = clock
        self._door = threading.Lock()
        self._is_shut = False

    def begin(self, now: float) -> float | None:
        """Note that the body begins; return when to look whether its time is over."""
        self.began_at = self.trail.began_at = now
        # The time of a body with a process of its own runs from when that process is up.
        self.due_at = None if self.kind == "process" else self._over_at(now)
        return self.look_at(now)

    def look_at(self, now: float) -> float | None:
        """Return before when its time cannot be over; None: there is no limit."""
        return self._over_at(now) if self.due_at is None else self.due_at

    def _over_at(self, now: float) -> float | None:
        limit_s = self.job.max_execution_time
        return None if limit_s is None else now + limit_s

    def restart(self) -> None:
        """Note that the body begins only now: its process had to be started first."""
        self.began_at = self.trail.began_at = self._clock()
        self.due_at = self._over_at(self.began_at)

    def shut(self, now: float, *, zombie: bool = False) -> bool:
        """End it; False if it was ended before: then nothing more is to be said of it."""
        with self._door:
            if self._is_shut:
                return False
            self.run_s = 0.0 if self.began_at is None else max(0.0, now - self.began_at)
            self.zombie = zombie
            self._is_shut = True
            return True

    @property
    def lease(self) -> Lease:
        """Under which it runs."""
        return self.job.id, self.job.fence

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return not self._is_shut

    @property
    def unpressed(self) -> bool:
        """Whether its exception could not be raised where its body just was, or was lost there: it is to be raised."""
        return bool(self.trail.stops_thread)

    @property
    def door(self) -> threading.Lock:
        """Held while something is done to a body that must not have ended."""
        return self._door

    # What the Context asks: client.context.Behind.

    @property
    def stopping(self) -> str | None:
        """Why it is to stop; None: it is not."""
        ladder = self.ladder
        return None if ladder is None else f"{WHY[ladder.why]}."

    @property
    def remaining_s(self) -> float | None:
        """How long until its time is over; None: there is no limit."""
        return None if self.due_at is None else max(0.0, self.due_at - self._clock())

    def progress(self, value: bytes) -> None:
        """Keep how far it is."""
        self.trail.progress(value)

    def checkpoint(self, value: bytes) -> None:
        """Keep from where a later attempt may go on."""
        self.trail.keep_checkpoint(value)

    def alive(self) -> None:
        """Nothing: that this is called shows that the body lives, and its lease does not depend on it."""

    def about(self) -> AboutJob:
        """Return what the body may know of its job."""
        job = self.job
        return AboutJob(
            id=job.id,
            task=job.task,
            queue=job.queue,
            tenant=job.tenant,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            fence=job.fence,
            priority=job.priority,
            headers=_headers.decode(job.headers) or _NO_HEADERS,
            tags=_tags.decode(job.tags) or (),
            checkpoint=job.checkpoint,
        )

    def context(self) -> Context:
        """Return the context for the body."""
        return Context(self.about(), self)


_NO_HEADERS: dict[str, str] = {}
_headers: msgspec.json.Decoder[dict[str, str] | None] = msgspec.json.Decoder(dict[str, str] | None)
_tags: msgspec.json.Decoder[tuple[str, ...] | None] = msgspec.json.Decoder(tuple[str, ...] | None)


def run(task: Runnable, payload: Raw, context: MakeContext) -> Ending:
    """Run a body that is no coroutine, and return how it ended. Stopped comes out only if it arrives after that."""
    try:
        return returned(task, task.run(bytes(payload), context()))
    except BaseException as error:
        return raised(error)


async def arun(task: Runnable, payload: Raw, context: MakeContext) -> Ending:
    """Run a body that is a coroutine, and return how it ended."""
    try:
        return returned(task, await task.run(bytes(payload), context()))
    except BaseException as error:
        return raised(error)


def returned(task: Runnable, value: object) -> Returned:
    """Return the ending with this value; InvalidInput if it is no JSON."""
    return _NOTHING if value is None else Returned(Raw(task.encode(value)))


_NOTHING = Returned()
