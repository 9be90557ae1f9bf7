"""Auth: who is calling, and whether they may.

Every request passes the gate before anything else is looked at. A key comes in a header: `Authorization: Bearer …` or
`X-API-Key: …`. It is looked up by its public id and compared in constant time; what is wrong with a key that is refused
is never told, and a wrong secret costs the same whether its id is known or not. A key that was found good is believed
for two seconds, so a revoked one is refused everywhere soon after. Failures are counted by key id and by address: past
a limit the answer is to wait, and the id is looked up no more; a good key always comes in.

A caller whose secret was good at the last look-up of its id here has its key looked up at once. All others share one
statement at a time, up to a thousand of them, and addresses take turns. So a crowd that guesses keeps one connection to
the database busy, however large it is. A good key that this server has not seen yet waits for the statement under way,
and for one more with each thousand guesses from its address. That tells nobody which ids are known: a wrong secret
waits its turn and costs one look-up whether its id is known or not.

A caller that waits or follows a stream is looked at again every two seconds (call.py). When the database does not
answer, nobody new gets in.

Where no key is asked for, anybody on this machine may call, but no web page that somebody here happens to look at
(pages.py).

How keys are made and stored is in queue/keys.py; which route wants which scope stands in the table of routes.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Any, NamedTuple

import msgspec

from windlass.clock import Clock, system_clock
from windlass.engine.batch import Batcher
from windlass.engine.outside import Outside
from windlass.engine.weights import Weight
from windlass.errors import Forbidden, TooMany, Unauthorized, Unavailable
from windlass.queue.keys import SCOPES, Statements, StoredKey, find, hash_token, key_id_of
from windlass.server.pages import refuse_pages

BELIEVED = timedelta(seconds=2)
"""How long a good key is good without a look-up; revoking one must hold everywhere within five seconds."""
FAILURES = 10
"""Of one key id from one network, before it is told to wait."""
NETWORK_FAILURES = 100
"""Of one network, whatever it sends: many callers behind one proxy may have wrong keys."""
FAILURES_WITHIN = timedelta(minutes=1)
MOST_WAITING = 2_000_000
"""Callers that wait for a look-up, an address half of them: more than a server can have connections."""
MAX_REMEMBERED = 10_000
"""Entries kept of good keys, and of failures: callers who make names up must not fill the memory."""

QUERY_NAMES = frozenset({"api_key", "apikey", "x-api-key", "token", "access_token"})
"""Parameters that would carry a key into logs. `key` is not one: lists of jobs have a filter of that name."""

_REFUSED = "A valid key is needed. Send one as `Authorization: Bearer …`; `windlass keys create` makes one."
_NO_HASH = hash_token("")


class Principal(msgspec.Struct, frozen=True):
    """Who is calling: a key, or anyone where none is asked for."""

    key_id: str | None
    name: str
    tenant: str | None
    """None: above all tenants."""
    scopes: frozenset[str]
    queues: frozenset[str] | None = None
    """None: every queue."""


class _Guesses(msgspec.Struct):
    """Failures of one network."""

    since_at: datetime
    count: int = 0


class _Asked(NamedTuple):
    """An id to look up, and by whom it waits."""

    key_id: str
    network: str


class _Found(msgspec.Struct, frozen=True):
    asked_at: datetime
    stored: StoredKey
    principal: Principal


ANONYMOUS = Principal(key_id=None, name="anonymous", tenant=None, scopes=SCOPES)


class Gate:
    """Lets in who has a good key; one for each server."""

    def __init__(
        self,
        db: Statements,
        *,
        keys_required: bool,
        hosts: Collection[str] = (),
        clock: Clock = system_clock,
    ) -> None:
        """`hosts` are the names that this server goes by, besides those of loopback."""
        self._db = db
        self._hosts = hosts
        self._keys_required = keys_required
        self._clock = clock
        self._found: dict[str, _Found] = {}
        """Keys as they were last found, believed or not: the holder of such a key waits for no turn."""
        self._unknown: dict[str, datetime] = {}
        """Ids that were not found, and when they were looked up."""
        self._failures: dict[tuple[str, str], tuple[datetime, int]] = {}
        self._networks: dict[str, _Guesses] = {}
        self._line: Batcher[_Asked, _Found | None] = Batcher(
            "be looked up",
            lambda asked: self._look_up([one.key_id for one in asked]),
            weigh=lambda asked: Weight(1, 0, asked.network),
            outside=Outside(),
            room=MOST_WAITING,
        )

    async def admit(self, headers: Mapping[str, str], query_names: Collection[str], address: str) -> Principal:
        """Return who is calling; the names of headers are in lower case.

        Unauthorized, with the same text whatever is wrong; TooMany to who fails too often, though never with a good
        key; Unavailable when keys cannot be looked up; Forbidden to another's web page where no key is asked for.
        """
        if not self._keys_required:
            refuse_pages(headers, self._hosts)
            return ANONYMOUS
        if any(name.lower() in QUERY_NAMES for name in query_names):
            raise Unauthorized(_REFUSED)
        token = _token_in(headers)
        if token is None:
            raise Unauthorized(_REFUSED)
        key_id, network = key_id_of(token), _network(address)
        principal = None if key_id is None else await self._holder(key_id, token, network)
        if principal is None:
            # After the look, so that somebody else's failures never lock a good key out.
            self._count_failure(key_id or "", network)
            raise Unauthorized(_REFUSED)
        return principal

    async def still_good(self, principal: Principal) -> bool:
        """Say whether who was let in before would be let in now; while keys cannot be looked up, nothing is known."""
        if principal.key_id is None:
            return True
        try:
            return await self._find(principal.key_id) is not None
        except Unavailable:
            return True

    async def _holder(self, key_id: str, token: str, network: str) -> Principal | None:
        """Return who has this token; None if it is not good."""
        digest = hash_token(token)
        is_slowed = self._failure_count(key_id, network)[1] >= FAILURES
        known = self._believed(key_id)
        found = known
        if known is None and not (is_slowed and self._is_unknown(key_id)):
            found = await self._find_in_turn(key_id, digest, network)
        # Unknown keys are compared too, so that the time taken does not tell them apart.
        same = compare_digest(digest, _NO_HASH if found is None else found.stored.hash)
        if found is not None and same:
            return found.principal
        if known is not None and not is_slowed:
            # As long as for an id that is not remembered.
            await self._find_in_turn(key_id, digest, network)
        return None

    async def _find_in_turn(self, key_id: str, digest: str, network: str) -> _Found | None:
        """Look a key up: at once for a caller with a known secret, otherwise together with all that wait."""
        last = self._found.get(key_id)
        # By the secret, not by the id: who guesses the secret of a known id must not be faster for it.
        if compare_digest(digest, _NO_HASH if last is None else last.stored.hash):
            return (await self._look_up([key_id]))[0]
        return await self._line.ask(_Asked(key_id, network))

    async def _find(self, key_id: str) -> _Found | None:
        return self._believed(key_id) or (await self._look_up([key_id]))[0]

    def _believed(self, key_id: str) -> _Found | None:
        found = self._found.get(key_id)
        # A clock that was set back must not make anything good for longer.
        is_fresh = found is not None and timedelta(0) <= self._clock() - found.asked_at < BELIEVED
        return found if is_fresh else None

    def _is_unknown(self, key_id: str) -> bool:
        asked_at = self._unknown.get(key_id)
        return asked_at is not None and timedelta(0) <= self._clock() - asked_at < BELIEVED

    async def _look_up(self, ids: Sequence[str]) -> list[_Found | None]:
        asked_at = self._clock()
        try:
            stored = await find(self._db, ids)
        except Unavailable as error:
            raise Unavailable("Keys cannot be looked up: the database does not answer. Try again.") from error
        # By when it was asked: a slow answer is as old as its question.
        return [self._keep(key_id, stored.get(key_id), asked_at) for key_id in ids]

    def _keep(self, key_id: str, stored: StoredKey | None, asked_at: datetime) -> _Found | None:
        self._found.pop(key_id, None)
        if stored is None:
            self._unknown.pop(key_id, None)
            _make_room(self._unknown)
            self._unknown[key_id] = asked_at
            return None
        found = _Found(asked_at, stored, _principal(stored))
        _make_room(self._found)
        self._found[key_id] = found
        return found

    def _failure_count(self, key_id: str, network: str) -> tuple[datetime, int]:
        """Return since when failures are counted, and how many there were within a minute."""
        now = self._clock()
        since_at, count = self._failures.get((key_id, network), (now, 0))
        return (since_at, count) if timedelta(0) <= now - since_at < FAILURES_WITHIN else (now, 0)

    def _count_failure(self, key_id: str, network: str) -> None:
        """Remember a failure; TooMany after the tenth of a key, or the hundredth of a network, in a minute."""
        now = self._clock()
        since_at, count = self._failure_count(key_id, network)
        self._failures.pop((key_id, network), None)
        _make_room(self._failures)
        self._failures[key_id, network] = (since_at, count + 1)
        guesses = self._networks.pop(network, None)
        if guesses is None or not timedelta(0) <= now - guesses.since_at < FAILURES_WITHIN:
            guesses = _Guesses(now)
        _make_room(self._networks)
        self._networks[network] = guesses
        guesses.count += 1
        for limit, counted, began_at in (
            (FAILURES, count + 1, since_at),
            (NETWORK_FAILURES, guesses.count, guesses.since_at),
        ):
            if counted > limit:
                problem = TooMany(
                    f"More than {limit} wrong keys from here within a minute. Wait, then send a valid key."
                )
                problem.retry_after_s = (began_at + FAILURES_WITHIN - now).total_seconds()
                raise problem


def require(principal: Principal, scope: str, *, queues: Iterable[str] = ()) -> None:
    """Return if the caller has `scope`, and may use these queues; Forbidden names what is missing."""
    if scope not in principal.scopes:
        raise Forbidden(
            f"Key {principal.name} lacks the scope {scope}; it has {', '.join(sorted(principal.scopes))}. "
            "Use a key that has it."
        )
    if principal.queues is not None:
        for queue in queues:
            if queue not in principal.queues:
                raise Forbidden(
                    f"Key {principal.name} is not for queue {queue}, only for {', '.join(sorted(principal.queues))}. "
                    "Use one that is."
                )


def actor_of(principal: Principal) -> str:
    """Return who acts: names of keys are chosen freely, so the key's id stands behind."""
    return principal.name if principal.key_id is None else f"{principal.name} ({principal.key_id})"


def _token_in(headers: Mapping[str, str]) -> str | None:
    """Return the token sent; None if there is none, two that differ, or another scheme."""
    sent = set()
    authorization, plain = headers.get("authorization"), headers.get("x-api-key")
    if authorization is not None:
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer":
            return None
        sent.add(token.strip())
    if plain is not None:
        sent.add(plain.strip())
    return sent.pop() if len(sent) == 1 else None


def claimed_id(headers: Mapping[str, str]) -> str | None:
    """Return the key id that a caller names, good or not; None if there is none."""
    return key_id_of(_token_in(headers) or "")


def _network(address: str) -> str:
    """Return what failures are counted by: the address, of IPv6 the network that one caller has."""
    if ":" not in address:
        return address
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return address


def _principal(stored: StoredKey) -> Principal:
    key = stored.key
    scopes = SCOPES if "admin" in key.scopes else key.scopes
    return Principal(key_id=key.id, name=key.name, tenant=key.tenant, scopes=scopes, queues=key.queues)


def _make_room(entries: dict[Any, Any]) -> None:
    """Drop the oldest entry of a full table; what was dropped is looked up or counted anew."""
    if len(entries) >= MAX_REMEMBERED:
        del entries[next(iter(entries))]
