"""Outbox: what an application says in its own transaction is done once after its commit, and never after a rollback."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from tests.ahead import make_ahead
from tests.clock import TestClock
from tests.queue import said
from tests.queue.said import Told, relay
from tests.queue.steps import ANN, Steps
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.relay import SOON_COUNT, SOON_S, job_of
from windlass.errors import JobFinished, TooMany, WindlassError
from windlass.ids import first_id_at
from windlass.job import State
from windlass.queue import control, outbox
from windlass.queue import submit as submitting
from windlass.queue.check import check
from windlass.queue.defaults import FIELDS, opened
from windlass.queue.lanes import Lanes
from windlass.queue.report import Status
from windlass.queue.workers import Beat, Held, heartbeat


class Changed(Exception):
    """The application changes its mind."""


async def ids_of(steps: Steps) -> list[UUID]:
    """Return the jobs that wait in the default queue, in the order in which they are handed out."""
    return [lease.id for lease in await steps.claim(await steps.worker(), 10)]


async def test_a_committed_row_becomes_a_job_with_its_id(db: Database, steps: Steps) -> None:
    """S11: the id that the application was given is the job's; nothing is left of the row."""
    job_id = await said.enqueue(db, "mail", '{"to": "ann"}', queue="post", priority=5, tags=["a"], max_attempts=7)

    assert 1 == (await relay(db)).items

    job = await steps.get(job_id)
    assert ("mail", '{"to": "ann"}', "post", 5, 7) == (job.task, job.payload, job.queue, job.priority, job.max_attempts)
    assert [] == await said.left(db)


async def test_a_job_without_payload_has_null(db: Database, steps: Steps) -> None:
    """An absent payload is null, as over HTTP."""
    job_id = await said.enqueue(db)

    await relay(db)

    assert "null" == (await steps.get(job_id)).payload


async def test_a_rolled_back_row_never_was(db: Database, steps: Steps) -> None:
    """S11: an application that rolls back has enqueued nothing."""
    with suppress(Changed):
        async with db.transaction() as transaction:
            await said.enqueue(transaction)
            raise Changed

    assert 0 == (await relay(db)).items
    assert [] == await ids_of(steps)


async def test_an_open_row_is_not_seen(postgres_db: Database, clock: TestClock) -> None:
    """S11: what is not committed yet is not done; what is, is."""
    async with postgres_db.transaction() as transaction:
        await said.enqueue(transaction)
        before = (await relay(postgres_db)).items

    assert (0, 1) == (before, (await relay(postgres_db)).items)


async def test_jobs_of_one_transaction_keep_their_order(postgres_db: Database, clock: TestClock) -> None:
    """Ids rise within a transaction, so jobs that it enqueued one after the other are handed out like that."""
    steps = Steps(postgres_db, clock)
    async with postgres_db.transaction() as transaction:
        written = [await said.enqueue(transaction) for _ in range(10)]

    await relay(postgres_db, most=3)
    for _ in range(3):
        await relay(postgres_db, most=3)

    assert written == sorted(written)
    assert written == await ids_of(steps)


async def test_who_waits_is_told(db: Database, steps: Steps) -> None:
    """A relayed job wakes its claimers, as one that came over HTTP."""
    job_id = await said.enqueue(db)
    told = Told()

    await relay(db, told)

    assert [(job_id, State.QUEUED)] == [(job.id, job.state) for job in told.stored]


async def test_a_full_batch_is_followed_by_another_at_once(db: Database, steps: Steps) -> None:
    """While rows are left the relay does not rest."""
    for _ in range(3):
        await said.enqueue(db)

    first, second = await relay(db, most=2), await relay(db, most=2)

    assert (2, 0.0) == (first.items, first.next_s)
    assert (1, SOON_S) == (second.items, second.next_s)


async def test_a_relay_looks_often_while_rows_come(db: Database, steps: Steps) -> None:
    """Nobody tells it of a commit: it looks again soon after a row, and more seldom when none has come for a while."""
    made = said.relay_of()
    await said.enqueue(db)

    pauses = [(await made.run(db, 500)).next_s for _ in range(SOON_COUNT + 2)]

    assert [SOON_S] * SOON_COUNT == pauses[:SOON_COUNT]
    assert SOON_S not in pauses[SOON_COUNT:]


