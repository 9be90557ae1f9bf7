"""Leadership: one server does a duty, another takes it when that one is gone, and nobody acts beyond its lease."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from tests.engine.loops_world import Pace, Wake, World, counting
from tests.queue.steps import Steps
from windlass.db import Database
from windlass.engine.duty import Duty, Ran, queue_duties
from windlass.engine.looks import Looks
from windlass.errors import CommitUnknown, Unavailable
from windlass.job import State
from windlass.queue import timers
from windlass.queue.duties import list_duties, list_servers, release
from windlass.queue.looks import look

NAMES = ("a", "b", "c", "d", "e", "f", "g")


def several(world: World, count: int = 7) -> list[Duty]:
    """Return duties that do nothing."""
    return [counting(name, [], world) for name in NAMES[:count]]


def duties_of_the_queue(world: World, wake: Wake) -> list[Duty]:
    """Return the duties that keep the queue going."""
    looks = Looks(period_s=0.5, monotonic=lambda: world.now_s)
    return queue_duties(wake, lambda: 0.0, looks=looks, periods=Pace(), days=30, dead_days=0)


async def term_of(world: World, name: str = "promote") -> int:
    """Return the term of a duty in the table."""
    return next(duty.term for duty in await list_duties(world.db) if duty.name == name)


async def test_the_first_server_does_every_duty(world: World) -> None:
    """G3: one server is a complete installation; each duty runs in its own pace."""
    fast: list[float] = []
    slow: list[float] = []
    server = world.server(counting("fast", fast, world), counting("slow", slow, world, period_s=3))

    await world.pass_s(9)

    assert {"fast": 1, "slow": 1} == server.loops.held
    assert ([0, 0.5, 1.0], [0, 3, 6, 9]) == ([s - 1000 for s in fast[:3]], [s - 1000 for s in slow])


async def test_rel_i27_another_takes_over_when_the_holder_falls_silent(world: World) -> None:
    """U4: the duty is taken within the lease and half a second after the last renewal; the term rises."""
    runs: list[float] = []
    one = world.server(counting("promote", [], world))
    await world.pass_s(1)
    two = world.server(counting("promote", runs, world))
    await world.pass_s(3.5)
    last = next(duty for duty in await list_duties(world.db))

    one.freeze()
    await world.pass_s(last.expires_in_s)
    before = dict(two.loops.held)
    await world.pass_s(0.5)

    assert ({}, {"promote": 2}) == (before, two.loops.held)
    assert [] != runs


async def test_rel_k4_a_holder_that_was_stopped_stops_when_it_goes_on(world: World) -> None:
    """K4, U5: stolen while its holder was stopped, a duty stays with the thief; the old holder does not run it."""
    runs: list[float] = []
    one = world.server(counting("promote", runs, world))
    await world.settle()
    two = world.server(counting("promote", [], world))
    await world.pass_s(3)
    assert [{"promote"}, set()] == world.held()
    one.freeze()
    await world.pass_s(8)
    runs.clear()

    one.thaw()
    await world.pass_s(20)

    assert ({}, {"promote": 2}) == (one.loops.held, two.loops.held)
    assert [] == runs
    assert 2 == await term_of(world)


async def test_rel_k8_a_frozen_installation_goes_on_when_it_is_thawed(world: World) -> None:
    """K8: all servers stood still for ten leases; within a lease and two seconds every duty runs again."""
    runs: list[float] = []
    servers = [world.server(counting("promote", runs, world)) for _ in range(2)]
    await world.pass_s(5)
    for server in servers:
        server.freeze()
    await world.pass_s(60)
    runs.clear()

    for server in servers:
        server.thaw()
    await world.pass_s(8)

    assert [] != runs
    assert 1 == sum(len(server.loops.held) for server in servers)


async def test_rel_b3_what_a_stopped_holder_was_about_to_do_is_not_done(world: World) -> None:
    """B3: stopped within a run for longer than its lease, it goes on and its next statement is refused."""
    steps = Steps(world.db, world.clock)
    job_id = await steps.submit_one(delay_ms=1000)
    begun, gate = asyncio.Event(), asyncio.Event()
    refused: list[BaseException] = []

    async def run(db: Database, most: int) -> Ran:
        begun.set()
        await gate.wait()
        try:
            await timers.promote(db)
        except BaseException as error:
            refused.append(error)
            raise
        return Ran(1)

    one = world.server(Duty("promote", run, 0.5))
    await world.pass_s(1.5)
    assert begun.is_set()

    one.freeze()
    await world.pass_s(5)
    gate.set()
    one.thaw()
    await world.settle()

    assert ["DutyLost"] == [type(error).__name__ for error in refused]
    assert State.SCHEDULED is await steps.state_of(job_id)


async def test_rel_b3_a_transaction_open_when_trust_ends_is_rolled_back(world: World) -> None:
    """B3: a holder that was stopped before its COMMIT rolls back."""
    steps = Steps(world.db, world.clock)
    job_id = await steps.submit_one(delay_ms=1000)
    done: list[int] = []

    async def run(db: Database, most: int) -> Ran:
        if not ((await look(db)).left_s("promote") or 0) < 0:
            return Ran(0)
        async with db.transaction() as transaction:
            done.append(len(await timers.promote(transaction)))
            world.now_s += 6  # time passes and nobody wakes: the process stands still
        return Ran(1)

    world.server(Duty("promote", run, 0.5))
    await world.pass_s(2)

    assert [1] == done
    assert State.SCHEDULED is await steps.state_of(job_id)


async def test_rel_k22_trust_counts_from_sending(world: World) -> None:
    """K22, rule 9: the answer to a renewal comes after 0.9 of the lease; the run under way was cancelled by then."""
    cancelled: list[float] = []

    async def run(db: Database, most: int) -> Ran:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(world.now_s)
            raise
        return Ran(0)

    one = world.server(Duty("promote", run, 0.5))
    await world.pass_s(3.9)
    answer = one.line.late["renew"] = asyncio.Event()
    await world.pass_s(0.1 + 5.4)
    held = dict(one.loops.held)

    answer.set()
    await world.settle()

    # Renewed at 1002 s, sent again at 1004 s: what is trusted is the one of 1002 s.
    assert ([1007.0], {}) == (cancelled, held)
    assert [None] == [duty.held_by for duty in await list_duties(world.db)]


async def test_a_renewal_that_is_answered_late_is_trusted_from_its_sending(world: World) -> None:
    """Rule 9: what comes back three seconds later is trusted for two seconds more, not for five."""
    one = world.server(counting("promote", [], world))
    await world.pass_s(1.9)
    answer = one.line.late["renew"] = asyncio.Event()
    await world.pass_s(2.1)
    answer.set()
    await world.settle()
    one.line.fails = Unavailable("cut")

    await world.pass_s(2.9)
    still = dict(one.loops.held)
    await world.pass_s(0.2)

    assert ({"promote": 1}, {}) == (still, one.loops.held)


async def test_rel_k5_three_servers_of_one_name(world: World) -> None:
    """K5: the same host name three times, and one of them does the duty."""
    servers = [world.server(counting("promote", [], world), name="same") for _ in range(3)]

    await world.pass_s(15)

    assert 1 == sum(len(server.loops.held) for server in servers)
    assert 1 == await term_of(world)
    assert [True] * 3 == [server.live for server in await list_servers(world.db)]


async def test_rel_k12_won_and_lost_ten_times(world: World) -> None:
    """K12: each taking begins anew; there is never more than one run at a time, and no job is promoted twice."""
    steps = Steps(world.db, world.clock)
    promoted: list[timers.Promoted] = []
    running = most_running = 0

    async def run(db: Database, most: int) -> Ran:
        nonlocal running, most_running
        running += 1
        most_running = max(running, most_running)
        try:
            promoted.extend(await timers.promote(db, limit=most))
        finally:
            running -= 1
        return Ran(0)

    one = world.server(Duty("promote", run, 0.5))
    jobs, terms = [], []
    for _ in range(10):
        jobs.append(await steps.submit_one(delay_ms=1000))
        await world.pass_s(6)
        terms.append(one.loops.held["promote"])
        await release(world.db, "promote")
        await world.pass_s(2)

    assert list(range(1, 11)) == terms
    assert sorted(jobs) == sorted(job.id for job in promoted)
    assert 1 == most_running


async def test_what_was_done_is_handed_on(world: World) -> None:
    """U10: items, errors and times are kept from one holder to the next, and shown with the duty."""
    one = world.server(counting("promote", [], world, period_s=0.75))
    await world.pass_s(3.5)
    [before] = await list_duties(world.db)
    await one.loops.stop()
    world.server(counting("promote", [], world, period_s=0.75))

    await world.pass_s(2.25)

    [after] = await list_duties(world.db)
    assert (3, 0, 0) == (before.metadata.items, before.metadata.errors, before.metadata.duration_ms)
    assert 8 == after.metadata.items
    assert after.heartbeat_at - timedelta(seconds=0.25) == after.metadata.last_run_at == after.metadata.progress_at


async def test_a_duty_keeps_its_pace_when_its_holder_changes(world: World) -> None:
    """U9: when a duty runs next is told by the table: a rare one does not run anew with each holder."""
    first: list[float] = []
    second: list[float] = []
    one = world.server(counting("retention", first, world, period_s=100))
    await world.pass_s(30)
    await one.loops.stop()
    world.server(counting("retention", second, world, period_s=100))

    await world.pass_s(69)
    early = list(second)
    await world.pass_s(2)

    assert ([1000.0], [], [1100.0]) == (first, early, second)


async def test_a_released_duty_goes_to_another_server(world: World) -> None:
    """An operator's release: the holder stops at its next renewal and lets others go first."""
    runs: list[float] = []
    one = world.server(counting("promote", runs, world))
    await world.pass_s(1)
    two = world.server(counting("promote", [], world))
    await world.pass_s(4)

    await release(world.db, "promote")
    await world.pass_s(2)
    runs.clear()
    await world.pass_s(10)

    assert ({}, {"promote": 2}) == (one.loops.held, two.loops.held)
    assert [] == runs


