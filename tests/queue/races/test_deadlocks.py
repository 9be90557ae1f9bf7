"""Random steps over the same rows, all at once: whoever waits, waits in one order, so nobody waits for ever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest

from tests.clock import TestClock
from tests.databases import connected
from tests.queue.races.conftest import staged
from tests.queue.races.pausing import Pausing
from tests.queue.races.stage import LEASE_MS, Scene, Stage, no_jitter
from tests.queue.races.test_limits import replaced
from windlass.db import Database
from windlass.errors import Contention
from windlass.queue import control, deadletters, deadlines, timers, workers
from windlass.queue import report as reports
from windlass.queue.claim import Claimed
from windlass.queue.control import Actor
from windlass.queue.lanes import Lanes
from windlass.queue.report import Complete, Fail, Release, Report, Snooze, Status, report
from windlass.queue.submit import submit
from windlass.queue.workers import Beat, Held

BATCH, BATCH_ROUNDS = 500, 6
KEYS = 6

Step = Callable[[Database], Awaitable[object]]


class Crowd:
    """Workers, jobs and everything that may happen to them, drawn by one generator of chance."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.stage = stage
        self.chance = chance
        self.queues = ["queue-a", "queue-b", "queue-c"]
        self.scenes: list[Scene] = []
        self.leases: list[tuple[Claimed, str, UUID]] = []
        self.ids: list[UUID] = []

    async def refill(self) -> None:
        """Make jobs in several lanes and let two workers claim most of them."""
        stage, chance = self.stage, self.chance
        for queue in self.queues:
            jobs = [
                stage.job(
                    queue,
                    task=chance.choice(["one", "two", "three"]),
                    unique_key=chance.choice([None, *(f"{queue}-{n}" for n in range(KEYS))]),
                    delay_ms=chance.choice([None, None, 1000]),
                    timeout_s=chance.choice([1, None]),
                )
                for _ in range(8)
            ]
            self.ids += [told.id for told in await submit(stage.db, stage.lanes, jobs)]
        for name in ("left", "right"):
            session = await stage.worker(name)
            for queue in self.queues:
                self.leases += [(lease, name, session) for lease in await stage.claim(stage.db, queue, session, 3)]
        self.ids, self.leases = self.ids[-60:], self.leases[-40:]

    def steps(self) -> list[Step]:
        """Return a dozen steps over the same rows, their lists in orders of their own."""
        chance = self.chance
        return chance.sample(
            [
                *(self._reports() for _ in range(4)),
                *(self._cancels() for _ in range(2)),
                *(self._beats() for _ in range(2)),
                *(self._submits() for _ in range(2)),
                self.stage.rescue,
                lambda db: deadlines.end_overdue(db, chance=no_jitter),
                lambda db: timers.promote(db),
                self._retries(),
            ],
            k=10,
        )

    def _reports(self) -> Step:
        drawn = self.chance.sample(self.leases, k=min(12, len(self.leases)))
        reports = [self._said(lease, worker, session) for lease, worker, session in drawn]
        return lambda db: report(db, reports, chance=no_jitter)

    def _said(self, lease: Claimed, worker: str, session: UUID) -> Report:
        lease_of: dict[str, Any] = {"job_id": lease.id, "fence": lease.fence, "worker": worker, "session": session}
        said: list[Report] = [
            Complete(**lease_of),
            Complete(**lease_of),
            Fail(**lease_of),
            Release(**lease_of),
            Snooze(**lease_of, delay_ms=1000),
        ]
        return self.chance.choice(said)

    def _cancels(self) -> Step:
        ids = self.chance.sample(self.ids, k=min(10, len(self.ids)))
        return lambda db: control.cancel(db, ids, tenant="default", actor=Actor())

    def _retries(self) -> Step:
        ids = self.chance.sample(self.ids, k=min(10, len(self.ids)))
        return lambda db: deadletters.retry(db, ids, tenant="default", actor=Actor())

    def _beats(self) -> Step:
        held: dict[UUID, list[Held]] = {}
        for lease, _, session in self.chance.sample(self.leases, k=min(20, len(self.leases))):
            held.setdefault(session, []).append(Held(lease.id, lease.fence, started=True))
        beats = [Beat(session, leases) for session, leases in held.items()]
        self.chance.shuffle(beats)
        return lambda db: workers.heartbeat(db, beats)

    def _submits(self) -> Step:
        queue = self.chance.choice(self.queues)
        keys = self.chance.sample([f"{queue}-{n}" for n in range(KEYS)], k=4)
        jobs = [self.stage.job(queue, task="one", unique_key=key) for key in keys]
        return lambda db: submit(db, Lanes(), jobs)


@pytest.fixture
async def stage(fresh_postgres_url: str, clock: TestClock) -> AsyncIterator[Stage]:
    """Three servers on a PostgreSQL that notices a deadlock long before a lock time-out would hide it."""
    name = urlsplit(fresh_postgres_url).path[1:]
    async with connected(fresh_postgres_url) as connection:
        await connection.execute(f"ALTER DATABASE \"{name}\" SET deadlock_timeout = '30ms'")
    async with staged(fresh_postgres_url, clock, servers=3) as made:
        yield made


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 30), *(pytest.param(s, 150, marks=pytest.mark.exhaustive) for s in (1, 2))]
)
async def test_rel_x22_deadlock_hunt(stage: Stage, seed: int, rounds: int) -> None:
    """Overlapping reports, rescues, cancels, heartbeats and submits, all at once: no deadlock, no broken invariant."""
    chance = random.Random(seed)
    crowd = Crowd(stage, chance)
    errors: list[BaseException] = []
    for number in range(rounds):
        if number % 3 == 0:
            await crowd.refill()
        stage.clock.advance(chance.choice([1, 5, LEASE_MS / 2000]))
        steps = crowd.steps()
        answers = await asyncio.gather(*(step(chance.choice(stage.servers)) for step in steps), return_exceptions=True)
        errors += [answer for answer in answers if isinstance(answer, BaseException)]
        if number % 10 == 9:
            await stage.sound()

    assert [] == [error for error in errors if not isinstance(error, Contention)]
    found = [error.__cause__ for error in errors if isinstance(error.__cause__, asyncpg.DeadlockDetectedError)]
    assert [] == [error.detail for error in found]


