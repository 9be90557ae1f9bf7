"""The views for people who ask with SQL: other names for the same things, and what happened, numbered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.queue.model_rows import plain
from tests.queue.steps import Steps
from windlass.db import Query
from windlass.job import State
from windlass.queue import history
from windlass.server.shown import shown_job

SAME = (
    "id name status priority definition_id claimed_by lease_owner attempts attempt_number retry_count max_attempts "
    "max_retries timeout_seconds max_execution_time created_at scheduled_at next_run_at executed_at queued_at "
    "claimed_at started_at finished_at completed_at execution_time_ms heartbeat_at lease_expires_at error_message"
).split()
"""The fields of an answer that are columns of the view, too."""
OTHERS = "run_id AS run, tenant_id AS tenant, worker_id AS worker, job_id, output"
ALIASED = f"SELECT {', '.join(SAME)}, {OTHERS} FROM job_aliases WHERE id = :id"
NUMBERED = "SELECT seq, kind FROM job_events WHERE job_id = :id ORDER BY seq"
ALIASES = Query("aliases", "A job by other names.", ALIASED, ALIASED)
EVENTS = Query("events", "What happened.", NUMBERED, NUMBERED)
CALL: Any = SimpleNamespace(hidden=lambda text: text, word=str, redactor=SimpleNamespace(value=lambda value: value))
"""A call by somebody who may see everything, in the words of the program."""


async def one_of_each(steps: Steps) -> dict[State, UUID]:
    """Return a job in each place, some with a past."""
    worker = await steps.worker()
    done = await steps.running(worker)
    steps.clock.advance(1.5)
    await steps.complete(done, result='{"n": 1}')
    dead = await steps.running(worker)
    await steps.fail(dead, retryable=False)
    again = await steps.lease(worker)
    await steps.fail(again)
    running = await steps.running(worker)
    return {
        State.SUCCEEDED: done.id,
        State.DEAD: dead.id,
        State.SCHEDULED: again.id,
        State.RUNNING: running.id,
        State.QUEUED: await steps.submit_one(),
    }


async def test_the_aliases_say_what_the_api_says(steps: Steps) -> None:
    """M3, M5, M8, M9, M11 to M15: a column of the view is the field of that name in an answer, in each place."""
    for state, job_id in (await one_of_each(steps)).items():
        [row] = await steps.db.fetch(ALIASES, id=job_id)
        shown = shown_job(CALL, await steps.get(job_id))

        assert {name: plain(getattr(shown, name)) for name in SAME} == {name: plain(row[name]) for name in SAME}
        assert (shown.run_id, shown.tenant_id, shown.worker_id) == (row["run"], row["tenant"], row["worker"])
        assert (state, job_id) == (row["status"], row["job_id"])
        assert (None if shown.result is None else bytes(shown.result).decode()) == row["output"]


async def test_events_are_numbered_in_their_order(steps: Steps) -> None:
    """M26: `seq` counts what happened to a job from one, in the order of its timeline; nothing is stored for it."""
    for job_id in (await one_of_each(steps)).values():
        rows = await steps.db.fetch(EVENTS, id=job_id)
        told = (await history.timeline(steps.db, job_id, tenant="default")).items

        assert list(range(1, len(rows) + 1)) == [row["seq"] for row in rows]
        assert [event.kind for event in told] == [row["kind"] for row in rows]
