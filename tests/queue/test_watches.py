"""Watches: a run that was expected and has not succeeded in time is told, once for its slot."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.queue.decided import fired, run, running, skipped
from tests.queue.planned import HOURLY, NOON, made
from tests.queue.steps import Steps
from windlass.db import Query, Row
from windlass.queue import watches
from windlass.queue.cron import At, Cron, Every
from windlass.queue.retention import sweep
from windlass.queue.schedule import Decision, Policy
from windlass.queue.schedules import Schedule
from windlass.queue.watches import Told, expect, expected, look

HOUR = timedelta(hours=1)
HALF = 30 * 60
ONE = datetime.fromisoformat("2026-01-01T13:00:00+00:00")
"""The first slot of an hourly schedule after noon."""
WATCHES = "SELECT * FROM schedule_watch ORDER BY schedule_id"
EVENTS = "SELECT * FROM event WHERE job_id = :id ORDER BY happened_at"


async def watched(steps: Steps, name: str = "nightly", *, within_s: int = HALF, **fields: Any) -> Schedule:
    """Store a schedule whose runs are expected, from its first slot on."""
    schedule = await made(steps, name, policy=Policy(expect_within_s=within_s), **fields)
    slot = expected(schedule.series(), within_s=within_s, after=steps.clock.now())
    await expect(steps.db, [(schedule.id, *slot)])
    return schedule


async def rows(steps: Steps) -> list[Row]:
    """Return what is expected."""
    return await steps.db.fetch(Query("watches", "All.", WATCHES, WATCHES))


async def events(steps: Steps, schedule: Schedule) -> list[tuple[str, str]]:
    """Return the kinds and reasons of what happened to a schedule's runs."""
    found = await steps.db.fetch(Query("events", "All.", EVENTS, EVENTS), id=schedule.id)
    return [(row["kind"], row["reason"]) for row in found if row["kind"].startswith("run.")]


async def told(steps: Steps, **spans: float) -> list[Told]:
    """Let time pass and look; return what was told."""
    steps.clock.advance(**spans)
    return (await look(steps.db)).told


async def test_a_run_that_succeeded_in_time_is_not_told(steps: Steps) -> None:
    """T14: the run of each slot is looked at once its time is over, and then the next is expected."""
    schedule = await watched(steps)
    steps.clock.advance(minutes=59)
    await fired(steps, schedule, ONE)
    await run(steps)
    assert [] == await told(steps, minutes=29)
    [before] = await rows(steps)

    assert [] == await told(steps, minutes=2)

    [after] = await rows(steps)
    assert (ONE, ONE + HOUR / 2, None) == (before["slot_at"], before["due_at"], before["missing_at"])
    assert (ONE + HOUR, ONE + HOUR * 1.5, None) == (after["slot_at"], after["due_at"], after["missing_at"])


async def test_a_run_that_nobody_fired_is_told_once(steps: Steps) -> None:
    """T14: it is told when its time is over, with an event of the schedule, and not again."""
    schedule = await watched(steps)

    first = await told(steps, minutes=90)
    again = [await told(steps, minutes=5) for _ in range(5)]

    [found] = first
    assert ("run.missing", schedule.id, "default", "nightly", ONE) == (
        found.kind,
        found.schedule_id,
        found.tenant,
        found.name,
        found.slot_at,
    )
    assert "Slot 2026-01-01T13:00:00+00:00: It has not fired." == found.reason
    assert [[]] * 5 == again
    assert [("run.missing", found.reason)] == await events(steps, schedule)
    assert 1 == await watches.missing_count(steps.db)


