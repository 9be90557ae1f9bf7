"""Stats: minutes rolled up from history, the overview, and the health of the storage."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.clock import TestClock
from tests.databases import connected
from tests.queue.steps import ANN, Steps, job_in
from windlass.db import open_database
from windlass.job import State
from windlass.queue import stats
from windlass.queue.control import pause_queue
from windlass.queue.deadletters import purge, retry
from windlass.queue.lanes import LaneName, configure
from windlass.queue.workers import Beat, heartbeat

PATIENCE_S = 60

FIGURES = ("succeeded", "failed", "lost", "dead", "cancelled", "expired", "claimed", "wait_ms", "run_ms")


async def minutes(steps: Steps, tenant: str = "default", **where: Any) -> list[tuple[int, ...]]:
    """Return the figures of all minutes rolled up, oldest first."""
    now = steps.clock.now()
    rows = await stats.series(steps.db, tenant=tenant, since=now - timedelta(days=9), until=now, **where)
    return [tuple(getattr(row, name) for name in FIGURES) for row in rows]


async def roll_up(steps: Steps, minutes: float = 1) -> stats.Rolled:
    """Let the minute close and count it."""
    steps.clock.advance(minutes=minutes)
    return await stats.roll_up(steps.db)


async def ended_in_every_way(steps: Steps) -> None:
    """End attempts and jobs in each way there is, waiting two seconds and running three, where they run."""
    ann = await steps.worker(lease_s=6000)
    ids = [await steps.submit_one(f"t{n}", max_attempts=2) for n in range(4)]
    steps.clock.advance(2)
    done, retried, dead, stopped = [await steps.claim_one(ann, tasks=[f"t{n}"]) for n in range(4)]
    assert ids == [lease.id for lease in (done, retried, dead, stopped)]
    await steps.beat(ann, done, retried, dead, stopped, started=True)
    steps.clock.advance(3)
    await steps.complete(done)
    await steps.fail(retried)
    await steps.fail(dead, retryable=False)
    await steps.release(stopped)
    await steps.cancel(stopped.id)
    await job_in(steps, "expired", task="expired")


async def test_a_minute_counts_what_ended_in_it(steps: Steps) -> None:
    """P37: attempts by outcome, jobs by their end, and how long they waited and ran."""
    await ended_in_every_way(steps)

    rolled = await roll_up(steps)

    assert [(1, 2, 0, 1, 1, 1, 4, 8000, 12000)] == await minutes(steps)
    assert (1, steps.clock.now().replace(second=0)) == (rolled.rows, rolled.until)


async def test_how_long_attempts_ran_lately(steps: Steps) -> None:
    """H8: the mean over the minutes that are rolled up, successes and failures; of longer ago nothing."""
    assert None is await stats.mean_run_s(steps.db)
    await ended_in_every_way(steps)
    await roll_up(steps)
    [(succeeded, failed, *_, run_ms)] = await minutes(steps)

    lately = await stats.mean_run_s(steps.db)

    assert run_ms / (succeeded + failed) / 1000 == lately
    steps.clock.advance(minutes=11)
    assert None is await stats.mean_run_s(steps.db)


async def test_an_open_minute_is_not_counted(steps: Steps) -> None:
    """A minute is counted when it has closed."""
    await steps.complete(await steps.lease(await steps.worker()))
    await stats.roll_up(steps.db)
    early = await minutes(steps)

    await roll_up(steps)

    assert ([], 1) == (early, len(await minutes(steps)))


async def test_losses_are_attempts(steps: Steps) -> None:
    """O7: a lost lease is an attempt that ended; it counts as no failure."""
    lease = await steps.running(await steps.worker())
    await steps.lose(lease)

    await roll_up(steps)

    [figures] = await minutes(steps)
    assert (0, 0, 1, 0) == figures[:4]


async def test_rolling_up_again_changes_nothing(steps: Steps) -> None:
    """Running it twice, or on two servers at once, counts nothing twice."""
    await ended_in_every_way(steps)
    await roll_up(steps)
    before = await minutes(steps)

    await asyncio.gather(*(stats.roll_up(steps.db) for _ in range(3)))

    assert before == await minutes(steps)


async def test_a_late_commit_is_still_counted(steps: Steps) -> None:
    """The last minutes are counted again: what was committed after its minute closed is not forgotten."""
    worker = await steps.worker(lease_s=6000)
    lease, late = await steps.lease(worker), await steps.lease(worker, "late")
    await steps.complete(lease)
    ended_at = steps.clock.now()
    steps.clock.advance(minutes=1)
    await stats.roll_up(steps.db)
    first = await minutes(steps)
    await steps.complete(late)
    await _backdate(steps, late.id, ended_at)

    await roll_up(steps)

    assert [1] == [figures[0] for figures in first]
    assert [2] == [figures[0] for figures in await minutes(steps)]


async def _backdate(steps: Steps, job_id: object, instant: Any) -> None:
    """Let a job have ended at an instant, as one does whose transaction began then."""
    at = f"'{instant.isoformat()}'" if steps.db.dialect == "postgres" else str(int(instant.timestamp() * 1_000_000))
    schema = "windlass." if steps.db.dialect == "postgres" else ""
    values = f"claimed_at = {at}, started_at = {at}, finished_at = {at}"
    await steps.db.run(f"UPDATE {schema}done SET {values} WHERE id = '{job_id}';\n")


@pytest.mark.parametrize("act", [retry, purge])
async def test_a_minute_never_counts_less(steps: Steps, act: Any) -> None:
    """A job that died is counted as dead, also when it was retried or purged before the minute was counted again."""
    worker = await steps.worker(lease_s=6000)
    lease, other = [await steps.lease(worker, max_attempts=1) for _ in range(2)]
    for failing in (lease, other):
        await steps.fail(failing)
    await roll_up(steps)
    before = await minutes(steps)
    if act is retry:
        await retry(steps.db, [lease.id], tenant="default", actor=ANN)
    else:
        await purge(steps.db, [lease.id], tenant="default")

    await roll_up(steps)

    assert 2 == before[0][3]
    assert before == await minutes(steps)


async def test_a_job_retried_before_its_minute_was_counted_still_died(steps: Steps) -> None:
    """P41: jobs gone dead are counted by their death, not by what lies among the dead letters."""
    lease = await steps.lease(await steps.worker(), max_attempts=1)
    await steps.fail(lease)
    await retry(steps.db, [lease.id], tenant="default", actor=ANN)

    await roll_up(steps)

    [figures] = await minutes(steps)
    assert (1, 1) == (figures[1], figures[3])


async def test_a_long_gap_is_counted_in_chunks(steps: Steps) -> None:
    """After hours without a server, every minute between is counted, a bounded span at a time."""
    worker = await steps.worker(lease_s=86_000)
    await stats.roll_up(steps.db)
    for _ in range(3):
        await steps.complete(await steps.lease(worker))
        steps.clock.advance(hours=2)

    rolled = await stats.roll_up(steps.db, chunk=timedelta(minutes=10))

    assert [1, 1, 1] == [figures[0] for figures in await minutes(steps)]
    assert 6 * 60 + 3 == rolled.minutes


async def test_a_retry_waits_from_the_time_it_was_due(steps: Steps) -> None:
    """P37: the wait of a second attempt begins when its back-off is over, not when its job was created."""
    worker = await steps.worker(lease_s=6000)
    job_id = await steps.submit_one(max_attempts=2)
    await steps.fail(await steps.claim_one(worker))
    next_run_at = (await steps.get(job_id)).next_run_at
    assert next_run_at is not None
    await steps.advance((next_run_at - steps.clock.now()).total_seconds())
    steps.clock.advance(7)
    await steps.complete(await steps.claim_one(worker))

    await roll_up(steps, minutes=2)

    assert 7000 == sum(figures[FIGURES.index("wait_ms")] for figures in await minutes(steps))


async def test_minutes_are_told_by_tenant_and_queue(steps: Steps) -> None:
    """N1: a series shows one tenant's minutes, of one queue or of all."""
    await steps.complete(await steps.lease(await steps.worker(), queue="q"))
    await steps.complete(await steps.lease(await steps.worker("bob"), queue="r"))
    await steps.complete(await steps.lease(await steps.worker("eve", tenant="acme"), tenant="acme"))

    await roll_up(steps)

    assert [2, 1, 1, 0] == [
        len(await minutes(steps)),
        len(await minutes(steps, queue="q")),
        len(await minutes(steps, tenant="acme")),
        len(await minutes(steps, queue="none")),
    ]


