"""Isolated bodies."""

from __future__ import annotations

from windlass.config.settings import Worker as WorkerSettings
from windlass.worker.attempt import Attempt
from windlass.worker.endings import Ending


class Isolated:
    """Child processes for bodies."""

    def __init__(self, app_target: str | None, *, settings: WorkerSettings) -> None:
        self._app_target = app_target

    def run(self, attempt: Attempt) -> Ending:
        """Run the body in a process."""
        raise NotImplementedError

    def close(self) -> None:
        """End all children."""
