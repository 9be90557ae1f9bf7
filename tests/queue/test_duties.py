"""Duties: one holder at a time by lease and term; servers that live are counted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.clock import TestClock
from tests.databases import connected, opened
from tests.sqltext import parse
from windlass.db import Database
from windlass.errors import NotFound
from windlass.queue.duties import (
    Duty,
    Held,
    Metadata,
    beat_server,
    close_server,
    list_duties,
    list_servers,
    release,
    renew,
    resign,
    take,
)
from windlass.queue.vacuum import vacuum
from windlass.queue.workers import NewSession, register

LEASE_MS = 6000
A, B, C = (UUID(int=number) for number in (1, 2, 3))
SPOIL = parse(
    """
-- name: spoil
-- Leave metadata that nobody can read.
-- both
UPDATE duty SET metadata = 'not JSON'
""",
    origin="test_duties.py",
)["spoil"]


async def taken(db: Database, *names: str, holder: UUID = A, server: str = "one") -> dict[str, int]:
    """Take what is free of these duties and return the terms by name."""
    won = await take(db, names, holder=holder, server=server, lease_ms=LEASE_MS)
    return {name: one.term for name, one in won.items()}


async def renewed(db: Database, name: str, term: int, *, holder: UUID = A) -> bool:
    """Say whether a renewal was accepted."""
    return name in await renew(db, [Held(name, term, Metadata())], holder=holder, lease_ms=LEASE_MS)


async def the_duty(db: Database, name: str = "promote") -> Duty:
    """Return a duty as it stands."""
    return next(duty for duty in await list_duties(db) if duty.name == name)


async def test_a_free_duty_is_taken_once(db: Database) -> None:
    """U3: no row yet: the first to ask has it, all that were asked for in one statement; the second gets nothing."""
    first = await taken(db, "rescue", "promote")
    second = await taken(db, "rescue", "promote", "vacuum", holder=B)

    assert {"promote": 1, "rescue": 1} == first
    assert {"vacuum": 1} == second


async def test_rel_i27_a_lease_that_is_over_is_taken_with_the_next_term(db: Database, clock: TestClock) -> None:
    """U3, I14: when the lease has expired by the database's clock another takes it, not a moment before."""
    await taken(db, "promote")

    clock.advance(5.999)
    early = await taken(db, "promote", holder=B)
    clock.advance(0.001)
    due = await taken(db, "promote", holder=B)

    assert ({}, {"promote": 2}) == (early, due)


async def test_a_renewal_moves_the_expiry(db: Database, clock: TestClock) -> None:
    """U4: a holder that renews keeps its duties, in the same term."""
    await taken(db, "promote")

    for _ in range(5):
        clock.advance(4)
        assert await renewed(db, "promote", 1)

    clock.advance(5)
    assert {} == await taken(db, "promote", holder=B)
    assert 1 == (await the_duty(db)).term


async def test_rel_k4_a_renewal_of_a_lost_duty_finds_no_row(db: Database, clock: TestClock) -> None:
    """U5, K4, M4: renewing goes by holder and term; the deposed one learns it from the rows that come back."""
    await taken(db, "promote", "rescue")
    clock.advance(6)
    await taken(db, "promote", holder=B)

    held = [Held("promote", 1, Metadata(items=9)), Held("rescue", 1, Metadata())]
    kept = await renew(db, held, holder=A, lease_ms=LEASE_MS)

    assert {"rescue": clock.now()} == kept
    duty = await the_duty(db)
    assert (B, 2, 0) == (duty.holder, duty.term, duty.metadata.items)


async def test_rel_k4_an_old_term_of_the_same_holder_is_refused(db: Database, clock: TestClock) -> None:
    """I14: the term is part of the name; a holder that lost and won again cannot renew what it had before."""
    await taken(db, "promote")
    clock.advance(6)
    await taken(db, "promote", holder=B)
    clock.advance(6)
    await taken(db, "promote")

    assert not await renewed(db, "promote", 1)
    assert set() == await resign(db, [Held("promote", 1)], holder=A)
    assert await renewed(db, "promote", 3)


async def test_rel_k5_three_servers_of_one_name_have_one_duty(db: Database, clock: TestClock) -> None:
    """K5, M5: who holds is told by a random id, never by the name of a host."""
    won = [await taken(db, "promote", holder=holder, server="same") for holder in (A, B, C)]

    renewals = [await renewed(db, "promote", 1, holder=holder) for holder in (A, B, C)]

    assert [{"promote": 1}, {}, {}] == won
    assert [True, False, False] == renewals


