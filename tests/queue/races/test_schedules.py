"""Races about schedules: acts of people against each other and against firing, in every order of their statements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from tests.clock import no_pause
from tests.queue.races.orders import Race
from tests.queue.races.stage import Stage
from tests.sqltext import parse
from windlass.db import Database
from windlass.errors import Conflict, Contention, NameTaken, NotFound, WindlassError
from windlass.ids import Ids
from windlass.queue import backfills, declared, firing, scheduledits, schedules, tenants
from windlass.queue.backfills import Backfill
from windlass.queue.control import Actor
from windlass.queue.cron import At
from windlass.queue.declared import Reconciled
from windlass.queue.lanes import Lanes
from windlass.queue.schedule import Decision, NewSchedule
from windlass.queue.scheduledits import Deleted
from windlass.queue.schedules import Schedule, Stored
from windlass.queue.submit import Submitted

ME = Actor("me", "for a race")
LOOK = parse(
    """
-- name: decided
-- What was decided of the slots of a schedule.
-- both
SELECT slot_at, decision, job_id FROM schedule_runs WHERE schedule_id = :id ORDER BY slot_at
-- name: jobs
-- The live jobs of a schedule.
-- both
SELECT j.id FROM (SELECT id FROM queue UNION ALL SELECT id FROM timer) x JOIN job j ON j.id = x.id
 WHERE j.schedule_id = :id
