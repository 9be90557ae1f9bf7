"""Retention: history is kept for some days, then it goes; live jobs never."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tests.clock import TestClock
from tests.queue.steps import ANN, Steps, job_in
from windlass.db import open_database
from windlass.db.partitions import PARTITIONED
from windlass.errors import NotFound
from windlass.job import State
from windlass.queue.check import check
from windlass.queue.control import pause_job
from windlass.queue.deadletters import retry
from windlass.queue.retention import sweep
from windlass.queue.stats import roll_up


async def days_pass(steps: Steps, count: int, **settings: int) -> None:
    """Let days go by with a sweep on each, as it takes to have partitions ahead."""
    for _ in range(count):
        steps.clock.advance(days=1)
        await sweep(steps.db, **settings)


async def kept(steps: Steps, job_id: UUID) -> bool:
    """Say whether a job can still be read."""
    try:
        await steps.get(job_id)
    except NotFound:
        return False
    return True


def size_of(url: str) -> int:
    """Return the bytes of a SQLite file."""
    return Path(url.removeprefix("sqlite:///").partition("?")[0]).stat().st_size


async def test_history_goes_after_its_days(steps: Steps) -> None:
    """M27, Y5: finished jobs, attempts and events older than `days` are gone; younger ones stay."""
    worker = await steps.worker(lease_s=86_400)
    lease = await steps.lease(worker)
    await steps.fail(lease)
    await steps.cancel(lease.id)
    steps.clock.advance(days=2)
    young = await steps.lease(await steps.worker("bob"))
    await steps.complete(young)

    await sweep(steps.db, days=3)
    all_kept = [await kept(steps, job_id) for job_id in (lease.id, young.id)]
    steps.clock.advance(days=2)
    await sweep(steps.db, days=3)

    assert [True, True] == all_kept
    assert [False, True] == [await kept(steps, job_id) for job_id in (lease.id, young.id)]
    rows = await steps.dump(["done", "attempt", "event"])
    assert [1, 0, 0] == [len(found) for found in rows.values()]


async def test_nothing_goes_before_its_time(steps: Steps) -> None:
    """I25: what is younger than `days` by a moment stays."""
    lease = await steps.lease(await steps.worker())
    await steps.complete(lease)
    steps.clock.advance(days=3, seconds=-1)

    await sweep(steps.db, days=3)

    assert await kept(steps, lease.id)


async def test_no_days_keep_everything(steps: Steps) -> None:
    """M27: 0 = keep."""
    lease = await steps.lease(await steps.worker())
    await steps.complete(lease)

    await days_pass(steps, 12, days=0)

    assert await kept(steps, lease.id)


async def test_live_jobs_are_never_touched(steps: Steps) -> None:
    """Y5, I25: however old, a job that waits or runs stays; only its ended attempts are history."""
    worker = await steps.worker(lease_s=86_400)
    running, held = await steps.running(worker, timeout_s=None), await steps.submit_one("held")
    waiting = await steps.lease(worker, "retry")
    await steps.snooze(waiting, 40 * 86_400)
    await pause_job(steps.db, held, tenant="default", actor=ANN)
    before = await steps.dump(["job", "queue", "timer", "pause"])

    await days_pass(steps, 9, days=1, dead_days=1)

    assert before == await steps.dump(["job", "queue", "timer", "pause"])
    states = [await steps.state_of(job_id) for job_id in (running.id, held, waiting.id)]
    assert [State.RUNNING, State.QUEUED, State.SCHEDULED] == states
    assert State.SUCCEEDED is (await steps.complete(running)).state


async def test_dead_jobs_stay_until_days_are_set_for_them(steps: Steps) -> None:
    """M27: dead jobs are kept until purged, unless `dead_days` is set; then they go after it."""
    lease = await steps.lease(await steps.worker(), max_attempts=1)
    await steps.fail(lease)
    await days_pass(steps, 5, days=1)
    kept_long = await kept(steps, lease.id)

    await sweep(steps.db, days=1, dead_days=6)
    young = await kept(steps, lease.id)
    swept = await sweep(steps.db, days=1, dead_days=4)

    assert (True, True, False) == (kept_long, young, await kept(steps, lease.id))
    assert 1 == swept.rows["forget_dead"]


async def test_a_dead_job_kept_for_long_can_be_retried(steps: Steps) -> None:
    """X6, M27: its first attempts are past retention, its end is not; it runs again."""
    worker = await steps.worker()
    lease = await steps.lease(worker, max_attempts=1)
    await steps.fail(lease)
    await days_pass(steps, 10, days=2)

    await retry(steps.db, [lease.id], tenant="default", actor=ANN)

    again = await steps.claim_one(await steps.worker("bob"))
    assert (lease.id, 2) == (again.id, again.fence)
    assert State.SUCCEEDED is (await steps.complete(again)).state


@pytest.mark.parametrize("end", ["cancelled", "expired"])
async def test_a_job_whose_day_is_half_dropped_can_be_retried(steps: Steps, end: str) -> None:
    """X6: a sweep that was interrupted has dropped a day of attempts and not yet that of the ends; it runs again."""
    job_id = await (job_in(steps, "expired") if end == "expired" else steps.submit_one())
    if end == "cancelled":
        await steps.cancel(job_id)
    steps.clock.advance(days=1)
    if steps.db.capabilities.partitions:
        await steps.db.run("DROP TABLE windlass.attempt_20260101")

    await retry(steps.db, [job_id], tenant="default", actor=ANN)

    assert State.QUEUED is await steps.state_of(job_id)
    assert 1 == len(await steps.attempts(job_id))


async def test_the_old_end_of_a_retried_job_goes_with_its_age(steps: Steps) -> None:
    """M27: the end of a dead job becomes an attempt when it is retried, late and old; it is not kept for it."""
    dead = await steps.lease(await steps.worker(), max_attempts=1)
    await steps.fail(dead)
    await days_pass(steps, 4, days=2)
    young = await steps.lease(await steps.worker("bob"), "other")
    await steps.fail(young)
    await retry(steps.db, [dead.id], tenant="default", actor=ANN)
    before = [len(await steps.attempts(job_id)) for job_id in (dead.id, young.id)]

    await sweep(steps.db, days=2)

    assert [1, 1] == before
    assert [0, 1] == [len(await steps.attempts(job_id)) for job_id in (dead.id, young.id)]


async def test_rows_of_one_instant_go_together(steps: Steps) -> None:
    """M27: where the clock stood still, all that ended in the same instant stays, or all of it goes."""
    worker = await steps.worker()
    for _ in range(7):
        await steps.complete(await steps.lease(worker))
    steps.clock.advance(days=3)
    await sweep(steps.db, days=3, chunk=2)
    stayed = len((await steps.dump(["done"]))["done"])
    steps.clock.advance(days=1)

    await sweep(steps.db, days=3, chunk=2)

    assert (7, 0) == (stayed, len((await steps.dump(["done"]))["done"]))


async def test_the_file_shrinks_after_a_sweep(sqlite_url: str, clock: TestClock) -> None:
    """internals 11: on SQLite the pages of what was swept are given back to the disk, step by step."""
    db = await open_database(sqlite_url, clock=clock)
    try:
        steps = Steps(db, clock)
        worker = await steps.worker()
        await steps.submit(*(steps.job(payload=f'"{"x" * 20_000}"') for _ in range(100)))
        for lease in await steps.claim(worker, 100):
            await steps.complete(lease)
        await db.maintain("PRAGMA wal_checkpoint(PASSIVE)")
        full = size_of(sqlite_url)
        clock.advance(days=2)

        swept = await sweep(db, days=1)

        assert full > 2_000_000
        assert size_of(sqlite_url) < full / 4
        assert swept.pages_given_back > 400
        assert 0 == (await sweep(db, days=1)).pages_given_back
    finally:
        await db.close()


async def test_keys_whose_time_is_over_are_swept(steps: Steps) -> None:
    """M25: an idempotency key lives for its window; one that is unique while live, as long as its job."""
    await steps.submit_one(idempotency_key="day")
    await steps.submit_one(idempotency_key="week", idempotency_ms=7 * 86_400_000)
    await steps.submit_one(unique_key="live")
    await steps.submit_one(unique_key="hour", unique_ms=3_600_000)

    first = await sweep(steps.db)
    steps.clock.advance(days=1)
    second = await sweep(steps.db)

    assert (0, 2) == (first.rows["expire_keys"], second.rows["expire_keys"])
    left = " ".join((await steps.dump(["dedup"]))["dedup"])
    assert all(key in left for key in ("'week'", "'live'"))


async def test_pauses_of_ended_jobs_are_swept(steps: Steps) -> None:
    """A job that ended while paused leaves no pause behind; a live one keeps its own."""
    lease, held = await steps.lease(await steps.worker()), await steps.submit_one("held")
    for job_id in (lease.id, held):
        await pause_job(steps.db, job_id, tenant="default", actor=ANN)
    await steps.complete(lease)

    swept = await sweep(steps.db)

    assert 1 == swept.rows["forget_pauses"]
    assert (await steps.get(held)).paused


async def test_statistics_and_the_record_of_acts_go_with_their_days(steps: Steps) -> None:
    """M27: minutes rolled up and what people did are kept for as long as the history they are of, then go in chunks."""
    schema = "windlass." if steps.db.dialect == "postgres" else ""
    await steps.complete(await steps.lease(await steps.worker(), queue="a"))
    for _ in range(5):
        steps.clock.advance(minutes=1)
        await steps.complete(await steps.lease(await steps.worker(), queue="b"))
        at = steps.clock.now()
        stored = f"'{at.isoformat()}'" if schema else str(int(at.timestamp() * 1_000_000))
        values = f"'{steps.ids.new()}', {stored}, 'default', 'pause', 'b'"
        await steps.db.run(f"INSERT INTO {schema}audit (id, happened_at, tenant, action, subject) VALUES ({values});\n")
    steps.clock.advance(minutes=1)
    await roll_up(steps.db)
    steps.clock.advance(days=2, minutes=-3)

    swept = await sweep(steps.db, days=2, chunk=2)

    assert (3, 2) == (swept.rows["forget_stats"], swept.rows["forget_audit"])
    assert [3, 3] == [len(rows) for rows in (await steps.dump(["stat", "audit"])).values()]


async def test_a_sweep_in_small_chunks_removes_all(steps: Steps) -> None:
    """Deletes come in short transactions, so that nobody waits long."""
    worker = await steps.worker()
    for _ in range(5):
        await steps.fail(await steps.lease(worker, max_attempts=1))
    steps.clock.advance(days=2)

    swept = await sweep(steps.db, dead_days=1, chunk=2)

    assert 5 == swept.rows["forget_dead"]
    assert [] == (await steps.dump(["dead"]))["dead"]


async def test_a_second_sweep_finds_nothing(steps: Steps) -> None:
    """Running it again, here or on another server, is harmless."""
    await steps.complete(await steps.lease(await steps.worker()))
    steps.clock.advance(days=4)
    await sweep(steps.db, days=1)

    again = await sweep(steps.db, days=1)

    assert ([], {}, {0}) == (again.partitions_made, again.partitions_dropped, set(again.rows.values()))


async def test_history_can_be_written_all_the_time(steps: Steps) -> None:
    """internals 12: with a sweep a day there is always a partition ahead for what ends now."""
    for _ in range(12):
        steps.clock.advance(days=1)
        await sweep(steps.db, days=3)
        worker = await steps.worker()
        failed, done = await steps.lease(worker), await steps.lease(worker, "other")
        await steps.fail(failed)
        await steps.cancel(failed.id)
        await steps.complete(done)

    assert await kept(steps, done.id)


async def test_a_database_swept_long_ago_is_opened_and_jobs_end(database_url: str, clock: TestClock) -> None:
    """internals 12: a server that opens it makes the missing days, so that no end of a job is ever refused."""
    clock.advance(days=30)
    db = await open_database(database_url, clock=clock)
    try:
        steps = Steps(db, clock)
        worker = await steps.worker()
        failed, done = await steps.lease(worker), await steps.lease(worker, "other")
        await steps.fail(failed)
        await steps.cancel(failed.id)
        await steps.complete(done)

        assert [State.CANCELLED, State.SUCCEEDED] == [await steps.state_of(lease.id) for lease in (failed, done)]
        assert [] == await check(db)
        assert [] == (await sweep(db)).partitions_made
    finally:
        await db.close()


async def test_a_client_makes_no_partitions(postgres_url: str, clock: TestClock) -> None:
    """Who only reads changes nothing, so that `windlass check` tells what a server would find."""
    clock.advance(days=30)
    db = await open_database(postgres_url, clock=clock, role="client")
    try:
        assert {"partitions"} == {violation.invariant for violation in await check(db)}
    finally:
        await db.close()


@pytest.mark.parametrize("days", [1, 3])
async def test_whole_days_are_dropped_as_partitions(steps: Steps, days: int) -> None:
    """M27: on PostgreSQL days of history are made ahead and dropped whole; SQLite has rows only."""
    steps.clock.advance(days=5)

    swept = await sweep(steps.db, days=days)

    if not steps.db.capabilities.partitions:
        assert ([], {}) == (swept.partitions_made, swept.partitions_dropped)
        return
    # Migrated for 2025-12-31 to 2026-01-08, and for jobs in spans of four days until 2026-01-11; now it is 2026-01-06.
    history = {f"{table}_202601{day:02}" for table in PARTITIONED for day in range(9, 14)}
    assert history | {"job_20260112", "job_20260113"} == set(swept.partitions_made)
    last = 6 - days - 1
    assert ("job_20251231" in swept.partitions_dropped) is (days == 1)
    assert "done_20251231" in swept.partitions_dropped
    assert f"done_202601{last:02}" in swept.partitions_dropped
    assert f"done_202601{last + 1:02}" not in swept.partitions_dropped
