"""Tenants: made by name or by first use, listed, and deleted when nothing of theirs is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.clock import TestClock, no_pause
from tests.queue.planned import made
from tests.queue.steps import ANN, Steps
from tests.queue.tenantdata import OUTBOX
from tests.sqltext import parse
from windlass.db import Database, Query
from windlass.errors import AlreadyExists, Conflict, Contention, InvalidInput, NotFound
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import (
    audit,
    deadletters,
    erasure,
    fleet,
    history,
    keys,
    queues,
    retention,
    scheduledits,
    stats,
    tasks,
)
from windlass.queue import tenants as module
from windlass.queue.control import pause_queue, pause_tenant, resume_tenant
from windlass.queue.lanes import Lane, LaneName, Lanes, configure
from windlass.queue.tenants import MOST_COUNTED, Tenant, create, get, list_tenants

MAIL = LaneName("acme", "default", "mail")
WITHOUT_JOBS = parse(
    """
-- name: without_jobs
-- Remove all live jobs and leave their attempts.
-- postgres
WITH j AS (DELETE FROM job) DELETE FROM timer
-- sqlite
DELETE FROM job; DELETE FROM timer
""",
    origin=__file__,
)["without_jobs"]


async def names(db: Database) -> list[str]:
    """Return the names of all tenants."""
    return [tenant.name for tenant in (await list_tenants(db)).tenants]


async def delete(db: Database, lanes: Lanes, name: str) -> None:
    """Delete a tenant; who would have to be waited for is looked for without a pause."""
    await module.delete(db, lanes, Ids(db.now), name, pause=no_pause)


async def test_a_tenant_is_made_once(db: Database, clock: TestClock) -> None:
    """P39: a second one of the same name is refused, and the first keeps its time."""
    made = await create(db, "acme", pause=no_pause)
    clock.advance(60)

    with pytest.raises(AlreadyExists, match="There is a tenant acme already"):
        await create(db, "acme", pause=no_pause)

    assert Tenant("acme", clock.now().replace(minute=clock.now().minute - 1)) == made == await get(db, "acme")


@pytest.mark.parametrize("name", ["", "a/b", "a,b", "a\x00", "x" * 201])
async def test_a_tenant_has_a_name(db: Database, name: str) -> None:
    """Names are bounded as those of queues are."""
    with pytest.raises(InvalidInput, match="tenant"):
        await create(db, name, pause=no_pause)

    assert ["default"] == await names(db)


async def test_an_unknown_tenant_is_not_found(db: Database) -> None:
    """P39: it can neither be read nor deleted."""
    with pytest.raises(NotFound, match="There is no tenant nobody"):
        await get(db, "nobody")
    with pytest.raises(NotFound, match="There is no tenant nobody"):
        await delete(db, Lanes(), "nobody")


async def test_tenants_are_listed_in_pages_by_name(steps: Steps) -> None:
    """N2: `default` is there from the start; those made by first use are listed too."""
    await create(steps.db, "acme", pause=no_pause)
    await steps.submit_one(tenant="bolt")
    await create(steps.db, "zoo", pause=no_pause)

    first = await list_tenants(steps.db, limit=2)
    second = await list_tenants(steps.db, limit=2, cursor=first.next_cursor)

    assert ["acme", "bolt"] == [tenant.name for tenant in first.tenants]
    assert ["default", "zoo"] == [tenant.name for tenant in second.tenants]
    assert ("bolt", None) == (first.next_cursor, second.next_cursor)


async def test_the_default_tenant_stays(db: Database) -> None:
    """N2: callers that name no tenant are in `default`."""
    with pytest.raises(Conflict, match="Tenant default cannot be deleted"):
        await delete(db, Lanes(), "default")

    assert ["default"] == await names(db)


async def test_a_tenant_without_anything_is_deleted(steps: Steps) -> None:
    """P39: also one that has queues, if no job is in them; other tenants and their keys stay."""
    await create(steps.db, "acme", pause=no_pause)
    await create(steps.db, "acme2", pause=no_pause)
    await keys.create(steps.db, keys.NewKey(name="k", scopes=frozenset({"read"}), tenant="acme2"))
    await steps.lanes.resolve(steps.db, [MAIL])

    await delete(steps.db, steps.lanes, "acme")

    assert ["acme2", "default"] == await names(steps.db)
    assert ["acme2"] == [key.tenant for key in (await keys.list_keys(steps.db)).keys]


@pytest.mark.parametrize("where", ["queued", "scheduled", "assigned"])
async def test_a_tenant_with_live_jobs_stays(steps: Steps, where: str) -> None:
    """P39: whoever waits or runs is counted in the refusal."""
    if where == "assigned":
        await steps.lease(await steps.worker(tenant="acme"), tenant="acme")
    else:
        await steps.submit_one(tenant="acme", delay_ms=60_000 if where == "scheduled" else None)

    with pytest.raises(Conflict, match="it has 1 live jobs, 0 finished jobs, 0 schedules and 0 keys"):
        await delete(steps.db, steps.lanes, "acme")

    assert ["acme", "default"] == await names(steps.db)


@pytest.mark.parametrize("end", ["succeeded", "dead"])
async def test_a_tenant_with_history_stays_until_retention(steps: Steps, end: str) -> None:
    """P39: finished jobs can be read as long as they are kept; afterwards nothing holds the tenant."""
    lease = await steps.lease(await steps.worker(tenant="acme"), tenant="acme")
    await (steps.complete(lease) if end == "succeeded" else steps.fail(lease, retryable=False))

    with pytest.raises(Conflict, match="it has 0 live jobs, 1 finished jobs, 0 schedules and 0 keys"):
        await delete(steps.db, steps.lanes, "acme")
    steps.clock.advance(days=40)
    await retention.sweep(steps.db, days=30, dead_days=30)
    await delete(steps.db, steps.lanes, "acme")

    assert ["default"] == await names(steps.db)


async def test_a_tenant_with_schedules_stays(steps: Steps) -> None:
    """P39: they make jobs of it; deleted, nothing holds it."""
    was = await made(steps, tenant="acme")

    with pytest.raises(Conflict, match="it has 0 live jobs, 0 finished jobs, 1 schedules and 0 keys"):
        await delete(steps.db, steps.lanes, "acme")
    await scheduledits.delete(steps.db, was.id, tenant="acme", actor=ANN)
    await delete(steps.db, steps.lanes, "acme")

    assert ["default"] == await names(steps.db)


async def test_a_tenant_with_keys_stays_until_they_are_over(db: Database, clock: TestClock) -> None:
    """P39: a key that may be used is in use; a revoked or expired one goes with its tenant."""
    await create(db, "acme", pause=no_pause)
    reader = keys.NewKey(name="k", scopes=frozenset({"read"}), tenant="acme")
    key, _ = await keys.create(db, reader)
    await keys.create(db, keys.NewKey(name="k", scopes=frozenset({"read"}), tenant="acme", expires_at=clock.now()))

    with pytest.raises(Conflict, match="0 live jobs, 0 finished jobs, 0 schedules and 1 keys"):
        await delete(db, Lanes(), "acme")
    await keys.revoke(db, key.id)
    await delete(db, Lanes(), "acme")

    assert ["default"] == await names(db)
    assert [] == (await keys.list_keys(db)).keys


@pytest.mark.parametrize("end", ["revoke", "expiry", "erasure"])
async def test_rel_t3_a_name_is_given_again_when_no_key_of_it_is_believed(
    db: Database, clock: TestClock, end: str
) -> None:
    """M1: a server believes a key for two seconds after its end, and must let nobody in to the next owner's jobs."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    await create(db, "acme", pause=pause)
    reader = keys.NewKey(name="k", scopes=frozenset({"read"}), tenant="acme")
    key, _ = await keys.create(db, msgspec.structs.replace(reader, expires_at=clock.now() + timedelta(seconds=60)))
    if end == "revoke":
        await keys.revoke(db, key.id)
    elif end == "expiry":
        clock.advance(60)
    else:
        await module.erase(db, Lanes(), Ids(db.now), "acme", actor="root")

    clock.advance(1)
    if end != "erasure":
        await module.delete(db, Lanes(), Ids(db.now), "acme", pause=pause)
    await create(db, "acme", pause=pause)
    await module.delete(db, Lanes(), Ids(db.now), "acme", pause=pause)

    assert [keys.FORGOTTEN_S - 1] == pauses


