"""The machine of open transactions: one server is held before its COMMIT while another does anything to the same jobs.

One step of `queue/` runs on connection A and stays uncommitted. Meanwhile B runs commands; one that must wait for A's
locks goes on when A has committed or rolled back. Then all is joined, and what was answered is compared with what is
recorded: answers of a transaction that was rolled back count for nothing, all others for good.

There is no model of the answers here, because who comes first among those that wait is not decided by us. The machine
of test_model.py knows every answer, one command after the other.

Only on PostgreSQL: a SQLite file has one writer, so there B does not even begin before A has ended.

What is drawn never depends on what was found, or an example could not be repeated: picks are numbers, counted round.
There is one rule, a whole race: of several, Hypothesis would leave some out of each example.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from uuid import UUID

import asyncpg
import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.clock import START, TestClock
from tests.databases import RELATIONS
from tests.kept import check_at_once
from tests.queue.model import Ask
from tests.queue.model_draws import shown
from tests.queue.model_store import Store
from tests.queue.races.stage import NO_SILENCE, PATIENCE_S, WAITING
from windlass.db import Database, open_database
from windlass.job import FINAL_STATES, Outcome, State
from windlass.queue import moves
from windlass.queue.lanes import LaneName, Lanes, configure
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Fail, Release, Report, Snooze, Status
from windlass.queue.workers import Beat, Held

T = TypeVar("T")
OPEN, LIMITED = "open", "limited"
WORKERS = ("w1", "w2")
LEASE_MS = 30_000
SOON_S, LATE_S = 1, 31
"""Time steps: one in which timers come due, and one after which nobody has been heard for a lease."""
RIVALS = {
    "report": ("report", "report", "rescue", "rescue", "cancel", "heartbeat", "end_overdue", "close", "pause"),
    "claim": ("claim", "claim", "cancel", "cancel", "pause", "change", "expire", "rescue"),
    "limited": ("limited", "limited", "limited", "cancel", "report"),
    "rescue": ("report", "report", "rescue", "heartbeat", "cancel", "claim", "close"),
    "cancel": ("report", "report", "claim", "cancel", "promote", "rescue", "retry", "pause", "change"),
    "promote": ("promote", "cancel", "cancel", "change", "pause", "resume"),
    "heartbeat": ("report", "rescue", "heartbeat", "cancel", "close"),
    "end_overdue": ("report", "rescue", "end_overdue", "cancel"),
    "close": ("report", "claim", "claim", "rescue", "heartbeat", "cancel"),
    "pause": ("claim", "report", "promote", "resume", "cancel", "change", "pause"),
    "retry": ("retry", "cancel", "submit", "report"),
}
"""What is held on A, and what of B has to do with it."""
HELD = ("report", *RIVALS, "report", "rescue", "cancel", "limited")
REFUSED = frozenset({"Contention"})
"""Answers of a command that waited longer than the lock time-out: nothing happened."""
JOBS = "SELECT id, state, fence, session FROM jobs"
LEASED = {State.ASSIGNED, State.RUNNING, State.CANCELLING}
ENDS = "SELECT job_id, fence, outcome, error_type, worker FROM attempts WHERE session IS NOT NULL"
KINDS: dict[type[Report], set[Outcome]] = {
    Complete: {Outcome.SUCCEEDED},
    Fail: {Outcome.FAILED, Outcome.CANCELLED},
    Snooze: {Outcome.SNOOZED, Outcome.CANCELLED},
    Release: {Outcome.RELEASED, Outcome.CANCELLED},
}
"""What a report may have left; any end of a job that is being cancelled cancels it, but success."""
RELEASED_AS_FAILED = (moves.RELEASED_AFTER_START, moves.RELEASED_TOO_OFTEN)
"""A release that came too late, or once too often, is recorded as a failure."""


class Draw(NamedTuple):
    """Numbers from which a command makes its arguments."""

    one: int
    two: int
    three: int
    flag: bool


# Few numbers, so that A and B pick the same.
DRAWS = st.builds(Draw, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.booleans())


class Lease(NamedTuple):
    """A lease that somebody was told of."""

    job_id: UUID
    fence: int
    worker: str
    session: UUID


class Said(NamedTuple):
    """A command with its answer."""

    command: str
    arguments: tuple[Any, ...]
    answer: Any


class _Undone(Exception):
    """The transaction on A is to be rolled back."""


class OpenWorld:
    """A database with two servers and one that looks on, opened once for all examples."""

    def __init__(self, url: str) -> None:
        self.clock = TestClock()
        self._url = url
        self._runner = asyncio.Runner()
        self._cleanup = ""

    def __enter__(self) -> Self:
        self._runner.__enter__()
        self.run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._close())
        self._runner.__exit__(kind, value, trace)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end; tasks begun before go on meanwhile."""
        return self._runner.run(work)

    async def _open(self) -> None:
        self.a: Database = await open_database(self._url, clock=lambda: self.clock.now(), connections=1)
        self.b: Database = await open_database(self._url, clock=lambda: self.clock.now(), connections=6)
        self.reader: asyncpg.Connection[Any] = await asyncpg.connect(
            self._url, server_settings={"search_path": "windlass"}
        )
        tables = [row["name"] for row in await self.reader.fetch(RELATIONS) if row["emptied"]]
        deletes = ", ".join(f'd{number} AS (DELETE FROM "{table}")' for number, table in enumerate(tables))
        self._cleanup = f"WITH {deletes} SELECT"

    async def _close(self) -> None:
        await self.reader.close()
        await self.a.close()
        await self.b.close()

    async def begin(self) -> None:
        """Give the next example an empty database with two queues, and a clock at its start."""
        self.clock = TestClock(START)
        await self.reader.execute(self._cleanup)
        self.lanes = Lanes()
        await self.lanes.resolve(self.b, [LaneName("default", queue, "task") for queue in (OPEN, LIMITED)])
        await configure(self.b, LaneName("default", LIMITED), max_running=2)
        rows = await self.reader.fetch("SELECT id, tenant, queue, task, labels, key FROM lane")
        # All there will be: so a store need not look up names while others use the reader.
        self._names = {row[0]: LaneName(*row[1:]) for row in rows}

    def store(self, db: Any) -> Store:
        """Return the commands on `db`: on a server, or on the open transaction."""
        store = Store("postgres", db, self.reader)
        store.lanes, store._names = self.lanes, self._names
        return store

    async def settled(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Return when each of the tasks has ended or waits for a lock that A has."""
        async with asyncio.timeout(PATIENCE_S):
            while left := sum(not task.done() for task in tasks):
                if await self.reader.fetchval(WAITING) == left:
                    return


class OpenMachine(RuleBasedStateMachine):
    """Holds a transaction open on A while B goes on."""

    def __init__(self, world: OpenWorld) -> None:
        super().__init__()
        self.world = world
        world.run(world.begin())
        self.ids: list[UUID] = []
        self.limited_ids: set[UUID] = set()
        self.leases: list[Lease] = []
        self.sessions: dict[UUID, str] = {}
        self.said: list[Said] = []
        """What was answered and committed."""
        self.fences: dict[UUID, int] = {}
        self.finals: dict[UUID, State] = {}
        self._held: asyncio.Task[Said] | None = None
        self._end: asyncio.Future[bool] | None = None
        self._beside: list[asyncio.Task[Said]] = []
        self._numbers = 0

    def new_id(self) -> UUID:
        """Return an id; their order is not the order in which they are made."""
        self._numbers += 1
        return UUID(f"01940000-0000-7000-8000-{self._numbers * 40_503 % 65_536:04x}{self._numbers:08x}")

    @initialize(draws=st.lists(DRAWS, min_size=3, max_size=3))
    def some_work(self, draws: list[Draw]) -> None:
        """There are workers, jobs and leases, and rescue is awake."""
        self.world.run(self._beside_now("rescue", (0.0, NO_SILENCE)))
        self._register()
        self._register()
        queues = (OPEN, LIMITED) * 3
        jobs = [self.job(queue, draws[number % 3]) for number, queue in enumerate(queues)]
        self.world.run(self._beside_now("submit", ([jobs],)))
        self.world.run(self._beside_now(*self.claim(draws[0])))

    def _register(self) -> None:
        session, worker = self.new_id(), WORKERS[len(self.sessions) % 2]
        self.sessions[session] = worker
        self.world.run(self._beside_now("register", (session, worker, "default", LEASE_MS, 9)))

    @rule(
        held=st.sampled_from(HELD),
        draw=DRAWS,
        rivals=st.lists(st.tuples(st.integers(0, 9), DRAWS), min_size=1, max_size=2),
        soon=st.booleans(),
        late=st.booleans(),
        commit=st.booleans(),
    )
    def race(self, held: str, draw: Draw, rivals: list[tuple[int, Draw]], soon: bool, late: bool, commit: bool) -> None:
        """Hold a step on A, let B go on, perhaps after the leases have lapsed; end A, and join all who waited.

        Before, a job comes and some are claimed, so that there is something to race for; all have the same first pick.
        """
        if soon:
            self.world.clock.advance(SOON_S)
        for before in self.room() if held == "limited" else (self.submit(draw), self.claim(draw, self.queue(draw))):
            self.world.run(self._beside_now(*before))
        command, arguments = getattr(self, held)(draw)
        hypothesis.note(f"A: {command}{shown(list(arguments))}")
        self.world.run(self._hold(command, arguments))
        if late:
            self._lapse()
        for number, other in rivals:
            what = RIVALS[held][number % len(RIVALS[held])]
            command, arguments = getattr(self, what)(other._replace(one=draw.one))
            hypothesis.note(f"B: {command}{shown(list(arguments))}")
            self.world.run(self._beside_now(command, arguments))
        hypothesis.note(f"A: {'commit' if commit else 'rollback'}")
        self.world.run(self._join(commit))
        self.compare()

    def _lapse(self) -> None:
        """Let the sessions lapse and a new one come."""
        self.world.clock.advance(LATE_S)
        self._register()

    async def _hold(self, command: str, arguments: tuple[Any, ...]) -> None:
        reached = asyncio.Event()
        self._end = asyncio.get_running_loop().create_future()

        async def held(end: asyncio.Future[bool]) -> Said:
            async with self.world.a.transaction() as transaction:
                # However slow the machine, A is not thrown out while it is held.
                await transaction.run("SET LOCAL idle_in_transaction_session_timeout = 0")
                store = self.world.store(transaction)
                answer = await store.run(command, arguments)
                reached.set()
                if not await end:
                    raise _Undone
            return Said(command, arguments, answer)

        self._held = asyncio.create_task(held(self._end))
        waited = asyncio.create_task(reached.wait())
        await asyncio.wait([self._held, waited], return_when=asyncio.FIRST_COMPLETED)
        waited.cancel()

    async def _beside_now(self, command: str, arguments: tuple[Any, ...]) -> None:
        store = self.world.store(self.world.b)

        async def beside() -> Said:
            return Said(command, arguments, await store.run(command, arguments))

        self._beside.append(asyncio.create_task(beside()))
        await self.world.settled(self._beside)
        if self._held is None:
            await self._joined()

    async def _join(self, commit: bool) -> None:
        assert self._held is not None
        assert self._end is not None
        self._end.set_result(commit)
        with suppress(_Undone):
            self._keep(await self._held)
        self._held = self._end = None
        await self._joined()

    async def _joined(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            for task in self._beside:
                self._keep(await task)
        self._beside = []

    def _keep(self, said: Said) -> None:
        """Take an answer that is committed for true."""
        hypothesis.note(f"    {said.command} -> {shown(said.answer)}")
        if isinstance(said.answer, str) and said.answer in REFUSED:
            return
        self.said.append(said)
        if said.command == "submit":
            self.ids += [row[0] for request in said.answer if not isinstance(request, str) for row in request]
        if said.command.startswith("claim"):
            for row in said.answer:
                lease = Lease(row[0], row[4], self.sessions[row[5]], row[5])
                assert lease[:2] not in [old[:2] for old in self.leases], f"fence given out twice: {lease}"
                self.leases.append(lease)
        if said.command == "retry":
            for row in said.answer:
                if not isinstance(row, str):
                    self.finals.pop(row[0], None)

    def compare(self) -> None:
        """What was answered is what is recorded, and every invariant holds."""
        self.world.run(self._compare())

    async def _compare(self) -> None:
        async with self.world.b.transaction() as transaction:
            assert [] == await check_at_once(transaction)
        rows = await self.world.reader.fetch(JOBS)
        found = {row["id"]: row for row in rows}
        assert len(found) == len(rows), "a job is in two places"
        assert set(self.ids) <= set(found), "an acknowledged job is gone"
        for job_id, row in found.items():
            assert self.fences.get(job_id, 0) <= row["fence"], f"the fence of {job_id} fell"
            self.fences[job_id] = row["fence"]
            if job_id in self.finals:
                assert self.finals[job_id] == row["state"], f"{job_id} had ended otherwise"
            if State(row["state"]) in FINAL_STATES:
                self.finals[job_id] = State(row["state"])
        ends: dict[tuple[UUID, int], list[Any]] = {}
        for row in await self.world.reader.fetch(ENDS):
            ends.setdefault((row["job_id"], row["fence"]), []).append(row)
        for lease in self.leases:
            job, ended = found[lease.job_id], len(ends.get(lease[:2], ()))
            current = (job["state"] in LEASED) and (job["fence"], job["session"]) == (lease.fence, lease.session)
            assert ended + current == 1, f"{lease} has ended {ended} times and is {'' if current else 'not '}held"
        self._compare_reports(ends)

    def _compare_reports(self, ends: dict[tuple[UUID, int], list[Any]]) -> None:
        applied: set[tuple[UUID, int]] = set()
        for said in self.said:
            if said.command != "report":
                continue
            for item, (status, *_) in zip(said.arguments[0], said.answer, strict=True):
                lease = (item.job_id, item.fence)
                if status is Status.APPLIED:
                    assert lease not in applied, f"applied twice: {item}"
                    applied.add(lease)
                if status in (Status.APPLIED, Status.ALREADY):
                    [end] = ends[lease]
                    is_release_refused = isinstance(item, Release) and end["error_type"] in RELEASED_AS_FAILED
                    kinds = {Outcome.FAILED} if is_release_refused else KINDS[type(item)]
                    assert Outcome(end["outcome"]) in kinds, f"{item} is recorded as {end}"
                    assert end["worker"] == item.worker

    def _job(self, number: int) -> UUID:
        """Pick a job, the newest first."""
        return self.ids[-1 - number % len(self.ids)]

    def _session(self, number: int) -> UUID:
        """Pick a session, the newest first."""
        sessions = list(self.sessions)
        return sessions[-1 - number % len(sessions)]

    def submit(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return a request of one job, which may be due later."""
        return "submit", ([[self.job(self.queue(draw), draw)]],)

    def queue(self, draw: Draw) -> str:
        """Return a queue, mostly the one without a limit."""
        return LIMITED if draw.two == 0 else OPEN

    def room(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return what makes room in the queue with a limit, and gives it more to do than it may do at once."""
        ends: list[Report] = [Complete(**lease._asdict()) for lease in self.leases if lease.job_id in self.limited_ids]
        jobs = [self.job(LIMITED, Draw(0, 0, 0, False)) for _ in range(3)]
        return [("report", (ends, 0.0)), ("submit", ([jobs],))]

    def job(self, queue: str, draw: Draw) -> NewJob:
        """Return a job."""
        job_id = self.new_id()
        if queue == LIMITED:
            self.limited_ids.add(job_id)
        return NewJob(
            id=job_id,
            task="task",
            queue=queue,
            delay_ms=500 if draw.two == 2 else None,
            timeout_s=1 if draw.flag else None,
            max_attempts=2 + draw.three,
            max_lost=1 + draw.three,
            unique_key=f"key-{draw.three}" if draw.two == 1 else None,
        )

    def claim(self, draw: Draw, queue: str = OPEN) -> tuple[str, tuple[Any, ...]]:
        """Return a claim of up to four jobs by one worker."""
        slots = (self._session(draw.one % 2),) * (1 + draw.three)
        ask = Ask("default", (queue,), slots)
        return ("claim", ([ask],)) if queue == OPEN else ("claim_limited", (ask,))

    def limited(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return a claim from the queue that has a limit."""
        return self.claim(draw, LIMITED)

    def report(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return reports on two leases, the newest first; perhaps twice on the same."""
        items: list[Report] = []
        for number in {draw.one, draw.two} if self.leases else ():
            lease = self.leases[-1 - number % len(self.leases)]
            named: dict[str, Any] = lease._asdict()
            kinds: list[Report] = [Complete(**named), Fail(**named), Snooze(**named, delay_ms=500), Release(**named)]
            items.append(kinds[draw.three])
        return "report", (items, 0.0)

    def heartbeat(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return the heartbeat of a worker that names some of its jobs."""
        session = self._session(draw.one)
        own = [lease for lease in self.leases if lease.session == session]
        held = [Held(lease.job_id, lease.fence, draw.flag) for lease in own[draw.three :]]
        return "heartbeat", ([Beat(session, held)],)

    def rescue(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return a rescue that takes its own silence for none."""
        return "rescue", (float(draw.flag), NO_SILENCE)

    def end_overdue(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return the end of what has run too long."""
        return "end_overdue", (float(draw.flag),)

    def expire(self, _: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return the expiry of what was not started in time."""
        return "expire", ()

    def promote(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return the promotion of one timer or all."""
        return "promote", (1 if draw.flag else 2000,)

    def close(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return the end of a session."""
        return "close", (self._session(draw.one), "default", "bye")

    def cancel(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return the cancelling of two jobs."""
        return "cancel", ([self._job(draw.one), self._job(draw.two)], "default", None, 0)

    def pause(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return the pausing of a job."""
        return "pause_job", (self._job(draw.one), "default", None, None)

    def resume(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return the resuming of a job."""
        return "resume_job", (self._job(draw.one), "default", None)

    def retry(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return the retrying by hand of two jobs."""
        return "retry", ([self._job(draw.one), self._job(draw.two)], "default", None)

    def change(self, draw: Draw) -> tuple[str, tuple[Any, ...]]:
        """Return a change of a job's priority."""
        return "change", (self._job(draw.one), "default", draw.three, None, None)
