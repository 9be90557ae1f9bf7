"""What people do to a schedule: edit, pause, resume, delete, run it now; and what becomes of slots meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.queue.planned import HOURLY, MINUTELY, NOON, made, runs_of
from tests.queue.steps import ANN, Steps
from windlass.db import Query
from windlass.errors import Conflict, InvalidInput, InvalidSchedule, NameTaken, NotFound
from windlass.job import State
from windlass.queue import scheduledits, schedules
from windlass.queue.backfills import find as find_backfills
from windlass.queue.backfills import start as start_backfill
from windlass.queue.control import Actor, resume_due
from windlass.queue.cron import At, Cron, Every
from windlass.queue.firing import fire
from windlass.queue.schedule import SHARDS, Decision, NewSchedule, Policy
from windlass.queue.schedules import Schedule

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


async def edited(steps: Steps, was: Schedule, **fields: Any) -> Schedule:
    """Edit some settings of a schedule."""
    becomes = msgspec.structs.replace(was.definition, **fields)
    return await scheduledits.edit(steps.db, was.id, becomes, tenant="default", actor=ANN)


async def paused(steps: Steps, schedule: Schedule, until: datetime | None = None) -> Schedule:
    """Pause a schedule."""
    return await scheduledits.pause(steps.db, schedule.id, tenant="default", actor=ANN, until=until)


async def resumed(steps: Steps, schedule: Schedule) -> Schedule:
    """Resume a schedule."""
    return await scheduledits.resume(steps.db, schedule.id, tenant="default", actor=ANN)


async def fired(steps: Steps) -> None:
    """Fire what is due."""
    await fire(steps.db, steps.lanes, steps.ids, shards=range(SHARDS), limit=100, term=1)


async def jobs_of(steps: Steps, schedule_id: UUID) -> list[UUID]:
    """Return the live jobs of a schedule."""
    text = "SELECT id FROM job WHERE schedule_id = :id ORDER BY id"
    return [row["id"] for row in await steps.db.fetch(Query("jobs_of", "Jobs.", text, text), id=schedule_id)]


async def passed(steps: Steps, schedule: Schedule) -> list[tuple[Any, ...]]:
    """Return what was written down of slots: decision, last, number, first."""
    return [
        (Decision(row["decision"]), row["slot_at"], row["slot_count"], row["first_at"])
        for row in await runs_of(steps, schedule.id)
    ]


async def test_an_edit_keeps_the_id_and_raises_the_version(steps: Steps) -> None:
    """What is not edited stays; who looks sees when it was changed."""
    was = await made(steps)
    steps.clock.advance(5)

    found = await edited(steps, was, task="other", payload='"x"', labels=("b", "a"))

    assert (was.id, 2, was.created_at, NOON + 5 * SECOND) == (
        found.id,
        found.version,
        found.created_at,
        found.changed_at,
    )
    assert ("other", '"x"', ("a", "b")) == (found.definition.task, found.definition.payload, found.definition.labels)
    assert found == await schedules.get(steps.db, was.id, tenant="default")


async def test_an_edit_that_changes_nothing_writes_nothing(steps: Steps) -> None:
    """The version stays."""
    was = await made(steps, labels=("a", "b"))

    assert was == await edited(steps, was, labels=("b", "a", "b"))


async def test_an_edit_of_other_settings_loses_no_slot(steps: Steps) -> None:
    """A slot that is due this second fires after the edit, with the new settings."""
    was = await made(steps, trigger=MINUTELY)
    steps.clock.advance(60)

    found = await edited(steps, was, task="other")
    await fired(steps)

    assert (was.next_at, was.last_at) == (found.next_at, found.last_at)
    assert [(Decision.FIRED, NOON + MINUTE, 1, None)] == await passed(steps, was)
    [job_id] = await jobs_of(steps, was.id)
    assert "other" == (await steps.get(job_id)).task


@pytest.mark.parametrize(
    ("fields", "next_at"),
    [
        ({"trigger": Cron("30 * * * *")}, NOON + 29 * MINUTE),
        ({"trigger": Every(600)}, NOON + 100 * SECOND + 10 * MINUTE),
        ({"start_at": NOON + HOUR, "trigger": MINUTELY}, NOON + HOUR),
        ({"exclude": ("2026-01-01",), "trigger": HOURLY}, datetime.fromisoformat("2026-01-02T00:00:00Z")),
        ({"trigger": At(NOON + HOUR)}, NOON + HOUR),
        ({"trigger": At(NOON + 90 * SECOND)}, NOON + 90 * SECOND),
        ({"trigger": None}, None),
    ],
    ids=["cron", "every", "start", "exclude", "at", "at past", "by hand"],
)
async def test_new_times_count_from_the_edit(steps: Steps, fields: dict[str, Any], next_at: datetime | None) -> None:
    """A slot of the old times that was due and had not fired does not fire, and is written down as missed."""
    was = await made(steps, trigger=MINUTELY)
    steps.clock.advance(100)

    found = await edited(steps, was, **fields)

    assert next_at == found.next_at
    assert [(Decision.MISSED, NOON + MINUTE, 1, NOON + MINUTE)] == await passed(steps, was)
    assert NOON + MINUTE == found.last_at


async def test_an_interval_that_stays_keeps_its_beat(steps: Steps) -> None:
    """With another jitter or end it counts from the same base as before."""
    was = await made(steps, trigger=Every(60))
    steps.clock.advance(30)

    found = await edited(steps, was, end_at=NOON + 2 * HOUR)

    assert (was.base_at, NOON + MINUTE) == (found.base_at, found.next_at)


async def test_one_time_that_was_decided_does_not_come_again(steps: Steps) -> None:
    """The last slot decided only rises: an edit cannot make the same slot run twice."""
    was = await made(steps, trigger=At(NOON + MINUTE))
    steps.clock.advance(61)
    await fired(steps)

    found = await edited(steps, was, trigger=At(NOON + MINUTE), start_at=NOON)

    assert (None, NOON + MINUTE) == (found.next_at, found.last_at)


async def test_an_edit_of_another_version_is_refused(steps: Steps) -> None:
    """Who edits what somebody else has changed meanwhile is told, and nothing is written."""
    was = await made(steps)
    now = await edited(steps, was, task="theirs")
    mine = msgspec.structs.replace(was.definition, task="mine")

    with pytest.raises(Conflict, match="is of version 2 now, not 1"):
        await scheduledits.edit(steps.db, was.id, mine, tenant="default", actor=ANN, version=1)

    assert now == await schedules.get(steps.db, was.id, tenant="default")


async def test_an_edit_to_a_taken_name_is_refused(steps: Steps) -> None:
    """Names stay unique; a name that is free can be taken."""
    await made(steps, "taken")
    was = await made(steps, "mine")

    with pytest.raises(NameTaken):
        await edited(steps, was, name="taken")
    found = await edited(steps, was, name="free")

    assert ("free", 2) == (found.definition.name, found.version)


async def test_a_bad_edit_is_refused(steps: Steps) -> None:
    """By the rules of a new schedule."""
    was = await made(steps)

    with pytest.raises(InvalidSchedule):
        await edited(steps, was, trigger=Cron("0 25 * * *"))

    assert was == await schedules.get(steps.db, was.id, tenant="default")


ACTS: dict[str, Callable[[Steps, Schedule], Awaitable[object]]] = {
    "edit": lambda steps, was: scheduledits.edit(steps.db, was.id, was.definition, tenant="default", actor=ANN),
    "pause": lambda steps, was: paused(steps, was),
    "resume": lambda steps, was: resumed(steps, was),
    "delete": lambda steps, was: scheduledits.delete(steps.db, was.id, tenant="default", actor=ANN),
    "run_now": lambda steps, was: scheduledits.run_now(
        steps.db, steps.lanes, steps.ids, was.id, tenant="default", actor=ANN
    ),
}


@pytest.mark.parametrize("act", ACTS)
async def test_rel_i18_a_foreign_schedule_cannot_be_touched(steps: Steps, act: str) -> None:
    """To another tenant it is not there."""
    was = await made(steps, tenant="other", paused=act == "resume")

    with pytest.raises(NotFound):
        await ACTS[act](steps, was)

    assert was == await schedules.get(steps.db, was.id, tenant="other")
    assert [] == await jobs_of(steps, was.id)


async def test_a_paused_schedule_makes_no_jobs(steps: Steps) -> None:
    """Not even of a slot that was due when it was paused; that one is written down."""
    was = await made(steps, trigger=MINUTELY)
    steps.clock.advance(130)

    found = await paused(steps, was)
    steps.clock.advance(600)
    await fired(steps)

    assert (None, True, 2) == (found.next_at, found.definition.paused, found.version)
    assert found.pause is not None
    assert (ANN.name, ANN.reason, NOON + 130 * SECOND) == (
        found.pause.actor,
        found.pause.reason,
        found.pause.paused_at,
    )
    assert [(Decision.PAUSED, NOON + 2 * MINUTE, 2, NOON + MINUTE)] == await passed(steps, was)
    assert [] == await jobs_of(steps, was.id)


async def test_pausing_again_renews_reason_and_end(steps: Steps) -> None:
    """Since when it is paused stays; the version does too."""
    was = await paused(steps, await made(steps))
    steps.clock.advance(10)

    found = await scheduledits.pause(
        steps.db, was.id, tenant="default", actor=Actor("bob", "longer"), until=NOON + HOUR
    )

    assert was.pause is not None
    expected = msgspec.structs.replace(was.pause, actor="bob", reason="longer", resume_at=NOON + HOUR)
    assert msgspec.structs.replace(was, pause=expected) == found


async def test_resuming_goes_on_after_now(steps: Steps) -> None:
    """Slots that passed in the pause are one row and make no job; the next one fires."""
    was = await paused(steps, await made(steps, trigger=MINUTELY))
    steps.clock.advance(190)

    found = await resumed(steps, was)
    steps.clock.advance(50)
    await fired(steps)

    assert (NOON + 4 * MINUTE, False, None, 3) == (
        found.next_at,
        found.definition.paused,
        found.pause,
        found.version,
    )
    assert [
        (Decision.PAUSED, NOON + 3 * MINUTE, 3, NOON + MINUTE),
        (Decision.FIRED, NOON + 4 * MINUTE, 1, None),
    ] == await passed(steps, was)


async def test_a_short_pause_passes_nothing_over(steps: Steps) -> None:
    """Where no slot became due there is no row, and the next one is the same."""
    was = await made(steps, trigger=MINUTELY)
    await paused(steps, was)
    steps.clock.advance(20)

    found = await resumed(steps, was)

    assert was.next_at == found.next_at
    assert [] == await passed(steps, was)


async def test_resuming_what_is_not_paused_changes_nothing(steps: Steps) -> None:
    """It is answered as it is."""
    was = await made(steps)

    assert was == await resumed(steps, was)


async def test_a_slot_of_the_pause_that_is_due_after_it_runs(steps: Steps) -> None:
    """A slot belongs to the time when it is due, its jitter included."""
    was = await made(steps, trigger=MINUTELY, jitter_s=40)
    series = was.series()
    assert series is not None
    await paused(steps, was)
    steps.clock.advance(60 + series.offset_s / 2)

    found = await resumed(steps, was)

    assert was.next_at == found.next_at == NOON + MINUTE + timedelta(seconds=series.offset_s)


async def test_a_pause_of_400_000_slots_is_resumed_at_once(steps: Steps) -> None:
    """However many slots passed; they are counted up to a bound."""
    was = await paused(steps, await made(steps, trigger=Cron("* * * * * *")))
    steps.clock.advance(days=5)

    await resumed(steps, was)

    [(decision, last, count, first)] = await passed(steps, was)
    assert (Decision.PAUSED, NOON + timedelta(days=5), 1000, NOON + SECOND) == (decision, last, count, first)


async def test_an_edit_in_a_pause_tells_what_passed_until_then(steps: Steps) -> None:
    """By the times that counted then; what passes later goes by the new ones."""
    was = await paused(steps, await made(steps, trigger=MINUTELY))
    steps.clock.advance(130)
    edit = await edited(steps, was, trigger=Every(300))
    steps.clock.advance(650)

    found = await resumed(steps, was)

    begun = NOON + 130 * SECOND
    assert (None, was.pause) == (edit.next_at, edit.pause)
    assert [
        (Decision.PAUSED, NOON + 2 * MINUTE, 2, NOON + MINUTE),
        (Decision.PAUSED, begun + 10 * MINUTE, 2, begun + 5 * MINUTE),
    ] == await passed(steps, was)
    assert begun + 15 * MINUTE == found.next_at


async def test_an_edit_can_pause_and_resume(steps: Steps) -> None:
    """The flag of the definition is the same as the acts."""
    was = await made(steps, trigger=MINUTELY)

    stopped = await edited(steps, was, paused=True)
    steps.clock.advance(70)
    going = await edited(steps, stopped, paused=False, task="other")

    assert stopped.pause is not None
    assert (None, None) == (stopped.next_at, going.pause)
    assert NOON + 2 * MINUTE == going.next_at
    assert [(Decision.PAUSED, NOON + MINUTE, 1, NOON + MINUTE)] == await passed(steps, was)


async def test_a_pause_that_has_an_end_is_resumed_then(steps: Steps) -> None:
    """Not before, and not by who resumes queues and jobs."""
    was = await paused(steps, await made(steps, trigger=MINUTELY), NOON + 2 * HOUR)
    other = await paused(steps, await made(steps, "other", trigger=MINUTELY))

    early = await scheduledits.resume_over(steps.db)
    steps.clock.advance(hours=2)
    others = await resume_due(steps.db)
    due = await scheduledits.resume_over(steps.db)

    assert (0, 0, 1) == (early, others, due)
    found = await schedules.get(steps.db, was.id, tenant="default")
    assert (NOON + 2 * HOUR + MINUTE, None) == (found.next_at, found.pause)
    assert other == await schedules.get(steps.db, other.id, tenant="default")


async def test_a_deleted_schedule_is_gone(steps: Steps) -> None:
    """With its pause, what it waits for and what is expected of it; its name is free."""
    policy = Policy(expect_within_s=60)
    was = await made(steps, policy=policy)
    await start_backfill(steps.db, steps.ids, was, since=NOON - HOUR, until=NOON - MINUTE, concurrency=1, actor=ANN)
    await paused(steps, was)

    await scheduledits.delete(steps.db, was.id, tenant="default", actor=ANN)

    with pytest.raises(NotFound):
        await schedules.get(steps.db, was.id, tenant="default")
    assert [] == await find_backfills(steps.db, was.id, tenant="default")
    assert was.id != (await made(steps)).id


async def test_deleting_cancels_what_has_not_begun(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queued, waiting and put off ones, however many; one that runs goes on to its end."""
    monkeypatch.setattr(scheduledits, "LOOKED_AT_ONCE", 2)
    was = await made(steps, trigger=MINUTELY, policy=Policy(overlap="queue_all"))
    worker = await steps.worker()
    lease = None
    for _ in range(4):
        steps.clock.advance(60)
        await fired(steps)
        lease = lease or await steps.claim_one(worker)
    for delay in (0, 5000):
        job = msgspec.structs.replace(was.definition.job(steps.ids.new()), delay_ms=delay)
        await steps.submit(job)
    assert lease is not None
    others = [job_id for job_id in await jobs_of(steps, was.id) if job_id != lease.id]
    foreign = await steps.submit_one()

    deleted = await scheduledits.delete(steps.db, was.id, tenant="default", actor=ANN)

    assert 5 == len(others)
    assert sorted(others) == sorted(deleted.cancelled)
    assert {State.CANCELLED} == {await steps.state_of(job_id) for job_id in others}
    assert (State.ASSIGNED, State.QUEUED) == (await steps.state_of(lease.id), await steps.state_of(foreign))
    await steps.complete(lease)
    assert State.SUCCEEDED is await steps.state_of(lease.id)


