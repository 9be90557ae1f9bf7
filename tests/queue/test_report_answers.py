"""Report: applied, already, stale or unknown, in every combination; a stale report changes no byte."""

from __future__ import annotations

from uuid import uuid4

import msgspec
import pytest

from tests.queue.steps import ANN, Steps
from windlass.job import Outcome, State
from windlass.queue.claim import Claimed
from windlass.queue.deadletters import purge, retry
from windlass.queue.moves import MAX_RELEASES
from windlass.queue.report import Complete, Fail, Release, Report, Snooze, Status
from windlass.queue.retry import PRESETS

KINDS = ["complete", "fail", "time out", "confirm", "release", "release with error", "snooze"]


def as_report(steps: Steps, lease: Claimed, kind: str, **changes: object) -> Report:
    """Return a report of this kind by the lease's holder."""
    named = steps.named(lease) | changes
    reports: dict[str, Report] = {
        "complete": Complete(**named, result="1"),
        "fail": Fail(**named, error="boom"),
        "time out": Fail(**named, outcome=Outcome.TIMED_OUT),
        "confirm": Fail(**named, outcome=Outcome.CANCELLED),
        "release": Release(**named),
        "release with error": Release(**named, error="boom"),
        "snooze": Snooze(**named, delay_ms=60_000),
    }
    return reports[kind]


async def changes_nothing(steps: Steps, report: Report, status: Status) -> None:
    """Assert that a report is answered so, and that not one byte of the database changes."""
    before = await steps.dump()
    [answer] = await steps.report(report)
    assert (report, status) == (report, answer.status)
    assert before == await steps.dump()


async def all_change_nothing(steps: Steps, lease: Claimed, status: Status, **changes: object) -> None:
    """Assert that reports of every kind are answered so, and that not one byte changes."""
    before = await steps.dump()
    answers = [(kind, (await steps.report(as_report(steps, lease, kind, **changes)))[0].status) for kind in KINDS]
    assert [(kind, status) for kind in KINDS] == answers
    assert before == await steps.dump()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attempts", [1, 3])
async def test_the_same_report_again_gets_the_same_answer(steps: Steps, kind: str, attempts: int) -> None:
    """R3: 200 with the stored answer, also later, and nothing is done twice."""
    lease = await steps.running(await steps.worker(), max_attempts=attempts)
    report = as_report(steps, lease, kind)
    [first] = await steps.report(report)
    steps.clock.advance(5)
    before = await steps.dump()

    [again] = await steps.report(report)

    assert (Status.APPLIED, Status.ALREADY) == (first.status, again.status)
    assert (first.state, first.next_run_at) == (again.state, again.next_run_at)
    assert before == await steps.dump()


@pytest.mark.parametrize("first", KINDS)
async def test_another_kind_of_outcome_is_stale(steps: Steps, first: str) -> None:
    """R3: the first valid word wins; another kind of end for the same fence is refused."""
    lease = await steps.running(await steps.worker())
    await steps.report(as_report(steps, lease, first))
    alike = {first} | {
        "fail": {"release with error"},
        "release with error": {"fail"},
        # A job that has ended as cancelled was asked to stop: whatever its worker says of it, it has.
        "confirm": set(KINDS) - {"complete"},
    }.get(first, set())

    for second in KINDS:
        status = Status.ALREADY if second in alike else Status.STALE
        await changes_nothing(steps, as_report(steps, lease, second), status)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "complete"])
async def test_repeats_while_cancelling_get_the_same_answer(steps: Steps, kind: str) -> None:
    """R3, X2: any end but success cancels a job that was to stop; its repeat is the same kind."""
    lease = await steps.running(await steps.worker())
    await steps.cancel(lease.id)
    report = as_report(steps, lease, kind)

    [first] = await steps.report(report)
    [again] = await steps.report(report)

    assert [(Status.APPLIED, State.CANCELLED), (Status.ALREADY, State.CANCELLED)] == [
        (answer.status, answer.state) for answer in (first, again)
    ]


