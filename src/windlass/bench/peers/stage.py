"""The stage on which every side of `windlass bench whole` plays by the same rules, ours and the peers'.

A script has five verbs: `prepare` makes the tables, `fill` submits beforehand, `work` runs jobs until it is told to
stop, `done` says when the last of them is finished in the store, `pickup` submits one job at a time.
Peers run it with the Python of their own environment, so it imports nothing but the standard library.

A body counts itself in a file of its process, with CLOCK_MONOTONIC, which is the same for all processes of a machine.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PAYLOAD = {"order": 48151, "to": "someone@example.org", "note": "Left at the door."}
RESULT = {"sent": True}
SETTLE_S = 0.02
"""How long the queue is left alone between two jobs whose pickup is timed."""
WARM_UPS = 5
"""Jobs whose pickup does not count: connections are made by them."""
LOOK_S = 0.002
PICKUP_S = 60.0
FOLDER_VARIABLE = "BENCH_BODIES"
"""Names the folder to a process whose command is not ours to choose."""
WORD = "go"
"""The file in it that gives the word to such processes."""
_FORM = struct.Struct("=Qdd")


class Seen(NamedTuple):
    """What bodies have written: how many began, when the first of them did, and when the latest."""

    jobs: int
    first_at: float
    last_at: float


class Tally:
    """Counts the bodies of a process; a process that forks gets a file of its own."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._pid = 0
        self._count = 0
        self._first_at = 0.0
        self._page: mmap.mmap | None = None

    def mark(self) -> None:
        """Note that a body has begun."""
        now = time.monotonic()
        with self._lock:
            page = self._page
            if page is None or self._pid != os.getpid():
                page = self._open(now)
            self._count += 1
            _FORM.pack_into(page, 0, self._count, self._first_at, now)

    def _open(self, now: float) -> mmap.mmap:
        self._pid, self._count, self._first_at = os.getpid(), 0, now
        path = Path(self._folder) / f"{self._pid}-{id(self)}"
        with path.open("w+b") as file:
            file.write(bytes(_FORM.size))
            file.flush()
            self._page = mmap.mmap(file.fileno(), _FORM.size)
        return self._page


def seen(folder: str) -> Seen:
    """Return what all processes have written into `folder` so far."""
    found = []
    for path in Path(folder).iterdir():
        text = path.read_bytes()
        if len(text) == _FORM.size:
            found.append(Seen(*_FORM.unpack(text)))
    begun = [one for one in found if one.jobs]
    return Seen(
        sum(one.jobs for one in begun),
        min((one.first_at for one in begun), default=0.0),
        max((one.last_at for one in begun), default=0.0),
    )


def ready() -> None:
    """Say that everything is loaded and connected, and wait for the word to begin."""
    tell("ready")
    sys.stdin.readline()


def tell(text: str) -> None:
    """Say something to who started this script."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def until_done(count: int, finished: Callable[[], int]) -> None:
    """Wait for the word, then look until so many jobs are finished, and say when that was."""
    ready()
    while finished() < count:
        time.sleep(LOOK_S)
    tell(repr(time.monotonic()))


def pickups(folder: str, count: int, submit: Callable[[], object]) -> None:
    """Submit one job at a time to an idle queue, and say how long each took until its body began, in milliseconds."""
    ready()
    times = []
    before = seen(folder).jobs
    for number in range(1, WARM_UPS + count + 1):
        time.sleep(SETTLE_S)
        start = time.monotonic()
        submit()
        while (now := seen(folder)).jobs < before + number:
            if time.monotonic() > start + PICKUP_S:
                raise TimeoutError(f"Job {number} was not begun within {PICKUP_S:g} s.")
            time.sleep(LOOK_S)
        times.append((now.last_at - start) * 1000)
    tell(json.dumps(times[WARM_UPS:]))
