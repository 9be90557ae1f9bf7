"""All schedules of a server, as a program sees them: by name or id, one after the other, and triggers not stored yet.

`app.schedules` is this. What is found are handles (schedules.py); making a schedule is `app.schedule` (app.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from uuid import UUID

import msgspec

from windlass.client import schedulerequests as requests
from windlass.client.requests import Request
from windlass.client.scheduleoptions import window_fields
from windlass.client.schedules import Schedule
from windlass.client.triggers import Trigger, aware
from windlass.errors import NotFound
from windlass.wire import schedules as wire

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass.client.options import Span
    from windlass.client.shell import Shell
    from windlass.client.task import Task


class Wanted(TypedDict, total=False):
    """Which schedules to find."""

    task: str | None
    queue: str | None
    owner: str | None
    paused: bool | None
    prefix: str | None


class Window(TypedDict, total=False):
    """What bounds the slots of a trigger."""

    start: datetime | None
    end: datetime | None
    exclude: Iterable[str | date]
    jitter: Span | None


class Schedules:
    """The schedules of a server, by name."""

    def __init__(self, shell: Shell, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._shell = shell
        self._tasks = tasks

    def __repr__(self) -> str:
        return "<Schedules>"

    def __getitem__(self, ref: UUID | str) -> Schedule[Any]:
        return self.get(ref)

    def __contains__(self, ref: object) -> bool:
        if not isinstance(ref, UUID | str):
            return False
        try:
            self.get(ref)
        except NotFound:
            return False
        return True

    def __iter__(self) -> Iterator[Schedule[Any]]:
        return self.find()

    def __aiter__(self) -> AsyncIterator[Schedule[Any]]:
        return self.afind()

    def get(self, ref: UUID | str) -> Schedule[Any]:
        """Return a schedule by its name or id; NotFound if there is none."""
        try:
            return self._handle(self._shell.call(requests.get(ref)))
        except NotFound as error:
            raise _missing(ref) from error

    async def aget(self, ref: UUID | str) -> Schedule[Any]:
        """Return a schedule by its name or id; NotFound if there is none."""
        try:
            return self._handle(await self._shell.acall(requests.get(ref)))
        except NotFound as error:
            raise _missing(ref) from error

    def find(self, **wanted: Unpack[Wanted]) -> Iterator[Schedule[Any]]:
        """Yield schedules by name: of a task, a queue, an application, paused or not, or whose names begin so."""
        return map(self._handle, self._infos(wanted))

    async def afind(self, **wanted: Unpack[Wanted]) -> AsyncIterator[Schedule[Any]]:
        """Yield schedules by name: of a task, a queue, an application, paused or not, or whose names begin so."""
        async for info in self.ainfos(**wanted):
            yield self._handle(info)

    async def ainfos(self, **wanted: Unpack[Wanted]) -> AsyncIterator[wire.Schedule]:
        """Yield everything about schedules, by name."""
        cursor: str | None = None
        while True:
            page: wire.ScheduleList = await self._shell.acall(requests.find(wanted, cursor=cursor))
            for info in page.schedules:
                yield info
            cursor = page.next_cursor
            if cursor is None:
                return

    def preview(
        self, trigger: Trigger, count: int = 10, *, after: datetime | None = None, **window: Unpack[Window]
    ) -> wire.Preview:
        """Return the next slots of a trigger that is not stored, and the trigger in words."""
        found: wire.Preview = self._shell.call(_previewing(trigger, count, after=after, window=window))
        return found

    async def apreview(
        self, trigger: Trigger, count: int = 10, *, after: datetime | None = None, **window: Unpack[Window]
    ) -> wire.Preview:
        """Return the next slots of a trigger that is not stored, and the trigger in words."""
        found: wire.Preview = await self._shell.acall(_previewing(trigger, count, after=after, window=window))
        return found

    def _infos(self, wanted: Wanted) -> Iterator[wire.Schedule]:
        cursor: str | None = None
        while True:
            page: wire.ScheduleList = self._shell.call(requests.find(wanted, cursor=cursor))
            yield from page.schedules
            cursor = page.next_cursor
            if cursor is None:
                return

    def _handle(self, info: wire.Schedule) -> Schedule[Any]:
        task = self._tasks.get(info.task)
        decode: Callable[[bytes], Any] = msgspec.json.decode if task is None else task.decode
        return Schedule(self._shell, info, decode=decode)


def _previewing(trigger: Trigger, count: int, *, after: datetime | None, window: Window) -> Request:
    looked = {} if after is None else {"after": aware("after", after)}
    return requests.preview_of({**trigger.fields(), **window_fields(window), **looked, "count": count})


def _missing(ref: UUID | str) -> NotFound:
    return NotFound(
        f"There is no schedule {str(ref)!r}. `list(app.schedules)` has those there are; "
        "app.schedule(task, trigger, name=…) makes one."
    )
