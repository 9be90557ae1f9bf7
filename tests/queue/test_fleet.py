"""Fleet: workers as people see them, their statuses, and sessions by key."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.queue.steps import Steps, Worker
from windlass.db import Query
from windlass.errors import InvalidInput, NotFound
from windlass.queue.claim import Group, Want, claim
from windlass.queue.fleet import Status, get_worker, list_workers, threads
from windlass.queue.presence import appear
from windlass.queue.workers import (
    BareSession,
    Beat,
    NewSession,
    claim_bare,
    close,
    drain,
    find_sessions,
    heartbeat,
    register,
)


async def beat(steps: Steps, worker: Worker, **fields: Any) -> None:
    """Send a beat of a worker, a moment after what it did before."""
    steps.clock.advance(1)
    await heartbeat(steps.db, [Beat(worker.session, tenant=worker.tenant, **fields)])


async def status_of(steps: Steps, name: str) -> Status:
    """Return how a worker is."""
    return (await get_worker(steps.db, "default", name)).status


async def alone(steps: Steps, worker: str, count: int, tenant: str = "default") -> list[UUID]:
    """Claim jobs for a caller that keeps no session; return their ids."""
    for _ in range(count):
        await steps.submit_one(tenant=tenant)
    lanes = await steps.serving(tenant=tenant)
    jobs = await claim_bare(
        steps.db,
        steps.ids,
        lambda db, sessions: claim(db, [Group([Want(lane.id) for lane in lanes], list(sessions))]),
        count=count,
        worker=worker,
        tenant=tenant,
        lease_ms=30_000,
    )
    return sorted(job.id for job in jobs)


async def test_a_worker_is_shown_with_all_it_said(steps: Steps) -> None:
    """H1: name, session, threads, jobs, counts, start, host, process, version, build, labels, tasks, region, skew."""
    worker = await steps.worker(
        "ann",
        capacity=4,
        host="box",
        pid=7,
        version="1.2",
        build="abc",
        region="eu",
        labels="gpu",
        tasks="mail",
        queues="default",
    )
    started_at = steps.clock.now()
    leases = [await steps.lease(worker), await steps.lease(worker)]
    await beat(steps, worker, busy=2, skew_ms=-12, completed=3, failed=1)
    await beat(steps, worker, completed=2)

    seen = await get_worker(steps.db, "default", "ann")

    assert ("ann", worker.session, Status.ACTIVE) == (seen.worker, seen.session, seen.status)
    assert (4, 2, 2) == (seen.total_threads, seen.busy_threads, seen.available_threads)
    assert sorted(lease.id for lease in leases) == seen.current_jobs
    assert (5, 1, -12) == (seen.completed, seen.failed, seen.skew_ms)
    assert (started_at, steps.clock.now()) == (seen.started_at, seen.heartbeat_at)
    assert ("box", 7, "1.2", "abc", "eu") == (seen.host, seen.pid, seen.version, seen.build, seen.region)
    assert ("gpu", "mail", "default") == (seen.labels, seen.tasks, seen.queues)


async def test_every_status(steps: Steps) -> None:
    """H2: starting until the first beat, then by its threads; draining, dead and stopped by what became of it."""
    worker = await steps.worker("ann", capacity=2, lease_s=30)
    told = [await status_of(steps, "ann")]
    for busy in (0, 1, 2):
        await beat(steps, worker, busy=busy)
        told.append(await status_of(steps, "ann"))
    await drain(steps.db, tenant="default", worker="ann")
    told.append(await status_of(steps, "ann"))
    steps.clock.advance(30)
    told.append(await status_of(steps, "ann"))
    await close(steps.db, worker.session, tenant="default", reason="bye")
    told.append(await status_of(steps, "ann"))

    assert list(Status) == told


async def test_a_lapsed_worker_is_dead_also_after_rescue(steps: Steps) -> None:
    """H2: dead by the database's clock, before and after a server has noticed; it holds nothing then."""
    lease = await steps.running(await steps.worker("ann"))
    await steps.lose(lease)

    seen = await get_worker(steps.db, "default", "ann")

    assert (Status.DEAD, []) == (seen.status, seen.current_jobs)
    assert seen.ended_at is not None


async def test_a_worker_is_its_newest_session(steps: Steps) -> None:
    """A worker that was started again is listed once, as it is now; an older session's end changes nothing."""
    old = await steps.worker("ann")
    steps.clock.advance(5)
    new = await steps.worker("ann")
    await close(steps.db, old.session, tenant="default", reason="bye")

    page = await list_workers(steps.db, "default")

    assert [(new.session, Status.STARTING)] == [(w.session, w.status) for w in page.workers]


