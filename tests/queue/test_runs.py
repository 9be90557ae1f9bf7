"""Runs: each slot of a schedule, what was decided, and what became of its job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.queue.decided import fired, run, running, skipped
from tests.queue.planned import NOON, made
from tests.queue.steps import Steps
from windlass.db import Query
from windlass.errors import InvalidInput, NotFound
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import runs
from windlass.queue.retention import sweep
from windlass.queue.runs import Run, RunPage, find_runs
from windlass.queue.schedule import Decision
from windlass.queue.schedules import Schedule

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
HISTORY = "SELECT * FROM schedule_history ORDER BY scheduled_at"


async def page(steps: Steps, schedule: Schedule, **asked: Any) -> RunPage:
    """Return a page of the slots of a schedule."""
    return await find_runs(steps.db, schedule.id, tenant="default", **asked)


async def only(steps: Steps, schedule: Schedule) -> Run:
    """Return the one slot."""
    [found] = (await page(steps, schedule)).runs
    return found


async def test_a_slot_shows_how_its_job_ended(steps: Steps) -> None:
    """T4: state, times, worker and attempt of a slot's job are told with the slot."""
    schedule = await made(steps)
    slot_at = NOON - MINUTE
    job_id = await fired(steps, schedule, slot_at)
    steps.clock.advance(2)
    lease = await running(steps)
    steps.clock.advance(1.5007)
    await steps.complete(lease)

    found = await only(steps, schedule)

    assert (slot_at, slot_at, 1, Decision.FIRED) == (found.slot_at, found.first_at, found.slot_count, found.decision)
    assert (schedule.id, NOON, job_id) == (found.schedule_id, found.decided_at, found.job_id)
    assert (State.SUCCEEDED, 1, "ann", None) == (found.state, found.attempt, found.worker, found.error)
    assert (NOON + timedelta(seconds=2), NOON + timedelta(seconds=3.5007)) == (found.started_at, found.finished_at)
    assert (1500, 62_000) == (found.run_ms, found.late_ms)


async def test_a_slot_is_as_late_as_its_first_attempt(steps: Steps) -> None:
    """T4: a retry tells its own start and running time; the lateness stays that of the first start."""
    schedule = await made(steps)
    await fired(steps, schedule, NOON)
    first = await running(steps)
    steps.clock.advance(1)
    await steps.fail(first, error="boom")
    waiting = await only(steps, schedule)
    await steps.advance(hours=1)
    second = await running(steps)
    steps.clock.advance(2)
    await steps.fail(second, error="again", retryable=False)

    found = await only(steps, schedule)

    assert (State.SCHEDULED, NOON, None, 0) == (waiting.state, waiting.started_at, waiting.run_ms, waiting.late_ms)
    assert (State.DEAD, 2, "again", 2000, 0) == (found.state, found.attempt, found.error, found.run_ms, found.late_ms)
    assert NOON + HOUR + timedelta(seconds=1) == found.started_at


async def test_a_slot_without_a_job_shows_why(steps: Steps) -> None:
    """T7: what was passed over is one row with the first, the last, the number and the reason."""
    schedule = await made(steps)
    await skipped(steps, schedule, NOON, Decision.MISSED, slot_count=3, first_at=NOON - 2 * HOUR, reason="late")

    found = await only(steps, schedule)

    assert (Decision.MISSED, "late", 3, NOON - 2 * HOUR) == (
        found.decision,
        found.reason,
        found.slot_count,
        found.first_at,
    )
    assert (None, None, None, None, None) == (
        found.job_id,
        found.state,
        found.attempt,
        found.late_ms,
        found.finished_at,
    )


async def test_jobs_are_found_wherever_they_lie(steps: Steps) -> None:
    """T4: a job that waits, runs, sleeps until its retry, was cancelled or is dead is told with its slot."""
    schedule = await made(steps)
    ends = ("cancelled", "dead", "retry", "running", "queued")
    for number, end in enumerate(ends):
        job_id = await fired(steps, schedule, NOON - timedelta(minutes=10 - number))
        if end == "cancelled":
            await steps.cancel(job_id)
        elif end != "queued":
            lease = await running(steps)
            if end != "running":
                await steps.fail(lease, retryable=end == "retry")

    found = (await page(steps, schedule)).runs

    assert [State.QUEUED, State.RUNNING, State.SCHEDULED, State.DEAD, State.CANCELLED] == [r.state for r in found]


async def test_a_backfilled_slot_tells_no_lateness(steps: Steps) -> None:
    """T13: a backfill is late by nature."""
    schedule = await made(steps)
    await fired(steps, schedule, NOON - HOUR, decision=Decision.BACKFILLED)
    await run(steps)

    assert None is (await only(steps, schedule)).late_ms


async def test_a_job_past_retention_leaves_its_decision(steps: Steps) -> None:
    """T4: a slot whose job is known no more is still told, without a state."""
    schedule = await made(steps)
    await fired(steps, schedule, NOON)
    await run(steps)
    for table in ("done", "job"):
        delete = f"DELETE FROM {table}"
        await steps.db.fetch(Query("forget", "Forget.", delete, delete))

    found = await only(steps, schedule)

    assert (None, None, None) == (found.state, found.finished_at, found.run_ms)
    assert found.job_id is not None