async def test_a_resigned_duty_is_free_at_once(db: Database) -> None:
    """U6: who gives up sets the expiry to now and leaves what it has done; the next holder need not wait."""
    await taken(db, "promote", "rescue")

    gone = await resign(db, [Held("promote", 1, Metadata(items=7)), Held("rescue", 1)], holder=A)
    free = await the_duty(db)
    won = await take(db, ["promote", "rescue"], holder=B, server="two", lease_ms=LEASE_MS)

    assert {"promote", "rescue"} == gone
    assert (None, None) == (free.held_by, free.holder)
    assert [(2, 7), (2, 0)] == [(won[name].term, won[name].metadata.items) for name in ("promote", "rescue")]


async def test_a_duty_is_handed_to_a_successor_that_lives(db: Database, clock: TestClock) -> None:
    """U5, U6: it is the successor's at once, in the next term; one that does not take it within a second loses it."""
    await taken(db, "promote", "rescue")
    for server, lease_ms in ((A, 60_000), (B, 60_000), (C, -1)):
        await beat_server(db, server, name=f"server-{server.int}", version="1", address=None, lease_ms=lease_ms)
    gone = {"promote": B, "rescue": C}
    await resign(db, [Held("promote", 1), Held("rescue", 1)], holder=A, successors=gone)

    [handed, free] = await list_duties(db)
    terms = [await taken(db, "promote", holder=C), await taken(db, "promote", holder=B)]
    await resign(db, [Held("promote", 3)], holder=B, successors={"promote": A})
    clock.advance(1)
    terms.append(await taken(db, "promote", holder=C))

    assert (B, f"server-{B.int}", 2) == (handed.holder, handed.held_by, handed.term)
    assert (None, 1) == (free.held_by, free.term)
    assert [{}, {"promote": 3}, {"promote": 5}] == terms


async def test_a_foreign_resignation_changes_nothing(db: Database) -> None:
    """Rule 8: only the holder, in its term, can resign."""
    await taken(db, "promote")

    foreign = await resign(db, [Held("promote", 1)], holder=B)
    wrong_term = await resign(db, [Held("promote", 2)], holder=A)

    assert (set(), set()) == (foreign, wrong_term)
    assert "one" == (await the_duty(db)).held_by


async def test_an_operator_takes_a_duty_from_its_holder(db: Database) -> None:
    """A release frees a duty whoever has it; the holder's next renewal finds nothing."""
    await taken(db, "promote", "rescue")

    released = await release(db, "promote")

    assert (None, None, None) == (released.held_by, released.holder, released.held_for_s)
    assert not await renewed(db, "promote", 1)
    assert {"promote": 2} == await taken(db, "promote", holder=B)
    assert "one" == (await the_duty(db, "rescue")).held_by


async def test_a_duty_that_never_was_cannot_be_released(db: Database) -> None:
    """The error names the duty."""
    with pytest.raises(NotFound, match="'nonsense'"):
        await release(db, "nonsense")


async def test_a_duty_tells_who_has_it_and_for_how_long(db: Database, clock: TestClock) -> None:
    """U10: holder, held time, age of the heartbeat and what was done are visible; a lease that is over shows nobody."""
    start = clock.now()
    await taken(db, "promote")
    clock.advance(4)
    done = Metadata(last_run_at=start, progress_at=start, duration_ms=12, items=3, errors=1)
    await renew(db, [Held("promote", 1, done)], holder=A, lease_ms=LEASE_MS)
    clock.advance(1)

    [held] = await list_duties(db)
    clock.advance(5)
    [over] = await list_duties(db)

    assert ("promote", "one", A, 1) == (held.name, held.held_by, held.holder, held.term)
    assert (5.0, 1.0, 5.0, 5.0) == (held.held_for_s, held.heartbeat_age_s, held.expires_in_s, held.progress_age_s)
    assert (start, start + timedelta(seconds=4), done) == (held.acquired_at, held.heartbeat_at, held.metadata)
    assert (None, None, 0.0) == (over.held_by, over.held_for_s, over.expires_in_s)


async def test_metadata_that_cannot_be_read_is_empty(db: Database) -> None:
    """What another version or a person wrote there does not keep anybody from taking the duty."""
    await taken(db, "promote")
    await db.fetch(SPOIL)

    [duty] = await list_duties(db)

    assert Metadata() == duty.metadata
    assert await renewed(db, "promote", 1)


