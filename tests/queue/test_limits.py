"""Limits: how many jobs of a queue run at once and how fast they start, exact, without counters."""

from __future__ import annotations

import asyncio

import pytest

from tests.queue.steps import ANN, Steps, Worker
from windlass.job import State
from windlass.queue.claim import Claimed
from windlass.queue.control import pause_queue
from windlass.queue.lanes import LaneName, configure
from windlass.queue.limits import claim_limited

DEFAULT = LaneName("default", "default")


async def limited(steps: Steps, worker: Worker, count: int) -> list[Claimed]:
    """Claim up to `count` jobs from all lanes of the default queue, within its limits."""
    own = await steps.own_row()
    lanes = [lane.id for lane in await steps.serving()]
    return (await claim_limited(steps.db, own, lanes, [worker.session] * count)).jobs


async def set_limits(steps: Steps, jobs: int, **limits: float | None) -> None:
    """Fill the default queue, over three lanes, and limit it."""
    await steps.submit(*(steps.job(f"task{n % 3}") for n in range(jobs)))
    await configure(steps.db, DEFAULT, **limits)  # type: ignore[arg-type]


async def test_a_queue_without_limits_hands_out_all(steps: Steps) -> None:
    """L15: no limit set is no limit."""
    await set_limits(steps, 9)

    assert 9 == len(await limited(steps, await steps.worker(), 100))


async def test_max_running_counts_over_all_lanes(steps: Steps) -> None:
    """L15: a limit of the queue holds over all its tasks, labels and keys together, in the queue's order."""
    worker = await steps.worker()
    await set_limits(steps, 9, max_running=4)

    first = await limited(steps, worker, 3)
    second = await limited(steps, worker, 3)
    third = await limited(steps, worker, 3)

    assert [3, 1, 0] == [len(first), len(second), len(third)]
    assert sorted(lease.id for lease in first + second) == [lease.id for lease in first + second]


@pytest.mark.parametrize("how", ["complete", "fail", "release", "snooze", "lost"])
async def test_every_end_of_a_lease_makes_room(steps: Steps, how: str) -> None:
    """L15: nothing is counted that could leak; the room is what is really leased."""
    worker = await steps.worker()
    await set_limits(steps, 5, max_running=1)
    [lease] = await limited(steps, worker, 5)
    if how == "complete":
        await steps.complete(lease)
    elif how == "fail":
        await steps.fail(lease)
    elif how == "release":
        await steps.release(lease)
    elif how == "snooze":
        await steps.snooze(lease, 60)
    else:
        await steps.lose(lease)
        worker = await steps.worker("bob")

    assert [1, 0] == [len(await limited(steps, worker, 5)) for _ in range(2)]


async def test_a_job_being_cancelled_still_counts(steps: Steps) -> None:
    """L15: it runs until its worker says otherwise."""
    worker = await steps.worker()
    await set_limits(steps, 2, max_running=1)
    [lease] = await limited(steps, worker, 1)
    await steps.cancel(lease.id)

    assert [] == await limited(steps, worker, 1)


async def test_racing_claims_keep_the_limit(steps: Steps) -> None:
    """L15: whoever comes second counts after the first has committed; no budget is spent twice."""
    workers = [await steps.worker(f"w{n}") for n in range(4)]
    await set_limits(steps, 20, max_running=3)
    await steps.own_row()

    claims = await asyncio.gather(*(limited(steps, worker, 2) for worker in workers))

    assert 3 == sum(len(leases) for leases in claims)


async def test_a_lowered_limit_takes_nothing_away(steps: Steps) -> None:
    """L15: leases go on; nothing new is handed out until there is room."""
    worker = await steps.worker()
    await set_limits(steps, 9, max_running=3)
    leases = await limited(steps, worker, 9)
    await configure(steps.db, DEFAULT, max_running=2)

    await steps.complete(leases[0])
    full = await limited(steps, worker, 9)
    await steps.complete(leases[1])
    room = await limited(steps, worker, 9)

    assert ([], 1) == (full, len(room))


async def test_a_limit_of_one_queue_leaves_others_alone(steps: Steps) -> None:
    """L15: what runs in another queue, or under another tenant, does not count."""
    worker = await steps.worker()
    await steps.lease(worker, queue="other")
    await steps.lease(await steps.worker(tenant="acme"), tenant="acme")
    await set_limits(steps, 2, max_running=1)

    assert 1 == len(await limited(steps, worker, 2))


