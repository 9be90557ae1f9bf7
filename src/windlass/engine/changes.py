"""Changes: streams hear what happens to the jobs of their tenant; one look at the database serves all of a tenant.

A change on this server is heard at once; one on another within a second, by looking. A thousand changes in a moment
are one look. A stream that begins in the past reads by itself until it has caught up, and then follows the others.
Streams have a cap by tenant and by key, and their looks take turns by tenant (fair.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta

import msgspec

from windlass.db import Database
from windlass.engine.fair import Cap, Turnstile
from windlass.engine.outside import Outside
from windlass.engine.wake import Wake
from windlass.errors import Unavailable, WindlassError
from windlass.queue.recent import EVENTS, MAX_EVENTS, JobEvent, events_of, touched_since
from windlass.queue.recurring import read_clock

MOST_STREAMS = 200
MOST_EACH = 50
"""Streams of one tenant: a quarter of all, so that three others find room."""
MOST_KEY = 20
"""Streams of one key: as many as people with a page open share one."""
LOOKS_AT_ONCE = 2
"""Looks for streams at the same time, of one tenant one: the other readers are for lists."""
LONG_S = 0.02
"""After a look that took longer than this its tenant rests, for REST times as long: it reads thousands of rows."""
REST = 3
MOST_BEHIND = 10 * EVENTS
"""Events that wait for a reader; one that has more is too slow to be waited for."""
GATHER_S = 0.1
"""A stream looks no more often than this."""
LOOK_S = 1.0
OVERLAP = timedelta(seconds=5)
"""Each look begins so long before the last event: a transaction may commit after a later one."""
MOMENT = timedelta(microseconds=1)


class Told(msgspec.Struct):
    """An event for the streams of a tenant."""

    event: JobEvent
    text: bytes | None = None
    """As it is sent, once a stream has made it."""


class Looks:
    """The looks of one reader: they remember the events that were told, and the place of the next look."""

    def __init__(self, since: datetime) -> None:
        self._first = self._latest = since
        self._told: dict[JobEvent, datetime] = {}
        self._limit = EVENTS
        self.behind = True
        """Whether there may be more to tell at once."""

    def __contains__(self, event: JobEvent) -> bool:
        return event in self._told

    def forget(self) -> None:
        """Forget what was told: it is too long ago to be found again."""
        self._told.clear()

    async def fresh(self, db: Database, tenant: str) -> list[Told]:
        """Return the events that were not told yet."""
        begin = max(self._first, self._latest - OVERLAP)
        self.behind = False
        touched = await touched_since(db, tenant, since=begin, limit=self._limit)
        is_small = len(touched.rows) + len(touched.acts) <= EVENTS
        found = events_of(touched) if is_small else await asyncio.to_thread(events_of, touched)
        fresh = [event for event in found if event not in self._told]
        self.behind = len(found) >= self._limit
        if self.behind and not fresh:
            # More than a look holds lies in the overlap: look further, and in the end go on without it.
            if self._limit < MAX_EVENTS:
                self._limit = min(self._limit * 4, MAX_EVENTS)
            else:
                self._first = self._latest = found[-1].happened_at + MOMENT
        elif not self.behind:
            self._limit = EVENTS
        for event in fresh:
            self._told[event] = event.happened_at
            self._latest = max(self._latest, event.happened_at)
        self._told = {event: at for event, at in self._told.items() if at >= self._latest - OVERLAP}
        return [Told(event) for event in fresh]


class Follower:
    """A stream that has caught up: what was found for it and is not sent yet."""

    def __init__(self) -> None:
        self._heard: list[Told] = []
        self._news = asyncio.Event()
        self._over = False

    def tell(self, found: Sequence[Told]) -> None:
        """Add events; a reader that is too far behind gets no more."""
        if len(self._heard) + len(found) > MOST_BEHIND:
            self.end()
        if not self._over:
            self._heard += found
            self._news.set()

    def end(self) -> None:
        """Let the stream end: its reader may come back with the id of the last event."""
        self._over = True
        self._heard = []
        self._news.set()

    async def news(self, longest_s: float = LOOK_S) -> list[Told] | None:
        """Return what was found since, an empty list after a while without news; None when the stream is to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(longest_s, LOOK_S)):
                await self._news.wait()
        if self._over:
            return None
        self._news.clear()
        heard, self._heard = self._heard, []
        return heard


