"""Departure: how a worker leaves. It finishes what runs until a deadline, and gives the rest back. Pure."""

from __future__ import annotations

from uuid import UUID

import msgspec

from windlass.wire import work as wire
from windlass.worker.frames import Leaving

STOPPING_S = 4.0
"""How long bodies have to end after they were told to: flag, a second, exception; then nobody waits for them."""

LOOK_S = 0.2


class Departure(msgspec.Struct):
    """A worker's leaving: why, and by when its bodies are to be done."""

    reason: str
    by: float
    replace: bool = False
    is_stopping: bool = False
    given_back_count: int = 0

    def hasten(self, by: float) -> None:
        """Let the sooner end count."""
        self.by = min(self.by, by)

    def must_stop(self, now: float) -> bool:
        """Say, once, that the time of the bodies is over."""
        first = now >= self.by and not self.is_stopping
        self.is_stopping = self.is_stopping or first
        return first

    def must_end(self, now: float) -> bool:
        """Say that what has not stopped by now is given back as it is."""
        return now >= self.by + STOPPING_S

    def look_at(self, now: float) -> float:
        """Return when to look again."""
        return self.by if now < self.by else max(now + LOOK_S, self.by + STOPPING_S)

    @property
    def leaving(self) -> Leaving:
        """What a runner says when it has left."""
        return Leaving(self.reason, self.replace, self.given_back_count)

    def reworded(self, entry: wire.Entry) -> wire.Entry:
        """Return an entry that says why its job is given back."""
        if not isinstance(entry, wire.ReleaseEntry):
            return entry
        self.given_back_count += 1
        return msgspec.structs.replace(entry, reason=self.reason)

    def release(self, job_id: UUID, fence: int) -> wire.ReleaseEntry:
        """Return the word that gives a job back whose body runs."""
        self.given_back_count += 1
        return wire.ReleaseEntry(job_id=job_id, fence=fence, reason=self.reason, started=True)