async def test_slots_come_in_pages_newest_first(steps: Steps) -> None:
    """P40: a page ends where the next one begins, and the last has no cursor."""
    schedule = await made(steps)
    slots = [NOON - number * HOUR for number in range(5)]
    for slot in slots:
        await skipped(steps, schedule, slot, Decision.OVERLAPPED)

    shown: list[datetime] = []
    cursor, sizes = None, []
    while True:
        found = await page(steps, schedule, limit=2, cursor=cursor)
        sizes.append(len(found.runs))
        shown += [r.slot_at for r in found.runs]
        cursor = found.next_cursor
        if cursor is None:
            break

    assert [2, 2, 1] == sizes
    assert slots == shown


async def test_slots_are_filtered_by_time_and_decision(steps: Steps) -> None:
    """P40: from `since` on, until before `until`, and of one decision."""
    schedule = await made(steps)
    other = await made(steps, "other")
    for number in range(6):
        decision = Decision.MISSED if number % 2 else Decision.PAUSED
        await skipped(steps, schedule, NOON - number * HOUR, decision)
    await skipped(steps, other, NOON, Decision.MISSED)

    async def hours(**asked: Any) -> list[int]:
        found = await page(steps, schedule, **asked)
        assert None is found.next_cursor
        return [(NOON - r.slot_at) // HOUR for r in found.runs]

    assert [1, 2, 3] == await hours(since=NOON - 3 * HOUR, until=NOON)
    assert [1, 3, 5] == await hours(decision=Decision.MISSED)
    assert [3] == await hours(decision=Decision.MISSED, since=NOON - 3 * HOUR, until=NOON - HOUR)
    assert [] == await hours(decision=Decision.FIRED)


async def test_a_rare_decision_is_looked_for_in_portions(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """P40: a page looks at a bounded number of slots; a short one says where to go on, and nothing is left out."""
    monkeypatch.setattr(runs, "EXAMINED", 3)
    schedule = await made(steps)
    for number in range(8):
        await skipped(steps, schedule, NOON - number * HOUR, Decision.MISSED if number == 7 else Decision.PAUSED)

    found, cursors = [], 0
    reached = await page(steps, schedule, decision=Decision.MISSED)
    while True:
        found += reached.runs
        if reached.next_cursor is None:
            break
        cursors += 1
        reached = await page(steps, schedule, decision=Decision.MISSED, cursor=reached.next_cursor)

    assert [NOON - 7 * HOUR] == [r.slot_at for r in found]
    assert 2 == cursors


async def test_another_tenants_schedule_has_no_slots(steps: Steps) -> None:
    """Another tenant's schedule is like one that never was."""
    schedule = await made(steps)
    await skipped(steps, schedule, NOON, Decision.MISSED)

    with pytest.raises(NotFound, match=f"There is no schedule {schedule.id}"):
        await find_runs(steps.db, schedule.id, tenant="acme")
    with pytest.raises(NotFound):
        await find_runs(steps.db, Ids(steps.db.now).new(), tenant="default")


@pytest.mark.parametrize("field", ["since", "until", "cursor"])
async def test_an_instant_without_a_zone_is_refused(steps: Steps, field: str) -> None:
    """S6: the field is named."""
    schedule = await made(steps)
    bare = datetime(2026, 1, 1)  # noqa: DTZ001 - to be refused

    with pytest.raises(InvalidInput, match=f"{field}: .* has no zone"):
        await page(steps, schedule, **{field: bare})


async def test_the_history_is_told_by_plain_sql(steps: Steps) -> None:
    """M20: job, scheduled_at, executed_at, status and execution_time_ms stand in one view, with the decision."""
    schedule = await made(steps)
    await skipped(steps, schedule, NOON - 2 * HOUR, Decision.PAUSED, reason="holiday")
    job_id = await fired(steps, schedule, NOON - HOUR)
    lease = await running(steps)
    steps.clock.advance(1.2345)
    await steps.complete(lease)
    waiting = await fired(steps, schedule, NOON)

    paused, ended, queued = await steps.db.fetch(Query("history", "All.", HISTORY, HISTORY))

    assert ("paused", "holiday", None, None) == (
        paused["decision"],
        paused["reason"],
        paused["job_id"],
        paused["status"],
    )
    assert ("nightly", "default", schedule.id) == (ended["name"], ended["tenant"], ended["schedule_id"])
    assert (job_id, "succeeded", NOON - HOUR, NOON, 1234) == (
        ended["job_id"],
        ended["status"],
        ended["scheduled_at"],
        ended["executed_at"],
        ended["execution_time_ms"],
    )
    assert (waiting, "queued", None) == (queued["job_id"], queued["status"], queued["execution_time_ms"])


async def test_the_slots_of_long_ago_are_found_after_a_sweep(steps: Steps) -> None:
    """M20: what is younger than the retention is kept, in whichever day it lies."""
    schedule = await made(steps)
    await skipped(steps, schedule, NOON - timedelta(days=20), Decision.MISSED)

    await sweep(steps.db, days=30)

    assert 1 == len((await page(steps, schedule)).runs)
