"""Lists of history: what they may read, how they count, and what they tell of attempts, waits and recent events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.queue.races.pausing import Pausing
from tests.queue.steps import ANN, NO_ZONE, Steps, job_in
from windlass.errors import InvalidInput, NotFound
from windlass.job import Outcome, State
from windlass.queue import attempts, history, stats
from windlass.queue.control import pause_job, resume_job
from windlass.queue.deadletters import retry
from windlass.queue.history import AttemptCursor, AttemptFilter, Count, Filter, events_since, find_attempts, timeline


async def pages(steps: Steps, limit: int, **where: Any) -> list[history.Page]:
    """Return all pages of a list."""
    found = [await history.find(steps.db, Filter(**{"tenant": "default"} | where), limit=limit)]
    while (cursor := found[-1].next_cursor) is not None:
        assert len(found) < 100
        found.append(await history.find(steps.db, Filter(**{"tenant": "default"} | where), limit=limit, cursor=cursor))
    return found


async def ended(steps: Steps, count: int, tenant: str = "default", *, end: str = "done", **fields: Any) -> list[UUID]:
    """Let some jobs of a tenant end, and return their ids."""
    worker = await steps.worker(tenant=tenant)
    ids = []
    for _ in range(count):
        lease = await steps.lease(worker, tenant=tenant, **fields)
        await (steps.complete(lease) if end == "done" else steps.fail(lease, retryable=False))
        ids.append(lease.id)
    return ids


@pytest.mark.parametrize("end", ["done", "dead"])
@pytest.mark.parametrize("limit", [2, 3, 100])
async def test_a_rare_tenant_is_listed_by_its_own_lanes(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, limit: int, end: str
) -> None:
    """P9: however many ends of other tenants lie between, its pages are full and complete."""
    monkeypatch.setattr(history, "EXAMINED", 3)
    monkeypatch.setattr(history, "FEW_ROWS", 1)
    mine = []
    for _ in range(5):
        mine += await ended(steps, 1, end=end)
        await ended(steps, 7, "acme", end=end)

    read = await pages(steps, limit)

    assert mine[::-1] == [job.id for page in read for job in page.jobs]
    assert all(limit == len(page.jobs) for page in read[:-1])


async def test_only_places_with_much_are_looked_at_again(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tenant with many ends and few live jobs these are read once: the look at all places has shown them all."""
    monkeypatch.setattr(history, "FEW_ROWS", 3)
    done = await ended(steps, 4)
    waiting = await steps.submit_one()
    reader = Pausing(steps.db)

    page = await history.find(reader, Filter(tenant="default"))

    assert [waiting, *done[::-1]] == [job.id for job in page.jobs]
    assert ["floor_done", "list_done", "sizes", "of_page"] == reader.trail[1:]


