"""A keeper: one runner, from its start to its end, and the session that it works with.

It runs no user code, so that a task that holds the interpreter keeps its lease (B5): the runner says in frames what it
holds (held.py), the keeper says it to the server (session.py), and passes on what the server wants. When the runner
dies its jobs go back at once, not a lease later. An attempt that nobody can stop, because it holds the interpreter,
is reported here, and its runner is replaced (W9, the last rung). Several keepers are a fleet (fleet.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections.abc import Coroutine
from typing import Any, Literal

import msgspec

from windlass import log
from windlass.config import Settings
from windlass.engine.outside import Outside
from windlass.errors import Conflict, NotFound, WindlassError
from windlass.wire import work as wire
from windlass.worker import frames
from windlass.worker.child import Child, StartChild
from windlass.worker.held import HeldJobs, Overdue, StopOutcome
from windlass.worker.link import Link
from windlass.worker.patience import Rest
from windlass.worker.session import REGISTER_S, Renewal, Session

WATCH_S = 0.5
"""Between looks for what should have ended, and for bodies whose start is to be told."""
EARLY_S = 1.0
"""A body that runs longer is told as begun before the next heartbeat is due, together with all others."""
NEWS_S = 1.0
"""Between questions for news that brought nothing new, such as a cancel that is known and not confirmed yet."""
SILENT_S = 5.0
"""A runner ticks every second; after so long without a word it cannot stop its tasks itself."""
LAST_WORDS_S = 1.0
"""How long what a dead runner had written is awaited: a process it left behind may keep the socket open."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the life of a runner ended."""

    kind: Literal["left", "failed", "died", "refused"]
    """By itself; unable to begin; by a signal or a crash; because no session could be opened."""
    reason: str
    lived_s: float
    was_open: bool
    """Whether it had a session."""
    replace: bool = False
    """Left, and another is to take its place."""
    error: WindlassError | None = None
    """Why it was refused."""


