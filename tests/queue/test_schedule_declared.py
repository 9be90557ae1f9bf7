"""Declared schedules: those of an application become what its code says; nothing is written where nothing differs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.queue.fired import fire_all
from tests.queue.planned import MINUTELY, NOON, made, planned, runs_of
from tests.queue.races.pausing import Pausing
from tests.queue.steps import ANN, Steps
from windlass.errors import InvalidSchedule, NameTaken
from windlass.job import State
from windlass.queue import declared as declaring
from windlass.queue import scheduledits, schedules
from windlass.queue.cron import Cron
from windlass.queue.declared import BY_DECLARATION, Declared, Reconciled, declare
from windlass.queue.schedule import NewSchedule
from windlass.queue.schedules import Schedule


async def declared(steps: Steps, *asked: NewSchedule, owner: str = "shop", **options: Any) -> Reconciled:
    """Declare schedules of an application."""
    return await declare(steps.db, owner, asked, tenant="default", actor=ANN, **options)


async def listed(steps: Steps, owner: str = "shop") -> list[Schedule]:
    """Return what an application has declared."""
    return (await schedules.find(steps.db, "default", owner=owner)).schedules


async def test_declaring_adds_changes_and_removes(steps: Steps) -> None:
    """What is said is told by name; the id of what changed stays, and others' schedules are left alone."""
    foreign = await made(steps, "foreign")
    other = await declared(steps, planned(steps, "theirs"), owner="blog")
    first = await declared(steps, *(planned(steps, name) for name in ("a", "b", "c")))
    was = {schedule.definition.name: schedule.id for schedule in await listed(steps)}

    second = await declared(steps, planned(steps, "a"), planned(steps, "b", task="new"), planned(steps, "d"))

    assert Declared(added=["theirs"], changed=[], removed=[], unchanged=0) == other.declared
    assert Declared(added=["a", "b", "c"], changed=[], removed=[], unchanged=0) == first.declared
    assert Declared(added=["d"], changed=["b"], removed=["c"], unchanged=1) == second.declared
    found = {schedule.definition.name: schedule for schedule in await listed(steps)}
    assert ["a", "b", "d"] == sorted(found)
    assert (was["a"], 1, was["b"], 2, "new") == (
        found["a"].id,
        found["a"].version,
        found["b"].id,
        found["b"].version,
        found["b"].definition.task,
    )
    assert foreign == await schedules.get(steps.db, "foreign", tenant="default")
    assert ["theirs"] == [schedule.definition.name for schedule in await listed(steps, "blog")]


async def test_declaring_the_same_again_is_one_query(steps: Steps) -> None:
    """Nothing is written, and nothing else is read."""
    await declared(steps, planned(steps, "a", labels=("x", "y")), planned(steps, "b"))
    before = await listed(steps)
    db = Pausing(steps.db)

    asked = [planned(steps, "b"), planned(steps, "a", labels=("y", "x"))]
    answer = await declare(db, "shop", asked, tenant="default", actor=ANN)

    assert Declared(added=[], changed=[], removed=[], unchanged=2) == answer.declared
    assert ["of_owner"] == db.trail
    assert before == await listed(steps)


async def test_a_pause_by_people_stays_over_a_declaration(steps: Steps) -> None:
    """Whatever the code declares, also that of one which it had paused itself."""
    await declared(steps, planned(steps, "a"), planned(steps, "b", paused=True))
    stopped = [
        await scheduledits.pause(steps.db, found.id, tenant="default", actor=ANN) for found in await listed(steps)
    ]

    await declared(steps, planned(steps, "a", trigger=MINUTELY), planned(steps, "b"))

    [a, b] = await listed(steps)
    assert [one.pause for one in stopped] == [a.pause, b.pause]
    assert (None, MINUTELY, None) == (a.next_at, a.definition.trigger, b.next_at)


async def test_a_pause_by_the_declaration_follows_it(steps: Steps) -> None:
    """Declared as not enabled it is paused, also again after somebody has resumed it; then declared enabled it goes."""
    on, off = planned(steps, "a"), planned(steps, "a", paused=True)

    told = [(await declared(steps, asked)).declared for asked in (on, off, off)]
    [paused] = await listed(steps)
    await scheduledits.resume(steps.db, paused.id, tenant="default", actor=ANN)
    again = (await declared(steps, off)).declared
    resumed = (await declared(steps, on)).declared
    [going] = await listed(steps)

    assert [(["a"], [], 0), ([], ["a"], 0), ([], [], 1)] == [(one.added, one.changed, one.unchanged) for one in told]
    assert (["a"], ["a"]) == (again.changed, resumed.changed)
    assert paused.pause is not None
    assert (BY_DECLARATION, None) == (paused.pause.reason, paused.next_at)
    assert (None, NOON + timedelta(minutes=59)) == (going.pause, going.next_at)


async def test_one_that_is_declared_paused_from_the_start_is_resumed_by_its_declaration(steps: Steps) -> None:
    """The pause it was made with is the declaration's."""
    await declared(steps, planned(steps, "a", paused=True))

    await declared(steps, planned(steps, "a"))

    [found] = await listed(steps)
    assert (None, False) == (found.pause, found.definition.paused)


