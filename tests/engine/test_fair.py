"""Tenants take turns: neither the number nor the cost of one tenant's items delays another tenant by more than one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from windlass.config import Settings
from windlass.db import Database
from windlass.engine.batch import MUCH
from windlass.engine.engine import Engine
from windlass.engine.fair import (
    MOST_REMEMBERED,
    MOST_REST_OF_ALL_S,
    MOST_REST_S,
    RECENT_S,
    FairQueue,
    LargeWrites,
    LoopTurns,
    Recent,
    Turnstile,
)
from windlass.engine.outside import Outside
from windlass.errors import TooMany, Unavailable
from windlass.queue.newjob import NewJob


def drained(queue: FairQueue[str]) -> list[str]:
    """Return all items in the order in which they are served."""
    items = []
    while (item := queue.pop()) is not None:
        items.append(item)
    return items


def test_one_tenant_is_served_in_the_order_it_came() -> None:
    """Within a tenant nothing overtakes."""
    queue: FairQueue[str] = FairQueue()
    for item in ("first", "second", "third"):
        queue.push("a", item)

    assert "first" == queue.peek()
    assert ["first", "second", "third"] == drained(queue)
    assert None is queue.peek()


def test_a_newcomer_waits_for_one_item_at_most() -> None:
    """A tenant that comes late does not wait for all that another has brought before."""
    queue: FairQueue[str] = FairQueue()
    for number in range(5):
        queue.push("a", f"a{number}")
    queue.pop()

    queue.push("b", "b0")
    queue.push("b", "b1")

    assert ["b0", "a1", "b1", "a2", "a3", "a4"] == drained(queue)


def test_turns_are_shared_by_cost() -> None:
    """Ten small items weigh as much as one that costs ten times as much."""
    queue: FairQueue[str] = FairQueue()
    for number in range(2):
        queue.push("a", f"A{number}", cost=10)
    for _ in range(12):
        queue.push("b", "b", cost=1)

    assert "A0" + "b" * 10 == "".join(drained(queue))[:12]


def test_a_tenant_that_was_away_saves_nothing_up() -> None:
    """A long absence gives no right to more than an equal share."""
    queue: FairQueue[str] = FairQueue()
    for _ in range(100):
        queue.push("a", "a")
    for _ in range(50):
        queue.pop()

    for _ in range(100):
        queue.push("b", "b")

    assert 5 == [queue.pop() for _ in range(10)].count("b")


def test_a_tenant_that_comes_back_at_once_has_not_used_less() -> None:
    """Bringing one item at a time is no way to be served more often than the others that wait."""
    queue: FairQueue[str] = FairQueue()
    for _ in range(20):
        queue.push("b", "b")
    served = []

    for _ in range(10):
        queue.push("a", "a", cost=3)
        served += [queue.pop(), queue.pop()]
        if "a" not in served[-2:]:
            served.append(queue.pop())

    assert served.count("a") * 3 <= served.count("b") + 6


def test_tenants_can_be_passed_over() -> None:
    """The next item of the others is taken, and the one passed over keeps its place."""
    queue: FairQueue[str] = FairQueue()
    queue.push("a", "a")
    queue.push("b", "b")

    assert "b" == queue.pop({"a"})
    assert None is queue.pop({"a"})
    assert 1 == queue.waiting("a") == len(queue)
    assert "a" == queue.pop()


def test_past_use_is_not_remembered_without_bound() -> None:
    """A thousand tenants that have gone leave no entries behind."""
    queue: FairQueue[str] = FairQueue()
    queue.push("stays", "x")
    queue.push("stays", "x")

    for number in range(3 * MOST_REMEMBERED):
        queue.push(f"t{number}", "x")
    for _ in range(3 * MOST_REMEMBERED):
        queue.pop()

    assert len(queue._used) <= MOST_REMEMBERED + 2


async def test_a_tenant_cannot_take_all_turns() -> None:
    """With two of three turns taken by one tenant, which may have two, the third is for others."""
    gates = Turnstile("lists", at_once=3, at_once_each=2, room_each=10)
    async with AsyncExitStack() as inside:
        for _ in range(2):
            await inside.enter_async_context(gates.turn("a"))
        third = asyncio.create_task(inside.enter_async_context(gates.turn("a")))
        await asyncio.sleep(0)

        await inside.enter_async_context(gates.turn("b"))

        assert not third.done()
        third.cancel()
        await asyncio.wait([third])


async def test_those_that_wait_are_admitted_by_turns() -> None:
    """When a turn is free it goes to the tenant that was served least."""
    gates = Turnstile("lists", at_once=1, at_once_each=1, room_each=10)
    admitted = []

    async def come(tenant: str) -> None:
        async with gates.turn(tenant):
            admitted.append(tenant)
            await asyncio.sleep(0)

    await asyncio.gather(*(come(tenant) for tenant in ["a", "a", "a", "a", "b", "b"]))

    assert ["a", "b", "a", "b", "a", "a"] == admitted


async def test_a_tenant_and_a_key_have_only_so_much_room() -> None:
    """One key may take half of the room of its tenant, and no tenant the room of another."""
    gates = Turnstile("lists", at_once=10, at_once_each=10, room_each=4)
    async with AsyncExitStack() as inside:
        for key in ("k1", "k1", "k2"):
            await inside.enter_async_context(gates.turn("a", key))

        with pytest.raises(TooMany, match="2 lists of this key"):
            await inside.enter_async_context(gates.turn("a", "k1"))
        await inside.enter_async_context(gates.turn("a", "k2"))
        with pytest.raises(TooMany, match="4 lists of tenant a"):
            await inside.enter_async_context(gates.turn("a", "k3"))
        await inside.enter_async_context(gates.turn("b", "k4"))

    async with gates.turn("a", "k1"):
        assert 2 == len(gates._room)
    assert not gates._room


async def test_a_long_wait_ends_with_a_word() -> None:
    """A caller that is not admitted in time is told to come back, and its place is free for the next."""
    gates = Turnstile("lists", at_once=1, at_once_each=1, room_each=10, patience_s=0)
    async with gates.turn("a"):
        with pytest.raises(Unavailable, match="Other lists took all turns"):
            async with gates.turn("b"):
                pass

    async with gates.turn("c"):
        assert {"c": 1} == gates._inside


async def test_a_caller_that_leaves_at_its_admission_gives_the_turn_on() -> None:
    """A cancel that meets the admission loses no turn."""
    gates = Turnstile("lists", at_once=1, at_once_each=1, room_each=10)

    async def come() -> None:
        async with gates.turn("b"):
            pass

    async with gates.turn("a"):
        waiting = asyncio.create_task(come())
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    async with gates.turn("c"):
        assert {"c": 1} == gates._inside


async def test_one_request_computes_in_each_round_of_the_loop() -> None:
    """A short request waits for one turn of others in each round, however many compute, and tenants take turns."""
    turns, rounds, computed = LoopTurns(), 0, []
    running = True

    async def count_rounds() -> None:
        nonlocal rounds
        while running:
            rounds += 1
            await asyncio.sleep(0)

    async def compute(tenant: str) -> None:
        for _ in range(3):
            await turns.wait(tenant)
            computed.append((rounds, tenant))

    counting = asyncio.create_task(count_rounds())
    await asyncio.gather(*(compute(tenant) for tenant in ["a", "a", "a", "b"]))
    running = False
    await counting

    assert 12 == len({in_round for in_round, _ in computed})
    assert ["a", "b", "a", "b", "a", "b"] == [tenant for _, tenant in computed[:6]]


async def test_a_turn_of_a_caller_that_left_goes_on() -> None:
    """A request that was cancelled while it waited for its turn keeps nobody from theirs."""
    turns = LoopTurns()
    left = asyncio.create_task(turns.wait("a"))
    stays = asyncio.create_task(turns.wait("a"))
    await asyncio.sleep(0)

    left.cancel()
    await asyncio.wait([left, stays])

    assert (True, None) == (left.cancelled(), stays.result())


class Clock:
    """A clock that only the test, and what waits for it, moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        """Return the time."""
        return self.now_s

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.pauses.append(seconds)
        self.now_s += seconds


