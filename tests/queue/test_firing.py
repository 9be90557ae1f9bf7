"""Firing: what is due becomes jobs, once, in one transaction, and nothing ahead of its time."""

from __future__ import annotations

from datetime import timedelta

from tests.queue.fired import NOON, again, at, decisions, every_minute, fire, fire_all, jobs_of, write
from tests.queue.planned import made, planned, runs_of
from tests.queue.steps import Steps
from windlass.job import Place, State
from windlass.queue import firing, schedules
from windlass.queue.cron import At, Cron, Every
from windlass.queue.lanes import LaneName, Lanes
from windlass.queue.schedule import Decision, Policy


async def test_a_slot_that_is_due_becomes_a_job(steps: Steps) -> None:
    """The job has all that its schedule says, names its slot, and can be claimed at once."""
    schedule = await every_minute(steps, payload='{"a": 1}', priority=7, queue="reports", labels=("gpu",))

    fired = await fire(steps, 60.5, term=3)

    [job] = await jobs_of(steps, schedule)
    assert (at(1), at(1), '{"a": 1}', 7, Place.READY) == (
        job["slot_at"],
        job["run_at"],
        job["payload"],
        job["priority"],
        job["place"],
    )
    assert ({Decision.FIRED: 1}, {job["lane"]: job["rank"]}, {"reports": 1}, 0.5) == (
        fired.counts,
        fired.ready,
        fired.queues,
        fired.late_s,
    )
    [run] = await runs_of(steps, schedule.id)
    assert (at(1), job["id"], 3, at(1) + timedelta(seconds=0.5)) == (
        run["slot_at"],
        run["job_id"],
        run["term"],
        run["decided_at"],
    )
    stands = await again(steps, schedule)
    assert (at(1), at(2)) == (stands.last_at, stands.next_at)


async def test_nothing_is_fired_ahead_of_its_time(steps: Steps) -> None:
    """A slot fires when it is due, with its jitter, and not a moment before."""
    schedule = await every_minute(steps, jitter_s=30)
    series = schedule.series()
    assert series is not None

    early = await fire(steps, 60 + series.offset_s - 0.01)
    due = await fire(steps, 0.02)

    assert (0, 1) == (early.decided, due.made)
    [job] = await jobs_of(steps, schedule)
    assert (at(1), at(1) + timedelta(seconds=series.offset_s)) == (job["slot_at"], job["run_at"])


async def test_a_slot_fires_once_however_often_it_is_looked_at(steps: Steps) -> None:
    """A second look finds nothing; the next slot has its own job."""
    schedule = await every_minute(steps, policy=Policy(overlap="allow"))

    made_count = [(await fire(steps, span)).made for span in (60, 0, 0, 60, 0)]

    assert [1, 0, 0, 1, 0] == made_count
    assert [("12:02:00", "fired"), ("12:03:00", "fired")] == await decisions(steps, schedule)


async def test_a_failed_or_running_job_does_not_hold_the_series_up(steps: Steps) -> None:
    """T5: the next slot is computed when a slot fires, whatever becomes of its job."""
    schedule = await every_minute(steps, policy=Policy(overlap="allow"), max_attempts=1)
    worker = await steps.worker()
    await fire(steps, 60)
    await steps.fail(await steps.claim_one(worker))
    await fire(steps, 60)
    await steps.claim_one(worker)

    await fire(steps, 60)

    assert ["fired"] * 3 == [word for _, word in await decisions(steps, schedule)]


async def test_a_one_time_schedule_fires_once_and_rests(steps: Steps) -> None:
    """Its next slot is never."""
    schedule = await made(steps, trigger=At(at(5)))

    count = await fire_all(steps, 300) + await fire_all(steps, 3600)

    assert 1 == count
    assert None is (await again(steps, schedule)).next_at


async def test_a_one_time_schedule_that_is_late_fires_all_the_same(steps: Steps) -> None:
    """Under `latest` it is never missed; under `skip` it is."""
    latest = await made(steps, "latest", trigger=At(at(5)))
    skip = await made(steps, "skip", trigger=At(at(5)), policy=Policy(catch_up="skip"))

    await fire_all(steps, 7200)

    assert [("12:06:00", "fired")] == await decisions(steps, latest)
    assert [("12:06:00", "missed")] == await decisions(steps, skip)


async def test_a_start_deadline_counts_from_when_the_slot_is_due(steps: Steps) -> None:
    """A job that is not started so long after its slot expires."""
    schedule = await every_minute(steps, policy=Policy(start_within_s=30))

    await fire(steps, 60)

    [job] = await jobs_of(steps, schedule)
    assert at(1.5) == job["start_by"]


async def test_a_slot_past_its_start_deadline_makes_no_job(steps: Steps) -> None:
    """After an outage it is missed, with the reason: its job would expire at once."""
    schedule = await made(steps, trigger=Cron("0 * * * *"), policy=Policy(start_within_s=60))

    await fire_all(steps, 5400)

    assert ["missed"] == [word for _, word in await decisions(steps, schedule)]
    assert [] == await jobs_of(steps, schedule)