@pytest.mark.parametrize("end", ["done", "dead"])
async def test_a_filter_that_matches_little_gives_short_pages(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """P9: a page reads a bounded number of rows; short ones lead on, and together they are complete."""
    monkeypatch.setattr(history, "EXAMINED", 4)
    monkeypatch.setattr(history, "FEW_ROWS", 1)
    monkeypatch.setattr(history, "OWN_ROWS", 6)
    wanted = []
    for _ in range(4):
        wanted += await ended(steps, 1, end=end, task="rare")
        await ended(steps, 6, end=end)
    waiting = await steps.submit_one("rare")

    read = await pages(steps, 100, task="rare")

    assert [waiting, *wanted[::-1]] == [job.id for page in read for job in page.jobs]
    assert len(read) > 1


async def test_a_place_cut_short_cuts_the_page(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """P9: where one place was read down to an id only, older jobs of other places come with a later page, in order."""
    monkeypatch.setattr(history, "EXAMINED", 2)
    monkeypatch.setattr(history, "FEW_ROWS", 1)
    monkeypatch.setattr(history, "OWN_ROWS", 3)
    waiting = await steps.submit_one("rare", queue="q")
    done = await ended(steps, 1, task="rare")
    await ended(steps, 8)

    read = await pages(steps, 100, task="rare")

    assert [*done, waiting] == [job.id for page in read for job in page.jobs]


async def test_a_list_reads_no_other_tenants_ends(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """N1: by the tenant's lanes as by the newest ends, a foreign job is in no list."""
    monkeypatch.setattr(history, "EXAMINED", 2)
    monkeypatch.setattr(history, "FEW_ROWS", 1)
    await ended(steps, 5, "acme")
    await ended(steps, 5, "acme", end="dead")

    assert [[]] == [page.jobs for page in await pages(steps, 2)]
    assert Count(0, exact=True) == await history.count(steps.db, Filter(tenant="default"))


async def test_a_count_is_exact_or_says_that_it_is_not(steps: Steps) -> None:
    """P9: `total` of a list with its filters; where not all was looked at, it is at least so many."""
    await ended(steps, 3)
    await ended(steps, 2, task="other", end="dead")
    await job_in(steps, "scheduled", task="other")
    await job_in(steps, "queued", task="other", queue="q")

    async def count(examined: int = 100, **where: Any) -> tuple[int, bool]:
        found = await history.count(steps.db, Filter(tenant="default", **where), examined=examined)
        return found.jobs, found.exact

    assert [(7, True), (4, True), (1, True), (3, True)] == [
        await count(),
        await count(task="other"),
        await count(queue="q"),
        await count(states=frozenset({State.SUCCEEDED, State.RUNNING})),
    ]
    assert (2, False) == await count(examined=2, states=frozenset({State.SUCCEEDED}))


@pytest.mark.parametrize("offset_s", [-1, 0])
async def test_times_of_creation_bound_a_list(steps: Steps, offset_s: int) -> None:
    """P9: exact to the microsecond, however the clock that made the ids differs from the database's by minutes."""
    worker = await steps.worker(lease_s=86_000)
    for _ in range(3):
        await steps.complete(await steps.lease(worker))
        steps.clock.advance(hours=3)
    since = steps.clock.now() - timedelta(hours=6) + timedelta(seconds=offset_s)

    after = await history.find(steps.db, Filter(tenant="default", created_after=since))
    before = await history.find(steps.db, Filter(tenant="default", created_before=since))

    assert (2, 1) == (len(after.jobs), len(before.jobs))


async def test_stale_jobs_are_those_lost_and_not_begun_again(steps: Steps) -> None:
    """P9: waiting or claimed again counts, until a worker has begun it; a job that failed is not stale."""
    ann = await steps.worker("ann")
    lost = await steps.running(ann, "lost")
    await steps.lose(lost)
    bob = await steps.worker("bob", lease_s=6000)
    await steps.fail(await steps.lease(bob, "failed"))
    await steps.submit_one("new")

    async def stale() -> list[UUID]:
        found = await history.find(steps.db, Filter(tenant="default", stale=True))
        assert Count(len(found.jobs), exact=True) == await history.count(steps.db, Filter(tenant="default", stale=True))
        return [job.id for job in found.jobs]

    waiting = await stale()
    await steps.advance(3600)
    lease = await steps.claim_one(bob, tasks=["lost"])
    claimed = await stale()
    await steps.beat(bob, lease, started=True)

    assert ([lost.id], [lost.id], []) == (waiting, claimed, await stale())


async def test_attempts_are_listed_newest_first_in_pages(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """P40: every ended attempt of every job once, also of the same instant, over days without any."""
    worker = await steps.worker(lease_s=86_000)
    job_id = await steps.submit_one(max_attempts=3)
    for _ in range(2):
        await steps.fail(await steps.claim_one(worker))
        await steps.advance(hours=50)
    await steps.complete(await steps.claim_one(worker))
    dead = await steps.lease(worker, "dead")
    await steps.fail(dead, retryable=False)
    await steps.cancel(await steps.submit_one("never"))

    whole = await find_attempts(steps.db, AttemptFilter(tenant="default"))
    for limit, spans in ((1, 12), (3, 12), (2, 5)):
        monkeypatch.setattr(attempts, "MAX_SPANS", spans)
        read, cursor, more = [], None, True
        while more:
            page = await find_attempts(steps.db, AttemptFilter(tenant="default"), limit=limit, cursor=cursor)
            read += page.attempts
            cursor, more = page.next_cursor, page.next_cursor is not None

        assert whole.attempts == read

    told = [(a.attempt.job_id, a.attempt.fence, a.attempt.outcome, a.task) for a in whole.attempts]
    assert (
        sorted([(job_id, 3, Outcome.SUCCEEDED, "mail"), (dead.id, 1, Outcome.FAILED, "dead")], reverse=True) == told[:2]
    )
    assert [(job_id, 2, Outcome.FAILED, "mail"), (job_id, 1, Outcome.FAILED, "mail")] == told[2:]


async def test_attempts_by_each_filter(steps: Steps) -> None:
    """P40: schedule, task, worker, outcome and time, of jobs that go on, are done or dead; never another tenant's."""
    schedule_id = uuid4()
    worker = await steps.worker("bob", lease_s=86_000)
    await ended(steps, 1, "acme")
    await steps.complete(await steps.lease(worker, "plain"))
    steps.clock.advance(60)
    since = steps.clock.now()
    for task in ("goes-on", "done", "dead"):
        lease = await steps.lease(worker, task, schedule_id=schedule_id)
        await (steps.complete(lease) if task == "done" else steps.fail(lease, retryable=task == "goes-on"))
    steps.clock.advance(60)

    async def tasks(**where: Any) -> set[str]:
        page = await find_attempts(steps.db, AttemptFilter(tenant="default", **where))
        return {listed.task for listed in page.attempts}

    scheduled = {"goes-on", "done", "dead"}
    assert scheduled == await tasks(schedule_id=schedule_id)
    assert scheduled == await tasks(since=since)
    assert {"plain"} == await tasks(until=since)
    assert {"dead"} == await tasks(task="dead")
    assert {"plain", "done"} == await tasks(outcome=Outcome.SUCCEEDED)
    assert scheduled | {"plain"} == await tasks(worker="bob")
    assert set() == await tasks(worker="ann")
    assert set() == await tasks(since=since, until=since)


async def test_no_attempts_make_an_empty_page(steps: Steps) -> None:
    """P40: nothing has ended, or the cursor lies before everything."""
    first = await find_attempts(steps.db, AttemptFilter(tenant="default"))
    await ended(steps, 1)
    cursor = AttemptCursor(steps.clock.now() - timedelta(days=90), uuid4(), 1)

    past = await find_attempts(steps.db, AttemptFilter(tenant="default"), cursor=cursor)

    assert (first, past) == (history.AttemptPage([], None), history.AttemptPage([], None))


async def test_the_report_of_a_job_tells_what_it_waited_for(steps: Steps) -> None:
    """Y3: outcome, timeline, attempts, metrics, and every moment by its cause."""
    worker = await steps.worker(lease_s=86_000)
    job_id = await steps.submit_one(delay_ms=10_000)
    await steps.advance(13)
    lease = await steps.claim_one(worker)
    steps.clock.advance(2)
    await steps.beat(worker, lease, started=True)
    steps.clock.advance(5)
    await steps.fail(lease)
    job = await steps.get(job_id)
    assert job.next_run_at is not None
    backoff_s = (job.next_run_at - steps.clock.now()).total_seconds()
    await steps.advance(backoff_s + 4)
    lease = await steps.claim_one(worker)
    await steps.beat(worker, lease, started=True)
    steps.clock.advance(1)
    await steps.snooze(lease, 60)
    await steps.advance(60)
    lease = await steps.claim_one(worker)
    await steps.beat(worker, lease, started=True)
    steps.clock.advance(7)
    await steps.complete(lease, metrics='{"cpu_s": 1}')

    told = await history.report(steps.db, job_id, tenant="default")

    assert (State.SUCCEEDED, 3, '{"cpu_s": 1}') == (told.outcome, len(told.attempts.items), told.metrics)
    assert await timeline(steps.db, job_id, tenant="default") == told.timeline
    assert (
        history.Waits(
            scheduled_ms=10_000,
            queued_ms=7000,
            assigned_ms=2000,
            running_ms=13_000,
            backoff_ms=round(backoff_s * 1000),
            snoozed_ms=60_000,
        )
        == told.waits
    )


async def test_the_waits_of_a_job_fill_its_life(steps: Steps) -> None:
    """Y3: also of one that died, ran again and was cancelled while it waited, nothing is told twice or left out."""
    worker = await steps.worker(lease_s=86_000)
    created_at = steps.clock.now()
    job_id = await steps.submit_one(max_attempts=1)
    steps.clock.advance(3)
    await steps.fail(await steps.claim_one(worker))
    steps.clock.advance(100)
    await retry(steps.db, [job_id], tenant="default", actor=ANN)
    steps.clock.advance(5)
    await steps.release(await steps.claim_one(worker))
    steps.clock.advance(11)
    await steps.cancel(job_id)

    told = await history.report(steps.db, job_id, tenant="default")

    spent_ms = sum(getattr(told.waits, name) for name in told.waits.__struct_fields__)
    assert (steps.clock.now() - created_at) // timedelta(milliseconds=1) == spent_ms
    assert (State.CANCELLED, 105_000, 14_000) == (told.outcome, told.waits.ended_ms, told.waits.queued_ms)


async def test_the_report_of_a_job_that_runs(steps: Steps) -> None:
    """Y3: of a job that has not ended, as far as it has come; a foreign one is unknown."""
    lease = await steps.running(await steps.worker())

    told = await history.report(steps.db, lease.id, tenant="default")

    assert (None, [], history.Waits()) == (told.outcome, told.attempts.items, told.waits)
    with pytest.raises(NotFound):
        await history.report(steps.db, lease.id, tenant="acme")


async def many_things(steps: Steps) -> list[UUID]:
    """Let all sorts of things happen to jobs, and return their ids."""
    worker = await steps.worker(lease_s=6000)
    ids = []
    for where in ("scheduled", "queued", "assigned", "running", "retry", "snoozed", "released", "succeeded", "dead"):
        ids.append(await job_in(steps, where, task=where))
        steps.clock.advance(1)
    ids.append(await job_in(steps, "expired", task="expired"))
    held = await steps.submit_one("held")
    await pause_job(steps.db, held, tenant="default", actor=ANN)
    steps.clock.advance(1)
    await resume_job(steps.db, held, tenant="default", actor=ANN)
    lease = await steps.lease(worker, "again", max_attempts=1)
    await steps.fail(lease)
    await retry(steps.db, [lease.id], tenant="default", actor=ANN)
    stopped = await steps.submit_one("stopped")
    await steps.cancel(stopped)
    revived = await steps.submit_one("revived")
    await steps.cancel(revived)
    await retry(steps.db, [revived], tenant="default", actor=ANN)
    lost = await steps.running(await steps.worker("eve"), "lost")
    await steps.lose(lost)
    return [*ids, held, lease.id, stopped, revived, lost.id]


async def test_recent_events_are_the_timelines_of_all_jobs(steps: Steps) -> None:
    """Y2: told from the columns of what was touched, they are the same as in each job's timeline, in order of time."""
    since = steps.clock.now()
    ids = await many_things(steps)
    await ended(steps, 1, "acme")
    await steps.submit_one(tenant="acme")

    told = await events_since(steps.db, "default", since=since)

    for job_id in ids:
        events = [(e.happened_at, e.kind, e.worker, e.detail) for e in told if e.job_id == job_id]
        timed = (await timeline(steps.db, job_id, tenant="default")).items
        assert sorted(map(str, [(e.happened_at, e.kind, e.worker, e.detail) for e in timed])) == sorted(
            map(str, events)
        )
    assert set(ids) == {event.job_id for event in told}
    assert [e.happened_at for e in told] == sorted(e.happened_at for e in told)


async def test_recent_events_begin_at_an_instant_and_end_at_a_limit(steps: Steps) -> None:
    """Y2: who asks from the last event on gets it again, and then what followed."""
    since = steps.clock.now()
    await many_things(steps)
    whole = await events_since(steps.db, "default", since=since)
    middle = whole[len(whole) // 2].happened_at

    later = await events_since(steps.db, "default", since=middle)

    assert [event for event in whole if event.happened_at >= middle] == later
    assert 3 == len(await events_since(steps.db, "default", since=since, limit=3))
    assert [] == await events_since(steps.db, "default", since=steps.clock.now() + timedelta(seconds=1))


async def test_recent_acts_are_of_one_tenant(steps: Steps) -> None:
    """N1: what people did to another tenant's jobs is in nobody else's events."""
    since = steps.clock.now()
    job_id = await steps.submit_one(tenant="acme")
    await pause_job(steps.db, job_id, tenant="acme", actor=ANN)

    told = [await events_since(steps.db, tenant, since=since) for tenant in ("default", "acme")]

    assert [[], ["submitted", "paused"]] == [[event.kind for event in events] for events in told]


@pytest.mark.parametrize(
    "instant", [NO_ZONE, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)], ids=str
)
async def test_instants_that_cannot_be_are_refused_or_found_empty(steps: Steps, instant: datetime) -> None:
    """Whatever instant a caller names, it is an answer or a refusal, never a fault of ours."""
    await ended(steps, 1)
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: history.find(steps.db, Filter(tenant="default", created_after=instant)),
        lambda: history.count(steps.db, Filter(tenant="default", created_before=instant)),
        lambda: find_attempts(steps.db, AttemptFilter(tenant="default", since=instant)),
        lambda: find_attempts(steps.db, AttemptFilter(tenant="default", until=instant)),
        lambda: find_attempts(steps.db, AttemptFilter(tenant="default"), cursor=AttemptCursor(instant, uuid4(), 1)),
        lambda: events_since(steps.db, "default", since=instant),
        lambda: stats.series(steps.db, tenant="default", since=instant, until=instant),
    ]

    for ask in asked:
        with suppress(InvalidInput):
            await ask()
