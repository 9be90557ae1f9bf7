"""What processes take of the machine: CPU and memory of a process and everything it started, from /proc (Linux only).

CPU hardly depends on what else the machine does, so it is the figure to compare where others work beside a benchmark.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from windlass.bench.scratch import connected

POSTMASTER = "postgres"


class Costs:
    """The CPU that groups of processes use from now on, each with its descendants."""

    def __init__(self, roots: Mapping[str, list[int]]) -> None:
        self._roots = roots
        self._before_s = self._used_s()

    def us_per_job(self, jobs: int) -> dict[str, float]:
        """Return the microseconds that each group has used for one job; nothing where that cannot be known."""
        now_s = self._used_s()
        return {name: (now_s[name] - self._before_s[name]) / jobs * 1e6 for name in now_s if now_s[name]}

    def _used_s(self) -> dict[str, float]:
        return {name: sum(cpu_s(family(pid), with_ended=True) for pid in pids) for name, pids in self._roots.items()}


async def postmaster(url: str) -> int | None:
    """Return the process of the PostgreSQL at `url`; None if it is not on this machine."""
    async with connected(url) as connection:
        fields = _fields(int(await connection.fetchval("SELECT pg_backend_pid()")))
        parent = int(fields[1]) if fields else 0
        return parent if _name(parent) == POSTMASTER else None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def family(pid: int) -> list[int]:
    """Return the process and its descendants."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(place.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(place.name))
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        left += children.get(one, [])
    return found


def cpu_s(pids: list[int], *, with_ended: bool = False) -> float:
    """Return how long they have used a core, together; `with_ended`: and those of their children that are gone."""
    last = 15 if with_ended else 13
    ticks = [sum(int(field) for field in fields[11:last]) for pid in pids if (fields := _fields(pid))]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def memory_mb(pids: list[int]) -> float:
    """Return what they have in memory, together; pages that they share count for each."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _fields(pid: int) -> list[str]:
    """Return what stands behind the name of a process; an empty list if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
