"""Backfills: the slots of a past range get their jobs, in order, a few at a time, and each slot once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.queue.decided import fired, run, running, skipped
from tests.queue.planned import NOON, made, runs_of
from tests.queue.steps import ANN, NO_ZONE, Steps
from windlass.errors import InvalidInput, InvalidSchedule, NotFound
from windlass.job import State
from windlass.queue import backfills, history
from windlass.queue.backfills import Advanced, Backfill
from windlass.queue.cron import Cron, Every
from windlass.queue.history import Filter
from windlass.queue.retention import sweep
from windlass.queue.runs import find_runs
from windlass.queue.schedule import Decision, Policy
from windlass.queue.schedules import Schedule, get

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
ELEVEN = NOON.replace(hour=11, minute=0)


async def begun(steps: Steps, schedule: Schedule, *, hours: int = 5, **asked: Any) -> Backfill:
    """Start a backfill of the last hours."""
    given: dict[str, Any] = {"since": NOON - hours * HOUR, "until": NOON, "actor": ANN}
    return await backfills.start(steps.db, steps.ids, schedule, **given | asked)


async def step(steps: Steps, backfill: Backfill) -> Advanced:
    """Take one step."""
    now = await backfills.get(steps.db, backfill.id, tenant="default")
    return await backfills.advance(steps.db, steps.lanes, steps.ids, backfill=now)


async def finished(steps: Steps, backfill: Backfill) -> list[UUID]:
    """Move a backfill on and run its jobs until it has ended; return them in order."""
    ran = []
    while (await backfills.get(steps.db, backfill.id, tenant="default")).status == "running":
        await step(steps, backfill)
        for lease in await steps.claim(await steps.worker(), 100):
            await steps.complete(lease)
            ran.append(lease.id)
    return ran


async def slots(steps: Steps, ids: list[UUID]) -> list[datetime | None]:
    """Return the slots of jobs."""
    return [(await steps.get(job_id)).slot_at for job_id in ids]


async def test_a_past_range_runs_in_order(steps: Steps) -> None:
    """T13: every slot from `since` on, before `until`, gets one job, the oldest first; then the backfill is done."""
    schedule = await made(steps, payload='{"a": 1}', priority=3)
    wanted = [ELEVEN - number * HOUR for number in reversed(range(-1, 4))]
    backfill = await begun(steps, schedule)
    assert ("running", 0, NOON - 5 * HOUR) == (backfill.status, backfill.made_count, backfill.since_at)
    assert ("ann", "she said so", NOON, None) == (
        backfill.actor,
        backfill.reason,
        backfill.created_at,
        backfill.ended_at,
    )

    ran = await finished(steps, backfill)

    done = await backfills.get(steps.db, backfill.id, tenant="default")
    assert wanted == await slots(steps, ran)
    assert ("done", 5, 0, wanted[-1], NOON) == (
        done.status,
        done.made_count,
        done.known_count,
        done.cursor_at,
        done.ended_at,
    )
    job = await steps.get(ran[0])
    assert (schedule.id, '{"a": 1}', 3, NOON) == (job.schedule_id, job.payload, job.priority, job.scheduled_at)
    assert [(slot, Decision.BACKFILLED, job_id) for slot, job_id in zip(wanted, ran, strict=True)] == [
        (row["slot_at"], row["decision"], row["job_id"]) for row in await runs_of(steps, schedule.id)
    ]


async def test_a_range_has_its_beginning_and_not_its_end(steps: Steps) -> None:
    """T13: two ranges that touch have no slot in common, and miss none; the list of runs has the same bounds."""
    schedule = await made(steps)
    early = await begun(steps, schedule, since=ELEVEN - 2 * HOUR, until=ELEVEN, concurrency=10)
    late = await begun(steps, schedule, since=ELEVEN, until=ELEVEN + HOUR, concurrency=10)

    first, second = await finished(steps, early), await finished(steps, late)

    assert [ELEVEN - 2 * HOUR, ELEVEN - HOUR] == await slots(steps, first)
    assert [ELEVEN] == await slots(steps, second)
    listed = await find_runs(steps.db, schedule.id, tenant="default", since=ELEVEN - 2 * HOUR, until=ELEVEN)
    assert [ELEVEN - HOUR, ELEVEN - 2 * HOUR] == [run.slot_at for run in listed.runs]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_so_many_jobs_live_at_a_time(steps: Steps, concurrency: int) -> None:
    """T13: the next job is made when one has ended, however it ended; meanwhile nothing is."""
    schedule = await made(steps)
    backfill = await begun(steps, schedule, hours=10, concurrency=concurrency)

    first = await step(steps, backfill)
    second = await step(steps, backfill)
    ended = await running(steps)
    while_it_runs = await step(steps, backfill)
    await steps.fail(ended, retryable=False)
    third = await step(steps, backfill)

    assert [concurrency, 0, 0, 1] == [len(s.jobs) for s in (first, second, while_it_runs, third)]
    assert [State.QUEUED] * concurrency == [stored.state for stored in first.made]
    assert all(stored.lane is not None and stored.rank is not None for stored in first.made)
    assert concurrency + 1 == (await backfills.get(steps.db, backfill.id, tenant="default")).made_count


async def test_a_retry_keeps_its_place(steps: Steps) -> None:
    """T13: a job that waits for its next attempt still lives."""
    backfill = await begun(steps, await made(steps))
    await step(steps, backfill)
    await steps.fail(await running(steps))

    assert [] == list((await step(steps, backfill)).jobs)


async def test_slots_that_have_a_job_are_left_alone(steps: Steps) -> None:
    """T4, T13: one job for a slot: what has fired, whatever became of it, is counted and passed over."""
    schedule = await made(steps)
    known = [ELEVEN - 2 * HOUR, ELEVEN - HOUR]
    await fired(steps, schedule, known[0])
    await run(steps)
    dead = await fired(steps, schedule, known[1])
    await steps.fail(await running(steps), retryable=False)
    backfill = await begun(steps, schedule, concurrency=10)

    ran = await finished(steps, backfill)

    done = await backfills.get(steps.db, backfill.id, tenant="default")
    assert [ELEVEN - 3 * HOUR, ELEVEN, ELEVEN + HOUR] == await slots(steps, ran)
    assert (3, 2) == (done.made_count, done.known_count)
    assert State.DEAD is await steps.state_of(dead)


async def test_the_same_range_twice_makes_nothing(steps: Steps) -> None:
    """T13: deduplicated by slot."""
    schedule = await made(steps)
    await finished(steps, await begun(steps, schedule, concurrency=10))

    again = await begun(steps, schedule, concurrency=10)

    assert [] == await finished(steps, again)
    done = await backfills.get(steps.db, again.id, tenant="default")
    assert (0, 5) == (done.made_count, done.known_count)


async def test_slots_that_were_skipped_are_made_up_for(steps: Steps) -> None:
    """T13: a slot that was missed, paused or overlapped gets its job; its row says what it was."""
    schedule = await made(steps)
    await skipped(
        steps, schedule, ELEVEN - HOUR, Decision.MISSED, slot_count=3, first_at=ELEVEN - 3 * HOUR, reason="An outage."
    )
    await skipped(steps, schedule, ELEVEN, Decision.OVERLAPPED)
    await skipped(steps, schedule, ELEVEN + HOUR, Decision.PAUSED, reason="A holiday.")

    ran = await finished(steps, await begun(steps, schedule, concurrency=10))

    rows = {row["slot_at"]: row for row in await runs_of(steps, schedule.id)}
    missed = rows[ELEVEN - HOUR]
    assert 5 == len(ran) == len(rows)
    assert {int(Decision.BACKFILLED)} == {row["decision"] for row in rows.values()}
    assert ("It was missed before. An outage.", 1, None) == (
        missed["reason"],
        missed["slot_count"],
        missed["first_at"],
    )
    assert "It was overlapped before." == rows[ELEVEN]["reason"]
    assert "It was paused before. A holiday." == rows[ELEVEN + HOUR]["reason"]
    assert None is rows[ELEVEN - 2 * HOUR]["reason"]


async def test_the_series_goes_on_as_it_was(steps: Steps) -> None:
    """T13: a backfill moves neither the cursor of its schedule nor its version, and is no run that others overlap."""
    schedule = await made(steps)

    await finished(steps, await begun(steps, schedule))

    assert schedule == await get(steps.db, schedule.id, tenant="default")


async def test_exclusions_hold_in_the_past(steps: Steps) -> None:
    """T13: days left out are left out of a backfill too."""
    schedule = await made(steps, exclude=("2025-12-30",))
    backfill = await begun(steps, schedule, since=NOON - 3 * DAY, until=NOON - DAY, concurrency=1000)

    taken = await step(steps, backfill)

    assert 24 == len(taken.jobs)
    assert {"2025-12-29", "2025-12-31"} == {f"{job.slot_at:%Y-%m-%d}" for job in taken.jobs}


async def test_a_range_of_long_ago_is_run(steps: Steps) -> None:
    """T13: days whose history is gone, or never was, can be backfilled."""
    schedule = await made(steps, trigger=Cron("0 3 * * *"))
    backfill = await begun(steps, schedule, since=NOON - 300 * DAY, until=NOON - 290 * DAY, concurrency=4)

    ran = await finished(steps, backfill)

    assert 10 == len(ran) == len(await runs_of(steps, schedule.id))
    await sweep(steps.db)


async def test_many_slots_are_taken_in_portions(steps: Steps) -> None:
    """T13: a step looks at a bounded number of slots, and says that there are more."""
    schedule = await made(steps, trigger=Every(60))
    backfill = await begun(steps, schedule, hours=10, concurrency=1000)

    first = await step(steps, backfill)
    counts = [len(first.jobs)]
    while first.more:
        first = await step(steps, backfill)
        counts.append(len(first.jobs))

    assert [200, 200, 200, 0] == counts


async def test_jobs_of_a_backfill_are_late_for_nobody(steps: Steps) -> None:
    """Q3: they are due when they are made, and have no start deadline."""
    schedule = await made(steps, policy=Policy(start_within_s=10))
    backfill = await begun(steps, schedule)
    steps.clock.advance(5)

    [job] = (await step(steps, backfill)).jobs

    found = await steps.get(job.id)
    assert (NOON + timedelta(seconds=5), None) == (found.scheduled_at, found.start_by)
    assert ELEVEN - 3 * HOUR == found.slot_at


async def test_a_stopped_backfill_cancels_what_has_not_begun(steps: Steps) -> None:
    """T13: it makes no more jobs; those that no worker has are cancelled, the others go on."""
    schedule = await made(steps)
    backfill = await begun(steps, schedule, concurrency=3)
    made_jobs = (await step(steps, backfill)).jobs
    began = await running(steps)
    steps.clock.advance(1)

    stopped = await backfills.stop(steps.db, backfill.id, tenant="default", actor=ANN)

    assert ("stopped", NOON + timedelta(seconds=1)) == (stopped.backfill.status, stopped.backfill.ended_at)
    assert [job.id for job in made_jobs[1:]] == sorted(stopped.cancelled)
    assert State.RUNNING is await steps.state_of(began.id)
    assert [State.CANCELLED] * 2 == [await steps.state_of(job_id) for job_id in stopped.cancelled]
    assert "cancel_requested" in await steps.kinds(stopped.cancelled[0])
    assert Advanced() == await step(steps, backfill)
    assert [] == await backfills.under_way(steps.db)
    assert {"backfill_job": []} == await steps.dump(["backfill_job"])


async def test_what_has_ended_stays_as_it_is(steps: Steps) -> None:
    """T13: stopping twice, or too late, changes nothing."""
    backfill = await begun(steps, await made(steps))
    await finished(steps, backfill)
    done = await backfills.get(steps.db, backfill.id, tenant="default")

    assert backfills.Stopped(done, []) == await backfills.stop(steps.db, backfill.id, tenant="default", actor=ANN)


async def test_a_retry_is_cancelled_with_its_backfill(steps: Steps) -> None:
    """T13: what waits for its next attempt does not run again."""
    backfill = await begun(steps, await made(steps))
    await step(steps, backfill)
    lease = await running(steps)
    await steps.fail(lease)

    stopped = await backfills.stop(steps.db, backfill.id, tenant="default", actor=ANN)

    assert [lease.id] == stopped.cancelled


async def test_backfills_of_a_deleted_schedule_are_gone(steps: Steps) -> None:
    """T13: nothing is made for a schedule that is no more."""
    backfill = await begun(steps, await made(steps))
    await step(steps, backfill)

    await backfills.forget(steps.db, [backfill.schedule_id])

    with pytest.raises(NotFound, match=f"There is no backfill {backfill.id}"):
        await backfills.get(steps.db, backfill.id, tenant="default")
    assert Advanced() == await backfills.advance(steps.db, steps.lanes, steps.ids, backfill=backfill)


async def test_one_that_cannot_go_on_is_given_up(steps: Steps) -> None:
    """T13: it is stopped, and says why."""
    backfill = await begun(steps, await made(steps))

    given_up = await backfills.give_up(steps.db, backfill, reason="It cannot.\x00")

    found = await backfills.get(steps.db, backfill.id, tenant="default")
    assert given_up.ended
    assert ("stopped", "It cannot.\N{SYMBOL FOR NULL}") == (found.status, found.reason)


async def test_a_schedule_shows_its_backfills_newest_first(steps: Steps) -> None:
    """P27: and nobody else's."""
    schedule = await made(steps)
    other = await made(steps, "other")
    first = await begun(steps, schedule)
    steps.clock.advance(1)
    second = await begun(steps, schedule)
    await begun(steps, other)

    assert [second, first] == await backfills.find(steps.db, schedule.id, tenant="default")
    assert [] == await backfills.find(steps.db, schedule.id, tenant="acme")
    assert 3 == len(await backfills.under_way(steps.db))
    assert [second] == (await backfills.under_way(steps.db, after=first.id))[:1]
    with pytest.raises(NotFound):
        await backfills.get(steps.db, first.id, tenant="acme")
    with pytest.raises(NotFound):
        await backfills.stop(steps.db, first.id, tenant="acme", actor=ANN)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no length": ({"until": NOON - 5 * HOUR}, "until: .* is not later than since"),
    "backwards": ({"until": NOON - 6 * HOUR}, "until: .* is not later than since"),
    "ahead": ({"until": NOON + timedelta(seconds=1)}, "until: .* lies ahead"),
    "no zone": ({"since": NO_ZONE}, "since: .* has no zone"),
    "none at a time": ({"concurrency": 0}, "concurrency"),
    "too many at a time": ({"concurrency": 1001}, "concurrency"),
}