async def test_rel_e3_a_duty_of_the_future_is_free(postgres_db: Database, clock: TestClock) -> None:
    """Z9: when the clock goes back an hour, a duty whose holder died is not waited for; SQLite's clock never does."""
    await taken(postgres_db, "promote")

    clock.advance(hours=-1)

    assert {"promote": 2} == await taken(postgres_db, "promote", holder=B)
    assert {} == await taken(postgres_db, "promote", holder=C)


async def test_servers_that_live_are_counted(db: Database, clock: TestClock) -> None:
    """U2: each server is counted from its first beat until its lease is over or it says that it ends."""

    async def beat(server_id: UUID) -> int:
        alive = await beat_server(db, server_id, name="same", version="1", address="h:1", lease_ms=LEASE_MS)
        return len(alive.others) + 1

    counts = [await beat(A), await beat(B), await beat(C), await beat(A)]
    await close_server(db, C)
    counts.append(await beat(A))
    clock.advance(6)
    counts.append(await beat(A))

    assert [1, 2, 3, 3, 2, 1] == counts
    assert [(A, True), (B, False), (C, False)] == [(server.id, server.live) for server in await list_servers(db)]


async def test_a_server_is_forgotten_a_day_after_it_was_heard(db: Database, clock: TestClock) -> None:
    """What has been silent for a day is no longer listed; one that comes back is itself again."""

    async def beat(server_id: UUID) -> None:
        await beat_server(db, server_id, name="one", version="1", address=None, lease_ms=LEASE_MS)

    start = clock.now()
    await beat(A)
    await beat(B)
    clock.advance(days=1)
    await beat(A)
    kept = [server.id for server in await list_servers(db)]
    clock.advance(7)
    await beat(A)

    assert [A, B] == kept
    [server] = await list_servers(db)
    assert (A, "one", "1", None, start, clock.now()) == (
        server.id,
        server.name,
        server.version,
        server.address,
        server.started_at,
        server.heartbeat_at,
    )


async def test_nothing_is_worn_in_a_new_database(sqlite_db: Database, fresh_postgres_url: str) -> None:
    """P4: tables with few dead rows are left alone, and SQLite has none."""
    async with opened(fresh_postgres_url) as db:
        assert ([], []) == (await vacuum(db), await vacuum(sqlite_db))


async def test_a_worn_table_is_vacuumed(fresh_postgres_url: str) -> None:
    """P4: dead rows beyond the bound are removed, without waiting for autovacuum."""
    async with opened(fresh_postgres_url) as db, connected(fresh_postgres_url) as connection:
        await connection.execute("ALTER TABLE windlass.session SET (autovacuum_enabled = off)")
        await register(db, NewSession(id=uuid4(), worker="w"))
        await connection.execute("UPDATE windlass.session SET busy = busy; UPDATE windlass.session SET busy = busy")
        await connection.execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")

        worn = await vacuum(db, dead_rows=0)

        assert ["session"] == worn
        assert [] == await vacuum(db, dead_rows=0)


async def test_of_a_large_table_a_fiftieth_must_be_dead(fresh_postgres_url: str) -> None:
    """T16: millions of schedules stay; reading all their indexes for a few dead rows would cost more than these do."""
    async with opened(fresh_postgres_url) as db, connected(fresh_postgres_url) as connection:
        await connection.execute("ALTER TABLE windlass.schedule_next SET (autovacuum_enabled = off)")
        await connection.execute(
            "INSERT INTO windlass.schedule_next (id, shard, version, waiting_count)"
            " SELECT gen_random_uuid(), n % 16, 1, 0 FROM generate_series(1, 1000) AS n"
        )

        few = await worn_after(connection, db, 10)
        many = await worn_after(connection, db, 90)

        assert ([], ["schedule_next"]) == (few, many)


async def worn_after(connection: asyncpg.Connection[Any], db: Database, dead: int) -> list[str]:
    """Leave so many dead rows in schedule_next, and return what is vacuumed."""
    await connection.execute(
        "UPDATE windlass.schedule_next SET version = version + 1"
        f" WHERE id IN (SELECT id FROM windlass.schedule_next LIMIT {dead})"
    )
    await connection.execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    return await vacuum(db, dead_rows=0)
