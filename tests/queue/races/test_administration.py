"""Races about tenants and keys: made once, deleted or used, never half of both."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import pytest

from tests.clock import TestClock, no_pause
from tests.queue.races.conftest import staged
from tests.queue.races.orders import Race
from tests.queue.races.pausing import Pausing
from tests.queue.races.stage import Stage
from windlass.db import Database
from windlass.errors import AlreadyExists, Conflict, Contention, Forbidden, NotFound, WindlassError
from windlass.ids import Ids
from windlass.job import State
from windlass.queue import control, history, keys, lanes, queues, tenants
from windlass.queue.control import Actor
from windlass.queue.keys import Key, NewKey, StoredKey
from windlass.queue.lanes import LaneName, Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.submit import submit
from windlass.queue.tenants import Tenant

READER = frozenset({"read"})
INDEXES_LOCKED = """
SELECT count(*) FROM pg_locks k JOIN pg_class c ON c.oid = k.relation
 WHERE k.mode = 'RowExclusiveLock' AND c.relkind = 'i' AND c.relname = 'wide_pkey'
"""


async def fresh_tenant(stage: Stage) -> str:
    """Return the name of a tenant made for one order of a race."""
    name = f"tenant-{stage.ids.new()}"
    await tenants.create(stage.db, name, pause=no_pause)
    return name


async def exists(stage: Stage, name: str) -> bool:
    """Say whether there is such a tenant."""
    try:
        await tenants.get(stage.db, name)
    except NotFound:
        return False
    return True


async def delete(db: Database, name: str) -> None:
    """Delete a tenant, as a server that remembers no lanes and waits for nobody."""
    await tenants.delete(db, Lanes(), Ids(db.now), name, pause=no_pause)


async def test_a_tenant_created_by_two_is_made_once(stage: Stage) -> None:
    """P39: of two that create it at once one is told that it exists."""

    async def prepare() -> str:
        return f"tenant-{stage.ids.new()}"

    async def create(db: Database, name: str) -> Tenant:
        return await tenants.create(db, name, pause=no_pause)

    async def judge(name: str, left: Tenant | WindlassError, right: Tenant | WindlassError) -> None:
        assert [True, False] == sorted((isinstance(one, Tenant) for one in (left, right)), reverse=True)
        assert any(isinstance(one, AlreadyExists) for one in (left, right))
        assert await exists(stage, name)

    assert 2 <= await Race(prepare, create, create, judge).in_every_order(stage)


async def test_a_tenant_deleted_by_two_is_deleted_once(stage: Stage) -> None:
    """P39: the second is told that there is none, or to try again."""

    async def judge(name: str, left: object, right: object) -> None:
        assert {True, False} == {one is None for one in (left, right)}
        assert any(isinstance(one, NotFound | Conflict | Contention) for one in (left, right))
        assert not await exists(stage, name)

    assert 4 <= await Race(lambda: fresh_tenant(stage), delete, delete, judge).in_every_order(stage)


async def test_a_tenant_deleted_beside_a_submit_loses_no_job(stage: Stage) -> None:
    """M1: the job is stored in a lane of a tenant that exists: a delete that cannot see it yet is refused too."""

    async def send(db: Database, name: str) -> UUID:
        [answer] = await submit(db, Lanes(), [NewJob(id=stage.ids.new(), task="t", tenant=name)])
        return answer.id

    async def judge(name: str, deleted: object, job_id: UUID | WindlassError) -> None:
        assert isinstance(job_id, UUID)
        assert State.QUEUED is (await history.get(stage.db, job_id, tenant=name)).state
        assert deleted is None or isinstance(deleted, Conflict | Contention)
        assert await exists(stage, name)
        assert ["default"] == [queue.name for queue in (await queues.list_queues(stage.db, name)).queues]

    assert 10 <= await Race(lambda: fresh_tenant(stage), delete, send, judge).in_every_order(stage)


async def test_a_tenant_deleted_while_its_lanes_are_made_stays(stage: Stage) -> None:
    """M1: a server that uses the tenant between the two steps of a delete may be about to write a job there."""
    name = await fresh_tenant(stage)
    lane = LaneName(name, "q", "t")
    await lanes.make(stage.db, name, [lane], per_tenant=10)
    deleting = Pausing(stage.servers[0])
    point = deleting.hold_after_commits(2)  # of the statistics, of the lanes
    deleted = asyncio.create_task(delete(deleting, name))
    await point.reached.wait()

    await lanes.make(stage.servers[-1], name, [lane], per_tenant=10)
    point.release()

    with pytest.raises(Conflict, match="just being submitted"):
        await deleted
    assert await exists(stage, name)


async def test_a_tenant_is_deleted_beside_a_vacuum(fresh_postgres_url: str, clock: TestClock) -> None:
    """A vacuum may last for hours and writes no job: nobody waits for it, though it locks indexes as writers do."""
    async with staged(fresh_postgres_url, clock) as stage:
        name = await fresh_tenant(stage)
        cleaner, watcher = [await asyncpg.connect(fresh_postgres_url) for _ in range(2)]
        await watcher.execute("CREATE TABLE windlass.wide (id int PRIMARY KEY, text text)")
        await watcher.execute("INSERT INTO windlass.wide SELECT n, repeat('x', 2000) FROM generate_series(1, 400) AS n")
        await cleaner.execute("SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")
        cleaning = asyncio.create_task(cleaner.execute("VACUUM windlass.wide"))
        while not await watcher.fetchval(INDEXES_LOCKED):
            assert not cleaning.done()

        await delete(stage.db, name)

        assert (False, False) == (cleaning.done(), await exists(stage, name))
        cleaner.terminate()
        await asyncio.gather(cleaning, return_exceptions=True)
        await watcher.close()


async def test_a_tenant_deleted_by_two_beside_a_submit_loses_no_job(postgres_stage: Stage) -> None:
    """M1: a delete sees that its lanes were used since, also where another delete has retired them again."""
    stage = postgres_stage
    name = await fresh_tenant(stage)
    await lanes.make(stage.db, name, [LaneName(name, "default", "t")], per_tenant=10)
    deleting, sending = Pausing(stage.servers[0]), Pausing(stage.servers[1])
    looked, may_look = asyncio.Event(), asyncio.Event()

    async def pause(_: float) -> None:
        looked.set()
        await may_look.wait()

    point = deleting.hold_before("lock_tenant", after="writers")
    first = asyncio.create_task(delete(deleting, name))
    await point.reached.wait()
    end = sending.hold_before("commit", after="submit")
    job = NewJob(id=stage.ids.new(), task="t", tenant=name)
    sent = asyncio.create_task(submit(sending, Lanes(), [job]))
    await end.reached.wait()
    second = asyncio.create_task(tenants.delete(stage.db, Lanes(), Ids(stage.db.now), name, pause=pause))
    await looked.wait()

    point.release()
    with pytest.raises(Conflict, match="somebody else is deleting it"):
        await first
    end.release()
    await sent
    may_look.set()
    with pytest.raises(Conflict, match="1 live jobs"):
        await second

    assert State.QUEUED is (await history.get(stage.db, job.id, tenant=name)).state
    assert ["default"] == [queue.name for queue in (await queues.list_queues(stage.db, name)).queues]


@pytest.mark.parametrize("mark", ["reset_lanes", "drop_tenant"])
async def test_a_lane_made_while_its_tenant_is_deleted_brings_it_back(postgres_stage: Stage, mark: str) -> None:
    """Making a lane waits for the tenant's row; when it finds the row gone it makes the tenant again."""
    stage = postgres_stage
    name = await fresh_tenant(stage)
    deleting, making = Pausing(stage.servers[0]), Pausing(stage.servers[1])
    point = deleting.hold_before(mark)
    deleted = asyncio.create_task(delete(deleting, name))
    await point.reached.wait()

    made = asyncio.create_task(lanes.make(making, name, [LaneName(name, "q", "t")], per_tenant=10))
    waited = await stage.until_parked(made, deleting, making)
    point.release()
    await asyncio.gather(deleted, made)

    assert waited
    assert await exists(stage, name)
    assert ["lock_tenant", "make_tenant"] == making.trail[:2]
    assert 2 == making.trail.count("lock_tenant")


