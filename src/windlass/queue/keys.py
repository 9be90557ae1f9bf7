"""Keys: who may call the servers, and what each may do.

A token is `wl_<id>_<secret><checksum>`. The id is public and finds the row; the secret has 256 random bits; the
checksum refuses a slip of the hand without a look-up. Stored are the id and the SHA-256 of the token, never the token:
it is shown once, by `create`. A key that is revoked, expired by the database's clock, or of a deleted tenant is not
found.

A key of a tenant is made, seen and revoked within that tenant only. Making one keeps the tenant's row, so a tenant that
is deleted meanwhile (tenants.py) either shows the key or was gone before. The check at the door is in server/auth.py.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import zlib
from collections.abc import Callable, Iterable
from datetime import datetime
from uuid import UUID

import msgspec

from windlass.db import Row, load
from windlass.db import Statements as Statements
from windlass.errors import AlreadyExists, Forbidden, InvalidInput, NotFound
from windlass.queue.history import MAX_PAGE
from windlass.queue.lanes import refuse_erasing
from windlass.queue.newjob import check_instant, check_name

SQL = load(__file__)

SCOPES = frozenset({"submit", "work", "read", "operate", "admin"})
ROLES = {
    "admin": frozenset({"admin"}),
    "producer": frozenset({"submit", "read"}),
    "reader": frozenset({"read"}),
    "worker": frozenset({"work"}),
}
"""Named sets of scopes."""
MAX_QUEUES = 100
SECRET_BYTES = 32
ID_BYTES = 8
ID_LENGTH = 12
"""Characters of a key's id, of five bits each."""
BOOTSTRAP = "bootstrap"
FORGOTTEN_S = 6.0
"""So long after its end nobody believes a key any more, and who waited with it has been sent away: within 5 s."""

_TOKEN = re.compile(r"(wl_([a-z2-7]{12})_[a-z2-7]{52})([a-z2-7]{7})", re.ASCII)

RandomBytes = Callable[[int], bytes]


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is asked for; `None` means absent."""

    name: str
    scopes: frozenset[str]
    tenant: str | None = None
    """None: a key for all tenants."""
    queues: frozenset[str] | None = None
    """None: a key for every queue."""
    expires_at: datetime | None = None


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it can be looked up: all but its secret."""

    id: str
    name: str
    tenant: str | None
    scopes: frozenset[str]
    queues: frozenset[str] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class StoredKey(msgspec.Struct, frozen=True):
    """A key that may be used now, and the hash that its token must have."""

    key: Key
    hash: str


class KeyPage(msgspec.Struct, frozen=True):
    """Some keys by id; `next_cursor` is None when there are no more."""

    keys: list[Key]
    next_cursor: str | None


def make_token(random_bytes: RandomBytes = secrets.token_bytes) -> str:
    """Return a new token, stored nowhere yet."""
    key_id = _letters(random_bytes(ID_BYTES))[:ID_LENGTH]
    body = f"wl_{key_id}_{_letters(random_bytes(SECRET_BYTES))}"
    return body + _checksum(body)


def key_id_of(token: str) -> str | None:
    """Return the id in a token; None if it has not the form of one or its checksum is wrong."""
    found = _TOKEN.fullmatch(token)
    return found[2] if found and found[3] == _checksum(found[1]) else None


def hash_token(token: str) -> str:
    """Return what is stored of a token. Its 256 random bits need no slow hash."""
    return hashlib.sha256(token.encode()).hexdigest()


async def create(
    db: Statements,
    new: NewKey,
    *,
    within: str | None = None,
    maker: str | None = None,
    random_bytes: RandomBytes = secrets.token_bytes,
) -> tuple[Key, str]:
    """Store a key and return it with its token, which nobody can be shown again.

    `within` is the tenant of who asks, None for one above all tenants; Forbidden for a key beyond it.
    `maker` is the key of who asks, None for one without; Forbidden if it has ended, though it may be believed still.
    NotFound if the key's tenant is unknown, BeingErased if it is being erased.
    """
    _check(new)
    if within is not None and new.tenant != within:
        raise Forbidden(
            f"A key of tenant {within} can only make keys of that tenant. Name it, or use a key without tenant."
        )
    token = make_token(random_bytes)
    async with db.transaction() as transaction:
        if new.tenant is not None:
            kept = await transaction.fetch(SQL.keep_tenant, tenant=new.tenant)
            if not kept:
                raise NotFound(f"There is no tenant {new.tenant}. Create it first.")
            refuse_erasing(new.tenant, kept[0]["erasing"])
        if maker is not None and not await transaction.fetch(SQL.keep_key, id=maker):
            raise Forbidden(f"Key {maker} is good no more, and can make no other. Use one that is.")
        made = await _store(transaction, new, token)
    if made is None:
        raise AlreadyExists("A key with this id is stored already; nothing was written. Try again.")
    return made, token


