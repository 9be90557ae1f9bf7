"""What a worker needs of a task: enough to run it, whoever defined it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from windlass.client.context import Context

Isolation = Literal["thread", "process"]


class Runnable(Protocol):
    """A task: client/task.py has those of an application, kinds.py those of the configuration."""

    @property
    def name(self) -> str:
        """As jobs name it."""

    @property
    def is_async(self) -> bool:
        """Whether `run` returns a coroutine."""

    @property
    def isolation(self) -> Isolation | None:
        """Where it wants to run; None: as the worker is told."""

    @property
    def exclusive(self) -> bool:
        """Whether its body is stopped when its lease was not renewed in time, instead of going on."""

    def run(self, payload: bytes, context: Context) -> Any:
        """Call the function with the arguments that the payload holds; InvalidInput if they do not fit."""

    def encode(self, value: Any) -> bytes:
        """Return its result as JSON; InvalidInput if it is none."""


Tasks = Mapping[str, Runnable]
