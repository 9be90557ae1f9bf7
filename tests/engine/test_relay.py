"""The relay in a running engine: what an application commits is claimed, waited for and counted like any job."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from uuid import UUID

import pytest

from tests.databases import opened as database
from tests.engine.test_dispatch import PATIENCE_S, asking, ids_of
from tests.queue import said
from windlass.config import Settings
from windlass.db import Database
from windlass.engine import waits
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.engine.wake import CHANNEL
from windlass.errors import NotFound, Unavailable
from windlass.job import State


async def test_a_waiting_worker_gets_what_an_application_commits(timely: Engine) -> None:
    """S11: on both databases the relay finds the row and the claim is answered."""
    task = asyncio.create_task(timely.claim(asking(wait_s=PATIENCE_S)))

    job_id = await said.enqueue(timely.db, "task")

    assert [job_id] == ids_of(await asyncio.wait_for(task, PATIENCE_S))


async def test_nobody_is_notified_by_an_application(timely_postgres_url: str) -> None:
    """A NOTIFY would let the commits of the whole cluster wait for each other: the functions send none."""
    async with database(timely_postgres_url) as db, db.listen(CHANNEL) as heard:
        async with db.transaction() as transaction:
            await said.enqueue(transaction, "task")
        await db.notify(CHANNEL, "the next word")

        assert "the next word" == await asyncio.wait_for(anext(heard), PATIENCE_S)


async def test_who_waits_for_a_job_hears_of_its_finish(timely: Engine) -> None:
    """R13: a finish wakes those who wait for the result, and is counted as a success."""
    job_id = await said.enqueue(timely.db, "task")
    [handed] = (await asyncio.wait_for(timely.claim(asking(wait_s=PATIENCE_S)), PATIENCE_S)).jobs
    task = asyncio.create_task(timely.waits.wait_ended(job_id, tenant="default", wait_s=PATIENCE_S))

    await said.finish(timely.db, job_id, handed.job.fence, result='{"ok":true}')
    ended = await asyncio.wait_for(task, PATIENCE_S)

    assert (State.SUCCEEDED, '{"ok":true}') == (ended.state, ended.result)
    assert 1.0 == timely.meters.registry.get_sample_value("windlass_jobs_completed_total", {"queue": "default"})
    assert 1.0 == timely.meters.registry.get_sample_value("windlass_jobs_submitted_total", {"queue": "default"})


async def test_two_servers_relay_each_row_once(timely_postgres_url: str) -> None:
    """The duty is one server's at a time; its rows are claimed through either."""
    async with AsyncExitStack() as stack:
        engines = []
        for number in range(2):
            db = await stack.enter_async_context(database(timely_postgres_url))
            made = Engine(db, Settings(), name=f"scheduler_test_{number}", outside=Outside())
            engines.append(await stack.enter_async_context(made.running()))
        written = {await said.enqueue(engines[0].db, "task") for _ in range(20)}

        got: list[UUID] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(got) < len(written):
                for engine in engines:
                    got += ids_of(await engine.claim(asking(wait_s=0.2)))

    assert sorted(written) == sorted(got)


async def test_nothing_is_known_of_a_job_before_the_commit(timely_postgres_url: str) -> None:
    """The id is given out at once; the job is there when the transaction has committed."""
    async with database(timely_postgres_url) as db, database(timely_postgres_url) as application:
        engine = Engine(db, Settings(), name="scheduler_test_1", outside=Outside())
        async with engine.running():
            async with application.transaction() as transaction:
                job_id = await said.enqueue(transaction, "task")
                with pytest.raises(NotFound):
                    await engine.waits.wait_ended(job_id, tenant="default", wait_s=0)

            assert [job_id] == ids_of(await engine.claim(asking(wait_s=PATIENCE_S)))


async def test_a_job_can_be_asked_for_at_once_after_the_commit(timely: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """S11: the id that the application has is good from its commit on, also for those who do not wait for its end."""
    monkeypatch.setattr(waits, "RELAYED_S", PATIENCE_S)
    job_id = await said.enqueue(timely.db, "task")

    job = await asyncio.wait_for(timely.waits.wait_ended(job_id, tenant="default", wait_s=0.0), PATIENCE_S)

    assert (job_id, State.QUEUED) == (job.id, job.state)


@pytest.mark.parametrize("tenant", ["default", "acme"])
async def test_a_job_that_nobody_stores_is_tried_again_by_those_who_may_see_it(db: Database, tenant: str) -> None:
    """Without a relay it is not known how long it takes: whoever asks is to ask again; to others it never was."""
    job_id = said.IDS.new()
    await said.put(db, job_id, options=f'{{"tenant": "{tenant}"}}')
    seconds = itertools.count()
    outside = Outside(monotonic=lambda: float(next(seconds)))
    engine = Engine(db, Settings(), name="scheduler_test_1", outside=outside)

    with pytest.raises(Unavailable, match="outbox"):
        await engine.waits.wait_ended(job_id, tenant=tenant, wait_s=0.0)
    with pytest.raises(NotFound):
        await engine.waits.wait_ended(job_id, tenant="somebody", wait_s=0.0)


async def test_who_asks_for_a_job_that_was_set_aside_hears_why(timely: Engine) -> None:
    """It never comes: the refusal is told instead of a wait."""
    job_id = said.IDS.new()
    await said.put(timely.db, job_id, options='{"colour": 1}')

    with pytest.raises(NotFound, match="colour"):
        await asyncio.wait_for(timely.waits.wait_ended(job_id, tenant="default", wait_s=PATIENCE_S), PATIENCE_S)
