"""The engine: everything a server does behind its door, usable in any process.

Submit, claim, report and heartbeat are batched and answered after their commit; claims wait for work; what people do to
jobs wakes those who must know; duties run under their leases. `Engine.running` starts all of it and ends it in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from windlass import __version__
from windlass.config import Settings
from windlass.db import Database, dbclock
from windlass.engine import journal
from windlass.engine.acts import Acts, stop_margin_ms, timeout_grace_ms
from windlass.engine.asides import aside_duties, erase_duty
from windlass.engine.batch import SURELY_ABORTED, Batcher, Flush, Weigh
from windlass.engine.changes import Changes
from windlass.engine.dispatch import Dispatch
from windlass.engine.duty import queue_duties
from windlass.engine.fair import LargeWrites, LoopTurns, Recent
from windlass.engine.firing import Firing
from windlass.engine.gauges import Gauges
from windlass.engine.keptback import claim_kept
from windlass.engine.line import Ask, Handout, Waiter
from windlass.engine.looks import Looks
from windlass.engine.loops import Loops
from windlass.engine.meters import Meters
from windlass.engine.outside import Outside
from windlass.engine.relay import Relay
from windlass.engine.schedules import Schedules
from windlass.engine.sessions import CALLED, Present, Sessions, Told
from windlass.engine.sessionwaits import SessionWaits
from windlass.engine.signatures import Signatures
from windlass.engine.statsd import StatsD
from windlass.engine.trail import Trail
from windlass.engine.waits import Waits
from windlass.engine.wake import Wake
from windlass.engine.weights import weight_of_beat, weight_of_jobs, weight_of_reports
from windlass.engine.whole import whole_duties
from windlass.errors import CommitUnknown, Conflict, Unavailable, WindlassError
from windlass.ids import Ids
from windlass.job import FINAL_STATES
from windlass.queue import claim as claiming
from windlass.queue import presence, workers
from windlass.queue.claim import Claimed
from windlass.queue.lanes import Lanes
from windlass.queue.moves import Moved
from windlass.queue.newjob import NewJob
from windlass.queue.report import Answer, Complete, Fail, Report, Status, report
from windlass.queue.submit import Submitted, submit_requests
from windlass.queue.workers import Beat, BeatAnswer, NewSession

RESTART_PAUSE_S = 1.0
BEATS_S = 0.05
"""Heartbeats are gathered so long into one flush: nobody waits for their answers."""
REPEATABLE = (*SURELY_ABORTED, CommitUnknown)

logger = logging.getLogger("windlass")


class Engine:
    """One server's engine."""

    def __init__(
        self, db: Database, settings: Settings, *, name: str, outside: Outside, address: str | None = None
    ) -> None:
        self.db = db
        self.settings = settings
        self.name = name
        self.ids = ids = Ids(db.now)
        self.id = ids.new()
        self.lanes = Lanes()
        self.meters = Meters(settings.metrics.prefix)
        self.wake = Wake(db, server=self.id, outside=outside)
        self.waits = Waits(db, self.wake, outside=outside)
        self.session_waits = SessionWaits(db, self.wake, outside=outside)
        self.changes = Changes(db, self.wake, outside=outside)
        self.acts = Acts(db, self.lanes, ids, wake=self.wake, margin_ms=stop_margin_ms(settings))
        self.recent = Recent(outside.monotonic)
        self.loop_turns = LoopTurns()
        self._large_writes = LargeWrites(self.recent, outside, one_writer=db.capabilities.one_writer)
        large = self._large_writes.turn
        self.signatures = Signatures(db, settings, wake=self.wake, outside=outside, turns=self.loop_turns, large=large)
        given, turn, keep_days = self.signatures.given, self.acts.turn, settings.retention.days
        self.schedules = Schedules(
            db, self.lanes, ids, wake=self.wake, turn=turn, large=large, given=given, keep_days=keep_days
        )
        self.draining = False
        self._claims = True
        self.outside = outside
        self._open_lines()
        self.trail = Trail(db, settings, line=self._line, again=REPEATABLE, turns=self.loop_turns)
        self._dispatch = Dispatch(
            *(db, self.lanes, ids, self.recent),
            wake=self.wake,
            give_back=self._give_back,
            outside=outside,
            observe=self.meters.handed,
        )
        self._sessions = Sessions(
            db, ids, self.wake, beats=self._beats, lease_ms=round(settings.jobs.lease_seconds * 1000), outside=outside
        )
        self.gauges = Gauges(db, settings, self.meters.registry, queue_name=self.meters.queue_name, outside=outside)
        often_s = min(settings.duties.expire_seconds, settings.schedules.tick_seconds)
        self._looks = Looks(period_s=often_s, monotonic=outside.monotonic)
        self.loops = self._loops(address)
        self._looks.connect(self.loops, self.wake, notifies=db.capabilities.notify)
        self.wake.on_duties.append(self.loops.notice)
        self.wake.others = lambda: self.loops.live_count > 1
        statsd = settings.metrics.statsd_address
        self._statsd = None if statsd is None else StatsD(statsd, gauges=self._gauged, outside=outside)
        self.meters.long_polls.set_function(lambda: self.waiting_count)

    def _open_lines(self) -> None:
        # Where there is one writer a second line would only make batches smaller.
        lines = 1 if self.db.capabilities.one_writer else 2
        self._submits: Batcher[Sequence[NewJob], list[Submitted]] = self._line(
            "submit", self._submit, weight_of_jobs, lines=lines
        )
        # A report says the same twice without harm, so one whose fate is unknown is simply said again.
        self._reports: Batcher[Sequence[Report], list[Answer]] = self._line(
            "report", self._report, weight_of_reports, lines=lines, again=REPEATABLE, room=100_000
        )
        self._beats: Batcher[Beat, BeatAnswer] = self._line(
            "heartbeat", self._beat, weight_of_beat, again=REPEATABLE, room=100_000, gather_s=BEATS_S
        )

    def _line(
        self,
        name: str,
        flush: Flush[Any, Any],
        weigh: Weigh[Any],
        *,
        lines: int = 1,
        again: tuple[type[Unavailable], ...] = SURELY_ABORTED,
        room: int = 20_000,
        gather_s: float = 0.0,
    ) -> Batcher[Any, Any]:
        return Batcher(
            name,
            flush,
            weigh=weigh,
            lines=lines,
            again=again,
            room=room,
            gather_s=gather_s,
            outside=self.outside,
            observe=self.meters.flushed,
            large_writes=self._large_writes,
        )

    def _loops(self, address: str | None) -> Loops:
        settings, outside, looks, wake, meters = self.settings, self.outside, self._looks, self.wake, self.meters
        fill, given, erase = self.signatures.fill, self.signatures.given, erase_duty(self.ids, self.acts.wipe)
        relay = Relay(self.lanes, settings, looks, wake=wake, fill=fill, stored=self._relayed, ended=self.moved)
        fires = Firing(
            self.lanes, self.ids, looks, settings=settings, wake=wake, meters=meters, outside=outside, given=given
        )
        asides = aside_duties(self.lanes, self.ids, looks, given=given, stored=self._relayed, meters=meters)
        duties = queue_duties(
            wake,
            outside.chance,
            looks=looks,
            periods=settings.duties,
            days=settings.retention.days,
            dead_days=settings.retention.dead_days,
            told=self.moved,
        )
        return Loops(
            self.db,
            wake,
            [*duties, relay.duty, *fires.duties, *asides, erase, *whole_duties(settings, outside.monotonic)],
            holder=self.id,
            server=self.name,
            settings=settings.duties,
            version=__version__,
            address=address,
            monotonic=outside.monotonic,
            chance=outside.chance,
            sleep=outside.pause,
        )

    @asynccontextmanager
    async def running(self, *, claims: bool = True) -> AsyncIterator[Engine]:
        """Run everything until the block ends; then answer who waits, finish what is under way, hand duties over.

        Without `claims` it hands out nothing and does no duties: it submits and looks, beside the servers.
        """
        parts = {"wake": self.wake.run, "waits": self.waits.run, "session-waits": self.session_waits.run}
        parts["clock"] = lambda: dbclock.keep(self.db, self.outside.pause)
        self._claims = claims
        if claims:
            parts |= {"dispatch": self._dispatch.run, "duties": self.loops.run}
        else:
            self.wake.others = lambda: True  # who is no server counts no servers, and there may be some
        if self._statsd is not None and claims:
            parts["statsd"] = self._statsd.run
        tasks = [asyncio.create_task(self._keep(name, part), name=name) for name, part in parts.items()]
        try:
            yield self
        finally:
            await self.drain()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def drain(self) -> None:
        """Take no more work: those who wait are answered, requests under way finish, duties go to others."""
        self.draining = True
        self.waits.answer_all()
        self.session_waits.answer_all()
        self.changes.stop()
        await self._large_writes.stop()
        await self._dispatch.stop()
        await self.loops.stop()
        await self._sessions.idle()
        for line in (self._submits, self._reports, self._beats, self.trail.line):
            await line.idle()
        with suppress(WindlassError):  # others look by themselves in a while
            await self.wake.flush()

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Store the jobs of one request, all or none; answered after the commit."""
        return await self._submits.ask(jobs)

    async def claim(self, ask: Ask) -> Handout:
        """Return jobs for a worker, waiting for them as long as it asks; an empty handout when none came."""
        if self.draining:
            raise Unavailable("This server is stopping. Ask another one.")
        if not self._claims:
            raise Conflict("This program only submits and looks. Claim from a server: `windlass up` starts one.")
        if ask.session is not None:
            session = await self._sessions.find(ask.session, tenant=ask.tenant, worker=ask.worker)
            if session.draining:
                return Handout([])
            ask = msgspec.structs.replace(ask, lease_ms=session.lease_ms)
            if jobs := await claim_kept(self.db, self.lanes, ask, session):
                journal.claimed(ask, jobs)
                self.meters.handed(jobs, len(jobs))
                return Handout(jobs)
        else:
            caller = await self.seen(ask.tenant, ask.worker, Told(lease_ms=ask.lease_ms if ask.lease_asked else 0))
            if caller.draining:
                return Handout([])
            if caller.lease_asked and not ask.lease_asked:
                ask = msgspec.structs.replace(ask, lease_ms=caller.lease_ms)
        # Short of room, the server takes on less before it refuses what is brought to it.
        room = 1.0 - max(line.fullness(ask.tenant) for line in (self._submits, self._reports))
        if room < 1.0:
            ask = msgspec.structs.replace(ask, count=max(1, int(ask.count * room)))
        handout = await self._dispatch.claim(ask)
        if handout.jobs:
            journal.claimed(ask, handout.jobs)
            self.wake.changed()
        return handout

    @property
    def waiting_count(self) -> int:
        """How many claims wait at this server."""
        return self._dispatch.waiting_count

    async def report(self, reports: Sequence[Report]) -> list[Answer]:
        """Record how attempts ended; answered item by item, after the commit."""
        answers = await self._reports.ask(reports)
        self._sessions.reported(reports)
        return answers

    async def heartbeat(self, beat: Beat, *, worker: str | None = None) -> BeatAnswer:
        """Renew a session and reconcile what it holds; NotFound if it is not the named worker's."""
        if worker is not None:
            await self._sessions.check_worker(beat.session, tenant=beat.tenant, worker=worker)
        beat = msgspec.structs.replace(self._sessions.heartbeat(beat), heard_at=self.outside.monotonic())
        return await self._beats.ask(beat)

    async def register(self, session: NewSession) -> None:
        """Open a session, or say the same of it again; Conflict if it has ended or is another worker's."""
        if await workers.register(self.db, session):
            journal.registered(session)

    async def register_presence(self, session: NewSession, *, lease_asked: bool) -> None:
        """Note what a worker says of itself that names no session; it may open this one later, or keep none."""
        await presence.register(self.db, session, lease_asked=lease_asked)
        self._sessions.registered(session.tenant, session.worker)
        journal.registered(session)

    async def seen(self, tenant: str, worker: str, told: Told = CALLED) -> Present:
        """Take a call of a bare caller as its sign of life; return its presence, as it was known before."""
        return await self._sessions.seen(tenant, worker, told)

    async def _submit(self, requests: Sequence[Sequence[NewJob]]) -> list[list[Submitted] | WindlassError]:
        answers = await submit_requests(self.db, self.lanes, requests)
        with journal.after_commit("submit"):
            self._submitted(requests, answers)
        return answers

    def _relayed(
        self, requests: Sequence[Sequence[NewJob]], answers: Sequence[list[Submitted] | WindlassError]
    ) -> None:
        with journal.after_commit("relay"):
            self._submitted(requests, answers)

    def _submitted(
        self, requests: Sequence[Sequence[NewJob]], answers: Sequence[list[Submitted] | WindlassError]
    ) -> None:
        journal.submitted(requests, answers)
        ranks: dict[int, int] = {}
        counts: Counter[str] = Counter()
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, WindlassError):
                continue
            for job, stored in zip(request, answer, strict=True):
                counts[job.queue] += not stored.duplicate
                if stored.lane is not None and stored.rank is not None:
                    ranks[stored.lane] = min(stored.rank, ranks.get(stored.lane, stored.rank))
        self.meters.stored(counts)
        for lane, rank in ranks.items():
            self.wake.ready(lane, rank)

    async def _report(self, requests: Sequence[Sequence[Report]]) -> list[list[Answer] | WindlassError]:
        reports = [item for request in requests for item in request]
        answers = await report(self.db, reports, chance=self.outside.chance)
        with journal.after_commit("report"):
            self.meters.reported(reports, answers, self.lanes)
            try:
                # Before anybody is woken, so that the next claim of a job is told after its end.
                await journal.reported(reports, answers)
            finally:  # also where the time of the flush is over
                for item, answer in zip(reports, answers, strict=True):
                    self._reported(item, answer)
        given = iter(answers)
        return [[next(given) for _ in request] for request in requests]

    async def moved(self, moves: Sequence[Moved]) -> None:
        """Note leases that others than their workers have ended."""
        for moved in moves:
            self.meters.moved(moved.move, self.lanes.get(moved.move.lease.lane))
        await journal.moved(moves)

    def _reported(self, item: Report, answer: Answer) -> None:
        lane = None if answer.lane is None else self.lanes.get(answer.lane)
        if answer.status is Status.APPLIED:
            self._sessions.count(item, answer)
            if self._statsd is not None and lane is not None and isinstance(item, Complete | Fail):
                status = item.outcome.name.lower() if isinstance(item, Fail) else "succeeded"
                self._statsd.executed(lane.name.task, status, run_ms=answer.run_ms)
        if answer.prefer_same_worker and item.session is not None:
            self.wake.kept(item.session)
        if answer.status is not Status.APPLIED or answer.lane is None:
            return
        if answer.rank is not None:
            self.wake.ready(answer.lane, answer.rank)
        if lane is None or lane.limited:
            self.wake.freed(answer.lane)
        if answer.state in FINAL_STATES:
            self.wake.ended(item.job_id)

    async def _gauged(self) -> dict[str, float]:
        try:
            await self.gauges.refresh()
        except WindlassError:
            return {}
        # Read from the database, so that every server sends the same. Where nobody leads, every server fires.
        leaders = self.gauges.leaders if self.settings.duties.mode == "lease" else self.loops.live_count
        return {"job.queue_depth": self.gauges.pending, "scheduler.leader_count": leaders}

    async def _beat(self, beats: Sequence[Beat]) -> list[BeatAnswer | WindlassError]:
        grace_ms, now_s = timeout_grace_ms(self.settings), self.outside.monotonic()
        answers = await workers.heartbeat(self.db, beats, timeout_grace_ms=grace_ms, elapsed_s=now_s)
        self.meters.lateness.observe_all([late_ms / 1000 for answer in answers for late_ms in answer.late_ms])
        return list(answers)

    async def _give_back(self, gone: Sequence[tuple[Claimed, Waiter]]) -> None:
        """Return jobs whose claimers had hung up; if even that fails, their leases lapse."""
        try:
            await self.undo([job for job, _ in gone])
        except WindlassError as error:
            logger.warning("%d jobs of a claimer that had gone could not be given back yet: %s", len(gone), error)

    async def undo(self, jobs: Sequence[Claimed]) -> None:
        """Take back jobs that were claimed and never handed out: as if nobody had claimed them, but for the fence."""
        self.meters.released_unheard.inc(len(jobs))
        for job in await claiming.undo(self.db, jobs):
            self.wake.ready(job.lane, job.rank)

    async def _keep(self, name: str, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a part of the engine for ever: what it could not foresee is logged, and it begins anew."""
        while True:
            try:
                return await part()
            except Exception:
                logger.exception("The engine's %s failed and starts again.", name)
                await self.outside.pause(RESTART_PAUSE_S)
