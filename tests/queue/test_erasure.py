"""Erasure: everything of a tenant goes, in short transactions, however it is broken off; and all content of a job."""

from __future__ import annotations

import contextlib
import sqlite3

import msgspec
import pytest

from tests.clock import TestClock, no_pause
from tests.queue.planned import MINUTELY, made
from tests.queue.steps import ANN, Steps
from tests.queue.tenantdata import WORD, everything_of, files_with, jobs_of, tables_with
from windlass.db import Database
from windlass.db.sqlite import SqliteDatabase
from windlass.errors import BeingErased, Conflict, NotFound, Unavailable
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import (
    audit,
    checkpoints,
    deadletters,
    erasure,
    firing,
    fleet,
    history,
    keys,
    logs,
    retention,
    tasks,
    tenants,
)
from windlass.queue.lanes import Lanes
from windlass.queue.schedule import Decision, Policy
from windlass.queue.submit import submit_requests

EVERYWHERE = frozenset(
    "attempt audit backfill checkpoint dead dedup done event job key lane log outbox pause schedule session stat "
    "task".split()
)


async def erase(steps: Steps, name: str = "acme") -> erasure.Erasure | None:
    """Erase a tenant to the end."""
    begins, left = await tenants.erase(steps.db, steps.lanes, steps.ids, name, actor="ann")
    assert begins
    return left


async def test_rel_t24_nothing_of_an_erased_tenant_is_left(steps: Steps) -> None:
    """T24: whatever a tenant wrote is in no table afterwards; its neighbour keeps everything."""
    await everything_of(steps, "acme")
    before = await tables_with(steps.db)
    neighbour = await steps.submit_one(tenant="bolt", payload='"kept"')

    left = await erase(steps)

    assert EVERYWHERE == before
    assert left is None
    assert set() == await tables_with(steps.db)
    assert '"kept"' == (await history.get(steps.db, neighbour, tenant="bolt")).payload
    with pytest.raises(NotFound, match="There is no tenant acme"):
        await tenants.get(steps.db, "acme")


async def test_rel_t24_nothing_of_an_erased_tenant_is_left_in_the_file(sqlite_db: Database, clock: TestClock) -> None:
    """T24: neither a page that holds nothing any more nor the write-ahead log has a word of it."""
    steps = Steps(sqlite_db, clock)
    await everything_of(steps, "acme")
    for _ in range(20):
        await steps.submit_one(tenant="acme", payload=f'"{WORD * 2000}"')
    before = files_with(sqlite_db, WORD)

    assert await erase(steps) is None

    assert before
    assert [] == files_with(sqlite_db, WORD)


async def test_rel_t24_nothing_of_an_erased_job_is_left_in_the_files(sqlite_db: Database, clock: TestClock) -> None:
    """T24: pages that its content left when it was claimed, retried and ended are used again by others, without it."""
    steps = Steps(sqlite_db, clock)
    ann = await steps.worker()
    erased = []
    for size in (10, 900, 3000, 9000) * 5:
        lease = await steps.lease(ann, payload=f'"{WORD}{"." * size}{WORD}"')
        await steps.fail(lease, f"{WORD}{'.' * size}", retryable=False)
        erased.append(lease.id)
        await steps.submit_one("other", payload=f'"{"x" * (13_000 - size)}"')

    for job_id in erased:
        await erasure.erase_job(sqlite_db, job_id, tenant="default", actor=ANN)
    before = files_with(sqlite_db, WORD)
    is_done = await erasure.Wipe().run(sqlite_db)

    assert before
    assert is_done
    assert [] == files_with(sqlite_db, WORD)


