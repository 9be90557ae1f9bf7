"""How proofs are shown: distributions, the machine, and the lines of a verdict."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from tests.proofs.verdict import Line


def machine() -> str:
    """Return when this runs, and on what."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, Python {platform.python_version()}"


def distribution(name: str, values: Sequence[float]) -> str:
    """Return the spread of some times in seconds, in a line."""
    if not values:
        return f"{name}: none"
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    middle = statistics.median(ordered)
    return (
        f"{name}: {len(ordered)} times, min {ordered[0]:.2f} s, median {middle:.2f} s, "
        f"p95 {p95:.2f} s, max {ordered[-1]:.2f} s"
    )


def within(name: str, values: Sequence[float], *, goal_s: float, most_s: float) -> Line:
    """Return whether all of these times are within bounds; beyond the goal is told, beyond the most is a failure."""
    over_goal = sum(value > goal_s for value in values)
    over = [f"{value:.2f} s" for value in values if value > most_s]
    told = f"{over_goal} over the goal of {goal_s:g} s, {len(over)} over {most_s:g} s"
    return Line(name, told, over if values else ["nothing was measured"])


def finish(lines: Iterable[Line]) -> int:
    """Print the verdict; return the exit code."""
    failed = 0
    for line in lines:
        print(line.text)
        failed += bool(line.against)
    print("All hold." if not failed else f"{failed} do not hold.")
    return 1 if failed else 0
