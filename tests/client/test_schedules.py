"""Schedules by the Python API: over HTTP and embedded, blocking and in an event loop, on both databases."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.client.conftest import Voice
from tests.client.serving import PATIENCE_S, Served
from windlass import App, InvalidSchedule, NameTaken, NotFound, Schedule, at, cron, every
from windlass.client.task import Task
from windlass.errors import InvalidInput
from windlass.job import State

BERLIN = ZoneInfo("Europe/Berlin")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def days_ago(days: int) -> datetime:
    """Return the midnight that began the day so many days ago."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)


YEARLY = cron("0 3 1 1 *", zone="Europe/Berlin")
NAME = "weekly report: 50% öff?"


def report_of(app: App) -> Task[..., str]:
    """Give the application a task to schedule."""

    @app.task(queue="reports", tags=["x"])
    def report(day: str = "sun") -> str:
        return day.upper()

    return report


async def run_next(served: Served, app: App) -> dict[str, Any]:
    """Have the next job run by hand."""
    return await asyncio.to_thread(served.run_next, app)


async def runs_of(voice: Voice, schedule: Schedule[Any], *, count: int = 1) -> list[Any]:
    """Return the slots of a schedule, as soon as there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found: list[Any] = await voice(schedule, "runs")
            if len(found) >= count:
                return found


async def test_a_schedule_is_stored_and_found(app: App, voice: Voice) -> None:
    """By its name, whatever that is made of, by its id, and in the list; it has what the call has."""
    call = report_of(app).options(priority=3, timeout="5m").s("mon")

    made = await voice(app, "schedule", call, YEARLY, name=NAME, overlap="queue_one", exclude=["SAT"])

    info = await voice(made, "info")
    assert (NAME, "report", {"day": "mon"}, "reports", ["x"]) == (
        info.name,
        info.task,
        info.payload,
        info.queue,
        info.tags,
    )
    assert (3, 300, "queue_one", ["SAT"]) == (info.priority, info.timeout_seconds, info.overlap, info.exclude)
    assert ("0 3 1 1 *", "Europe/Berlin", None) == (info.cron, info.timezone, info.owner)
    assert made.next_run_at is not None
    assert (1, 1, 3) == (lambda at: (at.month, at.day, at.hour))(made.next_run_at.astimezone(BERLIN))
    assert made == await voice(app.schedules, "get", NAME) == await voice(app.schedules, "get", made.id)
    assert [made] == [schedule async for schedule in app.schedules]
    assert [made] == await asyncio.to_thread(lambda: list(app.schedules))
    assert made == await asyncio.to_thread(lambda: app.schedules[NAME])


async def test_what_there_is_can_be_asked_for(app: App, voice: Voice) -> None:
    """`in`, and lists by what schedules have in common; the name is the task's where none is given."""
    report = report_of(app)
    await voice(app, "schedule", report, every("1h"))
    await voice(app, "schedule", report.options(queue="slow").s(), None, name="a-b", enabled=False)

    def asked() -> tuple[bool, bool, bool]:
        return "report" in app.schedules, "other" in app.schedules, 5 in app.schedules

    assert (True, False, False) == await asyncio.to_thread(asked)
    assert ["a-b"] == [schedule.name async for schedule in app.schedules.afind(queue="slow")]
    assert ["a-b"] == await asyncio.to_thread(lambda: [each.name for each in app.schedules.find(paused=True)])
    assert ["a-b", "report"] == [schedule.name async for schedule in app.schedules.afind(task="report")]
    assert [] == [schedule.name async for schedule in app.schedules.afind(owner="shop")]


async def test_a_schedule_that_is_not_there(app: App, voice: Voice) -> None:
    """NotFound says what to do; so does a handle whose schedule was deleted."""
    made = await voice(app, "schedule", report_of(app), every(60))

    with pytest.raises(NotFound, match="There is no schedule 'nightly'"):
        await voice(app.schedules, "get", "nightly")
    with pytest.raises(NotFound, match="makes one"):
        await asyncio.to_thread(lambda: app.schedules["nightly"])
    await voice(made, "delete", "not needed")

    with pytest.raises(NotFound):
        await voice(made, "refresh")
    with pytest.raises(NotFound):
        await voice(made, "delete")


async def test_a_name_is_taken_once(app: App, voice: Voice) -> None:
    """NameTaken, unless the schedule there is to be replaced; it keeps its id, and a dry run changes nothing."""
    report = report_of(app)
    made = await voice(app, "schedule", report, every(60))

    with pytest.raises(NameTaken, match="report"):
        await voice(app, "schedule", report, YEARLY)
    change = await voice(app, "schedule", report, YEARLY, overlap="allow", replace_existing=True, dry_run=True)
    unchanged = await voice(made, "info")
    replaced = await voice(app, "schedule", report, YEARLY, overlap="allow", replace_existing=True)

    assert change.exists
    assert {"cron", "overlap"} <= {difference.field for difference in change.differences}
    assert ("skip", "allow") == next((one.was, one.becomes) for one in change.differences if one.field == "overlap")
    assert 5 == len(change.slots)
    assert (60, None) == (unchanged.every_seconds, unchanged.cron)
    assert made == replaced
    assert "0 3 1 1 *" == (await voice(made, "info")).cron


