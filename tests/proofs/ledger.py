"""The ledger: everything that servers acknowledged to their callers, kept outside of them, to be compared at the end.

An answer that never came is neither yes nor no: it is kept as what was asked, and may or may not be in the database.
The comparison is in verdict.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Literal
from uuid import UUID

import msgspec

Lease = tuple[UUID, int]
"""A job and the fence under which it was handed out."""


class Said(msgspec.Struct, frozen=True):
    """A report as it was said: of which kind, and the nonce that its body made."""

    kind: Literal["complete", "fail"]
    nonce: str


class Ledger:
    """What was asked and what was answered."""

    def __init__(self) -> None:
        self.submitted: set[UUID] = set()
        """Ids that a server has acknowledged."""
        self.ids_of_key: defaultdict[str, set[UUID]] = defaultdict(set)
        self.unknown_count = 0
        """Submits without a key whose answer never came."""
        self.grants: Counter[Lease] = Counter()
        self.said: dict[Lease, Said] = {}
        self.accepted: dict[Lease, set[str]] = defaultdict(set)
        """The answers to reports that a server took: `applied`, `already`."""
        self.refused: Counter[str] = Counter()
        """The answers to reports that no server took."""
        self.wrongly_taken: list[Lease] = []
        """Reports of workers that came back after their lease had ended, and were taken."""
        self.answers: Counter[int] = Counter()
        """Statuses of all answers."""
        self.silences = 0
        """Calls that were not answered: refused, cut off, or late."""
        self.longest_s = 0.0
        """The longest time that an answer took, beyond the wait that was asked for."""
        self.put_off_s: list[float] = []
        """How long those answers took that told to come back later."""
        self.faults: list[str] = []
        """Answers that must never be given, first of all 500."""

    def acknowledge(self, job_id: UUID, key: str | None) -> None:
        """Note that a job was accepted."""
        self.submitted.add(job_id)
        if key is not None:
            self.ids_of_key[key].add(job_id)

    def answered(self, status: int, *, path: str, text: str, took_s: float) -> None:
        """Note an answer, whatever it says."""
        self.answers[status] += 1
        self.longest_s = max(self.longest_s, took_s)
        if status == 503:
            self.put_off_s.append(max(took_s, 0.0))
        elif status >= 500:
            self.faults.append(f"{status} to {path}: {text[:300]}")
