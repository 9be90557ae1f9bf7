"""Tenants: who is kept apart from whom. Only for keys above tenants, but for one's own name and pause."""

from __future__ import annotations

from windlass.queue import erasure
from windlass.queue import tenants as step
from windlass.server.accepted import end_of_pause
from windlass.server.auth import actor_of
from windlass.server.call import Call, Reply
from windlass.server.shown import in_turns
from windlass.wire import people as wire
from windlass.wire.base import NamePages, PauseRequest

WAITS = 20
WAIT_S = 0.05
"""How often, and how long each time, a request waits for transactions that were writing when its erasure began."""


async def create(call: Call) -> wire.Tenant:
    """Make a tenant; 409 if there is one of this name."""
    asked: wire.TenantRequest = call.body
    call.require_no_tenant()
    call.subject, call.audit_tenant = asked.name, ""
    return _shown(call, await step.create(call.engine.db, asked.name, pause=call.engine.outside.pause))


async def find(call: Call) -> wire.TenantList:
    """Answer a page of tenants by name."""
    asked: NamePages = call.query
    call.require_no_tenant()
    page = await step.list_tenants(call.engine.db, limit=asked.limit, cursor=asked.cursor)
    tenants = [tenant async for tenant in in_turns(call, page.tenants, _shown)]
    return wire.TenantList(tenants=tenants, next_cursor=page.next_cursor)


async def get(call: Call) -> wire.Tenant:
    """Answer a tenant."""
    return _shown(call, await step.get(call.engine.db, call.own_tenant(call.path)))


async def delete(call: Call) -> Reply:
    """Remove a tenant: one that has nothing left, else 409 says what it has; or one with all it has, 202 meanwhile."""
    asked: wire.TenantDelete = call.query
    engine = call.engine
    call.require_no_tenant()
    call.audit_tenant = ""
    call.was = {"name": call.path}
    erasing = None
    if asked.erase:
        call.action = "tenant.erase"
        actor = actor_of(call.principal)
        call.acted, erasing = await step.erase(engine.db, engine.lanes, engine.ids, call.path, actor=actor)
        for _ in range(WAITS):
            if erasing is None or not erasing.waits:
                break
            await engine.outside.pause(WAIT_S)
            erasing = await erasure.go_on(engine.db, engine.ids, call.path)
    else:
        await step.delete(engine.db, engine.lanes, engine.ids, call.path, pause=engine.outside.pause)
    engine.signatures.forget(call.path)
    engine.wake.tasks(call.path)
    return Reply(204) if erasing is None else Reply(202, _shown_erasing(erasing))


async def change(call: Call) -> wire.Tenant:
    """Pause a tenant or resume it."""
    asked: wire.TenantChange = call.body
    return await (_pause(call, asked) if asked.paused else _resume(call))


async def pause(call: Call) -> wire.Tenant:
    """Hand out nothing of a tenant."""
    asked: PauseRequest = call.body
    return await _pause(call, asked)


async def resume(call: Call) -> wire.Tenant:
    """Hand out a tenant's jobs again."""
    return await _resume(call)


async def _pause(call: Call, asked: PauseRequest) -> wire.Tenant:
    tenant = await step.get(call.engine.db, call.own_tenant(call.path))
    call.audit_tenant = tenant.name
    call.was = _shown(call, tenant)
    until = await end_of_pause(call, asked)
    call.became = {"paused": True, "until": until}
    await call.engine.acts.pause_tenant(tenant.name, actor=call.actor(asked.reason), until=until)
    return _shown(call, await step.get(call.engine.db, tenant.name))


async def _resume(call: Call) -> wire.Tenant:
    tenant = await step.get(call.engine.db, call.own_tenant(call.path))
    call.audit_tenant = tenant.name
    paused = await call.engine.acts.resume_tenant(tenant.name)
    call.was, call.became = {"paused": paused}, {"paused": False}
    return _shown(call, await step.get(call.engine.db, tenant.name))


def _shown_erasing(erasing: erasure.Erasure) -> wire.Erasing:
    return wire.Erasing(began_at=erasing.began_at, removed=erasing.removed, waits=erasing.waits)


def _shown(call: Call, tenant: step.Tenant) -> wire.Tenant:
    pause = tenant.pause
    reason = None if pause is None else call.hidden(pause.reason)
    return wire.Tenant(
        name=tenant.name,
        created_at=tenant.created_at,
        paused=pause is not None,
        pause=None
        if pause is None
        else wire.Pause(
            of="tenant", reason=reason, actor=pause.actor, paused_at=pause.paused_at, until=pause.resume_at
        ),
        erasing=None if tenant.erasing is None else _shown_erasing(tenant.erasing),
    )
