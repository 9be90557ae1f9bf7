"""The lock order of a completion in a small cluster whose tables were analysed: several sessions, some leases each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from tests.clock import TestClock
from tests.databases import connected
from tests.queue.races.conftest import staged
from tests.queue.races.pausing import Pausing
from tests.queue.races.stage import Stage, no_jitter
from windlass.queue.report import Complete, report

SESSIONS, LEASES = 10, 1000


@pytest.fixture
async def small(fresh_postgres_url: str, clock: TestClock) -> AsyncIterator[Stage]:
    """A stage on a database of its own, so that its statistics are those of this test."""
    async with staged(fresh_postgres_url, clock) as made:
        yield made


async def test_rel_x22_completions_of_several_sessions(small: Stage, fresh_postgres_url: str) -> None:
    """A batch of many sessions' reports that waits for its lowest job has locked none of the others."""
    stage = small
    reports: list[Complete] = []
    await stage.scene(LEASES)
    held = sorted([(await stage.worker(f"worker-{n}"), f"worker-{n}") for n in range(SESSIONS)])
    # The session that comes later in the index has the earlier jobs; eight have nothing.
    for (session, worker), count in reversed(list(zip(held, (LEASES // 10, LEASES - LEASES // 10), strict=False))):
        for lease in await stage.claim(stage.db, "queue-1", session, count) if count else []:
            reports.append(Complete(job_id=lease.id, fence=lease.fence, worker=worker, session=session))
    ids: list[UUID] = sorted(item.job_id for item in reports)
    async with connected(fresh_postgres_url) as keeper, connected(fresh_postgres_url) as looker:
        await looker.execute("VACUUM ANALYZE")
        await keeper.execute("BEGIN")
        await keeper.execute("SELECT FROM windlass.queue WHERE id = $1 FOR UPDATE", ids[0])
        server = Pausing(stage.servers[1])
        task = asyncio.create_task(report(server, reports[::2], chance=no_jitter))
        assert await stage.until_parked(task, server, server)

        free = await looker.fetch("SELECT id FROM windlass.queue WHERE place = 1 FOR UPDATE SKIP LOCKED")
        await keeper.execute("ROLLBACK")

        await task
    assert set(ids[1:]) == {row["id"] for row in free}
