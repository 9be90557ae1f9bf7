"""Keeping: who holds the session of a worker, sends its heartbeats and passes on what servers say.

Where a fleet runs (keeper.py) that is another process, spoken with over a socket: PipeKeeping (pipekeeping.py).
In the same process it is OwnKeeping here, with a loop of its own; a task that holds the interpreter stops its beats.
Both say the words of frames.py. A job is named before its body begins, so that a death tells what had begun.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol
from uuid import uuid4

import msgspec

from windlass.config import Settings
from windlass.engine.outside import Outside
from windlass.errors import Conflict, NotFound, TooMany, Unavailable, WindlassError
from windlass.wire import work as wire
from windlass.wire.tasks import Signature, read_signatures
from windlass.worker.frames import Cancel, Drain, FromKeeper, Lease, Leaving, Lost, Opened, Renewed, Tick
from windlass.worker.link import Link
from windlass.worker.patience import BackOff, answered

REGISTER_S = 10.0
"""Who cannot register for so long does not start (W3)."""
LONGEST_PAUSE_S = 1.0
"""Between tries, so that claims are asked for within two seconds of an outage."""


class Keeping(Protocol):
    """What a worker says to its keeper, and hears."""

    async def open(self, tasks: Sequence[str], signatures: Mapping[str, msgspec.Raw]) -> Opened:
        """Say that these tasks are there; return the session."""

    async def hear(self) -> FromKeeper:
        """Return the next word, when it comes."""

    def hold(self, jobs: Sequence[wire.ClaimedJob]) -> None:
        """Name leases."""

    def start(self, jobs: Sequence[Lease]) -> None:
        """Say that these bodies begin. May be called from any thread."""

    def drop(self, jobs: Sequence[Lease]) -> None:
        """Say that these leases are over."""

    def tick(self, tick: Tick) -> None:
        """Say that the worker advances."""

    async def leave(self, leaving: Leaving) -> None:
        """Say that everything is reported or given back; the session is closed then."""


class OwnKeeping:
    """The session of a worker that keeps it by itself."""

    def __init__(self, link: Link, settings: Settings, *, outside: Outside | None = None) -> None:
        self._link = link
        self._settings = settings.worker
        self._outside = outside or Outside()
        self._worker_id = settings.worker.id or f"worker-{uuid4()}"
        self._words: asyncio.Queue[FromKeeper] = asyncio.Queue()
        self._held: dict[Lease, float | None] = {}
        """Leases, and when their bodies began."""
        self._opened: Opened | None = None
        self._tasks: tuple[str, ...] = ()
        self._signatures: dict[str, Signature] = {}
        self._draining = False
        self._beating: asyncio.Task[None] | None = None

    async def open(self, tasks: Sequence[str], signatures: Mapping[str, msgspec.Raw]) -> Opened:
        """Register, trying for a while; the error of the last try if it does not succeed."""
        self._tasks = tuple(tasks)
        self._signatures = read_signatures(signatures)
        until = self._outside.monotonic() + REGISTER_S
        again = self._back_off()
        while True:
            try:
                opened = await self._register()
                break
            except (Unavailable, TooMany) as error:
                if self._outside.monotonic() >= until:
                    raise
                await self._outside.pause(again.next_s(error))
        self._beating = asyncio.create_task(self._beat_on(), name="beats")
        return opened

    async def hear(self) -> FromKeeper:
        """Return the next word, when it comes."""
        return await self._words.get()

    def hold(self, jobs: Sequence[wire.ClaimedJob]) -> None:
        """Name leases."""
        for job in jobs:
            self._held[(job.id, job.fence)] = None

    def start(self, jobs: Sequence[Lease]) -> None:
        """Say that these bodies begin."""
        for job in jobs:
            if job in self._held:
                self._held[job] = self._outside.monotonic()

    def drop(self, jobs: Sequence[Lease]) -> None:
        """Say that these leases are over."""
        for job in jobs:
            self._held.pop(job, None)

    def tick(self, tick: Tick) -> None:
        """Say nothing: claims that do not advance are in the process that would tell."""

    async def leave(self, leaving: Leaving) -> None:
        """Close the session; if that fails it lapses."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        if self._opened is not None:
            with suppress(WindlassError, TimeoutError):
                async with asyncio.timeout(self._settings.report_timeout_seconds):
                    await self._link.close(self._worker_id, session=self._opened.session)

    async def _register(self) -> Opened:
        worker, at = self._settings, self._outside.monotonic()
        async with answered(worker.claim_timeout_seconds):
            answer = await self._link.register(
                wire.RegisterRequest(
                    worker_id=self._worker_id,
                    session=uuid4(),
                    lease_seconds=worker.lease_seconds,
                    max_threads=worker.threads,
                    host=platform.node()[:200] or None,
                    pid=os.getpid(),
                    version=worker.version,
                    tasks=self._tasks,
                    signatures=self._signatures,
                    labels=worker.labels,
                    queues=worker.queues,
                )
            )
        self._opened = Opened(answer.worker_id, answer.session, answer.lease_seconds, at)
        return self._opened

    async def _beat_on(self) -> None:
        again = self._back_off()
        wait_s = self._interval_s
        while True:
            await self._outside.pause(wait_s)
            wait_s = self._interval_s
            try:
                await self._beat()
                again.reset()
            except (NotFound, Conflict):
                await self._open_again()
            except WindlassError as error:  # tried again, until the lease is over by our clock
                wait_s = min(wait_s, again.next_s(error))

    async def _beat(self) -> None:
        assert self._opened is not None
        at = self._outside.monotonic()
        held = tuple(
            wire.HeldJob(job_id=job_id, fence=fence, started=began_at is not None and at - began_at)
            for (job_id, fence), began_at in list(self._held.items())
        )
        async with answered(self._settings.heartbeat_timeout_seconds):
            answer = await self._link.heartbeat(
                wire.BeatRequest(
                    worker_id=self._worker_id,
                    session=self._opened.session,
                    held=held,
                    timestamp=datetime.now(UTC),
                )
            )
        cancelled, gone = set(answer.cancel), set(answer.lost)
        if cancelled:
            self._words.put_nowait(Cancel([job for job in self._held if job[0] in cancelled]))
        if gone:
            # Those that were named: a job may have been claimed anew while the heartbeat was under way.
            self._words.put_nowait(Lost([(job.job_id, job.fence) for job in held if job.job_id in gone]))
        self._words.put_nowait(Renewed(at))
        if answer.drain and not self._draining:
            self._draining = True
            self._words.put_nowait(Drain("drained", self._settings.drain_seconds))

    async def _open_again(self) -> None:
        """Begin anew after the session was declared dead: nothing that it held is ours."""
        self._words.put_nowait(Lost(list(self._held)))
        self._held.clear()
        again = self._back_off()
        while True:
            with suppress(WindlassError):
                self._words.put_nowait(await self._register())
                return
            await self._outside.pause(again.next_s())

    @property
    def _interval_s(self) -> float:
        assert self._opened is not None
        return self._settings.heartbeat_seconds or self._opened.lease_s / 3

    def _back_off(self) -> BackOff:
        longest_s = min(self._settings.backoff_max_seconds, LONGEST_PAUSE_S)
        return BackOff(self._settings.backoff_min_seconds, longest_s, chance=self._outside.chance)