async def test_a_key_that_ends_while_its_tenant_is_deleted_keeps_it(db: Database, clock: TestClock) -> None:
    """M1: it is believed for a while, and the delete waited for others only. A refused create waits for none."""
    await create(db, "acme", pause=no_pause)
    reader = keys.NewKey(name="k", scopes=frozenset({"read"}), tenant="acme")

    async def give_and_revoke(_seconds: float) -> None:
        clock.advance(1)
        key, _ = await keys.create(db, msgspec.structs.replace(reader, expires_at=None))
        await keys.revoke(db, key.id)

    async def never(_seconds: float) -> None:
        raise AssertionError

    await give_and_revoke(0)
    with pytest.raises(AlreadyExists):
        await create(db, "acme", pause=never)
    with pytest.raises(Conflict, match="a key of it has just ended"):
        await module.delete(db, Lanes(), Ids(db.now), "acme", pause=give_and_revoke)


async def test_a_key_revoked_after_a_delete_began_to_look_counts(db: Database, clock: TestClock) -> None:
    """M1: a transaction that has waited for a lock has an older now than the revoke that it waited for."""
    await create(db, "acme", pause=no_pause)
    key, _ = await keys.create(db, keys.NewKey(name="k", scopes=frozenset({"read"}), tenant="acme"))
    clock.advance(1)
    revoked = await keys.revoke(db, key.id)
    clock.advance(-1)

    ended_at, left_s = await keys.last_end(db, "acme")

    assert revoked.revoked_at == ended_at
    assert left_s >= keys.FORGOTTEN_S