class _Feed:
    """The streams of one tenant that follow, and the task that looks for them."""

    def __init__(self, looking: asyncio.Task[None], began: asyncio.Event, followers: set[Follower]) -> None:
        self.looking = looking
        self.began = began
        self.followers = followers


class Changes:
    """Looks for the events of tenants that have streams here."""

    def __init__(self, db: Database, wake: Wake, *, outside: Outside) -> None:
        self._db = db
        self._pause = outside.pause
        self._monotonic = outside.monotonic
        self._changed = asyncio.Event()
        self._version = 0
        self._over = False
        self._feeds: dict[str, _Feed] = {}
        self.streams = Cap("streams", most=MOST_STREAMS, each=MOST_EACH, each_key=MOST_KEY)
        self._turns = Turnstile("looks of streams", at_once=MOST_STREAMS, at_once_each=1, room_each=2 * MOST_EACH)
        self._rested_at: dict[str, float] = {}
        """Until when a tenant rests, by `monotonic`."""
        self._looking = asyncio.Semaphore(LOOKS_AT_ONCE)
        wake.on_change.append(self._notice)

    @contextmanager
    def following(self, tenant: str) -> Iterator[Follower]:
        """Hear what is found for a tenant from now on."""
        follower = Follower()
        feed = self._feeds.get(tenant)
        if feed is None or feed.looking.done():
            began, followers = asyncio.Event(), set[Follower]()
            looking = asyncio.create_task(self._look(tenant, began, followers), name="stream-looks")
            feed = self._feeds[tenant] = _Feed(looking, began, followers)
        feed.followers.add(follower)
        if self._over:
            follower.end()
        try:
            yield follower
        finally:
            feed.followers.discard(follower)
            if not feed.followers:
                feed.looking.cancel()
                if self._feeds.get(tenant) is feed:
                    del self._feeds[tenant]

    async def caught_up(self, tenant: str, own: Looks) -> list[Told]:
        """Return what a stream that begins in the past has missed, up to one look; `own.behind` says if there is more.

        Raises Unavailable if the database is away, or it was not the tenant's turn for long.
        """
        # What the look for all does not find because it began later, this one does.
        try:
            async with asyncio.timeout(LOOK_S):
                await self._feeds[tenant].began.wait()
        except TimeoutError:
            raise Unavailable("The events of this tenant could not be looked for yet. Try again.") from None
        async with self.turn(tenant):
            return await self._fresh(tenant, own)

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Run a look in its tenant's turn, after the rest that is due since the last long look.

        So what was found is told at once, and the rest is in the turn of the look that comes next. Raises TooMany or
        Unavailable if there are too many looks, or it was not the tenant's turn for long.
        """
        async with self._turns.turn(tenant):
            rest_s = self._rested_at.get(tenant, 0.0) - self._monotonic()
            if rest_s > 0 and not self._over:
                await self._pause(rest_s)
            yield

    async def _fresh(self, tenant: str, looks: Looks) -> list[Told]:
        """Look once, in the tenant's turn."""
        async with self._looking:
            begun_s = self._monotonic()
            found = await looks.fresh(self._db, tenant)
            ended_s = self._monotonic()
        if ended_s - begun_s > LONG_S:
            self._rested_at = {name: at_s for name, at_s in self._rested_at.items() if at_s > ended_s}
            self._rested_at[tenant] = ended_s + REST * (ended_s - begun_s)
        return found

    async def _look(self, tenant: str, began: asyncio.Event, followers: set[Follower]) -> None:
        looks: Looks | None = None
        seen = self._version
        try:
            while not self._over:
                found: list[Told] = []
                with suppress(WindlassError):  # the database is away, or others have their turn
                    async with self.turn(tenant):
                        if looks is None:
                            looks = Looks(await read_clock(self._db) - OVERLAP)
                            began.set()
                        found = await self._fresh(tenant, looks)
                if found:
                    for follower in followers:
                        follower.tell(found)
                if looks is None or not looks.behind:
                    seen = await self._wait(seen)
        finally:
            began.set()
            for follower in followers:
                follower.end()

    async def _wait(self, seen: int) -> int:
        """Return after a change since version `seen`, or after a while without one: which version is seen now."""
        if seen == self._version and not self._over:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
        if not self._over:
            await self._pause(GATHER_S)
        return self._version

    def _notice(self) -> None:
        self._version += 1
        self._changed.set()

    def stop(self) -> None:
        """Let all streams end."""
        self._over = True
        self._changed.set()
        for feed in self._feeds.values():
            feed.looking.cancel()
