"""Sharing: each server does its share of the duties, and hands over what is beyond it, so that nobody waits for it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.engine.loops_world import Wake, World, counting
from tests.engine.test_loops import NAMES, duties_of_the_queue, several
from tests.queue.steps import Steps
from windlass.db import Statements
from windlass.queue import duties
from windlass.queue.duties import beat_server, list_servers
from windlass.queue.workers import find_sessions


async def test_a_server_that_ends_hands_over_at_once(world: World) -> None:
    """U6: a graceful stop gives the duties up and tells the others: not a second passes."""
    one = world.server(*several(world, 2))
    await world.pass_s(1)
    two = world.server(*several(world, 2))
    await world.pass_s(5)

    await one.loops.stop()
    await world.settle()

    assert [set(), {"a", "b"}] == world.held()
    assert [("duties",)] == one.wake.told[-1:]
    assert [(two.id, True), (one.id, False)] == [(server.id, server.live) for server in await list_servers(world.db)]


async def test_a_server_that_ends_hands_back_what_it_was_just_handed(world: World) -> None:
    """U6: each goes to the only other server by name, though it has just come from there."""
    one = world.server(*several(world, 4))
    await world.pass_s(1)
    two = world.server(*several(world, 4))
    await world.pass_s(1.2)
    handed = set(two.loops.held)
    one.freeze()  # so that it takes nothing by itself

    await two.loops.stop()

    owners = {duty.name: duty.holder for duty in await duties.list_duties(world.db)}
    assert 2 == len(handed)
    assert {one.id} == {owners[name] for name in handed}


@pytest.mark.parametrize(("servers", "most"), [(2, 4), (3, 3)])
async def test_nobody_keeps_more_than_its_share(world: World, servers: int, most: int) -> None:
    """U2: servers that come later are handed theirs in the next heartbeat, and none is left without a holder."""
    world.server(*several(world))
    await world.pass_s(1)
    for _ in range(servers - 1):
        world.server(*several(world))

    await world.pass_s(1)

    held = world.held()
    assert set(NAMES) == set().union(*held)
    assert 7 == sum(len(names) for names in held)
    assert most == max(len(names) for names in held)
    await world.pass_s(60)
    assert held == world.held()


async def test_a_notice_gives_up_no_more_than_a_heartbeat_does(world: World) -> None:
    """U2, U7: rounds between heartbeats, however many, give up what is beyond the share and no more."""
    one = world.server(*several(world), rotate_seconds=20)
    await world.pass_s(31)
    world.server(*several(world), start=False)
    await beat_server(world.db, uuid4(), name="new", version="1", address=None, lease_ms=60_000)

    for _ in range(5):
        one.loops.notice()
        await world.settle()

    assert 4 == len(one.loops.held)


async def test_the_share_grows_when_a_server_is_gone(world: World) -> None:
    """U2: whoever is left takes what the dead one had, when its leases are over."""
    one = world.server(*several(world))
    two = world.server(*several(world))
    await world.pass_s(20)

    two.freeze()
    await world.pass_s(7)

    assert set(NAMES) == set(one.loops.held)


async def test_a_duty_that_nobody_else_wants_is_kept_beyond_the_share(world: World) -> None:
    """I27: a server that lives and takes nothing, as one of an older version, leaves no duty without a holder."""
    await beat_server(world.db, uuid4(), name="old", version="0", address=None, lease_ms=3_600_000)
    one = world.server(*several(world, 4))
    await world.pass_s(1)
    first = len(one.loops.held)

    counts = []
    for _ in range(60):
        await world.pass_s(1)
        counts.append(len(one.loops.held))

    assert 2 == first
    assert {4} == set(counts[5:])


async def test_duties_rotate(world: World) -> None:
    """U7: with rotation a duty is passed on after so many seconds, others go first, and nobody waits for it."""
    one = world.server(counting("promote", [], world), rotate_seconds=60)
    await world.settle()
    two = world.server(counting("promote", [], world), rotate_seconds=60)
    holders = []

    for _ in range(310):
        await world.pass_s(1)
        holders.append([server for server in (one, two) if server.loops.held])

    turns = [(holder, len(list(group))) for holder, group in itertools.groupby(holders)]
    assert [[one], [two], [one], [two], [one]] == [holder for holder, _ in turns][:5]
    assert [] == [length_s for _, length_s in turns[:4] if not 59 <= length_s <= 63]


@pytest.mark.parametrize(("servers", "count"), [(2, 6), (5, 5)])
async def test_no_duty_is_without_a_holder_while_duties_rotate(
    world: World, servers: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U7: nobody has room for one more, and yet each is handed on at once, and not back to where it came from."""
    turns: dict[str, list[tuple[float, UUID]]] = {name: [] for name in NAMES[:count]}

    async def take(db: Statements, names: Sequence[str], *, holder: UUID, **others: Any) -> Mapping[str, duties.Taken]:
        taken = await take_really(db, names, holder=holder, **others)
        for name in taken:
            turns[name].append((world.now_s, holder))
        return taken

    take_really = duties.take
    monkeypatch.setattr(duties, "take", take)
    for _ in range(servers):
        world.server(*several(world, count), rotate_seconds=20)
    await world.pass_s(10)

    for _ in range(400):
        await world.pass_s(0.5)
        assert sorted(turns) == sorted(name for held in world.held() for name in held)

    for of_one in turns.values():
        assert len(of_one) >= 4
        assert all(before != after for (_, before), (_, after) in itertools.pairwise(of_one))
        for (_, before), (came_s, _), (left_s, after) in zip(of_one, of_one[1:], of_one[2:], strict=False):
            assert before != after or left_s - came_s >= 3


