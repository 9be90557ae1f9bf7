"""The two shells around the same requests: one that blocks, one for event loops.

A call finds the way to a server when it is first needed (find.py), sends, reads, and is made again while nobody
answers and that is safe (tries.py). A forked child finds its own way: it must not use its parent's connections.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from windlass.client import answers
from windlass.client.options import Span
from windlass.client.requests import Request
from windlass.client.tries import Tries
from windlass.durations import parse_duration
from windlass.errors import TooMany, Unavailable, WindlassError

if TYPE_CHECKING:
    from windlass.client.doors import Door
    from windlass.client.find import Finder
    from windlass.config import Settings


PATIENCE_S = 10.0
"""How long a call is tried, unless somebody says how long."""
DOWN_S = 2.0
"""How long then where no server is: who waits for one says so."""


class Shell:
    """Sends requests by whatever door is found; usable by any thread and any event loop."""

    def __init__(self, finder: Finder, *, patience: Span | None) -> None:
        self._finder = finder
        self._patience_s = PATIENCE_S if patience is None else parse_duration(patience, "patience")
        self._down_s = DOWN_S if patience is None else None
        self._lock = threading.Lock()
        self._door: Door | None = None
        self._refused: Door | None = None
        """The door at which nobody was, since then."""
        self._counting = threading.Lock()
        """Held for a moment only, also by event loops; taken inside the other."""
        self._calls: Counter[Door] = Counter()
        """How many calls are at each door."""
        self._process = os.getpid()

    def use(self, settings: Settings) -> None:
        """Go to the server of these settings from now on, whatever was said before."""
        with self._lock, self._counting:
            self._finder.use(settings)
            before, self._door, self._refused = self._door, None, None
            alone = before is not None and not self._calls[before]
        if before is not None and alone:
            self._close(before)

    @property
    def database(self) -> str | None:
        """The database that was named; None: the settings name it."""
        return self._finder.database

    @property
    def where(self) -> str:
        """Where requests go now."""
        door = self._entered()
        self._left(door)
        return door.where

    @property
    def without_server(self) -> str | None:
        """The database that calls go to because no server was found; None: a server was, or nobody looked yet."""
        door = self._door
        return None if door is None or door.is_server else door.where

    def new_key(self) -> str:
        """Return a key that no other submit has."""
        return f"call-{uuid4().hex}"

    def _usual_tries(self) -> Tries:
        return Tries(self._patience_s, down_s=self._down_s, monotonic=time.monotonic, chance=random.random)

    def tries(self, within_s: float | None) -> Tries:
        """Return the tries of one call that may take so long; None: as long as it likes."""
        return Tries(within_s, monotonic=time.monotonic, chance=random.random)

    def call(self, request: Request, tries: Tries | None = None) -> Any:
        """Send a request and return its answer, trying again while that is safe and patience lasts."""
        tries = self._usual_tries() if tries is None else tries
        while True:
            door = self._entered()
            try:
                answer = answers.read(request, door.send(tries.bounded(request)), where=door.where)
            except WindlassError as error:
                pause_s = self._after(door, request, error, tries=tries)
            else:
                tries.answered()
                return answer
            finally:
                self._left(door)
            time.sleep(pause_s)

    async def acall(self, request: Request, tries: Tries | None = None) -> Any:
        """Send a request and return its answer, trying again while that is safe and patience lasts."""
        tries = self._usual_tries() if tries is None else tries
        while True:
            # Opening a database, or looking whose file it is, must not stop the caller's loop.
            door = self._entered_here()
            if door is None:
                door = await asyncio.to_thread(self._entered)
            try:
                answer = answers.read(request, await door.asend(tries.bounded(request)), where=door.where)
            except WindlassError as error:
                pause_s = self._after(door, request, error, tries=tries)
            else:
                tries.answered()
                return answer
            finally:
                self._left(door)
            await asyncio.sleep(pause_s)

    def look(self, request: Request, tries: Tries) -> Any:
        """Return what a question is answered with; None if nobody answered in the time that there was."""
        try:
            return self.call(request, tries)
        except (Unavailable, TooMany):
            tries.expire()
            return None

    async def alook(self, request: Request, tries: Tries) -> Any:
        """Return what a question is answered with; None if nobody answered in the time that there was."""
        try:
            return await self.acall(request, tries)
        except (Unavailable, TooMany):
            tries.expire()
            return None

    def close(self) -> None:
        """Close the doors; the next call looks anew for one, and opens it."""
        for door in self._forgotten():
            door.close()

    async def aclose(self) -> None:
        """Close the doors as far as this event loop goes; the next call looks anew for one, and opens it."""
        for door in self._forgotten():
            await door.aclose()

    def _forgotten(self) -> list[Door]:
        """Forget which way leads to a server; return the doors."""
        if self._process != os.getpid():
            return []
        with self._lock, self._counting:
            self._finder.forget()
            return list({*self._calls, *filter(None, [self._door])})

    def _after(self, door: Door, request: Request, error: WindlassError, *, tries: Tries) -> float:
        # A server that was found by its address file may have gone for good, or be back elsewhere.
        if isinstance(error, Unavailable) and door.is_found:
            with self._lock:
                self._refused = door
        return tries.pause_after(request, error)

    def _entered_here(self) -> Door | None:
        """Enter the door if it can be used as it is."""
        if self._process != os.getpid():  # the lock may have been held when this process was made
            return None
        with self._counting:
            door = self._door
            if door is None or door is self._refused or self._finder.has_come(door):
                return None
            self._calls[door] += 1
            return door

    def _entered(self) -> Door:
        """Find a door and enter it; the one before is let go of, when its last call has returned."""
        if self._process != os.getpid():
            # The locks may have been held when this process was made, and what the door has is the parent's:
            # never used again, and never closed.
            _inherited.append((self._door, self._calls))
            self._lock, self._counting, self._calls = threading.Lock(), threading.Lock(), Counter()
            self._door, self._refused, self._process = None, None, os.getpid()
        with self._lock:
            door = self._entered_here()
            if door is not None:
                return door
            before = self._door
            refused = before is not None and before is self._refused
            door = self._finder.find(before, refused=refused)
            with self._counting:
                self._door, self._refused = door, None
                self._calls[door] += 1
                alone = before is not None and before is not door and not self._calls[before]
        if before is not None and alone:
            self._close(before)
        return door

    def _left(self, door: Door) -> None:
        """Leave a door; who is the last to leave one that is no longer used closes it."""
        if self._process != os.getpid():
            return
        with self._counting:
            self._calls[door] -= 1
            alone = self._calls[door] <= 0 and door is not self._door
        if alone:
            self._close(door)

    def _close(self, door: Door) -> None:
        with self._counting:
            self._calls.pop(door, None)
        door.leave()


_inherited: list[object] = []
"""What a forked child has of its parent's, kept so that nothing of it is closed."""
