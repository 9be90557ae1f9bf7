"""The database restarts, or ends a connection, while the queue is in use: nothing told is lost, nothing done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from asyncpg import Pool

from tests import cluster
from tests.cluster import Cluster
from tests.databases import PATIENT, connected, opened
from tests.db.test_postgres import WAITING, until
from tests.queue.faults.traffic import WORKERS, Traffic
from tests.queue.races.pausing import Pausing
from tests.queue.races.stage import Stage, no_jitter
from tests.queue.races.test_reports import ALL_SAYINGS, Say, say_it
from tests.queue.races.test_submits import proxied
from windlass.db import Database
from windlass.db.migrate import migrate
from windlass.errors import CommitAborted, CommitUnknown, Unavailable
from windlass.ids import Ids
from windlass.job import Outcome, State
from windlass.queue import history, workers
from windlass.queue.check import check
from windlass.queue.lanes import Lanes
from windlass.queue.newjob import NewJob
from windlass.queue.report import Status, report
from windlass.queue.submit import submit

RESTARTS = 3
END_WRITERS = """
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle in transaction'
"""
END_WAITING = END_WRITERS.replace("state = 'idle in transaction'", "wait_event_type = 'Lock'")
STORED = "SELECT id FROM windlass.jobs"
SUCCEEDED = f"SELECT job_id, fence FROM windlass.attempts WHERE outcome = {int(Outcome.SUCCEEDED)}"


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A PostgreSQL that these tests may stop and start."""
    binaries = cluster.find()
    if binaries is None:
        pytest.skip("no binaries on this machine to run a second PostgreSQL with")
    with cluster.running(binaries) as running:
        asyncio.run(prepared(running.url))
        yield running


async def prepared(url: str) -> None:
    """Migrate the database at `url`, for the present day."""
    async with opened(url) as db:
        await migrate(db)


async def test_rel_x25_restart_under_load(own_cluster: Cluster) -> None:
    """A database stopped and started under load: calls fail as documented, then go on; all that was told holds."""
    async with opened(own_cluster.url) as db:
        traffic = Traffic(db)
        async with traffic.flowing():
            await traffic.more(traffic.answered, 5)
            for _ in range(RESTARTS):
                await asyncio.to_thread(own_cluster.stop)
                # A submit cut off at its COMMIT waits for the database to come back, before it says what became of it.
                await traffic.more(traffic.failed, names=WORKERS)
                await asyncio.to_thread(own_cluster.start)
                await traffic.more(traffic.answered, 5)
        async with connected(own_cluster.url) as connection:
            stored = [row["id"] for row in await connection.fetch(STORED)]
            recorded = [tuple(row) for row in await connection.fetch(SUCCEEDED)]
        again = await report(db, [said for said, _ in traffic.reported], chance=no_jitter)

        assert set() == traffic.submitted - set(stored)
        assert len(set(stored)) == len(stored)
        assert set() == {(said.job_id, said.fence) for said, _ in traffic.reported} - set(recorded)
        assert len(set(recorded)) == len(recorded)
        assert {Status.ALREADY} == {answer.status for answer in again}
        assert [] == await check(db)


@pytest.mark.parametrize("reused", [True, False], ids=["number given to another", "number never seen"])
async def test_rel_x25_number_of_a_lost_commit(own_cluster: Cluster, reused: bool) -> None:
    """After a crash the database gives the number of a lost transaction to another: its commit is not ours."""
    lanes = Lanes()
    async with proxied(own_cluster.url, None) as (proxy, db):
        ids = Ids(db.now)
        await submit(db, lanes, [NewJob(id=ids.new(), task="task")])
        lost = NewJob(id=ids.new(), task="task", idempotency_key=f"{reused}")
        proxy.hold_commit()
        submitted = asyncio.create_task(submit(db, lanes, [lost]))
        await proxy.fired.wait()
        await asyncio.to_thread(own_cluster.stop)
        await asyncio.to_thread(own_cluster.start)
        if reused:
            async with connected(own_cluster.url) as connection:
                for _ in range(100):
                    await connection.execute("SELECT pg_current_xact_id()")
        proxy.release()

        with pytest.raises((CommitAborted, CommitUnknown), match=r"broke at COMMIT"):
            await submitted
        again = NewJob(id=ids.new(), task="task", idempotency_key=f"{reused}")
        [told] = await submit(db, lanes, [again])

        assert (told.id, told.duplicate) == (again.id, False)
        assert State.QUEUED is (await history.get(db, told.id, tenant="default")).state
        assert [] == await check(db)


