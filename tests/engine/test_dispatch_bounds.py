"""Claims beside very many lanes, limited queues and other claims: what is looked at in one go is bounded. T9, T15."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.engine.test_dispatch import PATIENCE_S, POLL_S, asking, ids_of, submit, until, waiting
from tests.engine.test_dispatch_fair import leave
from windlass.engine import dispatch, hot, limited
from windlass.engine.demand import Demands
from windlass.engine.engine import Engine
from windlass.engine.hands import Hands
from windlass.engine.hot import HotLanes, HotQueues
from windlass.engine.line import Ask, Capability, Line, Turns, Waiter
from windlass.queue import claim as claims
from windlass.queue import erasure, tenants
from windlass.queue.claim import Claimed, claim
from windlass.queue.lanes import Lane, LaneName, Lanes, lane_from_row
from windlass.queue.newjob import NewJob

Counted = Callable[[], None]


@asynccontextmanager
async def by_turns() -> AsyncIterator[tuple[Counter[int], Counted]]:
    """Give a function that counts its calls by turns of the event loop, and what it has counted."""
    counts: Counter[int] = Counter()
    turn = 0

    def count() -> None:
        counts[turn] += 1

    async def take_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    turns = asyncio.create_task(take_turns())
    yield counts, count
    turns.cancel()


def count_tests(monkeypatch: pytest.MonkeyPatch, count: Counted) -> Counter[str]:
    """Count whenever it is looked whether a claim can run a lane; return how often for lanes of each queue."""
    serves = Capability.serves
    by_queue: Counter[str] = Counter()

    def counted(self: Capability, name: LaneName) -> bool:
        count()
        by_queue[name.queue] += 1
        return serves(self, name)

    monkeypatch.setattr(Capability, "serves", counted)
    return by_queue


def look(engine: Engine) -> None:
    """Let the lanes be looked at soon."""
    for soon in engine.wake.on_all:
        soon()


async def look_now(engine: Engine) -> None:
    """Look at the lanes, and return when those who wait were looked for."""
    own = engine._dispatch
    before = own._looked_at
    look(engine)
    await until(lambda: own._looked_at > before and own._looked_for.issuperset(own._line.groups(Turns())))


async def lanes_of(engine: Engine, tenant: str, queue: str, count: int) -> None:
    """Make lanes with a ready job each, for which nobody waits."""
    await engine.submit([NewJob(id=engine.ids.new(), task=f"t{n}", tenant=tenant, queue=queue) for n in range(count)])


@pytest.mark.one_kind
async def test_rel_t9_a_limited_queue_is_looked_at_for_few_claims_in_one_go(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty kinds of claims that wait at a full queue, and can run none of forty lanes of another, hold nobody up.

    Whether they can is looked at once.
    """
    for queue in ("big", "full"):
        await engine.acts.configure_queue(LaneName("a", queue), max_running=0)
    await lanes_of(engine, "a", "big", 40)
    await engine.submit([NewJob(id=engine.ids.new(), task="y", tenant="a", queue="full")])
    monkeypatch.setattr(dispatch, "MOST_LOOKED", 100)
    monkeypatch.setattr(limited, "MOST_LOOKED", 100)

    async with by_turns() as (counts, count):
        by_queue = count_tests(monkeypatch, count)
        kinds = [frozenset({"y", f"x{n}"}) for n in range(30)]
        asks = [Ask(tenant="a", worker="w", queues=("big", "full"), tasks=tasks, wait_s=POLL_S) for tasks in kinds]
        tasks = await waiting(engine, *asks)
        await look_now(engine)
        await look_now(engine)
        await until(lambda: [("a", "full")] == list(engine._dispatch._line.demands))

    assert 30 * 40 == by_queue["big"]
    assert max(counts.values()) <= 2 * (100 + 41)
    await leave(tasks)


