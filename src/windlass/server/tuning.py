"""How the interpreter and the allocator of a server are set: the event loop stays free, and memory is returned."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from windlass.server.shapes import array_type
from windlass.wire.work import MOST_HELD

SWITCH_S = 0.00005
"""After so long a thread that computes lets another one go on. SQLite's writer asks for that after each statement: with
0.5 ms a submit beside a busy event loop took 215 ms, with 0.05 ms it takes 15 ms."""
MOST_YOUNG = 20_000
"""Objects made, beyond those freed, before the collector looks through them. A payload may be 50,000 lists: with
Python's 700 the collector looked seventy times while one was decoded, which took 28 ms; now it takes 4 to 9 ms."""
LOOKS = 10
"""After so many looks at young objects those that were found alive are looked at again."""
NEVER = 1 << 30
AGAIN_S = 1.0
"""How often it is seen whether such a look is due."""
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
"""Options of glibc's mallopt."""
LARGE_BLOCK = 128 << 10
"""Blocks of more bytes are returned as soon as they are free."""
ARENAS = 2
"""Heaps that all threads share; each keeps what was freed in it."""
TRIM_S = 10.0
"""How often free pages between smaller blocks are returned, which takes some milliseconds."""


@contextmanager
def tuned() -> Iterator[None]:
    """Keep the event loop free and give memory back within the block."""
    with loop_kept_free(), memory_returned():
        yield


@contextmanager
def loop_kept_free() -> Iterator[None]:
    """Keep threads that compute, and the collector of garbage, from holding the event loop for long within the block.

    Young objects are looked at within the request that makes them, which takes some milliseconds. The second look at
    those that live on takes some ten: it has a turn of the loop of its own. All objects are looked at rarely.
    """
    loop = asyncio.get_running_loop()
    looking: asyncio.TimerHandle

    def look() -> None:
        nonlocal looking
        look_again()
        looking = loop.call_later(AGAIN_S, look)

    switch_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_S)
    array_type(MOST_HELD)  # to make it takes 30 ms
    # What is there now stays: looking through all of it again and again would take a tenth of a second each time.
    gc.collect()
    gc.freeze()
    # Python 3.14 has no second look: it goes through older objects in small portions.
    gc.set_threshold(MOST_YOUNG, *(() if sys.version_info >= (3, 14) else (NEVER,)))
    looking = loop.call_later(AGAIN_S, look)
    try:
        yield
    finally:
        looking.cancel()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(switch_s)


def look_again() -> None:
    """Look again at objects that live on, if that is due."""
    if gc.get_count()[1] >= LOOKS:
        gc.collect(1)


@contextmanager
def memory_returned() -> Iterator[None]:
    """Give memory that large requests needed back to the system within the block: glibc would keep it."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):  # another library than glibc
        yield
        return
    libc.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
    libc.mallopt(M_ARENA_MAX, ARENAS)
    over = threading.Event()

    def trim() -> None:
        while not over.wait(TRIM_S):
            libc.malloc_trim(0)

    trimming = threading.Thread(target=trim, name="windlass-memory", daemon=True)
    trimming.start()
    try:
        yield
    finally:
        over.set()
        trimming.join()