async def test_deleting_leaves_the_history(steps: Steps) -> None:
    """What became of its slots is there until retention removes it."""
    was = await made(steps, trigger=MINUTELY)
    steps.clock.advance(60)
    await fired(steps)

    await scheduledits.delete(steps.db, was.id, tenant="default", actor=ANN)

    assert [(Decision.FIRED, NOON + MINUTE, 1, None)] == await passed(steps, was)


async def test_purging_removes_the_history_too(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots, ended jobs and what is told of them; jobs that run and jobs of others stay."""
    monkeypatch.setattr(scheduledits, "PURGED_AT_ONCE", 2)
    was = await made(steps, trigger=MINUTELY, policy=Policy(overlap="allow"), max_attempts=1)
    worker = await steps.worker()
    ended = []
    for number in range(3):
        steps.clock.advance(60)
        await fired(steps)
        lease = await steps.claim_one(worker)
        await (steps.complete(lease) if number < 2 else steps.fail(lease))
        ended.append(lease.id)
    steps.clock.advance(60)
    await fired(steps)
    running = await steps.claim_one(worker)
    other = await steps.lease(worker)
    await steps.complete(other)

    deleted = await scheduledits.delete(steps.db, was.id, tenant="default", actor=ANN, purge=True)

    assert 3 == deleted.purged_count
    assert [] == await passed(steps, was)
    for job_id in ended:
        with pytest.raises(NotFound):
            await steps.get(job_id)
    dump = await steps.dump()
    assert not any(str(job_id) in row for job_id in ended for rows in dump.values() for row in rows)
    assert (State.ASSIGNED, State.SUCCEEDED) == (await steps.state_of(running.id), await steps.state_of(other.id))


async def test_a_job_by_hand_stands_beside_the_series(steps: Steps) -> None:
    """It is ready at once, has no slot, and moves neither cursor nor overlap."""
    was = await made(steps, queue="reports", payload='{"a": 1}', policy=Policy(start_within_s=30))

    stored = await scheduledits.run_now(steps.db, steps.lanes, steps.ids, was.id, tenant="default", actor=ANN)

    job = await steps.get(stored.id)
    assert (State.QUEUED, "reports", '{"a": 1}', was.id, None) == (
        job.state,
        job.queue,
        job.payload,
        job.schedule_id,
        job.slot_at,
    )
    assert NOON + 30 * SECOND == job.start_by
    assert was == await schedules.get(steps.db, was.id, tenant="default")
    [row] = await runs_of(steps, was.id)
    assert (Decision.MANUAL, stored.id, ANN.reason) == (row["decision"], row["job_id"], row["reason"])


async def test_a_job_by_hand_takes_no_slot(steps: Steps) -> None:
    """Several in one instant are told apart, and the slot of that very second still gets its job."""
    was = await made(steps, trigger=MINUTELY)
    steps.clock.advance(60)

    ids = [
        (await scheduledits.run_now(steps.db, steps.lanes, steps.ids, was.id, tenant="default", actor=ANN)).id
        for _ in range(3)
    ]
    await fired(steps)

    rows = await runs_of(steps, was.id)
    assert [Decision.FIRED, *[Decision.MANUAL] * 3] == [row["decision"] for row in rows]
    assert ids == [row["job_id"] for row in rows[1:]]
    assert NOON + MINUTE == rows[0]["slot_at"]


async def test_a_job_by_hand_can_have_another_payload(steps: Steps) -> None:
    """Also of a schedule that is paused; what is no JSON is refused and leaves nothing."""
    was = await paused(steps, await made(steps))

    stored = await scheduledits.run_now(
        steps.db, steps.lanes, steps.ids, was.id, tenant="default", actor=ANN, payload="[2]"
    )
    with pytest.raises(InvalidInput):
        await scheduledits.run_now(steps.db, steps.lanes, steps.ids, was.id, tenant="default", actor=ANN, payload="[2")

    assert "[2]" == (await steps.get(stored.id)).payload
    assert [stored.id] == await jobs_of(steps, was.id)


def test_differences_are_told_by_the_words_of_a_request() -> None:
    """As JSON; what is written otherwise and means the same is none."""
    was = NewSchedule(id=UUID(int=1), name="n", task="t", trigger=HOURLY, labels=("a", "b"), payload='{"x":1}')
    becomes = msgspec.structs.replace(
        was, trigger=Every(60), labels=("b", "a"), payload="[]", timeout_s=None, policy=Policy(overlap="allow")
    )

    assert [
        ("cron", '"0 * * * *"', None),
        ("every", None, "60"),
        ("payload", '{"x":1}', "[]"),
        ("timeout_seconds", "3600", None),
        ("overlap", '"skip"', '"allow"'),
    ] == schedules.differences(was, becomes)
    assert [] == schedules.differences(was, planned_like(was))


def planned_like(schedule: NewSchedule) -> NewSchedule:
    """Return the same, said in other words."""
    return msgspec.structs.replace(schedule, labels=("b", "a", "b"))
