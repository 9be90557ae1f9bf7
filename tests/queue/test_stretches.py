"""Stretches: what stands for several slots passed over tells the truth while a backfill makes up for some of them."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.queue.decided import skipped
from tests.queue.planned import made, runs_of
from tests.queue.steps import Steps
from tests.queue.test_backfills import ELEVEN, HOUR, begun, finished, step
from windlass.errors import Contention
from windlass.queue import backfills, stretches
from windlass.queue.schedule import Decision
from windlass.queue.schedules import Schedule

FIRST = ELEVEN - 5 * HOUR
"""Of six slots that were missed."""


async def missed(steps: Steps) -> Schedule:
    """Store a schedule that missed the six slots up to eleven o'clock."""
    schedule = await made(steps)
    await skipped(steps, schedule, ELEVEN, Decision.MISSED, slot_count=6, first_at=FIRST, reason="An outage.")
    return schedule


async def left(steps: Steps, schedule: Schedule) -> list[tuple[int, int, int]]:
    """Return for each row that is still missed: the hours of its first and its last slot, and how many it has."""
    rows = [row for row in await runs_of(steps, schedule.id) if row["decision"] == Decision.MISSED]
    assert ["An outage."] * len(rows) == [row["reason"] for row in rows]
    return [(hour(row["first_at"]), hour(row["slot_at"]), row["slot_count"]) for row in rows]


def hour(instant: datetime) -> int:
    """Return which of the six slots this is, from 0 on."""
    return round((instant - FIRST) / HOUR)


CASES = {
    "the last two": ([(4, 6)], [(0, 3, 4)]),
    "the first two": ([(0, 2)], [(2, 5, 4)]),
    "some in the middle": ([(2, 4)], [(0, 5, 4)]),
    "all": ([(0, 6)], []),
    "more than there were": ([(-2, 7)], []),
    "all but one": ([(0, 5)], [(5, 5, 1)]),
    "the last, then those before it": ([(5, 6), (3, 5)], [(0, 2, 3)]),
    "those before it, then the last": ([(3, 5), (5, 6)], [(0, 2, 3)]),
    "the second, then the first": ([(1, 2), (0, 1)], [(2, 5, 4)]),
    "both ends": ([(0, 1), (5, 6)], [(1, 4, 4)]),
    "one by one": ([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)], []),
}


@pytest.mark.parametrize("concurrency", [1, 10])
@pytest.mark.parametrize(("ranges", "expected"), CASES.values(), ids=CASES)
async def test_a_stretch_stands_for_what_is_left_of_it(
    steps: Steps, ranges: list[tuple[int, int]], expected: list[tuple[int, int, int]], concurrency: int
) -> None:
    """T13, T14: a slot that runs afterwards has its own row, and is counted there only."""
    schedule = await missed(steps)

    ran = []
    for since, until in ranges:
        end = min(FIRST + until * HOUR, steps.clock.now())
        backfill = await begun(steps, schedule, since=FIRST + since * HOUR, until=end, concurrency=concurrency)
        ran += await finished(steps, backfill)

    rows = await runs_of(steps, schedule.id)
    own = [row for row in rows if row["decision"] == Decision.BACKFILLED]
    assert expected == await left(steps, schedule)
    assert sorted(ran) == sorted(row["job_id"] for row in own)
    assert {(1, None)} == {(row["slot_count"], row["first_at"]) for row in own}
    inside = [row for row in own if FIRST <= row["slot_at"] <= ELEVEN]
    assert 6 == len(inside) + sum(count for _, _, count in expected)


async def test_a_stretch_that_a_rival_has_changed_is_left_to_the_next_step(steps: Steps) -> None:
    """T13: what was read of it counts only while it is so; nothing of the step is kept."""
    schedule = await missed(steps)
    late = await begun(steps, schedule, since=FIRST + 4 * HOUR, until=FIRST + 6 * HOUR, concurrency=10)
    early = await begun(steps, schedule, since=FIRST, until=FIRST + 2 * HOUR, concurrency=10)
    slots = schedule.series()
    assert slots is not None
    stretch = await stretches.touched(steps.db, slots, schedule.id, taken=[ELEVEN], since=ELEVEN)
    await step(steps, early)

    with pytest.raises(Contention, match="A rival makes up for the same slots"):
        await stretches.narrow(steps.db, schedule.id, stretch)

    await step(steps, late)
    assert [(2, 3, 2)] == await left(steps, schedule)
    assert 2 == (await backfills.get(steps.db, late.id, tenant="default")).made_count
