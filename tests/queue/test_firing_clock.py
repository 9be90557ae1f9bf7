"""Clocks that jump, and outages: nothing fires twice, what was missed is made up for by policy, in portions."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.ahead import make_ahead
from tests.queue.fired import again, at, decisions, every_minute, fire, fire_all
from tests.queue.planned import made, runs_of
from tests.queue.steps import Steps
from windlass.queue import retention
from windlass.queue.cron import Cron
from windlass.queue.schedule import Decision, Policy


async def jump(steps: Steps, instant: datetime) -> None:
    """Move the clock far ahead, and make the days of history as every server does that starts then."""
    steps.clock.advance((instant - steps.clock.now()).total_seconds())
    await make_ahead(steps.db)


@pytest.mark.parametrize(
    ("catch_up", "words"),
    [("latest", ["missed 59", "fired 1", "fired 1"]), ("skip", ["missed 59", "fired 1", "fired 1"])],
)
async def test_rel_e3_a_clock_an_hour_ahead_is_an_outage(steps: Steps, catch_up: Any, words: list[str]) -> None:
    """E3: what lies in between is missed, and made up for by policy; the slots inside the grace fire."""
    schedule = await every_minute(steps, policy=Policy(catch_up=catch_up, overlap="allow"))

    await fire_all(steps, 3600 + 60)

    found = [f"{Decision(row['decision']).word} {row['slot_count']}" for row in await runs_of(steps, schedule.id)]
    assert words == found


async def test_rel_e3_all_makes_up_for_every_slot_of_the_hour(steps: Steps) -> None:
    """Each once, in their order."""
    schedule = await every_minute(steps, policy=Policy(catch_up="all", overlap="allow"))

    count = await fire_all(steps, 3600)

    assert 60 == count
    assert [at(n) for n in range(1, 61)] == [row["slot_at"] for row in await runs_of(steps, schedule.id)]


async def test_rel_e3_a_clock_an_hour_back_fires_nothing_twice(steps: Steps) -> None:
    """E3, K10: the next slot stays where it is until the clock has come there again."""
    schedule = await every_minute(steps, policy=Policy(overlap="allow"))
    await fire(steps, 60)
    before = await again(steps, schedule)

    steps.clock.advance(hours=-1)
    counts = [(await fire(steps, 60)).made for _ in range(60)]
    after = await again(steps, schedule)
    counts.append((await fire(steps, 60)).made)

    assert [*[0] * 60, 1] == counts
    assert (before.next_at, before.last_at) == (after.next_at, after.last_at)
    assert 2 == len(await runs_of(steps, schedule.id))


async def test_rel_i13_whatever_the_clock_does_each_slot_fires_once(steps: Steps) -> None:
    """Jumps of up to an hour both ways: the slots fired are all slots up to the latest instant, each once."""
    draw = random.Random(13)
    schedule = await every_minute(steps, policy=Policy(catch_up="all", overlap="allow"))
    latest = steps.clock.now()
    for _ in range(25):
        await fire_all(steps, draw.choice([60, 60, 90, 3600, -3600, 600, -300]))
        latest = max(latest, steps.clock.now())

    slots = [row["slot_at"] for row in await runs_of(steps, schedule.id)]

    assert [at(n + 1) for n in range((latest - at(0)) // timedelta(minutes=1))] == slots


async def test_rel_e8_thirty_days_behind_are_made_up_for_up_to_the_bound(steps: Steps) -> None:
    """So many jobs of the newest slots, in portions; what is older is one row."""
    schedule = await every_minute(steps, policy=Policy(catch_up="all", catch_up_max=250, overlap="allow"))
    await jump(steps, steps.clock.now() + timedelta(days=30))

    first = await fire(steps)
    left = await fire_all(steps)

    runs = await runs_of(steps, schedule.id)
    assert (Decision.MISSED, 43_200 - 252) == (runs[0]["decision"], runs[0]["slot_count"])
    assert "About" in runs[0]["reason"]
    fired = [row["slot_at"] for row in runs[1:]]
    assert (99, 252) == (first.made, first.made + left)
    assert [steps.clock.now() - timedelta(minutes=251 - n) for n in range(252)] == fired


async def test_rel_x18_a_repeated_hour_during_a_change_of_holder_fires_each_slot_once(steps: Steps) -> None:
    """X18: slots are instants, and instants are not repeated; whoever fires, and under whatever term."""
    await jump(steps, datetime(2026, 10, 24, 23, 59, tzinfo=UTC))
    policy = Policy(catch_up="all", overlap="allow")
    half = await made(steps, "half", trigger=Cron("*/30 * * * *", "Europe/Berlin"), policy=policy)
    fixed = await made(steps, "fixed", trigger=Cron("30 2 * * *", "Europe/Berlin"), policy=policy)

    for term in range(1, 20):
        await fire_all(steps, 600, term=term)

    assert [f"{h:02}:{m}:00" for h in range(3) for m in ("00", "30")] == [t for t, _ in await decisions(steps, half)][
        :6
    ]
    assert [("00:30:00", "fired")] == await decisions(steps, fixed)
    terms = [row["term"] for row in await runs_of(steps, half.id)]
    assert sorted(set(terms)) == terms


async def test_old_slots_go_with_the_history(steps: Steps) -> None:
    """What became of slots is kept as long as finished jobs are; the series goes on."""
    schedule = await every_minute(steps)
    await fire(steps, 60)
    await steps.complete(await steps.claim_one(await steps.worker()))
    await jump(steps, steps.clock.now() + timedelta(days=31))
    await fire_all(steps)

    await retention.sweep(steps.db, days=30)

    assert [steps.clock.now()] == [row["slot_at"] for row in await runs_of(steps, schedule.id)][-1:]
    assert steps.clock.now() - timedelta(days=30) < (await runs_of(steps, schedule.id))[0]["slot_at"]
