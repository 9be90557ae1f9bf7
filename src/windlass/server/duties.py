"""Duties: which server does which chore, and taking one from a server."""

from __future__ import annotations

from windlass.queue import duties as step
from windlass.server.call import Call
from windlass.wire import people as wire


async def find(call: Call) -> wire.DutyList:
    """Answer the duties by name, and the servers heard within a day; what they do is for all tenants."""
    call.require_no_tenant()
    found = await step.list_duties(call.engine.db)
    servers = await step.list_servers(call.engine.db)
    return wire.DutyList(
        duties=[_shown(duty) for duty in found],
        servers=[
            wire.Server(
                id=server.id,
                name=server.name,
                version=server.version,
                address=server.address,
                live=server.live,
                started_at=server.started_at,
                heartbeat_at=server.heartbeat_at,
            )
            for server in servers
        ],
    )


async def release(call: Call) -> wire.Duty:
    """Take a duty from whoever has it, so that another server takes it."""
    call.require_no_tenant()
    call.audit_tenant = ""
    duty = await step.release(call.engine.db, call.path)
    call.engine.wake.duties()
    return _shown(duty)


def _shown(duty: step.Duty) -> wire.Duty:
    return wire.Duty(
        name=duty.name,
        held_by=duty.held_by,
        held_for_seconds=duty.held_for_s,
        heartbeat_age_seconds=duty.heartbeat_age_s,
        progress_age_seconds=duty.progress_age_s,
        term=duty.term,
        last_run_at=duty.metadata.last_run_at,
        items=duty.metadata.items,
        errors=duty.metadata.errors,
        duration_ms=duty.metadata.duration_ms,
    )
