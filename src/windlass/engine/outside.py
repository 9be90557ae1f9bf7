"""What the engine takes from outside: elapsed time, waiting, chance. Passed in, so that tests can own them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outside:
    """Elapsed seconds, a way to wait, and a number between 0 and 1."""

    monotonic: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
