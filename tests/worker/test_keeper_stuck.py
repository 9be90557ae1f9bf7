"""A runner whose interpreter is held cannot stop its tasks; its keeper does what is left to do (W9, K18)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from tests.worker.kept import Kept, quick, settle
from windlass.errors import NotFound, TooMany, Unavailable
from windlass.wire import work as wire
from windlass.worker.frames import Drain, Drop, Hold, Leaving, Lost, Renewed, Start, Tick
from windlass.worker.keeper import EARLY_S, WATCH_S

JOB, OTHER, WAITING = uuid4(), uuid4(), uuid4()
TICK = Tick(jobs_done=0)


@pytest.fixture
async def kept() -> AsyncIterator[Kept]:
    """A keeper with an open session; grace 30 s, of a time-out 6 s, then 5 s."""
    made = Kept(quick(health_seconds=1000.0))
    await settle()
    await made.opened()
    yield made
    await made.stop()


async def cancelled(kept: Kept) -> None:
    """Let the server ask for the end of JOB, which has just begun."""
    kept.server.next_beat = wire.Beat(cancel=[JOB], lost=[], released=[], drain=False)
    await kept.time.pass_by(EARLY_S + WATCH_S)


async def test_rel_b5_a_silent_runner_keeps_its_lease(kept: Kept) -> None:
    """A task may hold the interpreter for as long as nobody asks it to stop."""
    kept.runner.say(Hold([(JOB, 1)], [3600]), Start([(JOB, 1)]))

    await kept.time.pass_by(900.0)

    assert 90 == len(kept.server.beats)
    assert not kept.runner.has_ended()


async def test_a_cancel_that_nobody_hears_is_reported_by_the_keeper(kept: Kept) -> None:
    """After the grace and the margin the attempt is cancelled, a zombie, and its runner is replaced."""
    kept.runner.say(Hold([(JOB, 7)]), Start([(JOB, 7)]))
    await cancelled(kept)

    await kept.time.pass_by(34.0)
    assert [] == kept.server.reports
    await kept.time.pass_by(2.0)

    [request] = kept.server.reports
    [entry] = request.reports
    assert isinstance(entry, wire.FailEntry)
    assert (JOB, 7, "cancelled") == (entry.job_id, entry.fence, entry.outcome)
    assert {"stopped_by": "abandoned", "zombie": 1} == entry.metrics
    ending = await kept.ended()
    assert ("left", True) == (ending.kind, ending.replace)


async def test_a_time_out_that_nobody_enforces_is_reported_by_the_keeper(kept: Kept) -> None:
    """The limit comes with the lease and runs from the start of the body; then the time-out's grace, and the kill."""
    kept.runner.say(Hold([(JOB, 1)], [60]), Start([(JOB, 1)]))
    await kept.time.pass_by(70.0)
    assert [] == kept.server.reports

    await kept.time.pass_by(2.0)

    [entry] = kept.server.reports[0].reports
    assert isinstance(entry, wire.FailEntry)
    assert "timed_out" == entry.outcome
    assert entry.retryable
    assert 71.0 <= (entry.duration_seconds or 0.0) <= 72.0


async def test_a_runner_that_ticks_stops_its_tasks_itself(kept: Kept) -> None:
    """The keeper reports nothing for a runner that can speak."""
    kept.runner.say(Hold([(JOB, 1)]), Start([(JOB, 1)]))
    await cancelled(kept)

    await kept.pass_ticking(120)

    assert [] == kept.server.reports
    assert not kept.runner.has_ended()


async def test_jobs_that_wait_in_a_stuck_runner_go_to_others(kept: Kept) -> None:
    """They are named no more, and the runner must not begin them should it come back."""
    kept.runner.say(Hold([(JOB, 1), (OTHER, 1), (WAITING, 1)]), Start([(JOB, 1), (OTHER, 1)]))
    await cancelled(kept)

    await kept.time.pass_by(60.0)

    assert [Lost([(WAITING, 1), (JOB, 1)])] == kept.runner.heard(Lost)
    assert [OTHER] == [held.job_id for held in kept.server.beats[-1].held or ()]


