"""The handle of a schedule: when it fires, what became of its slots, and what may be done to it.

Every verb stands twice, blocking and with an `a` before it for use in an event loop; both ask the same
(schedulerequests.py). `app.schedules` is all of them (allschedules.py), `app.schedule(...)` makes one (app.py).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from msgspec import UNSET

from windlass.client import schedulerequests as requests
from windlass.client import values
from windlass.client.backfills import Backfill
from windlass.client.handle import Job
from windlass.client.options import Span
from windlass.client.requests import Request
from windlass.client.scheduleoptions import ScheduleChanges, changed_fields
from windlass.client.schedulerequests import Known
from windlass.client.triggers import Trigger, aware
from windlass.durations import parse_duration
from windlass.wire import schedules as wire
from windlass.wire.jobs import Submitted

if TYPE_CHECKING:
    from typing import Self

    from windlass.client.shell import Shell

R = TypeVar("R")

ScheduleInfo = wire.Schedule
"""Everything about a schedule."""


class Schedule(Generic[R]):
    """A schedule that is stored; R is the result of its jobs."""

    def __init__(self, shell: Shell, known: Known | wire.Schedule, *, decode: Callable[[bytes], Any]) -> None:
        self.id = known.id
        self.name = known.name
        self.next_run_at = known.next_run_at
        """When its next slot is due, as far as this handle knows; None: paused, ended, or by hand only."""
        self._shell = shell
        self._decode = decode

    def __repr__(self) -> str:
        return f"<Schedule {self.name}, next at {self.next_run_at}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def status(self) -> str:
        """How it is, asked now: active, paused, ended or manual."""
        return self.info().status

    async def astatus(self) -> str:
        """How it is, asked now: active, paused, ended or manual."""
        return (await self.ainfo()).status

    def info(self) -> wire.Schedule:
        """Return everything about it; NotFound if it was deleted."""
        found: wire.Schedule = self._shell.call(requests.get(self.id))
        self._learn(found)
        return found

    async def ainfo(self) -> wire.Schedule:
        """Return everything about it; NotFound if it was deleted."""
        found: wire.Schedule = await self._shell.acall(requests.get(self.id))
        self._learn(found)
        return found

    def refresh(self) -> Self:
        """Ask for its name and next time again; NotFound if it was deleted."""
        self.info()
        return self

    async def arefresh(self) -> Self:
        """Ask for its name and next time again; NotFound if it was deleted."""
        await self.ainfo()
        return self

    def pause(self, reason: str | None = None, *, until: datetime | Span | None = None) -> Self:
        """Make no jobs until it is resumed, or until then or after so long; jobs that are there go on."""
        self._learn(self._shell.call(self._pausing(reason, until)))
        return self

    async def apause(self, reason: str | None = None, *, until: datetime | Span | None = None) -> Self:
        """Make no jobs until it is resumed, or until then or after so long; jobs that are there go on."""
        self._learn(await self._shell.acall(self._pausing(reason, until)))
        return self

    def resume(self, reason: str | None = None) -> Self:
        """Make jobs again, from the next slot on; one that is not paused stays as it is."""
        self._learn(self._shell.call(requests.resume(self.id, reason=reason)))
        return self

    async def aresume(self, reason: str | None = None) -> Self:
        """Make jobs again, from the next slot on; one that is not paused stays as it is."""
        self._learn(await self._shell.acall(requests.resume(self.id, reason=reason)))
        return self

    def run_now(self, payload: Any = UNSET, *, reason: str | None = None) -> Job[R]:
        """Make a job at once, beside the series, and return its handle; `payload` takes the place of its own."""
        return self._job(self._shell.call(self._running(payload, reason)))

    async def arun_now(self, payload: Any = UNSET, *, reason: str | None = None) -> Job[R]:
        """Make a job at once, beside the series, and return its handle; `payload` takes the place of its own."""
        return self._job(await self._shell.acall(self._running(payload, reason)))

    def preview(self, count: int = 10, *, after: datetime | None = None) -> wire.Preview:
        """Return the next slots, with the trigger in words; `after` looks from another instant on."""
        found: wire.Preview = self._shell.call(self._previewing(count, after))
        return found

    async def apreview(self, count: int = 10, *, after: datetime | None = None) -> wire.Preview:
        """Return the next slots, with the trigger in words; `after` looks from another instant on."""
        found: wire.Preview = await self._shell.acall(self._previewing(count, after))
        return found

    def runs(
        self,
        limit: int = 100,
        *,
        decision: wire.DecisionName | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[wire.Run]:
        """Return its last slots, newest first: what was decided, and what became of the job."""
        wanted, found, cursor = _wanted(decision, since=since, until=until), list[wire.Run](), None
        while len(found) < limit:
            asked = requests.runs(self.id, wanted, limit=limit - len(found), cursor=cursor)
            page: wire.RunPage = self._shell.call(asked)
            found += page.runs
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def aruns(
        self,
        limit: int = 100,
        *,
        decision: wire.DecisionName | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[wire.Run]:
        """Return its last slots, newest first: what was decided, and what became of the job."""
        wanted, found, cursor = _wanted(decision, since=since, until=until), list[wire.Run](), None
        while len(found) < limit:
            asked = requests.runs(self.id, wanted, limit=limit - len(found), cursor=cursor)
            page: wire.RunPage = await self._shell.acall(asked)
            found += page.runs
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    def backfill(
        self, since: datetime, until: datetime, *, concurrency: int = 1, reason: str | None = None
    ) -> Backfill:
        """Run the slots from `since` until before `until` that have not run, so many at a time; return its handle."""
        return self._begun(self._shell.call(self._backfilling(since, until, concurrency=concurrency, reason=reason)))

    async def abackfill(
        self, since: datetime, until: datetime, *, concurrency: int = 1, reason: str | None = None
    ) -> Backfill:
        """Run the slots from `since` until before `until` that have not run, so many at a time; return its handle."""
        request = self._backfilling(since, until, concurrency=concurrency, reason=reason)
        return self._begun(await self._shell.acall(request))

    @overload
    def reschedule(
        self, trigger: Trigger | None = None, *, dry_run: Literal[True], **changes: Unpack[ScheduleChanges]
    ) -> wire.ScheduleChange: ...
    @overload
    def reschedule(
        self,
        trigger: Trigger | None = None,
        *,
        dry_run: Literal[False] = False,
        reason: str | None = None,
        **changes: Unpack[ScheduleChanges],
    ) -> Self: ...
    def reschedule(
        self, trigger: Trigger | None = None, *, dry_run: bool = False, reason: str | None = None, **changes: Any
    ) -> Any:
        """Change its trigger, its options, or both; what is not named stays, None takes an option away.

        With `dry_run` nothing is stored: what would change is returned, and the slots that would follow.
        """
        fields = changed_fields(trigger, changes)
        if dry_run:
            return self._shell.call(requests.try_change(self.id, fields))
        self._learn(self._shell.call(requests.change(self.id, fields, reason=reason)))
        return self

    @overload
    async def areschedule(
        self, trigger: Trigger | None = None, *, dry_run: Literal[True], **changes: Unpack[ScheduleChanges]
    ) -> wire.ScheduleChange: ...
    @overload
    async def areschedule(
        self,
        trigger: Trigger | None = None,
        *,
        dry_run: Literal[False] = False,
        reason: str | None = None,
        **changes: Unpack[ScheduleChanges],
    ) -> Self: ...
    async def areschedule(
        self, trigger: Trigger | None = None, *, dry_run: bool = False, reason: str | None = None, **changes: Any
    ) -> Any:
        """Change its trigger, its options, or both; as `reschedule` does."""
        fields = changed_fields(trigger, changes)
        if dry_run:
            return await self._shell.acall(requests.try_change(self.id, fields))
        self._learn(await self._shell.acall(requests.change(self.id, fields, reason=reason)))
        return self

    def delete(self, reason: str | None = None, *, purge: bool = False) -> None:
        """Delete it and cancel its jobs that have not started; `purge`: its history too."""
        self._shell.call(requests.delete(self.id, purge=purge, reason=reason))

    async def adelete(self, reason: str | None = None, *, purge: bool = False) -> None:
        """Delete it and cancel its jobs that have not started; `purge`: its history too."""
        await self._shell.acall(requests.delete(self.id, purge=purge, reason=reason))

    def _learn(self, known: Known | wire.Schedule) -> None:
        self.name, self.next_run_at = known.name, known.next_run_at

    def _pausing(self, reason: str | None, until: datetime | Span | None) -> Request:
        if until is not None:
            until = aware("until", until) if isinstance(until, datetime) else parse_duration(until, "until")
        return requests.pause(self.id, reason=reason, until=until)

    def _running(self, payload: Any, reason: str | None) -> Request:
        said = None if payload is UNSET else values.encode(payload, "payload")
        return requests.run(self.id, said, reason=reason)

    def _previewing(self, count: int, after: datetime | None) -> Request:
        return requests.preview(self.id, count, after=None if after is None else aware("after", after))

    def _backfilling(self, since: datetime, until: datetime, *, concurrency: int, reason: str | None) -> Request:
        fields = {"since": aware("since", since), "until": aware("until", until), "concurrency": concurrency}
        return requests.backfill(self.id, fields, reason=reason)

    def _job(self, made: Submitted) -> Job[R]:
        return Job(self._shell, made.id, decode=self._decode)

    def _begun(self, begun: wire.Backfill) -> Backfill:
        return Backfill(self._shell, begun.id)


def _wanted(decision: str | None, *, since: datetime | None, until: datetime | None) -> dict[str, Any]:
    return {
        "decision": decision,
        "since": None if since is None else aware("since", since),
        "until": None if until is None else aware("until", until),
    }
