"""Definitions that leave no slot are refused wherever they would be stored, and the field is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.queue.fired import again, fire_all
from tests.queue.planned import MINUTELY, NOON, made, planned
from tests.queue.steps import ANN, Steps
from windlass.errors import InvalidInput, InvalidSchedule
from windlass.queue import scheduledits, schedules
from windlass.queue.cron import At, Cron, Every
from windlass.queue.declared import declare
from windlass.queue.schedule import Policy

DAY = timedelta(days=1)
WEEK = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
NEVER: dict[str, tuple[str, dict[str, Any]]] = {
    "every weekday": ("cron", {"exclude": WEEK}),
    "its only day": ("cron", {"trigger": Cron("0 0 25 12 *"), "exclude": ("--12-25",)}),
    "between": ("cron", {"trigger": Cron("0 0 1 6 *"), "start_at": NOON, "end_at": NOON + DAY}),
    "interval": ("every", {"trigger": Every(60), "exclude": WEEK}),
    "past": ("end", {"end_at": NOON - DAY}),
    "past, paused": ("end", {"end_at": NOON - DAY, "paused": True}),
    "at before start": ("at", {"trigger": At(NOON), "start_at": NOON + DAY}),
    "at excluded": ("at", {"trigger": At(datetime(2027, 2, 5, tzinfo=UTC)), "exclude": ("2027-02-05",)}),
}


@pytest.mark.one_kind
@pytest.mark.parametrize("how", ["create", "replace", "skip", "edit", "load", "declare", "dry run", "declare again"])
@pytest.mark.parametrize("never", NEVER)
async def test_what_never_fires_is_not_stored(steps: Steps, never: str, how: str) -> None:
    """Whoever stores it is told the field; what was there stays."""
    field, fields = NEVER[never]
    await declare(steps.db, "shop", [planned(steps, "own")], tenant="default", actor=ANN)
    was = await made(steps, "there")
    asked = planned(steps, "own" if how == "declare again" else "new" if how != "replace" else "there", **fields)
    acts: dict[str, Any] = {
        "create": lambda: schedules.create(steps.db, [asked]),
        "replace": lambda: schedules.create(steps.db, [asked], replace=True),
        "skip": lambda: schedules.create(steps.db, [asked], skip=True),
        "edit": lambda: scheduledits.edit(steps.db, was.id, asked, tenant="default", actor=ANN),
        "load": lambda: schedules.load(steps.db, [asked]),
        "declare": lambda: declare(steps.db, "shop", [asked], tenant="default", actor=ANN),
        "dry run": lambda: declare(steps.db, "shop", [asked], tenant="default", actor=ANN, dry_run=True),
        "declare again": lambda: declare(steps.db, "shop", [asked], tenant="default", actor=ANN),
    }

    with pytest.raises(InvalidSchedule) as refused:
        await acts[how]()

    assert field == refused.value.field
    found = (await schedules.find(steps.db, "default")).schedules
    assert (["own", "there"], was) == ([schedule.definition.name for schedule in found], found[1])


async def test_one_that_has_ended_can_be_said_again(steps: Steps) -> None:
    """Its times are what they were: an application that declares it still starts, and other settings can be changed."""
    asked = planned(steps, "own", trigger=MINUTELY, end_at=NOON + DAY)
    await declare(steps.db, "shop", [asked], tenant="default", actor=ANN)
    steps.clock.advance(days=3)

    same = await declare(steps.db, "shop", [asked], tenant="default", actor=ANN)
    other = msgspec.structs.replace(asked, task="other")
    changed = await declare(steps.db, "shop", [other], tenant="default", actor=ANN)
    [replaced] = await schedules.create(steps.db, [other], replace=True)

    assert (1, ["own"], True) == (same.declared.unchanged, changed.declared.changed, replaced.replaced)


async def test_one_time_cannot_be_moved_before_what_was_decided(steps: Steps) -> None:
    """The last slot only rises, so such a time would never come; a later one does, even if it is past."""
    was = await made(steps, trigger=At(NOON + timedelta(minutes=2)), policy=Policy(overlap="allow"))
    await fire_all(steps, 600)
    earlier, later = (
        msgspec.structs.replace(was.definition, trigger=At(NOON + timedelta(minutes=minutes))) for minutes in (1, 3)
    )

    with pytest.raises(InvalidSchedule, match="is not later than"):
        await scheduledits.edit(steps.db, was.id, earlier, tenant="default", actor=ANN)
    await scheduledits.edit(steps.db, was.id, later, tenant="default", actor=ANN)

    assert 1 == await fire_all(steps)
    assert NOON + timedelta(minutes=3) == (await again(steps, was)).last_at


async def test_a_load_refuses_a_name_that_means_two(steps: Steps) -> None:
    """The same twice is one; with other settings the second is named."""
    asked = [planned(steps, "a"), planned(steps, "a"), planned(steps, "b")]

    stored = await schedules.load(steps.db, asked)
    with pytest.raises(InvalidInput, match=r"schedules\[1\].name: 'c' stands twice"):
        await schedules.load(steps.db, [planned(steps, "c"), planned(steps, "c", task="other")])

    assert 2 == stored
