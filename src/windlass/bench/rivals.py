"""Rivals: what is compared can do the same four things, and be filled with ready jobs."""

from __future__ import annotations

from collections.abc import Sequence
from time import time_ns
from typing import Any, Protocol

import msgspec

Taken = Sequence[Any]
"""Jobs that a rival has claimed, as it wants to have them back."""

JOBS_PER_MS = 30
"""How close to each other filled jobs were submitted: their ranks and ids advance by so much."""
START_MS = time_ns() // 1_000_000 - 3_600_000
"""When the first filled job was submitted: before every one that is submitted while measuring, and not long ago."""

# About 300 bytes, as in the measurements of the design.
PAYLOAD = msgspec.json.encode(
    {
        "customer": 48151,
        "template": "invoice-reminder",
        "language": "en",
        "address": "someone@example.org",
        "lines": [{"sku": f"A-{n:05d}", "count": n, "price": 1999} for n in range(1, 5)],
        "note": "Left at the door; ring twice.",
    }
).decode()
RESULT = '{"sent":true}'


class Rival(Protocol):
    """One side of a comparison."""

    async def clear(self) -> None:
        """Remove every job, ready and finished."""
        ...

    async def fill(self, count: int) -> None:
        """Add `count` ready jobs, by the fastest way there is."""
        ...

    async def submit(self, batch: int) -> None:
        """Add `batch` jobs as a caller would."""
        ...

    async def claim(self, batch: int) -> Taken:
        """Take up to `batch` ready jobs."""
        ...

    async def complete(self, taken: Taken) -> None:
        """End jobs that were taken."""
        ...