async def test_rows_that_a_rival_has_are_not_asked_for_without_a_pause(
    db: Database, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full batch of which nothing could be taken is looked at again after the usual time."""
    await said.enqueue(db)

    async def none(*_: object) -> set[UUID]:
        return set()

    monkeypatch.setattr("windlass.queue.outbox._take", none)
    ran = await relay(db, most=1)

    assert (0, None) == (ran.items, ran.next_s)


@pytest.mark.parametrize("write", [str.upper, lambda text: text.replace("-", "")], ids=["upper case", "no dashes"])
async def test_an_id_may_be_spelt_in_any_way(sqlite_db: Database, clock: TestClock, write: Any) -> None:
    """S11: one row is one job and the row is gone, however another program writes UUIDs; written again it is known."""
    steps, row = Steps(sqlite_db, clock), said.IDS.new()
    for spelling in (write(str(row)), str(row), write(str(row))):
        await sqlite_db.fetch(said.SAY["raw"], name=spelling, kind="enqueue", task="mail", payload=None)
        await relay(sqlite_db)

    assert [] == await said.left(sqlite_db)
    assert [row] == await ids_of(steps)


async def test_two_spellings_of_one_id_are_one_job(sqlite_db: Database, clock: TestClock) -> None:
    """S11: also when both are read at once."""
    steps, row = Steps(sqlite_db, clock), said.IDS.new()
    for spelling in (str(row), row.hex):
        await sqlite_db.fetch(said.SAY["raw"], name=spelling, kind="enqueue", task="mail", payload=None)

    await relay(sqlite_db)
    await relay(sqlite_db)

    assert [] == await said.left(sqlite_db)
    assert [row] == await ids_of(steps)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"name": "order-7"}, "'order-7' is no UUID"),
        ({"name": str(said.IDS.new()), "kind": "other"}, "'other'"),
        ({"name": str(said.IDS.new()), "payload": b'"\xff"'}, "codec can't decode"),
    ],
    ids=["no UUID", "unknown kind", "no UTF-8"],
)
@pytest.mark.breaks_rows
async def test_a_row_that_cannot_be_read_is_set_aside(
    sqlite_db: Database, clock: TestClock, row: dict[str, Any], problem: str
) -> None:
    """S11: whatever another program wrote into the file: it is kept with its error, and the others become jobs."""
    await said.write(sqlite_db, **row)
    good = await said.enqueue(sqlite_db)

    await relay(sqlite_db)

    [(kept, error)] = await said.left(sqlite_db)
    assert row["name"] == kept
    assert problem in error
    assert State.QUEUED is await Steps(sqlite_db, clock).state_of(good)


@pytest.mark.parametrize(
    ("name", "kind"), [("order-7", "enqueue"), (f"{'0' * 31}g", "enqueue"), ("0" * 33, "enqueue"), ("0" * 32, "other")]
)
async def test_what_can_be_no_row_is_refused_by_the_table(sqlite_db: Database, name: str, kind: str) -> None:
    """The application's own statement fails, while somebody is there to hear of it."""
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        await sqlite_db.fetch(said.SAY["raw"], name=name, kind=kind, task="mail", payload=None)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ('{"priority": "high"}', "priority"),
        ('{"priority": 1000}', "priority"),
        ('{"colour": "red"}', "colour"),
        ('{"concurrency_key": "k"}', "concurrency_key: it would limit nothing yet. Leave it out"),
        ('{"delay": "soon"}', "delay"),
        ("[1]", "options"),
        ("{", "options"),
        ('{"queue": "a/b"}', "queue"),
        ('{"retry_policy": {"base": -1}}', "base"),
    ],
)
@pytest.mark.breaks_rows
async def test_a_row_that_cannot_be_a_job_is_set_aside(db: Database, steps: Steps, options: str, problem: str) -> None:
    """S11: it stays with its error, for people to see, and keeps no other row waiting."""
    bad = said.IDS.new()
    await said.put(db, bad, options=options)
    good = await said.enqueue(db)

    await relay(db)

    [(kept, error)] = await said.left(db)
    assert str(bad) == kept
    assert problem in error
    assert State.QUEUED is await steps.state_of(good)
    assert 0 == (await relay(db)).items
    assert [] == await db.fetch(outbox.SQL.waiting, limit=10)  # it is not even looked at again