async def test_the_overview_of_nothing(steps: Steps) -> None:
    """P37: an empty database has an overview of zeros."""
    seen = await stats.overview(steps.db, None)

    assert {0} == {getattr(seen, name) for name in seen.__struct_fields__}


async def test_the_overview_counts_what_waits_and_runs(steps: Steps) -> None:
    """P37, P41: pending is due and claimable; scheduled, paused and dead jobs are not in it."""
    for where in ("queued", "released", "scheduled", "retry", "held", "assigned", "running", "dead", "succeeded"):
        await job_in(steps, where, task=where)
    paused = LaneName("default", "stopped")
    await steps.submit_one(queue="stopped")
    await pause_queue(steps.db, steps.lanes, paused, actor=ANN)
    await job_in(steps, "queued", tenant="acme")

    seen = await stats.overview(steps.db, "default")
    whole = await stats.overview(steps.db, None)

    assert (2, 2, 2, 1) == (seen.pending, seen.in_progress, seen.scheduled, seen.dead_letter_jobs)
    assert (1, 1) == (seen.completed_24h, seen.failed_24h)
    assert (3, False) == (whole.pending, whole.pending_is_estimate)


@pytest.mark.parametrize("rolled", [True, False])
async def test_a_window_is_a_true_day(steps: Steps, rolled: bool) -> None:
    """P37: what ended 24 hours ago is in the window, and a second later it is not; by minutes or by history."""
    steps.clock.advance(30)
    worker = await steps.worker(lease_s=86_000)
    await steps.complete(await steps.lease(worker))
    await steps.fail(await steps.lease(worker, "dead", max_attempts=1))
    if rolled:
        for _ in range(24):
            await roll_up(steps, minutes=60)
    else:
        await roll_up(steps, minutes=24 * 60)

    inside = await stats.overview(steps.db, "default")
    steps.clock.advance(1)
    outside = await stats.overview(steps.db, "default")

    assert (1, 1) == (inside.completed_24h, inside.failed_24h)
    assert (0, 0) == (outside.completed_24h, outside.failed_24h)