async def test_a_batch_has_a_limit_and_says_that_more_is_due(steps: Steps) -> None:
    """What is left comes with the next batch; nobody is left out."""
    stored = [planned(steps, f"s{number}", trigger=Cron("* * * * *")) for number in range(50)]
    await schedules.create(steps.db, stored)
    steps.clock.advance(60)

    first = await fire(steps, limit=16)
    left = await fire_all(steps, limit=16)

    assert first.full
    assert 0 < first.made <= 32
    assert 50 == first.made + left


async def test_only_the_shards_asked_for_are_fired(steps: Steps) -> None:
    """A duty fires its own part; together they fire everything."""
    stored = [planned(steps, f"s{number}", trigger=Cron("* * * * *")) for number in range(40)]
    await schedules.create(steps.db, stored)
    steps.clock.advance(60)

    even = await fire_all(steps, shards=range(0, 16, 2))
    odd = await fire_all(steps, shards=range(1, 16, 2))

    assert sum(schedule.id.int % 2 == 0 for schedule in stored) == even
    assert 40 == even + odd


async def test_what_is_on_time_does_not_wait_for_what_is_made_up_for(steps: Steps) -> None:
    """After an outage a batch has both: thousands of old slots delay nobody else."""
    policy = Policy(catch_up="all", overlap="allow")
    for number in range(30):
        await made(steps, f"old{number}", trigger=Every(1), policy=policy)
    steps.clock.advance(3600)
    fresh = await made(steps, "fresh", trigger=At(steps.clock.now() + timedelta(seconds=1)))

    fired = await fire(steps, 1)

    assert fired.full
    assert ["fired"] == [word for _, word in await decisions(steps, fresh)]


async def test_a_slot_that_was_backfilled_makes_no_second_job(steps: Steps) -> None:
    """The key of schedule_runs is the guard of firing and of backfill alike; slots around it fire."""
    schedule = await every_minute(steps, policy=Policy(overlap="allow", misfire_grace_s=600))
    text = (
        "INSERT INTO schedule_runs (schedule_id, slot_at, decision, term, decided_at, slot_count) "
        "VALUES (:id, :slot, 3, 0, :now, 1)"
    )
    await write(steps, text, id=schedule.id, slot=at(2))

    fired = await fire(steps, 180)

    assert 2 == fired.made
    assert [("12:02:00", "fired"), ("12:03:00", "backfilled"), ("12:04:00", "fired")] == await decisions(
        steps, schedule
    )


async def test_a_tenant_with_too_many_lanes_misses_its_slots_with_the_reason(steps: Steps) -> None:
    """What cannot be made is recorded, and keeps nobody else waiting."""
    known = Lanes(per_tenant=4)
    await known.resolve(steps.db, [LaneName("default", f"q{n}", "t") for n in range(2)])
    full = await every_minute(steps, "full", queue="another")
    fine = await every_minute(steps, "fine", queue="q0", task="t")
    steps.clock.advance(60)

    fired = await firing.fire(steps.db, known, steps.ids)

    assert {Decision.FIRED: 1, Decision.MISSED: 1} == fired.counts
    [run] = await runs_of(steps, full.id)
    assert "lanes" in run["reason"]
    assert [("12:02:00", "fired")] == await decisions(steps, fine)


async def test_jobs_of_schedules_stand_in_line_like_jobs_submitted_now(steps: Steps) -> None:
    """A slot made up for long after its time does not jump the queue."""
    first = await steps.submit_one("mail")
    schedule = await every_minute(steps)
    await fire_all(steps, 3600)

    claimed = await steps.claim(await steps.worker(), 2)

    [job] = await jobs_of(steps, schedule)
    assert [first, job["id"]] == [lease.id for lease in claimed]
    assert State.ASSIGNED is await steps.state_of(job["id"])


async def test_a_slot_long_gone_finds_a_partition(steps: Steps) -> None:
    """History is partitioned by slot; the day of a slot that is made up for is made when it is needed."""
    policy = Policy(catch_up="all", overlap="allow", misfire_grace_s=1)
    schedule = await made(steps, trigger=Cron("0 0 * * *"), policy=policy)
    steps.clock.advance(days=5)

    assert 5 == await fire_all(steps)

    assert 5 == len(await decisions(steps, schedule))
    assert NOON < (await runs_of(steps, schedule.id))[0]["slot_at"]


async def test_the_look_says_when_the_next_slot_is_due(steps: Steps) -> None:
    """In seconds, less than none when one is due; nothing without a schedule."""
    assert None is await steps.left_s("fire")
    await every_minute(steps)

    before = await steps.left_s("fire")
    steps.clock.advance(61)
    after = await steps.left_s("fire")

    assert (60.0, -1.0) == (before, after)
