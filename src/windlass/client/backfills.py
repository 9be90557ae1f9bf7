"""The handle of a backfill: how far it is, and how to wait for it or to stop it.

`schedule.backfill(...)` (schedules.py) begins one. Every verb stands twice, as those of a job do (handle.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.client import schedulerequests as requests
from windlass.client.options import Span
from windlass.durations import parse_duration
from windlass.wire.schedules import Backfill as BackfillInfo

if TYPE_CHECKING:
    from windlass.client.requests import Request
    from windlass.client.shell import Shell
    from windlass.client.tries import Tries

FIRST_S = 0.1
LONGEST_S = 2.0
"""Between two looks at a backfill that is waited for."""


class Backfill:
    """A backfill that was begun."""

    def __init__(self, shell: Shell, backfill_id: UUID) -> None:
        self.id = backfill_id
        self._shell = shell

    def __repr__(self) -> str:
        return f"<Backfill {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backfill) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def status(self) -> str:
        """How it is, asked now: running, done or stopped."""
        return self.info().status

    async def astatus(self) -> str:
        """How it is, asked now: running, done or stopped."""
        return (await self.ainfo()).status

    def info(self) -> BackfillInfo:
        """Return how far it is; NotFound if there is none, or no more."""
        found: BackfillInfo = self._shell.call(self._asking)
        return found

    async def ainfo(self) -> BackfillInfo:
        """Return how far it is; NotFound if there is none, or no more."""
        found: BackfillInfo = await self._shell.acall(self._asking)
        return found

    def wait(self, timeout: Span | None = None) -> BackfillInfo:
        """Wait until it has dealt with its whole range, or was stopped; TimeoutError after `timeout`."""
        tries = self._shell.tries(_seconds(timeout))
        for pause_s in _pauses():
            found: BackfillInfo | None = self._shell.look(self._asking, tries)
            if found is not None and found.status != "running":
                return found
            time.sleep(self._pause(pause_s, tries, found=found))
        raise AssertionError

    async def awaited(self, timeout: Span | None = None) -> BackfillInfo:
        """Wait until it has dealt with its whole range, or was stopped; TimeoutError after `timeout`."""
        tries = self._shell.tries(_seconds(timeout))
        for pause_s in _pauses():
            found: BackfillInfo | None = await self._shell.alook(self._asking, tries)
            if found is not None and found.status != "running":
                return found
            await asyncio.sleep(self._pause(pause_s, tries, found=found))
        raise AssertionError

    def stop(self, reason: str | None = None) -> BackfillInfo:
        """Make no more jobs, and cancel those that have not begun; return how far it came."""
        found: BackfillInfo = self._shell.call(requests.stop_backfill(self.id, reason=reason))
        return found

    async def astop(self, reason: str | None = None) -> BackfillInfo:
        """Make no more jobs, and cancel those that have not begun; return how far it came."""
        found: BackfillInfo = await self._shell.acall(requests.stop_backfill(self.id, reason=reason))
        return found

    @property
    def _asking(self) -> Request:
        return requests.get_backfill(self.id)

    def _pause(self, pause_s: float, tries: Tries, *, found: BackfillInfo | None) -> float:
        left_s = tries.left_s
        if left_s == 0.0:
            how = "no server answers" if found is None else f"it has made {found.made} jobs, up to {found.reached}"
            raise TimeoutError(f"Backfill {self.id} is not done in time: {how}. Wait again with its handle.")
        return pause_s if left_s is None else min(pause_s, left_s)


def _pauses() -> Iterator[float]:
    pause_s = FIRST_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_S)


def _seconds(span: Span | None) -> float | None:
    return None if span is None else parse_duration(span, "timeout")
