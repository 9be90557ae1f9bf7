"""The jobs of the demonstration, and how each must end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.config.keys import OLD_VARIABLES
from windlass.config.settings import Settings
from windlass.config.workkinds import FIELDS, WorkKind
from windlass.job import State

KINDS = {
    "quick": WorkKind(duration_s=0.01),
    "email": WorkKind(duration_s=0.1),
    "resize": WorkKind(duration_s=0.25),
    "report": WorkKind(duration_s=0.5),
    "slow": WorkKind(duration_s=2.0),
    "flaky": WorkKind(duration_s=0.05, fail_first=2),
    "unstable": WorkKind(duration_s=0.05, outcome="fail"),
    "broken": WorkKind(duration_s=0.05, outcome="fail", retryable=False),
    "cancelled": WorkKind(duration_s=0.05, outcome="cancel"),
}
"""The work kinds of the demonstration."""
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
    """Return jobs of a work kind, which end as it says."""
    kind = KINDS[name]
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


def kinds_file() -> str:
    """Return the work kinds of the demonstration as windlass.toml has them."""
    tables = []
    for name, kind in KINDS.items():
        fields = [f"{written} = {json.dumps(getattr(kind, field))}" for written, field in FIELDS.items()]
        tables.append("\n".join([f"[work_kinds.{name}]", *fields, ""]))
    return "\n".join(tables)


def kept_environment() -> dict[str, str]:
    """Return our environment without any setting: the demonstration is the same everywhere."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in OLD_VARIABLES and not name.startswith("WINDLASS_")
    }
