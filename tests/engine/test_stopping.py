"""The servers take a job from a worker that does not stop it, and not before the worker could have."""

from __future__ import annotations

import pytest

from tests.clock import TestClock
from tests.queue.steps import ANN, Steps
from tests.queue.test_deadlines import overdue
from windlass.config.settings import Jobs, Settings, Worker
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.queue.workers import Beat, Held

SETTINGS = Settings(
    worker=Worker(cancel_grace_seconds=5, timeout_grace_seconds=3, kill_seconds=30), jobs=Jobs(lease_seconds=60)
)
LADDER_S = 5 + 20 + 30 + 7
"""It hears of it by its next heartbeat, and needs its grace, SIGTERM, SIGKILL and a report."""


@pytest.fixture
def steps(db: Database, clock: TestClock) -> Steps:
    """The steps of the queue; a file made a moment ago has its clock's ceiling a second ahead."""
    clock.advance(minutes=1)
    return Steps(db, clock)


def made(steps: Steps) -> Engine:
    """Return an engine that is asked for acts alone."""
    return Engine(steps.db, SETTINGS, name="scheduler_test_1", outside=Outside())


async def revoked_after(steps: Steps, early_s: float) -> None:
    """See that the lease is left alone for so long, and taken then."""
    steps.clock.advance(early_s)
    early = await overdue(steps)
    steps.clock.advance(0.001)

    assert ([], 1) == (early, len(await overdue(steps)))


@pytest.mark.parametrize(("grace_ms", "early_s"), [(5000, LADDER_S), (None, 10)])
async def test_a_cancel_is_waited_for_until_the_ladder_of_its_worker_is_done(
    steps: Steps, grace_ms: int | None, early_s: float
) -> None:
    """X3: else the servers end the attempt first, and which step was needed is not recorded; force waits for nobody."""
    lease = await steps.running(await steps.worker())

    await made(steps).acts.cancel([lease.id], tenant="default", actor=ANN, grace_ms=grace_ms)

    await revoked_after(steps, early_s)


async def test_a_time_out_is_waited_for_until_its_own_ladder_is_done(steps: Steps) -> None:
    """W8: the worker enforces it, the servers only when it does not; a process of its own may take 30 s to be up."""
    worker = await steps.worker()
    lease = await steps.lease(worker, timeout_s=100)

    await made(steps)._beat([Beat(worker.session, [Held(lease.id, lease.fence, True)])])

    await revoked_after(steps, 100 + 3 + 30 + LADDER_S - 5)