async def test_a_name_is_not_given_again_beside_the_end_of_its_erasure(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M1: the look found an erasure under way, which has no end yet to wait for; a moment later it has."""
    await create(db, "acme", pause=no_pause)
    await erasure.begin(db, Lanes(), "acme", actor="root")
    look = keys.last_end

    async def look_too_soon(db: Database, name: str) -> tuple[datetime | None, float]:
        monkeypatch.setattr(keys, "last_end", look)
        found = await look(db, name)
        assert await erasure.go_on(db, Ids(db.now), name) is None
        return found

    monkeypatch.setattr(keys, "last_end", look_too_soon)

    with pytest.raises(Contention, match="erased this moment"):
        await create(db, "acme", pause=no_pause)


async def test_many_jobs_are_not_counted_to_the_end(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal tells about how much is there, and costs no more than that."""
    monkeypatch.setattr("windlass.queue.tenants.MOST_COUNTED", 2)
    await steps.submit(*(steps.job(tenant="acme") for _ in range(4)))

    with pytest.raises(Conflict, match="it has more than 2 live jobs"):
        await delete(steps.db, steps.lanes, "acme")

    assert 1000 == MOST_COUNTED


async def test_first_use_brings_a_deleted_tenant_back(steps: Steps) -> None:
    """The server that deleted it has forgotten its lanes; their numbers are the same ones again."""
    before = (await steps.lanes.resolve(steps.db, [MAIL]))[MAIL]
    await delete(steps.db, steps.lanes, "acme")

    job_id = await steps.submit_one(tenant="acme")

    assert ["acme", "default"] == await names(steps.db)
    assert before == (await steps.lanes.resolve(steps.db, [MAIL]))[MAIL]
    assert State.QUEUED is (await steps.get(job_id, tenant="acme")).state


async def test_a_job_put_where_a_tenant_was_is_not_lost(steps: Steps) -> None:
    """A server that remembers the lanes of a deleted tenant may still submit there: the job is found, and runs."""
    other = Lanes()
    await steps.lanes.resolve(steps.db, [MAIL])
    await delete(steps.db, other, "acme")

    job_id = await steps.submit_one(tenant="acme")
    lease = await steps.claim_one(await steps.worker(tenant="acme"), tenant="acme")

    assert job_id == lease.id
    assert "applied" == (await steps.complete(lease)).status


async def test_a_tenant_made_again_has_no_settings_of_the_old_one(steps: Steps) -> None:
    """Pauses, limits and order go with the tenant; those of others stay."""
    db = steps.db
    plain = (await steps.lanes.resolve(db, [MAIL]))[MAIL]
    for tenant in ("acme", "bolt"):
        await configure(db, LaneName(tenant, "default"), credit_ms=0, fifo=True, max_running=0, rate_per_s=1.0, burst=2)
        await pause_queue(db, Lanes(), LaneName(tenant, "default"), actor=ANN)
        await pause_tenant(db, tenant, actor=ANN)
    bolt = await _lanes_of(steps, "bolt")

    await delete(db, steps.lanes, "acme")
    await create(db, "acme", pause=no_pause)

    assert not await resume_tenant(db, "acme")
    assert [plain] == [lane for lane in await _lanes_of(steps, "acme") if lane.name == MAIL]
    assert bolt == await _lanes_of(steps, "bolt")
    own = next(lane for lane in await _lanes_of(steps, "acme") if not lane.name.task)
    assert (0, 0, None, None, None) == (own.paused, own.limited, own.max_running, own.rate_per_s, own.burst)


async def _lanes_of(steps: Steps, tenant: str) -> list[Lane]:
    lanes = await Lanes().resolve(steps.db, [LaneName(tenant, "default"), LaneName(tenant, "default", "mail")])
    return sorted(lanes.values(), key=lambda lane: lane.id)


async def test_a_tenant_made_again_reads_nothing_of_the_old_one(steps: Steps) -> None:
    """M1: the next owner of a name sees no worker, task, queue, figure, act or key of the last one."""
    db = steps.db
    worker = await steps.worker("old-worker", tenant="acme", host="old-host")
    lease = await steps.lease(worker, tenant="acme", queue="old-queue", idempotency_key="k")
    await steps.fail(lease, retryable=False)
    await tasks.publish(db, "acme", {"mail": "{}"})
    await pause_tenant(db, "acme", actor=ANN)
    await audit.record(db, steps.ids, audit.Entry(action="tenant.pause", subject="acme", tenant="acme"))
    steps.clock.advance(minutes=2)
    await stats.roll_up(db)
    await deadletters.purge(db, [lease.id], tenant="acme")

    await delete(db, steps.lanes, "acme")
    await create(db, "acme", pause=no_pause)

    assert [] == (await fleet.list_workers(db, "acme")).workers
    assert [] == (await tasks.list_tasks(db, "acme")).tasks
    assert [] == (await queues.list_queues(db, "acme")).queues
    assert [] == (await audit.list_entries(db, "acme")).entries
    assert [] == (await history.find_attempts(db, history.AttemptFilter(tenant="acme"))).attempts
    assert 0 == (await stats.overview(db, "acme")).failed_24h
    now = steps.clock.now()
    assert [] == await stats.series(db, tenant="acme", since=now - timedelta(days=1), until=now)
    again = await steps.submit(steps.job(tenant="acme", queue="new-queue", idempotency_key="k", payload='"other"'))
    assert not again[0].duplicate
    assert ["new-queue"] == [queue.name for queue in (await queues.list_queues(db, "acme")).queues]


AGAIN: dict[str, Callable[[Steps], Awaitable[object]]] = {
    "create": lambda steps: create(steps.db, "acme", pause=no_pause),
    "first submit": lambda steps: steps.submit_one(tenant="acme"),
    "first schedule": lambda steps: made(steps, tenant="acme"),
}


@pytest.mark.parametrize("how", AGAIN)
async def test_what_came_after_a_delete_is_not_the_next_owners(steps: Steps, how: str) -> None:
    """M1: another server believes a revoked key for two seconds; the next owner sees nothing of its worker."""
    await create(steps.db, "acme", pause=no_pause)
    await delete(steps.db, steps.lanes, "acme")
    await steps.worker("late-worker", tenant="acme", host="old-host")
    await tasks.publish(steps.db, "acme", {"mail": "{}"})

    await AGAIN[how](steps)

    assert ["acme", "default"] == await names(steps.db)
    assert [] == (await fleet.list_workers(steps.db, "acme")).workers
    assert [] == (await tasks.list_tasks(steps.db, "acme")).tasks


async def test_a_worker_that_comes_before_its_tenant_stays(steps: Steps) -> None:
    """A tenant may be made after its worker has registered; a name that was never deleted has no last owner."""
    worker = await steps.worker("early-worker", tenant="acme")
    await tasks.publish(steps.db, "acme", {"mail": "{}"})

    await create(steps.db, "acme", pause=no_pause)

    assert ["early-worker"] == [worker.worker for worker in (await fleet.list_workers(steps.db, "acme")).workers]
    assert 1 == len((await tasks.list_tasks(steps.db, "acme")).tasks)
    assert (await steps.beat(worker)).alive


async def test_a_create_that_is_refused_changes_nothing(steps: Steps) -> None:
    """M1: the owner of a name that was deleted before keeps its workers when somebody creates the tenant again."""
    await create(steps.db, "acme", pause=no_pause)
    await delete(steps.db, steps.lanes, "acme")
    await create(steps.db, "acme", pause=no_pause)
    worker = await steps.worker(tenant="acme")

    with pytest.raises(AlreadyExists):
        await create(steps.db, "acme", pause=no_pause)

    assert (await steps.beat(worker)).alive


async def test_a_delete_that_is_refused_changes_nothing(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A submit that comes between the look and the lock holds its tenant, with all that the tenant had."""
    await create(steps.db, "acme", pause=no_pause)
    await steps.worker("w", tenant="acme")
    await tasks.publish(steps.db, "acme", {"mail": "{}"})
    await pause_tenant(steps.db, "acme", actor=ANN)
    look = module._refusal

    async def beside(db: Any, name: str) -> None:
        assert await look(db, name) is None
        monkeypatch.setattr(module, "_refusal", look)
        await steps.submit_one(tenant="acme")

    monkeypatch.setattr(module, "_refusal", beside)
    with pytest.raises(Conflict, match="1 live jobs"):
        await delete(steps.db, steps.lanes, "acme")

    assert ["w"] == [worker.worker for worker in (await fleet.list_workers(steps.db, "acme")).workers]
    assert 1 == len((await tasks.list_tasks(steps.db, "acme")).tasks)
    assert (await get(steps.db, "acme")).pause is not None


async def test_the_audit_of_a_deleted_tenant_stays_for_those_above_tenants(steps: Steps) -> None:
    """T16: who may see all tenants reads what was done before a name was given again."""
    await create(steps.db, "acme", pause=no_pause)
    await audit.record(steps.db, steps.ids, audit.Entry(action="tenant.pause", subject="acme", tenant="acme"))
    steps.clock.advance(1)

    await delete(steps.db, steps.lanes, "acme")
    gone = await audit.list_entries(steps.db, "acme")
    await create(steps.db, "acme", pause=no_pause)

    assert 1 == len(gone.entries) == len((await audit.list_entries(steps.db)).entries)
    assert [] == (await audit.list_entries(steps.db, "acme")).entries


async def test_a_server_that_remembers_old_lanes_brings_their_queues_back(steps: Steps) -> None:
    """M1: a queue of a deleted tenant is listed again as soon as a job is put in it, also by such a server."""
    await steps.lanes.resolve(steps.db, [MAIL])
    await delete(steps.db, Lanes(), "acme")
    await create(steps.db, "acme", pause=no_pause)
    assert [] == (await queues.list_queues(steps.db, "acme")).queues

    await steps.submit_one(tenant="acme")

    assert ["default"] == [queue.name for queue in (await queues.list_queues(steps.db, "acme")).queues]


async def test_attempts_of_jobs_that_are_gone_hold_their_tenant(steps: Steps) -> None:
    """M1: the next owner of the name would read their errors."""
    lease = await steps.lease(await steps.worker(tenant="acme"), tenant="acme")
    await steps.fail(lease)
    await steps.db.fetch(WITHOUT_JOBS)

    with pytest.raises(Conflict, match="1 attempts of jobs that are gone"):
        await delete(steps.db, steps.lanes, "acme")


async def test_what_waits_in_the_outbox_holds_its_tenant(steps: Steps) -> None:
    """M1: the relay would bring the old owner's job to the next one."""
    await create(steps.db, "acme", pause=no_pause)
    query = Query("say", "Say that a job is wanted.", OUTBOX, OUTBOX)
    await steps.db.fetch(query, id=steps.ids.new(), tenant="acme", task="mail", payload="1")

    with pytest.raises(Conflict, match="it has 1 live jobs"):
        await delete(steps.db, steps.lanes, "acme")