@pytest.mark.one_kind
@pytest.mark.parametrize(("tenants", "kinds"), [(1, 30), (10, 1)])
async def test_rel_t9_a_pass_over_limited_queues_is_made_in_portions(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tenants: int, kinds: int
) -> None:
    """What many claims waited for and others took away is found out in some passes, with turns for others between."""
    names = [f"tenant{n}" for n in range(tenants)]
    for name in names:
        await engine.acts.configure_queue(LaneName(name, "big"), max_running=1)
        await lanes_of(engine, name, "big", 40)
    asks = [
        Ask(tenant=name, worker="w", queues=("big",), tasks=frozenset({f"x{n}"}), wait_s=POLL_S)
        for name in names
        for n in range(kinds)
    ]
    tasks = await waiting(engine, *asks)
    await look_now(engine)
    monkeypatch.setattr(limited, "MOST_LOOKED", 100)
    groups = engine._dispatch._line.groups(Turns())
    for group in groups:
        engine._dispatch._line.demands.can_run(group, {"big"})

    async with by_turns() as (counts, count):
        count_tests(monkeypatch, count)
        engine._dispatch._limited.ring()
        await until(lambda: not any(group.limited for group in groups))

    assert 40 * len(asks) == counts.total()
    assert max(counts.values()) <= 100 + 40
    await leave(tasks)


