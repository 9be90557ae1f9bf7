"""Schedules by a caller that is kept to some queues: one for another queue is neither taken over nor touched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue.planned import MINUTELY, made, planned
from tests.queue.steps import ANN, Steps
from windlass.errors import Forbidden
from windlass.queue import scheduledits, schedules
from windlass.queue.declared import declare
from windlass.queue.schedule import Reach

MINE = Reach(frozenset({"mine"}))


@pytest.mark.parametrize("how", ["replace", "skip"])
async def test_a_name_for_another_queue_is_not_taken_over(steps: Steps, how: str) -> None:
    """Nothing is stored, of the others in the request neither; what is for a queue of the caller's is replaced."""
    foreign = await made(steps, "foreign", queue="theirs")
    await made(steps, "own", queue="mine")
    asked = [planned(steps, "own", queue="mine", trigger=MINUTELY), planned(steps, "new", queue="mine")]
    taken = planned(steps, "foreign", queue="mine")

    with pytest.raises(Forbidden, match="foreign"):
        await schedules.create(steps.db, [*asked, taken], reach=MINE, replace=how == "replace", skip=how == "skip")
    kept = [schedule.definition.name for schedule in (await schedules.find(steps.db, "default")).schedules]
    stored = await schedules.create(steps.db, asked, reach=MINE, replace=how == "replace", skip=how == "skip")

    assert foreign == await schedules.get(steps.db, "foreign", tenant="default")
    assert ["foreign", "own"] == kept
    assert (["own", "new"] if how == "replace" else ["new"]) == [one.name for one in stored]


@pytest.mark.parametrize("act", ["edit", "pause", "resume", "delete", "run"])
async def test_an_act_on_a_schedule_for_another_queue_is_refused(steps: Steps, act: str) -> None:
    """By what the row says when it is locked, not by an earlier look."""
    foreign = await made(steps, queue="theirs")
    whose: dict[str, Any] = {"tenant": "default", "actor": ANN, "reach": MINE}
    acts: dict[str, Any] = {
        "edit": lambda: scheduledits.edit(steps.db, foreign.id, planned(steps, queue="mine"), **whose),
        "pause": lambda: scheduledits.pause(steps.db, foreign.id, **whose),
        "resume": lambda: scheduledits.resume(steps.db, foreign.id, **whose),
        "delete": lambda: scheduledits.delete(steps.db, foreign.id, **whose),
        "run": lambda: scheduledits.run_now(steps.db, steps.lanes, steps.ids, foreign.id, **whose),
    }

    with pytest.raises(Forbidden, match="nightly"):
        await acts[act]()

    assert foreign == await schedules.get(steps.db, foreign.id, tenant="default")


@pytest.mark.parametrize("dry_run", [False, True], ids=["done", "looked at"])
@pytest.mark.parametrize("kept", [True, False], ids=["changed", "removed"])
async def test_a_declaration_leaves_what_is_for_another_queue(steps: Steps, kept: bool, dry_run: bool) -> None:
    """It is refused whole, also where it would only be told."""
    await declare(steps.db, "shop", [planned(steps, "a", queue="theirs")], tenant="default", actor=ANN)
    before = (await schedules.find(steps.db, "default")).schedules
    asked = [planned(steps, "b", queue="mine"), *([planned(steps, "a", queue="mine")] if kept else [])]

    with pytest.raises(Forbidden, match='"a"'):
        await declare(steps.db, "shop", asked, tenant="default", actor=ANN, dry_run=dry_run, reach=MINE)

    assert before == (await schedules.find(steps.db, "default")).schedules
