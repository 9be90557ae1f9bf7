"""Windlass: a durable job queue and scheduler on PostgreSQL or on one SQLite file.

    app = App()

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    add.enqueue(1, y=2).result()

What a program needs stands here; it is loaded when it is first named, so that importing Windlass costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from windlass.client.app import App
    from windlass.client.backfills import Backfill
    from windlass.client.context import Context, Stopped
    from windlass.client.handle import Job
    from windlass.client.outbox import OUTBOX_DDL, enqueue_in, enqueue_on_commit, finish_in
    from windlass.client.relay import Relay
    from windlass.client.schedules import Schedule
    from windlass.client.task import Call, Task
    from windlass.client.triggers import at, cron, every
    from windlass.errors import (
        Conflict,
        InvalidInput,
        InvalidSchedule,
        JobCancelled,
        JobExpired,
        JobFailed,
        NameTaken,
        NoResult,
        NotFound,
        TooMany,
        Unavailable,
        WindlassError,
    )

_FROM = {
    "App": "windlass.client.app",
    "Backfill": "windlass.client.backfills",
    "Call": "windlass.client.task",
    "Conflict": "windlass.errors",
    "Context": "windlass.client.context",
    "InvalidInput": "windlass.errors",
    "InvalidSchedule": "windlass.errors",
    "Job": "windlass.client.handle",
    "JobCancelled": "windlass.errors",
    "JobExpired": "windlass.errors",
    "JobFailed": "windlass.errors",
    "NameTaken": "windlass.errors",
    "NoResult": "windlass.errors",
    "NotFound": "windlass.errors",
    "OUTBOX_DDL": "windlass.client.outbox",
    "Relay": "windlass.client.relay",
    "Schedule": "windlass.client.schedules",
    "Stopped": "windlass.client.context",
    "Task": "windlass.client.task",
    "TooMany": "windlass.errors",
    "Unavailable": "windlass.errors",
    "WindlassError": "windlass.errors",
    "at": "windlass.client.triggers",
    "cron": "windlass.client.triggers",
    "enqueue_in": "windlass.client.outbox",
    "enqueue_on_commit": "windlass.client.outbox",
    "every": "windlass.client.triggers",
    "finish_in": "windlass.client.outbox",
}

__all__ = [
    "OUTBOX_DDL",
    "App",
    "Backfill",
    "Call",
    "Conflict",
    "Context",
    "InvalidInput",
    "InvalidSchedule",
    "Job",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "NameTaken",
    "NoResult",
    "NotFound",
    "Relay",
    "Schedule",
    "Stopped",
    "Task",
    "TooMany",
    "Unavailable",
    "WindlassError",
    "__version__",
    "at",
    "cron",
    "enqueue_in",
    "enqueue_on_commit",
    "every",
    "finish_in",
]


def __getattr__(name: str) -> Any:
    module = _FROM.get(name)
    if module is None:
        raise AttributeError(f"module 'windlass' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return __all__
