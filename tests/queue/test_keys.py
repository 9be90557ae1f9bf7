"""Keys: made once, stored as a hash, found while they are good, revoked for good."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest

from tests.clock import TestClock, no_pause
from tests.queue.steps import NO_ZONE
from windlass.db import Database, Query, open_database
from windlass.errors import AlreadyExists, Forbidden, InvalidInput, NotFound
from windlass.ids import Ids
from windlass.queue import tenants
from windlass.queue.keys import (
    BOOTSTRAP,
    ROLES,
    SCOPES,
    Key,
    NewKey,
    bootstrap,
    create,
    find,
    hash_token,
    key_id_of,
    list_keys,
    make_token,
    revoke,
)
from windlass.queue.lanes import Lanes

READ = frozenset({"read"})
# All columns; the id under a name of its own, for it is no UUID.
EVERY_COLUMN = "SELECT id AS key, name, hash, tenant, scopes, queues, created_at, expires_at, revoked_at FROM key"
EVERY_KEY = Query("every_key", "All rows.", EVERY_COLUMN, EVERY_COLUMN)


def asked(name: str = "shop", **fields: Any) -> NewKey:
    """Return a key to ask for, a reader's unless said otherwise."""
    return NewKey(name=name, **({"scopes": READ} | fields))


async def made(db: Database, **fields: Any) -> tuple[Key, str]:
    """Make a key and return it with its token."""
    return await create(db, asked(**fields))


async def found(db: Database, token: str) -> Key | None:
    """Return the key of a token, if it may be used."""
    stored = await find(db, [key_id_of(token) or ""])
    return next((one.key for one in stored.values()), None)


async def test_a_key_is_found_by_the_id_in_its_token(db: Database, clock: TestClock) -> None:
    """N2: a key has scopes, and may have a tenant, queues and an end; all of them are kept as they were asked for."""
    until = clock.now() + timedelta(days=1)
    scopes = frozenset({"submit", "read"})

    key, token = await made(db, scopes=scopes, tenant="default", queues=frozenset({"b", "a c"}), expires_at=until)

    assert key == await found(db, token)
    assert ("shop", "default", scopes, frozenset({"b", "a c"})) == (key.name, key.tenant, key.scopes, key.queues)
    assert (clock.now(), until, None) == (key.created_at, key.expires_at, key.revoked_at)


async def test_a_key_without_limits_is_for_all(db: Database) -> None:
    """N2: tenant, queues and end are optional."""
    key, token = await made(db)

    assert (None, None, None) == (key.tenant, key.queues, key.expires_at)
    assert key == await found(db, token)


async def test_rel_t1_the_token_is_stored_nowhere(db: Database) -> None:
    """T1: a dump of the keys holds ids and hashes, and neither a token nor its secret."""
    _, token = await made(db)
    first = make_token()
    await bootstrap(db, first)

    dump = repr([dict(row) for row in await db.fetch(EVERY_KEY)])

    assert hash_token(token) in dump
    assert hash_token(first) in dump
    for secret in (token, first):
        assert secret not in dump
        assert secret.split("_")[2] not in dump


def test_rel_t1_a_token_has_256_random_bits() -> None:
    """T1, T25: the secret is of 32 bytes from the source that is given; id and secret share none of them."""
    drawn: list[int] = []

    def random_bytes(count: int) -> bytes:
        drawn.append(count)
        return bytes([len(drawn)]) * count

    token = make_token(random_bytes)

    assert [8, 32] == drawn
    assert re.fullmatch(r"wl_[a-z2-7]{12}_[a-z2-7]{59}", token)
    assert 100 == len({make_token() for _ in range(100)})


def test_rel_t1_a_slip_of_the_hand_is_seen_without_a_look_up() -> None:
    """T1: with any one character changed, left out or doubled a token is none."""
    token = make_token()

    assert token[3:15] == key_id_of(token)
    for at in range(len(token)):
        other = "a" if token[at] != "a" else "b"
        assert None is key_id_of(token[:at] + other + token[at + 1 :])
        assert None is key_id_of(token[:at] + token[at + 1 :])
        assert None is key_id_of(token[:at] + token[at] + token[at:])


@pytest.mark.parametrize("text", ["", "wl_", "wl__", "secret", "\x00", "wl_é", "\ud800", "wl_" + "a" * 100_000])
def test_what_is_no_token_has_no_id(text: str) -> None:
    """Anything may stand in a header."""
    assert None is key_id_of(text)
    assert None is key_id_of(make_token() + "\n")
    assert None is key_id_of(make_token().upper())


async def test_an_unknown_key_is_not_found(db: Database) -> None:
    """An id that was never stored is nobody's."""
    assert None is await found(db, make_token())


