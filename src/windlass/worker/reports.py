"""Reports: everything that ended is told in one request, as soon as the one before was answered.

So batches grow with the load, by themselves; with them go the log lines and notes of all attempts, and, when there is
room, the next claim: under load one request per batch does it all.
A report is repeated until a server answers, also when the lease is no longer trusted or the session is over: the fence
decides there. One that a server cannot take fails its own job only (parcel.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from windlass import log
from windlass.config import Settings
from windlass.engine.outside import Outside
from windlass.errors import BodyTooLarge, InvalidInput, TooMany, Unavailable, WindlassError
from windlass.wire import work as wire
from windlass.wire.trail import LogChunk, Note
from windlass.worker.frames import Opened
from windlass.worker.holdings import Holdings
from windlass.worker.link import Link
from windlass.worker.parcel import Parcel, Wrapper, dropped, lease_of, parted, stamped, within
from windlass.worker.patience import BackOff, Rest, answered

LEASE_SHARE = 6
"""Pauses between tries are at most one part in so many of the lease."""

DOUBT_S = 0.05
"""How soon to look again whether the lease was renewed."""
REFUSALS = (InvalidInput, BodyTooLarge, UnicodeError, TypeError, msgspec.MsgspecError)
"""What a parcel meets that no server can take, or that cannot even be written."""

Trail = tuple[list[LogChunk], list[Note]]


class Reports:
    """The line of ends to be told, and the loop that tells them."""

    def __init__(
        self,
        link: Link,
        holdings: Holdings,
        *,
        trail: Callable[[], Trail],
        next_claim: Callable[[int], wire.NextClaim | None],
        take: Callable[[wire.Claim], None],
        told: Callable[[], None],
        settings: Settings,
        outside: Outside,
    ) -> None:
        self._link = link
        self._holdings = holdings
        self._trail = trail
        self._next_claim = next_claim
        """What to ask for with so many reports."""
        self._take = take
        self._told = told
        self._settings = settings
        self._outside = outside
        self._wrapper = Wrapper()
        self._bell = asyncio.Event()
        self._rest = Rest(outside.pause)
        self._is_unheard = False
        """Whether the last report got no answer."""
        self._trail_due = False
        self._busy = False
        self._era = 0
        """Rises when what was to be told is not told any more."""
        self.carrying = False
        """Whether a claim is under way with a report."""

    @property
    def idle(self) -> bool:
        """Whether everything was told."""
        return not self._busy and not self._wrapper.entries

    @property
    def pending(self) -> bool:
        """Whether something ended whose report is not under way yet."""
        return bool(self._wrapper.entries)

    def add(self, entries: Iterable[wire.Entry]) -> None:
        """Tell these ends next."""
        longest = self._settings.jobs.max_result_bytes
        self._wrapper.entries.extend([within(entry, longest) for entry in entries])
        self._bell.set()

    def hurry(self) -> None:
        """A server answers again: tell at once what got no answer."""
        self._bell.set()
        if self._is_unheard:
            self._rest.cut()

    def send_trail(self) -> None:
        """Tell what running attempts have to say, if they have anything."""
        self._trail_due = True
        self._bell.set()

    def forget(self) -> None:
        """Tell nothing of what waits: nobody answers, and the worker leaves."""
        self._era += 1
        self._give_up(list(self._wrapper.entries), "Nobody answered in time.")
        self._wrapper.clear()
        self._bell.set()

    def keep_session(self) -> None:
        """Note the present session with what waits: another is to be opened."""
        if self._holdings.opened is not None:
            self._wrapper.stamp(self._holdings.opened.session)

    async def run(self) -> None:
        """Tell what there is to tell, for ever."""
        while True:
            self._bell.clear()
            if (self._wrapper.entries or self._trail_due) and self._holdings.opened is not None:
                self._trail_due = False
                self._wrapper.add_trail(*self._trail())
                if parcel := self._wrapper.next():
                    self._bell.set()
                    await self._deliver(parcel)
                    continue
            await self._bell.wait()

    async def _deliver(self, parcel: Parcel) -> None:
        """Send a parcel, or the parts of it that a server takes."""
        parts, opened = deque([parcel]), self._holdings.opened
        assert opened is not None
        self._busy = True
        try:
            while parts:
                try:
                    await self._send(parts[0], opened)
                    parts.popleft()
                except REFUSALS as error:
                    part = parts.popleft()
                    instead = parted(part, error)
                    self._give_up(dropped(part, instead), f"It was refused: {error}")
                    parts.extendleft(reversed(instead))
        finally:
            self._wrapper.put_back([stamped(part, opened.session) for part in parts])
            self._busy = False
            self._told()

    async def _send(self, parcel: Parcel, opened: Opened) -> None:
        """Send a parcel, of the session in which its attempts ended, until it is answered."""
        worker, era = self._settings.worker, self._era
        longest_s = min(worker.backoff_max_seconds, self._holdings.lease_s / LEASE_SHARE)
        again = BackOff(min(worker.backoff_min_seconds, longest_s), longest_s, chance=self._outside.chance)
        while self._era == era:
            try:
                answers = await self._ask(parcel, opened)
            except (TooMany, Unavailable) as error:
                self._is_unheard = isinstance(error, Unavailable)
                pause_s = again.next_s(error)
            except REFUSALS:
                raise
            except WindlassError as error:
                log.event("worker.failed", part="reports", error=error)
                pause_s = worker.error_pause_seconds
            else:
                self._answered(parcel, answers)
                return
            await self._rest.take(pause_s)
            self._is_unheard = False
        self._give_up(parcel.entries, "Nobody answered in time.")

    async def _ask(self, parcel: Parcel, opened: Opened) -> wire.Answers:
        is_present = opened is self._holdings.opened
        claim = self._next_claim(len(parcel.entries)) if parcel.entries and is_present else None
        request = wire.ReportRequest(
            worker_id=opened.worker_id,
            session=opened.session,
            reports=parcel.entries,
            logs=parcel.chunks,
            notes=parcel.notes,
            claim=claim,
        )
        self.carrying = claim is not None
        try:
            async with answered(self._settings.worker.report_timeout_seconds):
                return await self._link.report(request)
        finally:
            self.carrying = False

    def _answered(self, parcel: Parcel, answers: wire.Answers) -> None:
        for entry, answer in zip(parcel.entries, answers.answers, strict=True):
            if answer.status == "stale" or answer.status == "unknown":
                log.event("report.stale", job=entry.job_id, fence=entry.fence, status=answer.status)
        for word in answers.refused:
            log.event("trail.refused", job=word.job_id, field=word.field, reason=word.detail)
        self._holdings.drop([lease_of(entry) for entry in parcel.entries])
        if answers.jobs or answers.cancel:
            self._take(wire.Claim(jobs=answers.jobs, cancel=answers.cancel))

    def _give_up(self, entries: Iterable[wire.Entry], reason: str) -> None:
        for entry in entries:
            log.event("report.dropped", job=entry.job_id, fence=entry.fence, reason=reason)
        self._holdings.drop([lease_of(entry) for entry in entries])