async def test_a_released_duty_comes_back_to_the_only_server(world: World) -> None:
    """Nobody else is there to leave it to: its holder takes it again at its next heartbeat, in another term."""
    one = world.server(counting("promote", [], world))
    await world.pass_s(2)

    await release(world.db, "promote")
    await world.pass_s(2)

    assert {"promote": 2} == one.loops.held


async def test_an_exception_in_a_duty_is_logged_and_counted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """U9: the duty goes on after a second, and the others do not notice."""
    runs: list[float] = []
    others: list[float] = []

    async def run(db: Database, most: int) -> Ran:
        runs.append(world.now_s)
        if len(runs) < 3:
            raise ValueError("boom")
        return Ran(5)

    world.server(Duty("scale", run, 10), counting("promote", others, world, period_s=1))

    await world.pass_s(4.5)

    assert [1000.0, 1001.0, 1002.0] == runs
    assert 5 == len(others)
    assert 2 == sum("duty.failed duty=scale" in record.message for record in caplog.records if record.exc_info)
    [_, scale] = await list_duties(world.db)
    assert (2, 5) == (scale.metadata.errors, scale.metadata.items)


async def test_who_does_a_duty_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """O17: each taking and each loss is one line with duty and term; a loss that was not meant is a warning."""
    caplog.set_level(logging.INFO, "windlass")
    one = world.server(counting("promote", [], world))
    await world.pass_s(2)
    await release(world.db, "promote")
    await world.pass_s(6)
    await one.loops.stop()

    lines = [(line.levelname, *line.getMessage().split()[:3]) for line in caplog.records]
    assert [
        ("INFO", "duty.acquired", "duty=promote", "term=1"),
        ("WARNING", "duty.lost", "duty=promote", "term=1"),
        ("INFO", "duty.acquired", "duty=promote", "term=2"),
        ("INFO", "duty.lost", "duty=promote", "term=2"),
    ] == lines