@pytest.mark.parametrize(("asked", "problem"), REFUSED.values(), ids=REFUSED)
async def test_a_range_that_is_none_is_refused(steps: Steps, asked: dict[str, Any], problem: str) -> None:
    """T13: 422, the field is named, nothing is stored."""
    schedule = await made(steps)

    with pytest.raises(InvalidInput, match=problem):
        await begun(steps, schedule, **asked)
    assert [] == await backfills.under_way(steps.db)


@pytest.mark.one_kind
@pytest.mark.parametrize(
    ("trigger", "days", "problem"),
    [
        (Every(1), 2, "More than 100000 slots"),
        pytest.param(Cron("* * * * *"), 70, "More than 100000 slots", marks=pytest.mark.exhaustive),
        pytest.param(Cron("* * * * * *"), 2, "More than 100000 slots", marks=pytest.mark.exhaustive),
        (Cron("0 0 * * *"), 402, "lie on more than 400 days"),
    ],
    ids=["interval", "cron", "seconds", "days"],
)
async def test_too_many_slots_are_refused(steps: Steps, trigger: Any, days: int, problem: str) -> None:
    """T13: at most 100,000 slots, on at most 400 days."""
    schedule = await made(steps, trigger=trigger)

    with pytest.raises(InvalidInput, match=problem):
        await begun(steps, schedule, since=NOON - days * DAY)