@ALL_SAYINGS
@pytest.mark.parametrize("mark", ["first", "commit"])
async def test_rel_x25_backend_ended_in_a_report(
    postgres_stage: Stage, postgres_url: str, say: Say, after: State, mark: str
) -> None:
    """A report whose connection the server ends before it commits is not recorded; said again it is, once."""
    stage = postgres_stage
    scene = await stage.leased()
    before = await stage.bytes_of(scene.id)
    held = Pausing(stage.db)
    point = held.hold_at(0) if mark == "first" else held.hold_before("commit")
    said = asyncio.create_task(say_it(held, say(scene)))
    await point.reached.wait()
    async with connected(postgres_url) as connection:
        assert 1 == await connection.fetchval(END_WRITERS)
    point.release()

    with pytest.raises(Unavailable):
        await said

    assert before == await stage.bytes_of(scene.id)
    assert [Status.APPLIED, Status.ALREADY] == [(await say_it(stage.db, say(scene))).status for _ in range(2)]
    assert after is await stage.state(scene.id)
    assert 1 == len((await stage.bytes_of(scene.id))["attempts"])
    await stage.sound()


async def test_rel_x25_backend_ended_in_a_statement(own_cluster: Cluster) -> None:
    """A statement that commits by itself and whose connection ends is of unknown fate; said again it is done once."""
    async with opened(own_cluster.url, PATIENT) as db, connected(own_cluster.url) as rival:
        session = workers.NewSession(id=Ids(db.now).new(), worker="ann")
        await workers.register(db, session)
        async with rival.transaction():
            await rival.execute("SELECT FROM windlass.session WHERE id = $1 FOR UPDATE", session.id)
            again = asyncio.create_task(workers.register(db, session))
            await until(own_cluster.url, WAITING, 1)
            assert 1 == await rival.fetchval(END_WAITING)

            with pytest.raises(CommitUnknown, match="whether it was committed is not known"):
                await again

        await workers.register(db, session)
        assert [] == await check(db)


CALLS: dict[str, Callable[[Database], Awaitable[object]]] = {
    "transaction": lambda db: workers.heartbeat(db, []),
    "submit": lambda db: submit(db, Lanes(), [NewJob(id=Ids(db.now).new(), task="task")]),
    "write": lambda db: workers.drain(db, tenant="default", worker="ann"),
    "read": lambda db: check(db),
    "hint": lambda db: db.notify("windlass_wake", ""),
    "version": lambda db: db.version(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_rel_x25_connection_lost_when_taken(
    timely_postgres_url: str, monkeypatch: pytest.MonkeyPatch, call: Callable[[Database], Awaitable[object]]
) -> None:
    """A connection that breaks between being taken from the pool and its first use is Unavailable, once."""
    taken = Pool.acquire

    async def broken(pool: Any, **options: Any) -> Any:
        connection = await taken(pool, **options)
        connection.terminate()
        return connection

    async with opened(timely_postgres_url) as db:
        with monkeypatch.context() as patched:
            patched.setattr(Pool, "acquire", broken)
            with pytest.raises(Unavailable):
                await call(db)

        await call(db)


@ALL_SAYINGS
async def test_rel_x25_report_cut_off_before_commit(
    postgres_stage: Stage, postgres_url: str, say: Say, after: State
) -> None:
    """A report whose COMMIT never arrived is of unknown fate to its server; said again it is applied, once."""
    scene = await postgres_stage.leased()
    async with proxied(postgres_url, postgres_stage.clock) as (proxy, db):
        proxy.cut_before_commit()

        with pytest.raises(CommitUnknown, match="broke at COMMIT"):
            await say_it(db, say(scene))

        assert [Status.APPLIED, Status.ALREADY] == [(await say_it(db, say(scene))).status for _ in range(2)]
    assert after is await postgres_stage.state(scene.id)
    assert 1 == len((await postgres_stage.bytes_of(scene.id))["attempts"])
    await postgres_stage.sound()
