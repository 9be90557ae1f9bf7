"""How many jobs a worker asks for, and how long it pauses when nothing comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from tests.worker.poolsrig import claimed
from tests.worker.running import quick, until
from windlass.config import Settings
from windlass.config.check import derive
from windlass.engine.outside import Outside
from windlass.errors import Conflict, NotFound, SetupError, TooMany, Unavailable, WindlassError
from windlass.wire import work as wire
from windlass.worker.capacity import MOST_ASKED, MOST_HELD, Capacity
from windlass.worker.claims import Claims, check_tasks
from windlass.worker.frames import Opened
from windlass.worker.holdings import Holdings
from windlass.worker.patience import BackOff


def test_nothing_is_claimed_ahead_before_a_body_ended() -> None:
    """A worker that knows nothing of its jobs asks for as many as it has slots."""
    capacity = Capacity(20)

    assert (0, 20) == (capacity.ahead, capacity.room(0))


@pytest.mark.parametrize(
    ("run_s", "ahead"), [(0.0, 20), (0.001, 20), (0.1, 20), (0.2, 10), (1.0, 2), (2.0, 1), (2.1, 0), (60.0, 0)]
)
def test_so_many_are_claimed_ahead_as_begin_soon(run_s: float, ahead: int) -> None:
    """Ahead are those expected to begin within a tenth of a second, at most as many as there are slots."""
    capacity = Capacity(20)

    capacity.ended(1, run_s)

    assert ahead == capacity.ahead
    assert 20 + ahead == capacity.room(0)


def test_what_bodies_take_is_an_average() -> None:
    """One long body among short ones does not end claiming ahead; many of them do."""
    capacity = Capacity(10)
    capacity.ended(100, 0.1)

    capacity.ended(1, 1.0)
    after_one = capacity.ahead
    capacity.ended(100, 1000.0)

    assert 9 == after_one
    assert 0 == capacity.ahead


def test_a_set_batch_that_stalls_claims_nothing_ahead_for_longer_each_time() -> None:
    """Else the same jobs are claimed and given back over and over, until they are dead."""
    capacity = Capacity(2, batch=10)
    waits = []

    for _ in range(3):
        capacity.stalled()
        ended_count = 0
        while capacity.ahead == 0:
            capacity.ended(1, 5.0)
            ended_count += 1
        waits.append(ended_count)

    assert [2, 4, 8] == waits
    assert 8 == capacity.ahead


def test_a_worker_with_too_many_tasks_does_not_start() -> None:
    """One claim could not name them all: every claim would be refused."""
    check_tasks([str(number) for number in range(1000)])

    with pytest.raises(SetupError, match="1001 tasks in one worker; at most 1000"):
        check_tasks([str(number) for number in range(1001)])


def test_a_worker_that_stalls_claims_nothing_ahead() -> None:
    """While no slot frees nothing is claimed ahead, whatever bodies took before."""
    capacity = Capacity(4)
    capacity.ended(4, 0.0)

    capacity.stalled()
    stalled = capacity.ahead
    capacity.ended(1, 0.0)

    assert 0 == stalled
    assert 4 == capacity.ahead


def test_a_fixed_batch_overrides() -> None:
    """`worker.claim_batch` bounds each claim; nothing is claimed ahead, unless the batch is larger than the slots."""
    small, large = Capacity(20, batch=5), Capacity(2, batch=10)
    small.ended(10, 0.0)

    assert (5, 5, 1, 0) == (small.room(0), small.room(15), small.room(19), small.room(20))
    assert (10, 3) == (large.room(0), large.room(7))


def test_a_claim_and_a_heartbeat_have_bounds() -> None:
    """No claim asks for more than one may, and no more is held than a heartbeat can name."""
    capacity = Capacity(10_000)
    capacity.ended(1, 0.0)

    assert MOST_ASKED == capacity.room(0)
    assert 0 == capacity.room(MOST_HELD)


def test_pauses_double_up_to_a_bound() -> None:
    """Full jitter: from nothing up to a bound that doubles; after a success it begins anew."""
    back_off = BackOff(1.0, 30.0, chance=lambda: 1.0)

    pauses = [back_off.next_s() for _ in range(7)]
    back_off.reset()

    assert [1, 2, 4, 8, 16, 30, 30] == pauses
    assert 1 == back_off.next_s()


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    """Retry-After counts; an error that carries none, or that no server sent, asks for nothing."""
    back_off = BackOff(1.0, 30.0, chance=lambda: 0.0)
    told = TooMany("full")
    told.retry_after_s = 7.0

    assert (7.0, 0.0, 0.0) == (back_off.next_s(told), back_off.next_s(Unavailable("nobody")), back_off.next_s())


class Still:
    """A keeping that nobody listens to."""

    def hold(self, jobs: Any) -> None:
        """Do nothing."""

    drop = hold


class Answers:
    """A link whose claims are answered as a test says; the last answer never comes."""

    def __init__(self, *answers: wire.Claim | WindlassError) -> None:
        self._answers = list(answers)
        self.asked: list[wire.ClaimRequest] = []

    async def claim(self, request: wire.ClaimRequest) -> wire.Claim:
        """Return the next answer."""
        self.asked.append(request)
        if not self._answers:
            await asyncio.Event().wait()
        answer = self._answers.pop(0)
        if isinstance(answer, WindlassError):
            raise answer
        return answer


NOTHING = wire.Claim(jobs=[], cancel=[])


def claims_of(link: Any, outside: Outside, *, settings: Settings, resting: Callable[[], bool]) -> Claims:
    """Return the loop of a worker with two slots and a session."""
    holdings = Holdings(Still(), Capacity(2), monotonic=outside.monotonic)  # type: ignore[arg-type]
    holdings.open(Opened("ann", uuid4(), 3600.0, outside.monotonic()))
    return Claims(
        link,
        holdings,
        settings=settings,
        tasks=["add"],
        resting=resting,
        take=lambda claim: None,
        outside=outside,
    )


REQUEST_S = 0.001
"""How long an answer takes on the clock of these tests: time passes within requests, too."""


class Passing:
    """Time that passes: by the pauses of the loop, and by a little with each look at it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        """Return the instant."""
        self.now += REQUEST_S
        return self.now

    async def pause(self, span_s: float) -> None:
        """Let time pass at once."""
        self.pauses.append(round(span_s, 6))
        self.now += span_s
        await asyncio.sleep(0)

    def outside(self) -> Outside:
        """Return it for a worker whose chance is always the longest."""
        return Outside(monotonic=self.monotonic, pause=self.pause, chance=lambda: 1.0)


