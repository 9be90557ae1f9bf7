"""Two engines on one PostgreSQL: what happens on one is heard on the other, with NOTIFY and without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

import msgspec
import pytest

from tests.databases import KeptDatabases, connected
from tests.engine.test_dispatch import PATIENCE_S, POLL_S, asking, ids_of, opened, submit, until, waiting
from windlass.config import Settings
from windlass.db import Database
from windlass.engine import dispatch, exchange, wake
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.errors import Conflict
from windlass.job import State
from windlass.queue import duties
from windlass.queue.control import Actor
from windlass.queue.lanes import LaneName
from windlass.queue.newjob import NewJob
from windlass.queue.report import Complete, Fail
from windlass.queue.retry import PRESETS
from windlass.wire import work as wire


class Silent:
    """A database without NOTIFY, as behind a pooler."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.capabilities = msgspec.structs.replace(db.capabilities, notify=False)

    def __getattr__(self, name: str) -> object:
        """Everything else is the database's own."""
        return getattr(self._db, name)


@pytest.fixture(params=[True, False], ids=["notify", "silent"])
async def pair(
    request: pytest.FixtureRequest, timely_postgres_url: str, kept_timely: KeptDatabases
) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two engines that know of each other, with NOTIFY or without it."""
    async with two_engines(await kept_timely.opened(2), notify=request.param) as engines:
        yield engines


@pytest.fixture
async def hinting(timely_postgres_url: str, kept_timely: KeptDatabases) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two engines that can send each other hints."""
    async with two_engines(await kept_timely.opened(2), notify=True) as engines:
        yield engines


@asynccontextmanager
async def two_engines(databases: Sequence[Database], *, notify: bool) -> AsyncIterator[tuple[Engine, Engine]]:
    """Run two engines on one database, opened twice."""
    async with AsyncExitStack() as stack:
        engines = []
        listening = [asyncio.Event() for _ in databases]
        for number, db in enumerate(databases):
            seen = db if notify else Silent(db)
            engine = Engine(seen, Settings(), name=f"scheduler_test_{number}", outside=Outside())  # type: ignore[arg-type]
            engine.wake.on_all.append(listening[number].set)
            engines.append(await stack.enter_async_context(engine.running()))
        for engine in engines:
            engine.wake.others = lambda: True
        if notify:  # what is told before somebody listens is not heard
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*(each.wait() for each in listening))
        yield engines[0], engines[1]


async def leased(engine: Engine, session: UUID) -> Fail:
    """Let a session claim a job with the preset `stepped`; return the report that it failed."""
    job = NewJob(id=engine.ids.new(), task="t", queue="default", retry=PRESETS["stepped"])
    await engine.submit([job])
    assert [job.id] == ids_of(await engine.claim(asking(session=session)))
    return Fail(job_id=job.id, fence=1, worker="w", session=session, error="no")


async def test_a_kept_retry_is_claimed_back_from_another_server(pair: tuple[Engine, Engine]) -> None:
    """R6: the worker that failed a job gets it back at once, whichever server it asks; nobody else does."""
    one, other = pair
    session, rival = await opened(one, "w"), await opened(other, "rival")
    failure = await leased(one, session)
    await one.report([failure])

    stolen = await other.claim(asking("rival", session=rival, wait_s=0))
    back = await other.claim(asking(session=session, wait_s=0))

    assert ([], [failure.job_id]) == (ids_of(stolen), ids_of(back))


async def test_a_claim_that_waits_on_another_server_is_sent_for_its_kept_retry(hinting: tuple[Engine, Engine]) -> None:
    """R6: it is answered when the failure is heard, so that the worker asks again, and gets the job."""
    one, other = hinting
    session = await opened(one, "w")
    failure = await leased(one, session)
    [task] = await waiting(other, asking(session=session, wait_s=PATIENCE_S))

    await one.report([failure])
    answered = await asyncio.wait_for(task, PATIENCE_S)
    back = await other.claim(asking(session=session, wait_s=0))

    assert ([], [failure.job_id]) == (ids_of(answered), ids_of(back))


