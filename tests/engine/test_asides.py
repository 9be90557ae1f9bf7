"""Backfills and watches in an engine: jobs reach workers that wait, and missing runs are logged and counted."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.clock import TestClock, no_pause
from tests.engine.test_dispatch import PATIENCE_S, asking
from tests.queue.tenantdata import files_with
from windlass.config import Settings
from windlass.db import Database
from windlass.db.sqlite import SqliteDatabase
from windlass.engine import asides
from windlass.engine.asides import backfill_duty, erase_duty, watch_duty
from windlass.engine.duty import Duty, Ran
from windlass.engine.engine import Engine
from windlass.engine.looks import Looks
from windlass.engine.meters import Meters
from windlass.engine.outside import Outside
from windlass.errors import Contention, TooMany, Unavailable
from windlass.ids import Ids
from windlass.queue import backfills, history, schedules, tenants, watches
from windlass.queue.backfills import Backfill
from windlass.queue.control import Actor
from windlass.queue.cron import Every
from windlass.queue.erasure import Wipe
from windlass.queue.lanes import Lanes
from windlass.queue.report import Complete
from windlass.queue.schedule import NewSchedule, Policy

NOBODY = Actor()


async def begun(db: Database, ids: Ids, *, name: str = "s", minutes: int = 5, concurrency: int = 10) -> Backfill:
    """Start a backfill of the last minutes."""
    schedule = NewSchedule(id=ids.new(), name=name, task="task", trigger=Every(60))
    await schedules.create(db, [schedule])
    stored = await schedules.get(db, name, tenant="default")
    return await backfills.start(
        db,
        ids,
        stored,
        since=stored.base_at - timedelta(minutes=minutes),
        until=stored.base_at,
        concurrency=concurrency,
        actor=NOBODY,
    )


class Told:
    """What a duty has stored."""

    def __init__(self) -> None:
        self.ids: list[UUID] = []

    def __call__(self, requests: Any, answers: Any) -> None:
        for jobs, stored in zip(requests, answers, strict=True):
            assert [job.id for job in jobs] == [one.id for one in stored]
            self.ids += [job.id for job in jobs]


def looks(clock: TestClock) -> Looks:
    """Return the looks of a server by itself."""
    return Looks(period_s=0.5, monotonic=lambda: clock.now().timestamp())


def backfilling(clock: TestClock, told: Told) -> tuple[Duty, Meters, Ids]:
    """Return the duty, by itself."""
    meters, ids = Meters(), Ids(clock)
    return backfill_duty(Lanes(), ids, looks(clock), stored=told, meters=meters), meters, ids


async def test_a_waiting_worker_gets_the_jobs_of_a_backfill(timely: Engine) -> None:
    """T13: a backfill that is asked for runs at once, and is done when its jobs are."""
    task = asyncio.create_task(timely.claim(asking(wait_s=PATIENCE_S)))

    backfill = await begun(timely.db, timely.ids, minutes=1, concurrency=1)

    [handed] = (await asyncio.wait_for(task, PATIENCE_S)).jobs
    job = handed.job
    assert backfill.schedule_id == (await history.get(timely.db, job.id, tenant="default")).schedule_id
    await timely.report([Complete(job_id=job.id, fence=job.fence, worker="w", session=job.session)])
    async with asyncio.timeout(PATIENCE_S):
        while "done" != (await backfills.get(timely.db, backfill.id, tenant="default")).status:
            pass


async def test_the_duty_makes_jobs_and_ends_backfills(db: Database, clock: TestClock) -> None:
    """T13: what it made is told and counted; it looks often while something goes on, and seldom else."""
    told = Told()
    duty, meters, ids = backfilling(clock, told)
    idle = await duty.run(db, duty.most)
    backfill = await begun(db, ids, minutes=5)
    clock.advance(0.5)

    made = await duty.run(db, duty.most)
    waiting = await duty.run(db, duty.most)
    await backfills.stop(db, backfill.id, tenant="default", actor=NOBODY)
    after = await duty.run(db, duty.most)

    assert (0, 0.5) == (idle.items, idle.next_s)
    assert (5, 0.0) == (made.items, made.next_s)
    assert (0, asides.SOON_S) == (waiting.items, waiting.next_s)
    assert (0, None) == (after.items, after.next_s)
    assert 5 == len(told.ids)
    assert 5.0 == meters.registry.get_sample_value("windlass_schedule_slots_total", {"decision": "backfilled"})


async def test_the_duty_grows_tired_of_a_backfill_whose_jobs_take_long(db: Database, clock: TestClock) -> None:
    """An idle look is repeated each second, not five times."""
    duty, _, ids = backfilling(clock, Told())
    await begun(db, ids, concurrency=1)
    await duty.run(db, duty.most)

    rests = [(await duty.run(db, duty.most)).next_s for _ in range(asides.SOON_COUNT + 2)]

    assert (asides.SOON_S, None) == (rests[0], rests[-1])


async def test_many_backfills_have_their_turns(db: Database, clock: TestClock) -> None:
    """T16: more than one look takes are gone round, whatever the first ones do."""
    told = Told()
    duty, _, ids = backfilling(clock, told)
    for number in range(5):
        await begun(db, ids, name=f"s{number}", concurrency=1)

    for _ in range(3):
        await duty.run(db, 2)

    assert 5 == len(told.ids)


@pytest.mark.parametrize(
    ("problem", "status"),
    [(ValueError("no such word"), "stopped"), (TooMany("later"), "running"), (Contention("later"), "running")],
    ids=["for ever", "a cap", "a rival"],
)
async def test_one_that_cannot_go_on_stops_no_other(
    db: Database,
    clock: TestClock,
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception,
    status: str,
) -> None:
    """T13: a backfill that fails is stopped with its reason, one that must wait waits; the others go on."""
    told = Told()
    duty, _, ids = backfilling(clock, told)
    broken = await begun(db, ids, name="broken")
    await begun(db, ids, name="good")
    advance = backfills.advance

    async def advancing(db: Any, lanes: Any, ids: Any, *, backfill: Backfill, **more: Any) -> Any:
        if backfill.id == broken.id:
            raise problem
        return await advance(db, lanes, ids, backfill=backfill, **more)

    monkeypatch.setattr(backfills, "advance", advancing)

    await duty.run(db, duty.most)

    found = await backfills.get(db, broken.id, tenant="default")
    assert (status, 5) == (found.status, len(told.ids))
    assert ("It cannot go on: no such word" if status == "stopped" else None) == found.reason


async def test_a_database_that_is_away_stops_the_round(
    db: Database, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the duty that failed, and not the backfill."""
    duty, _, ids = backfilling(clock, Told())
    backfill = await begun(db, ids)

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("It is away.")

    monkeypatch.setattr(backfills, "advance", away)

    with pytest.raises(Unavailable):
        await duty.run(db, duty.most)
    assert "running" == (await backfills.get(db, backfill.id, tenant="default")).status