async def bootstrap(db: Statements, token: str) -> bool:
    """Make the first key from a configured token, an admin's without tenant; False if it is there, revoked or not."""
    key_id = key_id_of(token)
    if key_id is None:
        raise InvalidInput(
            "security.bootstrap_key",
            "it is not a token of ours. Make one with `windlass keys token`.",
        )
    if await _store(db, NewKey(name=BOOTSTRAP, scopes=ROLES["admin"]), token) is not None:
        return True
    # In the next statement: a rival that was waited for is seen now.
    [found] = await db.fetch(SQL.hash_of, id=key_id)
    if found["hash"] != hash_token(token):
        raise InvalidInput(
            "security.bootstrap_key",
            f"key {key_id} has another secret. Make another token with `windlass keys token`.",
        )
    return False


async def find(db: Statements, ids: Iterable[str]) -> dict[str, StoredKey]:
    """Return the keys that may be used now, by id; none that is unknown, revoked, expired, or of a deleted tenant."""
    rows = await db.fetch(SQL.find_keys, ids=sorted(set(ids)))
    return {row["key"]: StoredKey(_key_from_row(row), row["hash"]) for row in rows}


async def list_keys(
    db: Statements, tenant: str | None = None, *, limit: int = 100, cursor: str | None = None
) -> KeyPage:
    """Return up to `limit` keys by id from above `cursor` on, of one tenant or of all, also those that are over."""
    limit = max(1, min(limit, MAX_PAGE))
    rows = await db.fetch(SQL.list_keys, tenant=tenant, limit=limit + 1, cursor=cursor or "")
    keys = [_key_from_row(row) for row in rows[:limit]]
    return KeyPage(keys, keys[-1].id if len(rows) > limit else None)


async def revoke(db: Statements, key_id: str, *, tenant: str | None = None) -> Key:
    """End a key and return it; again is the same. NotFound if it is unknown, or not of `tenant` when one is named."""
    rows = await db.fetch(SQL.revoke_key, id=key_id, tenant=tenant)
    if not rows:
        raise NotFound(f"There is no key {key_id}.")
    return _key_from_row(rows[0])


async def last_end(db: Statements, tenant: str) -> tuple[datetime | None, float]:
    """Return when the last key of a tenant ended, and for how many seconds servers may still believe it."""
    [row] = await db.fetch(SQL.last_key, tenant=tenant)
    left_s = 0.0 if row["age_ms"] is None else max(FORGOTTEN_S - row["age_ms"] / 1000, 0.0)
    return row["ended_at"], left_s


async def queues_of(db: Statements, ids: Iterable[UUID], *, tenant: str) -> dict[UUID, str]:
    """Return the queues of jobs; those that are unknown, or another tenant's, are left out."""
    rows = await db.fetch(SQL.queues_of, ids=sorted(set(ids)), tenant=tenant)
    return {row["id"]: row["queue"] for row in rows}


async def queues_held(db: Statements, sessions: Iterable[UUID], *, tenant: str) -> set[str]:
    """Return the queues in which sessions hold leases; none of those that are unknown, or another tenant's."""
    return {row["queue"] for row in await db.fetch(SQL.queues_held, sessions=sorted(set(sessions)), tenant=tenant)}


async def _store(db: Statements, new: NewKey, token: str) -> Key | None:
    rows = await db.fetch(
        SQL.make_key,
        id=key_id_of(token),
        name=new.name,
        hash=hash_token(token),
        tenant=new.tenant,
        scopes=_joined(new.scopes),
        queues=None if new.queues is None else _joined(new.queues),
        expires_at=new.expires_at,
    )
    return _key_from_row(rows[0]) if rows else None


def _check(new: NewKey) -> None:
    check_name("name", new.name)
    if new.tenant is not None:
        check_name("tenant", new.tenant)
    if not new.scopes or not new.scopes <= SCOPES:
        wrong = ", ".join(sorted(new.scopes - SCOPES)) or "none"
        raise InvalidInput("scopes", f"{wrong[:200]!r} given; name some of {', '.join(sorted(SCOPES))}.")
    check_instant("expires_at", new.expires_at)
    if new.queues is None:
        return
    if not 1 <= len(new.queues) <= MAX_QUEUES:
        raise InvalidInput("queues", f"{len(new.queues)} of them; 1 to {MAX_QUEUES} are accepted, or none for all.")
    for queue in new.queues:
        check_name("queues", queue)
    if "admin" in new.scopes:
        # It could make itself a key without the limit.
        raise InvalidInput("queues", "a key with the scope admin cannot be limited to queues. Leave one of them out.")


def _key_from_row(row: Row) -> Key:
    queues = row["queues"]
    return Key(
        id=row["key"],
        name=row["name"],
        tenant=row["tenant"],
        scopes=frozenset(row["scopes"].split(",")),
        queues=None if queues is None else frozenset(queues.split(",")),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )


def _joined(names: Iterable[str]) -> str:
    return ",".join(sorted(names))


def _letters(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _checksum(body: str) -> str:
    return _letters(zlib.crc32(body.encode()).to_bytes(4, "big"))
