"""The gate: good keys come in, all others are told the same, and nobody new while the database is away."""

from __future__ import annotations

import asyncio
import hmac
from datetime import timedelta
from typing import Any

import pytest

from tests.clock import TestClock, no_pause
from windlass.db import Database
from windlass.errors import Forbidden, TooMany, Unauthorized, Unavailable
from windlass.ids import Ids
from windlass.queue import keys, tenants
from windlass.queue.keys import SCOPES, NewKey, key_id_of, make_token
from windlass.queue.lanes import Lanes
from windlass.server import auth
from windlass.server.auth import Gate, Principal, require

HERE, THERE = "192.0.2.1", "192.0.2.2"
READ = frozenset({"read"})


class Counting:
    """A database that counts what it is asked, and can be away."""

    def __init__(self, inner: Database) -> None:
        self.inner = inner
        self.dialect = inner.dialect
        self.capabilities = inner.capabilities
        self.run = inner.run
        self.transaction = inner.transaction
        self.asked = self.at_once = self.most_at_once = 0
        self.ids: list[list[str]] = []
        """Of the keys that each statement looked up."""
        self.away = False
        self.slow: dict[str, asyncio.Event] = {}
        """Key ids whose look-up waits for an event."""

    async def fetch(self, query: Any, /, **parameters: Any) -> Any:
        """Run a query, unless the database is away."""
        self.asked += 1
        if self.away:
            raise Unavailable("The database does not answer: host db-7 refused.")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.ids.append(parameters["ids"])
        await asyncio.sleep(0)
        for key_id in self.slow.keys() & set(parameters["ids"]):
            await self.slow[key_id].wait()
        try:
            return await self.inner.fetch(query, **parameters)
        finally:
            self.at_once -= 1


@pytest.fixture
def counting(db: Database) -> Counting:
    """The database, counting."""
    return Counting(db)


@pytest.fixture
def gate(counting: Counting, clock: TestClock) -> Gate:
    """A gate that wants keys."""
    return Gate(counting, keys_required=True, clock=clock)


async def made(db: Database, **fields: Any) -> tuple[keys.Key, str]:
    """Make a key, a reader's unless said otherwise."""
    return await keys.create(db, NewKey(**({"name": "shop", "scopes": READ} | fields)))


def bearer(token: str) -> dict[str, str]:
    """Return the headers of a caller with this token."""
    return {"authorization": f"Bearer {token}"}


def other_secret(token: str) -> str:
    """Return a well-formed token with the same id and another secret."""
    other = make_token()
    body = f"{token[:16]}{other[16:-7]}"
    return body + keys._checksum(body)


async def refusal(gate: Gate, headers: dict[str, str], *names: str, address: str = HERE) -> Unauthorized:
    """Expect that a caller is refused, and return how."""
    with pytest.raises(Unauthorized) as refused:
        await gate.admit(headers, names, address)
    return refused.value


@pytest.mark.parametrize(
    "headers",
    [
        lambda token: {"authorization": f"Bearer {token}"},
        lambda token: {"authorization": f"bearer  {token} "},
        lambda token: {"x-api-key": token},
        lambda token: {"x-api-key": token, "authorization": f"Bearer {token}"},
    ],
)
async def test_a_good_key_comes_in(gate: Gate, db: Database, headers: Any) -> None:
    """N2: as a bearer token, or in X-API-Key, or the same one in both."""
    key, token = await made(db, tenant="default", queues=frozenset({"mail"}))

    principal = await gate.admit(headers(token), ["limit", "key"], HERE)

    assert Principal(key.id, "shop", "default", READ, frozenset({"mail"})) == principal


async def test_an_admin_has_all_scopes(gate: Gate, db: Database) -> None:
    """N2: admin includes the others; every other scope is only itself."""
    _, admin = await made(db, scopes=frozenset({"admin"}))
    _, reader = await made(db)

    assert SCOPES == (await gate.admit(bearer(admin), (), HERE)).scopes
    assert READ == (await gate.admit(bearer(reader), (), HERE)).scopes


