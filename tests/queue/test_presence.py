"""Presence: one row for each caller that keeps no session, how long it lasts, and what it never does."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.queue.steps import Steps
from windlass.errors import Conflict
from windlass.queue import presence, workers
from windlass.queue.fleet import Status, get_worker, list_workers
from windlass.queue.presence import SLOW_MS, Presence
from windlass.queue.workers import BareSession, Beat, NewSession

LEASE_MS = 30_000


async def called(steps: Steps, worker: str = "ann", *, lease_ms: int = LEASE_MS, tenant: str = "default") -> Presence:
    """Let a caller that keeps no session call."""
    return await presence.appear(steps.db, BareSession(steps.ids.new(), worker, tenant, lease_ms))


async def registered(steps: Steps, worker: str = "ann", *, lease_asked: bool = False, **fields: Any) -> UUID:
    """Register a worker that names no session; return its start."""
    session = NewSession(id=steps.ids.new(), worker=worker, **fields)
    await presence.register(steps.db, session, lease_asked=lease_asked)
    return session.id


async def renew(steps: Steps, session: UUID, **fields: Any) -> bool:
    """Beat for a presence; return whether it was one."""
    [answer] = await workers.heartbeat(steps.db, [Beat(session, presence=True, **fields)])
    return answer.alive


async def test_every_call_finds_the_same_presence(steps: Steps) -> None:
    """H1: one row for a worker of a tenant, however many servers meet it."""
    first, second = await called(steps), await called(steps)
    other, foreign = await called(steps, "bob"), await called(steps, tenant="acme")

    assert first == second
    assert 3 == len({first.id, other.id, foreign.id})


async def test_rel_x9_a_presence_is_never_a_session_that_holds_leases(steps: Steps) -> None:
    """A caller known by its name alone has a sign of life of its own; a real session lives by its own beats."""
    worker = await steps.worker("ann")
    found = await called(steps)
    known = await workers.find_sessions(steps.db, [worker.session, found.id])

    assert [False, True] == [known[session].is_presence for session in (worker.session, found.id)]


async def test_rel_x9_a_presence_that_was_opened_is_renewed_by_its_own_beats_alone(steps: Steps) -> None:
    """L18: once a call has named it as its session, calls under the worker's name keep nothing of it alive."""
    start = await registered(steps, capacity=4, lease_ms=60_000)
    before = await renew(steps, start)
    await workers.open_session(steps.db, start, worker="ann", tenant="default", lease_ms=LEASE_MS)
    after = await renew(steps, start)
    found = await called(steps)
    own = (await workers.heartbeat(steps.db, [Beat(start), Beat(start, presence=True)]))[0]

    assert (True, False, True) == (before, after, own.alive)
    assert start != found.id
    known = (await workers.find_sessions(steps.db, [start]))[start]
    assert (60_000, False) == (known.lease_ms, known.is_presence)


async def test_a_session_is_opened_by_its_own_worker_alone(steps: Steps) -> None:
    """N1, I6: not by another name or tenant, and not after its end."""
    start = await registered(steps)
    for worker, tenant in (("bob", "default"), ("ann", "acme")):
        with pytest.raises(Conflict, match=str(start)):
            await workers.open_session(steps.db, start, worker=worker, tenant=tenant, lease_ms=LEASE_MS)
    await workers.close(steps.db, start, tenant="default", reason="bye")

    with pytest.raises(Conflict, match=str(start)):
        await workers.open_session(steps.db, start, worker="ann", tenant="default", lease_ms=LEASE_MS)


async def test_the_session_of_a_single_job_is_never_opened(steps: Steps) -> None:
    """L18: it is of that job, and goes with it."""
    session = BareSession(steps.ids.new(), "ann", "default", LEASE_MS)
    await steps.db.fetch(workers.SQL.register_bare, sessions=[(session.id, "ann", "default", LEASE_MS)])

    with pytest.raises(Conflict):
        await workers.open_session(steps.db, session.id, worker="ann", tenant="default", lease_ms=LEASE_MS)