async def test_a_worker_that_registers_again_is_still_starting(steps: Steps) -> None:
    """W3: until its first heartbeat; from then on saying its registration again changes nothing of that."""
    ann = await steps.worker("ann")

    async def again() -> tuple[Status, datetime]:
        steps.clock.advance(10)
        await register(steps.db, NewSession(id=ann.session, worker="ann"))
        [seen] = (await list_workers(steps.db, "default")).workers
        return seen.status, seen.started_at

    starting = await again()
    await beat(steps, ann, busy=0)
    begun = [await again() for _ in range(2)]

    assert Status.STARTING is starting[0]
    assert [(Status.IDLE, starting[1])] * 2 == begun


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_workers_are_paged_by_name(steps: Steps, limit: int) -> None:
    """P34: pages without gap or repeat, None after the last."""
    for name in ("c", "a", "e", "b", "d", "b"):
        await steps.worker(name)
        steps.clock.advance(1)

    pages = [await list_workers(steps.db, "default", limit=limit)]
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(await list_workers(steps.db, "default", limit=limit, cursor=cursor))

    assert list("abcde") == [worker.worker for page in pages for worker in page.workers]
    assert -(-5 // limit) == len(pages)


async def test_workers_of_one_status(steps: Steps) -> None:
    """P34: the filter is of the status as it is shown."""
    busy, idle = await steps.worker("busy"), await steps.worker("idle")
    await steps.worker("new")
    await beat(steps, busy, busy=1)
    await beat(steps, idle, busy=0)

    found = {s: [w.worker for w in (await list_workers(steps.db, "default", status=s)).workers] for s in Status}

    expected = {Status.BUSY: ["busy"], Status.IDLE: ["idle"], Status.STARTING: ["new"]}
    assert {key: [] for key in Status} | expected == found


async def test_bare_callers_and_strangers_are_in_no_list(steps: Steps) -> None:
    """N1: another tenant's worker is unknown; who keeps no session is no registered worker."""
    await steps.worker("eve", tenant="acme")
    await alone(steps, "bare", 1)

    assert [] == (await list_workers(steps.db, "default")).workers
    for name in ("eve", "bare", "none"):
        with pytest.raises(NotFound):
            await get_worker(steps.db, "default", name)


async def test_a_bare_caller_is_shown_with_the_jobs_it_holds(steps: Steps) -> None:
    """H1, H2: who keeps no session is listed by its presence, busy by its leases, idle when they have ended."""
    for tenant, worker in (("default", "ann"), ("acme", "ann"), ("default", "bob")):
        await appear(steps.db, BareSession(steps.ids.new(), worker, tenant, 30_000))
    steps.clock.advance(1)
    jobs = await alone(steps, "ann", 2)
    await alone(steps, "eve", 1)
    others = await alone(steps, "ann", 1, "acme")

    [ann, bob] = (await list_workers(steps.db, "default")).workers
    found = {s: [w.worker for w in (await list_workers(steps.db, "default", status=s)).workers] for s in Status}
    foreign = await get_worker(steps.db, "acme", "ann")

    assert ("ann", Status.BUSY, 2, jobs) == (ann.worker, ann.status, ann.busy_threads, ann.current_jobs)
    assert ("bob", Status.STARTING, 0, []) == (bob.worker, bob.status, bob.busy_threads, bob.current_jobs)
    assert ann == await get_worker(steps.db, "default", "ann")
    assert (["ann"], ["bob"]) == (found[Status.BUSY], found[Status.STARTING])
    assert (1, others) == (foreign.busy_threads, foreign.current_jobs)


async def test_what_a_worker_does_not_tell_is_seen_by_its_leases(steps: Steps) -> None:
    """H2: idle, active and busy are computed: from what it told or what it holds in all its sessions, the larger."""
    old = await steps.worker("ann", capacity=3)
    steps.clock.advance(1)
    new = await steps.worker("ann", capacity=3)
    seen = [await get_worker(steps.db, "default", "ann")]
    leases = []
    for worker in (new, old, new):
        leases.append(await steps.lease(worker))
        seen.append(await get_worker(steps.db, "default", "ann"))
    for lease in leases:
        await steps.complete(lease)
    await beat(steps, new, busy=2)
    seen.append(await get_worker(steps.db, "default", "ann"))

    expected = [(Status.STARTING, 0), (Status.ACTIVE, 1), (Status.ACTIVE, 2), (Status.BUSY, 3), (Status.ACTIVE, 2)]
    assert expected == [(worker.status, worker.busy_threads) for worker in seen]
    assert sorted(lease.id for lease in leases) == seen[3].current_jobs
    assert [] == seen[4].current_jobs


async def test_a_session_is_found_by_its_key(steps: Steps) -> None:
    """Whose it is, how long its leases are, and whether it may go on; also when it has ended."""
    worker = await steps.worker("ann", lease_s=45, tenant="acme")
    live = (await find_sessions(steps.db, [worker.session]))[worker.session]
    await drain(steps.db, tenant="acme", worker="ann")
    draining = (await find_sessions(steps.db, [worker.session]))[worker.session]
    await close(steps.db, worker.session, tenant="acme", reason="bye")
    ended = (await find_sessions(steps.db, [worker.session]))[worker.session]

    assert ("ann", "acme", 45_000, False) == (live.worker, live.tenant, live.lease_ms, live.bare)
    assert [(True, False), (True, True), (False, True)] == [(s.alive, s.draining) for s in (live, draining, ended)]
    assert {} == await find_sessions(steps.db, [uuid4()])


async def test_the_counts_of_several_beats_are_added(steps: Steps) -> None:
    """H1: beats that one flush carries, of one session or of several, lose no count."""
    ann, bob = await steps.worker("ann"), await steps.worker("bob")
    beats = [Beat(ann.session, completed=1), Beat(bob.session, failed=5), Beat(ann.session, completed=2, failed=1)]

    await heartbeat(steps.db, beats)

    seen = [await get_worker(steps.db, "default", name) for name in ("ann", "bob")]
    assert [(3, 1), (0, 5)] == [(worker.completed, worker.failed) for worker in seen]


@pytest.mark.parametrize("field", ["completed", "failed"])
@pytest.mark.parametrize("count", [-1, 10**7])
async def test_a_count_that_cannot_be_is_refused(steps: Steps, field: str, count: int) -> None:
    """A beat adds to the counts, within reason, and never takes away."""
    worker = await steps.worker()

    with pytest.raises(InvalidInput, match=field):
        await beat(steps, worker, **{field: count})


async def test_the_threads_of_all_live_workers(steps: Steps) -> None:
    """O7: threads are added up over tenants, in use by what is told or held; what has ended does not count."""
    ann = await steps.worker("ann", capacity=3)
    await steps.lease(ann)
    told = await steps.worker("told", capacity=4)
    await beat(steps, told, busy=4)
    gone = await steps.worker("eve", tenant="acme", capacity=9)
    await appear(steps.db, BareSession(steps.ids.new(), "bare", "default", 30_000))
    await alone(steps, "bare", 1)
    before = await threads(steps.db)
    await close(steps.db, gone.session, tenant="acme", reason="bye")

    after = await threads(steps.db)

    assert (3 + 4 + 9 + 1, 1 + 4 + 1) == (before.total, before.busy)
    assert (3 + 4 + 1, 1 + 4 + 1) == (after.total, after.busy)


async def test_a_presence_beside_a_session_adds_no_threads(steps: Steps) -> None:
    """O7: a worker that calls with its session and without it has the threads that it registered, once."""
    ann = await steps.worker("ann", capacity=3)
    await appear(steps.db, BareSession(steps.ids.new(), "ann", "default", 30_000))
    await steps.lease(ann)

    found = await threads(steps.db)

    assert (3, 1) == (found.total, found.busy)


async def test_the_view_of_workers_tells_the_threads_in_use(steps: Steps) -> None:
    """H1: plain SQL shows what the API shows: each worker once, its threads in use as told or held, and its status."""
    ann = await steps.worker("ann", capacity=2)
    one = await steps.lease(ann)
    told = await steps.worker("told", capacity=2)
    await beat(steps, told, busy=2)
    for worker in ("bare", "idle"):
        await appear(steps.db, BareSession(steps.ids.new(), worker, "default", 30_000))
    await appear(steps.db, BareSession(steps.ids.new(), "told", "default", 30_000))
    [alone_id] = await alone(steps, "bare", 1)
    text = "SELECT worker, status, busy_threads, available_threads, held_jobs, current_job_id FROM workers ORDER BY 1"
    rows = await steps.db.fetch(Query("workers", "The view.", text, text))

    expected = [
        ("ann", "active", 1, 1, 1, one.id),
        ("bare", "busy", 1, 0, 1, alone_id),
        ("idle", "starting", 0, 1, 0, None),
        ("told", "busy", 2, 0, 0, None),
    ]
    assert expected == [
        (*list(row.values())[:5], None if row["current_job_id"] is None else UUID(str(row["current_job_id"])))
        for row in rows
    ]