async def test_rel_t2_every_refusal_is_the_same(gate: Gate, db: Database, clock: TestClock) -> None:
    """T2: no key, none of ours, unknown, another secret, revoked, expired, of a deleted tenant, two: one answer."""
    await tenants.create(db, "acme", pause=no_pause)
    _, good = await made(db)
    _, other = await made(db)
    revoked, revoked_token = await made(db)
    await keys.revoke(db, revoked.id)
    _, expired = await made(db, expires_at=clock.now() + timedelta(seconds=1))
    orphan, orphaned = await made(db, tenant="acme")
    await keys.revoke(db, orphan.id)
    await tenants.delete(db, Lanes(), Ids(db.now), "acme", pause=no_pause)
    clock.advance(1)

    refused = [
        await refusal(gate, headers)
        for headers in (
            {},
            {"authorization": ""},
            {"authorization": "Bearer"},
            {"authorization": good},
            {"authorization": f"Basic {good}"},
            {"x-api-key": ""},
            {"x-api-key": "wl_nonsense"},
            bearer("é\x00"),
            bearer(good[:-1]),
            bearer(make_token()),
            bearer(other_secret(good)),
            bearer(revoked_token),
            bearer(expired),
            bearer(orphaned),
            bearer(good) | {"x-api-key": other},
            {"authorization": f"Basic {good}", "x-api-key": good},
        )
    ]

    assert 1 == len({str(error) for error in refused})
    assert {(401, "Bearer")} == {(error.status, error.challenge) for error in refused}


@pytest.mark.parametrize("name", ["api_key", "token", "access_token", "API_KEY", "apikey"])
async def test_rel_t1_a_key_in_the_query_is_refused(gate: Gate, counting: Counting, db: Database, name: str) -> None:
    """T1: an address lands in logs, so a key there is no key; not even beside a good one, and nothing is looked up."""
    _, token = await made(db)

    await refusal(gate, bearer(token), "limit", name)

    assert 0 == counting.asked


async def test_rel_t2_a_slip_of_the_hand_asks_the_database_nothing(gate: Gate, counting: Counting) -> None:
    """T2: the checksum refuses it."""
    await refusal(gate, bearer(make_token()[:-1] + "1"))

    assert 0 == counting.asked