async def test_a_stuck_runner_is_killed_at_the_end_of_the_drain_time(kept: Kept) -> None:
    """Until then its other bodies may end, should the interpreter be let go."""
    kept.runner.say(Hold([(JOB, 1), (OTHER, 1)]), Start([(JOB, 1), (OTHER, 1)]))
    await cancelled(kept)

    await kept.time.pass_by(36.0 + 298.0)
    assert not kept.runner.has_ended()
    await kept.time.pass_by(3.0)

    assert kept.runner.has_ended()
    assert [True] == [lost for _, lost in kept.server.closed]


async def test_a_stuck_runner_that_comes_back_is_drained_and_replaced(kept: Kept) -> None:
    """It still has a thread that nobody could stop."""
    kept.runner.say(Hold([(JOB, 1), (OTHER, 1)]), Start([(JOB, 1), (OTHER, 1)]))
    await cancelled(kept)
    await kept.time.pass_by(40.0)

    await kept.pass_ticking(2)

    assert [Drain("A task could not be stopped.", 300.0)] == kept.runner.heard(Drain)
    kept.runner.say(Drop([(OTHER, 1)]), Leaving("drained"))
    await settle()
    kept.runner.end(0)
    assert (await kept.ended()).replace


@pytest.mark.parametrize("how", ["job", "session"])
async def test_a_silent_runner_whose_lease_was_taken_is_replaced(kept: Kept, how: str) -> None:
    """Nothing is left to report, and the body runs on without its lease; what waits in the runner goes to others."""
    kept.runner.say(Hold([(JOB, 1), (OTHER, 1), (WAITING, 1)]), Start([(JOB, 1), (OTHER, 1)]))
    if how == "job":
        kept.server.next_beat = wire.Beat(cancel=[], lost=[JOB], released=[], drain=False)
    else:
        kept.server.failing = [NotFound("no such session")]
    await kept.time.pass_by(EARLY_S + WATCH_S)

    await kept.time.pass_by(34.0)
    assert not kept.runner.has_ended()
    await kept.time.pass_by(2.0 + 300.0)

    ending = await kept.ended()
    assert ("left", True) == (ending.kind, ending.replace)
    assert [] == kept.server.reports


async def test_a_runner_that_speaks_after_a_loss_stops_its_tasks_itself(kept: Kept) -> None:
    """It heard of it, and has a ladder of its own."""
    kept.runner.say(Hold([(JOB, 1)]), Start([(JOB, 1)]))
    kept.server.next_beat = wire.Beat(cancel=[], lost=[JOB], released=[], drain=False)
    await kept.time.pass_by(10.0)

    await kept.pass_ticking(400)

    assert not kept.runner.has_ended()


async def test_the_report_of_a_stuck_attempt_is_said_until_it_is_heard(kept: Kept) -> None:
    """The runner is not killed before: its session must live until then."""
    kept.runner.say(Hold([(JOB, 1)]), Start([(JOB, 1)]))
    await cancelled(kept)
    kept.server.down = Unavailable("gone")
    await kept.time.pass_by(60.0)
    assert not kept.runner.has_ended()
    kept.server.down = None

    await kept.time.pass_by(30.0)

    assert 1 == len(kept.server.reports)
    assert kept.runner.has_ended()


async def test_rel_k18_a_runner_that_stands_still_without_a_task_is_replaced() -> None:
    """A worker whose heartbeat lives and whose claims are dead must not be counted on."""
    kept = Kept(quick(health_seconds=120.0))
    await settle()
    await kept.opened()
    await kept.pass_ticking(5)

    await kept.time.pass_by(122.0)

    ending = await kept.ended()
    assert ("left", True) == (ending.kind, ending.replace)


