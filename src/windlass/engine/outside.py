"""What the engine takes from outside: time that passes or is worked, waiting, chance. Passed in for tests to own."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outside:
    """Elapsed seconds, seconds that the thread has worked, a way to wait, and a number between 0 and 1."""

    monotonic: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    cpu_s: Callable[[], float] = time.thread_time
    chance: Callable[[], float] = random.random
