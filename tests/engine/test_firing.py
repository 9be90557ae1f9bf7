"""The firing duties: those of one server look together, on many servers each slot fires once, idle they cost little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.clock import TestClock
from tests.engine.loops_world import Server, World
from tests.engine.test_dispatch import PATIENCE_S, asking
from tests.engine.test_loops_trusted import Trust
from tests.queue.fired import EVERY_MINUTE, decisions, jobs_of, write
from tests.queue.planned import made, planned, runs_of
from tests.queue.steps import Steps
from windlass.config import Settings
from windlass.config.settings import Schedules
from windlass.db import Database
from windlass.engine.duty import Duty
from windlass.engine.engine import Engine
from windlass.engine.firing import Firing
from windlass.engine.looks import Looks
from windlass.engine.meters import Meters
from windlass.engine.outside import Outside
from windlass.engine.trusted import Trusted
from windlass.engine.wake import Wake
from windlass.ids import Ids
from windlass.queue import following, schedules
from windlass.queue.cron import At, Every
from windlass.queue.defaults import nothing_given
from windlass.queue.lanes import Lanes
from windlass.queue.plans import untimed
from windlass.queue.schedule import Policy
from windlass.queue.schedules import Schedule

ALLOW = Policy(overlap="allow")


class Fires:
    """Servers that fire, in a world whose time passes only when a test says so."""

    def __init__(self, steps: Steps, world: World) -> None:
        self.steps = steps
        self.world = world
        self.wake = Wake(steps.db, server=uuid4(), outside=Outside())
        self.ready: list[int] = []
        self.stops: list[UUID] = []
        self.wake.on_ready.append(lambda lane, _: self.ready.append(lane))
        self.wake.on_stop.append(lambda _, job_id: self.stops.append(job_id))
        self.meters = Meters()

    def duties(self, *, shards: int = 4, batch: int = 1000, ids: Ids | None = None) -> list[Duty]:
        """Return the firing duties of one server."""
        return Firing(
            Lanes(),
            ids or self.steps.ids,
            Looks(period_s=0.5, monotonic=lambda: self.world.now_s),
            settings=Settings(schedules=Schedules(shards=shards, batch=batch)),
            wake=self.wake,
            meters=self.meters,
            outside=Outside(monotonic=lambda: self.world.now_s, cpu_s=untimed),
            given=nothing_given,
        ).duties

    def server(self, *, shards: int = 4, batch: int = 1000, **pace: Any) -> Server:
        """Start a server that holds firing duties."""
        return self.world.server(*self.duties(shards=shards, batch=batch), **pace)

    async def plenty(self, count: int = 32, **fields: Any) -> list[Schedule]:
        """Make schedules that fire each minute, in all shards."""
        asked = [
            planned(self.steps, f"s{n}", **{"trigger": EVERY_MINUTE, "policy": ALLOW} | fields) for n in range(count)
        ]
        await schedules.create(self.steps.db, asked)
        return [await schedules.get(self.steps.db, one.id, tenant="default") for one in asked]

    async def slots(self, made_by: list[Schedule]) -> list[list[str]]:
        """Return what was decided of each schedule."""
        return [[word for _, word in await decisions(self.steps, schedule)] for schedule in made_by]

    async def terms(self, schedule: Schedule) -> list[int]:
        """Return the terms under which the slots of a schedule were decided."""
        return [row["term"] for row in await runs_of(self.steps, schedule.id)]


async def at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do the work here."""
    return work(*arguments)


@pytest.fixture
async def fires(db: Database, clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fires]:
    """A world to fire in; every server is stopped at the end."""
    # Late schedules are decided in a thread: the world would take a server that waits for one for idle.
    monkeypatch.setattr(asyncio, "to_thread", at_once)
    clock.advance(minutes=1)
    world = World(db, clock)
    yield Fires(Steps(db, clock), world)
    await world.end()


async def test_the_duties_of_one_server_look_together(fires: Fires) -> None:
    """Sixteen duties cost two or three small queries a second, like one."""
    server = fires.server(shards=16)
    await fires.world.pass_s(5)
    server.line.asked.clear()

    await fires.world.pass_s(10)

    assert 16 == len(server.loops.held)
    assert 15 <= server.line.asked.count("look") <= 30


