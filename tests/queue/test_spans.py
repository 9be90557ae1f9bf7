"""Spans: partitions of `job` on PostgreSQL are made ahead and dropped when old; a job that is needed outlives them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

import windlass.db.spans
from tests.ahead import make_ahead
from tests.clock import START, TestClock
from tests.databases import connected
from tests.queue.steps import ANN, Steps
from windlass.config import Settings
from windlass.db import Database, Query, open_database
from windlass.db.spans import drop_spans, make_spans, reach, span_days
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.errors import NotFound
from windlass.ids import ms_of
from windlass.job import State
from windlass.queue import deadletters, history
from windlass.queue.check import check
from windlass.queue.control import pause_job
from windlass.queue.newjob import NewJob
from windlass.queue.retention import sweep

DAYS = 7
Made = Callable[[Steps], Awaitable[UUID]]


@pytest.fixture
def steps(postgres_db: Database, clock: TestClock) -> Steps:
    """Steps on PostgreSQL, which alone has partitions."""
    return Steps(postgres_db, clock)


async def waiting(steps: Steps) -> UUID:
    """Return a job that nobody claims."""
    return await steps.submit_one("nobody", payload='"kept"')


async def held(steps: Steps) -> UUID:
    """Return a job that is paused."""
    job_id = await waiting(steps)
    await pause_job(steps.db, job_id, tenant="default", actor=ANN)
    return job_id


async def running(steps: Steps) -> UUID:
    """Return a job whose worker never lets it go."""
    return (await steps.running(await steps.worker(lease_s=86_400), payload='"kept"')).id


async def timed(steps: Steps) -> UUID:
    """Return a job that is due in a year."""
    return await steps.submit_one(payload='"kept"', delay_ms=365 * 86_400_000)


async def dead(steps: Steps) -> UUID:
    """Return a job that died, of those that are kept."""
    lease = await steps.lease(await steps.worker(), payload='"kept"')
    await steps.fail(lease, retryable=False)
    return lease.id


async def cancelled_late(steps: Steps) -> UUID:
    """Return a job that waited for long and ended lately."""
    job_id = await waiting(steps)
    for _ in range(8):
        await a_day(steps)
    await steps.cancel(job_id)
    return job_id


async def done(steps: Steps) -> UUID:
    """Return a job that has succeeded."""
    lease = await steps.lease(await steps.worker(), payload='"gone"')
    await steps.complete(lease)
    return lease.id


async def a_day(steps: Steps, *, days: int = DAYS) -> None:
    """Let a day go by, with the sweep of that day."""
    steps.clock.advance(days=1)
    await sweep(steps.db, days=days)


async def spans(db: Database) -> list[str]:
    """Return the names of the partitions of `job`."""
    text = "SELECT CAST(inhrelid::regclass AS text) AS name FROM pg_inherits WHERE inhparent = 'windlass.job'::regclass"
    return sorted(row["name"].removeprefix("windlass.") for row in await db.fetch(Query("spans", "Spans.", text, "")))


async def rows_of(db: Database, job_id: UUID) -> int:
    """Return how many rows of `job` a job has."""
    text = "SELECT count(*) AS rows FROM windlass.job WHERE id = :id"
    [row] = await db.fetch(Query("rows", "Its rows.", text, ""), id=job_id)
    found: int = row["rows"]
    return found


@pytest.mark.parametrize("make", [waiting, held, running, timed, dead], ids=lambda make: make.__name__)
async def test_a_job_that_is_needed_outlives_its_span(steps: Steps, make: Made) -> None:
    """M27: whatever lives or is dead is as it was when everything of its time has gone; `check` is content each day."""
    job_id = await make(steps)
    before, at_first = await steps.get(job_id), await spans(steps.db)

    for _ in range(20):
        await a_day(steps)
        assert [] == await check(steps.db)

    assert set() == {*at_first} & {*(await spans(steps.db))} - {"job_old"}
    assert before == await steps.get(job_id)
    assert 1 == await rows_of(steps.db, job_id)


async def test_a_job_that_ended_lately_outlives_its_span(steps: Steps) -> None:
    """M27: history is kept by the day a job ended, however long ago it was submitted; then its row goes too."""
    job_id = await cancelled_late(steps)
    for _ in range(DAYS):
        await a_day(steps)
    assert (State.CANCELLED, '"kept"') == ((await steps.get(job_id)).state, (await steps.get(job_id)).payload)

    for _ in range(3):
        await a_day(steps)

    with pytest.raises(NotFound):
        await steps.get(job_id)
    assert 0 == await rows_of(steps.db, job_id)
    assert [] == await check(steps.db)


async def test_what_has_ended_goes_with_its_span(steps: Steps) -> None:
    """M27: the row of a job that was done goes whole, with the partition it lies in."""
    job_id = await done(steps)

    for _ in range(DAYS + 6):
        await a_day(steps)

    assert 0 == await rows_of(steps.db, job_id)


async def test_the_dead_of_an_old_span_run_again(steps: Steps) -> None:
    """A9: a dead job whose time has gone is retried and done like any other."""
    job_id = await dead(steps)
    for _ in range(20):
        await a_day(steps)

    await deadletters.retry(steps.db, [job_id], tenant="default", actor=ANN)
    lease = await steps.claim_one(await steps.worker())
    await steps.complete(lease)

    assert (job_id, '"kept"', 2) == (lease.id, lease.payload, lease.fence)
    assert State.SUCCEEDED is await steps.state_of(job_id)


async def test_jobs_of_an_old_span_are_listed(steps: Steps) -> None:
    """M5: a list finds what lies in an old span as what lies in the newest one."""
    old = [await make(steps) for make in (waiting, timed, dead)]
    for _ in range(20):
        await a_day(steps)
    young = await waiting(steps)

    page = await history.find(steps.db, history.Filter(tenant="default"))

    assert {young, *old} == {job.id for job in page.jobs}


@pytest.mark.parametrize(("bound", "most"), [("MOST_STRAGGLERS", 3), ("MOST_BYTES", 20)])
async def test_a_span_with_very_many_stragglers_stays(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    """M27: what would take too long to move stays where it is, and takes in the few of the spans after it."""
    many = [await waiting(steps) for _ in range(4)]
    ended = await done(steps)
    later = []
    for _ in range(3):
        steps.clock.advance(days=4)
        await make_ahead(steps.db)
        later.append(await waiting(steps))
    steps.clock.advance(days=DAYS)
    await make_ahead(steps.db)
    monkeypatch.setattr(windlass.db.spans, bound, most)

    swept = await sweep(steps.db, days=DAYS)

    assert "job_20251231" not in swept.partitions_dropped
    assert {"job_20260104", "job_20260108"} <= set(swept.partitions_dropped)
    assert {"job_old", "job_20251231"} <= set(await spans(steps.db))
    assert 1 == swept.rows["forget_jobs"]  # what has ended there goes by itself
    assert [*[1] * 7, 0] == [await rows_of(steps.db, job_id) for job_id in [*many, *later, ended]]
    monkeypatch.undo()
    assert "job_20251231" in (await drop_spans(steps.db, days=DAYS)).row_estimates
    assert [1] * 7 == [await rows_of(steps.db, job_id) for job_id in [*many, *later]]


async def test_a_reader_puts_it_off(steps: Steps, postgres_url: str) -> None:
    """M27: nobody is kept waiting behind a removal that cannot have its lock: it is left to the next run."""
    job_id = await timed(steps)
    steps.clock.advance(days=20)
    await make_ahead(steps.db)
    async with connected(postgres_url) as reader, reader.transaction():
        await reader.fetch("SELECT count(*) FROM windlass.job")
        meanwhile = (await drop_spans(steps.db, days=DAYS)).row_estimates
        as_before = await rows_of(steps.db, job_id)

    assert ({}, 1) == (meanwhile, as_before)
    assert "job_20251231" in (await drop_spans(steps.db, days=DAYS)).row_estimates
    assert 1 == await rows_of(steps.db, job_id)


async def test_a_gap_between_spans_is_told(fresh_postgres_url: str, clock: TestClock) -> None:
    """`check` names what no removal leaves: jobs of that time could be neither stored nor found."""
    db = await open_database(fresh_postgres_url, clock=clock)
    try:
        await db.run("ALTER TABLE windlass.job DETACH PARTITION windlass.job_20260104")

        assert ["job_20260108"] == [found.subject for found in await check(db)]
    finally:
        await db.close()


@pytest.mark.parametrize(("days", "length"), [(1, 1), (7, 1), (8, 1), (30, 4), (365, 46)])
async def test_a_span_is_an_eighth_of_the_retention(steps: Steps, days: int, length: int) -> None:
    """Few partitions, for a statement that joins `job` opens all of them."""
    assert length == span_days(days)
    until = await reach(steps.db)
    steps.clock.advance(days=4)

    [first, *_] = await make_spans(steps.db, days=span_days(days))

    assert f"job_{until:%Y%m%d}" == first
    assert 0 == (await reach(steps.db) - until).days % length


async def test_history_that_is_kept_for_ever_has_few_spans(steps: Steps) -> None:
    """Nothing is dropped then: spans grow with the age of the history, a month at least."""
    lengths = []
    for _ in range(122):
        steps.clock.advance(days=30)
        before = await reach(steps.db)
        if await make_spans(steps.db, days=span_days(0)):
            lengths.append((await reach(steps.db) - before).days)

    assert lengths[0] >= 30
    assert lengths[-1] > 365
    assert 20 >= len(await spans(steps.db))


async def test_a_database_that_slept_for_long_gets_one_span_for_it(steps: Steps) -> None:
    """A month without servers makes no partitions that nobody will write to."""
    until = await reach(steps.db)
    steps.clock.advance(days=100)

    made = await make_spans(steps.db)

    today = START.date() + timedelta(days=100)
    four, eight = today + timedelta(days=4), today + timedelta(days=8)
    assert [f"job_{day:%Y%m%d}" for day in (until, today, four)] == made
    assert eight == await reach(steps.db)


async def test_too_many_spans_are_told(steps: Steps) -> None:
    """`check` says what keeps them, and what helps."""
    for _ in range(20):
        steps.clock.advance(days=1)
        await make_spans(steps.db, days=1)

    found = [violation for violation in await check(steps.db) if violation.subject == "job"]

    assert ["partitions"] == [violation.invariant for violation in found]
    assert "purge dead jobs, or keep history for less long" in found[0].detail


@pytest.mark.parametrize("off", [timedelta(days=-365), timedelta(days=365)], ids=["a year slow", "a year fast"])
async def test_a_server_whose_clock_is_a_year_off(fresh_postgres_url: str, off: timedelta) -> None:
    """An id tells the database's time, whatever the server thinks it is: nothing is refused, nothing is lost."""
    ours = datetime.now(UTC)
    async with connected(fresh_postgres_url) as owner:
        name = await owner.fetchval("SELECT current_database()")
        shift = START - off - ours
        await owner.execute(f"""ALTER DATABASE "{name}" SET windlass.clock_shift = '{shift.total_seconds()} s'""")
    db = await open_database(fresh_postgres_url)
    try:
        engine = Engine(db, Settings(), name="s", outside=Outside())
        theirs = db.now()
        async with engine.running(claims=False):
            [stored] = await engine.submit([NewJob(id=engine.ids.new(), task="t")])

        told = datetime.fromtimestamp(ms_of(stored.id) / 1000, UTC)
        assert abs(theirs - (START - off)) < timedelta(minutes=10)
        assert theirs <= told + timedelta(milliseconds=1) < theirs + timedelta(minutes=10)
        assert State.QUEUED is (await history.get(db, stored.id, tenant="default")).state
        assert [] == await check(db)
    finally:
        await db.close()
