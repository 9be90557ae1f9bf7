"""A fleet has as many runners as it should: replaced when they crash, drained when they are too many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from tests.worker.kept import PATIENCE_S, READY, MovedTime, ToldRunner, ToldServer, quick, settle
from windlass import log
from windlass.config import Settings
from windlass.config.settings import Workers
from windlass.errors import SetupError, Unavailable
from windlass.worker.fleet import SHORT_LIFE_S, UNHURRIED_S, Fleet, next_backoff_s, pool_settings
from windlass.worker.frames import Drain, Failed, Hold, Leaving, Ready, Start
from windlass.worker.scaler import bounded

JOB = uuid4()


class Fleeted:
    """A fleet with its runners, its server and its time."""

    def __init__(self, count: int = 2, *, is_scaled: bool = False) -> None:
        self.time = MovedTime()
        self.server = ToldServer()
        self.runners: list[ToldRunner] = []
        self.said_ready: list[Ready | None] = []
        self.fleet = Fleet(
            quick(),
            self._start,
            link=self.server,
            name="shop",
            count=count,
            is_scaled=is_scaled,
            outside=self.time.outside,
            on_ready=self.said_ready.append,
        )
        self.running = asyncio.create_task(self.fleet.run())

    async def _start(self) -> ToldRunner:
        runner = ToldRunner(pid=100 + len(self.runners))
        self.runners.append(runner)
        return runner

    async def opened(self) -> None:
        """Let every runner be ready."""
        await settle()
        for runner in self.runners:
            runner.say(READY)
        await settle()

    def alive(self) -> list[ToldRunner]:
        """Return the runners that have not ended."""
        return [runner for runner in self.runners if not runner.has_ended()]

    def draining(self) -> list[ToldRunner]:
        """Return the runners that were told to leave."""
        return [runner for runner in self.alive() if runner.heard(Drain)]

    async def leave(self, *runners: ToldRunner) -> None:
        """Let these leave in order."""
        for runner in runners:
            runner.say(Leaving("drained"))
        await settle()
        for runner in runners:
            runner.end(0)
        await settle()

    async def leave_to_be_replaced(self, runner: ToldRunner) -> None:
        """Let one leave because it takes too much memory."""
        runner.say(Leaving("It takes 90 MB.", replace=True))
        await settle()
        runner.end(0)
        await settle()

    async def ended(self) -> int:
        """Wait for the end of the fleet; return its exit code."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.running

    async def stop(self) -> None:
        """End what is still under way."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


@pytest.fixture
async def two() -> AsyncIterator[Fleeted]:
    """A fleet of two runners with sessions."""
    made = Fleeted()
    await made.opened()
    yield made
    await made.stop()


async def test_each_process_has_a_name_of_its_own(two: Fleeted) -> None:
    """They are numbered; it is said once that all are ready."""
    assert ["shop-1", "shop-2"] == [request.worker_id for request in two.server.registered if request.tasks]
    assert [READY] == two.said_ready


async def test_one_process_has_the_name_as_it_is() -> None:
    """No number where there is nothing to count."""
    one = Fleeted(1)
    await one.opened()

    assert ["shop"] == [request.worker_id for request in one.server.registered if request.tasks]
    await one.stop()


async def test_a_crashed_runner_is_replaced_after_a_pause(two: Fleeted) -> None:
    """Under the same name, with a session of its own; the others are left alone."""
    two.runners[0].end(-9)
    await settle()
    assert 1 == len(two.alive())

    await two.time.pass_by(1.0)
    await two.opened()

    starts = [request.worker_id for request in two.server.registered if not request.tasks]
    assert ["shop-1", "shop-2", "shop-1"] == starts
    assert 3 == len({request.session for request in two.server.registered})


def test_the_pause_doubles_and_begins_anew_after_a_minute_of_life() -> None:
    """From one second to thirty."""
    pauses = [next_backoff_s(None, 0.0)]
    for _ in range(6):
        pauses.append(next_backoff_s(pauses[-1], 0.0))

    assert [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] == pauses
    assert 1.0 == next_backoff_s(30.0, 61.0)


async def test_a_runner_that_asks_for_it_is_replaced_at_once(two: Fleeted) -> None:
    """It was recycled: nothing is wrong that a pause would mend."""
    await two.time.pass_by(SHORT_LIFE_S)
    two.runners[0].say(Leaving("max_jobs", replace=True))
    await settle()
    two.runners[0].end(0)
    await settle()

    assert 3 == len(two.runners)


async def test_a_runner_that_asks_for_it_too_soon_is_replaced_after_a_pause(two: Fleeted) -> None:
    """A limit of memory below what a process takes must not start one after the other without end."""
    await two.leave_to_be_replaced(two.runners[0])
    assert 2 == len(two.runners)

    await two.time.pass_by(1.0)
    await two.opened()
    await two.leave_to_be_replaced(two.runners[2])
    await two.time.pass_by(1.0)
    assert 3 == len(two.runners)

    await two.time.pass_by(1.0)
    assert 4 == len(two.runners)


async def test_a_runner_that_leaves_for_good_leaves_its_place_empty(two: Fleeted) -> None:
    """Somebody drained it by its name; a fleet without runners ends, as one that was stopped."""
    await two.leave(two.runners[0])
    assert 2 == len(two.runners)
    assert not two.running.done()

    await two.leave(two.runners[1])

    assert 0 == await two.ended()


@pytest.mark.parametrize("how", ["failed", "crashed"])
async def test_a_module_that_cannot_be_imported_at_first_ends_the_fleet(how: str) -> None:
    """A person must mend it: the reason is said once, and not every thirty seconds."""
    one = Fleeted(1)
    await settle()
    if how == "failed":
        one.runners[0].say(Failed("Cannot import shop: no such module."))
        await settle()
    one.runners[0].end(-11)

    with pytest.raises(SetupError, match="no such module" if how == "failed" else "SIGSEGV"):
        await one.ended()

    assert 1 == len(one.runners)


async def test_a_module_that_cannot_be_imported_later_is_tried_again(two: Fleeted) -> None:
    """A deployment may replace its files while the fleet runs."""
    two.runners[0].end(-9)
    await two.time.pass_by(1.0)
    two.runners[2].say(Failed("half a module"))
    await settle()
    two.runners[2].end(1)
    await two.time.pass_by(2.0)

    assert 4 == len(two.runners)
    assert not two.running.done()


async def test_a_fleet_that_cannot_register_does_not_start() -> None:
    """W3: it ends with the error, whose exit code is that of something unavailable."""
    one = Fleeted(1)
    one.server.down = Unavailable("nobody answers")
    await one.opened()

    await one.time.pass_by(20.0)

    with pytest.raises(Unavailable, match="nobody answers"):
        await one.ended()


async def test_the_first_signal_drains_the_second_gives_back_the_third_kills(two: Fleeted) -> None:
    """W10: each runner is told within how long to leave."""
    two.fleet.signalled()
    two.fleet.signalled()
    assert [[300.0, 0.0]] * 2 == [[told.within_s for told in _drains(runner)] for runner in two.runners]
    assert 2 == len(two.alive())

    two.fleet.signalled()

    assert 130 == await two.ended()
    assert [] == two.alive()


@pytest.mark.parametrize("is_down", [False, True])
async def test_rel_a12_the_second_signal_waits_for_nobody(
    two: Fleeted, is_down: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Runners that do not answer are ended and their sessions closed, not lost; a server that is down is let be.

    The log tells of workers that stopped, with what they gave back, and of none that died.
    """
    caplog.set_level(logging.INFO, logger="windlass")
    two.runners[0].say(Hold([(JOB, 1)]), Start([(JOB, 1)]))
    await settle()
    two.server.down = Unavailable("gone") if is_down else None
    two.fleet.signalled()

    two.fleet.signalled()

    assert 130 == await two.ended()
    assert [] == two.alive()
    assert ([] if is_down else [False, False]) == [lost for _, lost in two.server.closed]
    told = [(record.msg.name, record.msg.fields) for record in caplog.records if isinstance(record.msg, log.Line)]
    assert [0, 1] == sorted(fields["jobs"] for name, fields in told if name == "worker.stopped")
    assert [(JOB, "released")] == [
        (fields["job"], fields["outcome"]) for name, fields in told if name == "attempt.ended"
    ]
    assert "worker.died" not in [name for name, _ in told]