async def pauses_after(*answers: wire.Claim | WindlassError, **worker: Any) -> list[float]:
    """Return how long the loop pauses after each of these answers, by full chance."""
    time = Passing()
    settings = quick(backoff_min_seconds=1.0, backoff_max_seconds=30.0, error_pause_seconds=5.0, **worker)
    link = Answers(*answers)
    claims = claims_of(link, time.outside(), settings=settings, resting=lambda: False)
    loop = asyncio.create_task(claims.run())
    await until(lambda: len(link.asked) > len(answers))
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    return time.pauses


async def test_empty_answers_back_off_where_claims_do_not_wait() -> None:
    """With a wait of 0 the greater of the poll interval and a back-off that doubles follows an empty answer (W4)."""
    usual = await pauses_after(*[NOTHING] * 7, wait_seconds=0.0, poll_interval_seconds=1.0)
    sequential = await pauses_after(*[NOTHING] * 5, wait_seconds=0.0, poll_interval_seconds=5.0)

    assert [1, 2, 4, 8, 16, 30, 30] == usual
    assert [5, 5, 5, 8, 16] == sequential


async def test_a_successful_claim_resets_the_back_off() -> None:
    """After a job was handed out an empty queue is asked often again (W4)."""
    some = wire.Claim(jobs=[claimed("add")], cancel=[])

    assert [1, 2, 1] == await pauses_after(NOTHING, NOTHING, some, NOTHING, wait_seconds=0.0)


async def test_an_idle_worker_polls_an_empty_queue_a_few_times_in_two_minutes() -> None:
    """The profile `sequential` on an empty queue: polls come as far apart as W4 says, on a clock that moves."""
    time, polls_at = Passing(), []

    class Empty:
        async def claim(self, request: wire.ClaimRequest) -> wire.Claim:
            polls_at.append(time.now)
            return NOTHING

    usual = Settings()
    given = msgspec.structs.replace(usual, worker=msgspec.structs.replace(usual.worker, profile="sequential"))
    settings, _ = derive(given, set())
    claims = claims_of(Empty(), time.outside(), settings=settings, resting=lambda: False)
    loop = asyncio.create_task(claims.run())
    await until(lambda: time.now >= 220 or len(polls_at) > 100)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)

    assert [0, 5, 10, 15, 23, 39, 69, 99] == [round(at - 100) for at in polls_at if at < 220]