@pytest.mark.one_kind
@pytest.mark.parametrize(
    ("trigger", "days"),
    [
        (Every(2), 2),
        (Cron("0 0 1 * *"), 3000),
        pytest.param(Cron("* * * * *"), 69, marks=pytest.mark.exhaustive),
    ],
)
async def test_a_long_range_of_few_slots_is_taken(steps: Steps, trigger: Any, days: int) -> None:
    """T13: what counts is how many slots there are."""
    schedule = await made(steps, trigger=trigger)

    assert "running" == (await begun(steps, schedule, since=NOON - days * DAY)).status


async def test_a_schedule_run_by_hand_has_nothing_to_backfill(steps: Steps) -> None:
    """T13: 422."""
    schedule = await made(steps, trigger=None)

    with pytest.raises(InvalidSchedule, match="is run by hand: it has no slots"):
        await begun(steps, schedule)


async def test_a_range_without_slots_is_done_at_once(steps: Steps) -> None:
    """T13: nothing to do is no error."""
    backfill = await begun(steps, await made(steps), since=NOON - timedelta(seconds=10))

    assert (await step(steps, backfill)).ended
    assert 0 == (await history.count(steps.db, Filter(tenant="default"))).jobs


async def test_a_schedule_that_was_deleted_meanwhile_is_not_found(steps: Steps) -> None:
    """T13: a schedule that was read before it went gets no backfill."""
    schedule = await made(steps)
    definition = msgspec.structs.replace(schedule.definition, id=steps.ids.new())

    with pytest.raises(NotFound, match="There is no schedule"):
        await begun(steps, msgspec.structs.replace(schedule, definition=definition))