async def test_a_submit_on_one_server_answers_a_claim_on_the_other(pair: tuple[Engine, Engine]) -> None:
    """By a hint where there is NOTIFY, by the look without it."""
    one, other = pair
    session = await opened(other, "w")
    [task] = await waiting(other, asking(session=session))

    [job_id] = await submit(one)

    assert [job_id] == ids_of(await asyncio.wait_for(task, PATIENCE_S))


async def test_a_hint_alone_is_enough(hinting: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is NOTIFY nobody has to look: a claim is answered although the look is far away."""
    one, other = hinting
    monkeypatch.setattr(dispatch, "LOOK_S", 1000.0)
    session = await opened(other, "w")
    [task] = await waiting(other, asking(session=session))

    # Until the other listens, what is said is not heard.
    async with asyncio.timeout(PATIENCE_S):
        while not task.done():
            await submit(one)
            await asyncio.wait([task], timeout=0.1)

    assert [] != task.result().jobs


async def test_a_result_is_waited_for_on_another_server(pair: tuple[Engine, Engine]) -> None:
    """Who waits for a job on one server hears of its end on the other."""
    one, other = pair
    [job_id] = await submit(one)
    task = asyncio.create_task(other.waits.wait_ended(job_id, tenant="default", wait_s=POLL_S))
    await until(lambda: job_id in other.waits._waiting)
    job = (await one.claim(asking(wait_s=PATIENCE_S))).jobs[0].job

    await one.report([Complete(job_id=job_id, fence=job.fence, worker="w", result='{"ok":true}')])
    ended = await asyncio.wait_for(task, PATIENCE_S)

    assert (State.SUCCEEDED, '{"ok":true}') == (ended.state, ended.result)


async def test_waiting_for_a_result_ends_with_the_wait(pair: tuple[Engine, Engine]) -> None:
    """A job that does not end in time is answered as it is."""
    [job_id] = await submit(pair[0])

    job = await pair[1].waits.wait_ended(job_id, tenant="default", wait_s=0.01)

    assert State.QUEUED is job.state


async def test_both_servers_claim_each_job_once(pair: tuple[Engine, Engine]) -> None:
    """Rivals on two servers never get the same job."""
    ids = set(await submit(pair[0], 200))
    seen: list[UUID] = []

    async def work(engine: Engine, name: str) -> None:
        session = await opened(engine, name)
        while len(seen) < 200:
            handout = await engine.claim(asking(name, session, count=13, wait_s=0.05))
            seen.extend(ids_of(handout))

    await asyncio.gather(*(work(engine, f"w{n}") for n in range(4) for engine in pair))

    assert (200, ids) == (len(seen), set(seen))


@pytest.mark.parametrize("what", ["cancel", "drain", "close"])
async def test_a_heartbeat_that_waits_hears_of_what_another_server_did(pair: tuple[Engine, Engine], what: str) -> None:
    """By a hint where there is NOTIFY, by the look without it; a worker without a free thread has nothing else."""
    one, other = pair
    session = await opened(other, "w")
    [job_id] = await submit(one)
    await other.claim(asking(session=session))
    request = wire.BeatRequest(worker_id="w", session=session, wait=20.0)
    task = asyncio.create_task(exchange.heartbeat(other, request, session=session, tenant="default"))
    await until(lambda: other.session_waits.waiting_count == 1)

    if what == "cancel":
        await one.acts.cancel([job_id], tenant="default", actor=Actor())
    elif what == "drain":
        await one.acts.drain(tenant="default", worker="w")
    else:
        await one.acts.close(session, tenant="default", reason="removed")

    if what == "close":
        with pytest.raises(Conflict):
            await asyncio.wait_for(task, PATIENCE_S)
    else:
        answer = await asyncio.wait_for(task, PATIENCE_S)
        assert ([job_id] if what == "cancel" else [], what == "drain") == (answer.cancel, answer.drain)


async def test_a_cancel_on_one_server_reaches_the_worker_at_the_other(pair: tuple[Engine, Engine]) -> None:
    """The worker's long poll is answered with the job to stop, or its next heartbeat tells."""
    one, other = pair
    session = await opened(other, "w")
    [job_id] = await submit(one)
    await other.claim(asking(session=session))
    [task] = await waiting(other, asking(session=session))

    await one.acts.cancel([job_id], tenant="default", actor=Actor())
    if not one.db.capabilities.notify:
        task.cancel()
        return

    assert [job_id] == (await asyncio.wait_for(task, PATIENCE_S)).cancel


async def test_a_foreign_notice_is_passed_over(hinting: tuple[Engine, Engine]) -> None:
    """Anybody may send on the channel; what is not a hint of ours disturbs nobody."""
    one, other = hinting

    for text in ("", "{", '{"s":1}', "\N{PILE OF POO}" * 100):
        await one.db.notify(wake.CHANNEL, text)

    [job_id] = await submit(one)
    assert [job_id] == ids_of(await other.claim(asking(wait_s=PATIENCE_S)))


async def test_too_many_hints_become_one(hinting: tuple[Engine, Engine]) -> None:
    """What does not fit into a message tells the others to look at everything."""
    one, other = hinting
    looked: list[None] = []
    other.wake.on_all.append(lambda: looked.append(None))

    for lane in range(3000):
        one.wake.ready(10_000_000 + lane, lane)

    await until(lambda: bool(looked))


async def test_a_locked_queue_keeps_no_other_waiting(hinting: tuple[Engine, Engine], timely_postgres_url: str) -> None:
    """A limited queue whose row somebody holds hands out nothing; free and other limited queues go on."""
    engine, _ = hinting
    async with connected(timely_postgres_url) as rival:
        for queue in ("locked", "open"):
            await engine.acts.configure_queue(LaneName("default", queue), max_running=5)
            await submit(engine, 3, queue=queue)
        [free] = await submit(engine)
        session = await opened(engine, "w")
        async with rival.transaction():
            await rival.execute("SELECT 1 FROM windlass.lane WHERE queue = 'locked' AND task = '' FOR UPDATE")

            got: list[UUID] = []
            async with asyncio.timeout(PATIENCE_S):
                while len(got) < 4:
                    ask = asking(session=session, queues=("default", "locked", "open"), count=10)
                    got += ids_of(await engine.claim(ask))

        assert free in got


async def test_three_slow_lists_stop_nobody(hinting: tuple[Engine, Engine]) -> None:
    """With every reading connection taken, claims are answered and duties are held: they have their own."""
    engine, _ = hinting
    async with AsyncExitStack() as stack:
        pool = engine.db._read  # type: ignore[attr-defined]
        for _ in range(pool.get_max_size()):
            await stack.enter_async_context(pool.acquire())

        [job_id] = await submit(engine)
        handout = await asyncio.wait_for(engine.claim(asking(wait_s=PATIENCE_S)), PATIENCE_S / 2)

        assert [job_id] == ids_of(handout)
        async with asyncio.timeout(PATIENCE_S):
            while not await duties.list_duties(engine.db):
                pass


@pytest.mark.parametrize(("count", "named"), [(3, {"tenant-0", "tenant-1", "tenant-2"}), (3000, {None})])
async def test_a_hint_names_the_tenants_that_published(
    hinting: tuple[Engine, Engine], count: int, named: set[str | None]
) -> None:
    """Also where the rest of the hint does not fit into a message; more names than fit stand for all tenants."""
    one, other = hinting
    heard: set[str | None] = set()
    other.wake.on_tasks.append(heard.add)

    for lane in range(3000):
        one.wake.ready(10_000_000 + lane, lane)
    for number in range(count):
        one.wake.tasks(f"tenant-{number}")

    await until(lambda: bool(heard))
    assert named == heard
