"""Races about duties: one holder in each term, whoever asks when."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from uuid import UUID

import pytest

from tests.queue.races.orders import Race
from tests.queue.races.pausing import COMMIT, Pausing
from tests.queue.races.stage import PATIENCE_S, Stage
from tests.queue.races.test_reports import good
from windlass.db import Database
from windlass.errors import WindlassError
from windlass.queue import duties
from windlass.queue.duties import Duty, Held, Metadata, Taken

DUTY_LEASE_MS = 6000
DAY_MS = 86_400_000
A, B, C = (UUID(int=number) for number in (1, 2, 3))
Won = Mapping[str, Taken]
_numbers = itertools.count(1)


async def take(db: Database, *names: str, holder: UUID) -> Won:
    """Take duties, as a server of the one name that all have."""
    return await duties.take(db, names, holder=holder, server="same", lease_ms=DUTY_LEASE_MS)


async def renew(db: Database, *names: str, holder: UUID = A, term: int = 1) -> set[str]:
    """Renew duties and return those that are still held."""
    held = [Held(name, term, Metadata(items=1)) for name in names]
    return set(await duties.renew(db, held, holder=holder, lease_ms=DUTY_LEASE_MS))


async def the_duty(stage: Stage, name: str) -> Duty:
    """Return a duty as it stands."""
    return next(duty for duty in await duties.list_duties(stage.db) if duty.name == name)


async def held_by_a(stage: Stage, *, over: bool) -> str:
    """Return the name of a new duty that A has; its lease is over, or not."""
    name = f"duty-{next(_numbers)}"
    await take(stage.db, name, holder=A)
    if over:
        stage.clock.advance(DUTY_LEASE_MS / 1000)
    return name


@pytest.mark.parametrize("known", [False, True], ids=["new", "expired"])
async def test_rel_k6_a_duty_is_won_by_one(stage: Stage, known: bool) -> None:
    """K6: two servers ask for the same duty at once; the rows that come back tell the one who has it."""

    async def prepare() -> str:
        return await held_by_a(stage, over=True) if known else f"duty-{next(_numbers)}"

    async def judge(name: str, left: Won | WindlassError, right: Won | WindlassError) -> None:
        winners = [holder for holder, won in ((B, left), (C, right)) if name in good(won)]
        assert 1 == len(winners)
        duty = await the_duty(stage, name)
        assert (winners[0], 2 if known else 1) == (duty.holder, duty.term)

    await Race(
        prepare, lambda db, name: take(db, name, holder=B), lambda db, name: take(db, name, holder=C), judge
    ).in_every_order(stage)


async def test_rel_k4_late_renewal_beside_a_taking(stage: Stage) -> None:
    """K4: the lease is over; the holder renews it or another takes it, and each knows from its own answer."""
    seen = set()

    async def judge(name: str, kept: set[str] | WindlassError, won: Won | WindlassError) -> None:
        renewed, taken = name in good(kept), name in good(won)
        seen.add(renewed)
        assert renewed is not taken
        duty = await the_duty(stage, name)
        assert ((A, 1, 1) if renewed else (B, 2, 0)) == (duty.holder, duty.term, duty.metadata.items)

    await Race(
        lambda: held_by_a(stage, over=True),
        lambda db, name: renew(db, name),
        lambda db, name: take(db, name, holder=B),
        judge,
    ).in_every_order(stage)
    assert {True, False} == seen


async def test_giving_up_beside_a_taking(stage: Stage) -> None:
    """U6: a duty that is given up is free or another's; what the other took is not taken from it."""
    seen = set()

    async def judge(name: str, gone: set[str] | WindlassError, won: Won | WindlassError) -> None:
        assert {name} == good(gone)
        taken = name in good(won)
        seen.add(taken)
        duty = await the_duty(stage, name)
        assert ((B, 2) if taken else (None, 1)) == (duty.holder, duty.term)

    await Race(
        lambda: held_by_a(stage, over=False),
        lambda db, name: duties.resign(db, [Held(name, 1)], holder=A),
        lambda db, name: take(db, name, holder=B),
        judge,
    ).in_every_order(stage)
    assert {True, False} == seen


