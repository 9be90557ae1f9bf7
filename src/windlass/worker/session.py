"""The session of one runner, kept by its keeper: opened, renewed while the runner lives, and ended (W3, L7).

Each call is tried again with full jitter. A heartbeat is never given up, because only the server can say that a
session is over; when it is, the keeper (keeper.py) opens another. The lease runs from before a request was sent.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from uuid import UUID, uuid4

import msgspec

from windlass import __version__, log
from windlass.clock import Clock, system_clock
from windlass.config import Settings
from windlass.engine.outside import Outside
from windlass.errors import Conflict, NotFound, TooMany, Unavailable, WindlassError
from windlass.wire import work as wire
from windlass.wire.tasks import read_signatures
from windlass.worker.frames import Opened, Ready
from windlass.worker.link import Link
from windlass.worker.patience import BackOff, answered

REGISTER_S = 10.0
"""How long a worker that starts tries to register before it says that it cannot."""
CLOSE_S = 10.0
"""How long ending a session is tried; past it the session lapses by itself."""
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 1.0
"""Between tries: a heartbeat that is answered lets the runner claim, within two seconds of an outage."""


class Renewal(msgspec.Struct, frozen=True):
    """A heartbeat, its answer, and the instant from before it was sent."""

    request: wire.BeatRequest
    answer: wire.Beat
    sent_at: float


class Session:
    """The sessions of one runner, one after the other: mostly there is one."""

    def __init__(
        self,
        link: Link,
        settings: Settings,
        *,
        worker_id: str,
        outside: Outside,
        clock: Clock = system_clock,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self.id: UUID | None = None
        """None while none is open."""
        self.worker_id = worker_id
        self.lease_s = settings.worker.lease_seconds or settings.jobs.lease_seconds
        """What the server granted, once a session was opened."""
        self.renewed_at = self.sent_at = outside.monotonic()
        """When the heartbeat that was answered last, and the last of all, were sent."""
        self._link = link
        self._settings = settings.worker
        self._outside = outside
        self._clock = clock
        self._new_id = new_id

    async def open(self, runner: Ready | None, *, pid: int, within_s: float | None) -> Opened:
        """Register a fresh session and return what the runner must know; the last error if none opens `within_s`.

        `runner` is what it said when its modules were imported; None: they are not yet.
        """
        session = self._new_id()
        request = self._registration(runner, session=session, pid=pid)
        began_at, again = self._outside.monotonic(), self._back_off()
        while True:
            sent_at = self._outside.monotonic()
            try:
                async with answered(self._settings.claim_timeout_seconds):
                    answer = await self._link.register(request)
                break
            except WindlassError as error:
                late = within_s is not None and self._outside.monotonic() - began_at >= within_s
                if within_s is not None and (late or not _passes(error)):
                    raise
                await self._again("It cannot register.", error, again)
        self.id, self.lease_s, self.renewed_at = answer.session, answer.lease_seconds, sent_at
        return Opened(
            worker_id=self.worker_id, session=answer.session, lease_s=answer.lease_seconds, renewed_at=sent_at
        )

    async def register_again(self, runner: Ready | None, *, pid: int) -> float | None:
        """Say anew what the runner is, until it is heard; return when it was said, None if the session has ended."""
        assert self.id is not None
        request, again = self._registration(runner, session=self.id, pid=pid), self._back_off()
        while True:
            sent_at = self.sent_at = self._outside.monotonic()
            try:
                async with answered(self._settings.claim_timeout_seconds):
                    await self._link.register(request)
            except (NotFound, Conflict):
                self.id = None
                return None
            except WindlassError as error:
                if not _passes(error):
                    raise
                await self._again("It cannot register.", error, again)
                continue
            self.renewed_at = sent_at
            return sent_at

    async def renew(self, held: Callable[[], wire.BeatRequest]) -> Renewal | None:
        """Send heartbeats until one is answered; None if the session has ended. `held` says anew what is held."""
        again = self._back_off()
        while True:
            request = held()
            sent_at = self.sent_at = self._outside.monotonic()
            try:
                async with answered(min(self._settings.heartbeat_timeout_seconds, self.lease_s / 2)):
                    answer = await self._link.heartbeat(request)
            except (NotFound, Conflict):
                self.id = None
                return None
            except WindlassError as error:
                await self._again("Its heartbeat was not answered.", error, again)
                continue
            self.renewed_at = sent_at
            return Renewal(request, answer, sent_at)

    async def news(self, *, is_draining: bool) -> wire.Beat:
        """Wait at the server for news of the session, once; it does not say what is held, or was done."""
        wait_s = self._settings.wait_seconds
        request = wire.BeatRequest(
            worker_id=self.worker_id, session=self.id, completed=0, failed=0, draining=is_draining, wait=wait_s
        )
        async with answered(wait_s + self._settings.heartbeat_timeout_seconds):
            return await self._link.heartbeat(request)

    async def report(self, entries: tuple[wire.Entry, ...]) -> bool:
        """Tell how attempts ended, until it is heard; False if the session ended meanwhile."""
        session, again = self.id, self._back_off()
        while session is not None and self.id == session:
            request = wire.ReportRequest(worker_id=self.worker_id, session=session, reports=entries)
            try:
                async with answered(self._settings.report_timeout_seconds):
                    await self._link.report(request)
                return True
            except WindlassError as error:
                await self._again("Its report was not taken.", error, again)
        return False

    async def close(self, *, lost: bool, last_beat: wire.BeatRequest | None = None) -> None:
        """End the session, if one is open; what cannot be said in time is found out when the lease is over.

        The last heartbeat says first what was done, and what had begun.
        """
        session, self.id = self.id, None
        began_at, again = self._outside.monotonic(), self._back_off()
        while session is not None and self._outside.monotonic() - began_at < CLOSE_S:
            try:
                async with answered(self._settings.report_timeout_seconds):
                    if last_beat is not None:
                        await self._link.heartbeat(last_beat)
                        last_beat = None  # heard: what it counted must not count again
                    await self._link.close(self.worker_id, session=session, lost=lost)
                return
            except (NotFound, Conflict):
                return
            except WindlassError as error:
                await self._again("The end of its session was not taken.", error, again)
                if not _passes(error):
                    return

    @property
    def interval_s(self) -> float:
        """How long after a heartbeat the next one is due."""
        return min(self._settings.heartbeat_seconds or self.lease_s / 3, self.lease_s / 2)

    def beat(
        self, held: tuple[wire.HeldJob, ...] | None, *, completed_count: int, failed_count: int, is_draining: bool
    ) -> wire.BeatRequest:
        """Return a heartbeat that names what is held: how busy it is can be seen from that."""
        return wire.BeatRequest(
            worker_id=self.worker_id,
            session=self.id,
            held=held,
            completed=completed_count,
            failed=failed_count,
            draining=is_draining,
            timestamp=self._clock(),
        )

    def _registration(self, runner: Ready | None, *, session: UUID, pid: int) -> wire.RegisterRequest:
        worker = self._settings
        return wire.RegisterRequest(
            worker_id=self.worker_id,
            session=session,
            lease_seconds=worker.lease_seconds,
            max_threads=worker.threads,
            host=platform.node()[:200] or None,
            pid=pid,
            version=worker.version,
            build=f"windlass-{__version__}",
            tasks=() if runner is None else tuple(runner.tasks),
            signatures={} if runner is None else read_signatures(runner.signatures),
            labels=worker.labels,
            queues=worker.queues if runner is None else runner.queues,
        )

    def _back_off(self) -> BackOff:
        longest_s = min(self.interval_s, LONGEST_PAUSE_S)
        return BackOff(FIRST_PAUSE_S, longest_s, chance=self._outside.chance, asked_s=self.interval_s)

    async def _again(self, what: str, error: WindlassError, again: BackOff) -> None:
        """Wait before the next try; of a row of failures the first is logged, the others only say the same."""
        if again.tries == 0:
            log.event("worker.unheard", worker=self.worker_id, detail=what, reason=str(error))
        await self._outside.pause(again.next_s(error))


def _passes(error: WindlassError) -> bool:
    """Say whether the same call may be answered later."""
    return isinstance(error, Unavailable | TooMany)