async def test_rel_t3_a_key_expires_by_the_databases_clock(db: Database, clock: TestClock) -> None:
    """T3: at its end, and not before, a key is not found; the statement decides, not the caller's clock."""
    key, token = await made(db, expires_at=clock.now() + timedelta(seconds=10))

    clock.advance(9)
    before = await found(db, token)
    clock.advance(1)

    assert key == before
    assert None is await found(db, token)


async def test_rel_t3_a_revoked_key_is_not_found(db: Database) -> None:
    """T3: it holds at once; another key of the same name, made to take its place, is not touched."""
    old, old_token = await made(db)
    new, new_token = await made(db)

    await revoke(db, old.id)

    assert None is await found(db, old_token)
    assert new == await found(db, new_token)


async def test_revoking_again_is_the_same(db: Database, clock: TestClock) -> None:
    """N2: a repeated revoke answers as the first did, with its time."""
    key, _ = await made(db)
    first = await revoke(db, key.id)
    clock.advance(60)

    again = await revoke(db, key.id)

    assert first == again
    assert clock.now() - timedelta(seconds=60) == first.revoked_at


async def test_rel_t5_a_key_is_seen_and_revoked_within_its_tenant_only(db: Database) -> None:
    """T5: to another tenant it is like a key that never was; so is one without tenant; above all tenants it is seen."""
    await tenants.create(db, "acme", pause=no_pause)
    own, token = await made(db, tenant="acme")
    above, above_token = await made(db)

    for key_id in (own.id, above.id, "aaaaaaaaaaaa"):
        with pytest.raises(NotFound, match=f"^There is no key {key_id}.$"):
            await revoke(db, key_id, tenant="default")

    assert [] == (await list_keys(db, "default")).keys
    assert [own] == (await list_keys(db, "acme")).keys
    assert sorted([own, above], key=lambda key: key.id) == (await list_keys(db)).keys
    assert (own, above) == (await found(db, token), await found(db, above_token))
    assert None is not (await revoke(db, own.id, tenant="acme")).revoked_at


@pytest.mark.parametrize("tenant", [None, "default", "nobody"])
async def test_rel_t5_a_tenants_admin_makes_keys_of_that_tenant_only(db: Database, tenant: str | None) -> None:
    """T5: not for another tenant, whether there is one or not, and not above all tenants."""
    await tenants.create(db, "acme", pause=no_pause)

    with pytest.raises(Forbidden, match="tenant acme can only make keys of that tenant"):
        await create(db, asked(tenant=tenant), within="acme")
    key, _ = await create(db, asked(tenant="acme"), within="acme")

    assert [key] == (await list_keys(db)).keys


@pytest.mark.parametrize("end", ["revoked", "expired", "removed"])
async def test_rel_t3_a_key_that_has_ended_makes_no_other(db: Database, clock: TestClock, end: str) -> None:
    """T3: a server may believe it for a while; what it made would outlive it."""
    await tenants.create(db, "acme", pause=no_pause)
    maker, _ = await made(db, tenant="acme", expires_at=clock.now() + timedelta(seconds=10))
    await create(db, asked("first", tenant="acme"), within="acme", maker=maker.id)

    if end == "revoked":
        await revoke(db, maker.id)
    elif end == "expired":
        clock.advance(10)
    else:
        await tenants.erase(db, Lanes(), Ids(db.now), "acme", actor="root")
        await tenants.create(db, "acme", pause=no_pause)

    with pytest.raises(Forbidden, match=f"Key {maker.id} is good no more"):
        await create(db, asked("backdoor", tenant="acme"), within="acme", maker=maker.id)
    assert "backdoor" not in [key.name for key in (await list_keys(db)).keys]


async def test_a_key_needs_a_tenant_that_is_there(db: Database) -> None:
    """N1: a key with a tenant implies the tenant."""
    with pytest.raises(NotFound, match="There is no tenant nobody"):
        await made(db, tenant="nobody")

    assert [] == (await list_keys(db)).keys


async def test_keys_are_listed_in_pages(db: Database) -> None:
    """P39: by id, each once, also those that are over; no token and no hash among them."""
    keys = [(await made(db))[0] for _ in range(5)]
    gone = await revoke(db, keys[0].id)
    wanted = sorted([gone, *keys[1:]], key=lambda key: key.id)

    first = await list_keys(db, limit=3)
    second = await list_keys(db, limit=3, cursor=first.next_cursor)

    assert wanted == first.keys + second.keys
    assert (wanted[2].id, None) == (first.next_cursor, second.next_cursor)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("name", {"name": ""}),
        ("name", {"name": "a\nb"}),
        ("tenant", {"tenant": ""}),
        ("tenant", {"tenant": "a/b"}),
        ("scopes", {"scopes": frozenset()}),
        ("scopes", {"scopes": frozenset({"root"})}),
        ("queues", {"queues": frozenset()}),
        ("queues", {"queues": frozenset({"a,b"})}),
        ("queues", {"queues": frozenset(map(str, range(101)))}),
        ("queues", {"queues": frozenset({"mail"}), "scopes": frozenset({"admin"})}),
        ("expires_at", {"expires_at": NO_ZONE}),
    ],
)
async def test_a_key_that_cannot_be_is_refused(db: Database, field: str, fields: dict[str, Any]) -> None:
    """The field is named, and nothing is stored. An admin limited to queues could make itself a key without limit."""
    with pytest.raises(InvalidInput) as refused:
        await made(db, **fields)

    assert field == refused.value.field
    assert [] == (await list_keys(db)).keys


