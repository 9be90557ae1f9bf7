"""Demand: the groups of waiting claims by limited queue; limited.py visits only queues that a claim waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.engine.line import Line


class _Demand:
    def __init__(self) -> None:
        self.groups: dict[Line.Group, int] = {}
        """Those served longest ago first, with the number of the last visit that found no more for them."""
        self.refused = 0
        """The number of the last visit at which the queue had nothing for anybody: it is full, or a rival's."""


class Demands:
    """The groups with waiters for which limited queues are believed to hold work, by queue."""

    def __init__(self) -> None:
        self._by_queue: dict[tuple[str, str], _Demand] = {}
        self.visits = 0
        """How many visits to limited queues have begun."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(list(self._by_queue))

    def of(self, queue: tuple[str, str]) -> list[Line.Group]:
        """Return the groups of claims that a queue has work for; the group served longest ago comes first."""
        return list(self._by_queue[queue].groups) if queue in self._by_queue else []

    def join(self, group: Line.Group) -> None:
        """Somebody waits in a group in which nobody did."""
        self._add(group, group.limited)

    def leave(self, group: Line.Group) -> None:
        """Nobody waits in a group any more; what it could run is remembered."""
        for queue in group.limited:
            self._remove(group, queue)

    def can_run(self, group: Line.Group, queues: set[str]) -> bool:
        """Note limited queues that hold work for a group; return whether one of them is new."""
        new = queues - group.limited
        group.limited |= new
        self._add(group, new)
        return bool(new)

    def cannot_run(self, group: Line.Group, queue: str) -> None:
        """Note that a limited queue holds nothing for a group."""
        group.limited.discard(queue)
        self._remove(group, queue)

    def visit(self, group: Line.Group | None = None, queue: str = "") -> int:
        """Begin a visit to a queue, and return its number; a group that is served stands last from now on."""
        if group is not None:
            groups = self._by_queue[group.tenant, queue].groups
            groups[group] = groups.pop(group)
        self.visits += 1
        return self.visits

    def visited(self, group: Line.Group, queue: str, visit: int) -> None:
        """Note a visit that found no more for a group just then."""
        if group.waiters:
            self._by_queue[group.tenant, queue].groups[group] = visit

    def refused(self, queue: tuple[str, str], visit: int | None = None) -> None:
        """Note a visit at which a queue had nothing for anybody; None: what it found still holds."""
        if queue in self._by_queue:
            self._by_queue[queue].refused = self.visit() if visit is None else visit

    def visited_since(self, group: Line.Group, queue: str, visit: int) -> bool:
        """Say whether a queue was visited for a group after this visit, or holds no work for it."""
        demand = self._by_queue.get((group.tenant, queue))
        return demand is None or group not in demand.groups or max(demand.refused, demand.groups[group]) > visit

    def _add(self, group: Line.Group, queues: Iterable[str]) -> None:
        for queue in queues:
            self._by_queue.setdefault((group.tenant, queue), _Demand()).groups[group] = 0

    def _remove(self, group: Line.Group, queue: str) -> None:
        demand = self._by_queue.get((group.tenant, queue))
        if demand is not None and demand.groups.pop(group, None) is not None and not demand.groups:
            del self._by_queue[group.tenant, queue]
