"""Report: the first valid word of the holder is recorded, once; how each kind of report ends an attempt.

Which of applied, already, stale and unknown a report is: test_report_answers.py.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.queue.steps import ANN, Steps
from windlass.errors import InvalidInput, PayloadTooLarge
from windlass.job import Outcome, State
from windlass.queue.claim import claim_back
from windlass.queue.control import pause_job
from windlass.queue.moves import MAX_RELEASES
from windlass.queue.report import Complete, Fail, Release, Snooze, Status, report
from windlass.queue.retry import PRESETS, RetryPolicy
from windlass.queue.workers import close


async def test_a_success_moves_the_job_into_history(steps: Steps) -> None:
    """R1: succeeded, with result, metrics, times and worker; what was asked for stays, and it has no place any more."""
    worker = await steps.worker()
    lease = await steps.running(worker, tags=("t",))
    steps.clock.advance(7)

    answer = await steps.complete(lease, result='{"n": 1}', metrics='{"files_processed":2}')

    assert (Status.APPLIED, State.SUCCEEDED, None) == (answer.status, answer.state, answer.next_run_at)
    job = await steps.get(lease.id)
    assert (State.SUCCEEDED, '{"n": 1}', '{"files_processed":2}', "ann") == (
        job.state,
        job.result,
        job.metrics,
        job.worker,
    )
    assert (lease.claimed_at, steps.clock.now(), 1, 1) == (job.started_at, job.finished_at, job.attempt, job.fence)
    left = await steps.dump(["job", "queue", "timer"])
    assert [1, 0, 0] == [len(rows) for rows in left.values()]
    assert [Outcome.SUCCEEDED] == [attempt.outcome for attempt in await steps.attempts(lease.id)]


async def test_a_batch_is_answered_item_by_item(steps: Steps) -> None:
    """P22: complete, fail, snooze and release of many jobs in one call, answered in order."""
    worker = await steps.worker()
    leases = [await steps.lease(worker) for _ in range(5)]
    names = [steps.named(lease) for lease in leases]

    answers = await steps.report(
        Release(**names[0]),
        Complete(**names[1]),
        Fail(**names[2]),
        Snooze(**names[3], delay_ms=5000),
        Complete(**names[4]),
    )

    assert [Status.APPLIED] * 5 == [answer.status for answer in answers]
    states = [State.QUEUED, State.SUCCEEDED, State.SCHEDULED, State.SCHEDULED, State.SUCCEEDED]
    assert states == [answer.state for answer in answers]
    assert states == [await steps.state_of(lease.id) for lease in leases]
    assert [leases[0].lane] * 5 == [answer.lane for answer in answers]


@pytest.mark.parametrize(
    ("duration_ms", "started_before_s"), [(4000, 4), (0, 0), (None, 10), (10_000, 10), (11_000, 10)]
)
@pytest.mark.parametrize("outcome", ["complete", "dead", "retry"])
async def test_a_start_never_told_is_reckoned_from_the_duration(
    steps: Steps, outcome: str, duration_ms: int | None, started_before_s: int
) -> None:
    """W16: started_at is the finish less the duration told, else the claim; never before the claim."""
    lease = await steps.lease(await steps.worker(), max_attempts=1 if outcome == "dead" else 3)
    steps.clock.advance(10)

    if outcome == "complete":
        await steps.complete(lease, duration_ms=duration_ms)
    else:
        await steps.fail(lease, duration_ms=duration_ms)

    [attempt] = await steps.attempts(lease.id)
    assert steps.clock.now() - timedelta(seconds=started_before_s) == attempt.started_at


async def test_a_told_start_stands_whatever_the_duration(steps: Steps) -> None:
    """W16: only a start never told is reckoned."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    steps.clock.advance(3)
    await steps.beat(worker, lease, started=True)
    told_at = steps.clock.now()
    steps.clock.advance(5)

    await steps.complete(lease, duration_ms=1)

    assert told_at == (await steps.get(lease.id)).started_at


@pytest.mark.parametrize("duration_ms", [-1, 2**62])
async def test_a_duration_out_of_bounds_is_refused(steps: Steps, duration_ms: int) -> None:
    """I20: a start after the finish, or before all time, is never recorded; the report can be sent again."""
    lease = await steps.lease(await steps.worker())

    for kind in (steps.complete, steps.fail):
        with pytest.raises(InvalidInput):
            await kind(lease, duration_ms=duration_ms)

    assert State.ASSIGNED is await steps.state_of(lease.id)


