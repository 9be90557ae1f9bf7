"""The jobs of the demonstration, and how each must end."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.config.keys import OLD_VARIABLES
from windlass.config.settings import Settings
from windlass.config.workkinds import CATALOGUE, WorkKind
from windlass.job import State

_STATES = {"success": State.SUCCEEDED, "fail": State.DEAD, "cancel": State.CANCELLED}


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs of one task."""

    task: str
    count: int
    payload: Callable[[int], Any] | None = None
    """By the number of the job among these."""
    end: State = State.SUCCEEDED
    attempts: int = 1
    """After which it ends so."""
    is_cancelled_by_hand: bool = False


def of_kind(name: str, count: int) -> Planned:
    """Return jobs of a work kind, which end as the catalogue says."""
    kind: WorkKind = CATALOGUE[name]
    most = Settings().jobs.max_attempts if kind.retryable else 1
    end = State.DEAD if kind.fail_first >= most else _STATES[kind.outcome]
    attempts = most if end == State.DEAD else kind.fail_first + 1
    return Planned(task=name, count=count, end=end, attempts=attempts)


JOBS = (
    of_kind("quick", 80),
    of_kind("email", 50),
    of_kind("resize", 30),
    of_kind("report", 12),
    of_kind("slow", 4),
    of_kind("flaky", 20),
    of_kind("unstable", 8),
    of_kind("broken", 10),
    of_kind("cancelled", 10),
    Planned(task="slow", count=6, end=State.CANCELLED, attempts=0, is_cancelled_by_hand=True),
    Planned(task="add", count=40, payload=lambda number: {"x": number, "y": 1}),
    Planned(task="greet", count=20, payload=lambda number: {"name": f"visitor {number}"}),
    Planned(task="fetch", count=20, payload=lambda number: {"url": f"https://example.org/{number}"}),
    Planned(task="thumbnail", count=12, payload=lambda number: {"width": 640 + number, "height": 480}),
    Planned(task="unsteady", count=8, attempts=3),
    Planned(task="summarise", count=4),
    Planned(task="count_words", count=3, payload=lambda number: {"text": "to be or not to be " * (number + 1)}),
)


def kept_environment() -> dict[str, str]:
    """Return our environment without any setting: the demonstration is the same everywhere."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in OLD_VARIABLES and not name.startswith("WINDLASS_")
    }
