"""Declaring: a worker that starts tells the servers which schedules its application declares (client/declared.py).

Once for each start of its process, when its session is open. The first claims wait for it, a short while; where no
server answers it is tried again beside the work, which it never holds up. Many workers may say the same at once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from windlass import log
from windlass.engine.outside import Outside
from windlass.errors import BodyTooLarge, Conflict, Forbidden, InvalidInput, NotFound, Unauthorized, WindlassError
from windlass.worker.patience import BackOff

if TYPE_CHECKING:
    from windlass.client.app import App
    from windlass.wire.schedules import Declared

WAIT_S = 3.0
"""How long the first claims wait for it."""
FIRST_S = 2.0
LONGEST_S = 60.0
"""Bounds of the pause between two tries."""
SHOWN_NAMES = 5
FINAL = (InvalidInput, Conflict, Forbidden, Unauthorized, BodyTooLarge)
"""Said again these would be answered the same; a server that is down, or too old to know schedules, may be another."""


class Declaring:
    """Tells the schedules of an application, until they are heard or refused."""

    def __init__(self, app: App, *, outside: Outside | None = None, wait_s: float = WAIT_S) -> None:
        self._app = app
        self._outside = outside or Outside()
        self._wait_s = wait_s
        self._telling: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Begin to tell, and return when it is done, or after a short while; nothing happens a second time."""
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell_on(), name="declaring")
            await asyncio.wait([self._telling], timeout=self._wait_s)

    async def end(self) -> None:
        """Stop trying."""
        if self._telling is not None:
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling

    async def _tell_on(self) -> None:
        pauses = BackOff(FIRST_S, LONGEST_S, chance=self._outside.chance)
        while True:
            try:
                await self._tell()
            except FINAL as error:
                log.event("schedules.refused", app=self._app.name, reason=str(error))
                return
            except WindlassError as error:
                if pauses.tries == 0:  # of a row of failures the others only say the same
                    log.event("schedules.unheard", app=self._app.name, reason=str(error))
                pause_s = pauses.next_s(error)
            except Exception as error:  # what a user's code may raise must not end the worker either
                log.event("schedules.refused", app=self._app.name, error=error)
                return
            else:
                return
            await self._outside.pause(pause_s)

    async def _tell(self) -> None:
        app = self._app
        if app.declared:
            told = await app.adeclare(skip_refused=True)
            for refused in told.refused:
                log.event("schedules.refused", app=app.name, schedule=refused.name, reason=refused.reason)
            _tell_people(app.name, told)
        elif app.name is not None:
            await self._clean_up(app.name)

    async def _clean_up(self, owner: str) -> None:
        """Remove what the application declared before its code lost the last declaration.

        Another application may have its name by mistake: only schedules of tasks that this one has are its own.
        """
        try:
            left = [info async for info in self._app.schedules.ainfos(owner=owner)]
        except (Unauthorized, Forbidden, NotFound):  # a worker's key need not allow to look
            return
        foreign = [info.name for info in left if info.task not in self._app.tasks]
        if foreign:
            log.event("schedules.foreign", app=owner, schedules=foreign)
        elif left:
            _tell_people(owner, await self._app.adeclare())


def _tell_people(app: str | None, told: Declared) -> None:
    """Log what became of the schedules; where the log is for warnings alone, say it in one sentence."""
    changes = {"added": told.added, "changed": told.changed, "removed": told.removed}
    if not any(changes.values()):
        return
    fields: dict[str, Any] = {"app": app, **changes, "unchanged": told.unchanged}
    log.event("schedules.declared", **fields)
    if not log.hears("schedules.declared"):
        sys.stderr.write(f"{sentence(app, changes)}\n")
        sys.stderr.flush()


def sentence(app: str | None, changes: Mapping[str, Sequence[str]]) -> str:
    """Return what changed of the schedules of an application: some names of each."""
    told = []
    for verb, names in changes.items():
        if names:
            more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
            # A name may have marks that a terminal would obey.
            shown = ", ".join(name if name.isprintable() else repr(name) for name in names[:SHOWN_NAMES])
            told.append(f"{verb} {shown}{more}")
    return f"Schedules of {app}: {'; '.join(told)}."
