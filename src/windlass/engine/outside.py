"""The clocks, the waiting and the chance that the engine uses. They are parameters, so that tests own them."""

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