async def test_another_worker_is_told_that_it_is_unknown(steps: Steps) -> None:
    """L12: a worker id that is not the session's gets 404, while the lease lives and after its end."""
    lease = await steps.running(await steps.worker())
    await steps.worker("bob")

    await all_change_nothing(steps, lease, Status.UNKNOWN, worker="bob", session=None)
    await all_change_nothing(steps, lease, Status.UNKNOWN, worker="bob")
    await steps.snooze(lease, 60)
    await all_change_nothing(steps, lease, Status.UNKNOWN, worker="bob", session=None)
    await steps.advance(60)
    again = await steps.claim_one(await steps.worker("carl"))
    await all_change_nothing(steps, lease, Status.UNKNOWN, worker="carl", session=None)
    await steps.complete(again)
    await all_change_nothing(steps, again, Status.UNKNOWN, worker="bob", session=None)


async def test_another_session_of_the_same_worker_is_stale(steps: Steps) -> None:
    """L12: another session gets 409; a worker restarted under its name does not own the old leases."""
    lease = await steps.running(await steps.worker())
    twin = await steps.worker()

    await all_change_nothing(steps, lease, Status.STALE, session=twin.session)
    await steps.complete(lease)
    await all_change_nothing(steps, lease, Status.STALE, session=twin.session)


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_session_worker_and_fence_suffice(steps: Steps, kind: str) -> None:
    """L12: the session is compared where the caller has one."""
    lease = await steps.running(await steps.worker())

    answers = [(await steps.report(as_report(steps, lease, kind, session=None)))[0].status for _ in range(2)]

    assert [Status.APPLIED, Status.ALREADY] == answers


async def test_an_unknown_job_is_unknown(steps: Steps) -> None:
    """L12: 404 for a job that never was, or was purged."""
    lease = await steps.lease(await steps.worker(), max_attempts=1)

    await all_change_nothing(steps, lease, Status.UNKNOWN, job_id=uuid4())
    await steps.fail(lease)
    await purge(steps.db, [lease.id], tenant="default")
    await all_change_nothing(steps, lease, Status.UNKNOWN)


async def test_a_fence_never_given_out_is_stale(steps: Steps) -> None:
    """I7: only the current fence is heard, neither a lower nor a higher one."""
    lease = await steps.running(await steps.worker())

    await all_change_nothing(steps, lease, Status.STALE, fence=2)


async def test_an_old_fence_is_stale_after_a_rescue_and_after_the_next_claim(steps: Steps) -> None:
    """R3: also when rescued and not claimed again; and then when another session has the job, and after its end."""
    lease = await steps.running(await steps.worker("ann"))
    await steps.lose(lease)

    await all_change_nothing(steps, lease, Status.STALE)
    again = await steps.claim_one(await steps.worker("ann"))
    await all_change_nothing(steps, lease, Status.STALE)
    await all_change_nothing(steps, lease, Status.STALE, session=None)
    await steps.complete(again)
    await all_change_nothing(steps, lease, Status.STALE)


async def test_an_old_fence_in_a_wait_can_only_repeat_itself(steps: Steps) -> None:
    """R3: in the timer between two attempts, and after the next claim, other kinds are stale."""
    worker = await steps.worker()
    lease = await steps.running(worker)
    await steps.snooze(lease, 60)

    for _ in ("in the timer", "claimed again"):
        for kind in KINDS:
            status = Status.ALREADY if kind == "snooze" else Status.STALE
            await changes_nothing(steps, as_report(steps, lease, kind), status)
        await steps.advance(60)
        await steps.claim(worker)


@pytest.mark.parametrize("end", ["fail", "time out", "confirm"])
async def test_an_old_fence_after_a_manual_retry(steps: Steps, end: str) -> None:
    """R3, X6: the old end has moved to the attempts; its repeat gets the answer it had, success is stale."""
    ann = await steps.worker()
    lease = await steps.running(ann, max_attempts=1)
    [first] = await steps.report(as_report(steps, lease, end))
    await retry(steps.db, [lease.id], tenant="default", actor=ANN)

    [repeat] = await steps.report(as_report(steps, lease, end))
    await changes_nothing(steps, as_report(steps, lease, "complete"), Status.STALE)
    again = await steps.claim_one(ann)
    await changes_nothing(steps, as_report(steps, lease, end), Status.ALREADY)
    await changes_nothing(steps, as_report(steps, lease, "complete"), Status.STALE)

    assert (Status.ALREADY, first.state, None) == (repeat.status, repeat.state, repeat.next_run_at)
    assert Status.APPLIED is (await steps.complete(again)).status


