"""Servers that do duties, on one database, in a world whose time passes only when a test says so.

world = World(db, clock)
one, two = world.server(), world.server()
await world.pass_s(10)
assert {"promote": 1} == one.loops.held

Every server sleeps by the world's time; `pass_s` goes from one awakening to the next and lets everybody finish what
they do in between. A frozen server is a stopped process: it neither wakes nor sends, while time passes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from tests.clock import TestClock
from windlass.db import Database, Query, Row, Statements
from windlass.engine.duty import Duty, Ran
from windlass.engine.loops import Loops

QUIET_TURNS = 25
"""So many turns of the event loop without a statement under way: nobody is doing anything."""

STOP_S = 8
"""So long after its stop every server has ended, also one that waits for an answer."""


@dataclass(frozen=True)
class Pace:
    """Settings of the duties, as they are by default."""

    mode: str = "lease"
    heartbeat_seconds: float = 2.0
    lease_seconds: float = 6.0
    standby_seconds: float = 0.5
    rotate_seconds: float = 0.0
    expire_seconds: float = 0.5
    cleanup_seconds: float = 3600.0


@dataclass
class Wake:
    """Keeps what it was told; that a duty was given up, it tells the other servers."""

    tell: Callable[[], None] = lambda: None
    told: list[tuple[Any, ...]] = field(default_factory=list)

    def ready(self, lane: int, rank: int) -> None:
        """Keep it."""
        self.told.append(("ready", lane, rank))

    def freed(self, lane: int) -> None:
        """Keep it."""
        self.told.append(("freed", lane))

    def ended(self, job_id: UUID) -> None:
        """Keep it."""
        self.told.append(("ended", job_id))

    def session(self, session: UUID) -> None:
        """Nobody waits for it here."""

    def duties(self) -> None:
        """Keep it, and tell the others."""
        self.told.append(("duties",))
        self.tell()


class Line:
    """A server's way to the database: it can be slow, cut, or frozen with its server."""

    def __init__(self, db: Database, answered: asyncio.Event | None = None) -> None:
        self._db = db
        self.dialect = db.dialect
        self.capabilities = db.capabilities
        self.under_way = 0
        self._answered = answered or asyncio.Event()
        self.asked: list[str] = []
        self.fails: Exception | None = None
        self.fails_after: dict[str, Exception] = {}
        """Errors raised once when the query of this name has been done: its answer is lost."""
        self.late: dict[str, asyncio.Event] = {}
        """Answers to queries of these names come when the event is set."""
        self.thawed = asyncio.Event()
        self.thawed.set()

    @asynccontextmanager
    async def _sent(self) -> AsyncIterator[None]:
        await self.thawed.wait()
        if self.fails:
            raise self.fails
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            self._answered.set()

    def now(self) -> datetime:
        """Return the time by the real one's clock."""
        return self._db.now()

    async def read_clock(self) -> None:
        """Read the real one's clock."""
        await self._db.read_clock()

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query."""
        async with self._sent():
            self.asked.append(query.name)
            rows = await self._db.fetch(query, **parameters)
        if query.name in self.late:
            await self.late.pop(query.name).wait()
        if query.name in self.fails_after:
            raise self.fails_after.pop(query.name)
        return rows

    async def run(self, script: str) -> None:
        """Run a script."""
        await self._db.run(script)

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        """Open a transaction."""
        async with self._sent(), self._db.transaction(tracked=tracked) as statements:
            yield _Inside(statements, self.asked)

    async def maintain(self, statement: str) -> None:
        """Run one statement."""
        async with self._sent():
            await self._db.maintain(statement)

    async def empty_log(self) -> bool:
        """Empty the log."""
        async with self._sent():
            return await self._db.empty_log()

    async def notify(self, channel: str, payload: str) -> None:
        """Send nothing."""

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listen for hints."""
        return self._db.listen(channel)

    async def version(self) -> str:
        """Return the real one's."""
        return await self._db.version()

    async def close(self) -> None:
        """Leave the real one open."""


