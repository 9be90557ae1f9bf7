"""Pools: where the bodies of jobs run, and how they are stopped.

One capacity for all kinds of bodies: functions in threads (threads.py), coroutines on a loop of their own (asyncs.py),
and either in a process (isolated.py). What finds no free slot waits in line; who ends a body takes the next, without a
hop through the loop of the worker (runner.py), which fetches what ended and tends the ladders (ladder.py).
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from windlass import log
from windlass.config.redact import Redactor
from windlass.config.settings import Worker as WorkerSettings
from windlass.wire import work as wire
from windlass.wire.trail import LogChunk, Note
from windlass.worker import endings, ladder
from windlass.worker.asyncs import Loop
from windlass.worker.attempt import Attempt, Monotonic
from windlass.worker.capture import CAPTURE
from windlass.worker.endlog import EndLog
from windlass.worker.frames import Lease
from windlass.worker.isolated import Isolated
from windlass.worker.ladder import Graces, Kind, StopWhy
from windlass.worker.runnable import Isolation, Runnable, Tasks
from windlass.worker.threads import Threads
from windlass.worker.trail import Rules, Trail

CLOSE_S = 5.0
AGAIN_S = 0.01
"""How soon to look whether the exception that is to stop a body must be raised again, or only now."""


class Ended(msgspec.Struct, frozen=True):
    """An attempt that is over."""

    job_id: UUID
    fence: int
    entry: wire.Entry | None
    """What to report; None: its lease was lost."""
    run_s: float
    zombie: bool
    """Whether its body may still run, in a thread that was given up."""
    task: str
    attempt: int
    tenant: str


class Pools:
    """The bodies of one worker. `start`, `stop`, `tend` and the `take_…` are called by one thread."""

    def __init__(
        self,
        tasks: Tasks,
        *,
        threads: int,
        isolation: Isolation,
        settings: WorkerSettings,
        app_target: str | None,
        redactor: Redactor,
        on_start: Callable[[Sequence[Lease]], None],
        may_begin: Callable[[], bool],
        wake: Callable[[], None],
        server_url: str | None = None,
        abandon_s: float = 2.0,
        clock: Monotonic = time.monotonic,
    ) -> None:
        self._tasks = tasks
        self._capacity = threads
        self._isolation: Isolation = isolation
        self._on_start = on_start
        self._may_begin = may_begin
        self._exclusive = settings.exclusive
        self._wake = wake
        self._clock = clock
        self._graces = Graces(
            cancel_s=settings.cancel_grace_seconds,
            timeout_s=settings.timeout_grace_seconds,
            kill_s=settings.kill_seconds,
            abandon_s=abandon_s,
        )
        self._rules = Rules(cap_bytes=settings.log_bytes, redactor=redactor)
        self._lock = threading.Lock()
        self._line: deque[Attempt] = deque()
        self._running: set[Attempt] = set()
        self._by_lease: dict[Lease, Attempt] = {}
        self._ended: list[Ended] = []
        self._fresh: deque[Trail] = deque()
        self._woken = False
        self._due_at = math.inf
        self._told_due_at = math.inf
        self._zombie_count = 0
        self._isolated = Isolated(app_target, settings=settings, server_url=server_url)
        self._threads = Threads(
            self._next, most=threads, has_work=self._has_work, clock=clock, isolated=self._isolated.run
        )
        self._end_log = EndLog(settings.log_jobs)
        self._loop: Loop | None = None
        self._old_loops: list[Loop] = []
        CAPTURE.install()

    @property
    def busy_count(self) -> int:
        """How many bodies run."""
        return len(self._running)

    @property
    def line_count(self) -> int:
        """How many have not begun."""
        return len(self._line)

    @property
    def free_count(self) -> int:
        """How many more could begin at once."""
        return max(0, self._capacity - len(self._running) - len(self._line))

    @property
    def zombie_count(self) -> int:
        """How many bodies were given up and may still run."""
        return self._zombie_count

    def start(self, jobs: Sequence[wire.ClaimedJob], *, now: float, worker: str | None = None) -> None:
        """Run these, in order, as slots come free."""
        attempts = []
        unknown = []
        for job in jobs:
            task = self._tasks.get(job.task)
            if task is None:
                unknown.append(_ended(job, _unknown(job)))
                continue
            attempts.append(
                Attempt(job, task, kind=self._kind(task), rules=self._rules, fresh=self._fresh, clock=self._clock)
            )
        self._end_log.worker = worker or self._end_log.worker
        with self._lock:
            self._ended += unknown
            self._by_lease.update((attempt.lease, attempt) for attempt in attempts)
            self._line.extend(attempts)
            loop_batch = self._for_loop(now)
            has_more = self._has_work()
            awake = self._is_to_wake(bool(unknown))
        for job in (attempt.job for attempt in attempts):
            log.event("job.pooled", job=job.id, task=job.task, tenant=job.tenant, attempt=job.attempt, worker=worker)
        self._to_loop(loop_batch)
        if has_more:
            self._threads.rouse()
        if awake:
            self._wake()

    def _kind(self, task: Runnable) -> Kind:
        if (task.isolation or self._isolation) == "process":
            return "process"
        return "async" if task.is_async else "thread"

    # The line: all of these with the lock held.

    def _has_work(self) -> bool:
        return bool(self._line) and len(self._running) < self._capacity and self._may_begin()

    def _begin(self, now: float) -> Attempt:
        attempt = self._line.popleft()
        self._running.add(attempt)
        due_at = attempt.begin(now)
        if due_at is not None and due_at < self._due_at:
            self._due_at = due_at
        return attempt

    def _for_loop(self, now: float) -> list[Attempt]:
        """Begin the coroutines at the head of the line."""
        batch = []
        while self._has_work() and self._line[0].kind == "async":
            batch.append(self._begin(now))
        return batch

    def _is_to_wake(self, has_news: bool) -> bool:
        if self._woken or not (has_news or self._due_at < self._told_due_at):
            return False
        self._woken = True
        return True

    def _settle(self, attempt: Attempt, ending: endings.Ending | None = None) -> None:
        """Note that an attempt is over, by `ending` or by its own."""
        self._running.discard(attempt)
        job = attempt.job
        self._by_lease.pop(attempt.lease, None)
        attempt.trail.close()
        entry = endings.entry(
            job,
            ending or attempt.ending or endings.Halted(),
            ladder=attempt.ladder,
            run_s=attempt.run_s,
            metrics=attempt.metrics,
            checkpoint=attempt.trail.checkpoint,
        )
        self._ended.append(_ended(job, entry, run_s=attempt.run_s, zombie=attempt.zombie))

    # Called by threads for bodies and by the loop.

    def _next(self, ended: Attempt | None) -> Attempt | None:
        """Note the attempt that a thread has ended, and give it the next."""
        now = self._clock()
        attempt = None
        with self._lock:
            news = ended is not None
            if ended is not None:
                self._settle(ended)
            loop_batch = self._for_loop(now)
            if self._has_work():
                attempt = self._begin(now)
                loop_batch += self._for_loop(now)
            has_more = self._has_work()
            awake = self._is_to_wake(news)
        if attempt is not None:
            # Not several at once: a job that may run at most once is dead if it was named and then given back.
            self._on_start((attempt.lease,))
        self._to_loop(loop_batch)
        if has_more:
            self._threads.rouse()
        if awake:
            self._wake()
        return attempt

    def _swap(self, ended: Sequence[Attempt]) -> Sequence[Attempt]:
        """Note the attempts that a loop has ended, and give it the next."""
        now = self._clock()
        with self._lock:
            for attempt in ended:
                if not attempt.zombie:
                    self._settle(attempt)
            batch = self._for_loop(now)
            has_more = self._has_work()
            awake = self._is_to_wake(True)
        if batch:
            self._on_start([attempt.lease for attempt in batch])
        if has_more:
            self._threads.rouse()
        if awake:
            self._wake()
        return batch

    def _to_loop(self, batch: list[Attempt]) -> None:
        if not batch:
            return
        self._on_start([attempt.lease for attempt in batch])
        with self._lock:
            if self._loop is None:
                self._loop = Loop(self._swap, clock=self._clock)
            loop = self._loop
        loop.give(batch)

    # Called by the worker's loop.

    def take_ended(self) -> list[Ended]:
        """Return everything that ended since the last time."""
        with self._lock:
            self._woken = False
            ended, self._ended = self._ended, []
        self._end_log.add(ended)
        return ended

    def take_trail(self) -> tuple[list[LogChunk], list[Note]]:
        """Return logs and notes since the last time; those of attempts that were taken as ended are among them."""
        chunks: list[LogChunk] = []
        notes: list[Note] = []
        now = self._clock()
        for _ in range(len(self._fresh)):
            written, note = self._fresh.popleft().take(now)
            chunks += written
            if note is not None:
                notes.append(note)
        return chunks, notes

    def exclusive_leases(self) -> list[Lease]:
        """Return the leases of bodies that must not run without one."""
        with self._lock:
            return [attempt.lease for attempt in self._running if self._exclusive or attempt.task.exclusive]

    def take_line(self) -> list[wire.ClaimedJob]:
        """Take back what has not begun."""
        with self._lock:
            attempts = list(self._line)
            self._line.clear()
            for attempt in attempts:
                del self._by_lease[attempt.lease]
        return [attempt.job for attempt in attempts]

    def stop(self, lease: Lease, why: StopWhy) -> None:
        """Begin to stop an attempt; one still in line is over at once, one that is unknown was over before."""
        now = self._clock()
        with self._lock:
            attempt = self._by_lease.get(lease)
            if attempt is None:
                return
            if attempt in self._running:
                awake = False
            else:
                self._line.remove(attempt)
                del self._by_lease[lease]
                job = attempt.job
                entry = endings.unbegun(job, why)
                self._ended.append(_ended(job, entry))
                awake = self._is_to_wake(True)
        if attempt.began_at is not None:
            self._ask(attempt, why, now)
        if awake:
            self._wake()

    def _ask(self, attempt: Attempt, why: StopWhy, now: float) -> None:
        """Set the flag, or the weightier reason for one that is set."""
        first = attempt.ladder is None
        if attempt.ladder is None:
            attempt.ladder = ladder.begin(attempt.kind, why, now=now, graces=self._graces)
        else:
            attempt.ladder = ladder.again(attempt.ladder, why, now=now, graces=self._graces)
        if attempt.ladder.next_at is not None:
            with self._lock:
                self._due_at = min(self._due_at, attempt.ladder.next_at)
        if first and attempt.place is not None:
            attempt.place.press(attempt, "flag")

    def tend(self, now: float) -> float | None:
        """Move ladders and time-outs on; return when to call again, None when nothing is under way."""
        if now >= self._due_at:
            with self._lock:
                running = list(self._running)
                self._due_at = math.inf
            due_at = min((self._advance(attempt, now) for attempt in running), default=math.inf)
            with self._lock:
                # A body that began meanwhile may be due earlier.
                self._due_at = min(self._due_at, due_at)
        self._told_due_at = self._due_at
        return None if self._told_due_at == math.inf else self._told_due_at

    def _advance(self, attempt: Attempt, now: float) -> float:
        """Move one attempt on; return when it is due again."""
        if not attempt.open:
            return math.inf
        if attempt.ladder is None:
            if attempt.due_at is None or now < attempt.due_at:
                look_at = attempt.look_at(now)
                return math.inf if look_at is None else look_at
            self._ask(attempt, "timeout", now)
        elif moved := ladder.step(attempt.ladder, now, graces=self._graces):
            attempt.ladder = moved
            if moved.rung == "abandoned":
                self._abandon(attempt, now)
            elif attempt.place is not None:
                attempt.place.press(attempt, moved.rung)
        elif attempt.unpressed and attempt.place is not None:
            attempt.place.press(attempt, attempt.ladder.rung)
        if attempt.ladder is None or attempt.ladder.next_at is None:
            return math.inf
        next_at = attempt.ladder.next_at
        # Its exception may be lost at any time until it has ended.
        return min(next_at, now + AGAIN_S) if attempt.ladder.rung == "exception" else next_at

    def _abandon(self, attempt: Attempt, now: float) -> None:
        """Give up a body that does not stop: its slot is free, its late end is ignored."""
        if not attempt.shut(now, zombie=True):
            return
        old = None
        with self._lock:
            self._zombie_count += 1
            self._settle(attempt, endings.Halted())
            if attempt.kind == "async" and self._loop is not None and self._loop.stands_still:
                old, self._loop = self._loop, None
            awake = self._is_to_wake(True)
            loop_batch = self._for_loop(now)
            has_more = self._has_work()
        log.event("job.abandoned", job=attempt.job.id, task=attempt.job.task, run_s=round(attempt.run_s, 3))
        if old is not None:
            self._old_loops.append(old)
        if attempt.kind != "async":
            self._threads.lose()
        self._to_loop(loop_batch)
        if has_more:
            self._threads.rouse()
        if awake:
            self._wake()

    async def close(self) -> None:
        """End all that still runs, as far as it can be ended; what is in line is forgotten."""
        with self._lock:
            self._line.clear()
        self._threads.close()
        loops = [loop for loop in (self._loop, *self._old_loops) if loop is not None]
        for loop in loops:
            loop.close()
        await asyncio.to_thread(self._isolated.close)
        for loop in loops:
            if not loop.stands_still:
                await asyncio.to_thread(loop.join, CLOSE_S)
        await asyncio.to_thread(self._end_log.close)
        CAPTURE.remove()


def _ended(job: wire.ClaimedJob, entry: wire.Entry | None, *, run_s: float = 0.0, zombie: bool = False) -> Ended:
    return Ended(job.id, job.fence, entry, run_s, zombie, job.task, job.attempt, job.tenant)


def _unknown(job: wire.ClaimedJob) -> wire.Entry:
    """Give back a job whose task is not known here: claims name the tasks, so this is for another worker."""
    return wire.ReleaseEntry(job_id=job.id, fence=job.fence, reason=f"This worker has no task {job.task!r}."[:2000])
