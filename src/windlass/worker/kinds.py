"""Work kinds: tasks that the user's own configuration describes, served with or without a module of theirs (W14).

The same input gives the same result: the payload changes nothing, and chance decides nothing. A kind waits as long as
it says and then succeeds, fails or gives its job up; `fail_first` fails that many attempts before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.client.context import Context
from windlass.config.workkinds import WorkKind
from windlass.errors import SetupError
from windlass.worker.runnable import Isolation, Runnable


class KindTask:
    """A work kind as a task."""

    is_async = True
    exclusive = False
    isolation: Isolation | None = "thread"
    """It only waits; nothing of it need be killed."""

    def __init__(self, name: str, kind: WorkKind) -> None:
        self.name = name
        self._kind = kind

    def run(self, payload: bytes, context: Context) -> Any:
        """Return the coroutine that does what the kind says."""
        return self._run(context)

    async def _run(self, context: Context) -> dict[str, Any]:
        kind = self._kind
        await asyncio.sleep(kind.duration_s)
        if context.attempt <= kind.fail_first:
            context.fail(f"{self.name} fails its first {kind.fail_first} attempts.", error_type="work_kind")
        if kind.outcome == "fail":
            context.fail(f"{self.name} always fails.", retry=kind.retryable, error_type="work_kind")
        if kind.outcome == "cancel":
            context.cancel(f"{self.name} always gives up.")
        return {"work_kind": self.name, "duration_seconds": kind.duration_s}

    def encode(self, value: Any) -> bytes:
        """Return the result as JSON."""
        return msgspec.json.encode(value)


def with_kinds(tasks: Mapping[str, Runnable], kinds: Mapping[str, WorkKind]) -> dict[str, Runnable]:
    """Return the tasks of an application and those of the configuration; SetupError if a name is both, or none is."""
    if both := sorted(tasks.keys() & kinds.keys()):
        raise SetupError(
            f"{both[0]!r} is a task of the application and a work kind of the configuration. "
            f"Rename the task, or take [work_kinds.{both[0]}] out of the configuration."
        )
    if not tasks and not kinds:
        raise SetupError("The application has no tasks, and the configuration no work kinds. Put @app.task over one.")
    return {**tasks, **{name: KindTask(name, kind) for name, kind in kinds.items()}}