class _Inside:
    """The statements of a transaction, whose names are kept too."""

    def __init__(self, statements: Statements, asked: list[str]) -> None:
        self._statements = statements
        self._asked = asked
        self.dialect = statements.dialect
        self.capabilities = statements.capabilities

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run one query."""
        self._asked.append(query.name)
        return await self._statements.fetch(query, **parameters)

    async def run(self, script: str) -> None:
        """Run a script."""
        await self._statements.run(script)

    @asynccontextmanager
    async def transaction(self, *, tracked: bool = False) -> AsyncIterator[Statements]:
        """Join it."""
        yield self


class Server:
    """One server: its loops, its way to the database, and who sleeps in it until when."""

    def __init__(self, world: World, duties: Sequence[Duty], pace: Pace, name: str) -> None:
        self.line = Line(world.db, world.answered)
        self.wake = Wake(tell=lambda: world.tell_others(self))
        self.id = uuid4()
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self.loops = Loops(
            self.line,
            self.wake,
            duties,
            holder=self.id,
            server=name,
            settings=pace,
            monotonic=lambda: world.now_s,
            chance=lambda: 0.5,
            sleep=self._sleep,
        )
        self.world = world
        self.task: asyncio.Task[None] | None = None

    @property
    def frozen(self) -> bool:
        """Whether its process is stopped."""
        return not self.line.thawed.is_set()

    def start(self) -> Server:
        """Let it begin."""
        self.task = asyncio.create_task(self.loops.run())
        return self

    def freeze(self) -> None:
        """Stop its process."""
        self.line.thawed.clear()

    def thaw(self) -> None:
        """Let its process go on."""
        self.line.thawed.set()

    async def _sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.world.now_s + seconds, woken))
        await woken


class World:
    """The servers, and the time they share."""

    def __init__(self, db: Database, clock: TestClock) -> None:
        self.db = db
        self.clock = clock
        self.now_s = 1000.0
        self.servers: list[Server] = []
        self.answered = asyncio.Event()
        """Set whenever a server has an answer of the database."""
        self._numbers = itertools.count(1)

    def server(self, *duties: Duty, name: str | None = None, start: bool = True, **pace: Any) -> Server:
        """Return a new server with these duties."""
        made = Server(self, duties, Pace(**pace), name or f"server-{next(self._numbers)}")
        self.servers.append(made)
        return made.start() if start else made

    def tell_others(self, teller: Server) -> None:
        """Let every other server know that a duty was given up, as NOTIFY does."""
        for server in self.servers:
            if server is not teller:
                server.loops.notice()

    def held(self) -> list[set[str]]:
        """Return what each server holds."""
        return [set(server.loops.held) for server in self.servers]

    async def pass_s(self, seconds: float) -> None:
        """Let time pass: whoever sleeps is woken when it is due, and everybody comes to rest before it goes on."""
        end_s = self.now_s + seconds
        await self.settle()
        while (due_s := min((s for server in self._awake() for s, _ in server.sleepers), default=end_s + 1)) <= end_s:
            self._move_to(max(due_s, self.now_s))
            self._wake_sleepers()
            await self.settle()
        self._move_to(end_s)

    async def settle(self) -> None:
        """Return when nobody does anything any more without time passing."""
        quiet = 0
        async with asyncio.timeout(20):
            while quiet < QUIET_TURNS:
                await asyncio.sleep(0)
                quiet += 1
                while any(server.line.under_way for server in self._awake()):
                    self.answered.clear()
                    await self.answered.wait()
                    quiet = 0

    async def end(self) -> None:
        """Stop every server."""
        for server in self.servers:
            server.line.fails = None
            server.thaw()
            stopping = asyncio.ensure_future(server.loops.stop())
            await self.settle()
            for _ in range(STOP_S):
                if not stopping.done():
                    await self.pass_s(1)
            if server.task and not stopping.done():  # it hangs, and its test has said so
                server.task.cancel()
            await asyncio.wait([stopping, *([server.task] if server.task else [])])

    def _awake(self) -> list[Server]:
        return [server for server in self.servers if not server.frozen]

    def _move_to(self, instant_s: float) -> None:
        self.clock.advance(instant_s - self.now_s)
        self.now_s = instant_s

    def _wake_sleepers(self) -> None:
        for server in self._awake():
            for due_s, woken in server.sleepers:
                if due_s <= self.now_s and not woken.done():
                    woken.set_result(None)
            server.sleepers = [(due_s, woken) for due_s, woken in server.sleepers if not woken.done()]


def counting(name: str, runs: list[float], world: World, *, period_s: float = 0.5) -> Duty:
    """Return a duty that only notes when it ran."""

    async def run(db: Database, most: int) -> Ran:
        runs.append(world.now_s)
        return Ran(1)

    return Duty(name, run, period_s)