def test_tenants_that_call_are_remembered_for_a_while() -> None:
    """A tenant that has not called for ten seconds is none that others make room for."""
    clock = Clock()
    recent = Recent(clock.monotonic)
    recent.note("a")
    clock.now_s = RECENT_S - 1
    recent.note("b")

    before = recent.tenants()
    clock.now_s += 2

    assert ({"a", "b"}, {"b"}) == (before, recent.tenants())


@pytest.mark.parametrize(
    ("callers", "one_writer", "took_s", "rests"),
    [
        ("ab", True, 0.125, [MOST_REST_OF_ALL_S, 0.25 - MOST_REST_OF_ALL_S]),
        ("ab", True, 20.0, [MOST_REST_OF_ALL_S, MOST_REST_S - MOST_REST_OF_ALL_S]),
        ("a", True, 0.125, []),
        ("ab", False, 0.125, []),
    ],
)
async def test_rel_t15_the_writer_is_left_to_others_after_a_large_write(
    callers: str, one_writer: bool, took_s: float, rests: list[float]
) -> None:
    """T15: twice as long as the write took, but not for long, where there is one writer and another tenant calls."""
    clock = Clock()
    recent = Recent(clock.monotonic)
    writes = LargeWrites(recent, Outside(monotonic=clock.monotonic, pause=clock.pause), one_writer=one_writer)

    async with writes.turn("a"):
        clock.now_s += took_s
        for tenant in callers:
            recent.note(tenant)
    answered_s = clock.now_s
    async with writes.turn("a"):
        next_s = clock.now_s

    assert rests == clock.pauses
    assert (took_s, took_s + sum(rests)) == (answered_s, next_s)


