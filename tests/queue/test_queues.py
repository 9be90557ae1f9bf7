"""Queues: lists with pause, settings and depths; settings as a whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.queue.steps import ANN, Steps, job_in
from windlass.errors import InvalidInput, NotFound
from windlass.queue.control import pause_queue, pause_tenant
from windlass.queue.lanes import STRICT_PRIORITY_MS, LaneName
from windlass.queue.queues import QueueSettings, get_queue, list_queues, put_queue


async def test_a_queue_is_made_by_its_first_job(steps: Steps) -> None:
    """P35: unknown until something names it; then it has the settings it began with."""
    with pytest.raises(NotFound):
        await get_queue(steps.db, "default", "mails")
    await steps.submit_one(queue="mails")

    seen = await get_queue(steps.db, "default", "mails")

    assert ("mails", QueueSettings(), None, False) == (seen.name, seen.settings, seen.pause, seen.paused)
    assert STRICT_PRIORITY_MS == seen.settings.credit_ms


async def test_what_waits_and_runs_in_a_queue(steps: Steps) -> None:
    """P41: pending is due and claimable; scheduled, held, running and dead jobs are told apart."""
    for where in ("queued", "released", "scheduled", "held", "assigned", "running", "dead"):
        await job_in(steps, where, queue="q", task=where)
    await job_in(steps, "queued", queue="other")
    steps.clock.advance(9)

    seen = await get_queue(steps.db, "default", "q")

    assert (2, 1, 2, 1, 1) == (seen.pending, seen.held, seen.in_progress, seen.scheduled, seen.dead)
    assert (0, 0, True, 9.0) == (seen.blocked, seen.sleeping, seen.counts_are_exact, seen.oldest_queued_s)


async def test_a_paused_queue_says_why(steps: Steps) -> None:
    """P35: reason, who, since and until; what waits in it is held and not pending."""
    until = steps.clock.now() + timedelta(hours=1)
    await steps.submit_one(queue="q")
    await pause_queue(steps.db, steps.lanes, LaneName("default", "q"), actor=ANN, until=until)

    seen = await get_queue(steps.db, "default", "q")

    assert seen.pause is not None
    assert ("queue", "ann", "she said so") == (seen.pause.of, seen.pause.actor, seen.pause.reason)
    assert (steps.clock.now(), until) == (seen.pause.paused_at, seen.pause.resume_at)
    assert (0, 1, None) == (seen.pending, seen.held, seen.oldest_queued_s)


async def test_a_paused_tenant_pauses_its_queues(steps: Steps) -> None:
    """P35: the pause shown is the queue's own, else that of its tenant, never another's."""
    for queue in ("q", "r"):
        await steps.submit_one(queue=queue)
    await steps.submit_one(queue="q", tenant="acme")
    await pause_tenant(steps.db, "default", actor=ANN)
    await pause_queue(steps.db, steps.lanes, LaneName("default", "q"), actor=ANN)

    shown = [await get_queue(steps.db, tenant, name) for tenant, name in [("default", "q"), ("default", "r")]]
    other = await get_queue(steps.db, "acme", "q")

    assert ["queue", "tenant"] == [queue.pause.of for queue in shown if queue.pause]
    assert not other.paused


async def test_settings_are_put_as_a_whole(steps: Steps) -> None:
    """P35: PUT makes a queue or changes it; what is left out goes back to its default."""
    first = QueueSettings(order="fifo", max_running=3, rate_per_s=2.5, burst=4)
    second = QueueSettings(credit_ms=60_000, max_running=1)

    made = await put_queue(steps.db, "default", "q", settings=first)
    changed = await put_queue(steps.db, "default", "q", settings=second)

    assert (first, second) == (made.settings, changed.settings)
    assert second == (await get_queue(steps.db, "default", "q")).settings


@pytest.mark.parametrize(
    ("field", "value"), [("max_running", -1), ("rate_per_s", 0.0), ("burst", 0), ("credit_ms", -1)]
)
async def test_settings_that_nothing_can_be_computed_with_are_refused(steps: Steps, field: str, value: Any) -> None:
    """P35: 422 names the setting; nothing is changed."""
    with pytest.raises(InvalidInput, match=field):
        await put_queue(steps.db, "default", "q", settings=QueueSettings(**{field: value}))

    assert [] == (await list_queues(steps.db, "default")).queues


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_queues_are_paged_by_name(steps: Steps, limit: int) -> None:
    """P35: each queue once however many lanes it has, those of one tenant, None after the last."""
    for queue in ("c", "a", "d", "b"):
        for task in ("mail", "report"):
            await steps.submit_one(task, queue=queue)
    await steps.submit_one(queue="foreign", tenant="acme")

    pages = [await list_queues(steps.db, "default", limit=limit)]
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(await list_queues(steps.db, "default", limit=limit, cursor=cursor))

    assert [(name, 2) for name in "abcd"] == [(queue.name, queue.pending) for page in pages for queue in page.queues]
    assert -(-4 // limit) == len(pages)