async def test_what_was_found_is_told(steps: Steps) -> None:
    """T14: skipped, waiting, running, retrying, dead, cancelled: the reason says which."""
    cases = ("overlapped", "queued", "running", "retry", "dead", "cancelled")
    made_for = {case: await watched(steps, case, queue=case) for case in cases}
    steps.clock.advance(minutes=59)
    for case, schedule in made_for.items():
        if case == "overlapped":
            await skipped(steps, schedule, ONE, Decision.OVERLAPPED, reason="The run before it was not over.")
            continue
        job_id = await fired(steps, schedule, ONE)
        if case == "cancelled":
            await steps.cancel(job_id)
        elif case != "queued":
            worker = await steps.worker(case, lease_s=3600)
            lease = await steps.claim_one(worker, queue=case)
            await steps.beat(worker, lease, started=True)
            if case != "running":
                await steps.fail(lease, error="boom", retryable=case == "retry")

    found = {one.name: one.reason.partition(": ")[2] for one in await told(steps, minutes=31)}

    assert "It was overlapped, without a job. The run before it was not over." == found["overlapped"]
    assert found["queued"].endswith(" waits.")
    assert found["running"].endswith(f" runs since {ONE.isoformat()}.")
    assert " waits until 2026-01-01T13:" in found["retry"]
    assert found["dead"].endswith(" is dead: boom")
    assert found["cancelled"].endswith(" is cancelled: she said so")


async def test_a_slot_passed_over_with_later_ones_is_told_as_such(steps: Steps) -> None:
    """T14: a slot that has no row of its own stands in that of a later one."""
    schedule = await watched(steps, within_s=4 * 3600)
    steps.clock.advance(minutes=200)
    await skipped(steps, schedule, ONE + 2 * HOUR, Decision.MISSED, slot_count=3, first_at=ONE, reason="An outage.")

    [found] = await told(steps, minutes=100)

    assert f"Slot {ONE.isoformat()}: It was missed, without a job. An outage." == found.reason


async def test_a_late_success_ends_what_was_told(steps: Steps) -> None:
    """T14: the run that is missing is looked at again; when it has succeeded that is told, and the next is expected."""
    schedule = await watched(steps)
    steps.clock.advance(minutes=59)
    await fired(steps, schedule, ONE)
    lease = await running(steps)
    assert ["run.missing"] == [found.kind for found in await told(steps, minutes=31)]
    await steps.complete(lease)

    [found] = await told(steps, minutes=2)

    [row] = await rows(steps)
    assert ("run.recovered", ONE) == (found.kind, found.slot_at)
    assert (ONE + HOUR, ONE + HOUR * 1.5, None) == (row["slot_at"], row["due_at"], row["missing_at"])
    assert ["run.missing", "run.recovered"] == [kind for kind, _ in await events(steps, schedule)]
    assert 0 == await watches.missing_count(steps.db)


async def test_a_run_made_by_hand_ends_what_was_told(steps: Steps) -> None:
    """T14: any run that succeeds after the missing one will do."""
    schedule = await watched(steps)
    await told(steps, minutes=90)
    await fired(steps, schedule, steps.clock.now(), decision=Decision.MANUAL)
    await run(steps)

    assert ["run.recovered"] == [found.kind for found in await told(steps, minutes=2)]


async def test_each_missing_slot_is_told(steps: Steps) -> None:
    """T14: while runs stay out each slot is told when its time is over; since when they do is kept."""
    await watched(steps)

    first = await told(steps, minutes=90)
    [since] = [row["missing_at"] for row in await rows(steps)]
    second = await told(steps, minutes=60)

    [row] = await rows(steps)
    assert [ONE, ONE + HOUR] == [found.slot_at for found in (*first, *second)]
    assert (NOON + timedelta(minutes=90), since) == (since, row["missing_at"])


async def test_the_next_slot_that_succeeds_ends_what_was_told(steps: Steps) -> None:
    """T14: recovery is told with the slot whose run succeeded."""
    schedule = await watched(steps)
    await told(steps, minutes=90)
    steps.clock.advance(minutes=30)
    await fired(steps, schedule, ONE + HOUR)
    await run(steps)

    found = await told(steps, minutes=31)

    assert ["run.recovered"] == [one.kind for one in found]
    [row] = await rows(steps)
    assert (None, ONE + 2 * HOUR) == (row["missing_at"], row["slot_at"])


@pytest.mark.parametrize("trigger", [HOURLY, Every(3600), Cron("* * * * * *")], ids=["cron", "every", "seconds"])
async def test_after_a_time_nobody_looked_the_newest_slot_is_told(steps: Steps, trigger: Any) -> None:
    """T14: one telling, however many slots lie behind."""
    await watched(steps, trigger=trigger)

    found = await told(steps, days=3)

    [one] = found
    assert timedelta(0) <= steps.clock.now() - one.slot_at - timedelta(seconds=HALF) < HOUR
    assert [] == (await look(steps.db)).told