async def test_parts_of_one_duty_are_logged_together(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """O17: the sixteen shards of firing are one line, with how many of them this server got or gave up."""
    caplog.set_level(logging.INFO, "windlass")
    parts = [counting(f"fire-{number}", [], world) for number in range(4)]
    one = world.server(*parts)
    await world.pass_s(1)
    world.server(*parts)
    await world.pass_s(3)
    await one.loops.stop()

    lines = [" ".join(line.getMessage().split(" ")[:7]) for line in caplog.records]
    assert [
        'duty.acquired duty="fire (4 of 4 shards)" term=1',
        'duty.lost duty="fire (2 of 4 shards)" term=1',
        'duty.acquired duty="fire (2 of 4 shards)" term=3',
        'duty.lost duty="fire (2 of 4 shards)" term=1',
    ] == lines[:4]


async def test_a_duty_stops_when_the_database_is_gone_and_goes_on_when_it_is_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """U5: errors are asked again each half second; past the trust the duty stops; later it is taken again."""
    one = world.server(counting("promote", [], world))
    await world.pass_s(2.5)
    one.line.fails = Unavailable("cut")
    await world.pass_s(4.4)
    trusted = dict(one.loops.held)
    await world.pass_s(0.2)
    over = dict(one.loops.held)

    one.line.fails = None
    await world.pass_s(4)

    assert ({"promote": 1}, {}, {"promote": 2}) == (trusted, over, one.loops.held)
    assert 5 <= sum("cut" in record.message for record in caplog.records) <= 9


async def test_a_database_that_does_not_answer_is_asked_again(world: World) -> None:
    """A round that hangs is given up after a lease, so that one lost packet does not silence a server for ever."""
    one = world.server(counting("promote", [], world))
    await world.pass_s(1)
    one.line.late["renew"] = asyncio.Event()

    await world.pass_s(30)

    assert {"promote": 2} == one.loops.held


async def test_a_taking_whose_answer_was_lost_is_made_anew(world: World) -> None:
    """Rule 4: a duty that the table says is ours, and we do not know of, is given up and taken in the next term."""
    one = world.server(counting("promote", [], world), start=False)
    one.line.fails_after["take"] = CommitUnknown("lost")
    one.start()

    await world.pass_s(5)

    assert {"promote": 2} == one.loops.held


async def test_an_idle_server_asks_little(world: World) -> None:
    """U8: at most two queries a second for each server, whether it has duties or stands by."""
    one = world.server(counting("promote", [], world))
    await world.settle()
    two = world.server(counting("promote", [], world))
    await world.pass_s(10)
    one.line.asked.clear()
    two.line.asked.clear()

    await world.pass_s(60)

    assert [60, 30] == [len(one.line.asked), len(two.line.asked)]


async def test_idle_duties_ask_little(world: World) -> None:
    """U8: with nothing to do the duties of the queue share one look, twice a second."""
    one = world.server(*duties_of_the_queue(world, Wake()))
    await world.pass_s(10)
    one.line.asked.clear()

    await world.pass_s(60)

    led = sum(one.line.asked.count(name) for name in ("beat_server", "renew"))
    assert 60 == led
    # A pulse every two seconds, after which the next one is looked for.
    assert 120 <= one.line.asked.count("look") <= 150
    assert len(one.line.asked) - led < 5 * 60


async def test_starting_and_stopping_twice_is_the_same_as_once(world: World) -> None:
    """U9: a second start returns at once, so does a second stop; after the stop nothing runs."""
    runs: list[float] = []
    one = world.server(counting("promote", runs, world))
    await world.pass_s(1)

    await one.loops.run()
    await one.loops.stop()
    await one.loops.stop()
    await one.loops.run()
    runs.clear()
    await world.pass_s(10)

    assert ([], {}) == (runs, one.loops.held)


async def test_a_server_stopped_before_it_began_never_begins(world: World) -> None:
    """U9: a stop that overtakes the start is not lost."""
    one = world.server(counting("promote", [], world), start=False)

    await one.loops.stop()
    one.start()
    await world.pass_s(3)

    assert {} == one.loops.held


@pytest.mark.parametrize("mode", ["all", "steal"])
async def test_all_servers_at_once_do_no_harm(world: World, mode: str) -> None:
    """U7: without a lease every server promotes, a hundred at a time; each timer is promoted once."""
    steps = Steps(world.db, world.clock)
    servers = []
    for _ in range(2):
        server = world.server(start=False)
        servers.append(world.server(*duties_of_the_queue(world, server.wake), mode=mode))

    # All at once, and each of them without the other, which might have found nothing left to do.
    for stopped in (None, *servers):
        jobs = [answer.id for answer in await steps.submit(*(steps.job(delay_ms=1000) for _ in range(120)))]
        if stopped:
            stopped.freeze()
        await world.pass_s(3)
        if stopped:
            stopped.thaw()
        assert {State.QUEUED} == {await steps.state_of(job_id) for job_id in jobs}

    assert [] == await list_duties(world.db)