async def test_who_registers_again_begins_anew(steps: Steps) -> None:
    """P31: an upsert: threads and status begin anew, the counts go on; the start before is over."""
    first = await registered(steps, capacity=2, version="1")
    await renew(steps, first, busy=2, completed=3, draining=True)
    steps.clock.advance(5)
    second = await registered(steps, capacity=3, version="2")

    [worker] = (await list_workers(steps.db, "default")).workers

    assert (second, 3, 0, "2") == (worker.session, worker.total_threads, worker.busy_threads, worker.version)
    assert (Status.STARTING, 3, steps.clock.now()) == (worker.status, worker.completed, worker.started_at)
    assert not await renew(steps, first)


async def test_a_presence_says_what_its_worker_registered(steps: Steps) -> None:
    """H1: capacity, version and start of the worker's last row; and it shows once the session has lapsed."""
    worker = await steps.worker("ann", capacity=4, version="1.2", host="box", lease_s=60)
    started_at = steps.clock.now()
    steps.clock.advance(1)
    found = await called(steps)
    both = await get_worker(steps.db, "default", "ann")
    await steps.rescue(200)
    lapsed = await get_worker(steps.db, "default", "ann")
    await called(steps)
    later = await get_worker(steps.db, "default", "ann")

    assert 60_000 == found.lease_ms
    assert (worker.session, Status.IDLE, started_at) == (both.session, both.status, both.started_at)
    assert (Status.DEAD, Status.IDLE) == (lapsed.status, later.status)
    assert (4, "1.2", "box", started_at) == (later.total_threads, later.version, later.host, later.started_at)


async def test_who_has_left_and_calls_again_is_somebody_new(steps: Steps) -> None:
    """What a worker said of itself goes with the start that it ended by its own wish."""
    worker = await steps.worker("ann", capacity=4)
    await workers.close(steps.db, worker.session, tenant="default", reason="bye")
    steps.clock.advance(5)
    await called(steps)

    shown = await get_worker(steps.db, "default", "ann")

    assert (1, steps.clock.now()) == (shown.total_threads, shown.started_at)


async def test_the_counts_of_one_start_are_added(steps: Steps) -> None:
    """H1: what was counted for a worker's session and for its calls without it is one figure."""
    worker = await steps.worker("ann")
    found = await called(steps)
    await workers.heartbeat(steps.db, [Beat(worker.session, completed=2, failed=1)])
    await renew(steps, found.id, completed=3, skew_ms=7)

    shown = await get_worker(steps.db, "default", "ann")

    assert (5, 1, 7) == (shown.completed, shown.failed, shown.skew_ms)


async def test_how_long_a_presence_lasts(steps: Steps) -> None:
    """H3: as its calls ask for, the longest of them; who comes back after it has lapsed is slow."""
    first = await called(steps)
    longer = await called(steps, lease_ms=60_000)
    shorter = await called(steps, lease_ms=LEASE_MS)
    await renew(steps, first.id, lease_ms=90_000)
    beaten = await called(steps)
    await steps.rescue(200)
    back = await called(steps)
    await steps.rescue(3 * SLOW_MS / 1000)
    long_after = await called(steps)

    lengths = [found.lease_ms for found in (first, longer, shorter, beaten, back, long_after)]
    assert [LEASE_MS, 60_000, 60_000, 90_000, SLOW_MS, LEASE_MS] == lengths


async def test_a_length_that_was_asked_for_stands(steps: Steps) -> None:
    """L7: whatever its calls show, also after it has lapsed."""
    start = await registered(steps, lease_ms=120_000, lease_asked=True)
    await renew(steps, start, lease_ms=SLOW_MS)
    found = [await called(steps, lease_ms=SLOW_MS)]
    await steps.rescue(250)
    found.append(await called(steps))

    assert [(120_000, True)] * 2 == [(one.lease_ms, one.lease_asked) for one in found]