class Keeper:
    """Keeps one runner."""

    def __init__(
        self,
        worker_id: str,
        start: StartChild,
        *,
        link: Link,
        settings: Settings,
        outside: Outside,
        register_within_s: float | None = REGISTER_S,
    ) -> None:
        self.worker_id = worker_id
        self.held = HeldJobs()
        self.is_draining = False
        self.finished_count = 0
        """Leases that ended in order since it was told to drain: reported, or given back."""
        self.opened = asyncio.Event()
        """Whether it has a session, and the servers know its tasks."""
        self.ready: frames.Ready | None = None
        """What it said when its modules were imported; until then it starts."""
        self._start = start
        self._outside = outside
        self._settings = settings.worker
        self._session = Session(link, settings, worker_id=worker_id, outside=outside)
        self._register_within_s = register_within_s
        self._began_at = self._ticked_at = self._heard_at = outside.monotonic()
        self._child: Child | None = None
        self._is_claiming = False
        """Whether it has asked for jobs."""
        self._rest = Rest(outside.pause)
        self._said_last: frames.Leaving | frames.Failed | None = None
        self._refusal: WindlassError | None = None
        self._replace = False
        self._drain_by: float | None = None
        self._stuck_at: float | None = None
        self._lost_at: float | None = None
        """Since when a body runs without its lease in a runner that has not said a word."""
        self._gives_back = False
        self._tick = frames.Tick(jobs_done=0)
        self._beat_wanted = asyncio.Event()
        self._completed_told = self._failed_told = 0
        self._reports: set[asyncio.Task[None]] = set()

    async def run(self) -> Ending:
        """Start the runner, keep it, and return how it ended; its session is ended too."""
        self._child = child = await self._start()
        if self.is_draining:
            child.kill()
        tasks = [asyncio.create_task(self._or_kill(work)) for work in (self._keep(child), self._watch(child))]
        listening = asyncio.create_task(self._or_kill(self._listen(child)))
        try:
            code = await child.ended()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(listening, LAST_WORDS_S)
        finally:
            for task in (*tasks, *self._reports, listening):
                task.cancel()
            child.kill()
            child.let_go()
            await asyncio.gather(*tasks, *self._reports, listening, return_exceptions=True)
        return await self._end(code, pid=child.pid)

    def drain(self, reason: str, *, within_s: float) -> None:
        """Let the runner finish within so long, give the rest back, and leave. Said again, the sooner end counts."""
        self.is_draining = True
        by = self._outside.monotonic() + within_s
        self._drain_by = by if self._drain_by is None else min(by, self._drain_by)
        if self._child is not None and self.ready is not None:
            self._child.send(frames.Drain(reason=reason, within_s=within_s))
        else:
            # It imports its modules still, as far as was heard: what it has begun since is given back.
            self.give_back()

    def give_back(self) -> None:
        """End the runner at once; what it had goes back without an attempt being used."""
        self._gives_back = True
        self.kill()

    def kill(self) -> None:
        """End the runner at once: what it had begun is lost and runs again elsewhere."""
        if self._child is not None:
            self._child.kill()

    def problem(self, now: float) -> str | None:
        """Return what is wrong with it, for /healthz; None if claims and heartbeats advance."""
        still_s = now - self._ticked_at
        if still_s > self._settings.health_seconds:
            return f"{self.worker_id} has claimed nothing and said nothing for {still_s:.0f} s"
        # Not whether one was answered: a probe that ends a worker while the servers are away would end its jobs (Z3).
        unsent_s = now - self._session.sent_at
        if self.opened.is_set() and unsent_s > self._session.lease_s:
            return f"{self.worker_id}: no heartbeat was sent for {unsent_s:.0f} s"
        return None

    async def _or_kill(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; if it fails, end the runner: without a keeper that works it would run unheard."""
        try:
            await work
        except Exception as error:
            log.event("worker.stuck", worker=self.worker_id, reason="Its keeper failed.", error=error)
            self.kill()

    async def _listen(self, child: Child) -> None:
        async for frame in child.frames():
            self._heard_at = self._outside.monotonic()
            self._lost_at = None
            self._hear(frame)

    def _hear(self, frame: frames.FromRunner) -> None:
        # A first job that holds the interpreter lets no tick through.
        if not self._is_claiming and isinstance(frame, frames.Tick | frames.Hold):
            self._is_claiming = True
            self._rest.cut()
        match frame:
            case frames.Hold(jobs=jobs, limits_s=limits_s):
                self.held.hold(jobs, limits_s)
            case frames.Start(jobs=started):
                self.held.start(started, self._heard_at)
            case frames.Drop(jobs=dropped):
                gone = self.held.drop(dropped)
                self.finished_count += len(gone) if self.is_draining else 0
            case frames.Tick():
                self._ticked_at = self._heard_at
                self._tick = frame
            case frames.Ready():
                self._ticked_at = self._heard_at
                self.ready = frame
                self._rest.cut()
            case frames.Leaving() | frames.Failed():
                self._said_last = frame

    async def _keep(self, child: Child) -> None:
        """Open a session, before the runner imports anything (W3), and renew it; when it is over, open another."""
        within_s = self._register_within_s
        while True:
            known = self.ready
            try:
                child.send(await self._session.open(known, pid=child.pid, within_s=within_s))
                self._ticked_at = self._outside.monotonic()
                is_alive = await self._await_claims(child, known)
            except WindlassError as error:
                self._refusal = error
                child.kill()
                return
            within_s = None
            if is_alive:
                await self._renew(child)
            if self.held.begun_count:
                self._note_lost()
            child.send(frames.Lost(jobs=self.held.drop_all()))

    async def _await_claims(self, child: Child, known: frames.Ready | None) -> bool:
        """Return when the runner asks for jobs; False if the session has ended before. `known` is what servers know.

        Until then the session is kept by registering again: a worker that was never heard is shown as starting.
        """
        while True:
            if known is not None:
                self.opened.set()
            if self.ready is known and not self._is_claiming:
                await self._rest.take(self._session.interval_s)
            if self.ready is known and self._is_claiming:
                return True
            known = self.ready
            renewed_at = await self._session.register_again(known, pid=child.pid)
            if renewed_at is None:
                return False
            child.send(frames.Renewed(renewed_at=renewed_at))

    async def _renew(self, child: Child) -> None:
        """Send heartbeats until the session has ended; beside them one waits for news."""
        # The first at once: it claims, so it is not shown as starting any more.
        news = asyncio.create_task(self._or_kill(self._wait_for_news(child)))
        try:
            while renewal := await self._session.renew(self._beat):
                self._pass_on(child, renewal)
                pause_s = self._session.renewed_at + self._session.interval_s - self._outside.monotonic()
                await self._await_beat(max(0.0, pause_s))
        finally:
            news.cancel()

    async def _wait_for_news(self, child: Child) -> None:
        """Wait for news at the server, again and again: cancels and drains are passed on as soon as they are there.

        Its answers renew nothing here: that the server lives is known from the heartbeats, which do not wait.
        """
        while self._settings.wait_seconds:
            asked_at, pause_s = self._outside.monotonic(), NEWS_S
            try:
                answer = await self._session.news(is_draining=self.is_draining)
                is_new = self._pass_news(child, answer)
                came_early = self._outside.monotonic() - asked_at < self._settings.wait_seconds / 2
                if came_early and not (answer.cancel or answer.drain):
                    # A lease was taken away, perhaps: only a heartbeat that names them all can tell which.
                    self._beat_wanted.set()
            except (NotFound, Conflict):  # the session has ended
                is_new = False
                self._beat_wanted.set()
            except WindlassError:  # the heartbeats say so, if it lasts
                is_new, pause_s = False, self._session.interval_s * (1 + self._outside.chance()) / 2
            if not is_new:
                await self._outside.pause(max(0.0, asked_at + pause_s - self._outside.monotonic()))

    def _pass_news(self, child: Child, answer: wire.Beat) -> bool:
        """Tell the runner what is new to it; return whether something is."""
        told = self.held.cancel(answer.cancel, self._outside.monotonic())
        if told:
            child.send(frames.Cancel(jobs=told))
        drains = answer.drain and not self.is_draining
        if drains:
            self.drain("drained", within_s=self._settings.drain_seconds)
        return bool(told or drains)

    async def _await_beat(self, pause_s: float) -> None:
        """Wait until a heartbeat is due, or wanted sooner."""
        waits = (asyncio.ensure_future(self._outside.pause(pause_s)), asyncio.create_task(self._beat_wanted.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _beat(self) -> wire.BeatRequest:
        self._beat_wanted.clear()
        tick = self._tick
        completed = tick.jobs_done - tick.jobs_failed - self._completed_told
        failed = tick.jobs_failed - self._failed_told
        return self._session.beat(
            self.held.named(self._outside.monotonic()),
            completed_count=max(0, completed),
            failed_count=max(0, failed),
            is_draining=self.is_draining,
        )

    def _pass_on(self, child: Child, renewal: Renewal) -> None:
        """Tell the runner what the server said."""
        answer = renewal.answer
        self._completed_told += renewal.request.completed or 0
        self._failed_told += renewal.request.failed or 0
        named = renewal.request.held or ()
        self.held.note_told(named)
        begun_count = self.held.begun_count
        if lost := self.held.drop_lost(answer.lost, named) + self.held.drop_returned(answer.released, named):
            if self.held.begun_count < begun_count:
                self._note_lost()
            child.send(frames.Lost(jobs=lost))
        # After what is lost: none of that begins when the lease is trusted again.
        child.send(frames.Renewed(renewed_at=renewal.sent_at))
        self._pass_news(child, answer)

    def _note_lost(self) -> None:
        if self._lost_at is None:
            self._lost_at = self._outside.monotonic()

    async def _watch(self, child: Child) -> None:
        """Look for what the runner cannot end itself."""
        while True:
            await self._outside.pause(WATCH_S)
            now = self._outside.monotonic()
            silent_s = now - self._heard_at
            if self.held.has_untold(now, older_s=EARLY_S):
                self._beat_wanted.set()
            if silent_s >= SILENT_S and self.opened.is_set():
                self._look_at_silent(child, now)
            elif self._stuck_at is not None:
                # It came back to life, with a thread that nobody could stop.
                self._stuck_at = None
                self.drain("A task could not be stopped.", within_s=self._settings.drain_seconds)
            if self._is_late(now, silent_s):
                child.kill()

    def _look_at_silent(self, child: Child, now: float) -> None:
        settings = self._settings
        patience_s: dict[StopOutcome, float] = {
            "cancelled": settings.cancel_grace_seconds + settings.kill_seconds,
            "timed_out": settings.timeout_grace_seconds + settings.kill_seconds,
        }
        lost_by = math.inf if self._lost_at is None else self._lost_at + patience_s["cancelled"]
        if overdue := self.held.overdue(now, patience_s=patience_s):
            self._give_up(child, overdue)
        elif self._stuck_at is None and now >= lost_by:
            # Nothing is left to be reported of it, and nobody can stop it.
            self._give_up(child, [])
        if self._stuck_at is not None:
            over = now >= self._stuck_at + self._settings.drain_seconds
            if over or (self.held.begun_count == 0 and not self._reports):
                child.kill()
        elif self.held.begun_count == 0 and now - self._ticked_at >= self._settings.health_seconds:
            log.event("worker.stuck", worker=self.worker_id, pid=child.pid, reason="Its claim loop stands still.")
            self._replace = True
            child.kill()

    def _give_up(self, child: Child, overdue: list[Overdue]) -> None:
        """Report attempts that cannot be stopped; what waits in the runner goes to others."""
        self._replace = True
        if self._stuck_at is None:
            self._stuck_at = self._outside.monotonic()
        if not overdue:
            log.event("worker.stuck", worker=self.worker_id, pid=child.pid, reason="A task runs without its lease.")
        for late in overdue:
            log.event("worker.stuck", worker=self.worker_id, pid=child.pid, job=late.job_id, reason=late.outcome)
        child.send(frames.Lost(jobs=[*self.held.drop_waiting(), *((late.job_id, late.fence) for late in overdue)]))
        if not overdue:
            return
        task = asyncio.create_task(self._report(overdue))
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _report(self, overdue: list[Overdue]) -> None:
        await self._session.report(tuple(_entry(late) for late in overdue))
        self.held.drop([(late.job_id, late.fence) for late in overdue])

    def _is_late(self, now: float, silent_s: float) -> bool:
        """Say whether a runner that is to leave, or said that it does, will not do so by itself any more."""
        if self._said_last is not None:
            return silent_s >= SILENT_S
        if self._drain_by is None:
            return False
        by = self._drain_by + self._settings.kill_seconds
        # One that speaks may still be telling a slow server what became of its jobs.
        return now >= by + self._session.lease_s or (now >= by and silent_s >= SILENT_S)

    async def _end(self, code: int, *, pid: int) -> Ending:
        last = self._said_last
        was_open, lived_s = self.opened.is_set(), self._outside.monotonic() - self._began_at
        if self._refusal is not None:
            reason = str(self._refusal)
            await self._session.close(lost=False)
            return Ending(kind="refused", reason=reason, lived_s=lived_s, was_open=was_open, error=self._refusal)
        if isinstance(last, frames.Failed):
            await self._session.close(lost=False)
            return Ending(kind="failed", reason=last.reason, lived_s=lived_s, was_open=was_open)
        if isinstance(last, frames.Leaving):
            await self._session.close(lost=False, last_beat=self._beat())
            jobs = last.given_back_count + len(self.held)
            log.event("worker.stopped", worker=self.worker_id, reason=last.reason, jobs=jobs)
            replace = self._replace or last.replace
            return Ending(kind="left", reason=last.reason, lived_s=lived_s, was_open=was_open, replace=replace)
        how = _how(code)
        if self.is_draining and self.ready is None:
            reason = "It was told to leave before it had begun."
            await self._session.close(lost=False)
            log.event("worker.stopped", worker=self.worker_id, reason=reason, jobs=0)
            return Ending(kind="left", reason=reason, lived_s=lived_s, was_open=False)
        if self._gives_back:
            self._tell_given_back()
        else:
            log.event("worker.died", worker=self.worker_id, pid=pid, reason=how, jobs=len(self.held))
        # Said first what had begun: a job that kills its process at once must count as lost.
        await self._session.close(lost=not self._gives_back, last_beat=self._beat())
        # A runner that was killed because it was stuck is replaced at once, like one that asked for it.
        kind: Literal["left", "died"] = "left" if self._replace or self.is_draining else "died"
        return Ending(kind=kind, reason=how, lived_s=lived_s, was_open=was_open, replace=self._replace)

    def _tell_given_back(self) -> None:
        """Tell of the runner's end and of its attempts in its place: it was given no time to."""
        for job in self.held.named(self._outside.monotonic()) or ():
            ran_s = job.started or 0.0
            log.event("attempt.ended", job=job.job_id, outcome="released", run_s=ran_s, worker=self.worker_id)
        log.event("worker.stopped", worker=self.worker_id, reason="It was told to stop at once.", jobs=len(self.held))


def _entry(late: Overdue) -> wire.FailEntry:
    what = "was cancelled" if late.outcome == "cancelled" else "was out of time"
    return wire.FailEntry(
        job_id=late.job_id,
        fence=late.fence,
        outcome=late.outcome,
        error_message=f"The attempt {what} and holds the interpreter; its process is replaced. "
        "Run such tasks with isolation=process, which can be killed.",
        metrics={"stopped_by": "abandoned", "zombie": 1},
        duration_seconds=round(late.run_s, 3),
    )


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
