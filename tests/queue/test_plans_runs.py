"""Plans of the history of runs: a page reads what it shows, in a database of 38 days with very many slots and ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from tests.clock import START, TestClock
from tests.databases import Emptied, connected, create, drop
from tests.db.plans import Connection, explained, reading
from tests.queue.test_plans_lists import read_of
from windlass.db import open_database
from windlass.db.partitions import make_days
from windlass.queue import runs
from windlass.queue.newjob import EARLIEST, LATEST

_numbers = itertools.count(1)
DAY = timedelta(days=1)
DAYS = 30
PAGE = 500
SCHEDULE = UUID(int=7)
# A slot a minute of two schedules, each with a job that has succeeded.
FILL = f"""
INSERT INTO windlass.lane (id, tenant, queue, task, labels, key, paused, limited, credit_ms, fifo)
VALUES (9, 'default', 'q', 't', '', '', 0, 0, 0, 0);
INSERT INTO windlass.schedule_runs (schedule_id, slot_at, decision, job_id, term, decided_at, slot_count)
SELECT CAST(lpad(to_hex(s), 32, '0') AS uuid), at, 0, CAST(lpad(to_hex(s * 1000000 + n), 32, '0') AS uuid), 1, at, 1
  FROM (SELECT n, s, CAST('{START.isoformat()}' AS timestamptz) - n * interval '1 minute' AS at
          FROM generate_series(1, {DAYS * 1440}) n, generate_series(7, 8) s) i;
INSERT INTO windlass.job (id, lane, task, payload, priority, max_attempts, max_lost, run, run_at, created_at)
SELECT job_id, 9, 't', 'null', 0, 1, 1, 1, slot_at, slot_at FROM windlass.schedule_runs;
INSERT INTO windlass.done (id, lane, attempt, fence, lost, releases, outcome, started_at, finished_at)
SELECT job_id, 9, 1, 1, 0, 0, 0, slot_at, slot_at + interval '10 seconds' FROM windlass.schedule_runs;
"""


@pytest.fixture(scope="module", params=["never analysed", pytest.param("analysed", marks=pytest.mark.exhaustive)])
def url(request: pytest.FixtureRequest, worker_database: Emptied) -> Iterator[str]:
    """The URL of a database with a month of slots."""
    name = f"{worker_database.name}_runs_{next(_numbers)}"
    asyncio.run(create(worker_database.server, name))
    made_url = worker_database.server.url_of(name)
    asyncio.run(fill(made_url, analysed=request.param == "analysed"))
    yield made_url
    asyncio.run(drop(worker_database.server, name))


async def fill(url: str, *, analysed: bool) -> None:
    """Make the days of a month, and fill them."""
    db = await open_database(url, clock=TestClock())
    for table in ("schedule_runs", "done"):
        await make_days(db, table, [START - day * DAY for day in range(DAYS + 1)])
    await db.close()
    async with connected(url) as connection:
        await connection.execute(FILL)
        if analysed:
            await connection.execute("ANALYZE")


async def ids_before(connection: Connection, below: datetime) -> list[UUID]:
    """Return the jobs of a page of slots."""
    rows = await connection.fetch(
        "SELECT job_id FROM windlass.schedule_runs WHERE schedule_id = $1 AND slot_at < $2"
        " ORDER BY slot_at DESC LIMIT 500",
        SCHEDULE,
        below,
    )
    return [row["job_id"] for row in rows]


@pytest.mark.parametrize("days", [0, 15, 29])
async def test_a_page_of_runs_reads_what_it_shows(url: str, days: int) -> None:
    """T4, P40: 500 slots, and 500 jobs by their ids, wherever in the month they lie."""
    below = START - days * DAY
    span = {"schedule_id": SCHEDULE, "since": START - 40 * DAY, "below": below}
    async with reading(url) as connection:
        page = await explained(connection, runs.SQL.slots, **span, decision=None, examined=runs.EXAMINED, limit=PAGE)
        made = [(job_id, below - 2 * DAY, below + DAY) for job_id in await ids_before(connection, below)]
        jobs = await explained(connection, runs.SQL.jobs_of, jobs=made, longest=1000)

    assert PAGE == page.root["Actual Rows"] == jobs.root["Actual Rows"]
    assert PAGE + 50 >= read_of(page, "schedule_runs")
    assert PAGE == read_of(jobs, "done")


async def test_days_before_a_slot_are_not_looked_at(url: str) -> None:
    """T4: a job did not end before it was made; of the newest slots only the newest days are read."""
    async with reading(url) as connection:
        ids = await ids_before(connection, START)
        [near, any_day] = [
            await explained(connection, runs.SQL.jobs_of, jobs=[(found, *span) for found in ids], longest=1000)
            for span in ((START - DAY, START + DAY), (EARLIEST, LATEST))
        ]

    assert 20 * PAGE >= near.blocks()
    assert 38 * 4 * PAGE >= any_day.blocks()


async def test_a_rare_decision_reads_a_bounded_number_of_slots(url: str) -> None:
    """P40: however many slots there are, a page by decision looks at so many."""
    span = {"schedule_id": SCHEDULE, "since": START - 40 * DAY, "below": START}

    async with reading(url) as connection:
        page = await explained(connection, runs.SQL.slots, **span, decision=6, examined=1000, limit=PAGE)
        last = await explained(connection, runs.SQL.last_examined, **span, examined=999)

    assert 0 == page.root["Actual Rows"]
    assert 1050 >= max(read_of(page, "schedule_runs"), read_of(last, "schedule_runs"))
