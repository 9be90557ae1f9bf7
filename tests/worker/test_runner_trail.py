"""What attempts say while they run reaches the server: lines of their log, progress, checkpoints."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.worker.running import Gate, Plain, Work, entered, quick, until, working
from windlass.client.context import Context
from windlass.db import Database
from windlass.job import State
from windlass.queue import checkpoints, logs


async def lines(work: Work, job: UUID) -> list[str]:
    """Return the log of a job as it is kept."""
    page = await logs.read(work.engine.db, job)
    return [written.line.text for written in page.lines]


async def test_lines_come_with_the_report(db: Database) -> None:
    """What a body logs is kept before its end is: it is all there when the job has ended."""

    def talks(payload: Any, context: Context) -> None:
        logging.getLogger("shop").warning("about to %s", "begin")
        context.log.info("done")

    async with working(db, {"talks": Plain(talks)}) as work:
        job = await work.submit("talks")
        await work.ended(job)

        assert "about to begin" in await lines(work, job)


async def test_a_running_body_is_heard(db: Database) -> None:
    """Lines and progress of a body that goes on are told every second, not only at its end; its start with them."""
    gate = Gate()

    def talks(payload: Any, context: Context) -> str:
        logging.getLogger("shop").warning("half way")
        context.progress(0.5)
        return gate(payload, context)

    async with working(db, {"talks": Plain(talks)}) as work:
        job = await work.submit("talks")
        await entered(gate)

        async def is_heard() -> bool:
            kept = await checkpoints.find(work.engine.db, [job])
            return "half way" in await lines(work, job) and job in kept and kept[job].progress == "0.5"

        await until(is_heard)
        assert State.RUNNING is await work.state(job)
        assert not gate.opened.is_set()


async def test_a_checkpoint_that_is_not_kept_is_told(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """One above the server's limit costs neither its job nor a word: server and worker say that it is not kept."""

    def notes(payload: Any, context: Context) -> int:
        context.checkpoint = "x" * 100
        return 1

    usual = quick()
    small = msgspec.structs.replace(usual, jobs=msgspec.structs.replace(usual.jobs, max_result_bytes=50))
    async with working(db, {"notes": Plain(notes)}, settings=small) as work:
        job = await work.ended(await work.submit("notes"))

    told = [record for record in caplog.records if record.getMessage().startswith("trail.refused")]
    assert (State.SUCCEEDED, 2) == (job.state, len(told))


async def test_a_checkpoint_survives_a_drain(db: Database) -> None:
    """A job given back goes on from its checkpoint, on another worker."""
    gate = Gate()

    def steps(payload: Any, context: Context) -> Any:
        if context.checkpoint is not None:
            return context.checkpoint
        context.checkpoint = {"page": 7}
        return gate(payload, context)

    async with working(db, {"steps": Plain(steps)}) as work:
        job = await work.submit("steps")
        await entered(gate)
        work.worker.drain("Spot termination", within_s=0)
        await work.left()
        assert State.QUEUED is await work.state(job)

    async with working(db, {"steps": Plain(steps)}) as work:
        assert {"page": 7} == await work.result(job)


async def test_nothing_is_sent_when_nothing_is_said(db: Database) -> None:
    """A body that says nothing causes no request of its own while it runs."""
    gate = Gate()
    async with working(db, {"gate": Plain(gate)}) as work:
        await work.submit("gate")
        await entered(gate)
        before = work.worker._second_at

        await until(lambda: work.worker._second_at > before + 2)

        assert [] == work.link.reports