async def test_rel_k18_health_fails_when_claims_or_heartbeats_stand_still() -> None:
    """Of a runner that is busy too, which is not replaced for it."""
    kept = Kept(quick(health_seconds=120.0))
    await settle()
    await kept.opened()
    kept.runner.say(Hold([(JOB, 1)]), Start([(JOB, 1)]), TICK)
    await kept.time.pass_by(100.0)
    assert kept.keeper.problem(kept.time.now) is None

    await kept.time.pass_by(30.0)
    assert "said nothing" in (kept.keeper.problem(kept.time.now) or "")
    await kept.pass_ticking(1)
    assert kept.keeper.problem(kept.time.now) is None

    async def hangs(request: wire.BeatRequest) -> wire.Beat:
        await asyncio.Event().wait()
        raise AssertionError

    kept.server.heartbeat = hangs  # type: ignore[method-assign]
    await kept.pass_ticking(45)
    assert "no heartbeat was sent" in (kept.keeper.problem(kept.time.now) or "")

    assert not kept.runner.has_ended()
    await kept.stop()


@pytest.mark.parametrize(("heartbeat_s", "beats_after_s"), [(None, 30.0), (20.0, 20.0), (60.0, 45.0)])
async def test_the_lease_is_the_servers(heartbeat_s: float | None, beats_after_s: float) -> None:
    """A worker that names no lease gets that of the server, and beats a third of it apart; at most half (V10)."""
    kept = Kept(quick(heartbeat_seconds=heartbeat_s))
    kept.server.lease_s = 90.0
    await settle()
    await kept.opened()

    await kept.time.pass_by(beats_after_s - 0.1)
    before = len(kept.server.beats)
    await kept.time.pass_by(0.1)

    assert (None, 0, 1) == (kept.server.registered[0].lease_seconds, before, len(kept.server.beats))
    await kept.stop()


async def test_a_worker_is_well_while_servers_are_away(kept: Kept) -> None:
    """A probe that ended it would end its jobs, which go on (Z3)."""
    kept.runner.say(Hold([(JOB, 1)]), Start([(JOB, 1)]), TICK)
    kept.server.down = Unavailable("gone")

    await kept.pass_ticking(300)

    assert kept.keeper.problem(kept.time.now) is None


async def test_a_heartbeat_is_tried_every_second_of_an_outage(kept: Kept) -> None:
    """So that the runner may claim within two seconds of a server's return; a pause that is asked for is kept."""
    kept.server.down = Unavailable("gone")
    await kept.pass_ticking(60)
    kept.server.down = None
    kept.runner.forget(Renewed)

    await kept.time.pass_by(1.0)
    told = kept.runner.heard(Renewed)
    full = TooMany("full")
    full.retry_after_s = 7.0
    kept.server.failing = [full]
    await kept.pass_ticking(10)
    kept.server.beats.clear()
    await kept.pass_ticking(6)

    assert 1 == len(told)
    assert [] == kept.server.beats


async def test_what_is_lost_is_told_before_the_renewal(kept: Kept) -> None:
    """What waits for a slot begins when the lease is trusted again: by then it must be known to be lost."""
    kept.runner.say(Hold([(JOB, 1)]))
    await settle()
    kept.server.next_beat = wire.Beat(cancel=[], lost=[JOB], released=[], drain=False)

    await kept.time.pass_by(10.0)

    assert [Lost, Renewed] == [type(word) for word in kept.runner.sent if isinstance(word, Lost | Renewed)]


async def test_a_silent_runner_is_killed_when_its_drain_is_over(kept: Kept) -> None:
    """One that holds the interpreter never hears that it is to leave."""
    kept.runner.say(Hold([(JOB, 1)]), Start([(JOB, 1)]))
    await settle()
    kept.keeper.drain("stop", within_s=20.0)

    await kept.time.pass_by(24.0)
    assert not kept.runner.has_ended()
    await kept.time.pass_by(2.0)

    assert "left" == (await kept.ended()).kind
    assert [True] == [lost for _, lost in kept.server.closed]
