"""The duties that keep the queue going: what they do, when they look again, and whom they wake."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.clock import TestClock
from tests.engine.loops_world import Pace, Wake
from tests.queue.steps import ANN, LEASE_S, Steps
from windlass.db import Database
from windlass.engine.duty import Duty, Ran, every, queue_duties
from windlass.engine.looks import Looks
from windlass.errors import NotFound
from windlass.job import State
from windlass.queue import control


class Table:
    """The duties with what they were told to wake."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.wake = Wake()
        looks = Looks(period_s=0.5, monotonic=lambda: steps.clock.now().timestamp())
        table = queue_duties(self.wake, lambda: 0.0, looks=looks, periods=Pace(), days=30, dead_days=0)
        self.duties: dict[str, Duty] = {duty.name: duty for duty in table}

    async def run(self, name: str, most: int | None = None) -> Ran:
        """Run one batch of a duty."""
        duty = self.duties[name]
        return await duty.run(self.steps.db, most or duty.most)

    async def lapse(self, seconds: float) -> list[Ran]:
        """Let rescue run every two seconds for so long."""
        runs = []
        for _ in range(round(seconds / 2)):
            self.steps.clock.advance(2)
            runs.append(await self.run("rescue"))
        return runs


@pytest.fixture
def table(db: Database, clock: TestClock) -> Table:
    """The duties on an empty database."""
    clock.advance(minutes=1)
    return Table(Steps(db, clock))


def counted(ran: Ran) -> tuple[int, float | None]:
    """Return what a run did and when the next one is due, in hundredths of a second."""
    return ran.items, None if ran.next_s is None else round(ran.next_s, 2)


async def lane_of(steps: Steps) -> int:
    """Return the number of the lane in which jobs of the default queue wait."""
    return next(lane.id for lane in await steps.serving() if lane.name.task == "mail")


async def test_there_are_the_duties_of_the_queue(table: Table) -> None:
    """V21: what is due is looked for twice a second, history swept hourly."""
    paces = {name: duty.period_s for name, duty in table.duties.items()}

    assert {"promote": 0.5, "rescue": 0.5, "deadlines": 0.5, "retention": 3600.0, "vacuum": 15.0} == paces


async def test_promotion_sleeps_until_the_next_timer(table: Table) -> None:
    """U9: nothing is due: one look, which says how long there is nothing to do."""
    empty = await table.run("promote")
    await table.steps.submit_one(delay_ms=800)

    table.steps.clock.advance(0.5)

    assert Ran(0, 0.5) == empty
    assert (0, 0.3) == counted(await table.run("promote"))


async def test_what_is_promoted_wakes_its_claimers(table: Table) -> None:
    """Each job that is ready wakes its lane with its rank; one that is paused wakes nobody."""
    steps = table.steps
    jobs = [await steps.submit_one(delay_ms=1000) for _ in range(3)]
    await control.pause_job(steps.db, jobs[2], tenant="default", actor=ANN)
    steps.clock.advance(1)

    first, second, third = [await table.run("promote", most=2) for _ in range(3)]

    rank = round(steps.clock.now().timestamp() * 1000)
    lane = await lane_of(steps)
    assert (Ran(2, 0.0), Ran(1, 0.0), Ran(0, 0.5)) == (first, second, third)
    assert [("ready", lane, rank)] * 2 == table.wake.told


async def test_waking_comes_after_the_commit(table: Table) -> None:
    """A claimer that is woken finds the job: when nothing was committed nobody is woken."""
    await table.steps.submit_one(delay_ms=1000)
    table.steps.clock.advance(1)

    class Broken:
        """The database, which fails before COMMIT."""

        def __getattr__(self, name: str) -> Any:
            return getattr(table.steps.db, name)

        async def fetch(self, query: Any, /, **parameters: Any) -> Any:
            async with table.steps.db.transaction() as transaction:
                rows = await transaction.fetch(query, **parameters)
                if query.writes:
                    raise ConnectionError("before COMMIT")
                return rows

    with pytest.raises(ConnectionError):
        await table.duties["promote"].run(Broken(), 10)

    assert [] == table.wake.told


async def test_rescue_sleeps_until_the_least_expiry(table: Table) -> None:
    """L9: it runs when the first session may lapse, and leaves a pulse six times in the shortest lease."""
    await table.steps.worker(lease_s=2)
    first, second = await table.run("rescue"), await table.run("rescue")
    for _ in range(6):
        table.steps.clock.advance(0.32)
        await table.run("rescue")
    table.steps.clock.advance(0.02)

    assert [(0, 0.33)] * 2 == [counted(first), counted(second)]
    assert (0, 0.06) == counted(await table.run("rescue"))