async def test_the_duties_of_a_server_that_ends_go_to_those_who_hold_the_fewest(world: World) -> None:
    """U6: each is handed over by name, so that several servers do not ask for the same ones."""
    servers = [world.server(*several(world)) for _ in range(3)]
    await world.pass_s(10)

    await servers[0].loops.stop()
    await world.settle()

    assert [0, 3, 4] == sorted(len(held) for held in world.held())


async def test_a_duty_handed_to_a_server_that_does_not_take_it_comes_back(world: World) -> None:
    """I27: a successor that lives and takes nothing leaves the duty without a holder for a moment, and only once."""
    one = world.server(*several(world))
    await world.pass_s(1)
    await beat_server(world.db, uuid4(), name="old", version="0", address=None, lease_ms=3_600_000)
    await world.pass_s(2)
    few = len(one.loops.held)

    await world.pass_s(4)
    counts = []
    for _ in range(60):
        await world.pass_s(1)
        counts.append(len(one.loops.held))

    assert (4, {7}) == (few, set(counts))


@pytest.mark.parametrize("lease_s", [1, 2, 6])
async def test_a_graceful_hand_over_is_no_silence(world: World, lease_s: int) -> None:
    """L11: a worker that falls silent is declared dead after its lease, though rescue changes its holder meanwhile."""
    servers = [world.server(*duties_of_the_queue(world, Wake())) for _ in range(2)]
    await world.pass_s(5)
    worker = await Steps(world.db, world.clock).worker(lease_s=lease_s)
    await world.pass_s(lease_s * 0.7)
    [holder] = [server for server in servers if "rescue" in server.loops.held]

    await holder.loops.stop()
    # A look after half a second sees the short lease first, and what lapses at this very instant is seen by the next.
    await world.pass_s(lease_s * 0.3 + 0.68)

    assert not (await find_sessions(world.db, [worker.session]))[worker.session].alive


async def test_a_lone_server_does_not_rotate(world: World) -> None:
    """U7: there is nobody to pass it on to."""
    one = world.server(counting("promote", [], world), rotate_seconds=60)

    await world.pass_s(200)

    assert {"promote": 1} == one.loops.held