async def test_a_limit_says_that_it_was_the_reason(steps: Steps) -> None:
    """L15: full is told apart from empty, and with a rate when the next may start."""
    worker = await steps.worker()
    await set_limits(steps, 5, rate_per_s=2, burst=3)
    own, lanes = await steps.own_row(), [lane.id for lane in await steps.serving()]

    burst = await claim_limited(steps.db, own, lanes, [worker.session] * 10)
    again = await claim_limited(steps.db, own, lanes, [worker.session] * 10)
    steps.clock.advance(60)
    rest = await claim_limited(steps.db, own, lanes, [worker.session] * 10)

    assert (3, True, 0.5) == (len(burst.jobs), burst.full, burst.again_s)
    assert (0, True, 0.5) == (len(again.jobs), again.full, again.again_s)
    assert (2, False, None) == (len(rest.jobs), rest.full, rest.again_s)


async def test_a_rate_lets_a_burst_through_and_then_its_pace(steps: Steps) -> None:
    """L15, GCRA: at most `burst` at once, then one each 1/rate seconds, to the millisecond."""
    worker = await steps.worker()
    await set_limits(steps, 50, rate_per_s=2, burst=3)

    burst = len(await limited(steps, worker, 10))
    steps.clock.advance(0.499)
    early = len(await limited(steps, worker, 10))
    steps.clock.advance(0.001)
    one = len(await limited(steps, worker, 10))
    steps.clock.advance(1)
    two = len(await limited(steps, worker, 10))
    steps.clock.advance(60)
    rested = len(await limited(steps, worker, 10))

    assert (3, 0, 1, 2, 3) == (burst, early, one, two, rested)


async def test_a_rate_is_spent_by_what_was_really_claimed(steps: Steps) -> None:
    """L15: asking for many and getting few, or none, costs only what was got."""
    worker = await steps.worker()
    await set_limits(steps, 1, rate_per_s=1, burst=2)

    got = len(await limited(steps, worker, 10))
    empty = len(await limited(steps, worker, 10))
    await steps.submit_one()
    rest = len(await limited(steps, worker, 10))

    assert (1, 0, 1) == (got, empty, rest)


async def test_a_rate_without_a_burst_lets_one_through(steps: Steps) -> None:
    """L15: one at a time, each after its wait; a slow rate of one per minute is exact too."""
    worker = await steps.worker()
    await set_limits(steps, 5, rate_per_s=1 / 60)

    counts = [len(await limited(steps, worker, 10))]
    for seconds in (59.9, 0.1, 60, 30):
        steps.clock.advance(seconds)
        counts.append(len(await limited(steps, worker, 10)))

    assert [1, 0, 1, 1, 0] == counts


async def test_over_any_span_a_rate_is_never_exceeded(steps: Steps) -> None:
    """I15: however often one asks, in a span of t seconds at most burst + rate * t jobs start."""
    worker = await steps.worker()
    await set_limits(steps, 200, rate_per_s=3, burst=2)

    started: list[float] = []
    for tick in range(80):
        started += [tick * 0.137] * len(await limited(steps, worker, 5))
        steps.clock.advance(0.137)

    for index, begin in enumerate(started):
        for count, end in enumerate(started[index:], 1):
            assert count <= 2 + 3 * (end - begin) + 1e-6
    assert 2 + int(3 * 79 * 0.137) == len(started)


async def test_both_limits_hold_together(steps: Steps) -> None:
    """L15: the smaller of what both allow."""
    worker = await steps.worker()
    await set_limits(steps, 9, max_running=2, rate_per_s=1, burst=5)

    counts = [len(await limited(steps, worker, 9)) for _ in range(2)]

    assert [2, 0] == counts


async def test_a_paused_or_unknown_queue_hands_out_nothing_within_limits(steps: Steps) -> None:
    """X5: the pause is read by the claim itself; a queue that does not exist has nothing."""
    worker = await steps.worker()
    await set_limits(steps, 2, max_running=2, rate_per_s=1)
    await pause_queue(steps.db, steps.lanes, DEFAULT, actor=ANN)

    assert [] == await limited(steps, worker, 2)
    assert [] == (await claim_limited(steps.db, 999_999, [1], [worker.session])).jobs


async def test_a_full_queue_leaves_its_jobs_queued(steps: Steps) -> None:
    """L15: nothing is parked; a job that waits for room is queued like any other."""
    worker = await steps.worker()
    ids = [await steps.submit_one() for _ in range(2)]
    await configure(steps.db, DEFAULT, max_running=1)
    await limited(steps, worker, 2)

    assert [State.ASSIGNED, State.QUEUED] == [await steps.state_of(job_id) for job_id in ids]