async def test_a_failure_is_retried_at_its_exact_time(steps: Steps) -> None:
    """R5, R7: 2, 4, 8 … seconds after the failure, stored at once as the next due time, told in the answer."""
    worker = await steps.worker()
    lease = await steps.lease(worker, max_attempts=20)

    for attempt in range(1, 14):
        answer = await steps.fail(lease)
        wait_s = min(2**attempt, 3600)
        assert (State.SCHEDULED, steps.clock.now() + timedelta(seconds=wait_s)) == (answer.state, answer.next_run_at)
        assert answer.next_run_at == (await steps.get(lease.id)).next_run_at
        await steps.advance(wait_s - 0.001)
        assert [] == await steps.claim(worker)
        await steps.advance(0.001)
        lease = await steps.claim_one(await steps.worker())

    assert (14, 14) == (lease.attempt, lease.fence)


async def test_jitter_adds_up_to_a_tenth(steps: Steps) -> None:
    """R5: plus 0 to 10 % by chance."""
    lease = await steps.lease(await steps.worker())

    [answer] = await report(steps.db, [Fail(**steps.named(lease))], chance=lambda: 1.0)

    assert steps.clock.now() + timedelta(seconds=2.2) == answer.next_run_at


async def test_a_failure_leaves_its_record_and_clears_the_live_row(steps: Steps) -> None:
    """R2, R7, R11, M13: the attempt keeps error, type, traceback and times; the job shows none while it waits."""
    worker = await steps.worker()
    lease = await steps.running(worker)
    steps.clock.advance(3)

    answer = await steps.fail(
        lease, "it broke", error_type="spark_error", traceback="line 1\nline 2", metrics='{"n":1}'
    )

    job = await steps.get(lease.id)
    assert (None, None, None, None, None) == (job.worker, job.session, job.claimed_at, job.started_at, job.error)
    [attempt] = await steps.attempts(lease.id)
    assert ("it broke", "spark_error", "line 1\nline 2", '{"n":1}') == (
        attempt.error,
        attempt.error_type,
        attempt.traceback,
        attempt.metrics,
    )
    assert (1, 1, 1, Outcome.FAILED, "ann", worker.session) == (
        attempt.run,
        attempt.attempt,
        attempt.fence,
        attempt.outcome,
        attempt.worker,
        attempt.session,
    )
    assert (lease.claimed_at, lease.claimed_at, steps.clock.now(), answer.next_run_at) == (
        attempt.claimed_at,
        attempt.started_at,
        attempt.finished_at,
        attempt.next_run_at,
    )


async def test_out_of_attempts_a_job_is_dead(steps: Steps) -> None:
    """R9, M13, M14: after max_attempts failures the job is dead, with the last error and a reason."""
    worker = await steps.worker()
    job_id = await steps.submit_one(max_attempts=3)
    for number in (1, 2, 3):
        await steps.advance(60)
        answer = await steps.fail(await steps.claim_one(worker), f"error {number}")

    assert (State.DEAD, None) == (answer.state, answer.next_run_at)
    job = await steps.get(job_id)
    assert (State.DEAD, "error 3", 3, 3, False) == (job.state, job.error, job.attempt, job.max_attempts, job.held)
    assert "3 of 3" in (job.reason or "")
    assert [1, 2, 3] == [attempt.attempt for attempt in await steps.attempts(job_id)]
    await steps.advance(hours=2)
    assert [] == await steps.claim(await steps.worker())


async def test_an_error_that_is_not_retryable_is_the_end(steps: Steps) -> None:
    """R2, R9: retryable = false leads to dead at once, attempts left or not."""
    lease = await steps.lease(await steps.worker())

    answer = await steps.fail(lease, retryable=False)

    assert State.DEAD is answer.state
    assert "not retryable" in ((await steps.get(lease.id)).reason or "")


async def test_a_time_out_is_retried_by_policy(steps: Steps) -> None:
    """W8: a worker that stopped a job for its time-out says so; it counts as an attempt."""
    lease = await steps.lease(await steps.worker())

    answer = await steps.fail(lease, outcome=Outcome.TIMED_OUT)

    assert State.SCHEDULED is answer.state
    assert [Outcome.TIMED_OUT] == [attempt.outcome for attempt in await steps.attempts(lease.id)]


@pytest.mark.parametrize(
    ("policy", "waits_s"),
    [
        (RetryPolicy(kind="fixed", base_s=7), [7, 7, 7]),
        (RetryPolicy(kind="linear", base_s=5, cap_s=12), [5, 10, 12]),
        (RetryPolicy(kind="table", delays_s=(1, 60)), [1, 60, 60]),
        (RetryPolicy(base_s=10, factor=3, cap_s=100), [30, 90, 100]),
        (PRESETS["immediate"], [0, 0, 0]),
    ],
)
async def test_a_policy_decides_the_waits(steps: Steps, policy: RetryPolicy, waits_s: list[int]) -> None:
    """R4, R6: each kind of back-off, stored with the job, gives its due times."""
    worker = await steps.worker()
    lease = await steps.lease(worker, retry=policy, max_attempts=9)

    for wait_s in waits_s:
        answer = await steps.fail(lease)
        assert steps.clock.now() + timedelta(seconds=wait_s) == answer.next_run_at
        await steps.advance(wait_s)
        lease = await steps.claim_one(worker)


