"""What people did, for the audit: who by which key, to what, and how it was before and after.

Of a job, a queue, a key and the like only what acts change is kept, never arguments, results or tokens. What was is
read before the act, in a look of its own: a rival may act in between, and then has an entry of its own beside this one.
The entry is written after the act; a deed that is done is not undone because its entry could not be written, but said.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import msgspec

from windlass.errors import NotFound, WindlassError
from windlass.queue import history
from windlass.queue.audit import Entry, record
from windlass.queue.queues import get_queue
from windlass.queue.schedule import differences
from windlass.queue.schedules import Schedule
from windlass.server.auth import actor_of
from windlass.server.call import Call
from windlass.server.queues import shown_queue
from windlass.server.route import Route
from windlass.server.shown import shown_schedule

logger = logging.getLogger("windlass")

_JOB = ("state", "paused", "queue", "priority", "next_run_at")
KEPT: dict[str, tuple[str, ...]] = {
    "job": _JOB,
    "dead_letter": _JOB,
    "schedule": (
        "name",
        "task",
        "queue",
        "words",
        "timezone",
        "status",
        "overlap",
        "catch_up",
        "version",
        "next_run_at",
    ),
    "backfill": ("schedule_id", "since", "until", "status", "made"),
    "queue": ("paused", "order", "max_running", "rate_per_second", "burst", "priority_credit_seconds"),
    "key": ("name", "tenant", "scopes", "queues", "expires_at", "revoked_at"),
    "tenant": ("name", "paused", "until"),
    "worker": ("status", "sessions"),
    "duty": ("held_by", "term"),
}
"""By the noun of an action: what is kept of its subject."""
ARGUMENTS = ("payload", "headers")


async def look(call: Call, route: Route) -> None:
    """Keep how a job, a queue or a schedule is before an act on it; nothing if it is not there."""
    if route.audit is None:
        return
    db = call.engine.db
    with contextlib.suppress(NotFound):
        if route.bound == "job":
            call.was = await history.get(db, call.job_id, tenant=call.tenant)
        elif route.bound == "queue":
            call.was = shown_queue(call, await get_queue(db, call.tenant, call.path))
        elif route.bound == "schedule":
            call.was = was = shown_schedule(call, await call.schedule(), arguments=False)
            call.subject = str(was.id)


def tell_changes(call: Call, was: Schedule, becomes: Schedule) -> None:
    """Keep which settings of a schedule changed, how they were and are; of arguments and headers only that they did."""
    before: dict[str, Any] = {"name": was.definition.name, "version": was.version}
    after: dict[str, Any] = {"name": becomes.definition.name, "version": becomes.version}
    for field, old, new in differences(was.definition, becomes.definition):
        if field in ARGUMENTS:
            after[field] = "changed"
        else:
            before[field], after[field] = (None if text is None else msgspec.json.decode(text) for text in (old, new))
    call.was, call.became = before, after


async def keep(call: Call, route: Route, answer: Any = None) -> None:
    """Write the entry of an act that was done, if its route has one."""
    action = call.action or route.audit
    if action is None or not call.acted:
        return
    noun = action.partition(".")[0]
    entry = Entry(
        action=action,
        subject=call.subject or call.path or call.tenant,
        tenant=call.tenant if call.audit_tenant is None else call.audit_tenant,
        actor=actor_of(call.principal),
        address=call.address or None,
        request_id=call.request_id,
        reason=getattr(call.body, "reason", None) or getattr(call.query, "reason", None),
        was=_kept(call, noun, call.was),
        became=_kept(call, noun, answer if call.became is None else call.became),
    )
    try:
        await record(call.engine.db, call.engine.ids, entry)
    except WindlassError as error:
        logger.error("An act could not be recorded: %s %s by %s: %s", action, entry.subject, entry.actor, error)


def _kept(call: Call, noun: str, value: Any) -> str | None:
    """Return what is kept of a subject, as JSON; None if there is nothing."""
    if value is None:
        return None
    fields = value if isinstance(value, dict) else {name: getattr(value, name, None) for name in KEPT[noun]}
    shown = {name: field for name, field in fields.items() if field is not None}
    plain = call.redactor.value(msgspec.to_builtins(shown))
    return msgspec.json.encode(plain).decode() if plain else None
