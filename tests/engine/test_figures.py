"""Figures as collectors read them: lateness to the start, totals that are counters, one count of leaders."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from tests.clock import TestClock
from tests.engine.test_dispatch import PATIENCE_S, asking, opened, submit, until
from windlass.config import Settings
from windlass.db import Database
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.queue import duties
from windlass.queue.report import Complete, Fail, Release, Report
from windlass.queue.workers import Beat, Held


class SlowFigure(Collector):
    """A figure that is read when it is let go on, which knows by whom it was asked for."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.go_on = threading.Event()

    def describe(self) -> list[Metric]:
        """Return nothing, so that it is not read when it is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Wait, and return nothing."""
        self.threads.append(threading.current_thread())
        self.go_on.wait(PATIENCE_S)
        yield from ()


def late(engine: Engine) -> list[float]:
    """Return how many first starts were counted, and how late they were together."""
    [metric] = engine.meters.lateness.collect()
    found = {sample.name: sample.value for sample in metric.samples}
    return [found["windlass_lateness_seconds_count"], found["windlass_lateness_seconds_sum"]]


async def leased(engine: Engine, clock: TestClock) -> dict[str, Any]:
    """Submit a job, claim it 10 s later, let 5 s pass; return what names the lease."""
    clock.advance(2)  # the clock of a SQLite file begins a second ahead
    session = await opened(engine, "w")
    await submit(engine)
    clock.advance(10)
    [handed] = (await engine.claim(asking(session=session, wait_s=0))).jobs
    clock.advance(5)
    return {"job_id": handed.job.id, "fence": handed.job.fence, "session": session, "worker": "w"}


@pytest.mark.parametrize(
    "end",
    [
        lambda lease: Complete(**lease, duration_ms=2000),
        lambda lease: Fail(**lease, error="x", duration_ms=2000),
        lambda lease: Fail(**lease, error="x", duration_ms=2000, retryable=False),
    ],
    ids=["complete", "fail", "dead"],
)
async def test_lateness_is_counted_to_the_start(
    engine: Engine, clock: TestClock, end: Callable[[dict[str, Any]], Report]
) -> None:
    """O7: from due to started, as the report tells the start; not to the claim."""
    lease = await leased(engine, clock)
    before = late(engine)

    await engine.report([end(lease)])

    assert [0, 0] == before
    assert [1, 13] == late(engine)


async def test_lateness_is_counted_when_the_start_is_told_and_once(engine: Engine, clock: TestClock) -> None:
    """O7: a long job counts with the heartbeat that tells its start, and not again when it ends."""
    lease = await leased(engine, clock)
    held = Held(lease["job_id"], lease["fence"], started=True)
    await engine.heartbeat(Beat(lease["session"], [held]))
    told = late(engine)
    clock.advance(5)
    await engine.heartbeat(Beat(lease["session"], [held]))
    await engine.report([Complete(**lease, duration_ms=9000)])

    # The server takes the word's own way into account, by the time that has really passed; not beyond the claim.
    count, seconds = told
    assert count == 1
    assert 10 <= seconds <= 15
    assert told == late(engine)


async def test_what_never_began_is_not_late(engine: Engine, clock: TestClock) -> None:
    """O7: a job given back before its start counts when it starts."""
    lease = await leased(engine, clock)

    await engine.report([Release(**lease)])

    assert [0, 0] == late(engine)


async def test_totals_are_counters(sqlite_db: Database) -> None:
    """O7: what is called `_total` has the type of a counter, whoever reads it."""
    engine = Engine(sqlite_db, Settings(), name="s", outside=Outside())
    taken = (await duties.take(sqlite_db, ["rescue"], holder=engine.id, server="s", lease_ms=6000))["rescue"]
    note = duties.Metadata(items=7, errors=2)
    await duties.renew(sqlite_db, [duties.Held("rescue", taken.term, note)], holder=engine.id, lease_ms=6000)
    await engine.gauges.refresh()

    lines = generate_latest(engine.meters.registry).decode().splitlines()

    types = dict(line.split()[2:] for line in lines if line.startswith("# TYPE"))
    assert [] == [name for name, kind in types.items() if name.endswith("_total") and kind != "counter"]
    assert 'windlass_duty_items_total{duty="rescue"} 7.0' in lines
    assert 'windlass_duty_errors_total{duty="rescue"} 2.0' in lines
    assert "counter" == types["windlass_duty_items_total"]


async def test_every_server_tells_the_same_count_of_leaders(db: Database, clock: TestClock) -> None:
    """O5, O10: how many servers hold firing duties now, whoever sends it: none, one, or more."""
    servers = [Engine(db, Settings(), name=name, outside=Outside()) for name in ("one", "two")]
    seen = [[(await server._gauged())["scheduler.leader_count"] for server in servers]]
    held = [("fire-0", servers[0]), ("fire-1", servers[0]), ("promote", servers[1]), ("fire-2", servers[1])]
    for name, server in held:
        await duties.take(db, [name], holder=server.id, server=server.name, lease_ms=6000)
        for each in servers:
            each.gauges._read_s = float("-inf")
        seen.append([(await each._gauged())["scheduler.leader_count"] for each in servers])
    clock.advance(7)
    for each in servers:
        each.gauges._read_s = float("-inf")
    seen.append([(await each._gauged())["scheduler.leader_count"] for each in servers])

    assert [[0, 0], [1, 1], [1, 1], [1, 1], [2, 2], [0, 0]] == seen


async def test_rel_t9_who_asks_while_the_figures_are_written_gets_the_same_page(engine: Engine) -> None:
    """One page at a time, while the loop goes on; nothing is read anew under it, and the next asker gets a new one."""
    slow = SlowFigure()
    engine.meters.registry.register(slow)

    asking = [asyncio.create_task(engine.gauges.page()) for _ in range(5)]
    await until(lambda: bool(slow.threads))
    refreshing = asyncio.create_task(engine.gauges.refresh())
    leaving = asking.pop()
    leaving.cancel()
    await asyncio.wait([leaving])
    waits = not refreshing.done()
    slow.go_on.set()
    pages = await asyncio.gather(*asking)
    await refreshing
    written = len(slow.threads)
    await submit(engine)
    last = await engine.gauges.page()

    assert waits
    assert (1, 1) == (len(set(pages)), written)
    assert threading.current_thread() not in slow.threads
    assert b'jobs_submitted_total{queue="default"} 1.0' in last