@pytest.mark.parametrize(
    ("ahead", "problem"),
    [
        (None, "Its id is no UUIDv7"),
        (timedelta(days=8), "that is 8 days, 0:00:00 ahead of the database's clock"),
        (timedelta(days=365), "Set it right, then give the row a new UUIDv7"),
    ],
    ids=["no UUIDv7", "a week ahead", "a year ahead"],
)
@pytest.mark.breaks_rows
async def test_an_id_that_no_job_can_have_is_set_aside(
    db: Database, steps: Steps, ahead: timedelta | None, problem: str
) -> None:
    """S11: whose clock is wrong, or who makes other ids, is told what to do; the others become jobs."""
    bad = uuid4() if ahead is None else first_id_at(steps.clock.now() + ahead)
    await said.put(db, bad)
    good = await said.enqueue(db)

    await relay(db)

    [(kept, error)] = await said.left(db)
    assert str(bad) == kept
    assert problem in error
    assert State.QUEUED is await steps.state_of(good)


@pytest.mark.parametrize("off", [timedelta(days=-20_000), timedelta(days=-400), timedelta(days=6)])
async def test_an_id_of_another_time_is_the_jobs(db: Database, steps: Steps, off: timedelta) -> None:
    """S11: a row that was written long ago, or by a clock that is some days ahead, is a job like any other."""
    job_id = first_id_at(steps.clock.now() + off)
    await said.put(db, job_id, payload="1")

    await relay(db)
    [lease] = await steps.claim(await steps.worker())
    await steps.complete(lease)

    assert job_id == lease.id
    assert State.SUCCEEDED is await steps.state_of(job_id)


@pytest.mark.breaks_rows
async def test_an_id_for_which_there_is_no_partition_yet_waits_aside(postgres_db: Database, clock: TestClock) -> None:
    """S11: where no server has made the days ahead, one row must not keep the others: it is stored when they are."""
    steps = Steps(postgres_db, clock)
    clock.advance(days=5)
    early = first_id_at(clock.now() + timedelta(days=6))
    await said.put(postgres_db, early)
    good = await said.enqueue(postgres_db)

    await relay(postgres_db)
    [(kept, _)] = await said.left(postgres_db)
    await make_ahead(postgres_db)
    await postgres_db.run("UPDATE windlass.outbox SET error = NULL")
    await relay(postgres_db)

    assert str(early) == kept
    assert [State.QUEUED] * 2 == [await steps.state_of(job_id) for job_id in (good, early)]


@pytest.mark.breaks_rows
async def test_what_was_set_aside_is_shown_by_check(db: Database, steps: Steps) -> None:
    """`windlass check` names the row, why, and what to do."""
    row = said.IDS.new()
    await said.put(db, row, options='{"colour": 1}')
    await relay(db)

    [violation] = [v for v in await check(db) if v.subject == str(row)]

    assert "outbox" == violation.invariant
    assert "colour" in violation.detail


@pytest.mark.breaks_rows
async def test_a_key_used_for_other_work_is_set_aside(db: Database, steps: Steps) -> None:
    """A user's idempotency key is kept to over the outbox too: other content is refused, the same is the same job."""
    await steps.submit_one(idempotency_key="k", payload="1", defaults=opened(*FIELDS))
    await said.enqueue(db, payload="1", idempotency_key="k")
    other = await said.enqueue(db, payload="2", idempotency_key="k")

    await relay(db)

    [(kept, error)] = await said.left(db)
    assert str(other) == kept
    assert "'k'" in error
    assert 1 == len(await ids_of(steps))