async def test_rel_t24_an_erasure_is_not_done_while_a_reader_keeps_it_in_the_log(
    sqlite_db: Database, clock: TestClock
) -> None:
    """T24: SQLite keeps the log as long as somebody reads from before; then the erasure of tenant and job says so."""
    assert isinstance(sqlite_db, SqliteDatabase)
    steps, wipe = Steps(sqlite_db, clock), erasure.Wipe()
    job_id = (await jobs_of(steps, "default", "w"))["dead"]
    await everything_of(steps, "acme")
    with contextlib.closing(sqlite3.connect(sqlite_db.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM dead").fetchall()

        held = await erase(steps)
        again = await erasure.go_on(sqlite_db, steps.ids, "acme")
        await erasure.erase_job(sqlite_db, job_id, tenant="default", actor=ANN)
        is_done = await wipe.run(sqlite_db)
        names = await erasure.under_way(sqlite_db, limit=10)
    left = files_with(sqlite_db, WORD)

    assert held is not None
    assert again is not None
    assert (True, True) == (held.waits, again.waits)
    assert ["acme"] == names
    assert (False, True) == (is_done, wipe.is_owed)
    assert left
    assert await erasure.go_on(sqlite_db, steps.ids, "acme") is None
    assert (True, False) == (await wipe.run(sqlite_db), wipe.is_owed)
    assert [] == await erasure.under_way(sqlite_db, limit=10)


async def test_an_erasure_is_told_in_the_audit_without_content(steps: Steps) -> None:
    """T16, T24: who, when and how much stays; acts before it keep the id of their key, and no text."""
    await everything_of(steps, "acme")

    await erase(steps)
    told, act = (await audit.list_entries(steps.db)).entries

    assert ("tenant.erased", "acme", "", "ann") == (told.action, told.subject, told.tenant, told.actor)
    assert {"jobs": 8, "schedules": 1, "others": 8} == msgspec.json.decode(told.became or "")["removed"]
    assert ("queue.pause", "", "acme", None, None, None) == (
        act.action,
        act.subject,
        act.tenant,
        act.reason,
        act.was,
        act.became,
    )
    assert act.actor is not None
    assert 12 == len(act.actor)


async def test_an_erasure_that_is_broken_off_goes_on(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """T24: each transaction removes a bounded part and notes how far it came; another server finishes it."""
    monkeypatch.setattr(erasure, "CHUNK", 2)
    monkeypatch.setattr(erasure, "ROWS", 3)
    await everything_of(steps, "acme")
    await erasure.begin(steps.db, steps.lanes, "acme", actor="ann")

    seen = []
    for _ in range(60):
        left = await erasure.go_on(steps.db, steps.ids, "acme", batches=1)
        if left is None:
            break
        seen.append(left)
        assert left == (await tenants.get(steps.db, "acme")).erasing
        assert ["acme"] == await erasure.under_way(steps.db, limit=10)

    assert left is None
    assert 12 < len(seen)
    assert set() == await tables_with(steps.db)
    assert [] == await erasure.under_way(steps.db, limit=10)


async def test_a_tenant_that_is_being_erased_takes_nothing(steps: Steps) -> None:
    """T24: no job, queue, key or schedule is added, by whichever server; the jobs beside it are stored."""
    await steps.submit_one(tenant="acme")
    remembering = Lanes()
    await remembering.resolve(steps.db, [steps.job(tenant="acme").lane])
    await erasure.begin(steps.db, Lanes(), "acme", actor="ann")

    asked = [[steps.job(tenant="acme")], [steps.job(tenant="bolt")]]
    refused, stored = await submit_requests(steps.db, remembering, asked)
    with pytest.raises(BeingErased, match="Tenant acme is being erased"):
        await keys.create(steps.db, keys.NewKey(name="k", scopes=frozenset({"read"}), tenant="acme"))
    with pytest.raises(BeingErased):
        await made(steps, tenant="acme")
    with pytest.raises(BeingErased):
        await tenants.delete(steps.db, Lanes(), Ids(steps.db.now), "acme", pause=no_pause)

    assert isinstance(refused, BeingErased)
    assert isinstance(stored, list)
    assert not await erasure.begin(steps.db, Lanes(), "acme", actor="bob")


async def test_a_schedule_of_a_tenant_that_is_being_erased_makes_no_job(steps: Steps) -> None:
    """T24: a server that remembers its lanes is told so; the slots of others are fired."""
    await made(steps, tenant="acme", trigger=MINUTELY, policy=Policy(overlap="allow"))
    steps.clock.advance(minutes=1)
    await firing.fire(steps.db, steps.lanes, steps.ids)
    await erasure.begin(steps.db, Lanes(), "acme", actor="ann")
    await made(steps, "kept", tenant="bolt", trigger=MINUTELY)

    steps.clock.advance(minutes=1)
    with pytest.raises(Unavailable, match="Lanes of a deleted tenant were remembered"):
        await firing.fire(steps.db, steps.lanes, steps.ids)
    fired = await firing.fire(steps.db, steps.lanes, steps.ids)

    assert {Decision.FIRED: 1} == {kind: count for kind, count in fired.counts.items() if kind is Decision.FIRED}
    assert 1 == fired.made


async def test_a_name_that_was_erased_begins_anew(steps: Steps) -> None:
    """M1: the next owner of the name has other lanes, also by a server that remembers the old ones.

    Nobody becomes the next owner by use: a caller of the old one may have been let in before its key was removed.
    """
    old = steps.job(tenant="acme")
    await steps.submit(old)
    before = await steps.lanes.resolve(steps.db, [old.lane])
    await tenants.erase(steps.db, Lanes(), steps.ids, "acme", actor="ann")
    with pytest.raises(BeingErased, match="Tenant acme was erased"):
        await steps.submit_one(tenant="acme")

    made_again = await tenants.create(steps.db, "acme", pause=no_pause)
    job_id = await steps.submit_one(tenant="acme")
    after = await steps.lanes.resolve(steps.db, [old.lane])

    assert made_again == await tenants.get(steps.db, "acme")
    assert before[old.lane].id != after[old.lane].id
    assert job_id == (await steps.claim_one(await steps.worker(tenant="acme"), tenant="acme")).id
    with pytest.raises(NotFound):
        await history.get(steps.db, old.id, tenant="acme")


async def test_what_came_after_an_erasure_is_not_the_next_owners(steps: Steps) -> None:
    """M1: a worker whose key was still believed registers once more; the next owner of the name sees nothing of it."""
    await steps.submit_one(tenant="acme")
    await tenants.erase(steps.db, Lanes(), steps.ids, "acme", actor="ann")
    await steps.worker("late-worker", tenant="acme")
    await tasks.publish(steps.db, "acme", {"mail": "{}"})

    await tenants.create(steps.db, "acme", pause=no_pause)

    assert [] == (await fleet.list_workers(steps.db, "acme")).workers
    assert [] == (await tasks.list_tasks(steps.db, "acme")).tasks


async def test_a_worker_of_an_erased_tenant_loses_its_leases(steps: Steps) -> None:
    """T24: its heartbeat is told that they are lost, and its report that there is no such job."""
    ann = await steps.worker(tenant="acme")
    lease = await steps.running(ann, tenant="acme")

    await erasure.begin(steps.db, steps.lanes, "acme", actor="ann")
    assert await erasure.go_on(steps.db, steps.ids, "acme") is None

    answer = await steps.beat(ann, lease, started=True)
    assert (False, [lease.id]) == (answer.alive, answer.lost)
    assert "unknown" == (await steps.complete(lease)).status


async def test_the_default_tenant_and_an_unknown_one_are_not_erased(steps: Steps) -> None:
    """P39: callers that name no tenant need theirs."""
    with pytest.raises(Conflict, match="Tenant default cannot be deleted"):
        await tenants.erase(steps.db, Lanes(), steps.ids, "default", actor="ann")
    with pytest.raises(NotFound, match="There is no tenant nobody"):
        await tenants.erase(steps.db, Lanes(), steps.ids, "nobody", actor="ann")


@pytest.mark.parametrize("end", ["succeeded", "dead", "cancelled"])
async def test_rel_t24_nothing_of_an_erased_job_is_left_but_its_story(steps: Steps, end: str) -> None:
    """T24: no text of the job, its attempts and its log is left; its id, its state and its times are."""
    found = await jobs_of(steps, "default", "w")
    job_id = found[end]
    was = await history.get(steps.db, job_id, tenant="default")

    steps.clock.advance(60)
    done = await erasure.erase_job(steps.db, job_id, tenant="default", actor=ANN)
    again = await erasure.erase_job(steps.db, job_id, tenant="default", actor=ANN)

    report = await history.report(steps.db, job_id, tenant="default")
    kept = (report.job.state, report.job.created_at, report.job.started_at, report.job.finished_at)
    assert (was.state, was.created_at, was.started_at, was.finished_at) == kept
    assert erasure.Erased(job_id, steps.clock.now()) == done
    assert erasure.Erased(job_id, done.erased_at, already=True) == again
    told = msgspec.structs.replace(report.job, queue="", labels="")
    assert WORD not in repr((told, report.attempts.items, [event.detail for event in report.timeline.items]))
    assert [("erased", ANN.name, ANN.reason)] == [
        (event.kind, event.actor, event.detail)
        for event in report.timeline.items
        if event.happened_at == done.erased_at
    ]
    assert [] == (await logs.read(steps.db, job_id)).lines
    assert {} == await checkpoints.find(steps.db, [job_id])


@pytest.mark.parametrize("where", ["queued", "timed", "leased", "retry"])
async def test_a_live_job_is_not_erased(steps: Steps, where: str) -> None:
    """T24: it would run without its arguments."""
    job_id = (await jobs_of(steps, "default", "w"))[where]

    with pytest.raises(Conflict, match=f"Cannot erase job {job_id}: it is .*Cancel it first, or wait for its end"):
        await erasure.erase_job(steps.db, job_id, tenant="default", actor=ANN)

    assert WORD in (await steps.get(job_id)).payload


async def test_another_tenants_job_is_not_erased(steps: Steps) -> None:
    """T5: it is like one that never was."""
    job_id = (await jobs_of(steps, "default", "w"))["dead"]

    with pytest.raises(NotFound, match=f"There is no job {job_id}"):
        await erasure.erase_job(steps.db, job_id, tenant="acme", actor=ANN)

    assert WORD in (await steps.get(job_id)).payload


async def test_an_erased_job_never_runs_again(steps: Steps) -> None:
    """T24: neither by retry nor by replay, nor with other arguments."""
    job_id = (await jobs_of(steps, "default", "w"))["dead"]
    await erasure.erase_job(steps.db, job_id, tenant="default", actor=ANN)

    [retried] = await deadletters.retry(steps.db, [job_id], tenant="default", actor=ANN, payload="1")
    with pytest.raises(Conflict, match=f"Cannot replay job {job_id}: its content was erased. Submit a new job"):
        await deadletters.replay(steps.db, steps.lanes, steps.ids, job_id, tenant="default", actor=ANN, payload="1")

    assert isinstance(retried, Conflict)
    assert f"Cannot retry job {job_id}: its content was erased. Submit a new job." == str(retried)
    assert State.DEAD is await steps.state_of(job_id)


async def test_that_a_job_was_erased_is_known_as_long_as_the_job_is(steps: Steps) -> None:
    """A mark without its job is of no use."""
    job_id = (await jobs_of(steps, "default", "w"))["dead"]
    await erasure.erase_job(steps.db, job_id, tenant="default", actor=ANN)

    await retention.sweep(steps.db)
    kept = await erasure.erased_among(steps.db, [job_id])
    await deadletters.purge(steps.db, [job_id], tenant="default")
    await retention.sweep(steps.db)

    assert {job_id} == kept.keys()
    assert {} == await erasure.erased_among(steps.db, [job_id])


async def test_the_name_of_an_erased_tenant_is_forgotten_after_a_day(steps: Steps) -> None:
    """T24: with what a caller that was let in before has left since; then first use makes it again."""
    await tenants.create(steps.db, "acme", pause=no_pause)
    await tenants.erase(steps.db, Lanes(), steps.ids, "acme", actor="ann")
    await steps.worker(tenant="acme", host=WORD)

    await retention.sweep(steps.db)
    left = await tables_with(steps.db)
    steps.clock.advance(days=2)
    await retention.sweep(steps.db)

    assert {"session"} == left
    assert set() == await tables_with(steps.db)
    await steps.submit_one(tenant="acme")
    assert "acme" == (await tenants.get(steps.db, "acme")).name
