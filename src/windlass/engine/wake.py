"""Wake-ups: who waits hears at once that something has happened.

In this process after the commit, by a call. Other servers by NOTIFY: one hint for everything of the last moments, from
a side connection and never inside a job's transaction, because PostgreSQL serialises commits that notify.
A hint only saves waiting. Losing one costs what the slow look of the waiter costs (dispatch.py, waits.py, loops.py),
and everything works where there is no NOTIFY at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from windlass.db import Database
from windlass.engine.outside import Outside
from windlass.errors import WindlassError

CHANNEL = "windlass_wake"
GATHER_S = 0.015
"""How long hints for other servers are gathered into one."""
LONGEST = 7000
"""PostgreSQL takes messages of less than 8,000 bytes."""
RELISTEN_S = (0.2, 5.0)

logger = logging.getLogger("windlass")


LaneNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Rank = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


_SHORT = {
    "sender": "s",
    "ready": "r",
    "freed": "f",
    "stops": "c",
    "sessions": "n",
    "kept": "k",
    "published": "p",
    "tasks": "t",
}


class Hint(msgspec.Struct, omit_defaults=True, rename=_SHORT):
    """What one server tells the others."""

    sender: UUID
    ready: list[tuple[LaneNumber, Rank]] = []
    freed: list[LaneNumber] = []
    stops: list[tuple[UUID, UUID]] = []
    sessions: list[UUID] = []
    """Sessions that are to drain, have ended, or have lost a lease."""
    kept: list[UUID] = []
    """Sessions for which retries are kept."""
    duties: bool = False
    due: bool = False
    """Something is due soon: duties look again."""
    published: list[str] = []
    """The tenants whose workers have published other tasks."""
    tasks: bool = False
    """Workers of more tenants than fit into a message have, or of tenants that an older server does not name."""
    all: bool = False
    """More than fits into a message: look at everything."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Hint)


