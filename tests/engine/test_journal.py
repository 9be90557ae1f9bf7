"""O17: what duties did is told as their events promise."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from tests.clock import TestClock
from tests.engine.loops_world import Pace, Wake
from tests.engine.test_dispatch import asking, opened, submit, until
from tests.queue.fired import every_minute, fire
from tests.queue.steps import Steps
from windlass import log
from windlass.config import Settings
from windlass.config.redact import Redactor
from windlass.config.settings import Queue
from windlass.db import Database
from windlass.db.partitions import PARTITIONED
from windlass.engine import exchange, journal
from windlass.engine.duty import queue_duties
from windlass.engine.engine import Engine
from windlass.engine.looks import Looks
from windlass.engine.whole import whole_duties
from windlass.queue import rescue
from windlass.queue.report import Answer, Complete, Fail, Release, Report
from windlass.queue.schedule import Policy
from windlass.queue.workers import NewSession


@pytest.fixture
def steps(db: Database, clock: TestClock) -> Steps:
    """The steps of the queue, with what every call needs filled in."""
    return Steps(db, clock)


def told(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    """Return the fields of all lines of an event, as a program reads them."""
    lines = [record.msg for record in caplog.records if isinstance(record.msg, log.Line)]
    return [json.loads(json.dumps(line.shown(Redactor()))) for line in lines if line.name == name]


async def test_a_worker_that_registers_again_is_told_once(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """While its modules are imported a worker registers every few seconds, and once more with its tasks (W3)."""
    caplog.set_level(logging.INFO, logger="windlass")
    session = NewSession(id=uuid4(), worker="ann")

    for tasks in (None, None, "mail"):
        await engine.register(msgspec.structs.replace(session, tasks=tasks))

    assert ["ann"] == [line["worker"] for line in told(caplog, "worker.registered")]


async def test_a_lost_lease_names_worker_tenant_and_last_heartbeat(
    steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    """And that the job runs again, at once."""
    caplog.set_level(logging.INFO, logger="windlass")
    steps.clock.advance(5)
    worker = await steps.worker("ann", lease_s=30)
    lease = await steps.lease(worker)
    steps.clock.advance(2)
    await steps.beat(worker, lease, started=True)
    for _ in range(10):
        steps.clock.advance(5)
        await journal.moved((await rescue.rescue(steps.db, chance=lambda: 0.0)).moved)

    [lost], [retrying] = told(caplog, "job.lost"), told(caplog, "job.retrying")
    named = {"job": str(lease.id), "worker": "ann", "tenant": "default"}
    times = {"last_heartbeat_at": "2026-01-01T12:00:07Z", "claimed_at": "2026-01-01T12:00:05Z"}
    assert named | times | {"attempt": 1, "fence": 1, "lost": 1} == lost
    assert (2, 0.0) == (retrying["attempt"], retrying["delay_s"])


async def test_history_that_is_removed_is_counted(steps: Steps, caplog: pytest.LogCaptureFixture) -> None:
    """Y5: the rows that were deleted; of partitions that were dropped how many, and about how many rows."""
    caplog.set_level(logging.INFO, logger="windlass")
    worker = await steps.worker()
    for _ in range(3):
        await steps.complete(await steps.lease(worker))
    if steps.db.capabilities.partitions:
        for table in (*PARTITIONED, "job"):
            await steps.db.maintain(f"ANALYZE windlass.{table}")
    steps.clock.advance(days=40)
    looks = Looks(period_s=0.5, monotonic=lambda: steps.clock.now().timestamp())
    duties = queue_duties(Wake(), lambda: 0.0, looks=looks, periods=Pace(), days=30, dead_days=0)
    [retention] = [duty for duty in duties if duty.name == "retention"]

    await retention.run(steps.db, 5000)

    [line] = told(caplog, "history.cleaned")
    if steps.db.capabilities.partitions:
        assert line["partitions"] >= len(PARTITIONED)
        # Each has a row in job and one in done.
        assert 6 == line["partition_rows_estimate"]
    else:
        assert {"rows"} == set(line)
        assert line["rows"] >= 3


@pytest.mark.parametrize(("job_count", "severity"), [(2, None), (3, "warning"), (4, "warning"), (5, "critical")])
async def test_a_deep_queue_is_warned_of(
    steps: Steps, caplog: pytest.LogCaptureFixture, job_count: int, severity: str | None
) -> None:
    """V22: above `queue.depth_warning` with the hint to scale, above `queue.depth_critical` as critical."""
    caplog.set_level(logging.INFO, logger="windlass")
    await steps.submit(*(steps.job() for _ in range(job_count)))
    settings = Settings(queue=Queue(depth_warning=2, depth_critical=4))
    [rolling] = [duty for duty in whole_duties(settings, lambda: 0.0) if duty.name == "rollup"]

    for _ in range(2):
        await rolling.run(steps.db, 1000)

    [health] = told(caplog, "queue.health")
    assert job_count == health["pending"]
    deep = [(line["pending"], line["severity"]) for line in told(caplog, "queue.deep")]
    assert ([] if severity is None else [(job_count, severity)]) == deep
    assert all("Start more workers" in line["hint"] for line in told(caplog, "queue.deep"))


async def test_a_job_that_waits_for_the_run_before_it_is_told(steps: Steps, caplog: pytest.LogCaptureFixture) -> None:
    """Its schedule, and how many are before it."""
    caplog.set_level(logging.DEBUG, logger="windlass")
    schedule = await every_minute(steps, policy=Policy(overlap="queue_all"))
    for _ in range(3):
        journal.fired(await fire(steps, 60))

    waiting = told(caplog, "job.waiting")

    assert [1, 2] == [line["jobs_ahead"] for line in waiting]
    assert {(str(schedule.id), "default")} == {(line["schedule"], line["tenant"]) for line in waiting}


async def ends(engine: Engine, kind: type[Fail | Release], count: int) -> list[Report]:
    """Return ends of so many leases."""
    session = await opened(engine, "w")
    await submit(engine, count)
    handed = (await engine.claim(asking(session=session, count=count))).jobs
    assert count == len(handed)
    leases: list[dict[str, Any]] = [
        {"job_id": one.job.id, "fence": one.job.fence, "session": session, "worker": "w"} for one in handed
    ]
    return [kind(**lease, error="x" * 4000) for lease in leases]


@pytest.mark.parametrize("kind", [Fail, Release])
async def test_rel_t9_the_lines_of_many_reports_are_written_in_portions(
    engine: Engine, caplog: pytest.LogCaptureFixture, kind: type[Fail | Release]
) -> None:
    """Others have the event loop after every few jobs; each job is told of once, in the order of the reports."""
    caplog.set_level(logging.INFO, logger="windlass")
    reports = await ends(engine, kind, 300)
    caplog.clear()
    written: list[int] = []

    def look() -> None:
        written.append(len(told(caplog, "job.failed")))
        if not reporting.done():
            asyncio.get_running_loop().call_soon(look)

    reporting = asyncio.create_task(engine.report(reports))
    look()
    await reporting
    look()

    assert max(after - before for before, after in pairwise(written)) <= journal.TOLD_AT_ONCE
    failed, retrying = ([line["job"] for line in told(caplog, name)] for name in ("job.failed", "job.retrying"))
    assert [str(report.job_id) for report in reports] == failed == retrying


async def test_the_lines_under_way_are_written_before_a_stop(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A server that stops waits for the line of reports, and that for its lines of the log."""
    caplog.set_level(logging.INFO, logger="windlass")
    reports = await ends(engine, Fail, 300)

    reporting: asyncio.Task[Sequence[Answer]] = asyncio.create_task(engine.report(reports))
    await until(lambda: bool(told(caplog, "job.failed")))
    await engine._reports.idle()

    assert len(reports) == len(told(caplog, "job.failed"))
    assert len(reports) == len(await reporting)


