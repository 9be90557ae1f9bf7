"""Capacity: how many jobs a worker may hold, and how many it asks for. Pure.

Held is what has a lease here: running, waiting in the line for a slot, or ended and not yet acknowledged.
Up to as many as there are slots may be claimed ahead, but only those expected to begin within a tenth of a second by
what bodies took so far: short jobs then come in batches, and long ones wait where another worker can have them.
"""

from __future__ import annotations

AHEAD_S = 0.1
"""A job is claimed ahead if it is expected to begin within this."""
MOST_HELD = 10_000
"""More leases than this no heartbeat can name."""
MOST_ASKED = 1000
WEIGHT = 0.1
"""Of one body in the average of what bodies take."""


class Capacity:
    """The slots of a worker, and what its bodies take."""

    def __init__(self, slots: int, *, batch: int | None = None) -> None:
        self.slots = slots
        self._batch = batch
        """How many to ask for at most, where the settings say so; nothing is claimed ahead of it then."""
        self._mean_s: float | None = None
        self._stalled = False
        self._stall_count = 0
        self._wait_count = 0
        """How many bodies must end before jobs are claimed ahead again."""

    @property
    def ahead(self) -> int:
        """How many jobs may wait for a slot."""
        if self._stalled:
            return 0
        if self._batch is not None:
            return max(0, self._batch - self.slots)
        if self._mean_s is None:
            return 0
        if self._mean_s * self.slots <= AHEAD_S:
            return self.slots
        return min(self.slots, int(self.slots * AHEAD_S / self._mean_s))

    def ended(self, count: int, run_s: float) -> None:
        """Learn that `count` bodies ended which took `run_s` together."""
        self._wait_count -= count
        self._stalled = self._stalled and self._wait_count > 0
        mean_s = run_s / count
        if self._mean_s is None:
            self._mean_s = mean_s
        else:
            self._mean_s += (mean_s - self._mean_s) * (1.0 - (1.0 - WEIGHT) ** count)

    def stalled(self) -> None:
        """Learn that no slot frees: nothing is claimed ahead until a body ends.

        With a number that is set, which learns nothing from what bodies take, each time until twice as many have: else
        the same jobs would be claimed and given back over and over.
        """
        self._stalled = True
        self._wait_count = 1 if self._batch is None else self.slots << min(self._stall_count, 20)
        self._stall_count += 1

    def room(self, held_count: int) -> int:
        """Return how many jobs to ask for, when so many are held."""
        room = min(self.slots + self.ahead, MOST_HELD) - held_count
        return max(0, min(room, MOST_ASKED if self._batch is None else self._batch))