async def test_a_late_resignation_beside_a_taking(stage: Stage) -> None:
    """Rule 8: the lease is over; whoever took it keeps it, however late the old holder gives up."""

    async def judge(name: str, gone: set[str] | WindlassError, won: Won | WindlassError) -> None:
        assert name in good(won)
        duty = await the_duty(stage, name)
        assert (B, 2, "same") == (duty.holder, duty.term, duty.held_by)
        assert good(gone) <= {name}

    await Race(
        lambda: held_by_a(stage, over=True),
        lambda db, name: duties.resign(db, [Held(name, 1)], holder=A),
        lambda db, name: take(db, name, holder=B),
        judge,
    ).in_every_order(stage)


async def test_a_release_beside_a_renewal(stage: Stage) -> None:
    """An operator's release holds: the renewal came before it or finds nothing."""

    async def judge(name: str, kept: set[str] | WindlassError, released: Duty | WindlassError) -> None:
        assert name == good(released).name
        assert good(kept) <= {name}
        assert None is (await the_duty(stage, name)).holder
        assert set() == await renew(stage.db, name)

    await Race(
        lambda: held_by_a(stage, over=False),
        lambda db, name: renew(db, name),
        lambda db, name: duties.release(db, name),
        judge,
    ).in_every_order(stage)


async def test_several_duties_are_locked_in_one_order(stage: Stage) -> None:
    """Rule 6: renewing many and taking many wait for each other, in whatever order they are named."""

    async def prepare() -> list[str]:
        names = [f"duty-{next(_numbers)}" for _ in range(3)]
        await take(stage.db, *names, holder=A)
        stage.clock.advance(DUTY_LEASE_MS / 1000)
        return names

    async def judge(names: list[str], kept: set[str] | WindlassError, won: Won | WindlassError) -> None:
        assert set() == good(kept) & good(won).keys()
        assert set(names) == good(kept) | good(won).keys()

    await Race(
        prepare,
        lambda db, names: renew(db, *reversed(names)),
        lambda db, names: take(db, *names, holder=B),
        judge,
    ).in_every_order(stage)


async def test_a_renewal_and_a_taking_that_wait_for_a_third_do_not_block_each_other(postgres_stage: Stage) -> None:
    """Rule 6: both lock the duties by name, so whoever waits for one holds none that the other has passed."""
    stage = postgres_stage
    names = [f"{letter}-{next(_numbers)}" for letter in "abc"]
    await take(stage.db, *names, holder=A)
    stage.clock.advance(DUTY_LEASE_MS / 1000)
    third = Pausing(stage.servers[0])
    point = third.hold_before(COMMIT)
    middle = asyncio.ensure_future(renew(third, names[1]))
    async with asyncio.timeout(PATIENCE_S):
        await point.reached.wait()
        taking = asyncio.ensure_future(take(stage.servers[1], *names, holder=B))
        await stage.until_waiting(1)
        renewal = asyncio.ensure_future(renew(stage.servers[2], *names))
        await stage.until_waiting(2)

        point.release()
        kept, won = await renewal, await taking

    assert {names[1]} == await middle == kept
    assert {names[0], names[2]} == won.keys()


async def test_rel_b4_taking_waits_for_nobody_long(hasty_stage: Stage) -> None:
    """U3, B4: a server that was stopped with a row locked keeps nobody waiting: that duty is not to be had now."""
    stage = hasty_stage
    name = await held_by_a(stage, over=True)
    stopped = Pausing(stage.servers[0])
    point = stopped.hold_before(COMMIT)
    renewal = asyncio.ensure_future(renew(stopped, name))
    async with asyncio.timeout(PATIENCE_S):
        await point.reached.wait()

        won = await take(stage.servers[1], name, holder=B)

        point.release()
        assert {} == won
        assert {name} == await renewal


async def test_servers_beat_side_by_side(stage: Stage) -> None:
    """Two servers that say at once that they live are both counted by the next, and forget the same dead ones."""

    async def beat(db: Database, server_id: UUID, lease_ms: int = DUTY_LEASE_MS) -> int:
        alive = await duties.beat_server(db, server_id, name="same", version="1", address=None, lease_ms=lease_ms)
        return len(alive.others) + 1

    async def prepare() -> None:
        await beat(stage.db, C, -2 * DAY_MS)

    async def judge(_: None, left: int | WindlassError, right: int | WindlassError) -> None:
        assert {good(left), good(right)} <= {1, 2}
        assert 2 == await beat(stage.db, A)
        assert {A, B} == {server.id for server in await duties.list_servers(stage.db)}

    await Race(prepare, lambda db, _: beat(db, A), lambda db, _: beat(db, B), judge).in_every_order(stage)
