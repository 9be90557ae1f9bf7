"""Where a series goes on after an act: a slot whose jitter runs is not lost, and a broken series stops nobody."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.queue.fired import again, decisions, fire_all, write
from tests.queue.planned import HOURLY, NOON, made, planned
from tests.queue.steps import ANN, Steps
from windlass.errors import InvalidSchedule
from windlass.queue import scheduledits, schedules
from windlass.queue.cron import Cron
from windlass.queue.schedules import Schedule

HOUR_S = 3600
BERLIN = Cron("0 * * * *", "Europe/Berlin")


async def jittered(steps: Steps) -> Schedule:
    """Make an hourly schedule whose slots are due more than half an hour later."""
    for number in range(100):
        schedule = await made(steps, f"j{number}", jitter_s=HOUR_S - 1)
        slots = schedule.series()
        if slots is not None and slots.offset_s > HOUR_S / 2:
            return schedule
    raise AssertionError("chance")


async def without_zone(steps: Steps, *names: str) -> list[Schedule]:
    """Make schedules whose zone the machine does not know any more."""
    found = [await made(steps, name, trigger=BERLIN) for name in names]
    for schedule in found:
        await write(steps, "UPDATE schedule SET zone = 'Europe/Gone' WHERE id = :id", id=schedule.id)
    return [await again(steps, schedule) for schedule in found]


async def edited(steps: Steps, was: Schedule, **fields: Any) -> Schedule:
    """Edit some settings of a schedule."""
    becomes = msgspec.structs.replace(was.definition, **fields)
    return await scheduledits.edit(steps.db, was.id, becomes, tenant="default", actor=ANN)


@pytest.mark.parametrize(
    "fields",
    [{"exclude": ("2026-12-25",)}, {"jitter_s": 0}, {"jitter_s": 1800}, {"trigger": Cron("0 */1 * * *")}],
    ids=["exclude", "no jitter", "less jitter", "other words"],
)
async def test_a_slot_whose_jitter_runs_survives_an_edit(steps: Steps, fields: dict[str, Any]) -> None:
    """It has come before the edit and is due after it; if the new series has it, it fires, once."""
    was = await jittered(steps)
    steps.clock.advance(59 * 60 + 600)  # 13:10

    await edited(steps, was, **fields)
    await fire_all(steps, 50 * 60 - 1)  # 13:59:59
    await fire_all(steps)

    assert [("13:00:00", "fired")] == await decisions(steps, was)


async def test_one_that_is_replaced_each_hour_still_runs(steps: Steps) -> None:
    """Each deployment moves its end while the jitter of a slot runs."""
    was = await jittered(steps)
    steps.clock.advance(59 * 60 + 600)

    for hour in range(4):
        await fire_all(steps, HOUR_S if hour else 0)
        end_at = NOON + timedelta(days=300, hours=hour)
        await schedules.create(
            steps.db, [planned(steps, was.definition.name, jitter_s=HOUR_S - 1, end_at=end_at)], replace=True
        )

    assert ["13:00:00", "14:00:00", "15:00:00"] == [slot for slot, _ in await decisions(steps, was)]


async def test_a_slot_before_the_beginning_does_not_come_by_an_edit(steps: Steps) -> None:
    """A schedule that is made while the jitter of a slot would run does not have that slot."""
    steps.clock.advance(59 * 60 + 60)  # 13:01
    was = await jittered(steps)

    found = await edited(steps, was, exclude=("2026-12-25",))
    other = await edited(steps, found, trigger=Cron("0 */1 * * *"))

    assert (was.next_at, was.next_at) == (found.next_at, other.next_at)


async def test_one_whose_zone_is_gone_can_be_mended(steps: Steps) -> None:
    """It has no slots that could be lost: edit, pause and delete work, resuming says what is wrong."""
    mended, stopped, deleted = await without_zone(steps, "mended", "stopped", "deleted")

    await scheduledits.pause(steps.db, stopped.id, tenant="default", actor=ANN)
    with pytest.raises(InvalidSchedule, match="Europe/Gone"):
        await scheduledits.resume(steps.db, stopped.id, tenant="default", actor=ANN)
    going = await edited(steps, stopped, trigger=BERLIN, paused=False)
    mended = await edited(steps, mended, trigger=HOURLY)
    await scheduledits.delete(steps.db, deleted.id, tenant="default", actor=ANN)

    assert (NOON + timedelta(minutes=59), NOON + timedelta(minutes=59)) == (mended.next_at, going.next_at)


async def test_a_pause_that_cannot_end_keeps_no_other_from_ending(steps: Steps) -> None:
    """It is told, stays, and is tried again later; mended meanwhile it ends then."""
    bad, good = await made(steps, "bad", trigger=BERLIN), await made(steps, "good", trigger=BERLIN)
    for schedule, minutes in ((bad, 1), (good, 2)):
        until = NOON + timedelta(minutes=minutes)
        await scheduledits.pause(steps.db, schedule.id, tenant="default", actor=ANN, until=until)
    await write(steps, "UPDATE schedule SET zone = 'Europe/Gone' WHERE id = :id", id=bad.id)
    steps.clock.advance(HOUR_S)

    first = await scheduledits.resume_over(steps.db, limit=1)
    second = await scheduledits.resume_over(steps.db, limit=1)
    stays = (await again(steps, bad)).definition.paused
    await write(steps, "UPDATE schedule SET zone = 'Europe/Berlin' WHERE id = :id", id=bad.id)
    steps.clock.advance(scheduledits.PUT_OFF_MS / 1000)
    third = await scheduledits.resume_over(steps.db)

    assert (0, 1, True, 1) == (first, second, stays, third)
    assert [False, False] == [(await again(steps, one)).definition.paused for one in (bad, good)]