async def test_a_clean_drain_ends_with_zero(two: Fleeted) -> None:
    """All have left, nobody is replaced."""
    two.fleet.signalled()

    await two.leave(*two.runners)

    assert 0 == await two.ended()
    assert [False, False] == [lost for _, lost in two.server.closed]


async def test_a_signal_during_a_back_off_ends_it() -> None:
    """Nobody waits for a runner that is not to come back."""
    one = Fleeted(1)
    await one.opened()
    one.runners[0].end(-9)
    await settle()

    one.fleet.signalled()

    assert 0 == await one.ended()


async def test_scaling_out_is_at_once_and_in_by_draining_idle_ones_first() -> None:
    """H8: the busiest stay, and those that leave may take as long as they need."""
    pool = Fleeted(2, is_scaled=True)
    await pool.opened()
    pool.fleet.scale(4)
    await pool.opened()
    for runner, jobs in zip(pool.runners, (1, 0, 2, 0), strict=True):
        runner.say(Hold([(uuid4(), 1) for _ in range(jobs)]))
    await settle()

    pool.fleet.scale(1)

    assert [pool.runners[0], pool.runners[1], pool.runners[3]] == pool.draining()
    assert {UNHURRIED_S} == {told.within_s for runner in pool.draining() for told in _drains(runner)}
    assert 4 == len(pool.alive())
    await pool.stop()


