"""The audit: what people did by hand."""

from __future__ import annotations

from msgspec import Raw

from windlass.queue import audit as step
from windlass.server.call import Call
from windlass.server.shown import in_turns
from windlass.wire import people as wire


async def find(call: Call) -> wire.AuditList:
    """Answer a page of the audit, newest first; of one's own tenant, or of all from above them."""
    asked: wire.AuditQuery = call.query
    page = await step.list_entries(
        call.engine.db,
        call.named_tenant,
        limit=asked.limit,
        cursor=asked.cursor,
        action=asked.action,
        subject=asked.subject,
    )
    entries = [entry async for entry in in_turns(call, page.entries, _shown)]
    return wire.AuditList(entries=entries, next_cursor=page.next_cursor)


def _shown(call: Call, entry: step.Recorded) -> wire.AuditEntry:
    return wire.AuditEntry(
        id=entry.id,
        happened_at=entry.happened_at,
        tenant=entry.tenant or None,
        actor=entry.actor,
        address=entry.address,
        request_id=entry.request_id,
        action=entry.action,
        subject=entry.subject,
        reason=call.hidden(entry.reason),
        was=None if entry.was is None else Raw(entry.was),
        became=None if entry.became is None else Raw(entry.became),
    )
