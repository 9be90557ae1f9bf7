"""Stand-ins for what is around a keeper: a runner that says what it is told to, a server, and time that is moved."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import msgspec

from windlass.config.settings import Settings, Worker
from windlass.engine.outside import Outside
from windlass.errors import WindlassError
from windlass.wire import work as wire
from windlass.worker import frames
from windlass.worker.keeper import Ending, Keeper

SETTLE_ROUNDS = 50
PATIENCE_S = 30.0


class MovedTime:
    """Elapsed time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    @property
    def outside(self) -> Outside:
        """What a keeper is given."""
        return Outside(monotonic=lambda: self.now, pause=self._pause, chance=lambda: 1.0)

    async def pass_by(self, seconds: float) -> None:
        """Let so much time pass, and all that is due in it happen."""
        until = self.now + seconds
        await settle()
        while self._waiting and self._waiting[0][0] <= until:
            at, _, waiting = heapq.heappop(self._waiting)
            self.now = max(self.now, at)
            if not waiting.done():
                waiting.set_result(None)
            await settle()
        self.now = until

    async def _pause(self, seconds: float) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self.now + seconds, next(self._order), waiting))
        await waiting


class ToldRunner:
    """A runner that says what a test lets it say."""

    def __init__(self, pid: int = 4711) -> None:
        self.pid = pid
        self.sent: list[frames.FromKeeper] = []
        self._words: asyncio.Queue[frames.FromRunner | None] = asyncio.Queue()
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def say(self, *words: frames.FromRunner) -> None:
        """Say these words."""
        for word in words:
            self._words.put_nowait(word)

    def end(self, code: int) -> None:
        """End with this code."""
        if not self._code.done():
            self._words.put_nowait(None)
            self._code.set_result(code)

    def heard(self, kind: type[frames.FromKeeper]) -> list[frames.FromKeeper]:
        """Return what it was told of this kind."""
        return [frame for frame in self.sent if isinstance(frame, kind)]

    def forget(self, kind: type[frames.FromKeeper]) -> None:
        """Forget what it was told of this kind."""
        self.sent = [frame for frame in self.sent if not isinstance(frame, kind)]

    def has_ended(self) -> bool:
        """Whether it is gone."""
        return self._code.done()

    def send(self, frame: frames.FromKeeper) -> None:
        """Be told something."""
        self.sent.append(frame)

    async def frames(self) -> AsyncIterator[frames.FromRunner]:
        """Yield what it says."""
        while (word := await self._words.get()) is not None:
            yield word

    async def ended(self) -> int:
        """Wait for its end."""
        return await asyncio.shield(self._code)

    def kill(self) -> None:
        """End as by SIGKILL."""
        self.end(-9)

    def let_go(self) -> None:
        """Nothing is to be closed."""


NOTHING = wire.Beat(cancel=[], lost=[], released=[], drain=False)


class ToldServer:
    """A server that answers what a test wants; a link to it."""

    def __init__(self) -> None:
        self.registered: list[wire.RegisterRequest] = []
        self.beats: list[wire.BeatRequest] = []
        self.reports: list[wire.ReportRequest] = []
        self.closed: list[tuple[UUID, bool]] = []
        self.lease_s = 30.0
        """Of who names none."""
        self.failing: list[WindlassError] = []
        """Errors that the next calls get, one each."""
        self.down: WindlassError | None = None
        """What every call gets."""
        self.next_beat = wire.Beat(cancel=[], lost=[], released=[], drain=False)
        self.waiting: list[tuple[wire.BeatRequest, asyncio.Future[wire.Beat]]] = []
        """Heartbeats that wait for news."""

    async def register(self, request: wire.RegisterRequest) -> wire.Registered:
        """Open a session."""
        self._fail()
        self.registered.append(request)
        assert request.session is not None
        lease_s = request.lease_seconds or self.lease_s
        return wire.Registered(
            worker_id=request.worker_id,
            session=request.session,
            start_id=request.session,
            lease_seconds=lease_s,
            heartbeat_seconds=lease_s / 3,
        )

    async def heartbeat(self, request: wire.BeatRequest) -> wire.Beat:
        """Answer as told, once; one that waits, when there is news."""
        if request.wait:
            news: asyncio.Future[wire.Beat] = asyncio.get_running_loop().create_future()
            self.waiting.append((request, news))
            return await news
        self._fail()
        self.beats.append(request)
        answer, self.next_beat = self.next_beat, wire.Beat(cancel=[], lost=[], released=[], drain=False)
        return answer

    def tell(self, **news: Any) -> None:
        """Answer the heartbeat that waits."""
        [(_, waiting)] = [(request, answer) for request, answer in self.waiting if not answer.done()]
        waiting.set_result(msgspec.structs.replace(NOTHING, **news))

    async def claim(self, request: wire.ClaimRequest) -> wire.Claim:
        """A keeper claims nothing."""
        raise AssertionError(request)

    async def report(self, request: wire.ReportRequest) -> wire.Answers:
        """Take reports."""
        self._fail()
        self.reports.append(request)
        return wire.Answers(answers=[])

    async def close(self, worker_id: str, *, session: UUID, lost: bool = False) -> None:
        """End a session."""
        self._fail()
        self.closed.append((session, lost))

    async def aclose(self) -> None:
        """Nothing is to be closed."""

    def _fail(self) -> None:
        if self.failing:
            raise self.failing.pop(0)
        if self.down is not None:
            raise self.down


class Kept:
    """A keeper with its runner, its server and its time."""

    def __init__(self, settings: Settings | None = None, *, register_within_s: float | None = 10.0) -> None:
        self.time = MovedTime()
        self.runner = ToldRunner()
        self.server = ToldServer()
        self.keeper = Keeper(
            "worker-1",
            self._start,
            link=self.server,
            settings=settings or quick(),
            outside=self.time.outside,
            register_within_s=register_within_s,
        )
        self.running = asyncio.create_task(self.keeper.run())

    async def _start(self) -> ToldRunner:
        return self.runner

    async def opened(self) -> UUID:
        """Let the runner be ready and claim, and its first heartbeat be answered; return its session."""
        self.runner.say(READY, frames.Tick(jobs_done=0))
        await settle()
        [opened] = self.runner.heard(frames.Opened)
        assert isinstance(opened, frames.Opened)
        [_] = self.server.beats
        self.server.beats.clear()
        self.runner.forget(frames.Renewed)
        return opened.session

    async def pass_ticking(self, seconds: int) -> None:
        """Let time pass while the runner's claim loop advances."""
        for _ in range(seconds):
            self.runner.say(frames.Tick(jobs_done=0))
            await self.time.pass_by(1.0)

    async def ended(self) -> Ending:
        """Wait until the keeper is done; return how its runner ended."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.running

    async def stop(self) -> None:
        """End what is still under way."""
        self.runner.end(0)
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


READY = frames.Ready(tasks=["add"], signatures={})


def quick(**worker: object) -> Settings:
    """Return settings with a lease of 30 s, and these of `worker`."""
    given = {
        "cancel_grace_seconds": 30.0,
        "timeout_grace_seconds": 6.0,
        "kill_seconds": 5.0,
        "drain_seconds": 300.0,
        "spot_notice": "off",
    } | worker
    return Settings(worker=Worker(**given))  # type: ignore[arg-type]


async def settle() -> None:
    """Let everything that can happen now happen."""
    for _ in range(SETTLE_ROUNDS):
        await asyncio.sleep(0)
