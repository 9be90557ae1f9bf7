"""After the clock of a cluster went back, rescue goes on: it gives up the silent, and nobody else."""

from __future__ import annotations

from tests.queue.races.stage import LEASE_MS, Stage
from tests.queue.races.test_clock_shift import Shift, beat, own_server, own_url, rescued, shift, stage

__all__ = ["own_server", "own_url", "shift", "stage"]


async def test_rel_e3_a_worker_that_dies_after_an_hour_back(stage: Stage, shift: Shift) -> None:
    """A worker heard after the jump that then falls silent is given up within two leases, not in an hour."""
    scene = await stage.leased(started=True)
    await rescued(stage)
    await shift("-1 hour")
    assert await beat(stage, scene.session)

    dead = []
    for _ in range(2 * LEASE_MS // 5000 + 1):
        dead += (await rescued(stage)).sessions
        stage.clock.advance(5)

    assert [scene.session] == dead


async def test_rel_e3_an_hour_back_and_forth(stage: Stage, shift: Shift) -> None:
    """When a clock that went back for a moment is set right, those heard meanwhile are not taken for silent."""
    scene = await stage.leased(started=True)
    for _ in range(10):
        assert await beat(stage, scene.session)
        await rescued(stage)
        stage.clock.advance(5)
    await shift("-1 hour")
    assert await beat(stage, scene.session)
    assert [] == (await rescued(stage)).sessions

    await shift("")

    stage.clock.advance(1)
    assert [] == (await rescued(stage)).sessions
    assert await beat(stage, scene.session)