async def test_one_for_which_the_database_is_away_holds_up_no_other(
    db: Database, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T13: the round ends, and the next one begins behind it; it is tried again after the others."""
    told = Told()
    duty, _, ids = backfilling(clock, told)
    broken = await begun(db, ids, name="broken")
    await begun(db, ids, name="good")
    advance, tried = backfills.advance, []

    async def advancing(db: Any, lanes: Any, ids: Any, *, backfill: Backfill, **more: Any) -> Any:
        tried.append(backfill.id)
        if backfill.id == broken.id:
            raise Unavailable("A day of history is missing.")
        return await advance(db, lanes, ids, backfill=backfill, **more)

    monkeypatch.setattr(backfills, "advance", advancing)

    for _ in range(3):
        with suppress(Unavailable):
            await duty.run(db, duty.most)

    assert [True, False, True] == [backfill_id == broken.id for backfill_id in tried]
    assert 5 == len(told.ids)


async def test_a_missing_run_is_logged_and_counted(
    db: Database, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    """T14, O13: a line of the log with the schedule, its slot and what was found, a counter and a gauge."""
    meters, ids = Meters(), Ids(clock)
    duty = watch_duty(looks(clock), meters)
    schedule = NewSchedule(
        id=ids.new(), name="nightly", task="task", trigger=Every(60), policy=Policy(expect_within_s=5)
    )
    await schedules.create(db, [schedule])
    stored = await schedules.get(db, "nightly", tenant="default")
    slot = watches.expected(stored.series(), within_s=5, after=stored.base_at)
    await watches.expect(db, [(schedule.id, *slot)])

    early = await duty.run(db, duty.most)
    clock.advance(70)
    with caplog.at_level(logging.ERROR, "windlass"):
        looked = await duty.run(db, duty.most)

    assert (0, 0.5) == (early.items, early.next_s)
    assert (1, 0.0) == (looked.items, looked.next_s)
    [line] = [str(record.msg) for record in caplog.records]
    assert line.startswith(f"run.missing schedule=nightly schedule_id={schedule.id} tenant=default slot_at=2026-01-01T")
    assert "It has not fired." in line
    assert 1.0 == meters.registry.get_sample_value("windlass_schedule_run_alarms_total")


async def test_the_gauge_says_how_many_schedules_miss_a_run(db: Database, clock: TestClock) -> None:
    """O13: RunMissing is this gauge above nought."""
    engine = Engine(db, Settings(), name="scheduler_test_1", outside=Outside())
    policy = Policy(expect_within_s=5)
    schedule = NewSchedule(id=engine.ids.new(), name="s", task="task", trigger=Every(60), policy=policy)
    await schedules.create(db, [schedule])
    await watches.expect(db, [(schedule.id, clock.now(), clock.now())])
    await watches.look(db)

    await engine.gauges.refresh()

    assert 1.0 == engine.meters.registry.get_sample_value("windlass_schedule_runs_missing")


async def test_rel_t24_the_duty_wipes_until_no_reader_is_in_its_way(sqlite_db: Database) -> None:
    """T24: after a start, and after an erasure that a reader held off; with nothing erased since it does nothing."""
    assert isinstance(sqlite_db, SqliteDatabase)
    wipe = Wipe()
    duty = erase_duty(Ids(sqlite_db.now), wipe)
    with closing(sqlite3.connect(sqlite_db.path, isolation_level=None)) as reader:
        await tenants.create(sqlite_db, "n0nce", pause=no_pause)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM dead").fetchall()
        held = await duty.run(sqlite_db, 10)
        was_owed = wipe.is_owed
    ran = [await duty.run(sqlite_db, 10) for _ in range(2)]

    assert (Ran(0, asides.WAITS_S), True) == (held, was_owed)
    assert [Ran(0, None)] * 2 == ran
    assert not wipe.is_owed
    assert [sqlite_db.path.name] == files_with(sqlite_db, "n0nce")