async def test_work_that_comes_while_some_leave_gets_new_runners() -> None:
    """Those that leave are not called back; they do not count."""
    pool = Fleeted(2, is_scaled=True)
    await pool.opened()
    pool.fleet.scale(1)
    await settle()

    pool.fleet.scale(2)
    await pool.opened()

    assert 3 == len(pool.alive())
    await pool.leave(*pool.draining())
    assert 2 == len(pool.alive())
    assert not pool.running.done()
    await pool.stop()


async def test_those_that_leave_and_those_that_stay_are_never_more_than_may_be() -> None:
    """H5: one that finishes its last job takes memory too; its place is filled when it is gone."""
    pool = Fleeted(2, is_scaled=True)
    most = Settings().workers.max_count
    await pool.opened()
    pool.fleet.scale(most)
    await pool.opened()
    pool.fleet.scale(1)
    await settle()

    pool.fleet.scale(most)
    await pool.opened()

    assert most == len(pool.alive())
    [first, *_] = pool.draining()
    await pool.leave(first)
    pool.fleet.scale(most)
    await pool.opened()
    assert (most, most - 2) == (len(pool.alive()), len(pool.draining()))
    await pool.stop()


async def test_a_stopping_fleet_is_not_scaled() -> None:
    """A recommendation that comes too late starts nobody."""
    pool = Fleeted(1, is_scaled=True)
    await pool.opened()
    pool.fleet.signalled()

    pool.fleet.scale(4)
    await settle()

    assert 1 == len(pool.runners)
    await pool.leave(*pool.runners)
    assert 0 == await pool.ended()


async def test_health_fails_while_a_runner_is_missing(two: Fleeted) -> None:
    """A crash loop must be seen from outside."""
    assert [] == two.fleet.problems()

    two.runners[0].end(-9)
    await settle()

    assert ["shop-1 has ended and is not back yet"] == two.fleet.problems()


def test_the_local_pool_has_bounds_and_settings_of_its_own() -> None:
    """H5: between default_count and max_count; its threads and its poll interval come from [workers]."""
    settings = Settings(workers=Workers(default_count=2, max_count=8, threads=3, poll_interval_ms=250))

    assert [2, 5, 8] == [bounded(count, settings) for count in (0, 5, 99)]
    assert (3, 0.25) == (
        pool_settings(settings).worker.threads,
        pool_settings(settings).worker.poll_interval_seconds,
    )


def _drains(runner: ToldRunner) -> list[Drain]:
    return [frame for frame in runner.heard(Drain) if isinstance(frame, Drain)]