def test_roles_are_sets_of_scopes() -> None:
    """N2: each role is made of scopes that there are."""
    assert {"admin", "producer", "reader", "worker"} == ROLES.keys()
    assert all(scopes <= SCOPES for scopes in ROLES.values())
    assert {"submit", "read"} == ROLES["producer"]


async def test_an_id_that_is_taken_is_not_overwritten(db: Database) -> None:
    """Should chance repeat itself, the first key stays as it is."""
    key, token = await create(db, asked(), random_bytes=lambda count: b"a" * count)

    with pytest.raises(AlreadyExists):
        await create(db, asked("other"), random_bytes=lambda count: b"a" * count)

    assert key == await found(db, token)


async def test_the_first_key_is_made_from_the_configured_token(db: Database) -> None:
    """N8: an admin's key without tenant; every start after the first finds it there."""
    token = make_token()

    assert [True, False] == [await bootstrap(db, token) for _ in range(2)]

    key = await found(db, token)
    assert key is not None
    assert (BOOTSTRAP, None, ROLES["admin"], None) == (key.name, key.tenant, key.scopes, key.expires_at)


async def test_a_revoked_first_key_stays_revoked(db: Database) -> None:
    """T3: a restart with the same setting does not bring it back."""
    token = make_token()
    await bootstrap(db, token)
    await revoke(db, key_id_of(token) or "")

    assert not await bootstrap(db, token)

    assert None is await found(db, token)


@pytest.mark.parametrize("token", ["", "secret", "wl_abc", make_token(bytes)[:-1]])
async def test_rel_t21_a_weak_first_key_is_refused(db: Database, token: str) -> None:
    """T21: only a token of ours has enough random bits; the message does not repeat what was configured."""
    with pytest.raises(InvalidInput, match=r"security\.bootstrap_key") as refused:
        await bootstrap(db, token)

    assert not token or token not in str(refused.value)
    assert [] == (await list_keys(db)).keys


async def test_a_first_key_with_the_id_of_another_is_refused(db: Database) -> None:
    """An id is one key's: who starts with another secret under it is told, and the stored one stays."""
    one = make_token(lambda count: b"i" * 8 if count == 8 else b"a" * count)
    other = make_token(lambda count: b"i" * 8 if count == 8 else b"b" * count)
    await bootstrap(db, one)

    with pytest.raises(InvalidInput, match="another secret"):
        await bootstrap(db, other)

    [stored] = (await find(db, [key_id_of(one) or ""])).values()
    assert hash_token(one) == stored.hash


async def test_servers_that_start_together_make_one_first_key(postgres_url: str, clock: TestClock) -> None:
    """N8: any server may be first; exactly one made it, all may go on."""
    token = make_token()
    servers = [await open_database(postgres_url, clock=clock) for _ in range(3)]

    made_it = await asyncio.gather(*(bootstrap(db, token) for db in servers for _ in range(3)))

    assert [True] == [one for one in made_it if one]
    assert 1 == len((await list_keys(servers[0])).keys)
    for db in servers:
        await db.close()


async def test_a_deleted_tenants_key_is_not_found(db: Database) -> None:
    """N1: with its tenant a key is gone, and a tenant of the same name made later does not bring it back."""
    await tenants.create(db, "acme", pause=no_pause)
    key, token = await made(db, tenant="acme")
    await revoke(db, key.id)
    await tenants.delete(db, Lanes(), Ids(db.now), "acme", pause=no_pause)

    gone = await found(db, token)
    await tenants.create(db, "acme", pause=no_pause)

    assert None is gone
    assert None is await found(db, token)
    assert [] == (await list_keys(db)).keys


async def test_a_key_whose_tenant_is_not_there_is_not_found(db: Database) -> None:
    """N1: should a key outlive its tenant, by hand or by a restored table, it lets nobody in."""
    await tenants.create(db, "acme", pause=no_pause)
    _, token = await made(db, tenant="acme")

    await db.fetch(tenants.SQL.drop_tenant, tenant="acme")

    assert None is await found(db, token)