""",
    origin="test_schedules.py",
)


class Firing:
    """Fires what is due, as a server that remembers no lanes."""

    def __init__(self, stage: Stage) -> None:
        self._ids = stage.ids

    async def __call__(self, db: Database, _: object) -> int:
        """Fire, and return how many jobs were made."""
        return (await firing.fire(db, Lanes(), self._ids, term=1)).made


def planned(stage: Stage, **fields: Any) -> NewSchedule:
    """Return a schedule to store: once, in a minute, under a name of its own unless another is given."""
    given: dict[str, Any] = {"id": stage.ids.new(), "task": "task", "trigger": in_minutes(stage, 1)} | fields
    return NewSchedule(**{"name": f"s-{given['id']}"} | given)


def in_minutes(stage: Stage, count: int) -> At:
    """Return the trigger of one time, whole seconds ahead."""
    return At(stage.clock.now().replace(microsecond=0) + timedelta(minutes=count))


async def made(stage: Stage, **fields: Any) -> Schedule:
    """Store a schedule."""
    schedule = planned(stage, **fields)
    await schedules.create(stage.db, [schedule])
    return await schedules.get(stage.db, schedule.id, tenant="default")


def due(stage: Stage) -> Callable[[], Awaitable[Schedule]]:
    """Return how a schedule with a slot that is due is made."""

    async def prepare() -> Schedule:
        schedule = await made(stage)
        stage.clock.advance(61)
        return schedule

    return prepare


async def fate(stage: Stage, schedule: Schedule) -> tuple[list[Decision], int]:
    """Fire what is left; return what was decided of the slots of a schedule, and how many live jobs it has."""
    await stage.sound()
    await Firing(stage)(stage.db, None)
    rows = await stage.db.fetch(LOOK["decided"], id=schedule.id)
    jobs = await stage.db.fetch(LOOK["jobs"], id=schedule.id)
    await stage.sound()
    return [Decision(row["decision"]) for row in rows], len(jobs)


async def found(stage: Stage, ref: UUID | str, tenant: str = "default") -> Schedule | None:
    """Return a schedule as it is now; None if there is none."""
    try:
        return await schedules.get(stage.db, ref, tenant=tenant)
    except NotFound:
        return None


async def edit(db: Database, was: Schedule, **fields: Any) -> Schedule:
    """Edit what was read before."""
    becomes = msgspec.structs.replace(was.definition, **fields)
    return await scheduledits.edit(db, was.id, becomes, tenant="default", actor=ME, version=was.version)


async def delete(db: Database, was: Schedule) -> Deleted:
    """Delete a schedule."""
    return await scheduledits.delete(db, was.id, tenant="default", actor=ME)


async def test_a_slot_fires_or_is_paused(stage: Stage) -> None:
    """A pause beside firing: the slot has a job, or is written down as paused; never both, never neither."""

    async def pause(db: Database, was: Schedule) -> Schedule:
        return await scheduledits.pause(db, was.id, tenant="default", actor=ME)

    async def judge(was: Schedule, _: object, paused: Schedule | WindlassError) -> None:
        assert isinstance(paused, Schedule)
        assert await fate(stage, was) in (([Decision.FIRED], 1), ([Decision.PAUSED], 0))

    assert 10 <= await Race(due(stage), Firing(stage), pause, judge).in_every_order(stage)


async def test_a_slot_fires_or_is_overtaken_by_an_edit(stage: Stage) -> None:
    """An edit of the times beside firing: the old slot has a job, or is written down as missed."""

    async def later(db: Database, was: Schedule) -> Schedule:
        return await edit(db, was, trigger=in_minutes(stage, 600))

    async def judge(was: Schedule, _: object, edited: Schedule | WindlassError) -> None:
        assert isinstance(edited, Schedule)
        assert await fate(stage, was) in (([Decision.FIRED], 1), ([Decision.MISSED], 0))
        await delete(stage.db, was)

    assert 10 <= await Race(due(stage), Firing(stage), later, judge).in_every_order(stage)


async def test_an_edit_of_other_settings_loses_no_slot(stage: Stage) -> None:
    """Firing beside it makes the job of the slot, with the old settings or with the new ones."""

    async def other(db: Database, was: Schedule) -> Schedule:
        return await edit(db, was, task="other")

    async def judge(was: Schedule, _: object, edited: Schedule | WindlassError) -> None:
        assert isinstance(edited, Schedule)
        assert ([Decision.FIRED], 1) == await fate(stage, was)

    assert 10 <= await Race(due(stage), Firing(stage), other, judge).in_every_order(stage)


async def test_nothing_is_left_of_a_deleted_schedule(stage: Stage) -> None:
    """Firing beside it makes no job, or one that is cancelled with it."""

    async def judge(was: Schedule, _: object, deleted: Deleted | WindlassError) -> None:
        assert isinstance(deleted, Deleted)
        decided, live = await fate(stage, was)
        assert (len(deleted.cancelled), 0) == (decided.count(Decision.FIRED), live)
        assert await found(stage, was.id) is None

    assert 10 <= await Race(due(stage), Firing(stage), delete, judge).in_every_order(stage)


async def test_a_job_by_hand_goes_with_its_schedule(stage: Stage) -> None:
    """Made beside the deletion it is cancelled with it, or there is nothing to run any more."""

    async def run(db: Database, was: Schedule) -> Submitted:
        return await scheduledits.run_now(db, stage.lanes, stage.ids, was.id, tenant="default", actor=ME)

    async def prepare() -> Schedule:
        schedule = await made(stage)
        await stage.lanes.resolve(stage.db, [schedule.definition.job(schedule.id).lane])
        return schedule

    async def judge(was: Schedule, ran: Submitted | WindlassError, deleted: Deleted | WindlassError) -> None:
        assert isinstance(deleted, Deleted)
        assert isinstance(ran, NotFound) or [ran.id] == deleted.cancelled  # type: ignore[union-attr]
        assert 0 == (await fate(stage, was))[1]

    assert 8 <= await Race(prepare, run, delete, judge).in_every_order(stage)


async def test_a_backfill_goes_with_its_schedule(stage: Stage) -> None:
    """Begun beside the deletion it is removed with it, or there is nothing to run any more."""

    async def begin(db: Database, was: Schedule) -> Backfill:
        now = stage.clock.now()
        since = now - timedelta(hours=1)
        return await backfills.start(db, stage.ids, was, since=since, until=now, concurrency=1, actor=ME)

    async def judge(was: Schedule, begun: Backfill | WindlassError, deleted: Deleted | WindlassError) -> None:
        assert isinstance(deleted, Deleted)
        assert isinstance(begun, Backfill | NotFound)
        assert [] == await backfills.find(stage.db, was.id, tenant="default")
        await stage.sound()

    assert 6 <= await Race(lambda: made(stage), begin, delete, judge).in_every_order(stage)


async def test_of_two_edits_of_one_version_one_is_refused(stage: Stage) -> None:
    """Nobody overwrites what he has not seen."""

    async def judge(was: Schedule, left: Schedule | WindlassError, right: Schedule | WindlassError) -> None:
        assert {Schedule, Conflict} == {type(left), type(right)}
        [won] = [one for one in (left, right) if isinstance(one, Schedule)]
        assert won == await found(stage, was.id)
        await stage.sound()

    def to(task: str) -> Callable[[Database, Schedule], Awaitable[Schedule]]:
        return lambda db, was: edit(db, was, task=task)

    assert 6 <= await Race(lambda: made(stage), to("one"), to("other"), judge).in_every_order(stage)


async def test_a_pause_is_ended_once(stage: Stage) -> None:
    """By hand and by its end at once: slots that passed are written down once."""

    async def prepare() -> Schedule:
        was = await made(stage)
        until = stage.clock.now() + timedelta(minutes=2)
        await scheduledits.pause(stage.db, was.id, tenant="default", actor=ME, until=until)
        stage.clock.advance(121)
        return was

    async def by_hand(db: Database, was: Schedule) -> Schedule:
        return await scheduledits.resume(db, was.id, tenant="default", actor=ME)

    async def by_time(db: Database, _: Schedule) -> int:
        return await scheduledits.resume_over(db)

    async def judge(was: Schedule, resumed: Schedule | WindlassError, ended: int | WindlassError) -> None:
        assert isinstance(resumed, Schedule)
        assert ended in (0, 1)
        assert ([Decision.PAUSED], 0) == await fate(stage, was)
        now = await found(stage, was.id)
        assert now is not None
        assert (3, None) == (now.version, now.pause)

    assert 6 <= await Race(prepare, by_hand, by_time, judge).in_every_order(stage)


async def test_a_pause_that_is_prolonged_goes_on(stage: Stage) -> None:
    """Prolonged beside its end, it is over before that or not at all."""

    async def prepare() -> Schedule:
        was = await made(stage)
        until = stage.clock.now() + timedelta(minutes=2)
        await scheduledits.pause(stage.db, was.id, tenant="default", actor=ME, until=until)
        stage.clock.advance(121)
        return was

    async def prolong(db: Database, was: Schedule) -> Schedule:
        return await scheduledits.pause(db, was.id, tenant="default", actor=ME)

    async def by_time(db: Database, _: Schedule) -> int:
        return await scheduledits.resume_over(db)

    async def judge(was: Schedule, prolonged: Schedule | WindlassError, _: int | WindlassError) -> None:
        assert isinstance(prolonged, Schedule)
        now = await found(stage, was.id)
        assert now is not None
        assert now.pause is not None
        assert now.pause.resume_at is None
        await stage.sound()

    assert 6 <= await Race(prepare, prolong, by_time, judge).in_every_order(stage)


async def test_a_name_is_given_once(stage: Stage) -> None:
    """Of two that create it at once one is told; of an edit to that name and a creation too."""

    async def create(db: Database, name: str) -> list[Stored]:
        return await schedules.create(db, [planned(stage, name=name)])

    async def rename(db: Database, name: str) -> Schedule:
        return await edit(db, others[name], name=name)

    async def prepare() -> str:
        name = f"name-{stage.ids.new()}"
        others[name] = await made(stage)
        return name

    async def judge(name: str, left: object, right: object) -> None:
        assert 1 == sum(isinstance(one, NameTaken) for one in (left, right))
        assert 1 == sum(isinstance(one, list | Schedule) for one in (left, right))
        assert await found(stage, name) is not None
        await stage.sound()

    others: dict[str, Schedule] = {}
    assert 4 <= await Race(prepare, create, create, judge).in_every_order(stage)
    assert 4 <= await Race(prepare, create, rename, judge).in_every_order(stage)


async def test_two_that_replace_one_name_make_one_schedule(stage: Stage) -> None:
    """Both are answered with the same id; one of them made it, the other gave it its definition."""

    async def prepare() -> str:
        return f"name-{stage.ids.new()}"

    def to(task: str) -> Callable[[Database, str], Awaitable[list[Stored]]]:
        return lambda db, name: schedules.create(db, [planned(stage, name=name, task=task)], replace=True)

    async def judge(name: str, left: list[Stored] | WindlassError, right: list[Stored] | WindlassError) -> None:
        assert isinstance(left, list)
        assert isinstance(right, list)
        assert left[0].id == right[0].id
        assert [False, True] == sorted(one[0].replaced for one in (left, right))
        now = await found(stage, name)
        assert now is not None
        assert 2 == now.version
        await stage.sound()

    assert 6 <= await Race(prepare, to("one"), to("other"), judge).in_every_order(stage)


def declaring(stage: Stage, *names: str, task: str = "task") -> Callable[[Database, str], Awaitable[Reconciled]]:
    """Return how a worker declares schedules of these names, under an owner."""

    async def declare(db: Database, owner: str) -> Reconciled:
        asked = [planned(stage, name=f"{owner}-{name}", task=task, trigger=None) for name in names]
        return await declared.declare(db, owner, asked, tenant="default", actor=ME)

    return declare


async def owned(stage: Stage, owner: str) -> list[tuple[str, str]]:
    """Return the names and tasks of what an owner has declared."""
    page = await schedules.find(stage.db, "default", owner=owner)
    return [(s.definition.name.removeprefix(f"{owner}-"), s.definition.task) for s in page.schedules]


async def test_workers_that_start_at_once_declare_once(stage: Stage) -> None:
    """T6: of two that say the same one adds it, the other finds it done; nobody fails."""

    async def prepare() -> str:
        return f"owner-{stage.ids.new()}"

    async def judge(owner: str, left: Reconciled | WindlassError, right: Reconciled | WindlassError) -> None:
        assert isinstance(left, Reconciled)
        assert isinstance(right, Reconciled)
        assert [(0, 2), (2, 0)] == sorted((len(one.declared.added), one.declared.unchanged) for one in (left, right))
        assert [("a", "task"), ("b", "task")] == await owned(stage, owner)
        await stage.sound()

    both = declaring(stage, "a", "b")
    assert 6 <= await Race(prepare, both, both, judge).in_every_order(stage)


async def test_two_releases_at_once_leave_what_one_of_them_says(stage: Stage) -> None:
    """Added, changed and removed together: the end is one declaration whole, never a mixture."""

    async def prepare() -> str:
        owner = f"owner-{stage.ids.new()}"
        await declaring(stage, "a", "b")(stage.db, owner)
        return owner

    async def judge(owner: str, left: Reconciled | WindlassError, right: Reconciled | WindlassError) -> None:
        assert isinstance(left, Reconciled)
        assert isinstance(right, Reconciled)
        new, old = [("a", "new"), ("c", "new")], [("b", "task"), ("d", "task")]
        assert await owned(stage, owner) in (new, old)
        await stage.sound()

    new, old = declaring(stage, "a", "c", task="new"), declaring(stage, "b", "d")
    assert 6 <= await Race(prepare, new, old, judge).in_every_order(stage)


async def test_a_schedule_keeps_its_tenant(stage: Stage) -> None:
    """Made beside the deletion of its tenant it keeps the tenant there, or makes it again."""

    async def prepare() -> str:
        name = f"tenant-{stage.ids.new()}"
        await tenants.create(stage.db, name, pause=no_pause)
        return name

    async def create(db: Database, tenant: str) -> list[Stored]:
        return await schedules.create(db, [planned(stage, name="s", tenant=tenant)])

    async def remove(db: Database, tenant: str) -> None:
        await tenants.delete(db, Lanes(), Ids(db.now), tenant, pause=no_pause)

    async def judge(tenant: str, left: list[Stored] | WindlassError, right: WindlassError | None) -> None:
        assert isinstance(left, list)
        assert right is None or isinstance(right, Conflict | Contention)
        assert await found(stage, "s", tenant) is not None
        assert tenant == (await tenants.get(stage.db, tenant)).name

    assert 6 <= await Race(prepare, create, remove, judge).in_every_order(stage)
