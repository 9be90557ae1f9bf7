"""A keeper holds the session of its runner: opens it, renews it with all that is held, and ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import msgspec
import pytest

from tests.worker.kept import READY, Kept, quick, settle
from windlass.errors import Conflict, Forbidden, InvalidInput, NotFound, Unavailable
from windlass.wire import work as wire
from windlass.wire.tasks import MOST_TASKS
from windlass.worker import frames
from windlass.worker.frames import Cancel, Drain, Drop, Hold, Leaving, Lost, Opened, Ready, Renewed, Start, Tick

JOB, OTHER = uuid4(), uuid4()


@pytest.fixture
async def kept() -> AsyncIterator[Kept]:
    """A keeper whose runner has been started."""
    made = Kept()
    await settle()
    yield made
    await made.stop()


async def test_a_session_is_opened_before_the_modules_are_imported(kept: Kept) -> None:
    """The runner imports nothing before it has the session; when it has, the servers are told its tasks (W3)."""
    [starting] = kept.server.registered
    [word] = kept.runner.sent

    session = await kept.opened()

    [_, ready] = kept.server.registered
    assert Opened("worker-1", session, 30.0, 1000.0) == word
    assert ("worker-1", session, (), 4711) == (starting.worker_id, starting.session, starting.tasks, starting.pid)
    assert (session, ("add",)) == (ready.session, ready.tasks)


async def test_a_worker_starts_until_it_claims(kept: Kept) -> None:
    """Its session is kept by registering again, so that it is shown as starting; its first heartbeat ends that (W3)."""
    await kept.time.pass_by(60.0)
    importing = len(kept.server.registered), len(kept.runner.heard(Renewed)), kept.keeper.opened.is_set()
    kept.runner.say(READY)
    await kept.time.pass_by(10.0)
    before = kept.keeper.opened.is_set(), len(kept.server.beats)

    kept.runner.say(Tick(jobs_done=0))
    await settle()

    assert ((7, 6, False), (True, 0)) == (importing, before)
    assert ([()] * 7 + [("add",)] * 2) == [request.tasks for request in kept.server.registered]
    assert 1 == len(kept.server.beats)


async def test_a_runner_that_holds_a_job_has_claimed(kept: Kept) -> None:
    """A first job that holds the interpreter lets no tick through; its cancel comes with a heartbeat all the same."""
    kept.runner.say(READY, Hold([(JOB, 1)]), Start([(JOB, 1)]))
    kept.server.next_beat = wire.Beat(cancel=[JOB], lost=[], released=[], drain=False)

    await settle()

    assert [Cancel([(JOB, 1)])] == kept.runner.heard(Cancel)


async def test_rel_a12_a_runner_that_has_claimed_drains_from_the_start(kept: Kept) -> None:
    """W10: a signal comes when the first job has begun, and before a server has been told the tasks."""
    kept.server.failing = [Unavailable("away")] * 100
    kept.runner.say(READY, Hold([(JOB, 1)]), Start([(JOB, 1)]))
    await settle()
    kept.server.failing.clear()

    kept.keeper.drain("stop", within_s=60.0)

    assert (False, False) == (kept.keeper.opened.is_set(), kept.runner.has_ended())
    assert [Drain("stop", 60.0)] == kept.runner.heard(Drain)


async def test_rel_a12_a_job_that_kills_a_runner_while_it_drains_from_the_start_is_lost(kept: Kept) -> None:
    """A job that kills its process must count as lost, else it would kill for ever; that it had begun is told first."""
    kept.server.failing = [Unavailable("away")] * 100
    kept.runner.say(READY, Hold([(JOB, 1)]), Start([(JOB, 1)]))
    await settle()
    kept.server.failing.clear()
    kept.keeper.drain("stop", within_s=60.0)
    kept.runner.end(-11)

    ending = await kept.ended()

    assert ("left", "SIGSEGV") == (ending.kind, ending.reason)
    assert [True] == [lost for _, lost in kept.server.closed]
    assert [JOB] == [held.job_id for held in kept.server.beats[-1].held or ()]


async def test_rel_a12_what_a_runner_began_unheard_before_its_drain_is_given_back(kept: Kept) -> None:
    """A stop is a stop: a runner whose first words were not read yet is ended, and its job loses no attempt."""
    kept.runner.say(READY, Hold([(JOB, 1)]), Start([(JOB, 1)]))
    kept.keeper.drain("stop", within_s=60.0)
    kept.runner.end(-9)

    await kept.ended()

    assert [False] == [lost for _, lost in kept.server.closed]
    assert [JOB] == [held.job_id for held in kept.server.beats[-1].held or ()]


async def test_a_session_that_ends_while_the_worker_starts_is_replaced(kept: Kept) -> None:
    """As when nobody heard of it for a lease: the runner claims with another."""
    kept.server.failing = [Conflict("it has ended")]

    await kept.time.pass_by(10.0)
    kept.runner.say(READY, Tick(jobs_done=0))
    await settle()

    first, second = (word.session for word in kept.runner.sent if isinstance(word, Opened))
    assert first != second == kept.server.beats[0].session


async def test_tasks_that_a_server_refuses_end_the_start(kept: Kept) -> None:
    """The first registration names none; what is wrong with them is said by the second."""
    kept.server.failing = [InvalidInput("tasks", "too odd.")]

    kept.runner.say(READY)

    ending = await kept.ended()
    assert ("refused", False) == (ending.kind, ending.was_open)
    assert "too odd" in ending.reason
    assert 1 == len(kept.server.closed)


@pytest.mark.parametrize("how", ["failed", "drained", "died"])
async def test_a_worker_that_ends_while_it_starts_ends_its_session(kept: Kept, how: str) -> None:
    """A module that cannot be imported leaves no worker behind that nobody hears of."""
    [opened] = kept.runner.heard(Opened)
    if how == "failed":
        kept.runner.say(frames.Failed("no module"))
        await settle()
    if how == "drained":
        kept.keeper.drain("stop", within_s=60.0)
    kept.runner.end(1)

    await kept.ended()

    assert isinstance(opened, Opened)
    assert [opened.session] == [session for session, _ in kept.server.closed]


async def test_each_heartbeat_names_all_that_is_held_and_what_has_begun(kept: Kept) -> None:
    """The held set is complete, so that the server gives back what an answer that got lost had handed out."""
    await kept.opened()
    await kept.time.pass_by(9.4)
    kept.runner.say(Hold([(JOB, 3), (OTHER, 1)]), Start([(JOB, 3)]), Tick(jobs_done=5, jobs_failed=2))

    await kept.time.pass_by(0.6)

    [beat] = kept.server.beats
    assert (
        wire.HeldJob(job_id=JOB, fence=3, started=0.6),
        wire.HeldJob(job_id=OTHER, fence=1, started=False),
    ) == beat.held
    assert (3, 2) == (beat.completed, beat.failed)
    assert [Renewed(1010.0)] == kept.runner.heard(Renewed)


async def test_a_body_that_outlives_a_second_is_told_at_once(kept: Kept) -> None:
    """W6: the job reads running soon, by one word for all bodies that began; what it says later is the same start."""
    await kept.opened()
    await kept.time.pass_by(3.0)
    kept.runner.say(Hold([(JOB, 1), (OTHER, 1)]), Start([(JOB, 1)]))
    await kept.time.pass_by(0.1)
    kept.runner.say(Start([(OTHER, 1)]))

    await kept.time.pass_by(6.9)

    [beat] = kept.server.beats
    first, second = (job.started for job in beat.held or ())
    assert 1.0 <= first <= 1.5
    assert second == pytest.approx(first - 0.1)
    await kept.time.pass_by(5.0)
    [_, later] = kept.server.beats
    assert later.held is not None
    assert later.held[0].started == pytest.approx(first + 10.0)


async def test_short_jobs_send_no_word_of_their_own(kept: Kept) -> None:
    """W6: never an extra request per job: one that ends soon is told by its report."""
    await kept.opened()
    for fence in range(1, 20):
        kept.runner.say(Hold([(JOB, fence)]), Start([(JOB, fence)]))
        await kept.time.pass_by(0.45)
        kept.runner.say(Drop([(JOB, fence)]))

    assert [] == kept.server.beats


async def test_what_is_done_is_counted_once(kept: Kept) -> None:
    """A heartbeat tells what was done since the last one that was answered."""
    await kept.opened()
    kept.runner.say(Tick(jobs_done=5))
    await kept.time.pass_by(10.0)
    kept.runner.say(Tick(jobs_done=7))

    await kept.time.pass_by(10.0)

    assert [5, 2] == [beat.completed for beat in kept.server.beats]


async def test_a_runner_that_drains_says_so(kept: Kept) -> None:
    """Whoever looks at the workers sees it, also when a signal or the scaler is the cause."""
    await kept.opened()
    await kept.time.pass_by(10.0)

    kept.keeper.drain("Scaled in.", within_s=1000.0)
    await kept.time.pass_by(10.0)

    assert [False, True] == [beat.draining for beat in kept.server.beats]


async def test_what_was_done_last_is_counted_too(kept: Kept) -> None:
    """A runner that leaves says it before; a last heartbeat tells it."""
    await kept.opened()
    kept.runner.say(Tick(jobs_done=3, jobs_failed=1), Leaving("drained"))
    await settle()

    kept.runner.end(0)

    await kept.ended()
    assert [(2, 1)] == [(beat.completed, beat.failed) for beat in kept.server.beats]
    assert [False] == [lost for _, lost in kept.server.closed]


async def test_jobs_that_were_given_back_are_told(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """O17: those that the runner released, and those that its session still held."""
    caplog.set_level("INFO", logger="windlass")
    await kept.opened()
    kept.runner.say(Hold([(JOB, 1), (OTHER, 1)]), Drop([(OTHER, 1)]), Leaving("drained", given_back_count=1))
    await settle()

    kept.runner.end(0)

    await kept.ended()
    [line] = [record.getMessage() for record in caplog.records if record.getMessage().startswith("worker.stopped")]
    assert line.endswith("reason=drained jobs=2")


async def test_a_heartbeat_that_is_not_answered_is_sent_again_within_the_interval(kept: Kept) -> None:
    """The lease runs from before the request that was answered, not from before the first."""
    await kept.opened()
    kept.server.failing = [Unavailable("gone"), Unavailable("gone")]

    await kept.time.pass_by(19.0)

    assert 1 == len(kept.server.beats)
    [renewed] = kept.runner.heard(Renewed)
    assert isinstance(renewed, Renewed)
    assert 1010.0 < renewed.renewed_at < 1019.0


async def test_a_cancel_is_passed_on_when_the_waiting_heartbeat_tells_it(kept: Kept) -> None:
    """X2: not with the next heartbeat, up to ten seconds later; said again it is told once."""
    session = await kept.opened()
    kept.runner.say(Hold([(JOB, 1)]))
    await settle()
    [(request, _)] = kept.server.waiting
    assert (session, None, (0, 0), False) == (
        request.session,
        request.held,
        (request.completed, request.failed),
        request.draining,
    )

    kept.server.tell(cancel=[JOB])
    await settle()
    assert [Cancel([(JOB, 1)])] == kept.runner.heard(Cancel)
    kept.server.tell(cancel=[JOB])
    await settle()

    assert [Cancel([(JOB, 1)])] == kept.runner.heard(Cancel)
    assert 2 == len(kept.server.waiting)  # what it knows it does not ask for at once again
    await kept.time.pass_by(1.0)
    assert 3 == len(kept.server.waiting)
    assert [] == kept.server.beats


async def test_a_drain_is_heard_by_the_waiting_heartbeat(kept: Kept) -> None:
    """After that it says itself that it drains, so that it waits for other news."""
    await kept.opened()

    kept.server.tell(drain=True)
    await settle()

    assert [Drain("drained", 300.0)] == kept.runner.heard(Drain)
    assert [False, True] == [request.draining for request, _ in kept.server.waiting]


async def test_a_lost_lease_is_looked_up_by_a_heartbeat_that_names_all(kept: Kept) -> None:
    """That something happened is told without fences: a job may have been claimed anew since."""
    await kept.opened()
    kept.runner.say(Hold([(JOB, 2)]))
    kept.server.next_beat = wire.Beat(cancel=[], lost=[JOB], released=[], drain=False)

    kept.server.tell()
    await settle()

    [beat] = kept.server.beats
    assert (wire.HeldJob(job_id=JOB, fence=2),) == beat.held
    assert [Lost([(JOB, 2)])] == kept.runner.heard(Lost)


async def test_waiting_for_news_that_fails_is_tried_again_and_harms_nobody(kept: Kept) -> None:
    """The lease is kept by the other heartbeats; an old server, or a proxy, may cut those that wait."""
    await kept.opened()
    [(_, waiting)] = kept.server.waiting

    waiting.set_exception(Unavailable("cut"))
    await kept.time.pass_by(30.0)

    assert 2 == len(kept.server.waiting)
    assert 3 == len(kept.server.beats)
    assert [1] * 3 == [len(kept.runner.heard(Opened))] * 3


async def test_cancels_and_lost_leases_are_passed_on(kept: Kept) -> None:
    """Each is told once; what is lost is not named again."""
    await kept.opened()
    kept.runner.say(Hold([(JOB, 1), (OTHER, 1)]))
    kept.server.next_beat = wire.Beat(cancel=[JOB], lost=[OTHER], released=[], drain=False)
    await kept.time.pass_by(10.0)
    kept.server.next_beat = wire.Beat(cancel=[JOB], lost=[], released=[], drain=False)

    await kept.time.pass_by(10.0)

    assert [Cancel([(JOB, 1)])] == kept.runner.heard(Cancel)
    assert [Lost([(OTHER, 1)])] == kept.runner.heard(Lost)
    assert [JOB] == [held.job_id for held in kept.server.beats[1].held or ()]


async def test_a_job_claimed_anew_is_not_lost_by_an_answer_about_its_last_lease(kept: Kept) -> None:
    """An answer speaks of the fence that the heartbeat named."""
    held = kept.keeper.held
    held.hold([(JOB, 1)])
    named = held.named(0.0) or ()
    held.drop([(JOB, 1)])
    held.hold([(JOB, 2)])

    lost = held.drop_lost([JOB], named)

    assert [] == lost
    assert 1 == len(held)


async def test_what_went_back_because_it_was_not_named_leaves_the_named_lease(kept: Kept) -> None:
    """Two leases of one job, of which a heartbeat named one: the other is that which went back."""
    held = kept.keeper.held
    held.hold([(JOB, 1)])
    named = held.named(0.0) or ()
    held.hold([(JOB, 2)])

    returned = held.drop_returned([JOB], named)

    assert [(JOB, 2)] == returned
    assert [(JOB, 1)] == [(job.job_id, job.fence) for job in held.named(0.0) or ()]


@pytest.mark.parametrize("error", [NotFound("no such session"), Conflict("it has ended")])
async def test_after_the_end_of_its_session_a_runner_gets_another(kept: Kept, error: NotFound | Conflict) -> None:
    """Everything held is lost with the session; the runner goes on with a fresh one."""
    first = await kept.opened()
    kept.runner.say(Hold([(JOB, 1)]))
    kept.server.failing = [error]

    await kept.time.pass_by(10.0)

    assert [Lost([(JOB, 1)])] == kept.runner.heard(Lost)
    second = kept.runner.heard(Opened)[1]
    assert isinstance(second, Opened)
    assert first != second.session
    assert not kept.runner.has_ended()
    await kept.time.pass_by(10.0)
    assert [(second.session, ())] * 2 == [(beat.session, beat.held) for beat in kept.server.beats]


async def test_who_cannot_register_is_refused_with_the_last_error() -> None:
    """W3: a worker that cannot register within ten seconds does not start, and imports nothing."""
    kept = Kept()
    kept.server.down = Unavailable("nobody answers")

    await kept.time.pass_by(20.0)

    ending = await kept.ended()
    assert ("refused", "nobody answers") == (ending.kind, ending.reason)
    assert ([], True) == (kept.runner.sent, kept.runner.has_ended())


async def test_a_key_that_is_not_good_is_refused_at_once() -> None:
    """Trying again helps only where time does."""
    kept = Kept()
    kept.server.down = Forbidden("not with this key")

    ending = await kept.ended()

    assert isinstance(ending.error, Forbidden)


async def test_all_tasks_of_a_runner_are_told_with_their_signatures(kept: Kept) -> None:
    """As many as a worker may serve: what is not told has neither its arguments checked nor its options."""
    names = [f"task-{number}" for number in range(MOST_TASKS)]
    await kept.time.pass_by(1.0)
    kept.runner.say(Ready(tasks=names, signatures=dict.fromkeys(names, msgspec.Raw(b"{}"))))
    await settle()

    told = kept.server.registered[-1]

    assert (names, set(names)) == (list(told.tasks), set(told.signatures))


async def test_an_outage_is_waited_for_by_a_replacement() -> None:
    """A worker that runs again after a crash waits for the servers as long as it takes."""
    kept = Kept(register_within_s=None)
    kept.server.down = Unavailable("nobody answers")
    await kept.time.pass_by(600.0)
    kept.server.down = None

    await kept.time.pass_by(30.0)

    assert 1 == len(kept.runner.heard(Opened))
    await kept.stop()


async def test_a_runner_that_leaves_has_its_session_closed(kept: Kept) -> None:
    """It gave everything back: nothing is lost. It may ask to be replaced."""
    session = await kept.opened()
    kept.runner.say(Leaving("1000 jobs done", replace=True))
    await settle()
    kept.runner.end(0)

    ending = await kept.ended()

    assert ("left", True) == (ending.kind, ending.replace)
    assert [(session, False)] == kept.server.closed


async def test_the_session_of_a_dead_runner_is_lost_at_once(kept: Kept) -> None:
    """Its jobs come back in a second, not when the lease is over."""
    session = await kept.opened()
    kept.runner.say(Hold([(JOB, 1)]), Start([(JOB, 1)]))
    kept.runner.end(-9)

    ending = await kept.ended()

    assert ("died", "SIGKILL", False) == (ending.kind, ending.reason, ending.replace)
    assert [(session, True)] == kept.server.closed


async def test_what_a_dead_runner_had_begun_is_told_before_its_session_ends(kept: Kept) -> None:
    """A job that kills its process before the first heartbeat must count as lost, else it would kill for ever."""
    session = await kept.opened()
    kept.runner.say(Hold([(JOB, 1)]), Start([(JOB, 1)]))
    kept.runner.end(-9)

    await kept.ended()

    [beat] = kept.server.beats
    assert (session, (wire.HeldJob(job_id=JOB, fence=1, started=0.0),)) == (beat.session, beat.held)


async def test_a_session_that_cannot_be_closed_is_left_to_lapse(kept: Kept) -> None:
    """The end of a runner does not wait for a server for ever."""
    await kept.opened()
    kept.server.down = Unavailable("gone")
    kept.runner.end(-11)
    await settle()

    await kept.time.pass_by(30.0)

    assert "SIGSEGV" == (await kept.ended()).reason


async def test_a_runner_that_cannot_begin_says_why(kept: Kept) -> None:
    """The reason is for a person; its session is ended in good order."""
    kept.runner.say(frames.Failed("No module named shop."))
    await settle()
    kept.runner.end(1)

    ending = await kept.ended()

    assert ("failed", "No module named shop.", False) == (ending.kind, ending.reason, ending.was_open)
    assert [False] == [lost for _, lost in kept.server.closed]


async def test_a_drain_wished_by_the_server_is_passed_on_once(kept: Kept) -> None:
    """The server says it in every answer."""
    await kept.opened()
    for _ in range(2):
        kept.server.next_beat = wire.Beat(cancel=[], lost=[], released=[], drain=True)
        await kept.pass_ticking(10)

    assert [Drain("drained", 300.0)] == kept.runner.heard(Drain)


async def test_a_runner_without_a_session_is_ended_by_a_drain(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """It holds nothing, and may import for minutes; nobody is told that a worker has died."""
    caplog.set_level("INFO", logger="windlass")
    kept.keeper.drain("stop", within_s=300.0)

    ending = await kept.ended()

    assert ("left", False) == (ending.kind, ending.replace)
    assert ["worker.stopped"] == [record.getMessage().split()[0] for record in caplog.records]


async def test_jobs_that_end_in_order_during_a_drain_are_counted(kept: Kept) -> None:
    """They are the work that a spot notice saved."""
    await kept.opened()
    kept.runner.say(Hold([(JOB, 1), (OTHER, 1)]), Drop([(OTHER, 1)]))
    await settle()
    kept.keeper.drain("Spot termination", within_s=105.0)
    kept.runner.say(Drop([(JOB, 1)]))
    await settle()

    assert 1 == kept.keeper.finished_count


async def test_more_leases_than_can_be_named_are_not_named() -> None:
    """A heartbeat that named only some would have the others taken away."""
    kept = Kept(quick(threads=10_000))
    await settle()
    await kept.opened()
    kept.runner.say(Hold([(uuid4(), 1) for _ in range(10_001)]))

    await kept.time.pass_by(10.0)

    assert [None] == [beat.held for beat in kept.server.beats]
    await kept.stop()


async def test_words_that_cannot_be_read_end_the_runner(kept: Kept) -> None:
    """Without a keeper that hears it a runner would work in vain."""
    await kept.opened()
    kept.runner.say(Hold(jobs=[(JOB,)]))  # type: ignore[list-item]

    ending = await kept.ended()

    assert "died" == ending.kind


async def test_a_runner_that_says_that_it_leaves_and_does_not_is_ended(kept: Kept) -> None:
    """Its jobs are reported or given back: nothing is lost by it."""
    session = await kept.opened()
    kept.runner.say(Leaving("drained"))

    await kept.time.pass_by(6.0)

    assert "left" == (await kept.ended()).kind
    assert [(session, False)] == kept.server.closed