async def test_the_lines_of_a_session_that_is_closed_are_written_in_portions(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """What it held is told of job by job, and others have the event loop in between."""
    caplog.set_level(logging.INFO, logger="windlass")
    held = await ends(engine, Release, 100)
    closing = asyncio.create_task(
        exchange.close(engine, "w", session=held[0].session or uuid4(), tenant="default", lost=False, reason="x")
    )

    await until(lambda: bool(told(caplog, "job.released")))

    assert len(told(caplog, "job.released")) <= journal.TOLD_AT_ONCE
    await closing
    assert len(held) == len(told(caplog, "job.released"))


async def test_what_was_reported_is_told_also_where_there_is_no_time_to_log_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends are committed when they are logged: a flush that is cut off there must still wake who waits for them."""
    worker = await opened(engine, "w")
    [job_id] = await submit(engine)
    [handed] = (await engine.claim(asking(session=worker))).jobs
    ended: list[UUID] = []
    engine.wake.on_ended.append(ended.append)

    async def cut_off(*_: object) -> None:
        raise asyncio.CancelledError  # as asyncio.timeout does

    monkeypatch.setattr(journal, "reported", cut_off)

    report = Complete(job_id=job_id, fence=handed.job.fence, session=worker, worker="w")
    with pytest.raises(asyncio.CancelledError):
        await engine._report([[report]])

    assert [job_id] == ended
