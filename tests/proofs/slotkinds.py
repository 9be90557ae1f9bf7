"""Kinds of schedules whose slots are known by arithmetic: what the proofs of slots (slots.py, clocks.py) make."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

QUEUE = "slots"
RUN_QUEUE = "slots-run"
"""Of jobs that a worker runs; those of the other queue stay."""
BATCH_PATH = "/api/v1/schedules/batch"
JITTER_S = 3
"""Of the kind that has it: its slots are due up to so much after their time."""


class Kind(msgspec.Struct, frozen=True):
    """Schedules that are alike, and their slots by arithmetic: which seconds since the first one, and of the minute."""

    name: str
    trigger: dict[str, object]
    is_slot: Callable[[int, int], bool]
    count: int = 40


KINDS = (
    Kind("each-second", {"every": 1}, lambda since, _: True),
    Kind("each-second-later", {"every": 1, "jitter": JITTER_S}, lambda since, _: True, 20),
    Kind("every-seven", {"every": 7}, lambda since, _: since % 7 == 0),
    Kind("cron-seconds", {"cron": "*/3 * * * * *"}, lambda _, second: second % 3 == 0),
    Kind("cron-list", {"cron": "1,17,59 * * * * *", "timezone": "Europe/Berlin"}, lambda _, s: s in (1, 17, 59)),
    Kind("cron-minute", {"cron": "* * * * *", "timezone": "Australia/Lord_Howe"}, lambda _, second: second == 0),
)


def asked_of(kind: Kind, first_at: datetime) -> dict[str, object]:
    """Return what asks for a schedule of this kind whose slots begin then; its name is that of the kind."""
    asked = {"task": "slot", "queue": QUEUE, "overlap": "allow", "catch_up": "all", "start": first_at.isoformat()}
    return {"name": kind.name, **asked, **kind.trigger}