async def test_a_report_for_a_job_that_never_was_leased_is_stale(steps: Steps) -> None:
    """I7: no lease, no word; also after it was cancelled while it waited."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    waiting = msgspec.structs.replace(lease, id=await steps.submit_one())

    await changes_nothing(steps, as_report(steps, waiting, "complete"), Status.STALE)
    await steps.cancel(waiting.id)
    await changes_nothing(steps, as_report(steps, waiting, "confirm"), Status.STALE)


async def test_the_same_job_twice_in_a_batch_speaks_once(steps: Steps) -> None:
    """internals 3.5: the first word is applied, the same again is already, another is stale."""
    lease = await steps.lease(await steps.worker())

    answers = await steps.report(*(as_report(steps, lease, kind) for kind in ("complete", "complete", "fail")))

    assert [Status.APPLIED, Status.ALREADY, Status.STALE] == [answer.status for answer in answers]
    assert State.SUCCEEDED is await steps.state_of(lease.id)


@pytest.mark.parametrize("kind", ["complete", "fail"])
async def test_a_stale_report_in_a_batch_does_not_silence_the_holder(steps: Steps, kind: str) -> None:
    """Rule 16: reports of many callers share a batch; a stranger's word about a job costs its holder nothing."""
    old = await steps.lease(await steps.worker("ann"))
    await steps.release(old)
    bob = await steps.worker("bob")
    lease = await steps.claim_one(bob)

    answers = await steps.report(
        as_report(steps, old, "complete"),
        as_report(steps, lease, "fail", worker="mallory", session=None),
        as_report(steps, lease, kind),
        as_report(steps, lease, kind, session=None),
    )

    assert [Status.STALE, Status.UNKNOWN, Status.APPLIED, Status.ALREADY] == [answer.status for answer in answers]


async def test_a_batch_with_stale_ones_applies_the_others(steps: Steps) -> None:
    """Rule 16: item by item; one refused report fails no neighbour."""
    worker = await steps.worker()
    good, old = await steps.lease(worker), await steps.lease(worker)
    await steps.release(old)

    answers = await steps.report(
        as_report(steps, old, "fail"),
        as_report(steps, good, "complete"),
        as_report(steps, msgspec.structs.replace(good, id=uuid4()), "snooze"),
    )

    assert [Status.STALE, Status.APPLIED, Status.UNKNOWN] == [answer.status for answer in answers]


async def test_the_release_that_became_a_failure_repeats_as_release(steps: Steps) -> None:
    """R3, R8: the hundredth release was recorded as a failure; its repeat gets the same answer."""
    worker = await steps.worker()
    lease = await steps.lease(worker)
    for _ in range(MAX_RELEASES - 1):
        await steps.release(lease)
        lease = await steps.claim_one(worker)
    first = await steps.release(lease)

    again = await steps.release(lease)

    assert (State.SCHEDULED, Status.APPLIED, Status.ALREADY) == (first.state, first.status, again.status)
    assert (first.state, first.next_run_at) == (again.state, again.next_run_at)


async def test_a_repeated_failure_is_told_again_that_it_may_come_back(steps: Steps) -> None:
    """Same request, same answer: the worker whose answer was lost still learns that the retry is kept for it."""
    lease = await steps.lease(await steps.worker(), retry=PRESETS["stepped"])
    first = await steps.fail(lease)

    again = await steps.fail(lease)

    assert (True, True) == (first.prefer_same_worker, again.prefer_same_worker)
    assert (Status.ALREADY, first.state, first.next_run_at) == (again.status, again.state, again.next_run_at)