async def test_a_row_kept_out_by_a_cap_is_tried_again(
    db: Database, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be stored now is put off, and stored when there is room."""
    job_id = await said.enqueue(db)

    async def full(*_: object, **__: object) -> list[WindlassError]:
        return [TooMany("Too many lanes.")]

    with monkeypatch.context() as patch:
        patch.setattr("windlass.engine.relay.submit_requests", full)
        await relay(db)
    too_early = (await relay(db)).items
    steps.clock.advance(11)
    await relay(db)

    assert 0 == too_early
    assert State.QUEUED is await steps.state_of(job_id)


@pytest.mark.breaks_rows
async def test_a_batch_with_a_row_that_breaks_the_statement_is_halved(
    db: Database, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that fails for a reason nobody foresaw takes no neighbour with it."""
    jobs = [await said.enqueue(db, "mail" if number != 2 else "cursed") for number in range(5)]
    real = submitting.submit_requests

    async def cursed(db: Any, lanes: Any, requests: Any, **rest: Any) -> Any:
        if any(job.task == "cursed" for request in requests for job in request):
            raise RuntimeError("no")
        return await real(db, lanes, requests, **rest)

    with monkeypatch.context() as patch:
        patch.setattr("windlass.engine.relay.submit_requests", cursed)
        await relay(db)

    [(kept, error)] = await said.left(db)
    assert str(jobs[2]) == kept
    assert error
    assert sorted(jobs[:2] + jobs[3:]) == await ids_of(steps)


async def test_a_row_whose_id_was_a_job_before_is_done_once(db: Database, steps: Steps) -> None:
    """The row's id names the work: written again, while its job lives or after its end, it makes no second one."""
    row = said.IDS.new()
    await said.put(db, row)
    await relay(db)
    await said.put(db, row)
    await relay(db)
    await steps.complete(await steps.claim_one(await steps.worker()))

    await said.put(db, row)
    await relay(db)

    assert State.SUCCEEDED is await steps.state_of(row)
    assert [] == await said.left(db)


async def test_a_payload_over_the_setting_is_set_aside(sqlite_db: Database, clock: TestClock) -> None:
    """The limit of the settings holds here too."""
    settings = Settings()
    await said.enqueue(sqlite_db, payload='"' + "x" * settings.jobs.max_payload_bytes + '"')

    await relay(sqlite_db, settings=settings)

    [(_, error)] = await said.left(sqlite_db)
    assert "payload" in error


async def test_a_finish_ends_its_job_with_its_result(db: Database, steps: Steps) -> None:
    """R13: after the relay the job has succeeded as by a report: result, attempt, worker, and the waiters are woken."""
    lease = await steps.running(await steps.worker(), unique_key="u")
    await said.finish(db, lease.id, lease.fence, result='{"n": 1}')
    told = Told()

    await relay(db, told)

    job = await steps.get(lease.id)
    assert (State.SUCCEEDED, '{"n": 1}') == (job.state, job.result)
    assert ["ann"] == [attempt.worker for attempt in await steps.attempts(lease.id)]
    assert ([lease.id], [lease.lane]) == (told.ends, told.freed_lanes)
    assert lease.id != await steps.submit_one(unique_key="u")


async def test_a_finish_that_waits_is_still_running(db: Database, steps: Steps) -> None:
    """Between the commit and the relay the job shows the state it had, and every invariant holds."""
    worker = await steps.worker()
    told, untold = await steps.running(worker), await steps.lease(worker)
    for lease in (told, untold):
        await said.finish(db, lease.id, lease.fence)

    states = [await steps.state_of(lease.id) for lease in (told, untold)]

    assert [State.RUNNING, State.ASSIGNED] == states
    assert [] == await check(db)


async def test_the_body_of_a_finished_job_may_go_on(db: Database, steps: Steps) -> None:
    """Its lease is not lost to anybody, before the relay and after it: heartbeats that name it do not stop the body."""
    worker = await steps.worker()
    lease, other = await steps.running(worker), await steps.running(worker)
    await said.finish(db, lease.id, lease.fence)
    held = [Held(lease.id, lease.fence, True), Held(other.id, other.fence, True)]

    [waiting] = await heartbeat(db, [Beat(lease.session, held)])
    await relay(db)
    [ended] = await heartbeat(db, [Beat(lease.session, held)])
    [stale] = await heartbeat(db, [Beat(lease.session, [Held(lease.id, 9)], whole=False)])
    [foreign] = await heartbeat(db, [Beat((await steps.worker("bob")).session, held[:1])])

    assert ([], [], [lease.id], [lease.id]) == (waiting.lost, ended.lost, stale.lost, foreign.lost)


async def test_rel_r13_rescue_leaves_a_finished_job_alone(db: Database, steps: Steps) -> None:
    """R13: its worker may die after the commit: the work is done, and nobody gets the job again."""
    lease = await steps.running(await steps.worker())
    await said.finish(db, lease.id, lease.fence)

    rescued = await steps.rescue(120)
    await relay(db)

    assert [] == rescued.moved
    assert State.SUCCEEDED is await steps.state_of(lease.id)


async def test_a_finished_job_cannot_be_cancelled(db: Database, steps: Steps) -> None:
    """Its end is decided: cancel and change are told so, pause and resume do not bring it back."""
    lease = await steps.running(await steps.worker())
    await said.finish(db, lease.id, lease.fence)

    answer = await steps.cancel(lease.id)
    with pytest.raises(JobFinished):
        await control.change(db, Lanes(), lease.id, tenant="default", actor=ANN, priority=3)
    await control.pause_job(db, lease.id, tenant="default", actor=ANN)
    await control.resume_job(db, lease.id, tenant="default", actor=ANN)

    assert isinstance(answer, JobFinished)
    assert [] == await ids_of(steps)
    await relay(db)
    assert State.SUCCEEDED is await steps.state_of(lease.id)


async def test_a_job_told_to_cancel_may_still_be_finished(db: Database, steps: Steps) -> None:
    """As with a report: the work was done before its task heard of the cancel."""
    lease = await steps.running(await steps.worker())
    await steps.cancel(lease.id)
    await said.finish(db, lease.id, lease.fence)

    steps.clock.advance(3600)
    await relay(db)

    assert State.SUCCEEDED is await steps.state_of(lease.id)


async def test_the_report_of_a_finished_attempt_was_applied_already(db: Database, steps: Steps) -> None:
    """Before the relay and after it the worker's own report is answered as a repeated one; a failure is stale."""
    lease = await steps.running(await steps.worker())
    await said.finish(db, lease.id, lease.fence, result="1")

    before = await steps.complete(lease, result="2")
    failed = await steps.fail(lease)
    await relay(db)
    after = await steps.complete(lease, result="2")

    assert (Status.ALREADY, State.SUCCEEDED) == (before.status, before.state)
    assert (Status.STALE, Status.ALREADY) == (failed.status, after.status)
    assert "1" == (await steps.get(lease.id)).result


async def test_a_rolled_back_finish_leaves_the_lease(db: Database, steps: Steps) -> None:
    """R13: nothing of it is left, and the worker's report is applied."""
    lease = await steps.running(await steps.worker())
    with suppress(Changed):
        async with db.transaction() as transaction:
            await said.finish(transaction, lease.id, lease.fence)
            raise Changed

    await relay(db)

    assert Status.APPLIED is (await steps.complete(lease)).status


@pytest.mark.breaks_rows
async def test_a_finish_that_breaks_the_statement_keeps_no_other_waiting(
    db: Database, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails for a reason nobody foresaw is found by halves and set aside; the others end their jobs."""
    worker = await steps.worker()
    leases = [await steps.running(worker) for _ in range(3)]
    for lease in leases:
        await said.finish(db, lease.id, lease.fence)
    real = outbox.end_finished

    async def cursed(db: Any, rows: Any) -> Any:
        if any(row.id == leases[1].id for row in rows):
            raise RuntimeError("no")
        return await real(db, rows)

    with monkeypatch.context() as patch:
        patch.setattr("windlass.queue.outbox.end_finished", cursed)
        await relay(db)

    assert [str(leases[1].id)] == [name for name, error in await said.left(db) if error]
    assert [State.SUCCEEDED] * 2 == [await steps.state_of(lease.id) for lease in (leases[0], leases[2])]


async def test_a_finish_that_names_no_lease_is_dropped(sqlite_db: Database, clock: TestClock) -> None:
    """Only whoever writes past the function can make one; it ends nothing and blocks nobody."""
    steps = Steps(sqlite_db, clock)
    lease = await steps.running(await steps.worker())
    await said.finish(sqlite_db, lease.id, lease.fence + 1)
    told = Told()

    await relay(sqlite_db, told)

    assert ([], []) == (told.moved, await said.left(sqlite_db))
    assert State.RUNNING is await steps.state_of(lease.id)


async def test_a_span_to_start_within_counts_from_the_row(db: Database, steps: Steps) -> None:
    """A row that waited longer than its span expires; the same key with the same words is the same job, however old."""
    options = {"start_within": "1m", "idempotency_key": "k"}
    row = await said.enqueue(db, "mail", **options)
    again = await said.enqueue(db, "mail", **options)
    waiting = next(found for found in (await outbox.waiting(db))[0] if found.id == row)
    job = job_of(msgspec.structs.replace(waiting, age_ms=40_000), Settings())

    await submitting.submit(db, Lanes(), [job])
    await relay(db)

    assert steps.clock.now() + timedelta(seconds=20) == (await steps.get(row)).start_by
    assert [] == await said.left(db), again
