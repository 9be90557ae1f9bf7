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
    from windlass.client.handle import AttemptInfo, Job, JobInfo
    from windlass.client.options import JobOptions
    from windlass.client.outbox import OUTBOX_DDL, enqueue_in, enqueue_on_commit, finish_in
    from windlass.client.relay import Relay
    from windlass.client.scheduleoptions import ScheduleOptions
    from windlass.client.schedules import Schedule, ScheduleInfo
    from windlass.client.task import AsyncTask, Call, SyncTask, Task
    from windlass.client.triggers import Trigger, at, cron, every
    from windlass.config import Settings
    from windlass.errors import (
        AlreadyExists,
        BodyTooLarge,
        Conflict,
        DatabaseLocked,
        Forbidden,
        InvalidInput,
        InvalidSchedule,
        JobCancelled,
        JobExpired,
        JobFailed,
        JobFinished,
        KeyReused,
        NameTaken,
        NoResult,
        NotFound,
        PayloadTooLarge,
        SchemaMismatch,
        SetupError,
        StaleFence,
        TooMany,
        Unauthorized,
        Unavailable,
        UniqueTaken,
        WindlassError,
    )
    from windlass.job import Outcome, State
    from windlass.wire.jobs import Policy
    from windlass.wire.schedules import Declared, Preview, RefusedSchedule, Run, ScheduleChange

_FROM = {
    "AlreadyExists": "windlass.errors",
    "App": "windlass.client.app",
    "AsyncTask": "windlass.client.task",
    "AttemptInfo": "windlass.client.handle",
    "Backfill": "windlass.client.backfills",
    "BodyTooLarge": "windlass.errors",
    "Call": "windlass.client.task",
    "Conflict": "windlass.errors",
    "Context": "windlass.client.context",
    "DatabaseLocked": "windlass.errors",
    "Declared": "windlass.wire.schedules",
    "Forbidden": "windlass.errors",
    "InvalidInput": "windlass.errors",
    "InvalidSchedule": "windlass.errors",
    "Job": "windlass.client.handle",
    "JobCancelled": "windlass.errors",
    "JobExpired": "windlass.errors",
    "JobFailed": "windlass.errors",
    "JobFinished": "windlass.errors",
    "JobInfo": "windlass.client.handle",
    "JobOptions": "windlass.client.options",
    "KeyReused": "windlass.errors",
    "NameTaken": "windlass.errors",
    "NoResult": "windlass.errors",
    "NotFound": "windlass.errors",
    "OUTBOX_DDL": "windlass.client.outbox",
    "Outcome": "windlass.job",
    "PayloadTooLarge": "windlass.errors",
    "Policy": "windlass.wire.jobs",
    "Preview": "windlass.wire.schedules",
    "RefusedSchedule": "windlass.wire.schedules",
    "Relay": "windlass.client.relay",
    "Run": "windlass.wire.schedules",
    "Schedule": "windlass.client.schedules",
    "ScheduleChange": "windlass.wire.schedules",
    "ScheduleInfo": "windlass.client.schedules",
    "ScheduleOptions": "windlass.client.scheduleoptions",
    "SchemaMismatch": "windlass.errors",
    "Settings": "windlass.config",
    "SetupError": "windlass.errors",
    "StaleFence": "windlass.errors",
    "State": "windlass.job",
    "Stopped": "windlass.client.context",
    "SyncTask": "windlass.client.task",
    "Task": "windlass.client.task",
    "TooMany": "windlass.errors",
    "Trigger": "windlass.client.triggers",
    "Unauthorized": "windlass.errors",
    "Unavailable": "windlass.errors",
    "UniqueTaken": "windlass.errors",
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
    "AlreadyExists",
    "App",
    "AsyncTask",
    "AttemptInfo",
    "Backfill",
    "BodyTooLarge",
    "Call",
    "Conflict",
    "Context",
    "DatabaseLocked",
    "Declared",
    "Forbidden",
    "InvalidInput",
    "InvalidSchedule",
    "Job",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobFinished",
    "JobInfo",
    "JobOptions",
    "KeyReused",
    "NameTaken",
    "NoResult",
    "NotFound",
    "Outcome",
    "PayloadTooLarge",
    "Policy",
    "Preview",
    "RefusedSchedule",
    "Relay",
    "Run",
    "Schedule",
    "ScheduleChange",
    "ScheduleInfo",
    "ScheduleOptions",
    "SchemaMismatch",
    "Settings",
    "SetupError",
    "StaleFence",
    "State",
    "Stopped",
    "SyncTask",
    "Task",
    "TooMany",
    "Trigger",
    "Unauthorized",
    "Unavailable",
    "UniqueTaken",
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