async def test_a_policy_by_error_type(steps: Steps) -> None:
    """R4: an error type may have its own policy; others follow the job's."""
    worker = await steps.worker()
    policy = RetryPolicy(kind="fixed", base_s=60, by_error={"network_error": RetryPolicy(kind="fixed", base_s=1)})

    waits = []
    for error_type in ("network_error", "other", None):
        answer = await steps.fail(await steps.lease(worker, retry=policy), error_type=error_type)
        assert answer.next_run_at is not None
        waits.append((answer.next_run_at - steps.clock.now()).total_seconds())

    assert [1, 60 + 0, 60] == [int(wait) for wait in waits]


async def test_the_stepped_preset(steps: Steps) -> None:
    """R6: at once by the same worker, after 30 s, after 60 s by any, then held for a person."""
    ann, bob = await steps.worker("ann", lease_s=600), await steps.worker("bob", lease_s=600)
    lease = await steps.lease(ann, retry=PRESETS["stepped"])

    first = await steps.fail(lease)
    [lease] = await claim_back(steps.db, [(lease.id, lease.fence)], session=ann.session, tenant="default")
    waits = []
    for _ in range(2):
        answer = await steps.fail(lease)
        assert answer.next_run_at is not None
        waits.append((answer.next_run_at - steps.clock.now(), answer.prefer_same_worker))
        await steps.advance(60)
        lease = await steps.claim_one(bob)
    last = await steps.fail(lease)

    assert first.prefer_same_worker
    assert [(timedelta(seconds=30), False), (timedelta(seconds=60), False)] == waits
    job = await steps.get(lease.id)
    assert (State.DEAD, State.DEAD, True, 4) == (last.state, job.state, job.held, job.attempt)


async def test_release_uses_no_attempt(steps: Steps) -> None:
    """R8: given back at once, with its reason in the record; the fence goes on."""
    worker = await steps.worker()
    lease = await steps.running(worker)
    steps.clock.advance(2)

    answer = await steps.release(lease, reason="Spot termination")

    assert (State.QUEUED, steps.clock.now()) == (answer.state, answer.next_run_at)
    job = await steps.get(lease.id)
    assert (0, 1, 1, 0) == (job.attempt, job.fence, job.releases, job.lost)
    [attempt] = await steps.attempts(lease.id)
    assert (Outcome.RELEASED, "Spot termination", 1) == (attempt.outcome, attempt.reason, attempt.attempt)
    assert lease.claimed_at == attempt.started_at


async def test_snooze_uses_no_attempt_and_waits(steps: Steps) -> None:
    """R8: due again after the delay, with its reason in the record."""
    worker = await steps.worker()
    lease = await steps.lease(worker)

    answer = await steps.snooze(lease, 45, reason="not ready")

    due_at = steps.clock.now() + timedelta(seconds=45)
    assert (State.SCHEDULED, due_at) == (answer.state, answer.next_run_at)
    [attempt] = await steps.attempts(lease.id)
    assert (Outcome.SNOOZED, "not ready", due_at) == (attempt.outcome, attempt.reason, attempt.next_run_at)
    await steps.advance(45)
    again = await steps.claim_one(worker)
    assert (1, 2) == (again.attempt, again.fence)


async def test_a_release_with_an_error_is_a_failed_attempt(steps: Steps) -> None:
    """R8: it counts, waits and ends like any failure."""
    worker = await steps.worker()
    lease = await steps.lease(worker, max_attempts=2)

    first = await steps.release(lease, error="cannot", reason="disk full")
    await steps.advance(2)
    second = await steps.release(await steps.claim_one(worker), error="cannot")

    assert (State.SCHEDULED, State.DEAD) == (first.state, second.state)
    attempts = await steps.attempts(lease.id)
    assert [(Outcome.FAILED, "cannot")] * 2 == [(attempt.outcome, attempt.error) for attempt in attempts]


async def test_plain_releases_are_capped(steps: Steps) -> None:
    """R8: the hundredth plain release of a job counts as a failure, so a poison job cannot circle for ever."""
    worker = await steps.worker()
    lease = await steps.lease(worker, max_attempts=1)

    for _ in range(MAX_RELEASES - 1):
        assert State.QUEUED is (await steps.release(lease)).state
        lease = await steps.claim_one(worker)
    answer = await steps.release(lease, reason="again")

    assert (100, State.DEAD) == (MAX_RELEASES, answer.state)
    assert "again" in ((await steps.get(lease.id)).error or "")