async def test_a_rescued_job_wakes_its_claimers(table: Table) -> None:
    """L9: the lane is told that a job is ready, and that a lease of it is free."""
    lease = await table.steps.lease(await table.steps.worker())

    runs = await table.lapse(LEASE_S + 4)

    lane = await lane_of(table.steps)
    assert 1 == sum(ran.items for ran in runs)
    assert State.QUEUED is await table.steps.state_of(lease.id)
    assert [("freed", lane), ("ready", lane, lease.rank)] == table.wake.told


async def test_a_rescue_that_ends_a_job_wakes_who_waits_for_it(table: Table) -> None:
    """A job that may be lost once only is dead: whoever waits for its result is told."""
    lease = await table.steps.running(await table.steps.worker(), max_attempts=1)

    await table.lapse(LEASE_S + 4)

    assert State.DEAD is await table.steps.state_of(lease.id)
    assert [("freed", await lane_of(table.steps)), ("ended", lease.id)] == table.wake.told


async def test_rescue_goes_on_at_once_after_a_full_batch(table: Table) -> None:
    """What a dead worker held is rescued whole, batch by batch, without waiting for the next look."""
    worker = await table.steps.worker()
    for _ in range(5):
        await table.steps.lease(worker)
    await table.lapse(LEASE_S)
    table.steps.clock.advance(4)

    ran = await table.run("rescue", most=2)

    assert Ran(5, 0.5) == ran


async def test_deadlines_sleep_until_the_next_one(table: Table) -> None:
    """U9: time-outs, start deadlines and ends of pauses: the earliest says when to look again."""
    steps = table.steps
    await steps.submit_one(tenant="t")
    empty = await table.run("deadlines")
    now = steps.clock.now()
    await control.pause_tenant(steps.db, "t", actor=ANN, until=now + timedelta(seconds=0.9))
    steps.clock.advance(0.5)
    paused = await table.run("deadlines")
    await steps.submit_one(start_by=now + timedelta(seconds=1.3))
    await control.resume_tenant(steps.db, "t")
    steps.clock.advance(0.5)
    waiting = await table.run("deadlines")

    assert Ran(0, 0.5) == empty
    assert [(0, 0.4), (0, 0.3)] == [counted(paused), counted(waiting)]


async def test_what_its_time_has_run_out_for_ends(table: Table) -> None:
    """A time-out, a start deadline and a pause, all past: each is dealt with, and who waits is told."""
    steps = table.steps
    await steps.submit_one(tenant="t")
    overdue = await steps.running(await steps.worker(lease_s=600), timeout_s=5, max_attempts=1)
    late = await steps.submit_one(start_by=steps.clock.now() + timedelta(seconds=5))
    await control.pause_tenant(steps.db, "t", actor=ANN, until=steps.clock.now() + timedelta(seconds=5))
    steps.clock.advance(minutes=5)

    ran = await table.run("deadlines")

    assert 3 == ran.items
    assert [State.DEAD, State.EXPIRED] == [await steps.state_of(job_id) for job_id in (overdue.id, late)]
    lane = await lane_of(steps)
    assert [("freed", lane), ("ended", overdue.id), ("ended", late)] == table.wake.told
    assert Ran(0, 0.5) == await table.run("deadlines")


async def test_a_long_history_is_swept(table: Table) -> None:
    """M27: retention removes what is older than its days and says how much."""
    steps = table.steps
    lease = await steps.lease(await steps.worker())
    await steps.complete(lease)
    steps.clock.advance(days=32)

    ran = await table.run("retention")

    assert ran.items > 0
    with pytest.raises(NotFound):
        await steps.get(lease.id)


async def test_nothing_is_worn(table: Table) -> None:
    """P4: tables that were just vacuumed need it no more; tests before this one may have worn them."""
    await table.run("vacuum")

    assert Ran(0) == await table.run("vacuum")


async def test_a_plain_step_becomes_a_duty(table: Table) -> None:
    """A function that says how many things it did runs once in each period."""

    async def step(db: Database) -> int:
        return 7

    duty = every("rollup", 60, step)

    assert ("rollup", 60, Ran(7)) == (duty.name, duty.period_s, await duty.run(table.steps.db, 1))