@pytest.mark.parametrize(
    ("wait_s", "after_s"), [(0.001, [1, 2, 4]), (0.4, [1, 2, 4]), (0.9, [1, 2, 4]), (1.5, []), (20.0, [])]
)
async def test_a_short_wait_for_work_is_followed_by_a_pause(wait_s: float, after_s: list[float]) -> None:
    """A claim that waits for less than the poll interval would else ask an empty queue all the time (W4)."""
    time = Passing()

    class Waits(Answers):
        async def claim(self, request: wire.ClaimRequest) -> wire.Claim:
            time.now += request.wait or 0
            return await super().claim(request)

    link = Waits(NOTHING, NOTHING, NOTHING)
    settings = quick(backoff_min_seconds=1.0, backoff_max_seconds=30.0, wait_seconds=wait_s, poll_interval_seconds=1.0)
    loop = asyncio.create_task(claims_of(link, time.outside(), settings=settings, resting=lambda: False).run())
    await until(lambda: len(link.asked) > 3)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)

    assert after_s == time.pauses


async def test_an_empty_answer_that_came_early_is_no_reason_to_hurry() -> None:
    """A server that answers a long poll with nothing at once, because it stops, is not asked without pause."""
    pauses = await pauses_after(NOTHING, NOTHING, wait_seconds=20.0, poll_interval_seconds=1.0)

    assert [1, 2] == pauses


async def test_a_cancel_alone_is_followed_by_the_next_claim() -> None:
    """An answer that only tells what to stop is not followed by a pause."""
    assert [] == await pauses_after(wire.Claim(jobs=[], cancel=[uuid4()]))


async def test_errors_of_the_network_back_off_and_others_pause() -> None:
    """Nobody there: a back-off that doubles. What only a person can mend: the pause after an error."""
    pauses = await pauses_after(Unavailable("nobody"), Unavailable("nobody"), WindlassError("odd"))

    assert [1.0, 2.0, 5.0] == pauses


async def test_retry_after_is_honoured() -> None:
    """A server that is full says when to come again."""
    full = TooMany("full")
    full.retry_after_s = 7.0

    assert [8.0] == await pauses_after(full)


async def test_while_reports_bring_jobs_nothing_is_claimed_besides() -> None:
    """The loop rests while a report carries a claim, and asks when it is told that there may be room."""
    resting = True
    link = Answers()
    claims = claims_of(link, Outside(), settings=quick(), resting=lambda: resting)
    loop = asyncio.create_task(claims.run())
    claims.ring()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked_while_resting = list(link.asked)

    resting = False
    claims.ring()

    await until(lambda: bool(link.asked))
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert [] == asked_while_resting


@pytest.mark.parametrize("error", [Conflict("it has ended"), NotFound("no such session")])
async def test_a_session_that_is_over_is_claimed_with_no_more(error: WindlassError) -> None:
    """After the loss nothing is asked for; when another session is open a claim goes at once, without a pause."""
    pauses: list[float] = []

    async def pause(span_s: float) -> None:
        pauses.append(span_s)

    link = Answers(error)
    outside = Outside(pause=pause)
    claims = claims_of(link, outside, settings=quick(), resting=lambda: False)
    holdings = claims._holdings
    loop = asyncio.create_task(claims.run())
    await until(lambda: holdings.session_over)
    claims.ring()
    await until(lambda: not claims._bell.is_set())
    asked_while_over, has_no_need = len(link.asked), claims.has_no_need

    holdings.open(Opened("ann", uuid4(), 30.0, outside.monotonic()))
    claims.ring()

    await until(lambda: len(link.asked) == 2)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert (1, True, []) == (asked_while_over, has_no_need, pauses)


async def test_a_renewed_session_is_claimed_with_again() -> None:
    """A refusal that was not the session's end does not silence a worker for ever."""
    claims = claims_of(Answers(), Outside(monotonic=lambda: 100.0), settings=quick(), resting=lambda: False)
    holdings = claims._holdings
    holdings.session_over = True

    holdings.renew(100.0)
    by_an_old_word = holdings.room()
    holdings.renew(101.0)

    assert (0, 2) == (by_an_old_word, holdings.room())
