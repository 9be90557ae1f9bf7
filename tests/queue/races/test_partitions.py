"""History's day partitions come and go beside those who write to them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from unittest.mock import patch
from uuid import UUID

import pytest

from tests.ahead import make_ahead
from tests.clock import START, TestClock
from tests.databases import OPEN_LONG, PATIENT, connected, open_with
from tests.queue.races.orders import Race
from tests.queue.races.pausing import COMMIT, Pausing
from tests.queue.races.stage import PATIENCE_S, WAITING, Scene, Stage
from tests.queue.races.test_reports import good, say_it
from windlass.db import Database, Query, open_database
from windlass.db.partitions import PARTITIONED, drop_partitions, make_days, make_partitions
from windlass.db.postgres import HOT_SETTINGS
from windlass.db.spans import make_spans
from windlass.errors import Contention, WindlassError
from windlass.job import State
from windlass.queue import retention
from windlass.queue.check import check
from windlass.queue.report import Answer, Status

MIDNIGHT_S = 12 * 3600


async def test_rel_x23_report_at_midnight(stage: Stage) -> None:
    """Reports in the last instant of a day, at midnight and after it all find their place in history."""
    scenes = [await stage.leased() for _ in range(3)]
    stage.clock.advance(MIDNIGHT_S - 2 - 0.000_001)
    for scene, step in zip(scenes, (0.000_001, 0.000_001, 0), strict=True):
        assert (await say_it(stage.db, scene.complete())).status is Status.APPLIED
        stage.clock.advance(step)

    jobs = [await stage.get(scene.id) for scene in scenes]
    assert [job.state for job in jobs] == [State.SUCCEEDED] * 3
    days = [job.finished_at.day for job in jobs if job.finished_at is not None]
    assert days == [1, 2, 2]
    await stage.sound()


@pytest.mark.parametrize("said", ["complete", pytest.param("fail", marks=pytest.mark.exhaustive)])
async def test_rel_x23_partitions_made_beside_reports(postgres_stage: Stage, said: str) -> None:
    """Making partitions and reporting into history do not disturb each other, in any order."""
    stage = postgres_stage

    async def prepare() -> Scene:
        scene = await stage.leased()
        stage.clock.advance(days=1)
        await make_spans(stage.db)
        return scene

    async def make(db: Database, _: Scene) -> list[str]:
        return await make_partitions(db, days_ahead=7)

    async def judge(scene: Scene, answer: Answer | WindlassError, made: list[str] | WindlassError) -> None:
        assert good(answer).status is Status.APPLIED
        assert len(good(made)) == len(PARTITIONED)

    # Up to date before, so that each order finds exactly one day to make.
    await make_partitions(stage.db, days_ahead=7)
    await Race(prepare, lambda db, scene: say_it(db, getattr(scene, said)()), make, judge).in_every_order(stage)


async def test_rel_x23_partitions_made_by_two(postgres_stage: Stage) -> None:
    """Two servers that make the same partitions at once both end well, and each partition is made once."""
    stage = postgres_stage

    async def prepare() -> None:
        stage.clock.advance(days=1)
        await make_spans(stage.db)

    async def make(db: Database, _: None) -> list[str]:
        return await make_partitions(db, days_ahead=7)

    async def judge(_: None, left: list[str] | WindlassError, right: list[str] | WindlassError) -> None:
        assert len(good(left)) + len(good(right)) == len(set(good(left) + good(right))) == len(PARTITIONED)

    await make_partitions(stage.db, days_ahead=7)
    await Race(prepare, make, make, judge).in_every_order(stage)


async def test_rel_x23_partitions_made_beside_autovacuum(postgres_db: Database, postgres_url: str) -> None:
    """A partition that autovacuum works on, which may take as long as it likes, keeps no others from being made."""
    day = (await make_partitions(postgres_db, days_ahead=8))[0]
    async with connected(postgres_url) as vacuum, vacuum.transaction():
        await vacuum.execute(f"LOCK TABLE windlass.{day} IN SHARE UPDATE EXCLUSIVE MODE")

        assert len(PARTITIONED) == len(await make_partitions(postgres_db, days_ahead=9))


async def test_rel_x23_opened_by_many(postgres_url: str, clock: TestClock) -> None:
    """Servers that start at once on a database whose days have run out all start, and history can be written."""
    clock.advance(days=30)

    with patch.dict(HOT_SETTINGS, OPEN_LONG):
        servers = await asyncio.gather(*(open_database(postgres_url, clock=clock) for _ in range(4)))

    try:
        assert [[]] * 4 == [await check(db) for db in servers]
        assert [] == await make_partitions(servers[0])
    finally:
        for db in servers:
            await db.close()


async def test_rel_x23_opened_while_a_rival_has_the_lock(postgres_url: str, clock: TestClock) -> None:
    """A server that starts while another is making the same days waits for it."""
    clock.advance(days=30)
    async with (
        asyncio.timeout(PATIENCE_S),
        connected(postgres_url) as watcher,
        connected(postgres_url) as rival,
        rival.transaction(),
    ):
        await rival.execute("LOCK TABLE windlass.done IN SHARE UPDATE EXCLUSIVE MODE")
        opening = asyncio.create_task(open_with(PATIENT, postgres_url, clock=clock))
        while not await watcher.fetchval(WAITING):
            pass
    db = await opening

    try:
        assert [] == await check(db)
    finally:
        await db.close()


@pytest.mark.parametrize(("days", "starts"), [(1, True), (6, True), (7, False), (8, False)])
async def test_rel_x23_opened_while_a_lock_is_held(
    postgres_url: str, clock: TestClock, days: int, starts: bool
) -> None:
    """A lock on history that stays keeps a server from starting only if today or tomorrow cannot be written."""
    soon = {**OPEN_LONG, "lock_timeout": "10ms"}
    clock.advance(days=days)
    async with connected(postgres_url) as rival, rival.transaction():
        await rival.execute("LOCK TABLE windlass.done IN SHARE UPDATE EXCLUSIVE MODE")
        if not starts:
            with pytest.raises(Contention):
                await open_with(soon, postgres_url, clock=clock)
            return
        db = await open_with(soon, postgres_url, clock=clock)

    try:
        assert days * len(PARTITIONED) == len(await make_partitions(db))
    finally:
        await db.close()


async def test_rel_x23_partitions_dropped_beside_reports(postgres_stage: Stage) -> None:
    """Dropping old days takes none that is written to, and waits for a report under way without disturbing it."""
    stage = postgres_stage
    old = await stage.leased()
    await say_it(stage.db, old.complete())
    stage.clock.advance(days=3)
    await make_partitions(stage.db, days_ahead=7)
    scenes = [await stage.leased() for _ in range(2)]
    server, sweeper = Pausing(stage.servers[0]), Pausing(stage.servers[1])
    point = server.hold_before(COMMIT)
    said = asyncio.create_task(say_it(server, scenes[0].complete()))
    await point.reached.wait()
    sweep = asyncio.create_task(retention.sweep(sweeper, days=1))
    assert await stage.until_parked(sweep, server, sweeper)
    beside = await say_it(stage.servers[2], scenes[1].complete())
    point.release()

    swept, answer = await sweep, await said

    assert "done_20260101" in swept.partitions_dropped
    assert (answer.status, beside.status) == (Status.APPLIED, Status.APPLIED)
    assert [await stage.state(scene.id) for scene in scenes] == [State.SUCCEEDED] * 2
    assert (await say_it(stage.db, old.complete())).status is Status.UNKNOWN
    await stage.sound()


@pytest.mark.exhaustive
async def test_rel_x23_partitions_dropped_by_two(postgres_stage: Stage) -> None:
    """Two servers that drop the same partitions at once both end well, and each is dropped."""
    stage = postgres_stage

    async def prepare() -> set[str]:
        stage.clock.advance(days=1)
        await make_ahead(stage.db)
        day = stage.clock.now() - timedelta(days=2)
        return {f"{table}_{day:%Y%m%d}" for table in PARTITIONED}

    async def drop(db: Database, _: set[str]) -> list[str]:
        return list(await drop_partitions(db, days=1))

    async def judge(old: set[str], left: list[str] | WindlassError, right: list[str] | WindlassError) -> None:
        assert old <= {*good(left), *good(right)}
        assert [] == await drop(stage.db, old)

    await Race(prepare, drop, drop, judge).in_every_order(stage)


async def test_a_day_whose_removal_was_interrupted_is_made_whole(postgres_db: Database) -> None:
    """A backfill of a day that is half detached can write there again, and finds what was in it."""
    day = START - timedelta(days=38)
    table, name = "windlass.schedule_runs", f"windlass.schedule_runs_{day:%Y%m%d}"
    await make_days(postgres_db, "schedule_runs", [day])
    text = (
        f"INSERT INTO {table} (schedule_id, slot_at, decision, term, decided_at, slot_count) "
        f"VALUES (:id, :day, 0, 1, :day, 1) RETURNING slot_at"
    )
    write = Query("write", "A slot.", text, text)
    pending = Query("pending", "Days.", "SELECT count(*) AS days FROM pg_inherits WHERE inhdetachpending", "")
    await postgres_db.fetch(write, id=UUID(int=1), day=day)
    async with postgres_db.transaction() as reader:
        await reader.fetch(Query("read", "Its rows.", f"SELECT slot_at FROM {table}", ""))
        detach = f"ALTER TABLE {table} DETACH PARTITION {name} CONCURRENTLY"
        removal = asyncio.create_task(postgres_db.maintain(detach))  # it waits for the reader, and is given up
        async with asyncio.timeout(PATIENCE_S):
            while (await postgres_db.fetch(pending))[0]["days"] != 1:
                pass
        removal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await removal
    assert 1 == (await postgres_db.fetch(pending))[0]["days"]

    await make_days(postgres_db, "schedule_runs", [day])

    assert 0 == (await postgres_db.fetch(pending))[0]["days"]
    assert [day] == [row["slot_at"] for row in await postgres_db.fetch(write, id=UUID(int=2), day=day)]
    slots = await postgres_db.fetch(Query("slots", "Rows.", f"SELECT slot_at FROM {table}", ""))
    assert [day, day] == [row["slot_at"] for row in slots]
