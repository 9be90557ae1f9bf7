"""`windlass check` on schedules: a healthy database keeps their invariants, and each broken one is found and named."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from tests.clock import TestClock
from tests.db.test_check import CASES as OTHER_CASES
from tests.db.test_check import World
from windlass.db import Database, Query
from windlass.ids import Ids
from windlass.queue import schedules
from windlass.queue.backfills import start
from windlass.queue.check import INVARIANTS, SQL
from windlass.queue.control import Actor
from windlass.queue.cron import Every
from windlass.queue.firing import fire
from windlass.queue.lanes import Lanes
from windlass.queue.schedule import NewSchedule, Policy

ME = Actor("me", "for a test")


@pytest.fixture
async def planned(db: Database, clock: TestClock) -> World:
    """A schedule with a job that is ready and one that waits behind it, and one that is paused."""
    clock.advance(minutes=1)
    ids = Ids(clock)
    policy = Policy(overlap="queue_all", expect_within_s=60)
    active = NewSchedule(id=ids.new(), name="active", task="t", trigger=Every(60), policy=policy)
    paused = NewSchedule(id=ids.new(), name="paused", task="t", trigger=Every(60), paused=True)
    await schedules.create(db, [active, paused])
    found = await schedules.get(db, active.id, tenant="default")
    now = clock.now()
    backfill = await start(db, ids, found, since=now - timedelta(hours=1), until=now, actor=ME)
    for _ in range(2):
        clock.advance(60)
        await fire(db, Lanes(), ids, term=1)
    first, waiting = await made(db)
    named = {"active": active.id, "paused": paused.id, "first": first, "waiting": waiting, "backfill": backfill.id}
    return World(db, named)


async def made(db: Database) -> list[UUID]:
    """Return the jobs that were made."""
    text = "SELECT id FROM job ORDER BY id"
    return [row["id"] for row in await db.fetch(Query("made", "Jobs.", text, text))]


async def test_healthy_schedules_keep_every_invariant(planned: World) -> None:
    """Active, waiting and paused ones."""
    assert set() == await planned.violations()


CASES = [
    ("schedules", "paused", "a schedule that stands nowhere", "DELETE FROM schedule_next WHERE id = {paused}"),
    (
        "schedules",
        "active",
        "of version 2, and stands as version 1",
        "UPDATE schedule SET version = 2 WHERE id = {active}",
    ),
    ("schedules", "active", "stands, of no schedule", "DELETE FROM schedule WHERE id = {active}"),
    ("schedules", "waiting", "waits for a run of no schedule", "DELETE FROM schedule WHERE id = {active}"),
    ("schedules", "active", "runs are expected of no schedule", "DELETE FROM schedule WHERE id = {active}"),
    ("schedules", "backfill", "a backfill of no schedule", "DELETE FROM schedule WHERE id = {active}"),
    (
        "schedules",
        "paused",
        "a pause of no schedule that is paused",
        "UPDATE schedule SET paused = 0 WHERE id = {paused}",
    ),
    ("schedules", "paused", "a paused schedule, and nobody said so", "DELETE FROM pause"),
    (
        "schedules",
        "paused",
        "paused and due",
        "UPDATE schedule_next SET next_at = (SELECT base_at FROM schedule WHERE id = {paused}) WHERE id = {paused}",
    ),
    (
        "schedules",
        "active",
        "due again at a slot that was decided",
        "UPDATE schedule_next SET next_at = last_at WHERE id = {active}",
    ),
    (
        "schedules",
        "active",
        "2 jobs wait, by the count",
        "UPDATE schedule_next SET waiting_count = 2 WHERE id = {active}",
    ),
    (
        "schedules",
        "waiting",
        "waits for the run before it, and is not blocked",
        "UPDATE queue SET place = 0, pending = 0 WHERE id = {waiting}",
    ),
]


@pytest.mark.parametrize(("invariant", "subject", "detail", "statement"), CASES, ids=[case[2] for case in CASES])
async def test_each_broken_one_is_found(
    planned: World, invariant: str, subject: str, detail: str, statement: str
) -> None:
    """It is named, with what it is about."""
    await planned.damage(statement)

    assert (invariant, subject, detail) in await planned.violations()


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE job SET slot_at = (SELECT min(slot_at) FROM schedule_runs)", "two live jobs of the slot"),
        ("DELETE FROM schedule_runs", "which is not written down as its own"),
    ],
    ids=["twice", "not written down"],
)
async def test_a_slot_that_is_not_right_is_found(planned: World, statement: str, says: str) -> None:
    """Two live jobs of one, or one that nobody has written down."""
    await planned.damage(statement)

    assert any("slots" == found[0] and says in found[2] for found in await planned.violations())


def test_every_invariant_is_proved_to_bite() -> None:
    """No query of the check is without a test that breaks it, and all of them are run."""
    elsewhere = {"partitions", "slots"}  # in test_check.py by the clock, and above
    broken = {case[0] for case in (*OTHER_CASES, *CASES)} | elsewhere
    assert {query.name for query in SQL} == {query.name for query in INVARIANTS} == broken