async def for_ever(_: float) -> None:
    """Rest until it is ended."""
    await asyncio.Event().wait()


async def test_rel_t15_the_rest_after_a_large_write_is_for_the_most_part_its_tenants_own() -> None:
    """T15: large writes of others, such as heartbeats that name many jobs, wait a moment; after a stop none does."""
    clock, order = Clock(), list[str]()
    recent, of_all = Recent(clock.monotonic), asyncio.Event()

    async def pause(seconds: float) -> None:
        await (of_all.wait() if seconds <= MOST_REST_OF_ALL_S else for_ever(seconds))

    writes = LargeWrites(recent, Outside(monotonic=clock.monotonic, pause=pause), one_writer=True)

    async def write(tenant: str) -> None:
        async with writes.turn(tenant):
            clock.now_s += 1
            order.append(tenant)
            recent.note("c")

    await write("a")
    again = [asyncio.create_task(write(tenant)) for tenant in "aab"]
    for _ in range(5):
        await asyncio.sleep(0)
    at_first = list(order)
    of_all.set()
    await again.pop()
    later = list(order)
    await writes.stop()
    await asyncio.gather(*again)

    assert (["a"], ["a", "b"], ["a", "b", "a", "a"]) == (at_first, later, order)


async def test_a_rest_that_is_ended_before_it_began_holds_back_nobody() -> None:
    """A stop in the very moment in which a write ends."""
    clock = Clock()
    recent = Recent(clock.monotonic)
    writes = LargeWrites(recent, Outside(monotonic=clock.monotonic, pause=for_ever), one_writer=True)
    recent.note("b")
    async with writes.turn("a"):
        pass

    await writes.stop()

    assert (0, 0) == (writes._own._inside_count, writes._turns._inside_count)


async def test_a_stop_does_not_wait_for_rests_of_the_writer(db: Database) -> None:
    """A large request behind the rest of the one before is stored at once when the server drains."""
    engine = Engine(db, Settings(), name="scheduler_test_1", outside=Outside(pause=for_ever))
    engine.recent.note("other")
    first, second = ([NewJob(id=engine.ids.new(), task="t") for _ in range(MUCH + 1)] for _ in range(2))
    await engine.submit(first)
    behind = asyncio.create_task(engine.submit(second))
    await asyncio.sleep(0)

    await engine.drain()

    assert MUCH + 1 == len(await behind)


async def test_rel_t15_one_large_write_is_under_way_where_there_is_one_writer() -> None:
    """T15: the others wait outside, so that a small write does not wait for all of them."""
    clock = Clock()
    writes = LargeWrites(Recent(clock.monotonic), Outside(monotonic=clock.monotonic), one_writer=True)
    inside: list[str] = []

    async def write(tenant: str) -> None:
        async with writes.turn(tenant):
            inside.append(tenant)

    async with writes.turn("a"):
        waiting = [asyncio.create_task(write(tenant)) for tenant in "aab"]
        for _ in range(5):
            await asyncio.sleep(0)

        assert [] == inside
    await asyncio.gather(*waiting)
    assert ["a", "a", "b"] == sorted(inside)
