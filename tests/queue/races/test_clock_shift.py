"""The clock of a live cluster jumps by an hour: what is leased stays leased, what has ended stays so.

The cluster is the test's own, because the jump is a line in its postgresql.conf and a reload: that moves every live
connection, at its next statement. Time that passes is the tests' clock as everywhere; the shift comes on top.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from tests import cluster
from tests.clock import TestClock
from tests.databases import Server, connected, create, make_templates
from tests.queue.races.conftest import staged
from tests.queue.races.scheduled import fire, jobs, scheduled
from tests.queue.races.stage import LEASE_MS, PATIENCE_S, Stage, no_jitter
from tests.queue.races.test_reports import say_it
from tests.sqltext import parse
from windlass.job import State
from windlass.queue import rescue, schedules, timers, workers
from windlass.queue.check import check
from windlass.queue.report import Status
from windlass.queue.schedule import Decision

LINE = "windlass.clock_shift = "
AHEAD = "SELECT windlass.clock() - now()"
Shift = Callable[[str], Awaitable[None]]
SEEN = parse(
    """
-- name: seen
-- What a connection knows of the shift.
-- both
SELECT coalesce(current_setting('windlass.clock_shift', true), '') AS shift
""",
    origin="test_clock_shift.py",
)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def own_server(postgres_server: Server) -> Iterator[Server]:
    """A cluster whose configuration is ours; `postgres_server` says whether PostgreSQL is tested at all."""
    binaries = cluster.find()
    if binaries is None:
        pytest.skip("a cluster of its own needs PostgreSQL's programs, not only a URL")
    with cluster.running(binaries) as running:
        server = Server(running.url, postgres_server.prefix)
        asyncio.run(make_templates(server))
        yield server


@pytest.fixture
def own_url(own_server: Server) -> str:
    """A database of that cluster, with its clock as it was."""
    name = f"shift_{next(_numbers)}"
    asyncio.run(create(own_server, name))
    return own_server.url_of(name)


@pytest.fixture
async def stage(own_url: str, clock: TestClock) -> AsyncIterator[Stage]:
    """Two servers on that database."""
    async with staged(own_url, clock) as made:
        yield made


@pytest.fixture
async def shift(own_url: str, stage: Stage) -> AsyncIterator[Shift]:
    """Move the clock of the cluster for all who are connected; back to zero when the test ends."""
    async with connected(own_url) as connection:
        config = Path(await connection.fetchval("SHOW config_file"))
        before = (await asyncio.to_thread(config.read_text, "utf-8")).partition(LINE)[0]

        async def move(span: str) -> None:
            await asyncio.to_thread(config.write_text, f"{before}{LINE}'{span}'\n", "utf-8")
            await connection.execute("SELECT pg_reload_conf()")
            async with asyncio.timeout(PATIENCE_S):
                for server in stage.servers:
                    # The signal reaches each connection a moment later, and counts from its next statement on.
                    while span != (await server.fetch(SEEN["seen"]))[0]["shift"]:
                        pass
                    told = None
                    while span != told:
                        async with server.transaction() as transaction:
                            told = (await transaction.fetch(SEEN["seen"]))[0]["shift"]

        yield move
        await move("")


async def rescued(stage: Stage) -> rescue.Rescued:
    """Run the rescue as the duty does, with its rule of quiet."""
    return await rescue.rescue(stage.db, chance=no_jitter)


async def beat(stage: Stage, session: UUID) -> bool:
    """Send a heartbeat that names nothing; return whether the session lives."""
    [answer] = await workers.heartbeat(stage.db, [workers.Beat(session)])
    return answer.alive


async def test_rel_e3_live_connections_see_the_shift(stage: Stage, shift: Shift, own_url: str) -> None:
    """A reload moves connections that are open; ALTER DATABASE only those that are opened later."""
    async with connected(own_url) as open_before:
        async with asyncio.timeout(PATIENCE_S):
            for span, reloaded in (("1 hour", timedelta(hours=1)), ("", timedelta(0))):
                await shift(span)
                # The signal reaches this connection, too, a moment later.
                while reloaded != await open_before.fetchval(AHEAD):
                    pass
        name = own_url.rpartition("/")[2]
        await open_before.execute(f"ALTER DATABASE \"{name}\" SET windlass.clock_shift = '-1 hour'")
        altered = await open_before.fetchval(AHEAD)
    async with connected(own_url) as opened_after:
        late = await opened_after.fetchval(AHEAD)

    assert (altered, late) == (timedelta(0), timedelta(hours=-1))


async def test_rel_e3_an_hour_forward(stage: Stage, shift: Shift) -> None:
    """All leases are past their time at once; nobody loses one before a full lease of silence was watched."""
    heard, silent = [await stage.leased(started=True) for _ in range(2)]
    [timed] = await stage.submit("later", delay_ms=1_800_000)
    await rescued(stage)

    await shift("1 hour")

    woken = await rescued(stage)
    quiet = []
    for _ in range(LEASE_MS // 5000):
        stage.clock.advance(5)
        assert await beat(stage, heard.session)
        quiet += (await rescued(stage)).sessions
    stage.clock.advance(5)
    over = await rescued(stage)
    assert (woken.sessions, quiet, over.sessions) == ([], [], [silent.session])
    assert [timed] == [timer.id for timer in [*await timers.promote(stage.db), *await timers.promote(stage.db)]]
    assert (await say_it(stage.db, heard.complete())).status is Status.APPLIED
    assert (await say_it(stage.db, silent.complete())).status is Status.STALE
    assert [await stage.state(heard.id), await stage.state(silent.id)] == [State.SUCCEEDED, State.QUEUED]
    await stage.sound()


async def test_rel_e3_an_hour_back(stage: Stage, shift: Shift) -> None:
    """Nothing runs twice: leases and ends stand, timers wait longer, and fences go on where they were."""
    ended, running, waiting = await stage.leased(), await stage.leased(started=True), await stage.scene()
    [timed] = await stage.submit("later", delay_ms=10_000)
    assert (await say_it(stage.db, ended.complete())).status is Status.APPLIED
    await rescued(stage)

    await shift("-1 hour")
    stage.clock.advance(20)

    assert [] == (await rescued(stage)).sessions
    assert [] == await timers.promote(stage.db)
    assert [] == await stage.claim(stage.db, ended.queue, ended.session, 9)
    assert [] == await stage.claim(stage.db, running.queue, running.session, 9)
    [lease] = await stage.claim(stage.db, waiting.queue, waiting.session, 9)
    assert (await say_it(stage.db, ended.complete())).status is Status.ALREADY
    assert (await say_it(stage.db, running.release())).status is Status.APPLIED
    [again] = await stage.claim(stage.db, running.queue, running.session, 9)
    assert (lease.fence, again.fence) == (1, running.lease.fence + 1)

    await shift("")
    assert [timed] == [timer.id for timer in [*await timers.promote(stage.db), *await timers.promote(stage.db)]]
    assert [await stage.state(ended.id), await stage.state(running.id)] == [State.SUCCEEDED, State.ASSIGNED]
    # What began before the jump ended before it began; that is all that is wrong.
    assert {"i20_times"} >= {violation.invariant for violation in await check(stage.db)}


async def test_rel_e3_schedules_while_the_clock_of_the_cluster_jumps(stage: Stage, shift: Shift) -> None:
    """Forward: what was missed is one row, what is inside the grace fires. Back: nothing fires until it is due."""
    _, schedule = await scheduled(stage, overlap="allow", misfire_grace_s=10)
    stage.clock.advance(1)
    first = await fire(stage, stage.db)

    await shift("1 hour")
    ahead = await fire(stage, stage.db)
    stood = await schedules.get(stage.db, schedule.id, tenant="default")
    await shift("")
    stage.clock.advance(60)
    back = await fire(stage, stage.servers[1])

    assert ({Decision.FIRED: 1}, {Decision.MISSED: 1, Decision.FIRED: 11}) == (first.counts, ahead.counts)
    assert {} == back.counts
    assert stood == await schedules.get(stage.db, schedule.id, tenant="default")
    assert 12 == len(await jobs(stage, schedule.id))