async def test_rel_t15_kinds_of_claims_take_turns_at_a_limited_queue(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind of claim that sixty workers wait with lets another kind come after one claim."""
    order: list[str] = []
    claimed = Hands.claimed

    async def noted(self: Hands, slots: Any, claiming: Any) -> list[Claimed]:
        order.append(slots[0][1].ask.worker)
        return await claimed(self, slots, claiming)

    await engine.acts.configure_queue(LaneName("default", "mail"), max_running=1000)
    many = [asking("many", count=1, queues=("mail",)) for _ in range(60)]
    tasks = await waiting(engine, *many, asking("one", count=1, queues=("mail",), tasks=frozenset({"t"})))
    monkeypatch.setattr(limited, "MOST_LIMITED", 1)
    monkeypatch.setattr(Hands, "claimed", noted)

    await submit(engine, 61, queue="mail")
    handouts = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)

    assert [1] * 61 == [len(handout.jobs) for handout in handouts]
    assert order.index("one") <= 1


async def test_nobody_who_has_jobs_waits_for_its_next_turn(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that could get more jobs is answered when a round asks for others, though each round looks at few."""
    own, unsaid = engine._dispatch, 0
    wanted = own._wanted

    def noted(groups: Sequence[Line.Group]) -> Any:
        nonlocal unsaid
        found = wanted(groups)
        asked_for = {waiter for _, _, slots in found for _, waiter in slots}
        unsaid += sum(not waiter.gone for waiter in own._hands._laden - asked_for)
        return found

    monkeypatch.setattr(dispatch, "MOST_LOOKED", 1)
    others = [asking(tasks=frozenset({f"x{n}"})) for n in range(20)]
    tasks = await waiting(engine, *others, asking("own", tasks=frozenset({"own"}), count=100))
    monkeypatch.setattr(own, "_wanted", noted)

    ids = await submit(engine, 200, task="own")
    handout = await asyncio.wait_for(tasks.pop(), PATIENCE_S)

    assert 0 == unsaid
    assert ids[: len(handout.jobs)] == ids_of(handout)
    await leave(tasks)


async def test_who_was_not_asked_for_is_not_sent_away(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of claims that do not wait, of which one comes first at the only lane: both get what is there."""

    async def claim_and_look(*arguments: Any) -> list[Claimed]:
        jobs = await claim(*arguments)
        look(engine)
        return jobs

    monkeypatch.setattr(dispatch, "claim", claim_and_look)
    await submit(engine, 2)

    asks = [asking(str(tasks), count=1, wait_s=0, tasks=tasks) for tasks in (None, frozenset({"t"}))]
    handouts = await asyncio.wait_for(asyncio.gather(*map(engine.claim, asks)), PATIENCE_S)

    assert [1, 1] == [len(handout.jobs) for handout in handouts]


async def test_a_claim_for_a_full_queue_does_not_wait_for_busy_ones(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who does not wait is answered when its own limited queues were visited, however busy those of others are."""
    count = 0

    async def work(queue: str) -> None:
        nonlocal count
        while (await engine.claim(asking(count=1, queues=(queue,)))).jobs:
            count += 1

    busy = [f"q{n}" for n in range(8)]
    for queue in (*busy, "full"):
        await engine.acts.configure_queue(LaneName("default", queue), max_running=0 if queue == "full" else 10_000)
        await submit(engine, 1 if queue == "full" else 150, queue=queue)
    monkeypatch.setattr(limited, "MOST_LIMITED", 1)
    tasks = [asyncio.create_task(work(queue)) for queue in busy for _ in range(3)]
    await until(lambda: count > 16)

    for _ in range(3):
        handout = await engine.claim(asking(wait_s=0, queues=("full",)))
        assert [] == handout.jobs

    assert count <= 150 * len(busy) // 2, "It was answered when there was little left to do for the others."
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.one_kind
async def test_rel_t15_a_round_is_as_long_for_many_tenants_as_for_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tenants share what a round looks at, and each of them has its turn."""
    looked: Counter[str] = Counter()
    serves = Capability.serves

    def counted(self: Capability, name: LaneName) -> bool:
        looked[self.tenant] += 1
        return serves(self, name)

    for tenant in "abcd":
        await lanes_of(engine, tenant, "default", 50)
    asks = [Ask(tenant=t, worker="w", tasks=frozenset({f"x{n}"}), wait_s=POLL_S) for n in range(10) for t in "abcd"]
    tasks = await waiting(engine, *asks)
    await look_now(engine)
    monkeypatch.setattr(dispatch, "MOST_LOOKED", 120)
    monkeypatch.setattr(Capability, "serves", counted)
    rounds = rounds_over_all(engine)

    totals = [looked.total() for _ in (next(rounds) for _ in range(4))]
    in_four_rounds = set(looked)
    totals += [looked.total() for _ in rounds]

    assert set("abcd") == in_four_rounds
    assert max(after - before for before, after in pairwise([0, *totals])) <= 120 + 50
    await leave(tasks)


@pytest.mark.one_kind
async def test_rel_t15_cheap_claims_do_not_wait_for_the_costly_ones_of_another_tenant(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a tenant without lanes all ten kinds of claims are looked for in the first round."""
    await lanes_of(engine, "b", "default", 50)
    asks = [Ask(tenant=t, worker="w", tasks=frozenset({f"x{n}"}), wait_s=POLL_S) for n in range(10) for t in "ab"]
    tasks = await waiting(engine, *asks)
    await look_now(engine)
    monkeypatch.setattr(dispatch, "MOST_LOOKED", 120)

    next(rounds_over_all(engine))

    found = Counter(group.tenant for group in engine._dispatch._looked_for)
    assert (10, 2) == (found["a"], found["b"])
    await leave(tasks)


@pytest.mark.parametrize("max_running", [None, 5])
async def test_rel_t15_each_of_very_many_tenants_is_looked_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, max_running: int | None
) -> None:
    """With more tenants than lanes that are looked at in one go each of them gets its job."""
    for module in (dispatch, limited):
        monkeypatch.setattr(module, "MOST_LOOKED", 1)
    for tenant in "abc":
        await engine.acts.configure_queue(LaneName(tenant, "default"), max_running=max_running)
    tasks = await waiting(engine, *(Ask(tenant=tenant, worker="w", wait_s=POLL_S) for tenant in "abc"))

    await engine.submit([NewJob(id=engine.ids.new(), task="t", tenant=tenant) for tenant in "abc"])
    handouts = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S / 2)

    assert [1, 1, 1] == [len(handout.jobs) for handout in handouts]


def rounds_over_all(engine: Engine) -> Iterator[None]:
    """Look for everybody who waits as if for the first time, a round at each step."""
    own = engine._dispatch
    own._looked_for.clear()
    for group in own._line.groups(own._turns):
        group.seen = -1
    while not own._looked_for.issuperset(groups := own._line.groups(own._turns)):
        own._wanted(groups)
        yield


