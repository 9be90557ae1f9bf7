"""Keys: make, list, revoke. An admin of a tenant sees and makes keys of that tenant only."""

from __future__ import annotations

import msgspec

from windlass.queue import keys as step
from windlass.server.call import Call
from windlass.wire import people as wire
from windlass.wire.base import NamePages


async def create(call: Call) -> wire.NewKey:
    """Make a key; its token is shown this once."""
    asked: wire.KeyRequest = call.body
    role = asked.role or ("reader" if asked.scopes is None else None)
    scopes = frozenset[str](asked.scopes or ()) | (step.ROLES[role] if role else frozenset())
    own = call.principal.tenant
    key, token = await step.create(
        call.engine.db,
        step.NewKey(
            name=asked.name,
            scopes=scopes,
            tenant=own if asked.tenant is None else call.name_tenant(asked.tenant),
            queues=None if asked.queues is None else frozenset(asked.queues),
            expires_at=asked.expires_at,
        ),
        within=own,
        maker=call.principal.key_id,
    )
    call.subject, call.audit_tenant = key.id, key.tenant or ""
    return wire.NewKey(**msgspec.structs.asdict(_shown(key)), token=token)


async def find(call: Call) -> wire.KeyList:
    """Answer a page of keys by id."""
    asked: NamePages = call.query
    page = await step.list_keys(call.engine.db, call.named_tenant, limit=asked.limit, cursor=asked.cursor)
    return wire.KeyList(keys=[_shown(key) for key in page.keys], next_cursor=page.next_cursor)


async def revoke(call: Call) -> wire.Key:
    """End a key, everywhere within five seconds; saying it again is harmless."""
    key = await step.revoke(call.engine.db, call.path, tenant=call.named_tenant)
    call.audit_tenant = key.tenant or ""
    return _shown(key)


def _shown(key: step.Key) -> wire.Key:
    return wire.Key(
        id=key.id,
        name=key.name,
        tenant=key.tenant,
        scopes=sorted(key.scopes),
        queues=None if key.queues is None else sorted(key.queues),
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
    )
