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
from datetime import UTC, datetime
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


class Shell:
    """Sends requests by whatever door is found; usable by any thread and any event loop."""

    def __init__(self, finder: Finder, *, patience: Span) -> None:
        self._finder = finder
        self._patience_s = parse_duration(patience, "patience")
        self._lock = threading.Lock()
        self._door: Door | None = None
        self._refused: Door | None = None
        """The door at which nobody was, since then."""
        self._left: list[Door] = []
        """Doors that others of our threads may still be at."""
        self._process = os.getpid()

    def use(self, settings: Settings) -> None:
        """Go to the server of these settings, unless something else was said."""
        self._finder.use(settings)

    @property
    def where(self) -> str:
        """Where requests go now."""
        return self._found().where

    def now(self) -> datetime:
        """Return the time of this machine."""
        return datetime.now(UTC)

    def new_key(self) -> str:
        """Return a key that no other submit has."""
        return f"call-{uuid4().hex}"

    def tries(self, within_s: float | None) -> Tries:
        """Return the tries of one call that may take so long; None: as long as it likes."""
        return Tries(within_s, monotonic=time.monotonic, chance=random.random)

    def call(self, request: Request, tries: Tries | None = None) -> Any:
        """Send a request and return its answer, trying again while that is safe and patience lasts."""
        tries = self.tries(self._patience_s) if tries is None else tries
        while True:
            door = self._found()
            try:
                answer = answers.read(request, door.send(request), where=door.where)
            except WindlassError as error:
                pause_s = self._after(door, request, error, tries=tries)
            else:
                tries.answered()
                return answer
            time.sleep(pause_s)

    async def acall(self, request: Request, tries: Tries | None = None) -> Any:
        """Send a request and return its answer, trying again while that is safe and patience lasts."""
        tries = self.tries(self._patience_s) if tries is None else tries
        while True:
            # Opening a database, or looking whose file it is, must not stop the caller's loop.
            door = self._door_here()
            if door is None:
                door = await asyncio.to_thread(self._found)
            try:
                answer = answers.read(request, await door.asend(request), where=door.where)
            except WindlassError as error:
                pause_s = self._after(door, request, error, tries=tries)
            else:
                tries.answered()
                return answer
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
        """Close the doors; the next call opens one again."""
        for door in self._all():
            door.close()

    async def aclose(self) -> None:
        """Close the doors as far as this event loop goes; the next call opens one again."""
        for door in self._all():
            await door.aclose()

    def _all(self) -> list[Door]:
        if self._process != os.getpid():
            return []
        with self._lock:
            return [*self._left, *filter(None, [self._door])]

    def _after(self, door: Door, request: Request, error: WindlassError, *, tries: Tries) -> float:
        # A server that was found by its address file may have gone for good, or be back elsewhere.
        if isinstance(error, Unavailable) and door.is_found:
            with self._lock:
                self._refused = door
        return tries.pause_after(request, error)

    def _door_here(self) -> Door | None:
        """Return the door if it can be used as it is."""
        door = self._door
        known = door is not None and self._process == os.getpid() and door is not self._refused
        return door if known and door is not None and not self._finder.has_come(door) else None

    def _found(self) -> Door:
        if self._process != os.getpid():
            # The lock may have been held when this process was made, and what the door has is the parent's:
            # never used again, and never closed.
            _inherited.append(self._door)
            self._lock, self._door, self._process = threading.Lock(), None, os.getpid()
            self._refused, self._left = None, []
        with self._lock:
            door = self._door_here()
            if door is not None:
                return door
            before = self._door
            refused = before is not None and before is self._refused
            self._door, self._refused = self._finder.find(before, refused=refused), None
            if before is not None and before is not self._door:
                self._left.append(before)
            return self._door


_inherited: list[Door | None] = []
"""What a forked child has of its parent's, kept so that nothing of it is closed."""