async def test_rel_t2_every_secret_is_compared_in_constant_time(
    gate: Gate, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2: a good key, another secret and an unknown id all meet two comparisons of hashes of one length."""
    _, token = await made(db)
    compared: list[set[int]] = []
    counts = []

    def compare(left: str, right: str) -> bool:
        compared.append({len(left), len(right)})
        return hmac.compare_digest(left, right)

    monkeypatch.setattr(auth, "compare_digest", compare)
    await gate.admit(bearer(token), (), HERE)
    counts.append(len(compared))
    for wrong in (other_secret(token), make_token()):
        await refusal(gate, bearer(wrong))
        counts.append(len(compared))

    assert [2, 4, 6] == counts
    assert [{64}] * 6 == compared


async def test_rel_t3_a_revoked_key_is_refused_within_two_seconds(gate: Gate, db: Database, clock: TestClock) -> None:
    """T3: a key found good is believed for less than two seconds, on every server."""
    key, token = await made(db)
    await gate.admit(bearer(token), (), HERE)
    await keys.revoke(db, key.id)

    clock.advance(1.9)
    believed = await gate.admit(bearer(token), (), HERE)
    clock.advance(0.1)

    assert key.id == believed.key_id
    await refusal(gate, bearer(token))


async def test_rel_t3_use_does_not_prolong_belief(gate: Gate, db: Database, clock: TestClock) -> None:
    """T3: it runs from the look-up, so a key in steady use ends too."""
    key, token = await made(db)
    await gate.admit(bearer(token), (), HERE)
    await keys.revoke(db, key.id)
    for _ in range(3):
        clock.advance(0.6)
        await gate.admit(bearer(token), (), HERE)

    clock.advance(0.6)

    await refusal(gate, bearer(token))


async def test_rel_t3_a_clock_set_back_does_not_prolong_belief(gate: Gate, db: Database, clock: TestClock) -> None:
    """T3: an entry from the future is looked up again."""
    key, token = await made(db)
    await gate.admit(bearer(token), (), HERE)
    await keys.revoke(db, key.id)

    clock.advance(-3600)

    await refusal(gate, bearer(token))


async def test_rel_t3_a_slow_look_up_is_as_old_as_its_question(
    gate: Gate, counting: Counting, db: Database, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3: what was read before a revoke is not believed for two seconds after it."""
    key, token = await made(db)

    async def slowly(query: Any, /, **parameters: Any) -> Any:
        rows = await db.fetch(query, **parameters)
        clock.advance(10)
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(counting, "fetch", slowly)
        await gate.admit(bearer(token), (), HERE)
    await keys.revoke(db, key.id)

    await refusal(gate, bearer(token))


async def test_a_key_in_use_costs_one_look_up_in_two_seconds(gate: Gate, counting: Counting, db: Database) -> None:
    """N2: requests do not pay for their key."""
    _, token = await made(db)

    for _ in range(20):
        await gate.admit(bearer(token), (), HERE)

    assert 1 == counting.asked


async def test_rel_t2_known_and_unknown_ids_cost_the_same(gate: Gate, counting: Counting, db: Database) -> None:
    """L3: a wrong secret costs one look-up whether its id is in use, known or made up; after ten failures none."""
    _, in_use = await made(db)
    _, known = await made(db)
    costs: dict[str, list[int]] = {}
    for name, wrong in {"in use": other_secret(in_use), "known": other_secret(known), "made up": make_token()}.items():
        costs[name] = []
        for _ in range(12):
            await gate.admit(bearer(in_use), (), THERE)
            asked = counting.asked
            with pytest.raises((Unauthorized, TooMany)):
                await gate.admit(bearer(wrong), (), HERE)
            costs[name].append(counting.asked - asked)

    assert dict.fromkeys(costs, [1] * 10 + [0] * 2) == costs


async def test_rel_t2_made_up_ids_are_slowed_by_their_address(gate: Gate, db: Database, clock: TestClock) -> None:
    """L3: a hundred failures in a minute, each with another id, and the address is told to wait; no good key is."""
    _, token = await made(db)
    answers = []
    for _ in range(150):
        with pytest.raises((Unauthorized, TooMany)) as refused:
            await gate.admit(bearer(make_token()), (), HERE)
        answers.append(refused.value.status)

    assert [401] * 100 + [429] * 50 == answers
    assert "shop" == (await gate.admit(bearer(token), (), HERE)).name
    await refusal(gate, bearer(make_token()), address=THERE)
    clock.advance(60)
    await refusal(gate, bearer(make_token()))


async def test_rel_t2_addresses_of_one_network_are_slowed_together(gate: Gate) -> None:
    """L3: whoever has an IPv6 network has all its addresses."""
    for number in range(100):
        await refusal(gate, bearer(make_token()), address=f"2001:db8::{number:x}")

    with pytest.raises(TooMany):
        await gate.admit(bearer(make_token()), (), "2001:db8::ffff:1")
    await refusal(gate, bearer(make_token()), address="2001:db8:0:1::1")


async def test_rel_t2_guesses_have_one_look_up_at_a_time(gate: Gate, counting: Counting) -> None:
    """L3: guesses wait for each other, of one address or many, and then share a look-up."""
    tries = (gate.admit(bearer(make_token()), (), address) for _ in range(20) for address in (HERE, THERE))
    refused = await asyncio.gather(*tries, return_exceptions=True)

    assert {Unauthorized} == {type(error) for error in refused}
    assert 1 == counting.most_at_once
    assert counting.asked <= 2


@pytest.mark.parametrize(("address", "statement"), [(HERE, 2), (THERE, 1)])
async def test_rel_t2_a_new_key_waits_for_a_few_look_ups_whatever_the_crowd(
    gate: Gate, counting: Counting, db: Database, address: str, statement: int
) -> None:
    """L3: with 1,500 guesses before it a good key that was never seen is found soon, from another address at once."""
    key, token = await made(db)
    guesses = [make_token() for _ in range(1_500)]
    go_on = counting.slow[key_id_of(guesses[0]) or ""] = asyncio.Event()
    guessing = [asyncio.create_task(gate.admit(bearer(guesses[0]), (), HERE))]
    for _ in range(20):  # nothing but our own steps is waited for
        await asyncio.sleep(0)
    guessing += [asyncio.create_task(gate.admit(bearer(guess), (), HERE)) for guess in guesses[1:]]
    coming = asyncio.create_task(gate.admit(bearer(token), (), address))
    await asyncio.sleep(0)
    go_on.set()
    principal = await coming
    await asyncio.gather(*guessing, return_exceptions=True)

    assert key.id == principal.key_id
    assert [1, 1_000, 500] == [len(ids) for ids in counting.ids]
    assert key.id in counting.ids[statement]
    assert 1 == counting.most_at_once


async def test_rel_t2_a_good_key_does_not_wait_behind_guesses(
    gate: Gate, counting: Counting, db: Database, clock: TestClock
) -> None:
    """L3: whoever has a secret that was good here passes those who guess; a wrong one waits, its id known or not."""
    _, token = await made(db)
    guess, unknown, wrong = make_token(), make_token(), other_secret(token)
    await gate.admit(bearer(token), (), THERE)
    for _ in range(101):
        with pytest.raises((Unauthorized, TooMany)):
            await gate.admit(bearer(make_token()), (), HERE)
    clock.advance(2)
    go_on = counting.slow[key_id_of(guess) or ""] = asyncio.Event()
    asked = counting.asked
    waiting = [asyncio.create_task(gate.admit(bearer(text), (), HERE)) for text in (guess, unknown, wrong)]
    for _ in range(20):  # nothing but our own steps is waited for
        await asyncio.sleep(0)
    asked_by_guesses = counting.asked - asked

    async with asyncio.timeout(5):
        principal = await gate.admit(bearer(token), (), HERE)
        clock.advance(2)
        again = await gate.admit(bearer(token), (), HERE)
    go_on.set()
    refused = await asyncio.gather(*waiting, return_exceptions=True)

    assert ("shop", "shop") == (principal.name, again.name)
    assert 1 == asked_by_guesses
    assert [TooMany] * 3 == [type(error) for error in refused]


async def test_rel_t2_a_key_that_is_good_no_more_waits_with_the_guesses(
    gate: Gate, counting: Counting, db: Database, clock: TestClock
) -> None:
    """L3: a revoked key passes the guesses once, and then waits as they do."""
    key, token = await made(db)
    await gate.admit(bearer(token), (), THERE)
    await keys.revoke(db, key.id)
    for _ in range(101):
        with pytest.raises((Unauthorized, TooMany)):
            await gate.admit(bearer(make_token()), (), HERE)
    clock.advance(2)
    guess = make_token()
    go_on = counting.slow[key_id_of(guess) or ""] = asyncio.Event()
    guessing = asyncio.create_task(gate.admit(bearer(guess), (), HERE))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        with pytest.raises(TooMany):
            await gate.admit(bearer(token), (), HERE)

    asked = counting.asked
    again = asyncio.create_task(gate.admit(bearer(token), (), HERE))
    for _ in range(20):  # nothing but our own steps is waited for
        await asyncio.sleep(0)
    asked_again = counting.asked
    go_on.set()
    await asyncio.gather(guessing, again, return_exceptions=True)

    assert asked == asked_again


async def test_an_unknown_key_is_looked_up_each_time(gate: Gate, counting: Counting, db: Database) -> None:
    """N2: a key made a moment ago works at once: that it was unknown is not remembered."""
    token = make_token()
    await refusal(gate, bearer(token))
    await keys.bootstrap(db, token)

    principal = await gate.admit(bearer(token), (), HERE)

    assert ("bootstrap", 2) == (principal.name, counting.asked)


@pytest.mark.parametrize("guess", ["other secret", "unknown", "malformed"])
async def test_rel_t2_who_guesses_is_slowed(gate: Gate, db: Database, clock: TestClock, guess: str) -> None:
    """T2: after ten failures in a minute a caller is told to wait, for as long as the minute lasts."""
    _, token = await made(db)
    wrong = {"other secret": other_secret(token), "unknown": make_token(), "malformed": "wl_x"}[guess]
    for _ in range(10):
        await refusal(gate, bearer(wrong))
    clock.advance(20)

    with pytest.raises(TooMany) as slowed:
        await gate.admit(bearer(wrong), (), HERE)

    assert (429, 40.0) == (slowed.value.status, slowed.value.retry_after_s)
    clock.advance(40)
    await refusal(gate, bearer(wrong))


async def test_rel_t2_a_thousand_guesses_lock_no_good_key_out(gate: Gate, db: Database, clock: TestClock) -> None:
    """T2: the good key comes in from the same address, remembered or not; another address is not slowed."""
    _, token = await made(db)
    answers = []
    for _ in range(1000):
        with pytest.raises((Unauthorized, TooMany)) as refused:
            await gate.admit(bearer(other_secret(token)), (), HERE)
        answers.append(refused.value.status)

    clock.advance(2)
    first = await gate.admit(bearer(token), (), HERE)
    again = await gate.admit(bearer(token), (), HERE)

    assert [401] * 10 + [429] * 990 == answers
    assert "shop" == first.name == again.name
    await refusal(gate, bearer(other_secret(token)), address=THERE)


async def test_rel_t2_made_up_names_do_not_fill_the_memory(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """T2: only so many failures are remembered; the oldest make room, and the newest still count."""
    monkeypatch.setattr(auth, "MAX_REMEMBERED", 5)
    for _ in range(20):
        await refusal(gate, bearer(make_token()))
    last = make_token()
    for _ in range(10):
        await refusal(gate, bearer(last))

    with pytest.raises(TooMany):
        await gate.admit(bearer(last), (), HERE)

    assert 5 == len(gate._failures)


async def test_rel_t22_nobody_new_while_the_database_is_away(
    gate: Gate, counting: Counting, db: Database, clock: TestClock
) -> None:
    """T22: it fails closed: 503 to all but those found good a moment ago, and nothing told of the database."""
    _, known = await made(db)
    _, new = await made(db)
    await gate.admit(bearer(known), (), HERE)
    counting.away = True

    with pytest.raises(Unavailable) as refused:
        await gate.admit(bearer(new), (), HERE)
    believed = await gate.admit(bearer(known), (), HERE)
    clock.advance(2)
    with pytest.raises(Unavailable):
        await gate.admit(bearer(known), (), HERE)

    assert "shop" == believed.name
    assert (503, 1.0) == (refused.value.status, refused.value.retry_after_s)
    assert "db-7" not in str(refused.value)


async def test_rel_t22_an_outage_counts_as_nobodys_failure(gate: Gate, counting: Counting, db: Database) -> None:
    """T22: a good key that could not be looked up is not a wrong one."""
    _, token = await made(db)
    counting.away = True
    for _ in range(20):
        with pytest.raises(Unavailable):
            await gate.admit(bearer(token), (), HERE)
    counting.away = False

    assert "shop" == (await gate.admit(bearer(token), (), HERE)).name


async def test_without_keys_everyone_may_do_everything(counting: Counting, clock: TestClock) -> None:
    """N4: where no key is asked for, none is looked at."""
    gate = Gate(counting, keys_required=False, clock=clock)

    callers = [await gate.admit(headers, ["token"], HERE) for headers in ({}, bearer("x"), bearer(make_token()))]

    assert [Principal(None, "anonymous", None, SCOPES, None)] * 3 == callers
    assert 0 == counting.asked


@pytest.mark.parametrize("scope", sorted(SCOPES))
def test_rel_t4_a_scope_is_had_or_not(scope: str) -> None:
    """T4: each scope allows itself and nothing else; the refusal names what is missing."""
    principal = Principal("id", "shop", None, frozenset({scope}))

    require(principal, scope)

    for other in SCOPES - {scope}:
        with pytest.raises(Forbidden, match=f"Key shop lacks the scope {other}; it has {scope}") as refused:
            require(principal, other)
        assert 403 == refused.value.status


def test_rel_t4_a_key_of_some_queues_is_for_these() -> None:
    """N2: a queue limit holds for every queue that is named; without one every queue may be."""
    limited = Principal("id", "shop", None, READ, frozenset({"mail", "sms"}))

    require(limited, "read", queues=["mail", "sms"])
    require(Principal("id", "shop", None, READ), "read", queues=["any"])

    with pytest.raises(Forbidden, match="Key shop is not for queue any, only for mail, sms"):
        require(limited, "read", queues=["mail", "any"])


async def test_rel_t3_who_was_let_in_is_looked_at_again(gate: Gate, db: Database, clock: TestClock) -> None:
    """T3: a revoked key is no longer good two seconds later, also for a call that goes on."""
    key, token = await made(db)
    principal = await gate.admit(bearer(token), (), HERE)
    await keys.revoke(db, key.id)

    clock.advance(1.9)
    before = await gate.still_good(principal)
    clock.advance(0.1)

    assert (True, False) == (before, await gate.still_good(principal))


async def test_who_waits_stays_while_keys_cannot_be_looked_up(
    gate: Gate, counting: Counting, db: Database, clock: TestClock
) -> None:
    """Nothing is known then, and nothing can be handed out; callers without a key are not looked at."""
    _, token = await made(db)
    principal = await gate.admit(bearer(token), (), HERE)
    counting.away = True
    clock.advance(10)

    assert await gate.still_good(principal)
    assert await gate.still_good(auth.ANONYMOUS)
