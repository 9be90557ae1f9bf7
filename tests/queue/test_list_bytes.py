"""Lists end where an answer is full: what is not shown is not read, and the next page goes on there."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.clock import no_pause
from tests.queue.planned import planned
from tests.queue.steps import ANN, Steps
from windlass.db import Query, Row
from windlass.ids import Ids
from windlass.queue import audit, fleet, history, logs, recurring, schedules, tasks, tenants, views
from windlass.queue.control import Actor, cancel, pause_job
from windlass.queue.deadletters import retry
from windlass.queue.history import AttemptFilter, Filter, find_attempts

TEXT = 1000
"""Bytes of what the tests write."""
MOST = 3500
"""What a list may show here: three such texts, and no fourth."""
JOBS = 8


class Weighed:
    """A database that counts what it hands out."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.octets = 0
        """Of texts in rows, in all statements since it was last set to 0."""
        self.asked: set[str] = set()
        """The names of all queries."""

    async def fetch(self, query: Query, /, **parameters: Any) -> list[Row]:
        """Run a query and weigh its rows."""
        rows: list[Row] = await self._inner.fetch(query, **parameters)
        self.asked.add(query.name)
        self.octets += sum(len(value) for row in rows for value in row.values() if isinstance(value, str | bytes))
        return rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def weighed(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> Weighed:
    """The database, with lists that are full early."""
    monkeypatch.setattr(views, "LIST_BYTES", MOST)
    return Weighed(steps.db)


def payload() -> str:
    """Return arguments of a known size."""
    return '"' + "x" * (TEXT - 2) + '"'


async def walk(
    weighed: Weighed, page: Callable[[Any], Awaitable[tuple[list[Any], Any]]]
) -> tuple[list[Any], list[int]]:
    """Return all that the pages of a list show, and how many bytes were read for each page."""
    found: list[Any] = []
    read: list[int] = []
    cursor = None
    while True:
        weighed.octets = 0
        items, cursor = await page(cursor)
        found += items
        read.append(weighed.octets)
        if cursor is None:
            return found, read
        assert len(read) < 50


def attempts_of(
    weighed: Weighed, job_id: UUID, *, limit: int
) -> Callable[[Any], Awaitable[tuple[list[history.Attempt], Any]]]:
    """Return what reads a page of the attempts of a job."""

    async def page(cursor: history.AttemptPlace | None) -> tuple[list[history.Attempt], Any]:
        after = cursor or history.BEFORE_ALL
        found = await history.attempts(weighed, job_id, tenant="default", after=after, limit=limit)
        assert limit >= len(found.items)
        return found.items, found.next_cursor

    return page


async def finished(steps: Steps, count: int, end: str) -> list[UUID]:
    """Let some jobs with long texts end, and return their ids."""
    worker = await steps.worker(lease_s=6000)
    ids = []
    for _ in range(count):
        lease = await steps.lease(worker, payload=payload())
        await (steps.complete(lease) if end == "done" else steps.fail(lease, retryable=False))
        ids.append(lease.id)
    return ids


@pytest.mark.parametrize("place", ["queued", "scheduled", "done", "dead"])
async def test_a_list_of_jobs_reads_what_it_shows(steps: Steps, weighed: Weighed, place: str) -> None:
    """H4: no more than an answer holds and one job; live jobs are read once; pages together are complete."""
    if place in ("done", "dead"):
        ids = await finished(steps, JOBS, place)
    else:
        delay_ms = 60_000 if place == "scheduled" else None
        ids = [await steps.submit_one(payload=payload(), delay_ms=delay_ms) for _ in range(JOBS)]

    async def page(cursor: UUID | None) -> tuple[list[Any], UUID | None]:
        found = await history.find(weighed, Filter(tenant="default"), limit=500, cursor=cursor)
        return found.jobs, found.next_cursor

    found, read = await walk(weighed, page)

    assert ids[::-1] == [job.id for job in found]
    assert (3, True) == (len(read), all(octets < MOST + TEXT for octets in read))


async def test_one_job_that_fills_an_answer_is_shown(steps: Steps, weighed: Weighed) -> None:
    """H4: a page shows one job at least, or a list would never go on."""
    ids = [await steps.submit_one(payload='"' + "x" * 2 * MOST + '"') for _ in range(2)]

    first = await history.find(steps.db, Filter(tenant="default"))

    assert (ids[1:], ids[1]) == ([job.id for job in first.jobs], first.next_cursor)


async def test_a_list_with_schedules_reads_what_it_shows(steps: Steps, weighed: Weighed) -> None:
    """H4: jobs and schedules share one answer, newest first."""
    ids = []
    for number in range(4):
        ids.append(await steps.submit_one(payload=payload()))
        [stored] = await schedules.create(steps.db, [planned(steps, f"s{number}", payload=payload())])
        ids.append(stored.id)

    async def page(cursor: UUID | None) -> tuple[list[Any], UUID | None]:
        found = await recurring.find(weighed, Filter(tenant="default"), limit=500, cursor=cursor)
        return found.jobs, found.next_cursor

    found, read = await walk(weighed, page)

    assert sorted(ids, reverse=True) == [job.id for job in found]
    assert (3, True) == (len(read), all(octets < MOST + 2 * TEXT for octets in read))


async def test_a_list_of_schedules_reads_what_it_shows(steps: Steps, weighed: Weighed) -> None:
    """H4: payloads of schedules count as those of jobs do."""
    names = [f"s{number}" for number in range(JOBS)]
    await schedules.create(steps.db, [planned(steps, name, payload=payload()) for name in names])

    async def page(cursor: str | None) -> tuple[list[Any], str | None]:
        found = await schedules.find(weighed, "default", limit=500, cursor=cursor)
        return found.schedules, found.next_cursor

    found, read = await walk(weighed, page)

    assert names == [schedule.definition.name for schedule in found]
    assert (3, True) == (len(read), all(octets < MOST + 2 * TEXT for octets in read))


@pytest.mark.parametrize("end", ["goes on", "dead"])
async def test_attempts_of_all_jobs_are_read_as_they_are_shown(steps: Steps, weighed: Weighed, end: str) -> None:
    """H5: errors and traces end a page where it is full."""
    worker = await steps.worker(lease_s=6000)
    ids = []
    for _ in range(JOBS):
        lease = await steps.lease(worker)
        await steps.fail(lease, error="e" * 400, traceback="t" * 600, retryable=end == "goes on")
        ids.append(lease.id)
        steps.clock.advance(1)

    async def page(cursor: Any) -> tuple[list[Any], Any]:
        found = await find_attempts(weighed, AttemptFilter(tenant="default"), limit=500, cursor=cursor)
        return found.attempts, found.next_cursor

    found, read = await walk(weighed, page)

    assert ids[::-1] == [listed.attempt.job_id for listed in found]
    assert (3, True) == (len(read), all(octets < MOST + TEXT for octets in read))


async def test_attempts_of_a_job_come_in_pages(steps: Steps, weighed: Weighed) -> None:
    """H5: by their number and by their bytes, in the order they were claimed."""
    worker = await steps.worker(lease_s=86_000)
    job_id = await steps.submit_one(max_attempts=JOBS + 1)
    for _ in range(JOBS):
        await steps.fail(await steps.claim_one(worker), error="e" * 400, traceback="t" * 600)
        await steps.advance(hours=12)

    found, read = await walk(weighed, attempts_of(weighed, job_id, limit=500))
    by_two, _ = await walk(weighed, attempts_of(weighed, job_id, limit=2))

    assert list(range(1, JOBS + 1)) == [attempt.fence for attempt in found] == [attempt.fence for attempt in by_two]
    assert (3, True) == (len(read), all(octets < MOST + TEXT for octets in read))


@pytest.mark.parametrize("claimed", [0, 1])
async def test_ends_without_a_claim_come_in_pages(steps: Steps, weighed: Weighed, claimed: int) -> None:
    """H5: all have the fence of the claim before; a page has no more of them than it may, and each is shown once."""
    worker = await steps.worker(lease_s=86_000)
    job_id = await steps.submit_one(max_attempts=3)
    for _ in range(claimed):
        await steps.fail(await steps.claim_one(worker))
    for _ in range(JOBS):
        await cancel(steps.db, [job_id], tenant="default", actor=Actor("ann", "r" * TEXT))
        await retry(steps.db, [job_id], tenant="default", actor=ANN)
    await steps.fail(await steps.claim_one(worker))

    by_bytes, read = await walk(weighed, attempts_of(weighed, job_id, limit=500))
    by_five, read_by_five = await walk(weighed, attempts_of(weighed, job_id, limit=5))

    order = [1, *[1] * JOBS, 2] if claimed else [*[0] * JOBS, 1]
    assert order == [attempt.fence for attempt in by_bytes]
    assert by_bytes == by_five
    assert len(order) == len({(attempt.run, attempt.session is None) for attempt in by_bytes})
    assert (3, True) == (len(read), all(octets < MOST + TEXT for octets in read))
    assert len(read_by_five) > 1


async def test_a_report_is_bounded_and_says_where_to_go_on(steps: Steps, weighed: Weighed) -> None:
    """H5: waits are of all attempts, also of those that it does not show."""
    worker = await steps.worker(lease_s=86_000)
    job_id = await steps.submit_one(max_attempts=JOBS + 1)
    for _ in range(JOBS):
        lease = await steps.claim_one(worker)
        await steps.beat(worker, lease, started=True)
        steps.clock.advance(5)
        await steps.fail(lease, error="e" * 400, traceback="t" * 600)
        await steps.advance(hours=12)

    told = await history.report(steps.db, job_id, tenant="default")

    assert [1, 2, 3] == [attempt.fence for attempt in told.attempts.items]
    assert history.AttemptPlace(3, told.job.run, 0) == told.attempts.next_cursor
    assert JOBS * 5000 == told.waits.running_ms


async def test_events_tell_the_beginning_of_an_error_and_come_in_pages(steps: Steps) -> None:
    """H5: the whole error is with its attempt; what happened is told in order, also over pages."""
    worker = await steps.worker(lease_s=86_000)
    job_id = await steps.submit_one(max_attempts=3)
    since = steps.clock.now()
    for _ in range(2):
        await steps.fail(await steps.claim_one(worker), error="e" * 5000)
        await steps.advance(hours=12)

    whole = await history.timeline(steps.db, job_id, tenant="default")
    pages: list[history.Slice[history.Event, int]] = []
    skip = 0
    while not pages or pages[-1].next_cursor is not None:
        pages.append(await history.timeline(steps.db, job_id, tenant="default", skip=skip, limit=2))
        skip = pages[-1].next_cursor or 0
    told = await history.events_since(steps.db, "default", since=since)

    assert whole.items == [event for page in pages for event in page.items]
    assert (True, None) == (len(pages) > 2, whole.next_cursor)
    details = {event.detail for event in whole.items if event.kind == "failed"}
    assert details == {event.detail for event in told if event.kind == "failed"}
    assert [views.LONGEST_DETAIL] == [len(detail or "") for detail in details]


async def test_an_audit_reads_what_it_shows(steps: Steps, weighed: Weighed) -> None:
    """H4: what was and what became end a page where it is full."""
    ids = Ids(steps.db.now)
    await tenants.create(steps.db, "acme", pause=no_pause)
    written = [
        await audit.record(steps.db, ids, audit.Entry(action="a.b", subject="s", tenant="acme", was=payload()))
        for _ in range(JOBS)
    ]

    async def page(cursor: UUID | None) -> tuple[list[Any], UUID | None]:
        found = await audit.list_entries(weighed, "acme", limit=500, cursor=cursor)
        return found.entries, found.next_cursor

    found, read = await walk(weighed, page)

    assert written[::-1] == [entry.id for entry in found]
    assert (3, True) == (len(read), all(octets < MOST + TEXT for octets in read))


async def test_workers_are_read_as_they_are_shown(steps: Steps, weighed: Weighed) -> None:
    """H4: what workers say that they can run ends a page where it is full."""
    names = [f"w{number}" for number in range(JOBS)]
    for name in names:
        await steps.worker(name, tasks="t" * TEXT)

    async def page(cursor: str | None) -> tuple[list[Any], str | None]:
        found = await fleet.list_workers(weighed, "default", limit=500, cursor=cursor)
        return found.workers, found.next_cursor

    found, read = await walk(weighed, page)

    assert names == [worker.worker for worker in found]
    assert (3, True) == (len(read), all(octets < MOST + TEXT for octets in read))


async def test_workers_are_all_shown_where_their_texts_are_not(steps: Steps, weighed: Weighed) -> None:
    """H4: a list of statuses is not cut by texts that it does not show, and does not read them."""
    names = [f"w{number}" for number in range(JOBS)]
    for name in names:
        await steps.worker(name, tasks="t" * TEXT)

    page = await fleet.list_workers(weighed, "default", limit=500, with_texts=False)

    assert (names, None) == ([worker.worker for worker in page.workers], page.next_cursor)
    assert weighed.octets < TEXT


async def test_a_list_of_workers_holds_few_texts(tmp_path: Path) -> None:
    """H4: SQLite reads the sizes first, so the texts of workers that are not shown are not in memory together."""
    command = (sys.executable, "-m", "tests.queue.heap_process", str(tmp_path / "windlass.db"))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    said, failed = await process.communicate()

    assert (b"1\n", b"", 0) == (said, failed, process.returncode)


async def test_tasks_are_read_as_they_are_shown(
    steps: Steps, weighed: Weighed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4: signatures end a page where it is full; of one task the newest builds are shown."""
    monkeypatch.setattr(tasks, "MAX_BUILDS", 2)
    names = [f"t{number}" for number in range(4)]
    for build in range(3):
        text = '{"b":"' + str(build) + "x" * TEXT + '"}'
        await tasks.publish(steps.db, "default", dict.fromkeys(names, text))
        steps.clock.advance(minutes=2)

    async def page(cursor: str | None) -> tuple[list[Any], str | None]:
        found = await tasks.list_tasks(weighed, "default", limit=500, cursor=cursor)
        return found.tasks, found.next_cursor

    found, read = await walk(weighed, page)

    assert names == [task.name for task in found]
    assert {("2", "1")} == {tuple(text[6] for text in task.signatures) for task in found}
    assert (4, True) == (len(read), all(octets < MOST + TEXT for octets in read))


async def test_a_log_reads_the_chunks_that_it_shows(
    steps: Steps, weighed: Weighed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4: chunks are read up to a page's bytes, and the one that is beyond with the next."""
    monkeypatch.setattr(logs, "PAGE_BYTES", MOST)
    lease = await steps.running(await steps.worker())
    for seq in range(JOBS):
        line = logs.Line(steps.clock.now(), "".join(chr(33 + (seq * 7 + n * n) % 90) for n in range(TEXT)))
        chunk = logs.Chunk(job_id=lease.id, fence=lease.fence, worker="ann", seq=seq, lines=[line])
        await logs.keep(steps.db, [chunk])

    async def page(cursor: Any) -> tuple[list[Any], Any]:
        found = await logs.read(weighed, lease.id, after=cursor or (0, 0, 0))
        return found.lines, found.following

    found, read = await walk(weighed, page)

    assert list(range(JOBS)) == [written.seq for written in found]
    assert all(octets < MOST + 2 * TEXT for octets in read)


async def test_a_count_is_the_same_whatever_others_have(steps: Steps) -> None:
    """M2: only the tenant's own jobs are looked at, so that others' change neither the number nor that it is exact."""
    states: list[dict[str, Any]] = [{}, {"delay_ms": 60_000}]
    for state in states:
        for tenant, count in (("acme", 6), ("default", 2)):
            for _ in range(count):
                await steps.submit_one(tenant=tenant, **state)

    async def counted(tenant: str) -> tuple[int, bool]:
        found = await history.count(steps.db, Filter(tenant=tenant), examined=4)
        return found.jobs, found.exact

    assert [(4, True), (8, False)] == [await counted("default"), await counted("acme")]


@pytest.mark.parametrize("state", ["queued", "held", "running", "scheduled"])
async def test_a_rare_tenant_finds_its_live_jobs_by_its_lanes(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """M5: a list looks at a bounded number of others' live jobs, and its pages are complete all the same."""
    monkeypatch.setattr(history, "EXAMINED", 3)
    monkeypatch.setattr(history, "FEW_ROWS", 1)
    delay: dict[str, Any] = {"delay_ms": 60_000} if state == "scheduled" else {}
    mine = [await steps.submit_one(**delay) for _ in range(2)]
    if state == "held":
        for job_id in mine:
            await pause_job(steps.db, job_id, tenant="default", actor=ANN)
    if state == "running":
        worker = await steps.worker()
        for _ in mine:
            await steps.claim_one(worker)
    for _ in range(8):
        await steps.submit_one(tenant="acme", **delay)

    found = await history.find(steps.db, Filter(tenant="default"), limit=10)

    assert (mine[::-1], None) == ([job.id for job in found.jobs], found.next_cursor)


async def test_a_tenant_with_few_jobs_pays_for_no_others(steps: Steps, weighed: Weighed) -> None:
    """M5: its list is complete without a look at what other tenants have; one that has more looks at all."""
    mine = [await steps.submit_one() for _ in range(2)]
    await steps.submit_one(tenant="acme")

    found = await history.find(weighed, Filter(tenant="default"), limit=10)

    assert (mine[::-1], None) == ([job.id for job in found.jobs], found.next_cursor)
    assert not {name for name in weighed.asked if name.startswith(("floor_", "list_"))}