async def test_bad_input_names_the_place_and_stores_nothing(app: App, voice: Voice) -> None:
    """What only servers know to be wrong comes back as the error of a trigger."""
    report = report_of(app)

    with pytest.raises(InvalidSchedule, match="25") as raised:
        await voice(app, "schedule", report, cron("0 25 * * *"))
    with pytest.raises(InvalidSchedule, match="Nowhere"):
        await voice(app, "schedule", report, cron("@daily", zone="Europe/Nowhere"))
    with pytest.raises(InvalidInput, match=r"task\.s"):
        await voice(app, "schedule", print, every(60))

    assert "cron" == raised.value.field
    assert [] == [schedule async for schedule in app.schedules]


async def test_a_paused_schedule_has_no_next_time(app: App, voice: Voice) -> None:
    """Pause with a reason and an end; resumed, it has one again."""
    made = await voice(app, "schedule", report_of(app), every("1h"))

    paused = await voice(made, "pause", "too loud", until="2h")
    info = await voice(made, "info")
    resumed = await voice(made, "resume")

    assert made is paused is resumed
    assert ("paused", True, None, "too loud") == (info.status, info.paused, info.next_run_at, info.pause.reason)
    assert timedelta(hours=1) < info.pause.until - info.pause.paused_at <= timedelta(hours=2, minutes=1)
    assert made.next_run_at is not None
    assert "active" == await made.astatus()


async def test_run_now_makes_a_job_beside_the_series(app: App, served: Served, voice: Voice) -> None:
    """Its result is the task's; another payload may take the place of the schedule's own."""
    made = await voice(app, "schedule", report_of(app).options(queue="default").s("mon"), every("1h"))

    first, second = await voice(made, "run_now"), await voice(made, "run_now", {"day": "tue"}, reason="test")
    for _ in range(2):
        await run_next(served, app)

    assert ["MON", "TUE"] == [await voice(job, "result", 60) for job in (first, second)]
    assert {"manual"} == {run.decision for run in await voice(made, "runs")}
    assert {first.id, second.id} == {run.job_id for run in await voice(made, "runs")}


async def test_slots_to_come_are_shown(app: App, voice: Voice) -> None:
    """With what a change of clocks does to them; also those of a trigger that is not stored."""
    trigger = cron("30 2 * * *", zone="Europe/Berlin")
    after = datetime(2027, 3, 27, tzinfo=BERLIN)
    made = await voice(app, "schedule", report_of(app), trigger)

    stored, not_stored = (
        await voice(made, "preview", 2, after=after),
        await voice(app.schedules, "preview", trigger, 2, after=after, exclude=["SAT"]),
    )

    assert ["2027-03-27T02:30:00+01:00", "2027-03-28T03:00:00+02:00"] == [slot.local for slot in stored.slots]
    assert [None, "moved out of a gap"] == [slot.mark for slot in stored.slots]
    assert ["2027-03-28", "2027-03-29"] == [slot.local[:10] for slot in not_stored.slots]
    assert ("Europe/Berlin", stored.words) == (not_stored.timezone, not_stored.words)


async def test_a_schedule_is_rescheduled(app: App, voice: Voice) -> None:
    """The trigger as a whole, options one by one; None takes one away; a dry run shows it and changes nothing."""
    made = await voice(app, "schedule", report_of(app), cron("@daily", zone="Europe/Berlin"), expect_within="1h")

    change = await voice(made, "reschedule", every("1h"), dry_run=True)
    before = await voice(made, "info")
    same = await voice(made, "reschedule", every("1h"), expect_within=None, overlap="allow", reason="faster")
    info = await voice(made, "info")
    await voice(made, "reschedule", cron("@weekly"))

    assert change.exists
    assert change.differences
    assert ("@daily", "Europe/Berlin", 3600) == (before.cron, before.timezone, before.expect_within_seconds)
    assert made is same
    assert (None, 3600, None, "allow") == (info.cron, info.every_seconds, info.expect_within_seconds, info.overlap)
    assert ("@weekly", "UTC", "allow") == (lambda i: (i.cron, i.timezone, i.overlap))(await voice(made, "info"))


