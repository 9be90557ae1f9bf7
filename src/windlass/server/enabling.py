"""Who may pause and resume by a definition: `enabled` says it, and left out it leaves things as they are.

Pausing and resuming need the scope `operate`, by whichever route; making and editing schedules (schedules.py) do not.
Who may declare the schedules of an application is here too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from windlass.errors import Forbidden, NotFound
from windlass.queue import schedules as step
from windlass.queue.schedule import NewSchedule
from windlass.server.auth import require
from windlass.server.call import Call
from windlass.wire.schedules import ScheduleRequest


def may_declare(call: Call, owner: str) -> None:
    """Raise Forbidden if the caller's key is a worker's of another application.

    A key that lacks `submit` declares for the application that has the key's name; whoever makes keys chooses it.
    """
    principal = call.principal
    if "submit" not in principal.scopes and principal.name != owner:
        raise Forbidden(
            f"Key {principal.name} cannot declare schedules of {owner}: without the scope submit a key declares those "
            f"of the application that has its name. Use a key named {owner}, or one with that scope."
        )


def keep_pause(asked: ScheduleRequest, becomes: NewSchedule, was: NewSchedule) -> NewSchedule:
    """Return what a stored schedule becomes, paused as it was unless the request says otherwise."""
    return msgspec.structs.replace(becomes, paused=was.paused) if asked.enabled is UNSET else becomes


def may_pause(call: Call, was: NewSchedule, becomes: NewSchedule) -> None:
    """Return if the caller may do to the pause of a stored schedule what its new definition does; else Forbidden."""
    if was.paused != becomes.paused:
        require(call.principal, "operate")


async def may_pause_all(call: Call, asked: Sequence[ScheduleRequest], becomes: Sequence[NewSchedule]) -> None:
    """Return if the caller may do so to each of those that these are to replace by their names; else Forbidden."""
    if "operate" in call.principal.scopes:
        return
    for request, definition in zip(asked, becomes, strict=True):
        if request.enabled is not UNSET:
            with contextlib.suppress(NotFound):
                was = await step.get(call.engine.db, definition.name, tenant=definition.tenant)
                may_pause(call, was.definition, definition)


async def resume_enabled(
    call: Call, asked: Sequence[ScheduleRequest], stored: Sequence[step.Stored], *, tenants: Sequence[str]
) -> list[step.Stored]:
    """Resume those that were replaced, are paused, and are to be enabled; return all as they stand then.

    Replacing by name leaves a pause alone: who pauses meanwhile has the last word.
    """
    stands = []
    for request, one, tenant in zip(asked, stored, tenants, strict=False):
        if one.replaced and request.enabled is True:
            schedule = await call.engine.schedules.resume(one.id, tenant=tenant, actor=call.actor(), reach=call.reach)
            one = msgspec.structs.replace(one, next_at=schedule.next_at)
        stands.append(one)
    return stands
