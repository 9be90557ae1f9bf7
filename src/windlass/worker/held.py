"""What a runner holds, as its keeper knows it: leases, which have begun, and which should have ended. Pure.

The runner says it in frames (frames.py); the keeper names it in each heartbeat, and looks here for an attempt that
nobody stops: one that holds the interpreter, so that the runner cannot stop it itself (W9, the last rung).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import msgspec

from windlass.wire.work import HeldJob
from windlass.worker.frames import Lease

MOST_NAMED = 10_000
"""Leases that one heartbeat may name."""


StopOutcome = Literal["cancelled", "timed_out"]


class Overdue(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that should have ended, and has not."""

    job_id: UUID
    fence: int
    outcome: StopOutcome
    run_s: float


@dataclass
class _Lease:
    limit_s: float | None
    started_at: float | None = None
    cancel_at: float | None = None
    is_told: bool = False
    """Whether a server has heard that its body began."""
    is_abandoned: bool = False

    def asked_to_end(self) -> tuple[float, StopOutcome] | None:
        """Return since when it should end, and why; None while it may run."""
        if self.cancel_at is not None:
            return self.cancel_at, "cancelled"
        if self.started_at is None or self.limit_s is None:
            return None
        return self.started_at + self.limit_s, "timed_out"


class HeldJobs:
    """The leases of one runner. Instants are CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._leases: dict[Lease, _Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def begun_count(self) -> int:
        """How many bodies run, but for those given up."""
        return sum(lease.started_at is not None and not lease.is_abandoned for lease in self._leases.values())

    def hold(self, jobs: Sequence[Lease], limits_s: Sequence[float | None] = ()) -> None:
        """It has these leases, and each may run so long."""
        for index, (job_id, fence) in enumerate(jobs):
            self._leases[job_id, fence] = _Lease(limits_s[index] if index < len(limits_s) else None)

    def start(self, jobs: Iterable[Lease], now: float) -> None:
        """The bodies of these begin."""
        for job in jobs:
            if job in self._leases:
                self._leases[job].started_at = now

    def drop(self, jobs: Iterable[Lease]) -> list[Lease]:
        """These leases are over; return those that it had."""
        return [job for job in jobs if self._leases.pop(job, None) is not None]

    def drop_all(self) -> list[Lease]:
        """Every lease is over; return which it had."""
        return self.drop(list(self._leases))

    def drop_waiting(self) -> list[Lease]:
        """The leases that have not begun are over; return which."""
        return self.drop([job for job, lease in self._leases.items() if lease.started_at is None])

    def drop_lost(self, jobs: Iterable[UUID], named: Iterable[HeldJob]) -> list[Lease]:
        """Of those that a heartbeat named, the leases of these jobs are over; return those that are still held."""
        # A job may have been reported and claimed anew while the heartbeat was under way.
        lost = set(jobs)
        return self.drop([(job.job_id, job.fence) for job in named if job.job_id in lost])

    def drop_returned(self, jobs: Iterable[UUID], named: Iterable[HeldJob]) -> list[Lease]:
        """These jobs went back because a heartbeat did not name them; return their leases that it did not name."""
        back, known = set(jobs), {(job.job_id, job.fence) for job in named}
        return self.drop([job for job in self._leases if job[0] in back and job not in known])

    def cancel(self, jobs: Iterable[UUID], now: float) -> list[Lease]:
        """These are to stop; return the leases that had not been told."""
        asked = set(jobs)
        told = [job for job, lease in self._leases.items() if job[0] in asked and lease.cancel_at is None]
        for job in told:
            self._leases[job].cancel_at = now
        return told

    def has_untold(self, now: float, *, older_s: float) -> bool:
        """Say whether a body began longer ago than `older_s`, and no server knows it, though it can be named."""
        return len(self._leases) <= MOST_NAMED and any(
            lease.started_at is not None and not lease.is_told and lease.started_at + older_s <= now
            for lease in self._leases.values()
        )

    def note_told(self, named: Iterable[HeldJob]) -> None:
        """A heartbeat that named these was answered: which bodies began is known now."""
        for job in named:
            if job.started is not False and (lease := self._leases.get((job.job_id, job.fence))) is not None:
                lease.is_told = True

    def named(self, now: float) -> tuple[HeldJob, ...] | None:
        """Return all of them for a heartbeat that is sent now; None if they are too many to be named."""
        if len(self._leases) > MOST_NAMED:
            return None
        return tuple(
            HeldJob(job_id=job_id, fence=fence, started=_ran_s(lease.started_at, now))
            for (job_id, fence), lease in self._leases.items()
        )

    def overdue(self, now: float, *, patience_s: Mapping[StopOutcome, float]) -> list[Overdue]:
        """Return those that should have ended longer ago than the patience, each once; they count as given up."""
        found = []
        for (job_id, fence), lease in self._leases.items():
            asked = lease.asked_to_end()
            if asked is None or lease.is_abandoned or lease.started_at is None or now < asked[0] + patience_s[asked[1]]:
                continue
            lease.is_abandoned = True
            run_s = max(0.0, now - lease.started_at)
            found.append(Overdue(job_id=job_id, fence=fence, outcome=asked[1], run_s=run_s))
        return found


def _ran_s(started_at: float | None, now: float) -> Literal[False] | float:
    return False if started_at is None else round(max(0.0, now - started_at), 3)