async def test_slots_of_all_shards_fire_in_one_transaction(fires: Fires) -> None:
    """One server that holds all shards fires what is due with one batch, soon after it is due."""
    made_by = await fires.plenty()
    server = fires.server()
    await fires.world.pass_s(50)
    server.line.asked.clear()

    await fires.world.pass_s(10.1)

    assert [["fired"]] * 32 == await fires.slots(made_by)
    assert 1 == server.line.asked.count("due")
    assert fires.ready


async def test_two_servers_share_the_shards(fires: Fires) -> None:
    """Each fires its own, and every slot fires once, under the term of its duty."""
    made_by = await fires.plenty()
    one, two = fires.server(), fires.server()
    await fires.world.pass_s(30)

    await fires.world.pass_s(31)

    assert (2, 2) == (len(one.loops.held), len(two.loops.held))
    assert [["fired"]] * 32 == await fires.slots(made_by)
    held = one.loops.held | two.loops.held
    assert [[held[f"fire-{schedule.id.int % 4}"]] for schedule in made_by] == [await fires.terms(s) for s in made_by]


async def test_rel_b3_a_holder_stopped_past_its_lease_fires_nothing_twice(fires: Fires) -> None:
    """Its shards are taken by the other server; awake again it finds its leases gone, and writes nothing."""
    made_by = await fires.plenty()
    one = fires.server()
    await fires.world.pass_s(30)
    two = fires.server()
    await fires.world.pass_s(20)

    one.freeze()
    await fires.world.pass_s(25)
    one.thaw()
    await fires.world.pass_s(60)

    assert [["fired", "fired"]] * 32 == await fires.slots(made_by)
    assert two.loops.held


async def test_rel_b3_what_is_under_way_for_a_lost_shard_is_not_committed(fires: Fires) -> None:
    """One of two leases ends while slots of both are being fired: nothing is written; the other goes on alone."""
    made_by = await fires.plenty()
    lost = Trust()

    class Ending(Ids):
        """Hands out ids, and with the first one ends a lease."""

        def new(self) -> UUID:
            lost.over = True
            return super().new()

    even, odd = fires.duties(shards=2, ids=Ending(fires.steps.clock))
    db = fires.steps.db
    await odd.run(Trusted(db, lost.check, term=1), 1000)
    await fires.world.pass_s(61)

    first = await even.run(Trusted(db, Trust().check, term=2), 1000)
    again = await even.run(Trusted(db, Trust().check, term=2), 1000)

    assert (0, sum(schedule.id.int % 2 == 0 for schedule in made_by)) == (first.items, again.items)
    assert {2} == {term for schedule in made_by for term in await fires.terms(schedule)}


async def test_rel_a7_when_the_holder_dies_others_fire_within_the_lease(fires: Fires) -> None:
    """A slot that falls into the gap fires when the duty is taken, once."""
    made_by = await fires.plenty(policy=Policy(overlap="allow", catch_up="all"))
    one = fires.server()
    await fires.world.pass_s(55)
    one.freeze()
    fires.server()

    await fires.world.pass_s(15)

    assert [["fired"]] * 32 == await fires.slots(made_by)


async def test_rel_k12_a_duty_won_lost_and_won_again_fires_each_slot_once(fires: Fires) -> None:
    """Nothing is kept in memory that a second holding would add to."""
    made_by = await fires.plenty(8)
    fires.server(rotate_seconds=3.0)
    fires.server(rotate_seconds=3.0)

    await fires.world.pass_s(241)

    assert [["fired"] * 4] * 8 == await fires.slots(made_by)
    assert 2 < max([len(set(await fires.terms(schedule))) for schedule in made_by])


@pytest.mark.parametrize("mode", ["all", "steal"])
async def test_every_server_may_fire_everything(fires: Fires, mode: str) -> None:
    """Without leases all servers look at all shards, in small batches, and each slot still fires once."""
    made_by = await fires.plenty()
    for _ in range(3):
        fires.server(mode=mode)

    await fires.world.pass_s(121)

    assert [["fired", "fired"]] * 32 == await fires.slots(made_by)
    assert [0, 0] == await fires.terms(made_by[0])


async def test_after_a_full_batch_the_next_follows_at_once(fires: Fires) -> None:
    """A herd is not fired at the pace of the looks."""
    made_by = await fires.plenty(64)
    fires.server(batch=16)
    await fires.world.pass_s(59.9)

    await fires.world.pass_s(0.2)

    assert [["fired"]] * 64 == await fires.slots(made_by)


