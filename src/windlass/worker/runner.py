"""The runner: a worker claims jobs, hands them to its pools, and tells how they ended, until it is to leave.

`Worker` is the whole: claims.py asks for jobs, pools.py runs them, reports.py tells their ends, holdings.py knows what
is held, keeping.py who holds the session. Each part is a loop; one that fails is logged and begins again.
`python -m windlass.worker.runner` is the process that a keeper (keeper.py) starts (process.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from windlass import log
from windlass.config import Settings
from windlass.config.redact import Redactor
from windlass.engine.outside import Outside
from windlass.wire import work as wire
from windlass.worker.capacity import Capacity
from windlass.worker.claims import Claims, check_tasks
from windlass.worker.departure import Departure
from windlass.worker.frames import Cancel, Drain, FromKeeper, Lease, Leaving, Lost, Opened, Renewed, Tick
from windlass.worker.holdings import Holdings
from windlass.worker.keeping import Keeping
from windlass.worker.link import Link
from windlass.worker.memory import memory_mb
from windlass.worker.pipekeeping import KeeperGone
from windlass.worker.pools import Pools
from windlass.worker.reports import DOUBT_S, Reports
from windlass.worker.runnable import Tasks

SECOND_S = 1.0
"""How often the keeper is told that claims advance, and the server what running attempts say."""
BEGIN_S = 2.0
"""A job claimed ahead that has not begun after this, while no slot frees, is given back."""
CLOSE_S = 5.0
"""How long the pools may take to close."""


class Worker:
    """One worker: its loops, from the opening of its session until it leaves."""

    def __init__(
        self,
        tasks: Tasks,
        link: Link,
        *,
        keeping: Keeping,
        settings: Settings,
        signatures: Mapping[str, msgspec.Raw] | None = None,
        app_target: str | None = None,
        server_url: str | None = None,
        carries: bool = True,
        outside: Outside | None = None,
        before_claims: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        check_tasks(tasks)
        self._tasks = tasks
        self._link = link
        self._keeping = keeping
        self._settings = settings
        self._signatures = signatures or {}
        self._app_target = app_target
        self._server_url = server_url
        self._carries = carries
        """Whether reports carry claims: worth it where a request costs more than its work."""
        self._outside = outside or Outside()
        self._before_claims = before_claims
        batch = settings.worker.claim_batch
        capacity = Capacity(settings.worker.threads, batch=None if batch == "auto" else batch)
        self._holdings = Holdings(keeping, capacity, monotonic=self._outside.monotonic)
        self._departure: Departure | None = None
        self._jobs_done = self._jobs_completed = self._jobs_failed = 0
        self._moved_at = self._second_at = self._outside.monotonic()
        self._doubted_at: float | None = None
        self._woken, self._left = asyncio.Event(), asyncio.Event()
        self._begun = False
        if settings.worker.max_jobs:
            self._holdings.jobs_left = settings.worker.max_jobs

    async def run(self) -> Leaving:
        """Work until told to leave, then say so; everything is reported or given back."""
        self._begin(asyncio.get_running_loop())
        try:
            self._open(await self._keeping.open(sorted(self._tasks), self._signatures))
            await self._work()
            assert self._departure is not None
            leaving = self._departure.leaving
            self._keeping.tick(self._tick())
            await self._keeping.leave(leaving)
            return leaving
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._pools.close()

    def drain(self, reason: str, *, within_s: float, replace: bool = False) -> None:
        """Claim no more, finish within so long, give the rest back, and leave. Said again, the sooner end counts."""
        by = self._outside.monotonic() + within_s
        if self._departure is None:
            self._departure = Departure(reason, by, replace)
            self._holdings.claims_closed = True
            worker, jobs = self._holdings.worker_id, self._holdings.held_count
            log.event("worker.stopping", worker=worker, reason=reason, jobs=jobs)
            if self._begun:
                self._claims.recall()
                self._give_back(self._pools.take_line(), reason)
        self._departure.hasten(by)
        self._wake()

    def leave_soon(self) -> None:
        """Drain because this process alone was told to stop; another should take its place."""
        self.drain("It was told to stop.", within_s=self._settings.worker.drain_seconds, replace=True)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        worker = self._settings.worker
        self._begun = True
        self._loop = loop
        self._pools = Pools(
            self._tasks,
            threads=worker.threads,
            isolation=worker.isolation,
            settings=worker,
            app_target=self._app_target,
            server_url=self._server_url,
            redactor=Redactor(self._settings.security.redact),
            on_start=self._started,
            may_begin=lambda: self._holdings.trusted,
            wake=self._wake_from_any_thread,
        )
        self._reports = Reports(
            self._link,
            self._holdings,
            trail=self._pools.take_trail,
            next_claim=self._next_claim,
            take=self._take,
            told=self._told,
            settings=self._settings,
            outside=self._outside,
        )
        self._claims = Claims(
            self._link,
            self._holdings,
            settings=self._settings,
            tasks=sorted(self._tasks),
            resting=lambda: self._carries and (self._reports.carrying or self._reports.pending),
            take=self._take,
            outside=self._outside,
            before=self._before_claims,
        )

    def _wake(self) -> None:
        self._woken.set()

    def _wake_from_any_thread(self) -> None:
        with suppress(RuntimeError):  # a thread that is left when the loop has ended
            self._loop.call_soon_threadsafe(self._woken.set)

    async def _work(self) -> None:
        """Run the parts until the worker has left; one that ends is logged and begins again."""
        parts = {
            "claims": self._claims.run,
            "reports": self._reports.run,
            "tending": self._tend_on,
            "hearing": self._hear_on,
        }
        left: asyncio.Task[Any] = asyncio.create_task(self._left.wait(), name="left")
        running: dict[asyncio.Task[Any], str] = {
            asyncio.create_task(part(), name=name): name for name, part in parts.items()
        }
        try:
            while not left.done():
                done, _ = await asyncio.wait([left, *running], return_when=asyncio.FIRST_COMPLETED)
                for task in done - {left}:
                    name = running.pop(task)
                    error = None if task.cancelled() else task.exception()
                    if isinstance(error, KeeperGone):
                        raise error
                    log.event("worker.failed", part=name, error=error)
                    running[asyncio.create_task(self._again(parts[name]), name=name)] = name
        finally:
            left.cancel()
            for task in running:
                task.cancel()
            await asyncio.gather(left, *running, return_exceptions=True)

    async def _again(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self._outside.pause(self._settings.worker.error_pause_seconds)
        await part()

    # What the keeper says.

    async def _hear_on(self) -> None:
        while True:
            self._hear(await self._keeping.hear())

    def _hear(self, word: FromKeeper) -> None:
        match word:
            case Renewed():
                self._holdings.renew(word.renewed_at)
                self._reports.hurry()
                self._claims.hurry()
                # What was claimed ahead is not begun while the lease is in doubt.
                self._pools.start((), now=self._outside.monotonic())
            case Opened():
                self._open(word)
            case Cancel():
                self._stop(word.jobs)
            case Lost():
                self._lose(word.jobs)
            case Drain():
                self.drain(word.reason, within_s=word.within_s)
        self._wake()

    def _open(self, opened: Opened) -> None:
        """Begin under a session; nothing of an earlier one is ours any more, but ends that are known are still told."""
        self._lose(self._holdings.held)
        self._reports.keep_session()
        self._holdings.open(opened)
        self._claims.recall()
        self._claims.ring()

    def _lose(self, leases: Sequence[Lease]) -> None:
        for lease in self._holdings.lose(leases):
            self._pools.stop(lease, "lost")

    def _stop(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if self._holdings.is_unfinished(lease):
                self._pools.stop(lease, "cancel")

    # What the servers hand out.

    def _take(self, claim: wire.Claim) -> None:
        """Let jobs begin, or wait in the line of the pools; a worker that is to leave gives them back."""
        session = None if self._holdings.opened is None else self._holdings.opened.session
        jobs = [job for job in claim.jobs if job.session == session]
        if jobs:
            now = self._outside.monotonic()
            # Handed out anew, an earlier lease of a job is over, though nobody has said so yet.
            self._lose(self._holdings.unfinished_of(job.id for job in jobs))
            ready = self._holdings.take(jobs)
            if self._departure is not None:
                self._give_back(jobs, self._departure.reason)
            else:
                self._moved_at = now
                self._pools.start(ready, now=now, worker=self._holdings.worker_id)
        self._stop(self._holdings.unfinished_of(claim.cancel))

    def _started(self, jobs: Sequence[Lease]) -> None:
        """Name jobs before their bodies begin; called from any thread."""
        self._keeping.start(jobs)
        self._moved_at = self._outside.monotonic()

    def _next_claim(self, count: int) -> wire.NextClaim | None:
        """Return what to ask for together with so many reports."""
        if not self._carries or self._claims.waiting:
            return None
        room = self._holdings.room(count)
        return wire.NextClaim(count=room, **self._claims.capability) if room else None

    def _told(self) -> None:
        """After reports were answered there may be room, or nothing left to do."""
        self._claims.ring()
        if self._departure is not None:
            self._wake()

    def _give_back(self, jobs: Sequence[wire.ClaimedJob], reason: str) -> None:
        given = [job for job in jobs if self._holdings.ended(job.id, job.fence)]
        self._reports.add(self._worded([wire.ReleaseEntry(job_id=j.id, fence=j.fence, reason=reason) for j in given]))

    def _worded(self, entries: Sequence[wire.Entry]) -> Sequence[wire.Entry]:
        return entries if self._departure is None else [self._departure.reworded(entry) for entry in entries]

    # What the pools have done.

    async def _tend_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._woken.clear()
            now = self._outside.monotonic()
            alarm = loop.call_later(max(0.0, self._tend(now) - now), self._woken.set)
            try:
                await self._woken.wait()
            finally:
                alarm.cancel()

    def _tend(self, now: float) -> float:
        """Do what is due; return when to look again."""
        pools_at = self._pools.tend(now)
        self._harvest(now)
        if now >= self._second_at + SECOND_S:
            self._second_at = now
            self._every_second(now)
        look_at = [self._second_at + SECOND_S, self._watch_lease(now)]
        if pools_at is not None:
            look_at.append(pools_at)
        if self._departure is not None:
            look_at.append(self._depart(self._departure, now))
        return min(look_at)

    def _harvest(self, now: float) -> None:
        """Pass on what ended."""
        ended = self._pools.take_ended()
        if not ended:
            return
        entries: list[wire.Entry] = []
        over: list[Lease] = []
        run_s = 0.0
        for end in ended:
            run_s += end.run_s
            if not self._holdings.ended(end.job_id, end.fence):
                continue
            if end.entry is None:
                over.append((end.job_id, end.fence))
            else:
                entries.append(end.entry)
        self._jobs_done += len(entries)
        self._jobs_completed += sum(isinstance(entry, wire.CompleteEntry) for entry in entries)
        self._jobs_failed += sum(isinstance(entry, wire.FailEntry) for entry in entries)
        self._moved_at = now
        self._holdings.drop(over)
        self._holdings.capacity.ended(len(ended), run_s)
        if self._settings.worker.max_jobs:
            self._holdings.jobs_left = self._settings.worker.max_jobs - self._jobs_done
        self._reports.add(self._worded(entries))
        if due := self._holdings.due():
            self._pools.start(due, now=now, worker=self._holdings.worker_id)
        self._claims.ring()

    def _every_second(self, now: float) -> None:
        worker = self._settings.worker
        used_mb = memory_mb()
        if self._claims.advances(now):
            self._keeping.tick(self._tick())
        self._reports.send_trail()
        if self._pools.line_count and now - self._moved_at >= BEGIN_S:
            self._holdings.capacity.stalled()
            self._give_back(self._pools.take_line(), "claimed ahead")
        if self._departure is None:
            if self._pools.zombie_count:
                self.drain("A task could not be stopped.", within_s=worker.drain_seconds, replace=True)
            elif worker.max_jobs and self._jobs_done >= worker.max_jobs:
                self.drain(f"It has run {self._jobs_done} jobs.", within_s=worker.drain_seconds, replace=True)
            elif worker.max_memory_mb and used_mb > worker.max_memory_mb:
                self.drain(f"It takes {used_mb} MB.", within_s=worker.drain_seconds, replace=True)

    def _tick(self) -> Tick:
        return Tick(self._jobs_completed + self._jobs_failed, self._jobs_failed)

    def _watch_lease(self, now: float) -> float:
        """Stop what is exclusive when the lease was not renewed in time (L14); return when to look again."""
        holdings = self._holdings
        if holdings.trusted:
            self._doubted_at = None
            return holdings.lapses_at
        if holdings.lapsed:
            return now + SECOND_S
        # A word of the keeper's may lie unread, when this process stood still.
        self._doubted_at = now if self._doubted_at is None else self._doubted_at
        if now - self._doubted_at < DOUBT_S:
            return self._doubted_at + DOUBT_S
        stopping = holdings.lapse(self._pools.exclusive_leases())
        log.event("worker.lapsed", worker=holdings.worker_id, jobs=holdings.held_count, stopped_jobs=len(stopping))
        for lease in stopping:
            self._pools.stop(lease, "lost")
        self._claims.recall()
        return now + SECOND_S

    def _depart(self, departure: Departure, now: float) -> float:
        """Stop what is not done in time, and leave when nothing is held; return when to look again."""
        if departure.must_stop(now):
            for lease in self._holdings.unfinished:
                self._pools.stop(lease, "release")
        if departure.must_end(now):
            # Nobody could stop these; their process ends with them.
            over = [job for job in self._holdings.unfinished if self._holdings.ended(*job)]
            self._reports.add([departure.release(job_id, fence) for job_id, fence in over])
        if self._holdings.lapsed and departure.must_end(now):
            self._reports.forget()
        if self._claims.waiting:  # its answer may have been on the way when it was recalled
            return now + DOUBT_S
        if self._holdings.held_count == 0 and self._reports.idle:
            self._left.set()
        return departure.look_at(now)


if __name__ == "__main__":
    from windlass.worker.process import main

    main()