async def test_the_window_counts_each_end_once(steps: Steps) -> None:
    """P37: minutes rolled up, minutes that may still change and the open one are added without overlap."""
    worker = await steps.worker(lease_s=86_000)
    totals = []
    for _ in range(12):
        await steps.complete(await steps.lease(worker))
        totals.append((await stats.overview(steps.db, None)).completed_24h)
        steps.clock.advance(40)
        await stats.roll_up(steps.db)
        totals.append((await stats.overview(steps.db, None)).completed_24h)

    assert [n for n in range(1, 13) for _ in range(2)] == totals


async def test_the_average_wait_is_from_queued_to_claimed(steps: Steps) -> None:
    """P37: over the claims of the last hour, ended or still running; nobody waits before a job is due."""
    worker = await steps.worker(lease_s=86_000)
    for wait_s in (100, 10):
        await steps.submit_one("t")
        steps.clock.advance(wait_s)
        await steps.complete(await steps.claim_one(worker))
        steps.clock.advance(minutes=50)
        await stats.roll_up(steps.db)
    await steps.submit_one("t", delay_ms=1000)
    await steps.advance(21)
    await steps.claim_one(worker)

    seen = await stats.overview(steps.db, "default")

    assert (10.0 + 20.0) / 2 == seen.average_wait_s


async def test_active_workers_are_those_heard_within_a_minute(steps: Steps) -> None:
    """P37: idle ones count; draining, silent and bare ones do not; a name counts once."""
    ann, bob = await steps.worker("ann", lease_s=600), await steps.worker("bob", lease_s=600)
    await steps.worker("bob", lease_s=600)
    await steps.worker("eve", lease_s=600, tenant="acme")
    both = await stats.active_workers(steps.db, "default")
    steps.clock.advance(60)
    await heartbeat(steps.db, [Beat(ann.session)])

    assert (2, 1, 1) == (
        both,
        await stats.active_workers(steps.db, "default"),
        (await stats.overview(steps.db, None)).active_workers,
    )
    assert bob.session != ann.session


async def test_depths_are_told_by_queue_and_state(steps: Steps) -> None:
    """O1, P41: each live state under its own name, and the dead; what a pause holds stands apart."""
    for where in ("queued", "scheduled", "held", "assigned", "running", "dead"):
        await job_in(steps, where, queue="q", task=where)
    await steps.submit_one(queue="r")
    await pause_queue(steps.db, steps.lanes, LaneName("default", "r"), actor=ANN)

    found = {(d.queue, d.state): (d.jobs, d.held, d.exact) for d in await stats.depths(steps.db)}

    assert {
        ("q", State.QUEUED): (1, 1, True),
        ("q", State.SCHEDULED): (1, 0, True),
        ("q", State.ASSIGNED): (1, 0, True),
        ("q", State.RUNNING): (1, 0, True),
        ("q", State.DEAD): (1, 0, True),
        ("r", State.QUEUED): (0, 1, True),
    } == found


async def test_a_depth_beyond_what_is_counted_says_so(steps: Steps) -> None:
    """P37: counting stops at a number of rows; lanes share it, and those that fit are still exact."""
    await steps.submit(*(steps.job("long") for _ in range(40)), *(steps.job("short", queue="q") for _ in range(3)))
    await steps.submit(*(steps.job("later", delay_ms=9000) for _ in range(40)))

    capped = {(d.queue, d.state): (d.jobs, d.exact) for d in await stats.depths(steps.db, most=20)}
    whole = {(d.queue, d.state): (d.jobs, d.exact) for d in await stats.depths(steps.db, most=100)}

    assert (21, False) == capped["default", State.QUEUED]
    assert (20, False) == capped["default", State.SCHEDULED]
    assert (3, True) == capped["q", State.QUEUED]
    assert [(40, True), (40, True)] == [whole["default", state] for state in (State.QUEUED, State.SCHEDULED)]