async def test_what_is_past_retention_is_not_run_twice(steps: Steps) -> None:
    """T4, T13: 422 for a range of which nobody knows any more what has run; it names the setting."""
    schedule = await made(steps, trigger=Cron("0 0 * * *"))

    with pytest.raises(InvalidInput, match=r"since: .* is more than 30 days ago \(retention.days\)"):
        await begun(steps, schedule, since=NOON - 30 * DAY - timedelta(seconds=1), keep_days=30)
    assert [] == await backfills.under_way(steps.db)
    assert "running" == (await begun(steps, schedule, since=NOON - 30 * DAY, keep_days=30)).status
    assert "running" == (await begun(steps, schedule, since=NOON - 300 * DAY, keep_days=0)).status


async def test_slots_stay_known_until_a_backfill_has_come_to_them(steps: Steps) -> None:
    """T4, T13: retention takes what a backfill has dealt with, and not what it has yet to come to."""
    schedule = await made(steps, trigger=Cron("0 0 * * *"))
    known = (NOON - 27 * DAY).replace(hour=0, minute=0)
    await fired(steps, schedule, known)
    await run(steps)
    backfill = await begun(steps, schedule, since=NOON - 30 * DAY, until=NOON - 26 * DAY, keep_days=30)
    steps.clock.advance(days=10)

    await sweep(steps.db, days=30)
    ran = await finished(steps, backfill)
    await sweep(steps.db, days=30)

    assert [known - 2 * DAY, known - DAY, known + DAY] == await slots(steps, ran)
    assert [] == await runs_of(steps, schedule.id)


async def test_ended_backfills_go_with_their_history(steps: Steps) -> None:
    """T13: one that ended longer ago than retention is removed; what is under way stays."""
    schedule = await made(steps, trigger=Cron("0 0 * * *"))
    old = await begun(steps, schedule, hours=1)
    await finished(steps, old)
    under_way = await begun(steps, schedule, hours=24)
    steps.clock.advance(days=30)
    before = (await sweep(steps.db, days=30)).rows["forget_backfills"]
    steps.clock.advance(1)

    swept = await sweep(steps.db, days=30)

    assert (0, 1) == (before, swept.rows["forget_backfills"])
    assert [under_way] == await backfills.find(steps.db, schedule.id, tenant="default")