@pytest.mark.one_kind
async def test_rel_t9_who_has_nothing_to_do_is_looked_for_among_new_lanes_only(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty idle kinds of claims beside fifty lanes: a look finds nothing new, one more lane costs thirty tests."""
    await lanes_of(engine, "a", "default", 50)
    asks = [Ask(tenant="a", worker="w", tasks=frozenset({f"x{n}"}), wait_s=POLL_S) for n in range(30)]
    tasks = await waiting(engine, *asks)
    await look_now(engine)
    async with by_turns() as (counts, count):
        count_tests(monkeypatch, count)

        await look_now(engine)
        after_a_look = counts.total()
        await engine.submit([NewJob(id=engine.ids.new(), task="new", tenant="a")])
        await look_now(engine)

        assert (0, 30) == (after_a_look, counts.total())
    await leave(tasks)


@pytest.mark.one_kind
async def test_rel_t9_a_look_is_taken_over_in_portions(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred lanes ten are read in one turn of the event loop."""
    await lanes_of(engine, "a", "default", 100)
    monkeypatch.setattr(hot, "PORTION", 10)
    tasks = await waiting(engine, asking())

    async with by_turns() as (counts, count):

        def counted(row: Any) -> Lane:
            count()
            return lane_from_row(row)

        monkeypatch.setattr(claims, "lane_from_row", counted)
        await look_now(engine)

    assert 0 == counts.total() % 100
    assert 10 == max(counts.values())
    await leave(tasks)


@pytest.mark.one_kind
def test_a_look_believes_what_was_woken_since_it_began() -> None:
    """Lanes that a look has not found are empty, but those that were woken meanwhile, which keep their ranks."""
    lanes = HotLanes()
    for number in (1, 2, 3):
        lanes.woken(number, 10 * number)

    stamp = lanes.look()
    lanes.woken(2, 5)
    lanes.looked([(1, 11)], stamp=stamp)
    lanes.woken(4, 40)
    lanes.looked([(4, 44), (2, 22)], stamp=stamp)
    lanes.empty(lanes.unseen(stamp).items())

    assert {1: 11, 2: 5, 4: 40} == {number: lanes.hint(number) for number in range(5) if number in lanes}


@pytest.mark.one_kind
async def test_a_lane_that_has_changed_is_a_new_one() -> None:
    """Whoever was idle is looked for again when a look finds that a lane is limited no more."""
    queues = HotQueues(lanes := HotLanes(), Lanes())
    limit = Lane(1, LaneName("default", "mail", "t"), 0, 1, 0, 0, 5, None, None)
    free = msgspec.structs.replace(limit, limited=0, max_running=None)

    found = []
    for lane in (limit, limit, free):
        before = queues.arrivals
        await queues.look([(lane, 10)], stamp=lanes.look())
        found.append(queues.of("default", ["mail"], after=before))

    assert [[limit], [], [free]] == found


async def test_a_limit_that_is_lifted_lets_the_waiting_go_on(engine: Engine) -> None:
    """A worker that waited at a full queue is served when the queue has no limit any more."""
    await engine.acts.configure_queue(LaneName("default", "mail"), max_running=0)
    [job_id] = await submit(engine, queue="mail")
    [task] = await waiting(engine, asking(queues=("mail",)))
    await look_now(engine)

    await engine.acts.configure_queue(LaneName("default", "mail"))
    look(engine)

    assert [job_id] == ids_of(await asyncio.wait_for(task, PATIENCE_S))


@pytest.mark.one_kind
async def test_a_claim_does_not_bring_a_deleted_tenant_back(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """M1: a worker that has waited at a limited queue asks again after its tenant is gone."""
    await engine.acts.configure_queue(LaneName("acme", "mail"), max_running=0)
    [job] = await engine.submit([NewJob(id=engine.ids.new(), task="t", tenant="acme", queue="mail")])
    ask = Ask(tenant="acme", worker="w", queues=("mail",), wait_s=POLL_S)
    tasks = await waiting(engine, ask)
    await look_now(engine)
    await until(lambda: ("acme", "mail") in list(engine._dispatch._line.demands))
    await leave(tasks)
    async with engine.db.transaction() as transaction:
        await erasure.remove_jobs(transaction, [job.id])
    await tenants.delete(engine.db, engine.lanes, engine.ids, "acme", pause=engine.outside.pause)

    made: list[object] = []
    resolve = engine.lanes.resolve

    async def noted(db: Any, names: Sequence[LaneName]) -> dict[LaneName, Lane]:
        made.extend(names)
        return await resolve(db, names)

    monkeypatch.setattr(engine.lanes, "resolve", noted)

    tasks = await waiting(engine, ask)
    await until(lambda: ("acme", "mail") not in list(engine._dispatch._line.demands))
    await leave(tasks)

    assert [] == made
    assert ["default"] == [tenant.name for tenant in (await tenants.list_tenants(engine.db)).tenants]


async def test_a_lane_that_is_emptied_while_its_queue_is_learned_spoils_no_claim(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue of two lanes that this server did not know, one of which a rival empties: the other's job is claimed."""
    await engine.acts.configure_queue(LaneName("default", "mail"), max_running=10)
    resolve, hot_lanes = engine.lanes.resolve, engine._dispatch._hot
    emptied: list[int] = []

    async def slow(db: Any, names: Sequence[LaneName]) -> dict[LaneName, Lane]:
        if not emptied and [LaneName("default", "mail")] == list(names):
            emptied.extend(
                lane.id for lane in engine._dispatch._queues.of("default", ["mail"]) if lane.name.task == "t"
            )
            hot_lanes.empty(hot_lanes.stamps(emptied).items())
        return await resolve(db, names)

    [task] = await waiting(engine, asking(queues=("mail",)))
    monkeypatch.setattr(engine.lanes, "resolve", slow)
    await engine.submit([NewJob(id=engine.ids.new(), task=name, queue="mail") for name in ("t", "other")])

    handout = await asyncio.wait_for(task, PATIENCE_S)

    assert 1 == len(emptied)
    assert ["other"] == [handed.job.task for handed in handout.jobs]


@pytest.mark.one_kind
def test_rel_t9_a_lane_is_compared_with_no_list_of_queues() -> None:
    """A claim may name a thousand queues: whether it can run a lane is one look, not one for each of them."""
    compared: Counter[str] = Counter()

    class Name(str):
        def __eq__(self, other: object) -> bool:
            compared[self] += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

    can = Capability.of(Ask(tenant="a", worker="w", queues=tuple(Name(f"q{n}") for n in range(1000))))

    assert can.serves(LaneName("a", Name("q999"), "t"))
    assert compared.total() <= 10


@pytest.mark.one_kind
async def test_rel_t9_each_limited_queue_of_a_claim_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that does not wait is for two hundred full queues, which are visited one in a pass."""
    line, looked = Line(), 0
    visited_since = Demands.visited_since

    def counted(self: Demands, *arguments: Any) -> bool:
        nonlocal looked
        looked += 1
        return visited_since(self, *arguments)

    monkeypatch.setattr(Demands, "visited_since", counted)
    queues = [f"q{n}" for n in range(200)]
    line.join(waiter := Waiter(Ask(tenant="a", worker="w", queues=tuple(queues))))
    [group] = line.groups(Turns())
    line.demands.can_run(group, set(queues))
    waiter.hasty = True
    line.join(waiter)
    line.pacify([waiter])
    line.served_free([group])

    answered = []
    for queue in queues:
        line.demands.refused(("a", queue))
        line.served_limited()
        answered.append(waiter.gone)

    assert [False] * 199 + [True] == answered
    assert looked <= 1 + 2 * len(queues)


@pytest.mark.one_kind
async def test_long_jobs_of_a_limited_queue_follow_each_other(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are too long for one claim come with the next one, not after the next look at all lanes."""
    monkeypatch.setattr(claims, "MOST_BYTES", 1000)
    monkeypatch.setattr(dispatch, "LOOK_S", PATIENCE_S * 10)
    await engine.acts.configure_queue(LaneName("default", "mail"), max_running=1000)
    tasks = await waiting(engine, *(asking(queues=("mail",)) for _ in range(4)))
    await until(lambda: not engine._dispatch._line.discontent)
    looked_at = engine._dispatch._looked_at

    await engine.submit(
        [NewJob(id=engine.ids.new(), task="t", queue="mail", payload=f'"{"x" * 900}"') for _ in range(4)]
    )
    handouts = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)

    assert 4 == len({job_id for handout in handouts for job_id in ids_of(handout)})
    assert looked_at == engine._dispatch._looked_at
