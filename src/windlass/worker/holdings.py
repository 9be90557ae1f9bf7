"""Holdings: the leases a worker has, under which session, and how many more it may take.

A job is held from the answer to its claim until its report is acknowledged, or its lease is gone. A body whose lease is
gone lingers: it is being stopped and still has its slot, but nothing is reported for it.
A lease that was not renewed in time is in doubt: nothing is claimed or begun under it, what runs goes on (L14).
Only the worker's own loop changes this; claims.py and reports.py ask it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from windlass.wire import work as wire
from windlass.worker.capacity import Capacity
from windlass.worker.frames import Lease, Opened
from windlass.worker.keeping import Keeping

TRUSTED = 5 / 6
"""The share of a lease after which, without renewal, a worker no longer trusts it (L14)."""


class Holdings:
    """What a worker has, and may still take."""

    def __init__(self, keeping: Keeping, capacity: Capacity, *, monotonic: Callable[[], float]) -> None:
        self._keeping = keeping
        self._monotonic = monotonic
        self.capacity = capacity
        self.opened: Opened | None = None
        self.claims_closed = False
        """It claims no more: it is to leave."""
        self.jobs_left: int | None = None
        """How many more it may run before it is replaced; None: any number."""
        self.lapsed = False
        self.session_over = False
        """A server has said that the session has ended; nothing is claimed with it."""
        self._renewed_at = float("-inf")
        self._held: dict[Lease, None] = {}
        self._ended: set[Lease] = set()
        self._lingering: dict[UUID, int] = {}
        self._later: list[wire.ClaimedJob] = []

    def open(self, opened: Opened) -> None:
        """Begin under a session."""
        self.opened = opened
        self.lapsed = self.session_over = False
        self._renewed_at = opened.renewed_at

    def renew(self, renewed_at: float) -> None:
        """Trust the lease from this instant on."""
        self.session_over = self.session_over and renewed_at <= self._renewed_at
        self._renewed_at = max(self._renewed_at, renewed_at)
        self.lapsed = self.lapsed and not self.trusted

    def lapse(self, exclusive: Iterable[Lease]) -> list[Lease]:
        """Note that the lease was not renewed in time; return the `exclusive` leases whose bodies are to be stopped.

        All others stay held: the first server that answers says whether they are. An end that is known stays held
        until a server has answered to it: its fence decides there.
        """
        self.lapsed = True
        return self.lose([lease for lease in exclusive if self.is_unfinished(lease)])

    @property
    def worker_id(self) -> str | None:
        """The name under which the session is open."""
        return None if self.opened is None else self.opened.worker_id

    @property
    def lease_s(self) -> float:
        """The length of the lease."""
        return 0.0 if self.opened is None else self.opened.lease_s

    @property
    def lapses_at(self) -> float:
        """Until when the lease is trusted, if it is not renewed."""
        return self._renewed_at + self.lease_s * TRUSTED

    @property
    def trusted(self) -> bool:
        """Whether there is a session, and its lease is still trusted. May be asked by any thread."""
        return self.opened is not None and self._monotonic() < self.lapses_at

    @property
    def held_count(self) -> int:
        """How many leases it has."""
        return len(self._held)

    @property
    def held(self) -> list[Lease]:
        """The leases it has."""
        return list(self._held)

    @property
    def unfinished(self) -> list[Lease]:
        """The leases whose ends are not known yet."""
        return [lease for lease in self._held if lease not in self._ended]

    def unfinished_of(self, jobs: Iterable[UUID]) -> list[Lease]:
        """The leases of these jobs whose ends are not known yet."""
        asked = set(jobs)
        return [lease for lease in self.unfinished if lease[0] in asked] if asked else []

    def room(self, leaving_count: int = 0) -> int:
        """Return how many jobs to ask for; `leaving_count` of those held are being reported with the question."""
        if self.claims_closed or self.session_over or not self.trusted:
            return 0
        held_count = len(self._held) - leaving_count
        room = self.capacity.room(held_count + len(self._lingering))
        return room if self.jobs_left is None else max(0, min(room, self.jobs_left - held_count))

    def take(self, jobs: Sequence[wire.ClaimedJob]) -> list[wire.ClaimedJob]:
        """Hold these jobs, and return those that may begin: one whose earlier body lingers here is due after that."""
        self._keeping.hold(jobs)
        for job in jobs:
            self._held[(job.id, job.fence)] = None
        if not self._lingering:
            return list(jobs)
        self._later += [job for job in jobs if job.id in self._lingering]
        return [job for job in jobs if job.id not in self._lingering]

    def due(self) -> list[wire.ClaimedJob]:
        """Return held jobs that may begin now, because no earlier body of theirs lingers any more."""
        if not self._later:
            return []
        due = [job for job in self._later if job.id not in self._lingering]
        self._later = [job for job in self._later if job.id in self._lingering]
        return [job for job in due if (job.id, job.fence) in self._held]

    def is_unfinished(self, lease: Lease) -> bool:
        """Say whether it has the lease, and its end is not known yet."""
        return lease in self._held and lease not in self._ended

    def drop(self, leases: Iterable[Lease]) -> None:
        """Let go of leases that are over."""
        gone = [lease for lease in leases if lease in self._held]
        for lease in gone:
            self._held.pop(lease, None)
        self._ended.difference_update(gone)
        if gone:
            self._keeping.drop(gone)

    def lose(self, leases: Iterable[Lease]) -> list[Lease]:
        """Let go of leases that were taken away; return those whose bodies are to be stopped."""
        lost = [lease for lease in leases if lease in self._held]
        waiting = {(job.id, job.fence) for job in self._later}
        stopping = [lease for lease in lost if lease not in self._ended and lease not in waiting]
        self._lingering.update(stopping)
        self.drop(lost)
        return stopping

    def ended(self, job_id: UUID, fence: int) -> bool:
        """Note the end of a body; return whether its lease is still held, so that it is to be reported."""
        if self._lingering and self._lingering.get(job_id) == fence:
            del self._lingering[job_id]
            return False
        lease = (job_id, fence)
        if lease not in self._held or lease in self._ended:
            return False
        self._ended.add(lease)
        return True