class Wake:
    """The hub: steps say what happened, waiters hear it, here and on other servers."""

    def __init__(self, db: Database, *, server: UUID, outside: Outside) -> None:
        self._db = db
        self._server = server
        self._outside = outside
        self.others: Callable[[], bool] = lambda: True
        """Whether another server lives; nobody else would hear a hint."""
        self._notifies = db.capabilities.notify
        self.on_ready: list[Callable[[int, int], None]] = []
        self.on_freed: list[Callable[[int], None]] = []
        self.on_ended: list[Callable[[UUID], None]] = []
        self.on_stop: list[Callable[[UUID, UUID], None]] = []
        self.on_session: list[Callable[[UUID], None]] = []
        self.on_kept: list[Callable[[UUID], None]] = []
        self.on_duties: list[Callable[[], None]] = []
        self.on_due: list[Callable[[], None]] = []
        self.on_tasks: list[Callable[[str | None], None]] = []
        """Called with the tenant whose tasks have changed; with None where that may be any tenant."""
        self.on_all: list[Callable[[], None]] = []
        self.on_change: list[Callable[[], None]] = []
        self._ready: dict[int, int] = {}
        self._freed: set[int] = set()
        self._stops: set[tuple[UUID, UUID]] = set()
        self._sessions: set[UUID] = set()
        self._kept: set[UUID] = set()
        self._duties = False
        self._due = False
        self._published: set[str] = set()
        self._everything = False
        self._something = asyncio.Event()

    def ready(self, lane: int, rank: int) -> None:
        """Say, after the commit, that a job can be claimed from `lane`; `rank` is the least of them."""
        for heard in self.on_ready:
            heard(lane, rank)
        if self._notifies and self.others():
            self._ready[lane] = min(rank, self._ready.get(lane, rank))
            self._something.set()
        self.changed()

    def freed(self, lane: int) -> None:
        """Say that a lease of a limited lane has ended: there may be room for another."""
        for heard in self.on_freed:
            heard(lane)
        if self._notifies and self.others():
            self._freed.add(lane)
            self._something.set()

    def ended(self, job_id: UUID) -> None:
        """Say that a job has ended; other servers look for the jobs they wait for by themselves."""
        for heard in self.on_ended:
            heard(job_id)
        self.changed()

    def stop(self, session: UUID, job_id: UUID) -> None:
        """Say that a session is to stop one of its jobs."""
        for heard in self.on_stop:
            heard(session, job_id)
        if self._notifies and self.others():
            self._stops.add((session, job_id))
            self._something.set()
        self.changed()

    def session(self, session: UUID) -> None:
        """Say that a session is to drain, has ended, or has lost a lease."""
        for heard in self.on_session:
            heard(session)
        if self._notifies and self.others():
            self._sessions.add(session)
            self._something.set()

    def kept(self, session: UUID) -> None:
        """Say that a retry is kept for a session, wherever it claims next."""
        for heard in self.on_kept:
            heard(session)
        if self._notifies and self.others():
            self._kept.add(session)
            self._something.set()

    def duties(self) -> None:
        """Say that a duty was given up, so that another server can take it at once."""
        self._duties = True
        self._something.set()

    def tasks(self, tenant: str) -> None:
        """Say that the tasks of a tenant have changed here: other servers look before they go by what they know.

        Only the submits of that tenant wait for the look.
        """
        self._published.add(tenant)
        self._something.set()

    def due(self) -> None:
        """Tell the other servers that something of theirs is due soon."""
        self._due = True
        self._something.set()

    def look(self) -> None:
        """Say that jobs may have become ready in lanes that are not known here: everybody looks."""
        self._all()
        if self._notifies and self.others():
            self._everything = True
            self._something.set()
        self.changed()

    def changed(self) -> None:
        """Say that some job has changed its state: event streams look again."""
        for heard in self.on_change:
            heard()

    async def run(self) -> None:
        """Send and hear hints until cancelled; nothing to do where the database has no NOTIFY."""
        if not self._db.capabilities.notify:
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen(), name="wake-listen")
            tasks.create_task(self._send(), name="wake-send")

    async def flush(self) -> None:
        """Send now what has been gathered."""
        ready, self._ready = self._ready, {}
        freed, self._freed = self._freed, set()
        stops, self._stops = self._stops, set()
        sessions, self._sessions = self._sessions, set()
        kept, self._kept = self._kept, set()
        duties, self._duties = self._duties, False
        due, self._due = self._due, False
        published, self._published = sorted(self._published), set()
        # A name takes up to a few hundred bytes, and the other half is for the rest of the hint.
        tasks = len(_encoder.encode(published)) > LONGEST // 2
        named = [] if tasks else published
        everything, self._everything = self._everything, False
        self._something.clear()
        hint = Hint(
            self._server,
            ready=list(ready.items()),
            freed=sorted(freed),
            stops=sorted(stops),
            sessions=sorted(sessions),
            kept=sorted(kept),
            duties=duties,
            due=due,
            published=named,
            tasks=tasks,
            all=everything,
        )
        if hint == Hint(self._server) or not self._db.capabilities.notify:
            return
        text = _encoder.encode(hint)
        if len(text) > LONGEST:
            short = Hint(self._server, duties=duties, due=due, published=named, tasks=tasks, all=True)
            text = _encoder.encode(short)
        await self._db.notify(CHANNEL, text.decode())

    async def _send(self) -> None:
        while True:
            await self._something.wait()
            await self._outside.pause(GATHER_S)
            with suppress(WindlassError):  # only a hint: whoever waits looks by himself in a while
                await self.flush()

    async def _listen(self) -> None:
        pause_s = RELISTEN_S[0]
        while True:
            try:
                async with self._db.listen(CHANNEL) as hints:
                    pause_s = RELISTEN_S[0]
                    # Listening first, then looking: what was said in between is not missed.
                    self._all()
                    self._hear_of_tasks([None])
                    async for text in hints:
                        self._hear(text)
            except WindlassError as error:
                logger.debug("Listening for hints failed: %s", error)
            await self._outside.pause(pause_s)
            pause_s = min(pause_s * 2, RELISTEN_S[1])

    def _hear(self, text: str) -> None:
        try:
            hint = _decoder.decode(text)
        except msgspec.DecodeError:  # anybody may notify this channel
            return
        if hint.sender == self._server:
            return
        for lane, rank in hint.ready:
            for heard in self.on_ready:
                heard(lane, rank)
        for lane in hint.freed:
            for freed in self.on_freed:
                freed(lane)
        for session, job_id in hint.stops:
            for stopped in self.on_stop:
                stopped(session, job_id)
        for session in hint.sessions:
            for changed in self.on_session:
                changed(session)
        for session in hint.kept:
            for kept in self.on_kept:
                kept(session)
        if hint.duties:
            for given_up in self.on_duties:
                given_up()
        if hint.due:
            for look in self.on_due:
                look()
        self._hear_of_tasks([None] if hint.tasks else hint.published)
        if hint.all:
            self._all()
        self.changed()

    def _hear_of_tasks(self, tenants: Sequence[str | None]) -> None:
        for tenant in tenants:
            for published in self.on_tasks:
                published(tenant)

    def _all(self) -> None:
        for look in self.on_all:
            look()