async def test_a_waiting_job_is_let_go_soon_after_the_run_before_it(fires: Fires) -> None:
    """The next look lets it go and wakes its lane."""
    steps = fires.steps
    schedule = await made(steps, trigger=EVERY_MINUTE, policy=Policy(overlap="queue_one"))
    fires.server()
    await fires.world.pass_s(121)
    [_, waiting] = await jobs_of(steps, schedule)
    lease = await steps.claim_one(await steps.worker())
    fires.ready.clear()

    await steps.complete(lease)
    await fires.world.pass_s(1)

    [job] = await jobs_of(steps, schedule)
    assert (waiting["id"], 0) == (job["id"], job["pending"])
    assert [job["lane"]] == fires.ready


async def test_many_waiting_jobs_are_let_go_at_once(fires: Fires, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one look after another finds some they follow without a rest."""
    monkeypatch.setattr(following, "FOLLOW_BATCH", 2)
    made_by = await fires.plenty(12, policy=Policy(overlap="queue_one"))
    fires.server()
    await fires.world.pass_s(121)
    for lease in await fires.steps.claim(await fires.steps.worker(), 20):
        await fires.steps.complete(lease)

    await fires.world.pass_s(1)

    assert [0] * 12 == [job["pending"] for one in made_by for job in await jobs_of(fires.steps, one)]


async def test_the_worker_of_a_replaced_job_is_told_to_stop(fires: Fires) -> None:
    """It hears of it at once, not with its next heartbeat."""
    steps = fires.steps
    schedule = await made(steps, trigger=EVERY_MINUTE, policy=Policy(overlap="cancel_previous"))
    fires.server()
    await fires.world.pass_s(61)
    worker = await steps.worker(lease_s=600)
    lease = await steps.claim_one(worker)

    await fires.world.pass_s(60)

    assert [lease.id] == fires.stops
    assert ["fired", "replaced"] == [word for _, word in await decisions(steps, schedule)]


async def test_a_schedule_that_cannot_be_fired_is_left_out_for_a_while(fires: Fires) -> None:
    """It costs no look at full speed, is told of, and fires by its policy when its zone is known again."""
    [broken, fine] = await fires.plenty(2)
    text = "UPDATE schedule SET zone = :zone WHERE id = :id"
    await write(fires.steps, text, id=broken.id, zone="Mars/Olympus")
    server = fires.server()
    await fires.world.pass_s(61)
    left_out = fires.meters.registry.get_sample_value("windlass_schedules_left_out")
    server.line.asked.clear()
    await fires.world.pass_s(10)
    looks = server.line.asked.count("due")

    await write(fires.steps, text, id=broken.id, zone="UTC")
    await fires.world.pass_s(120)

    assert (1.0, 0) == (left_out, looks)
    assert 0.0 == fires.meters.registry.get_sample_value("windlass_schedules_left_out")
    assert [["missed", "fired", "fired"], ["fired"] * 3] == await fires.slots([broken, fine])


async def test_what_was_decided_is_counted(fires: Fires) -> None:
    """By decision; jobs that were made count as submitted."""
    await fires.plenty(3, policy=Policy())
    fires.server()

    await fires.world.pass_s(121)

    def sample(name: str, **labels: str) -> float | None:
        return fires.meters.registry.get_sample_value(name, labels)

    assert 3.0 == sample("windlass_schedule_slots_total", decision="fired")
    assert 3.0 == sample("windlass_schedule_slots_total", decision="overlapped")
    assert 3.0 == sample("windlass_jobs_submitted_total", queue="default")


async def test_a_waiting_worker_gets_the_job_of_a_slot(timely: Engine) -> None:
    """The whole way on both databases: a running engine fires, and the claim that waits is answered."""
    steps = Steps(timely.db, TestClock())
    task = asyncio.create_task(timely.claim(asking(wait_s=PATIENCE_S)))

    schedule = await made(steps, trigger=Every(1))

    [handed] = (await asyncio.wait_for(task, PATIENCE_S)).jobs
    assert schedule.id == (await steps.get(handed.job.id)).schedule_id


async def test_lag_is_told(engine: Engine, clock: TestClock) -> None:
    """How long the earliest slot that nobody decided has been due."""
    steps = Steps(engine.db, clock)
    await engine.loops.stop()
    await made(steps, trigger=At(clock.now()))
    clock.advance(7)

    await engine.gauges.refresh()

    assert 7.0 == engine.meters.registry.get_sample_value("windlass_schedule_lag_seconds")