@pytest.mark.parametrize("fifo", [False, True])
async def test_the_longest_wait_is_found_behind_higher_priorities(steps: Steps, fifo: bool) -> None:
    """O7: a job of low priority that starves is seen, however many younger ones stand before it."""
    await configure(steps.db, LaneName("default", "default"), fifo=fifo)
    await steps.submit_one(priority=-5)
    steps.clock.advance(100)
    for priority in (0, 3, 127, -127):
        await steps.submit_one(priority=priority)
    steps.clock.advance(20)

    assert [stats.Wait("default", "default", 120.0)] == await stats.longest_waits(steps.db)


async def test_a_wait_begins_when_the_job_is_due(steps: Steps) -> None:
    """O7: neither the time a job was put off for nor its back-off is waiting; a paused queue does not wait."""
    worker = await steps.worker(lease_s=6000)
    job_id = await steps.submit_one()
    await steps.fail(await steps.claim_one(worker))
    next_run_at = (await steps.get(job_id)).next_run_at
    assert next_run_at is not None
    await steps.advance((next_run_at - steps.clock.now()).total_seconds())
    steps.clock.advance(5)

    waits = await stats.longest_waits(steps.db)
    await pause_queue(steps.db, steps.lanes, LaneName("default", "default"), actor=ANN)

    assert ([5.0], []) == ([wait.waited_s for wait in waits], await stats.longest_waits(steps.db))


async def test_storage_of_a_file(sqlite_url: str, clock: TestClock) -> None:
    """O8: on SQLite the size of the log; there are no dead rows and no snapshots to tell of."""
    db = await open_database(sqlite_url, clock=clock)
    try:
        await Steps(db, clock).submit_one()
        seen = await stats.storage(db)
    finally:
        await db.close()

    assert (None, None) == (seen.dead_rows, seen.oldest_snapshot)
    assert seen.wal_bytes is not None
    assert seen.wal_bytes > 0


async def test_storage_names_who_holds_the_oldest_snapshot(postgres_url: str, clock: TestClock) -> None:
    """O8: on PostgreSQL the dead rows of hot tables, and the connection that keeps vacuum from removing them."""
    db = await open_database(postgres_url, clock=clock)
    try:
        async with connected(postgres_url) as holder:
            await holder.execute("SET application_name = 'report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
            pid = await holder.fetchval("SELECT pg_backend_pid()")
            seen = await stats.storage(db)
            async with asyncio.timeout(PATIENCE_S):
                # An autovacuum that began before has an older one, for a moment.
                while seen.oldest_snapshot is None or pid != seen.oldest_snapshot.pid:
                    seen = await stats.storage(db)
    finally:
        await db.close()

    assert seen.dead_rows is not None
    assert {"queue", "session", "timer"} <= seen.dead_rows.keys()
    assert "report" == seen.oldest_snapshot.application
    assert seen.oldest_snapshot.age_s is not None
    assert seen.oldest_snapshot.age_s >= 0
    assert None is seen.wal_bytes


async def test_a_vacuum_hinders_no_vacuum(fresh_postgres_url: str, clock: TestClock) -> None:
    """O8: a vacuum under way is not named as the holder of the oldest snapshot."""
    db = await open_database(fresh_postgres_url, clock=clock)
    try:
        async with connected(fresh_postgres_url) as vacuuming, connected(fresh_postgres_url) as watching:
            await vacuuming.execute("CREATE TABLE wide AS SELECT repeat('x', 100) FROM generate_series(1, 50000)")
            await vacuuming.execute("SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")
            pid = await vacuuming.fetchval("SELECT pg_backend_pid()")
            under_way = asyncio.create_task(vacuuming.execute("VACUUM wide"))
            while not await watching.fetchval(
                "SELECT 1 FROM pg_stat_progress_vacuum JOIN pg_stat_activity USING (pid)"
                " WHERE pid = $1 AND backend_xmin IS NOT NULL",
                pid,
            ):
                assert not under_way.done()
            seen = await stats.storage(db)
            await watching.execute("SELECT pg_cancel_backend($1)", pid)
            await asyncio.gather(under_way, return_exceptions=True)
    finally:
        await db.close()

    assert seen.oldest_snapshot is None or seen.oldest_snapshot.pid != pid