async def test_a_run_of_one_time_stays_missing_until_it_succeeds(steps: Steps) -> None:
    """T14: after the last slot nothing more is expected, but what is missing is told until it is there."""
    schedule = await watched(steps, trigger=At(ONE))
    await told(steps, hours=3)
    assert [] == await told(steps, days=2)
    await fired(steps, schedule, ONE)
    await run(steps)

    assert ["run.recovered"] == [found.kind for found in await told(steps, days=1)]
    assert [] == await rows(steps)


async def test_a_missing_run_is_looked_at_more_and_more_seldom(steps: Steps) -> None:
    """T14: what stays missing for weeks costs a look a day."""
    await watched(steps, trigger=At(ONE))
    looks = 0
    for _ in range(24 * 20):
        steps.clock.advance(hours=1)
        looks += (await look(steps.db)).count
    await sweep(steps.db)

    assert 20 <= looks <= 60


async def test_jitter_belongs_to_the_slot(steps: Steps) -> None:
    """T10, T14: the time counts from when a slot is due."""
    schedule = await watched(steps, jitter_s=600)

    slots = schedule.series()
    assert slots is not None
    assert 0 < slots.offset_s < 600
    [row] = await rows(steps)
    assert ONE + timedelta(seconds=slots.offset_s + HALF) == row["due_at"]


async def test_nothing_is_expected_any_more(steps: Steps) -> None:
    """X5: a schedule that is paused, ended, or has no such policy owes no run."""
    schedule = await watched(steps)
    other = await made(steps, "other")

    assert (None, None) == expected(other.series(), within_s=None, after=NOON)
    assert (None, None) == expected(None, within_s=HALF, after=NOON)
    await expect(steps.db, [(schedule.id, None, None), (other.id, None, None)])

    assert [] == await rows(steps)
    assert None is await steps.left_s("watch")
    assert [] == await told(steps, days=3)


async def test_what_is_expected_anew_forgets_what_was_missing(steps: Steps) -> None:
    """T14: an edit begins anew: the slot it names is told by itself."""
    schedule = await watched(steps)
    await told(steps, minutes=90)

    await expect(steps.db, [(schedule.id, ONE + HOUR, ONE + HOUR * 1.25)])

    [row] = await rows(steps)
    assert (ONE + HOUR, None) == (row["slot_at"], row["missing_at"])
    assert [ONE + HOUR] == [found.slot_at for found in await told(steps, minutes=60)]


async def test_the_time_to_the_next_look_is_told(steps: Steps) -> None:
    """An idle duty sleeps until something is due."""
    await watched(steps)

    assert 89 * 60 == await steps.left_s("watch")


async def test_a_schedule_that_cannot_be_computed_stops_no_other(steps: Steps) -> None:
    """T14: a zone that is known no more is told as what it is; the others are looked at."""
    broken = await watched(steps, "broken", trigger=Cron("0 * * * *", "Europe/Berlin"))
    await watched(steps, "good")
    text = "UPDATE schedule SET zone = 'Nowhere/Land' WHERE id = :id"
    await steps.db.fetch(Query("break", "Break.", text, text), id=broken.id)

    found = {one.name: one.reason for one in await told(steps, minutes=90)}

    assert {"broken", "good"} == found.keys()
    assert "Its slots cannot be computed: " in found["broken"]
    assert [] == (await look(steps.db)).told


async def test_many_are_looked_at_in_portions(steps: Steps) -> None:
    """T16: a look takes so many; the longest due come first."""
    for number in range(5):
        await watched(steps, f"s{number}", within_s=HALF + number)
    steps.clock.advance(minutes=91)

    first = await look(steps.db, limit=3)
    second = await look(steps.db, limit=3)

    assert (3, ["s0", "s1", "s2"]) == (first.count, sorted(found.name for found in first.told))
    assert (2, ["s3", "s4"]) == (second.count, sorted(found.name for found in second.told))
