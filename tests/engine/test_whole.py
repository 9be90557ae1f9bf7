"""The duties about the whole: how often the health of the queues is told, beside the roll-up of minutes."""

from __future__ import annotations

import logging

import pytest

from tests.engine.loops_world import World
from windlass.config import Settings
from windlass.config.settings import Duties
from windlass.engine.whole import whole_duties


@pytest.mark.parametrize(("health_s", "told", "rolled"), [(5.0, 41, 4), (45.0, 5, 4), (300.0, 1, 4)])
async def test_the_health_is_told_as_often_as_asked_for(
    world: World, caplog: pytest.LogCaptureFixture, health_s: float, told: int, rolled: int
) -> None:
    """`duties.health_seconds` below the minute of the roll-up counts too; minutes are rolled up once a minute."""
    caplog.set_level(logging.INFO, "windlass")
    settings = Settings(duties=Duties(health_seconds=health_s))
    rollup = next(duty for duty in whole_duties(settings, lambda: world.now_s) if duty.name == "rollup")
    server = world.server(rollup)

    await world.pass_s(200)

    assert told == sum(record.getMessage().startswith("queue.health") for record in caplog.records)
    # Telling the health reads once until when minutes are rolled up.
    assert rolled == server.line.asked.count("rolled") - told