async def test_a_tenant_deleted_beside_a_pause_leaves_no_pause(stage: Stage) -> None:
    """Pausing finds the tenant or does not; what it wrote goes with the tenant."""

    async def pause(db: Database, name: str) -> None:
        await control.pause_tenant(db, name, actor=Actor("me"))

    async def judge(name: str, deleted: object, paused: object) -> None:
        assert deleted is None
        assert paused is None or isinstance(paused, NotFound)
        assert not await control.resume_tenant(stage.db, name)

    assert 6 <= await Race(lambda: fresh_tenant(stage), delete, pause, judge).in_every_order(stage)


async def test_a_tenant_is_deleted_or_gets_a_key(stage: Stage) -> None:
    """N1: a key with a tenant implies the tenant; both happen never."""

    async def give(db: Database, name: str) -> Key:
        key, _ = await keys.create(db, NewKey(name="k", scopes=READER, tenant=name))
        return key

    async def judge(name: str, deleted: object, made: Key | WindlassError) -> None:
        if isinstance(made, Key):
            assert isinstance(deleted, Conflict)
            assert await exists(stage, name)
            assert {made.id} == set(await keys.find(stage.db, [made.id]))
        else:
            assert (None, NotFound) == (deleted, type(made))
            assert not await exists(stage, name)

    assert 6 <= await Race(lambda: fresh_tenant(stage), delete, give, judge).in_every_order(stage)