async def test_a_paused_job_given_back_is_held(steps: Steps) -> None:
    """X5: paused while leased, it goes on; released, it is held until resumed, and so is its retry."""
    worker = await steps.worker()
    released, failed = await steps.lease(worker), await steps.lease(worker)
    for lease in (released, failed):
        await pause_job(steps.db, lease.id, tenant="default", actor=ANN)

    await steps.release(released)
    await steps.fail(failed)
    await steps.advance(2)

    assert [] == await steps.claim(worker, 5)
    jobs = [await steps.get(lease.id) for lease in (released, failed)]
    assert [(State.QUEUED, True)] * 2 == [(job.state, job.paused) for job in jobs]


async def test_a_worker_may_end_a_job_as_cancelled(steps: Steps) -> None:
    """W7: the task itself may cancel its job; nobody asked, and there is no retry."""
    lease = await steps.lease(await steps.worker())

    answer = await steps.fail(lease, "no longer needed", outcome=Outcome.CANCELLED)

    assert State.CANCELLED is answer.state
    assert [Outcome.CANCELLED] == [attempt.outcome for attempt in await steps.attempts(lease.id)]


async def test_odd_text_in_an_error_loses_no_status(steps: Steps) -> None:
    """K14: NUL, half surrogates and megabytes in error, type and traceback are stored as far as they can be."""
    lease = await steps.lease(await steps.worker(), max_attempts=1)

    answer = await steps.fail(lease, "a\x00b\ud800c", error_type="t\x00", traceback="x" * 1_000_000)

    assert State.DEAD is answer.state
    [attempt] = await steps.attempts(lease.id)
    assert ("a\u2400b?c", "t\u2400", 65_536) == (attempt.error, attempt.error_type, len(attempt.traceback or ""))


async def test_odd_text_in_a_reason_loses_no_status(steps: Steps) -> None:
    """K14: so for the reason of a release and a snooze."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    await steps.release(lease, reason="\x00")

    answer = await steps.snooze(await steps.claim_one(worker), 1, reason="\ud800")

    assert Status.APPLIED is answer.status
    assert ["\u2400", "?"] == [attempt.reason for attempt in await steps.attempts(lease.id)]


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("result", "{", InvalidInput),
        ("result", '"\x00"', InvalidInput),
        ("result", '"' + "x" * 262_144 + '"', PayloadTooLarge),
        ("metrics", "nope", InvalidInput),
        ("fence", 0, InvalidInput),
        ("fence", 2**31, InvalidInput),
        ("worker", "", InvalidInput),
        ("worker", "a\x00b", InvalidInput),
        ("worker", "\ud800", InvalidInput),
    ],
)
async def test_a_report_out_of_bounds_is_refused_with_its_index(
    steps: Steps, field: str, value: object, error: type[InvalidInput]
) -> None:
    """S9: not JSON, too large, or not storable: nothing of the call is recorded, and the index says which it was."""
    worker = await steps.worker()
    good, bad = await steps.lease(worker), await steps.lease(worker)

    with pytest.raises(error) as refused:
        await steps.report(Complete(**steps.named(good)), Complete(**steps.named(bad) | {field: value}))

    assert (1, field) == (refused.value.index, refused.value.field)
    assert State.ASSIGNED is await steps.state_of(good.id)


async def test_a_success_needs_no_result(steps: Steps) -> None:
    """R1: the result is optional; none is none, not null."""
    lease = await steps.lease(await steps.worker())

    await steps.complete(lease)

    assert None is (await steps.get(lease.id)).result


@pytest.mark.parametrize("how", ["release", "told", "close"])
async def test_what_may_run_once_and_began_is_not_given_to_another(steps: Steps, how: str) -> None:
    """At most once: given back after it began, by a report or by leaving, it is dead and not run by another worker."""
    worker = await steps.worker()
    lease = await (steps.lease if how == "told" else steps.running)(worker, delivery="at_most_once")

    if how == "close":
        await close(steps.db, worker.session, tenant="default", reason="bye")
    else:
        answers = [await steps.release(lease, started=how == "told") for _ in range(2)]
        assert [(Status.APPLIED, State.DEAD), (Status.ALREADY, State.DEAD)] == [(a.status, a.state) for a in answers]

    assert State.DEAD is await steps.state_of(lease.id)


async def test_what_may_run_once_and_did_not_begin_is_given_back(steps: Steps) -> None:
    """At most once: a worker that claimed ahead and leaves costs the job nothing."""
    lease = await steps.lease(await steps.worker(), delivery="at_most_once")

    assert State.QUEUED is (await steps.release(lease)).state
