"""Schedules in the shape of jobs, and lists that hold both."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.queue.planned import HOURLY, NOON, made
from tests.queue.steps import Steps
from windlass.errors import NotFound
from windlass.job import State
from windlass.queue import recurring
from windlass.queue.history import Count, Filter


async def mixed(steps: Steps) -> list[UUID]:
    """Store jobs and schedules in turns; return their ids, newest first."""
    ids = []
    for number in range(4):
        ids.append((await made(steps, name=f"s{number}", trigger=HOURLY)).id)
        ids.append(await steps.submit_one())
    return ids[::-1]


async def test_a_schedule_looks_like_a_job_that_is_scheduled(steps: Steps) -> None:
    """S8: its next slot is when it runs, and its own id is its schedule's."""
    schedule = await made(steps, trigger=HOURLY, queue="mail", labels=("b", "a"), tags=("x",))

    job = await recurring.get(steps.db, schedule.id, tenant="default")

    assert (State.SCHEDULED, schedule.id, schedule.id, schedule.next_at) == (
        job.state,
        job.id,
        job.schedule_id,
        job.next_run_at,
    )
    assert ("mail", "a,b", ["x"], 0, False) == (job.queue, job.labels, job.tags, job.attempt, job.paused)
    with pytest.raises(NotFound):
        await recurring.get(steps.db, schedule.id, tenant="other")


@pytest.mark.parametrize("limit", [1, 3, 8])
async def test_pages_hold_jobs_and_schedules_newest_first(steps: Steps, limit: int) -> None:
    """Each once, in one order, whatever the size of the pages; the last one has no cursor."""
    ids = await mixed(steps)
    where = Filter(tenant="default")

    found: list[UUID] = []
    page = await recurring.find(steps.db, where, limit=limit)
    while True:
        found += [job.id for job in page.jobs]
        if page.next_cursor is None:
            break
        page = await recurring.find(steps.db, where, limit=limit, cursor=page.next_cursor)

    assert ids == found
    assert Count(8, True) == await recurring.count(steps.db, where)


async def test_a_page_ends_where_a_bounded_look_ends(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among very many schedules a page is short and says where to go on; nothing is left out."""
    monkeypatch.setattr(recurring, "EXAMINED", 2)
    ids = await mixed(steps)
    where = Filter(tenant="default")

    sizes, found = [], []
    cursor: UUID | None = None
    while True:
        page = await recurring.find(steps.db, where, limit=8, cursor=cursor)
        sizes.append(len(page.jobs))
        found += [job.id for job in page.jobs]
        if (cursor := page.next_cursor) is None:
            break

    assert ids == found
    assert max(sizes) < 8
    assert not (await recurring.count(steps.db, where)).exact


async def test_schedules_of_others_do_not_shorten_a_list(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """N2: the bound is on a tenant's own rows: however many newer ones others have, a list and its number stay true."""
    monkeypatch.setattr(recurring, "EXAMINED", 3)
    own = [(await made(steps, name=f"s{number}", trigger=HOURLY)).id for number in range(2)]
    for number in range(5):
        await made(steps, name=f"o{number}", trigger=HOURLY, tenant="other")

    page = await recurring.find(steps.db, Filter(tenant="default"))
    count = await recurring.count(steps.db, Filter(tenant="default"))

    assert (own[::-1], None) == ([job.id for job in page.jobs], page.next_cursor)
    assert Count(2, True) == count


@pytest.mark.parametrize(
    ("fields", "listed"),
    [
        ({}, True),
        ({"states": frozenset({State.SCHEDULED, State.QUEUED})}, True),
        ({"queue": "mail"}, True),
        ({"task": "t"}, True),
        ({"tag": "x"}, True),
        ({"created_after": NOON - timedelta(hours=1), "created_before": NOON + timedelta(hours=1)}, True),
        ({"states": frozenset({State.RUNNING})}, False),
        ({"stale": True}, False),
        ({"queue": "other"}, False),
        ({"task": "other"}, False),
        ({"tag": "other"}, False),
        ({"worker": "w"}, False),
        ({"idempotency_key": "k"}, False),
        ({"flow_id": UUID(int=1)}, False),
        ({"schedule_id": UUID(int=1)}, False),
        ({"created_after": NOON + timedelta(hours=1)}, False),
        ({"created_before": NOON - timedelta(hours=1)}, False),
        ({"tenant": "other"}, False),
    ],
)
async def test_a_schedule_meets_the_filters_as_a_job_would(steps: Steps, fields: dict[str, Any], listed: bool) -> None:
    """One that nobody ran: what only a run can have it does not have. The count agrees."""
    schedule = await made(steps, task="t", trigger=HOURLY, queue="mail", tags=("x",))
    where = Filter(**{"tenant": "default"} | fields)

    page = await recurring.find(steps.db, where)
    count = await recurring.count(steps.db, where)

    assert ([schedule.id] if listed else []) == [job.id for job in page.jobs]
    assert Count(int(listed), True) == count


async def test_a_schedule_is_listed_among_its_jobs(steps: Steps) -> None:
    """`schedule_id` finds what it made, and itself."""
    schedule = await made(steps, trigger=HOURLY)

    page = await recurring.find(steps.db, Filter(tenant="default", schedule_id=schedule.id))

    assert [schedule.id] == [job.id for job in page.jobs]
