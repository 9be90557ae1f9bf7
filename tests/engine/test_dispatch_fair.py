"""Claims of many tenants: a round is shared, and what one tenant waits for bounds what another one waits. T15."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine.test_dispatch import PATIENCE_S, POLL_S, asking, ids_of, submit, until, waiting
from windlass.engine import dispatch, limited
from windlass.engine.engine import Engine
from windlass.engine.hands import Hands
from windlass.engine.line import SHARED_SLOTS, Ask, Handout, Line, Turns, Waiter
from windlass.queue.claim import Claimed, claim
from windlass.queue.lanes import LaneName
from windlass.queue.newjob import NewJob


async def leave(tasks: Sequence[asyncio.Task[Handout]]) -> None:
    """End claims that wait."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.one_kind
async def test_rel_t15_tenants_share_a_round() -> None:
    """However many claims of however many kinds one tenant has, the others come next and get their part."""
    line = Line()
    for number in range(100):
        line.join(Waiter(Ask(tenant="a", worker="w", queues=(f"q{number}",), count=1000)))
    for tenant in ("b", "c"):
        line.join(Waiter(Ask(tenant=tenant, worker="w", count=1000)))

    turns, orders = Turns(), []
    for _ in range(5):
        orders.append([group.capability.tenant for group in line.groups(turns)])
        turns.served({})

    assert [{"a", "b", "c"}] * 5 == [set(order[:3]) for order in orders]
    assert [102] * 5 == [len(order) for order in orders]


async def test_rel_t15_a_round_for_several_tenants_is_short(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a tenant with ten times as much to claim another one is served by the first statement for both."""
    rounds: list[list[int]] = []

    async def noted(db: Any, groups: Sequence[Any], **more: Any) -> list[Claimed]:
        rounds.append([len(group.slots) for group in groups])
        return await claim(db, groups, **more)

    monkeypatch.setattr(dispatch, "claim", noted)
    asks = [Ask(tenant="a", worker="w", count=100, wait_s=POLL_S) for _ in range(5)]
    tasks = await waiting(engine, *asks, Ask(tenant="b", worker="w", count=100, wait_s=POLL_S))
    for group in engine._dispatch._line.groups(Turns()):
        for _ in range(10):
            group.grow(True)  # as after rounds in which every slot was filled

    ids = [NewJob(id=engine.ids.new(), task="t", tenant=tenant) for tenant in ("a",) * 500 + ("b",) * 100]
    await engine.submit(ids)
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)

    assert [SHARED_SLOTS // 2] * 2 == rounds[0]


async def test_rel_t15_a_round_is_short_while_another_tenant_calls(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant that called a moment ago may claim in the next one: it does not find a long round under way."""
    rounds: list[int] = []

    async def noted(db: Any, groups: Sequence[Any], **more: Any) -> list[Claimed]:
        rounds.extend(len(group.slots) for group in groups)
        return await claim(db, groups, **more)

    monkeypatch.setattr(dispatch, "claim", noted)
    [task] = await waiting(engine, Ask(tenant="a", worker="w", count=1000, wait_s=POLL_S))
    [group] = engine._dispatch._line.groups(Turns())
    for _ in range(10):
        group.grow(True)  # as after rounds in which every slot was filled
    engine.recent.note("b")

    await engine.submit([NewJob(id=engine.ids.new(), task="t", tenant="a") for _ in range(500)])
    await asyncio.wait_for(task, PATIENCE_S)

    assert SHARED_SLOTS // 2 == max(rounds)


async def test_rel_t9_a_claim_behind_many_others_is_answered_when_it_was_looked_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that does not wait gets the job that is there for it, though its kind comes after fifty others."""
    monkeypatch.setattr(dispatch, "MOST_LOOKED", 1)
    await submit(engine, 3, task="other")
    [job_id] = await submit(engine, task="own")
    tasks = await waiting(engine, *(asking(f"w{n}", tasks=frozenset({f"x{n}"})) for n in range(50)))

    found = await engine.claim(asking("w", tasks=frozenset({"own"}), wait_s=0))
    empty = await engine.claim(asking("w", tasks=frozenset({"none"}), wait_s=0))

    assert [job_id] == ids_of(found)
    assert [] == empty.jobs
    await leave(tasks)


async def test_rel_t15_limited_queues_of_tenants_are_claimed_from_by_turns(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant with twenty limited queues, for which claims are under way, lets another one's come after a pass."""
    order: list[str] = []
    claimed = Hands.claimed
    both_wait = asyncio.Event()

    async def noted(self: Hands, slots: Any, claiming: Any) -> list[Claimed]:
        order.append(slots[0][1].ask.tenant)
        await both_wait.wait()
        return await claimed(self, slots, claiming)

    queues = [LaneName("a", f"q{n}") for n in range(20)] + [LaneName("b", "q")]
    for queue in queues:
        await engine.acts.configure_queue(queue, max_running=1)
    monkeypatch.setattr(limited, "MOST_LIMITED", 2)
    asks = [Ask(tenant=q.tenant, worker="w", queues=(q.queue,), count=1, wait_s=POLL_S) for q in queues]
    tasks = await waiting(engine, *asks)
    monkeypatch.setattr(Hands, "claimed", noted)
    jobs = [NewJob(id=engine.ids.new(), task="t", tenant=q.tenant, queue=q.queue) for q in queues]
    await engine.submit(jobs[:20])
    await until(lambda: 20 == len(list(engine._dispatch._line.demands)))
    await engine.submit(jobs[20:])
    await until(lambda: 21 == len(list(engine._dispatch._line.demands)))
    both_wait.set()

    handouts = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)

    assert [1] * 21 == [len(handout.jobs) for handout in handouts]
    assert order.index("b") <= 3


@pytest.mark.one_kind
async def test_what_was_left_of_a_tenant_comes_next() -> None:
    """Tenants take turns; a tenant of which three items were served goes on with the fourth."""
    turns, items = Turns(), {"a": list("abcdefg"), "b": list("xy")}

    first = turns.order(items)
    turns.served({"a": 3})
    second = turns.order(items)
    turns.served({"a": 3})
    third = turns.order(items)

    assert list("axbycdefg") == first
    assert list("ydxefgabc") == second
    assert list("gxaybcdef") == third