async def test_rel_t3_a_revoke_that_was_answered_holds(stage: Stage) -> None:
    """T3: beside the revoke a look may still find the key; one that begins after it does not."""
    revoked = False

    async def prepare() -> str:
        nonlocal revoked
        revoked = False
        key, _ = await keys.create(stage.db, NewKey(name="k", scopes=READER))
        return key.id

    async def end(db: Database, key_id: str) -> None:
        nonlocal revoked
        await keys.revoke(db, key_id)
        revoked = True

    async def look(db: Database, key_id: str) -> tuple[bool, dict[str, StoredKey]]:
        return revoked, await keys.find(db, [key_id])

    async def judge(key_id: str, _: object, seen: tuple[bool, dict[str, StoredKey]] | WindlassError) -> None:
        assert isinstance(seen, tuple)
        after, found = seen
        assert not (after and found)
        assert {} == await keys.find(stage.db, [key_id])

    assert 4 <= await Race(prepare, end, look, judge).in_every_order(stage)


async def test_rel_t3_no_key_is_made_by_one_whose_revoke_was_answered(stage: Stage) -> None:
    """T3: a key is made before its maker ends, or not at all."""
    revoked = False

    async def prepare() -> str:
        nonlocal revoked
        revoked = False
        key, _ = await keys.create(stage.db, NewKey(name="k", scopes=READER))
        return key.id

    async def end(db: Database, maker: str) -> None:
        nonlocal revoked
        await keys.revoke(db, maker)
        revoked = True

    async def make(db: Database, maker: str) -> bool:
        was_late = revoked
        await keys.create(db, NewKey(name=maker, scopes=READER), maker=maker)
        return was_late

    async def judge(maker: str, _: object, was_late: bool | WindlassError) -> None:
        assert was_late is False or isinstance(was_late, Forbidden)
        made = [key for key in (await keys.list_keys(stage.db, limit=1000)).keys if key.name == maker]
        assert (was_late is False) == bool(made)

    assert 4 <= await Race(prepare, end, make, judge).in_every_order(stage)


async def test_two_first_starts_make_one_key(stage: Stage) -> None:
    """N8: one server made it, the other found it, and neither fails."""

    async def prepare() -> str:
        return keys.make_token()

    async def judge(token: str, left: bool | WindlassError, right: bool | WindlassError) -> None:
        assert {True, False} == {left, right}
        assert 1 == len(await keys.find(stage.db, [keys.key_id_of(token) or ""]))

    assert 2 <= await Race(prepare, keys.bootstrap, keys.bootstrap, judge).in_every_order(stage)


async def test_of_two_first_starts_with_one_id_and_two_secrets_one_fails(stage: Stage) -> None:
    """Servers configured differently are told, whoever was first."""

    def token(secret: bytes, number: int) -> str:
        return keys.make_token(lambda count: number.to_bytes(8, "big") if count == 8 else secret * count)

    async def prepare() -> int:
        # The first sixty bits of eight bytes are the id.
        return (stage.ids.new().int % 2**59) << 4

    async def judge(_: int, left: bool | WindlassError, right: bool | WindlassError) -> None:
        assert [True] == [one for one in (left, right) if one is True]
        with pytest.raises(WindlassError, match="another secret"):
            raise next(one for one in (left, right) if isinstance(one, WindlassError))

    race = Race(
        prepare,
        lambda db, number: keys.bootstrap(db, token(b"a", number)),
        lambda db, number: keys.bootstrap(db, token(b"b", number)),
        judge,
    )
    assert 4 <= await race.in_every_order(stage)