async def test_what_became_of_a_slot_is_told(app: App, served: Served, voice: Voice) -> None:
    """A time that is past fires at once; the run has the outcome of its job, which is found by its id."""
    made = await voice(app, "schedule", report_of(app).options(queue="default").s("wed"), at(LONG_AGO))

    await runs_of(voice, made)
    await run_next(served, app)
    [run] = await voice(made, "runs", 5, decision="fired", since=LONG_AGO - timedelta(days=1))

    assert (LONG_AGO, "fired", State.SUCCEEDED) == (run.slot_at, run.decision, run.status)
    assert run.job_id is not None
    assert "WED" == await voice(app.job(run.job_id), "result", 60)
    assert "ended" == await made.astatus()
    assert [] == await voice(made, "runs", decision="missed")


async def test_a_past_range_is_run_afterwards(app: App, served: Served, voice: Voice) -> None:
    """So many at a time, each slot once; who waits is told how far it came."""
    made = await voice(app, "schedule", report_of(app).options(queue="default").s(), cron("0 0 * * *"))

    begin = days_ago(9)
    backfill = await voice(made, "backfill", begin, begin + timedelta(days=3), concurrency=3)
    for _ in range(3):
        await run_next(served, app)
    ended = await asyncio.to_thread(backfill.wait, 60)
    runs = await voice(made, "runs", decision="backfilled")

    assert ("done", 3) == (ended.status, ended.made)
    assert ended == await backfill.awaited("60s") == await voice(backfill, "info")
    assert [begin + timedelta(days=day) for day in (2, 1, 0)] == [run.slot_at for run in runs]


async def test_a_backfill_is_stopped(app: App, voice: Voice) -> None:
    """Nothing runs its jobs: it waits for them, in vain, until it is stopped."""
    made = await voice(app, "schedule", report_of(app), cron("0 0 * * *"))
    backfill = await voice(made, "backfill", days_ago(20), days_ago(1))

    with pytest.raises(TimeoutError, match="not done in time"):
        await asyncio.to_thread(backfill.wait, "50ms")
    with pytest.raises(TimeoutError, match="not done in time"):
        await backfill.awaited("50ms")
    assert "running" == await backfill.astatus()
    stopped = await voice(backfill, "stop", "enough")

    assert "stopped" == stopped.status
    assert "stopped" == (await backfill.awaited()).status


async def test_declared_schedules_are_what_the_servers_have(app: App, voice: Voice) -> None:
    """Added, changed, removed; said again it changes nothing, and a dry run never does."""
    app.name = "shop"
    report = report_of(app)
    app.scheduled(every("1h"), name="hourly")(report)
    app.scheduled(YEARLY, name="yearly", kwargs={"day": "new"})(report)
    by_hand = await voice(app, "schedule", report, every(60), name="by hand")

    tried = await voice(app, "declare", dry_run=True)
    nothing = [schedule.name async for schedule in app.schedules.afind(owner="shop")]
    first, again = await voice(app, "declare"), await voice(app, "declare")
    other = App("shop", url=app.where) if app.where.startswith("http") else App(database=app.database, name="shop")
    other.scheduled(every("2h"), name="hourly")(report_of(other))
    third = await voice(other, "declare")
    await other.aclose()

    assert (["hourly", "yearly"], []) == (sorted(tried.added), nothing)
    assert (["hourly", "yearly"], [], [], 0) == (sorted(first.added), first.changed, first.removed, first.unchanged)
    assert ([], [], [], 2) == (again.added, again.changed, again.removed, again.unchanged)
    assert ([], ["hourly"], ["yearly"], 0) == (third.added, third.changed, third.removed, third.unchanged)
    assert ["hourly"] == [schedule.name async for schedule in app.schedules.afind(owner="shop")]
    assert 7200 == (await (await app.schedules.aget("hourly")).ainfo()).every_seconds
    assert by_hand == await voice(app.schedules, "get", "by hand")


async def test_a_declaration_that_is_wrong_is_named(app: App, voice: Voice) -> None:
    """The error has the name of the schedule, and nothing of the rest was stored."""
    app.name = "shop"
    report = report_of(app)
    app.scheduled(every("1h"), name="good")(report)
    app.scheduled(every("1h"), jitter="2d", name="bad")(report)

    with pytest.raises(InvalidSchedule, match="It is the declared schedule 'bad'"):
        await voice(app, "declare")

    assert [] == [schedule async for schedule in app.schedules]


async def test_a_name_of_somebody_else_is_not_taken_over(app: App, voice: Voice) -> None:
    """What was made by hand is not changed by a declaration of the same name."""
    app.name = "shop"
    report = report_of(app)
    await voice(app, "schedule", report, every(60), name="nightly")
    app.scheduled(YEARLY, name="nightly")(report)

    with pytest.raises(NameTaken, match="nightly"):
        await voice(app, "declare")

    assert 60 == (await (await app.schedules.aget("nightly")).ainfo()).every_seconds