@pytest.mark.parametrize(
    ("owner", "whose"), [(None, "nobody declares: it was made by hand"), ("blog", "blog declares")], ids=["hand", "app"]
)
@pytest.mark.parametrize("dry_run", [False, True], ids=["done", "looked at"])
async def test_a_name_of_another_is_not_taken_over(steps: Steps, owner: str | None, whose: str, dry_run: bool) -> None:
    """The error names the schedule and whose it is; nothing of the declaration is stored."""
    was = await made(steps, "b", owner=owner)

    with pytest.raises(NameTaken, match=f'shop cannot declare schedule "b": there is one of this name that {whose}'):
        await declared(steps, *(planned(steps, name) for name in ("a", "b", "c")), dry_run=dry_run)

    assert [] == await listed(steps)
    assert was == await schedules.get(steps.db, "b", tenant="default")


async def test_names_of_other_tenants_are_free(steps: Steps) -> None:
    """An application of one tenant meets those of others nowhere, also under the same name."""
    theirs = await made(steps, "a", tenant="other", owner="shop")

    answer = await declared(steps, planned(steps, "a", tenant="other"))
    await declared(steps)

    assert ["a"] == answer.declared.added
    assert theirs == await schedules.get(steps.db, "a", tenant="other")


async def test_what_is_declared_no_more_goes_with_its_jobs(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that have not begun are cancelled, however many; what became of slots stays."""
    monkeypatch.setattr(scheduledits, "LOOKED_AT_ONCE", 2)
    await declared(steps, planned(steps, "a"))
    [was] = await listed(steps)
    ids = [
        (await scheduledits.run_now(steps.db, steps.lanes, steps.ids, was.id, tenant="default", actor=ANN)).id
        for _ in range(5)
    ]

    answer = await declared(steps)

    assert (["a"], sorted(ids)) == (answer.declared.removed, sorted(answer.cancelled))
    assert {State.CANCELLED} == {await steps.state_of(job_id) for job_id in ids}
    assert 5 == len(await runs_of(steps, was.id))


async def test_a_dry_run_changes_nothing(steps: Steps) -> None:
    """It tells what would be."""
    await declared(steps, planned(steps, "a"), planned(steps, "b"))
    before = await listed(steps)

    answer = await declared(steps, planned(steps, "a", task="new"), planned(steps, "c"), dry_run=True)

    assert Declared(added=["c"], changed=["a"], removed=["b"], unchanged=0) == answer.declared
    assert before == await listed(steps)


async def test_a_bad_declaration_is_refused_whole(steps: Steps) -> None:
    """With the index of the one that is wrong."""
    with pytest.raises(InvalidSchedule) as refused:
        await declared(steps, planned(steps, "a"), planned(steps, "b", trigger=Cron("61 * * * *")))

    assert 1 == refused.value.index
    assert [] == await listed(steps)


async def test_a_changed_interval_counts_from_its_declaration(steps: Steps) -> None:
    """A redeclared trigger is an edit: slots of the old times do not fire any more."""
    await declared(steps, planned(steps, "a", trigger=MINUTELY))
    [was] = await listed(steps)
    steps.clock.advance(90)

    await declared(steps, planned(steps, "a", trigger=Cron("0 13 * * *")))

    [found] = await listed(steps)
    assert NOON.replace(hour=13, minute=0) == found.next_at
    assert [6] == [row["decision"] for row in await runs_of(steps, was.id)]
    assert was.created_at == found.created_at


async def test_a_declared_one_that_was_edited_is_set_right(steps: Steps) -> None:
    """What people change by hand lasts until the application says otherwise."""
    await declared(steps, planned(steps, "a"))
    [was] = await listed(steps)
    by_hand = msgspec.structs.replace(was.definition, task="by hand")
    await scheduledits.edit(steps.db, was.id, by_hand, tenant="default", actor=ANN)

    answer = await declared(steps, planned(steps, "a"))

    [found] = await listed(steps)
    assert (["a"], "mail", 3) == (answer.declared.changed, found.definition.task, found.version)


async def test_what_moves_between_the_look_and_the_lock_is_computed_again(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T6: changes are computed before the lock; a slot that fires meanwhile stays decided, and nothing is refused."""
    await declared(steps, planned(steps, "a", trigger=MINUTELY))
    steps.clock.advance(61)
    compute = declaring._compute

    async def rival(*arguments: Any, **named: Any) -> Any:
        computed = await compute(*arguments, **named)
        await fire_all(steps)
        return computed

    monkeypatch.setattr(declaring, "_compute", rival)

    answer = await declared(steps, planned(steps, "a", trigger=MINUTELY, task="new"))

    found = await schedules.get(steps.db, "a", tenant="default")
    assert (["a"], "new", 2) == (answer.declared.changed, found.definition.task, found.version)
    assert found.last_at is not None
    assert found.next_at is not None
    assert found.next_at > found.last_at