@pytest.fixture
async def unanalysed(stage: Stage, fresh_postgres_url: str) -> Stage:
    """The same stage, on tables that nobody vacuums or analyses."""
    async with connected(fresh_postgres_url) as connection:
        for table in ("queue", "job_old", "session", "lane", "dedup"):
            await connection.execute(f"ALTER TABLE windlass.{table} SET (autovacuum_enabled = off)")
    return stage


async def completed(db: Database, items: list[Complete], *, through: str) -> list[UUID]:
    """Complete jobs in the order given, by a report, or by its statement alone; return those it was applied to."""
    if through == "report":
        answers = await report(db, items, chance=no_jitter)
        assert {answer.status for answer in answers} <= {Status.APPLIED, Status.ALREADY}
        told = zip(items, answers, strict=True)
        return [item.job_id for item, answer in told if answer.status is Status.APPLIED]
    rows = [(i.job_id, i.fence, i.tenant, i.worker, i.session, None, None, None) for i in items]
    return [row["id"] for row in await db.fetch(reports.SQL.complete, items=rows)]


@pytest.mark.parametrize("through", ["report", pytest.param("statement", marks=pytest.mark.exhaustive)])
async def test_rel_x22_overlapping_completions(unanalysed: Stage, fresh_postgres_url: str, through: str) -> None:
    """Two batches of 500 that overlap, in opposite orders, both under way: each job ends once, never a deadlock.

    A keeper has one row of the overlap until both wait. Batches that lock in orders of their own would then each have
    rows that the other wants, and deadlock as soon as it lets go.
    """
    stage, chance = unanalysed, random.Random(through)
    for _ in range(BATCH_ROUNDS):
        scene = await stage.leased(BATCH + BATCH // 5)
        items = [replaced(scene, lease).complete() for lease in sorted(scene.leases, key=lambda lease: lease.id)]
        batches = [items[:BATCH], items[BATCH // 5 :][::-1]]
        chance.shuffle(batches)
        async with connected(fresh_postgres_url) as keeper:
            await keeper.execute("BEGIN")
            kept = chance.choice(items[BATCH // 5 : BATCH]).job_id
            await keeper.execute("SELECT FROM windlass.queue WHERE id = $1 FOR UPDATE", kept)
            pairs = zip(stage.servers, batches, strict=False)
            tasks = [asyncio.create_task(completed(db, batch, through=through)) for db, batch in pairs]
            await stage.until_waiting(2)
            await keeper.execute("ROLLBACK")
            applied = [job_id for task in tasks for job_id in await task]

        assert sorted(applied) == sorted(scene.ids)
    await stage.sound()


LOCKERS: dict[str, Callable[[Stage, Database, Scene], Awaitable[object]]] = {
    "complete": lambda _, db, scene: report(db, said(scene, Complete), chance=no_jitter),
    "release": lambda _, db, scene: report(db, said(scene, Release), chance=no_jitter),
    "cancel": lambda _, db, scene: control.cancel(db, scene.ids[::-1], tenant="default", actor=Actor()),
    "close": lambda _, db, scene: workers.close(db, scene.session, tenant="default", reason="drain"),
}


def said(scene: Scene, kind: Callable[..., Report]) -> list[Report]:
    """Return a report for each lease, the last first."""
    return [
        kind(job_id=lease.id, fence=lease.fence, worker=scene.worker, session=scene.session)
        for lease in scene.leases[::-1]
    ]


@pytest.mark.parametrize("step", LOCKERS)
async def test_rel_x22_locks_are_taken_by_ascending_id(postgres_stage: Stage, postgres_url: str, step: str) -> None:
    """A step that waits for the lowest of its rows has none of the higher ones: that is the one lock order."""
    stage = postgres_stage
    scene = await stage.scene(0)
    jobs = [stage.job(scene.queue, task=task) for task in "dcba" for _ in range(2)]
    await submit(stage.db, stage.lanes, jobs)
    leases = sorted(await stage.claim(stage.db, scene.queue, scene.session, 8), key=lambda lease: lease.id)
    ids = [lease.id for lease in leases]
    scene = Scene(scene.queue, scene.worker, scene.session, ids, leases)
    async with connected(postgres_url) as keeper, connected(postgres_url) as looker:
        await keeper.execute("BEGIN")
        await keeper.execute("SELECT FROM windlass.queue WHERE id = $1 FOR UPDATE", ids[0])
        server = Pausing(stage.servers[1])
        task = asyncio.ensure_future(LOCKERS[step](stage, server, scene))
        assert await stage.until_parked(task, server, server)

        free = await looker.fetch("SELECT id FROM windlass.queue WHERE place = 1 FOR UPDATE SKIP LOCKED")
        await keeper.execute("ROLLBACK")

        await task
    assert {row["id"] for row in free} == set(ids[1:])
